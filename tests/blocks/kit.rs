//! Clusters over several transports, chains of blocks on them, and waits with a limit.

use tickwire::internals::transports::sim::ProviderConfig;
use tickwire::testing::{Cluster, SimConfig, SimNet, rows};
use tickwire::{Builder, Engine, Limits, Pieces, Rank, Rejected, Request, Tag};

/// Most rounds until operations are done.
pub(crate) const BOUND: u32 = 50_000;
/// The tag of blocks.
pub(crate) const TAG: Tag = Tag(3);

/// Clusters of this many engines over all transports.
pub(crate) fn clusters(size: u32) -> Vec<Cluster> {
    let seed = u64::from(size);
    let limits = |builder: Builder, limits: Limits| builder.limits(limits);
    let late = SimConfig { delay_ns: 0..400_000, partial_of_256: 60, ..SimConfig::calm(seed) };
    vec![
        Cluster::loopback(size),
        Cluster::shm(size),
        Cluster::sim(size, &SimNet::new(size, SimConfig::calm(seed))),
        Cluster::sim(size, &SimNet::new(size, late)),
        Cluster::sim(size, &SimNet::new(size, SimConfig::new(seed))),
        // A transport that matches messages itself. Messages of blocks bypass its matching.
        Cluster::provider(size, &SimNet::new(size, SimConfig::calm(seed)), |_| ProviderConfig::calm(seed)),
        // Without Deliver, all messages go through the systems. Only the shortest messages are eager.
        Cluster::loopback_with(size, |builder| {
            limits(builder, Limits { deliver: false, eager_max: 256, ..Limits::default() })
        }),
    ]
}

/// Bytes that tell their place in the message.
pub(crate) fn numbers(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// The request of a rank's block in a chain.
#[derive(Debug)]
pub(crate) enum Held {
    First(Request<((), Vec<u8>)>),
    Middle(Request<()>),
    Last(Request<((), Vec<u8>)>),
}

/// The first engine sends bytes along a chain to the last one. The engines in the middle pass them on. Returns what
/// has arrived.
pub(crate) fn pass_along(cluster: &mut Cluster, bytes: &[u8]) -> Vec<u8> {
    let held = start_chain(cluster, bytes);
    let mut last = Vec::new();
    for (rank, held) in held.into_iter().enumerate() {
        match held {
            Held::First(request) => drop(cluster.finish(BOUND, rank, request).unwrap()),
            Held::Middle(request) => drop(cluster.finish(BOUND, rank, request).unwrap()),
            Held::Last(request) => last = cluster.finish(BOUND, rank, request).unwrap().0.1,
        }
    }
    last
}

/// Starts the blocks of [`pass_along`].
pub(crate) fn start_chain(cluster: &mut Cluster, bytes: &[u8]) -> Vec<Held> {
    let last = cluster.engines.len() as u32 - 1;
    let start = |(rank, engine): (u32, &mut Engine)| {
        let world = engine.comm_world();
        let (before, behind) = (Rank(rank.wrapping_sub(1)), Rank(rank + 1));
        match rank {
            0 => Held::First(posted(engine.gather_block(behind, TAG, world).send(bytes.to_vec()).start())),
            _ if rank == last => {
                Held::Last(posted(engine.scatter_block(before, TAG, world).recv(vec![0u8; bytes.len()]).start()))
            }
            _ => {
                let block = engine.scatter_block(before, TAG, world);
                Held::Middle(posted(block.forward(bytes.len(), behind).start()))
            }
        }
    };
    (0..).zip(&mut cluster.engines).map(start).collect()
}

pub(crate) fn posted<B: Pieces>(posted: Result<Request<B>, Rejected<B>>) -> Request<B> {
    posted.unwrap_or_else(|rejected| panic!("not started: {}", rejected.error))
}

/// Checks that nothing is left of the operations.
pub(crate) fn all_at_rest(cluster: &mut Cluster) {
    cluster.tick_times(300);
    cluster.assert_at_rest();
    for engine in &mut cluster.engines {
        let all = rows(engine);
        assert_eq!(all.progress.forward_bytes.used, 0, "windows are given back");
        assert_eq!(all.progress.free_supplies.count as usize, all.supplies.len());
        assert!(all.progress.supplies.is_empty() && all.progress.graphs.windows == 0);
    }
}
