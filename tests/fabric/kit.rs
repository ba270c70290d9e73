//! Helpers of several files: clusters over one provider, jobs of processes over one provider, and receipts of a message.

use std::time::{Duration, Instant};
use tickwire::internals::transports::ofi::{Choice, ENV_TAG_MODE};
use tickwire::launch::{Job, JobOutcome, OnFailure};
use tickwire::testing::{Cluster, ROWS};
use tickwire::{ENV_TRANSPORTS, Engine, Protocol, Rank, Tag};
use tickwire_tests::cases::{BOUND, content};
use tickwire_tests::scratch::Directory;

/// Providers that a machine without a special network has.
pub(crate) const PROVIDERS: [&str; 5] = ["tcp;ofi_rxm", "net", "sockets", "shm", "udp;ofi_rxd"];

/// Engines of one process that reach each other by one provider.
pub(crate) fn cluster(engines: u32, provider: &str) -> Cluster {
    chosen(engines, &Choice { include: vec![provider.into()], ..Choice::default() })
}

/// Providers whose matching can be used, in libfabric 1.17 and later.
pub(crate) const MATCHING: [&str; 2] = ["tcp;ofi_rxm", "sockets"];

/// Engines of one process that reach each other over the chosen providers.
pub(crate) fn chosen(engines: u32, choice: &Choice) -> Cluster {
    Cluster::build(engines, |_| Engine::builder().ofi(choice.clone()).exclude(["shm"]).initial_rows(ROWS))
}

/// Runs a job of `rank` programs that reach each other by one provider.
pub(crate) fn run(provider: &str, ranks: u32, test: &str, args: &[&str]) -> JobOutcome {
    run_with(provider, ranks, test, args, "message")
}

/// As [`run`], in a tag mode.
pub(crate) fn run_with(provider: &str, ranks: u32, test: &str, args: &[&str], mode: &str) -> JobOutcome {
    run_where(provider, ranks, test, args, [ENV_TAG_MODE, mode])
}

/// As [`run`], with a variable of the environment and its value.
pub(crate) fn run_where(
    provider: &str,
    ranks: u32,
    test: &str,
    args: &[&str],
    [variable, value]: [&str; 2],
) -> JobOutcome {
    let place = Directory::new(&format!("fabric-{provider}-{test}-{value}"));
    let job = Job::new(ranks).program(env!("CARGO_BIN_EXE_tests-rank")).args([test]).args([place.as_os_str()]);
    let job = job.args(args).env(ENV_TRANSPORTS, format!("loopback,ofi:{provider}")).env(variable, value);
    job.on_failure(OnFailure::Continue).tag_output(true).run().unwrap()
}

/// Sends one message with receipts. Returns the protocol that each side reports, and how often the receiver copied it.
pub(crate) fn receipted(cluster: &mut Cluster, bytes: usize, room: usize) -> (Option<Protocol>, Option<Protocol>, u32) {
    let world = cluster.engines[0].comm_world();
    let message = content(bytes as u64, bytes);
    let receive = cluster.engines[1].receipted().irecv(vec![0u8; room], Rank(0), Tag(1), world).unwrap();
    let send = cluster.engines[0].receipted().isend(message.clone(), Rank(1), Tag(1), world).unwrap();
    // A message that is cut short is done too, with an error.
    cluster.tick_until(BOUND, "a message", |cluster| {
        let [sender, receiver] = &mut cluster.engines[..] else { unreachable!() };
        sender.test(&send).unwrap().is_done() && receiver.test(&receive).map_or(true, |done| done.is_done())
    });
    let sent = cluster.engines[0].receipt(&send).unwrap();
    let received = cluster.engines[1].receipt(&receive).unwrap();
    assert!(cluster.finish(BOUND, 0, send).unwrap().0 == message);
    let bytes = match cluster.finish(BOUND, 1, receive) {
        Ok((bytes, _)) => bytes,
        Err(failed) => failed.buffer.unwrap(),
    };
    assert!(bytes[..] == message[..room]);
    (sent.protocol, received.protocol, received.copies)
}

/// The result of [`receipted`] for a message that goes straight from memory to memory.
pub(crate) const DIRECT: (Option<Protocol>, Option<Protocol>, u32) =
    (Some(Protocol::Direct), Some(Protocol::Direct), 0);

/// Two engines over net whose long messages go straight from memory to memory.
pub(crate) fn direct_cluster() -> Cluster {
    let mut cluster = cluster(2, "net");
    let start = Instant::now();
    // The first messages go in pieces, until both sides are ready.
    while receipted(&mut cluster, 1 << 20, 1 << 20) != DIRECT {
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    cluster
}

/// Sends one message in each direction.
pub(crate) fn exchange(cluster: &mut Cluster, first: usize, second: usize) {
    let world = cluster.engines[0].comm_world();
    for (from, to) in [(first, second), (second, first)] {
        let receive = cluster.engines[to].irecv(vec![0u8; 50_000], Rank(from as u32), Tag(1), world).unwrap();
        let send = cluster.engines[from].isend(content(1, 50_000), Rank(to as u32), Tag(1), world).unwrap();
        assert!(cluster.finish(BOUND, to, receive).unwrap().0 == content(1, 50_000));
        cluster.finish(BOUND, from, send).unwrap();
    }
}
