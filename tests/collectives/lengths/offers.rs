//! A member has offered many messages that nobody will take. Its operation must end soon, not after a time for each message.

use crate::kit::clusters;
use tickwire::testing::{Cluster, STEP_NS};
use tickwire::{Rank, RequestError};

/// Longest virtual time of such an operation and of what it leaves, ns: a few times the time before the first question. Were there a
/// wait before each question, dozens of offers would take longer.
const TIME_MAX_NS: u64 = 200_000_000;

/// Broadcasts `root` bytes from rank 0 while the others expect `others`. Checks that all members are told soon, and are at rest soon.
fn ends_soon(cluster: &mut Cluster, root: usize, others: usize) {
    let end_ns = cluster.now_ns + TIME_MAX_NS;
    let mut requests = Vec::new();
    for (rank, engine) in cluster.engines.iter_mut().enumerate() {
        let world = engine.comm_world();
        requests.push(engine.ibcast(vec![1u8; if rank == 0 { root } else { others }], Rank(0), world).unwrap());
    }
    let ticks_left = |cluster: &Cluster| (end_ns.saturating_sub(cluster.now_ns) / STEP_NS) as u32;
    let mut told = 0;
    for (rank, request) in requests.into_iter().enumerate() {
        let bound = ticks_left(cluster);
        let Err(ended) = cluster.finish(bound, rank, request) else { continue };
        told += 1;
        use RequestError::{Abandoned, Short, Truncated};
        let error = ended.error;
        assert!(matches!(error, Short { .. } | Truncated { .. } | Abandoned(_)), "rank {rank}: {error}");
    }
    assert!(told > 0, "somebody is told");
    cluster.tick_times(ticks_left(cluster));
    cluster.assert_at_rest();
}

#[test]
fn a_root_with_many_offers_that_nobody_takes_is_soon_told() {
    for size in [2, 3] {
        for mut cluster in clusters(size) {
            ends_soon(&mut cluster, 3_000_000, 1_500_000);
            ends_soon(&mut cluster, 1_000_000, 3_000_000);
        }
    }
}
