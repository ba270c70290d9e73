//! Clusters over every transport, and operations on all engines of a cluster.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use tickwire::internals::transports::sim::ProviderConfig;
use tickwire::testing::{Board, Cluster, SimConfig, SimNet};
use tickwire::{Agreed, Bootstrap, Builder, Comm, Engine, Limits, Pieces, Rejected, Request};

/// Most rounds until operations are done.
pub(crate) const BOUND: u32 = 50_000;

/// Longest time of a test whose ranks wait in blocking calls.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Sizes of the clusters that a test runs on.
pub(crate) const SIZES: [u32; 7] = [1, 2, 3, 4, 5, 8, 13];

/// Clusters of this many engines over all transports.
pub(crate) fn clusters(size: u32) -> Vec<Cluster> {
    let seed = u64::from(size);
    let mut clusters = vec![Cluster::loopback(size), Cluster::sim(size, &SimNet::new(size, SimConfig::calm(seed)))];
    if size > 2 {
        clusters.push(on_hosts(size, &SimConfig::calm(seed)));
    }
    if size <= 5 {
        clusters.push(Cluster::shm(size));
        // A transport that matches messages itself. The engine still matches the messages of collective operations.
        clusters
            .push(Cluster::provider(size, &SimNet::new(size, SimConfig::calm(seed)), |_| ProviderConfig::calm(seed)));
        let reading = SimConfig { remote_read: true, unread_of_256: 40, ..SimConfig::new(seed) };
        clusters.push(Cluster::sim(size, &SimNet::new(size, reading)));
        // Without Deliver, and with an eager limit of 1 KiB, so that all but the shortest messages go by rendezvous.
        clusters.push(Cluster::loopback_with(size, |builder| limits(builder, 1024)));
    }
    clusters
}

/// A cluster over a simulated network, whose engines are told to be on two or three hosts. These have different numbers of ranks.
pub(crate) fn on_hosts(size: u32, config: &SimConfig) -> Cluster {
    Cluster::sim_on(Board::on_hosts(size, hosts(size)), &SimNet::new(size, config.clone()), |_, builder| builder)
}

/// The host of each rank of such a cluster.
pub(crate) fn hosts(size: u32) -> Vec<u32> {
    let hosts = if size < 5 { 2 } else { 3 };
    (0..size).map(|rank| rank * hosts / size).collect()
}

fn limits(builder: Builder, eager: usize) -> Builder {
    builder.limits(Limits { deliver: false, eager_max: eager, ..Limits::default() })
}

/// Posts an operation on every engine, waits for all, and returns their buffers.
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
    take_all(cluster, requests)
}

/// Waits for the requests of all engines, and returns their buffers.
pub(crate) fn take_all<B: Pieces>(cluster: &mut Cluster, requests: Vec<Request<B>>) -> Vec<B> {
    (0..).zip(requests).map(|(rank, request)| cluster.finish(BOUND, rank, request).unwrap().0).collect()
}

/// Runs `part` on each of this many engines, each in its own thread.
pub(crate) fn in_threads(size: u32, part: impl Fn(&mut Engine, u32, Comm) + Sync) {
    on_threads(size, |rank, bootstrap| {
        let mut engine = Engine::builder().build(bootstrap).unwrap();
        let world = engine.comm_world();
        part(&mut engine, rank, world);
        engine.finalize(Duration::from_secs(20)).unwrap();
    });
}

/// Runs `part` for each rank in its own thread. A blocking call has no time limit. If it waits too long, the test
/// process is ended.
pub(crate) fn on_threads(size: u32, part: impl Fn(u32, Bootstrap) + Sync) {
    on_threads_told(size, String::new, part);
}

/// As [`on_threads`], for the engines of a board.
pub(crate) fn on_threads_on(board: &Board, part: impl Fn(u32, Bootstrap) + Sync) {
    run_threads(board, String::new, part);
}

/// As [`on_threads`]. If it does not end, `tell` says what is stuck.
pub(crate) fn on_threads_told(size: u32, tell: impl FnOnce() -> String + Send, part: impl Fn(u32, Bootstrap) + Sync) {
    run_threads(&Board::new(size), tell, part);
}

fn run_threads(board: &Board, tell: impl FnOnce() -> String + Send, part: impl Fn(u32, Bootstrap) + Sync) {
    let (at_work, watched) = mpsc::channel::<()>();
    std::thread::scope(|threads| {
        threads.spawn(move || {
            if watched.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                eprintln!("the ranks have not ended within {PATIENCE:?} {}", tell());
                std::process::abort();
            }
        });
        let part = &part;
        let ranks: Vec<_> =
            (0..board.size()).map(|rank| threads.spawn(move || part(rank, board.bootstrap(rank)))).collect();
        let ended: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
        drop(at_work);
        ended.into_iter().for_each(|rank| rank.unwrap());
    });
}

/// The elements of a rank.
pub(crate) fn values(rank: u32, count: usize) -> Vec<i64> {
    (0..count).map(|at| value(rank, at)).collect()
}

/// One of them.
pub(crate) fn value(rank: u32, at: usize) -> i64 {
    i64::from(rank) * 1000 + (at * at) as i64 + 1
}

pub(crate) fn sum(ranks: std::ops::Range<u32>, count: usize) -> Vec<i64> {
    (0..count).map(|at| ranks.clone().map(|rank| value(rank, at)).sum()).collect()
}

/// Makes a duplicate of the world. Returns its handle on each engine.
pub(crate) fn dup(cluster: &mut Cluster) -> Vec<Comm> {
    let start = |engine: &mut Engine| {
        let world = engine.comm_world();
        engine.start_dup(world).unwrap()
    };
    let mut agreements: Vec<_> = cluster.engines.iter_mut().map(start).collect();
    let mut comms = vec![None; agreements.len()];
    cluster.tick_until(BOUND, "all have it", |cluster| {
        for ((engine, agreement), comm) in cluster.engines.iter_mut().zip(&mut agreements).zip(&mut comms) {
            if comm.is_none()
                && let Agreed::Done(made) = engine.test_agreement(agreement).unwrap()
            {
                *comm = made;
            }
        }
        comms.iter().all(Option::is_some)
    });
    comms.into_iter().flatten().collect()
}
