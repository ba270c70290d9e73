//! Helpers of several files: an engine alone, and lengths on both sides of the eager limit.

use tickwire::testing::Cluster;
use tickwire::{Bootstrap, Engine, Rank, Tag};
use tickwire_tests::cases::BOUND;

/// The rank that most messages go to.
pub(crate) const ME: Rank = Rank(0);

/// Bytes of a message that goes with its envelope (eager).
pub(crate) const SHORT: usize = 100;
/// Bytes of a message whose receiver asks for it (rendezvous).
pub(crate) const LONG: usize = 100_000;

/// Exchanges an empty message between engines 0 and 1: afterwards their connection is there.
pub(crate) fn acquaint(cluster: &mut Cluster) {
    let world = cluster.engines[0].comm_world();
    let hello = cluster.engines[1].isend(Vec::<u8>::new(), ME, Tag(9), world).expect("there is room for a send");
    let receive = cluster.engines[0].irecv(Vec::<u8>::new(), Rank(1), Tag(9), world).expect("and for a receive");
    cluster.finish(BOUND, 0, receive).expect("it is received");
    cluster.finish(BOUND, 1, hello).expect("it is sent");
}

/// Receives a message of engine 1 with tag 3 at engine 0; its bytes.
pub(crate) fn receive(cluster: &mut Cluster, length: usize) -> Vec<u8> {
    let world = cluster.engines[0].comm_world();
    let request = cluster.engines[0].irecv(vec![0u8; length], Rank(1), Tag(3), world).expect("there is room");
    cluster.finish(BOUND, 0, request).expect("it is received").0
}

/// An engine alone, which reaches itself.
pub(crate) fn solo() -> Engine {
    Engine::builder().build(Bootstrap::solo()).expect("an engine alone needs nothing")
}

/// Ticks until all that has been sent so far has arrived.
pub(crate) fn settle(cluster: &mut Cluster) {
    cluster.tick_times(200);
}
