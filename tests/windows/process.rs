//! Engines of one process. Loads and stores reach their windows and regions, even after the owner has gone.

use crate::kit::{PATIENCE, compute_until, refused, values};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::testing::Board;
use tickwire::transport::Hub;
use tickwire::{Builder, Engine, LockKind, ProcId, Rank, RegionAccess, RegionKey, Window, WindowReach};

/// Elements of a part.
const COUNT: usize = 1_000;

/// An engine of two, with a window of a buffer, and the keys of a region of each engine.
fn member(board: &Board, hub: Hub, rank: u32) -> (Engine, Window<u64>, Vec<RegionKey>) {
    let builder = Engine::builder().include(["loopback"]).hub(hub);
    let mut engine = builder.build(board.bootstrap(rank)).unwrap();
    let world = engine.comm_world();
    let window = engine.win_create(vec![0u64; COUNT], world).unwrap();
    let region = engine.expose(vec![0u64; COUNT], RegionAccess::ALL).unwrap();
    let mut keys = vec![region.key(); 2];
    engine.allgather(&[region.key()], &mut keys, world).unwrap();
    engine.win_lock(LockKind::Shared, Rank(1 - rank), window).unwrap();
    if rank == 0 {
        assert_eq!(engine.region_reach(&keys[1]), Ok(WindowReach::Memory));
        assert_eq!(engine.win_reach(Rank(1), window), Ok(WindowReach::Memory));
    }
    engine.barrier(world).unwrap();
    (engine, window, keys)
}

/// The engine of rank 1 ends while its memory is in use. The memory must not be reused.
fn ends(end: fn(Engine)) {
    let (board, hub) = (Board::new(2), Hub::new(2, LOOPBACK_RING_BYTES));
    let [has_gone, has_written] = [false; 2].map(AtomicBool::new);
    std::thread::scope(|threads| {
        let (its_board, its_hub) = (&board, hub.clone());
        let [has_gone, has_written] = [&has_gone, &has_written];
        threads.spawn(move || {
            let (engine, ..) = member(its_board, its_hub, 1);
            end(engine);
            // These allocations have the size of the engine's memory. They would get the memory if it was free.
            let fresh: Vec<Vec<u64>> = (0..8).map(|_| vec![0; COUNT]).collect();
            has_gone.store(true, Ordering::Release);
            compute_until(has_written);
            assert!(fresh.iter().flatten().all(|&word| word == 0), "somebody else's memory was written");
        });
        let (mut engine, window, keys) = member(&board, hub, 0);
        compute_until(has_gone);
        // This engine has not ticked, so it does not know that rank 1 has ended.
        engine.put(values(3, COUNT), Rank(1), 0, window).unwrap();
        let mut got = vec![0; COUNT];
        engine.get(&mut got, Rank(1), 0, window).unwrap();
        assert_eq!(got, values(3, COUNT));
        let put = engine.region_put(values(4, COUNT), &keys[1], 0);
        let _ = put.and(engine.region_flush(ProcId(1)));
        has_written.store(true, Ordering::Release);
        let _ = engine.finalize(PATIENCE);
    });
}

#[test]
fn memory_of_an_engine_that_was_dropped_is_not_used_again() {
    ends(drop);
}

/// A panic passes an engine: it ends without a goodbye.
fn panics_with(engine: Engine) {
    let panics = move || {
        let _engine = engine;
        panic!("on purpose");
    };
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
}

#[test]
fn memory_of_an_engine_that_a_panic_has_ended_is_not_used_again() {
    ends(panics_with);
}

/// An engine that has posted an exposure epoch loses its origin, which has started its epoch: the origin's engine `ends`.
/// `is_lent` is whether the own part may be lent then.
fn loses_an_origin(over: impl Fn() -> Builder + Copy + Send + Sync, ends: fn(Engine), is_lent: bool) {
    let board = Board::new(2);
    std::thread::scope(|threads| {
        let its_board = &board;
        let member = move |rank| {
            let mut engine = over().build(its_board.bootstrap(rank)).unwrap();
            let world = engine.comm_world();
            let window = engine.win_allocate::<u64>(2, world).unwrap();
            let group = engine.comm_group(world).unwrap().include(&[1 - rank]).unwrap();
            (engine, window, group)
        };
        threads.spawn(move || {
            let (mut engine, window, group) = member(1);
            engine.win_start(&group, window).unwrap();
            ends(engine);
        });
        let (mut engine, window, group) = member(0);
        engine.win_exclusive(window).unwrap().fill(5);
        engine.win_post(&group, window).unwrap();
        engine.win_wait(window).unwrap_err();
        for _ in 0..2 {
            match is_lent {
                true => engine.win_exclusive(window).unwrap().fill(5),
                false => refused(engine.win_exclusive(window).map(drop), "may still write"),
            }
        }
        let mut own = [0; 2];
        engine.win_read(&mut own, 0, window).unwrap();
        assert_eq!(own, [5; 2]);
        let _ = engine.finalize(PATIENCE);
    });
}

#[test]
fn a_part_is_not_lent_while_an_origin_that_was_lost_may_still_write_there() {
    // Its connection has ended, and its process lives.
    loses_an_origin(Engine::builder, panics_with, false);
    // It has said goodbye.
    loses_an_origin(Engine::builder, drop, true);
    // Its operations needed the owner's engine.
    let hub = &Hub::new(2, LOOPBACK_RING_BYTES).apart();
    loses_an_origin(|| Engine::builder().include(["loopback"]).hub(hub.clone()), panics_with, true);
    // A fabric may have taken operations of it.
    if tickwire_tests::needs::has_libfabric() {
        loses_an_origin(|| Engine::builder().include(["loopback", "ofi:sockets"]), panics_with, false);
    }
}
