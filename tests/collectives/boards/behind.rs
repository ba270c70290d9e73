//! A member that others take for dead may live, and still read what they have shown.

use super::slots::{AHEAD, until};
use crate::kit::on_threads;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tickwire::internals::systems::procs::ending::fail;
use tickwire::testing::rows;
use tickwire::{Engine, OperationError, RequestError, op};

/// Rank 1 is in the midst of reading the operand of rank 0. The connection of rank 0 to it fails, and rank 0 goes on with as many
/// operations as overwrite that operand. Rank 1 must not take what it reads then for the operand.
#[test]
fn who_is_left_behind_while_it_reads_is_told() {
    for count in [1, 8, 200, 300, 3_000, 40_000] {
        let (reads, has_gone_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        on_threads(2, |rank, bootstrap| {
            let mut engine = Engine::builder().build(bootstrap).unwrap();
            let world = engine.comm_world();
            // This opens the boards.
            engine.barrier(world).unwrap();
            let (own, mut sums) = (vec![1u64; count], vec![0u64; count]);
            if rank == 1 {
                let (reads, has_gone_on) = (reads.clone(), has_gone_on.clone());
                let waits = move |left: u64, right: u64| {
                    reads.store(true, Ordering::Release);
                    while !has_gone_on.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    left + right
                };
                let ended = engine.scan(&own, &mut sums, waits, world);
                let is_told = matches!(&ended, Err(OperationError::Request(RequestError::PeerFailed { .. })));
                assert!(is_told, "{count}: {ended:?} with {:?}", &sums[count - 1..]);
                return;
            }
            engine.scan(&own, &mut sums, |left: u64, right: u64| left + right, world).unwrap();
            until(&mut engine, "rank 1 reads", |_| reads.load(Ordering::Acquire));
            let mut all = rows(&mut engine);
            let row = all.procs.known[1].row;
            fail(&mut all, row, "taken for dead".to_owned());
            for number in 0..u64::from(AHEAD) {
                // Rank 0 needs nothing of rank 1.
                engine.scan(&vec![number << 32; count], &mut sums, op::Sum, world).unwrap();
            }
            has_gone_on.store(true, Ordering::Release);
            let _ = engine.finalize(Duration::from_secs(20));
        });
    }
}
