//! Helpers of several files: clusters whose provider matches messages, and short messages to engine 0.

use tickwire::testing::{Cluster, ProviderConfig, SimConfig, SimNet, rows};
use tickwire::{Rank, Request, Source, Tag, TagFilter};
use tickwire_tests::cases::BOUND;

/// Engines that all reach each other over the provider.
pub(crate) fn provider(engines: u32, seed: u64) -> Cluster {
    Cluster::provider(engines, &SimNet::new(engines, SimConfig::calm(seed)), |_| ProviderConfig::new(seed))
}

/// Engines over two transports: procs of the same parity reach each other by loopback, all others over the provider.
pub(crate) fn mixed(engines: u32, seed: u64, config: ProviderConfig) -> Cluster {
    let net = SimNet::new(engines, SimConfig::calm(seed));
    Cluster::provider(engines, &net, |rank| {
        let procs = Some((0..engines).filter(|proc| proc % 2 != rank % 2).collect());
        ProviderConfig { procs, ..config.clone() }
    })
}

/// Posts a receive of up to 64 bytes at engine 0.
pub(crate) fn post(cluster: &mut Cluster, source: impl Into<Source>, tag: impl Into<TagFilter>) -> Request<Vec<u8>> {
    let world = cluster.engines[0].comm_world();
    cluster.engines[0].irecv(vec![0u8; 64], source, tag, world).unwrap()
}

/// Sends a message to engine 0 and drops its request.
pub(crate) fn send(cluster: &mut Cluster, from: usize, tag: u32, bytes: &[u8]) {
    let world = cluster.engines[from].comm_world();
    drop(cluster.engines[from].isend(bytes.to_vec(), Rank(0), Tag(tag), world).unwrap());
}

/// Finishes a receive of engine 0. Returns the source of its message and the bytes.
pub(crate) fn got(cluster: &mut Cluster, request: Request<Vec<u8>>) -> (u32, Vec<u8>) {
    let (bytes, status) = cluster.finish(BOUND, 0, request).unwrap();
    (status.source.0, bytes[..status.length].to_vec())
}

/// Connects engine 0 to all its peers. Afterwards no message is in flight.
pub(crate) fn acquainted(cluster: &mut Cluster) {
    for from in 1..cluster.engines.len() {
        let request = post(cluster, Rank(from as u32), Tag(99));
        send(cluster, from, 99, b"hello");
        assert_eq!(got(cluster, request), (from as u32, b"hello".to_vec()));
    }
    cluster.tick_times(20);
}

/// Ticks until no message is in flight, and checks that nothing is left.
pub(crate) fn come_to_rest(cluster: &mut Cluster) {
    cluster.tick_times(50);
    cluster.assert_at_rest();
}

/// The number of an engine's receives that are posted at its provider.
pub(crate) fn at_provider(cluster: &mut Cluster, rank: usize) -> u32 {
    rows(&mut cluster.engines[rank]).progress.provider.count
}

/// Three connected engines. Engine 0 reaches engine 1 over the provider, and engine 2 by loopback.
pub(crate) fn race(config: ProviderConfig) -> Cluster {
    let mut cluster = mixed(3, 0, config);
    acquainted(&mut cluster);
    cluster
}
