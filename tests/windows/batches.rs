//! Short operations that a target's engine does share requests.

use crate::kit::{Over, each_rank, windows};
use tickwire::testing::rows;
use tickwire::{Engine, Rank, op};

/// Operations. A request has room for 511 of a word.
const COUNT: usize = 1_000;
/// Frames that these may take, with those of the calls around them.
const FRAMES: u32 = 10;

fn sent(engine: &mut Engine) -> u32 {
    rows(engine).progress.work.get().sent
}

#[test]
fn short_operations_share_frames_and_keep_their_order() {
    each_rank(2, Over::Loopback, |engine, rank, world| {
        for window in windows(engine, COUNT, world) {
            engine.win_lock_all(window).unwrap();
            engine.barrier(world).unwrap();
            if rank == 0 {
                let target = Rank(1);
                let before = sent(engine);
                let mut put = |at| engine.rput(vec![at as u64], target, at, window).unwrap();
                let requests: Vec<_> = (0..COUNT).map(&mut put).collect();
                engine.wait_all(&requests).unwrap();
                let frames = sent(engine).wrapping_sub(before);
                assert!(frames <= FRAMES, "{frames} frames for {COUNT} requests");

                let before = sent(engine);
                for at in 0..COUNT {
                    engine.put(&[7u64], target, at, window).unwrap();
                    engine.accumulate(&[at as u64], op::Sum, target, at, window).unwrap();
                }
                // It comes behind all of them.
                assert_eq!(engine.fetch_and_op(1u64, op::Sum, target, COUNT - 1, window), Ok(6 + COUNT as u64));
                let frames = sent(engine).wrapping_sub(before);
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
