//! Flushes over a fabric whose last one-sided operation is long under way.

use crate::barred::fabric;
use crate::kit::{Calls, gate};
use crate::late::Late;
use crate::pair::RING_BYTES;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tickwire::internals::transports::Hub;
use tickwire::testing::Board;
use tickwire::{Datatype, Engine, LockKind, Rank, TrafficClass, Typed, WindowReach};
use tickwire_tests::needs::has_libfabric;

/// Runs `part` for each of two ranks, in threads. Messages go over "upper", and one-sided traffic over "fabric". The part gets to know
/// whether the own last operation is still under way.
fn ranks(provider: &str, part: impl Fn(&mut Engine, u32, &AtomicBool) + Sync) {
    let (board, hub) = (Board::new(2), Hub::new(2, RING_BYTES));
    std::thread::scope(|threads| {
        for rank in 0..2 {
            let (board, hub, part) = (&board, hub.clone(), &part);
            threads.spawn(move || {
                let (upper, late) = (gate("upper", &hub, rank, 200, Calls::Open, Arc::default()), Late::default());
                let is_open = late.is_open.clone();
                let fabric = fabric(("fabric", board), provider, rank, 100, Calls::Open, Arc::default());
                let fabric = fabric.late(late);
                let builder = Engine::builder().transport(upper).transport(fabric).exclude(["shm"]);
                let builder = builder.route(TrafficClass::PointToPoint, ["upper"]);
                let builder = builder.route(TrafficClass::OneSided, ["fabric"]);
                let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                part(&mut engine, rank, &is_open);
                engine.finalize(Duration::from_secs(20)).unwrap();
            });
        }
    });
}

/// A put of a long run and a short one: the fabric copies the short one, and the call could return once the long one is complete.
#[test]
fn a_flush_behind_a_typed_put_waits_for_its_short_runs_too() {
    const LONG: usize = 100_000;
    for provider in ["tcp;ofi_rxm", "sockets"].into_iter().filter(|_| has_libfabric()) {
        ranks(provider, |engine, rank, is_open| {
            let world = engine.comm_world();
            let window = engine.win_allocate::<u64>(LONG + 2, world).unwrap();
            if rank == 0 {
                assert_eq!(engine.win_reach(Rank(1), window), Ok(WindowReach::Fabric), "{provider}");
                let of = Datatype::indexed(&[(LONG, 0), (1, LONG as isize + 1)], &Datatype::of::<u64>()).unwrap();
                let from = Typed::new(vec![7u64; LONG + 2], &of, 1).unwrap();
                engine.win_lock(LockKind::Exclusive, Rank(1), window).unwrap();
                for _ in 0..3 {
                    engine.put_typed(&from, Rank(1), 0, (&of, 1), window).unwrap();
                    engine.win_flush(Rank(1), window).unwrap();
                    assert!(!is_open.load(Ordering::Relaxed), "{provider}: the flush has returned too early");
                }
                engine.win_unlock(Rank(1), window).unwrap();
            }
            engine.barrier(world).unwrap();
            if rank == 1 {
                let mut found = vec![0; LONG + 2];
                engine.win_read(&mut found, 0, window).unwrap();
                assert!(found[..LONG].iter().all(|&word| word == 7) && found[LONG..] == [0, 7]);
            }
            engine.win_free(window).unwrap();
        });
    }
}
