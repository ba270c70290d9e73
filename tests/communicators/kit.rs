//! Helpers of several files: the world, context ids, and messages within communicators.

use tickwire::testing::Cluster;
use tickwire::{Comm, Source, Tag, TagFilter};
use tickwire_tests::cases::BOUND;

/// The communicator of all engines. Its handle is the same everywhere.
pub(crate) const WORLD: Comm = Comm(0);

/// The context id of a communicator on one engine.
pub(crate) fn id(cluster: &mut Cluster, rank: usize, comm: Comm) -> u32 {
    cluster.engines[rank].comm_context_id(comm).unwrap()
}

/// Sends a message from one engine to another, with the communicator handle of each. The receive takes any source.
pub(crate) fn pass(cluster: &mut Cluster, from: (usize, Comm), to: (usize, Comm), bytes: &[u8]) {
    let rank = cluster.engines[to.0].comm_rank(to.1).unwrap();
    let sender = cluster.engines[from.0].comm_rank(from.1).unwrap();
    let send = cluster.engines[from.0].isend(bytes.to_vec(), rank, Tag(1), from.1).unwrap();
    let receive = cluster.engines[to.0].irecv(vec![0u8; bytes.len()], Source::Any, TagFilter::Any, to.1).unwrap();
    let (found, status) = cluster.finish(BOUND, to.0, receive).unwrap();
    assert!(found == bytes);
    assert_eq!((status.source, status.length), (sender, bytes.len()));
    cluster.finish(BOUND, from.0, send).unwrap();
}
