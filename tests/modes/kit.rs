//! Helpers of several files: an engine alone, and lengths on both sides of the eager limit.

use tickwire::testing::Cluster;
use tickwire::{Bootstrap, Engine, Rank};

/// The rank that most messages go to.
pub(crate) const ME: Rank = Rank(0);

/// Bytes of a message that goes with its envelope (eager).
pub(crate) const SHORT: usize = 100;
/// Bytes of a message whose receiver asks for it (rendezvous).
pub(crate) const LONG: usize = 100_000;

/// An engine alone, which reaches itself.
pub(crate) fn solo() -> Engine {
    Engine::builder().build(Bootstrap::solo()).expect("an engine alone needs nothing")
}

/// Ticks until all that has been sent so far has arrived.
pub(crate) fn settle(cluster: &mut Cluster) {
    cluster.tick_times(200);
}
