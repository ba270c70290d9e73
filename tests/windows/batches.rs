//! Short operations that a target's engine does are batched: several operations share one request.

use crate::kit::{Over, PATIENCE, compute_until, each_rank, windows};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tickwire::testing::rows;
use tickwire::{Engine, Rank, RegionAccess, Window, op};

/// Number of operations. A frame of 4 KiB has room for 127 operations of one word.
const COUNT: usize = 1_000;
/// Most frames for twice as many operations.
const FRAMES: u32 = 40;

/// The number of requests that were sent to rank 1's engine so far.
fn sent(engine: &mut Engine, window: Window<u64>) -> u32 {
    rows(engine).windows.get(window.handle).unwrap().targets[1].frames
}

#[test]
fn short_operations_share_frames_and_keep_their_order() {
    each_rank(2, Over::Loopback, |engine, rank, world| {
        for window in windows(engine, COUNT, world) {
            engine.win_lock_all(window).unwrap();
            engine.barrier(world).unwrap();
            if rank == 0 {
                let target = Rank(1);
                let before = sent(engine, window);
                let mut put = |at| engine.rput(vec![at as u64], target, at, window).unwrap();
                let requests: Vec<_> = (0..COUNT).map(&mut put).collect();
                engine.wait_all(&requests).unwrap();
                let frames = sent(engine, window) - before;
                assert!(frames <= FRAMES, "{frames} frames for {COUNT} requests");

                let before = sent(engine, window);
                for at in 0..COUNT {
                    engine.put(&[7u64], target, at, window).unwrap();
                    engine.accumulate(&[at as u64], op::Sum, target, at, window).unwrap();
                }
                // The target does this operation after all of them.
                assert_eq!(engine.fetch_and_op(1u64, op::Sum, target, COUNT - 1, window), Ok(6 + COUNT as u64));
                let frames = sent(engine, window) - before;
                assert!(frames <= FRAMES, "{frames} frames for {COUNT} puts and updates");
                engine.win_flush(target, window).unwrap();
                let mut got = vec![0u64; COUNT];
                engine.get(&mut got, target, 0, window).unwrap();
                let expected = (0..COUNT as u64).map(|at| 7 + at + u64::from(at == COUNT as u64 - 1));
                assert_eq!(got, expected.collect::<Vec<_>>());
            }
            engine.barrier(world).unwrap();
            engine.win_unlock_all(window).unwrap();
            engine.win_free(window).unwrap();
        }
    });
}

#[test]
fn what_was_put_leaves_before_an_engine_ends() {
    // If a target takes no requests, an origin may send 16 requests. All further puts wait to be sent.
    const REQUESTS: usize = 16;
    const AHEAD: usize = REQUESTS + 50;
    let has_put = AtomicBool::new(false);
    each_rank(2, Over::Loopback, |engine, rank, world| {
        let elements = if rank == 1 { AHEAD } else { 1 };
        let region = engine.expose(vec![0u64; elements], RegionAccess::ALL).unwrap();
        let mut keys = [region.key(); 2];
        engine.allgather(&[region.key()], &mut keys, world).unwrap();
        if rank == 0 {
            for at in 0..AHEAD {
                engine.region_put(&[at as u64 + 1], &keys[1], 8 * at).unwrap();
                if at < REQUESTS {
                    engine.tick();
                }
            }
            let mut windows = rows(engine).windows.list.iter().flatten();
            let waits = windows.any(|window| window.targets[1].operations.iter().any(|operation| !operation.all_sent));
            assert!(waits, "all have left");
            has_put.store(true, Ordering::Release);
            return;
        }
        compute_until(&has_put);
        let (start, mut last) = (Instant::now(), [0]);
        while last != [AHEAD as u64] {
            assert!(start.elapsed() < PATIENCE, "the last put is lost");
            engine.tick();
            engine.region_get(&mut last, &keys[1], 8 * (AHEAD - 1)).unwrap();
        }
    });
}
