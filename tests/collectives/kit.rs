//! Clusters over every transport, and operations on all engines of one.

use tickwire::internals::transports::sim::ProviderConfig;
use tickwire::testing::{Cluster, SimConfig, SimNet};
use tickwire::{Builder, Comm, Engine, Limits, Pieces, Rejected, Request};

/// Rounds in which operations must be done.
pub(crate) const BOUND: u32 = 50_000;

/// What is run on each cluster.
pub(crate) const SIZES: [u32; 7] = [1, 2, 3, 4, 5, 8, 13];

/// Clusters of so many engines over all transports.
pub(crate) fn clusters(size: u32) -> Vec<Cluster> {
    let seed = u64::from(size);
    let mut clusters = vec![Cluster::loopback(size), Cluster::sim(size, &SimNet::new(size, SimConfig::calm(seed)))];
    if size <= 5 {
        clusters.push(Cluster::shm(size));
        // A transport that matches by itself: collective messages go past that.
        clusters
            .push(Cluster::provider(size, &SimNet::new(size, SimConfig::calm(seed)), |_| ProviderConfig::calm(seed)));
        clusters.push(Cluster::sim(size, &SimNet::new(size, SimConfig::new(seed))));
        // Nothing but rows and columns; and short rings, so that all but the shortest is long.
        clusters.push(Cluster::loopback_with(size, |builder| limits(builder, 1024)));
    }
    clusters
}

fn limits(builder: Builder, eager: usize) -> Builder {
    builder.limits(Limits { deliver: false, eager_max: eager, ..Limits::default() })
}

/// Posts an operation on every engine, waits for all, and gives their buffers.
pub(crate) fn all<B: Pieces>(
    cluster: &mut Cluster,
    mut post: impl FnMut(&mut Engine, u32, Comm) -> Result<Request<B>, Rejected<B>>,
) -> Vec<B> {
    let requests: Vec<_> = (0..)
        .zip(&mut cluster.engines)
        .map(|(rank, engine)| {
            let world = engine.comm_world();
            post(engine, rank, world).unwrap()
        })
        .collect();
    (0..).zip(requests).map(|(rank, request)| cluster.finish(BOUND, rank, request).unwrap().0).collect()
}

/// Each rank's elements.
pub(crate) fn values(rank: u32, count: usize) -> Vec<i64> {
    (0..count as i64).map(|at| i64::from(rank) * 1000 + at * at + 1).collect()
}

pub(crate) fn sum(ranks: std::ops::Range<u32>, count: usize) -> Vec<i64> {
    (0..count).map(|at| ranks.clone().map(|rank| values(rank, count)[at]).sum()).collect()
}
