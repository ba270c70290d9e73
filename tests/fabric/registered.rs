//! A fabric with registration of the application's memory. Persistent requests keep their memory registered.

use crate::kit::{chosen, receipted};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tickwire::internals::transports::ofi::Choice;
use tickwire::testing::Cluster;
use tickwire::{Protocol, Rank, Tag};
use tickwire_tests::cases::{self, BOUND, content};
use tickwire_tests::needs::has_libfabric;

const BYTES: usize = 1 << 20;

/// Two engines over a provider that registers local memory.
fn told(provider: &str) -> Cluster {
    chosen(2, &Choice { include: vec![provider.into()], registers: true, ..Choice::default() })
}

#[test]
fn all_cases_where_memory_is_registered() {
    if !has_libfabric() {
        return;
    }
    // `tcp;ofi_rxm` of libfabric 1.17 is left out: it delivers old bytes if memory is registered that it did not ask
    // for.
    for provider in ["net", "sockets"] {
        let mut cluster = told(provider);
        cases::all(&mut cluster);
        cluster.tick_times(3);
        for engine in &mut cluster.engines {
            let counts = engine.registrations();
            assert_eq!((counts.entries, counts.bytes), (0, 0), "{provider}");
        }
    }
}

#[test]
fn starts_of_persistent_requests_register_nothing() {
    if !has_libfabric() {
        return;
    }
    let mut cluster = told("net");
    let start = Instant::now();
    // The first messages go in pieces, until both sides are ready.
    while receipted(&mut cluster, BYTES, BYTES).0 != Some(Protocol::Direct) {
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    let world = cluster.engines[0].comm_world();
    let before = [0, 1].map(|at| cluster.engines[at].registrations());
    let message: Arc<[u8]> = content(1, BYTES).into();
    // Two persistent sends of one buffer, and two persistent receives.
    let sends = [1, 2].map(|tag| cluster.engines[0].send_init(message.clone(), Rank(1), Tag(tag), world).unwrap());
    let mut receives =
        [1, 2].map(|tag| cluster.engines[1].recv_init(vec![0u8; BYTES], Rank(0), Tag(tag), world).unwrap());
    let counts = cluster.engines[0].registrations();
    assert_eq!((counts.entries - before[0].entries, counts.bytes - before[0].bytes), (1, BYTES), "once");
    for _ in 0..10 {
        for (send, receive) in sends.iter().zip(&mut receives) {
            cluster.engines[1].contents(receive).unwrap().fill(0);
            cluster.engines[1].start(receive).unwrap();
            cluster.engines[0].start(send).unwrap();
            cluster.tick_until(BOUND, "a start", |cluster| {
                let is_sent = cluster.engines[0].test(send).unwrap().is_done();
                is_sent & cluster.engines[1].test(&*receive).unwrap().is_done()
            });
            assert!(cluster.engines[1].contents(receive).unwrap()[..] == message[..]);
        }
    }
    let [sender, receiver] = [0, 1].map(|at| cluster.engines[at].registrations());
    assert_eq!((sender.misses - before[0].misses, sender.hits - before[0].hits), (1, 21), "made once, and then found");
    assert_eq!((receiver.misses - before[1].misses, receiver.hits - before[1].hits), (2, 20));
    for send in sends {
        cluster.engines[0].free(send).unwrap();
    }
    for receive in receives {
        cluster.engines[1].free(receive).unwrap();
    }
    cluster.tick_times(3);
    assert!(cluster.engines.iter_mut().all(|engine| engine.registrations().entries == 0), "gone with them");
}
