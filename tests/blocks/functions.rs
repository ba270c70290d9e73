//! Blocks whose operation is a function of the application that panics.

use crate::kit::{TAG, pass_along, posted};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwire::testing::Cluster;
use tickwire::{Rank, op};

/// The message comes while its receive is posted and nothing else is pending: the case for Deliver.
#[test]
fn a_function_that_panics_poisons_its_engine() {
    for receives in [0, 1] {
        let mut cluster = Cluster::loopback(2);
        cluster.checked = false;
        assert_eq!(pass_along(&mut cluster, b"hello"), b"hello");
        let world = cluster.engines[0].comm_world();
        let bug = |_: u64, _: u64| -> u64 { panic!("a bug in the sum") };
        let block = cluster.engines[1].scatter_block(Rank(0), TAG, world);
        let sum = posted(block.recv_op(vec![1u64], bug).start());
        // Another block waits for the next message.
        let block = cluster.engines[1].scatter_block(Rank(0), TAG, world);
        let next = (receives == 1).then(|| posted(block.recv_op(vec![1u64], op::Sum).start()));
        cluster.tick_times(10);
        let sent = posted(cluster.engines[0].gather_block(Rank(1), TAG, world).send(vec![7u64]).start());
        let ticked = catch_unwind(AssertUnwindSafe(|| cluster.tick_times(10)));
        assert!(ticked.is_ok(), "the engine catches the panic");
        let error = cluster.engines[1].wait(&sum).unwrap_err().to_string();
        assert!(error.contains("a bug in the sum"), "{error}");
        if let Some(next) = next {
            let error = cluster.engines[1].wait(&next).unwrap_err().to_string();
            assert!(error.contains("a bug in the sum"), "the first message is the first receive's: {error}");
        }
        cluster.engines[0].wait(&sent).unwrap();
    }
}
