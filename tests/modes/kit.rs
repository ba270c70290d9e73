//! Helpers of several files: a single engine, and lengths on both sides of the eager limit.

use tickwire::testing::Cluster;
use tickwire::{Bootstrap, Engine, Rank, Tag};
use tickwire_tests::cases::BOUND;

/// The rank that most messages go to.
pub(crate) const ME: Rank = Rank(0);

/// Length of a message that goes with its envelope (eager), bytes.
pub(crate) const SHORT: usize = 100;
/// Length of a message whose receiver asks for it (rendezvous), bytes.
pub(crate) const LONG: usize = 100_000;

/// Exchanges an empty message between engines 0 and 1, which connects them.
pub(crate) fn acquaint(cluster: &mut Cluster) {
    let world = cluster.engines[0].comm_world();
    let hello = cluster.engines[1].isend(Vec::<u8>::new(), ME, Tag(9), world).expect("there is room for a send");
    let receive = cluster.engines[0].irecv(Vec::<u8>::new(), Rank(1), Tag(9), world).expect("and for a receive");
    cluster.finish(BOUND, 0, receive).expect("it is received");
    cluster.finish(BOUND, 1, hello).expect("it is sent");
}

/// Receives a message with tag 3 from engine 1 at engine 0. Returns its bytes.
pub(crate) fn receive(cluster: &mut Cluster, length: usize) -> Vec<u8> {
    let world = cluster.engines[0].comm_world();
    let request = cluster.engines[0].irecv(vec![0u8; length], Rank(1), Tag(3), world).expect("there is room");
    cluster.finish(BOUND, 0, request).expect("it is received").0
}

/// A single engine, which reaches itself.
pub(crate) fn solo() -> Engine {
    Engine::builder().build(Bootstrap::solo()).expect("an engine alone needs nothing")
}

/// Ticks until all messages sent so far have arrived.
pub(crate) fn settle(cluster: &mut Cluster) {
    cluster.tick_times(200);
}
