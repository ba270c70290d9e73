//! Short operations that a target's engine does share requests.

use crate::kit::{Over, each_rank, windows};
use tickwire::testing::rows;
use tickwire::{Engine, Rank, Window, op};

/// Operations. A frame of 4 KiB has room for 127 of a word.
const COUNT: usize = 1_000;
/// Frames that twice as many may take.
const FRAMES: u32 = 40;

/// Requests to rank 1's engine so far.
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
                // It comes behind all of them.
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
