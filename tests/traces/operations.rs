//! Collective operations with requests: what a sink is told of them.

use crate::kit::{MANY, events};
use std::sync::Barrier;
use std::time::Duration;
use tickwire::internals::traces::{About, Event, Ring};
use tickwire::testing::Board;
use tickwire::{Builder, Engine, Limits, Rank, op};

/// An operation with a request, as its events tell of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) about: About,
    pub(crate) begin_ns: u64,
    /// `None` if it has not ended.
    pub(crate) end_ns: Option<u64>,
}

/// The operations with requests, in the order of their starts.
#[track_caller]
pub(crate) fn operations(events: &[Event<'_>]) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::new();
    for event in events {
        match event {
            Event::Started { operation, name, about, at_ns } => {
                assert_eq!(*operation, told.len() as u64, "they are counted");
                told.push(Told { name: name.to_string(), about: *about, begin_ns: *at_ns, end_ns: None });
            }
            Event::Ended { operation, name, at_ns } => {
                let of = &mut told[*operation as usize];
                assert!(of.name == *name && of.begin_ns <= *at_ns && of.end_ns.is_none(), "{of:?}: {event:?}");
                of.end_ns = Some(*at_ns);
            }
            _ => {}
        }
    }
    told
}

/// Runs the same function on two ranks of engines that are built so, each on a thread of its own. Returns the rings with their events.
pub(crate) fn two_of(make: impl Fn() -> Builder + Sync, run: impl Fn(&mut Engine, &Ring) + Sync) -> [Ring; 2] {
    let (board, rings) = (Board::new(2), [(); 2].map(|()| Ring::new(MANY)));
    std::thread::scope(|threads| {
        for (rank, ring) in (0..).zip(&rings) {
            let (board, make, run) = (&board, &make, &run);
            threads.spawn(move || {
                let mut engine = make().trace(ring.clone()).build(board.bootstrap(rank)).unwrap();
                run(&mut engine, ring);
                engine.finalize(Duration::from_secs(20)).unwrap();
            });
        }
    });
    rings
}

#[test]
fn operations_with_requests_are_told_from_their_start_to_their_end() {
    // On boards, and by messages.
    for boards in [true, false] {
        let limits = Limits { boards, ..Limits::default() };
        let (meet, has_sum) = (Barrier::new(2), Barrier::new(2));
        let rings = two_of(
            || Engine::builder().limits(limits.clone()),
            |engine, ring| {
                let (world, me) = (engine.comm_world(), engine.rank().0);
                engine.barrier(world).unwrap();
                // The other rank comes once this one has started both.
                if me == 1 {
                    meet.wait();
                }
                let first = engine.ibarrier(world).unwrap();
                let second = engine.iallreduce(vec![u64::from(me)], vec![0u64], op::Sum, world).unwrap();
                if me == 0 {
                    let open = operations(&events(ring));
                    assert!(open.len() == 2 && open.iter().all(|told| told.end_ns.is_none()), "{open:?}");
                    meet.wait();
                }
                let ((_, sum), _) = engine.wait_take(second).unwrap();
                assert_eq!(sum, [1]);
                engine.wait(&first).unwrap();
                let ended = operations(&events(ring));
                assert!(ended.iter().all(|told| told.end_ns.is_some()), "told before the waits return: {ended:?}");
                has_sum.wait();
                let persistent = engine.bcast_init(vec![me; 4], Rank(0), world).unwrap();
                for _ in 0..3 {
                    engine.start(&persistent).unwrap();
                    engine.wait(&persistent).unwrap();
                }
                engine.ibcast(vec![0u8], Rank(2), world).unwrap_err();
                engine.barrier(world).unwrap();
            },
        );
        let told = rings.map(|ring| operations(&events(&ring)));
        for of in &told {
            let names: Vec<&str> = of.iter().map(|told| &*told.name).collect();
            assert_eq!(names, ["barrier", "allreduce", "bcast", "bcast", "bcast", "bcast"], "boards: {boards}");
            assert!(of.iter().all(|told| told.about == of[0].about && told.end_ns.is_some()), "{of:?}");
        }
        assert!(matches!(told[0][0].about, About::Comm(_)) && told[0][0].about == told[1][0].about);
        for number in [0, 1] {
            let last_begin = told.iter().map(|of| of[number].begin_ns).max();
            let first_end = told.iter().map(|of| of[number].end_ns.unwrap()).min();
            assert!(last_begin <= first_end, "operation {number} of both ranks at one time, boards: {boards}");
        }
        assert!(told[0][1].begin_ns <= told[0][0].end_ns.unwrap(), "the first two overlap");
    }
}
