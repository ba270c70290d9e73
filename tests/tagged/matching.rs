//! Which receive gets a message: a receive at the provider, a message from another transport, a cancelled receive, or
//! after a death.

use crate::kit::{acquainted, at_provider, got, post, provider, race, send};
use tickwire::testing::{Cluster, Death, ProviderConfig, SimConfig, SimNet, rows};
use tickwire::{Rank, RequestError, Source, Tag, TagFilter, Test};
use tickwire_tests::cases::{self, BOUND, content, is_pending};

#[test]
fn messages_are_matched_by_the_provider_and_by_nobody_else() {
    let mut cluster = provider(2, 3);
    acquainted(&mut cluster);
    for _ in 0..3 {
        send(&mut cluster, 1, 5, b"early");
    }
    cluster.tick_times(50);
    assert_eq!(rows(&mut cluster.engines[0]).progress.unexpected.count, 0, "they wait at the provider");
    let early = [0; 3].map(|_| post(&mut cluster, Rank(1), Tag(5)));
    let late = post(&mut cluster, Rank(1), TagFilter::Any);
    for request in early {
        assert_eq!(got(&mut cluster, request), (1, b"early".to_vec()));
    }
    cluster.tick_times(20);
    assert_eq!((at_provider(&mut cluster, 0), is_pending(&mut cluster, 0, &late)), (1, true));
    send(&mut cluster, 1, 6, b"late");
    assert_eq!(got(&mut cluster, late), (1, b"late".to_vec()));
    cluster.tick_times(20);
    cluster.assert_at_rest();
}

#[test]
fn receives_keep_their_order_behind_one_that_there_is_no_room_for() {
    for seed in 0..8 {
        let net = SimNet::new(2, SimConfig::calm(seed));
        let config = |_| ProviderConfig { blocked_of_256: 200, ..ProviderConfig::calm(seed) };
        let mut cluster = Cluster::provider(2, &net, config);
        acquainted(&mut cluster);
        let posted: Vec<_> = (0..20)
            .map(|number| match number % 3 {
                0 => post(&mut cluster, Source::Any, Tag(5)),
                1 => post(&mut cluster, Rank(1), TagFilter::Any),
                _ => post(&mut cluster, Rank(1), Tag(5)),
            })
            .collect();
        for number in 0..20u8 {
            send(&mut cluster, 1, 5, &[number]);
        }
        for (number, request) in (0..20u8).zip(posted) {
            assert_eq!(got(&mut cluster, request), (1, vec![number]), "seed {seed}");
        }
        cluster.tick_times(20);
        cluster.assert_at_rest();
    }
}

#[test]
fn a_synchronous_send_is_done_when_its_receive_is_there_and_needs_no_offer() {
    let mut cluster = provider(2, 5);
    acquainted(&mut cluster);
    let world = cluster.engines[0].comm_world();
    for length in [0, 40, 60_000] {
        let message = content(1, length);
        let sent = cluster.engines[1].issend(message.clone(), Rank(0), Tag(5), world).unwrap();
        cluster.tick_times(50);
        assert!(is_pending(&mut cluster, 1, &sent));
        let request = cluster.engines[0].irecv(vec![0u8; length], Source::Any, Tag(5), world).unwrap();
        assert!(cluster.finish(BOUND, 0, request).unwrap().0 == message);
        cluster.finish(BOUND, 1, sent).unwrap();
    }
    cluster.tick_times(20);
    cluster.assert_at_rest();
}

#[test]
fn a_message_from_elsewhere_gets_the_receive_once_the_provider_has_given_it_back() {
    let mut cluster = race(ProviderConfig { recall_ns: 300_000..300_001, ..ProviderConfig::calm(1) });
    let first = post(&mut cluster, Source::Any, TagFilter::Any);
    cluster.tick_times(5);
    assert_eq!(at_provider(&mut cluster, 0), 1);
    send(&mut cluster, 2, 5, b"near");
    cluster.tick_times(2);
    assert_eq!(rows(&mut cluster.engines[0]).progress.provider.deferred.len(), 1, "it waits for the answer");
    assert!(is_pending(&mut cluster, 0, &first));
    assert_eq!(got(&mut cluster, first), (2, b"near".to_vec()));
    let second = post(&mut cluster, Source::Any, TagFilter::Any);
    send(&mut cluster, 1, 5, b"far");
    assert_eq!(got(&mut cluster, second), (1, b"far".to_vec()));
    cluster.tick_times(20);
    cluster.assert_at_rest();
}

#[test]
fn if_the_provider_was_first_the_message_from_elsewhere_waits_for_the_next_receive() {
    let mut cluster = race(ProviderConfig { completion_ns: 2_000_000..2_000_001, ..ProviderConfig::calm(1) });
    let first = post(&mut cluster, Source::Any, TagFilter::Any);
    cluster.tick_times(30);
    send(&mut cluster, 1, 5, b"far");
    cluster.tick_times(5);
    // The provider has matched the far message, but its completion has not come yet.
    for bytes in [&b"near 1"[..], b"near 2", b"near 3"] {
        send(&mut cluster, 2, 5, bytes);
    }
    cluster.tick_times(3);
    assert_eq!(rows(&mut cluster.engines[0]).progress.provider.deferred.len(), 3, "behind each other");
    // These receives are posted while it is still open which receive gets which message.
    let rest = [post(&mut cluster, Rank(2), Tag(5)), post(&mut cluster, Rank(2), TagFilter::Any)];
    assert_eq!(got(&mut cluster, first), (1, b"far".to_vec()));
    let [second, third] = rest;
    assert_eq!(got(&mut cluster, second), (2, b"near 1".to_vec()));
    assert_eq!(got(&mut cluster, third), (2, b"near 2".to_vec()));
    let last = post(&mut cluster, Source::Any, Tag(5));
    assert_eq!(got(&mut cluster, last), (2, b"near 3".to_vec()));
    cluster.tick_times(50);
    cluster.assert_at_rest();
}

#[test]
fn a_message_that_finds_a_receive_on_its_way_back_has_it() {
    let mut cluster = race(ProviderConfig { recall_ns: 2_000_000..2_000_001, ..ProviderConfig::calm(1) });
    let first = post(&mut cluster, Source::Any, Tag(5));
    let second = post(&mut cluster, Source::Any, Tag(5));
    cluster.tick_times(3);
    send(&mut cluster, 2, 5, b"near");
    cluster.tick_times(2);
    // The far message arrives while the first receive is being recalled from the provider for the near message. So
    // the first receive gets the far message, and the near message takes the second receive.
    send(&mut cluster, 1, 5, b"far");
    assert_eq!(got(&mut cluster, first), (1, b"far".to_vec()));
    assert_eq!(got(&mut cluster, second), (2, b"near".to_vec()));
    cluster.tick_times(50);
    cluster.assert_at_rest();
}

#[test]
fn long_messages_are_held_as_well() {
    for seed in 0..6 {
        let mut cluster = race(ProviderConfig::new(seed));
        let world = cluster.engines[0].comm_world();
        let receives: Vec<_> =
            (0..6).map(|_| cluster.engines[0].irecv(vec![0u8; 100_000], Source::Any, Tag(5), world).unwrap()).collect();
        cluster.tick_times(seed as u32);
        let lengths = [100_000, 6000, 10];
        let mut sends = Vec::new();
        for length in lengths {
            for from in [1, 2] {
                let bytes = content(length as u64, length);
                sends.push((from, cluster.engines[from].isend(bytes, Rank(0), Tag(5), world).unwrap()));
            }
        }
        let mut found = [Vec::new(), Vec::new()];
        for receive in receives {
            let (bytes, status) = cluster.finish(BOUND, 0, receive).unwrap();
            assert!(bytes[..status.length] == content(status.length as u64, status.length));
            found[status.source.0 as usize - 1].push(status.length);
        }
        assert_eq!(found, [lengths.to_vec(), lengths.to_vec()], "seed {seed}: in the order in which they were sent");
        for (from, send) in sends {
            cluster.finish(BOUND, from, send).unwrap();
        }
        cluster.tick_times(50);
        cluster.assert_at_rest();
    }
}

#[test]
fn a_receive_is_cancelled_or_has_its_message() {
    for source in [Source::Any, Source::Rank(Rank(1))] {
        let mut cluster = race(ProviderConfig::calm(1));
        let request = post(&mut cluster, source, Tag(5));
        cluster.tick_times(5);
        assert_eq!(cluster.engines[0].cancel(&request), Ok(true));
        let failed = cluster.finish(BOUND, 0, request).unwrap_err();
        assert_eq!(failed.error, RequestError::Cancelled);
        send(&mut cluster, 1, 5, b"for the next");
        let next = post(&mut cluster, source, Tag(5));
        assert_eq!(got(&mut cluster, next), (1, b"for the next".to_vec()));
        cluster.tick_times(20);
        cluster.assert_at_rest();
    }
    // A receive that is recalled slowly is not reported as cancelled at first. It ends as cancelled, or with a
    // message that came before.
    for comes in [false, true] {
        let mut cluster = race(ProviderConfig { recall_ns: 2_000_000..2_000_001, ..ProviderConfig::calm(1) });
        let request = post(&mut cluster, Rank(1), Tag(5));
        cluster.tick_times(5);
        assert_eq!(cluster.engines[0].cancel(&request), Ok(false));
        if comes {
            send(&mut cluster, 1, 5, b"there");
            assert_eq!(got(&mut cluster, request), (1, b"there".to_vec()));
        } else {
            assert_eq!(cluster.finish(BOUND, 0, request).unwrap_err().error, RequestError::Cancelled);
        }
        cluster.tick_times(50);
        cluster.assert_at_rest();
    }
}

/// A receive that the provider never gives back: cancelling it asks, looks twice, and does not wait.
#[test]
fn cancelling_looks_twice_for_an_answer() {
    // Nobody tells these engines the time, so they go by the clock.
    let never = ProviderConfig { recall_ns: u64::MAX / 2..u64::MAX / 2 + 1, ..ProviderConfig::calm(1) };
    let mut cluster = Cluster::provider(2, &SimNet::new(2, SimConfig::calm(1)), |_| never.clone());
    let request = post(&mut cluster, Source::Any, Tag(5));
    cluster.engines[0].tick();
    assert_eq!(at_provider(&mut cluster, 0), 1);
    let before = cluster.engines[0].counters().runs();
    assert_eq!(cluster.engines[0].cancel(&request), Ok(false));
    let after = cluster.engines[0].counters().runs();
    let runs = after.iter().zip(before).map(|(after, before)| after - before).max();
    // Each look has at most two passes here.
    assert!((2..=4).contains(&runs.unwrap()), "{runs:?} runs of a system");
}

#[test]
fn a_peer_that_dies_ends_what_needs_it_and_leaves_what_has_arrived() {
    let net = SimNet::new(3, SimConfig::calm(6));
    let mut cluster = Cluster::provider(3, &net, |_| ProviderConfig::new(6));
    acquainted(&mut cluster);
    send(&mut cluster, 1, 5, b"last words");
    cluster.tick_times(50);
    let waiting = post(&mut cluster, Rank(1), Tag(6));
    let other = post(&mut cluster, Rank(2), Tag(6));
    let any = post(&mut cluster, Source::Any, Tag(8));
    cluster.tick_times(5);
    net.kill(1, Death::At(cluster.now_ns));
    let failed = cluster.finish(BOUND, 0, waiting).unwrap_err();
    assert!(matches!(failed.error, RequestError::PeerFailed { .. }), "{failed:?}");
    let words = post(&mut cluster, Rank(1), TagFilter::Any);
    assert_eq!(got(&mut cluster, words), (1, b"last words".to_vec()), "it was there before");
    let nothing = post(&mut cluster, Rank(1), TagFilter::Any);
    let failed = cluster.finish(BOUND, 0, nothing).unwrap_err();
    assert!(matches!(failed.error, RequestError::PeerFailed { .. }), "{failed:?}");
    let told = cluster.engines[0].wait(&any).unwrap_err();
    assert!(matches!(told, RequestError::PeerFailedPending { .. }), "{told}");
    send(&mut cluster, 2, 6, b"alive");
    assert_eq!(got(&mut cluster, other), (2, b"alive".to_vec()));
    send(&mut cluster, 2, 8, b"and well");
    cluster.engines[0].acknowledge_failures();
    assert_eq!(got(&mut cluster, any), (2, b"and well".to_vec()));
}

#[test]
fn one_endpoint_matches_at_most() {
    let hubs = [0; 2].map(|_| tickwire::internals::transports::Hub::new(2, 1 << 16));
    let net = SimNet::new(2, SimConfig::calm(1));
    let mut cluster = Cluster::build(2, |rank| {
        let mut builder = tickwire::Engine::builder().exclude(["loopback", "shm"]);
        for ((hub, priority), name) in hubs.iter().zip([10, 20]).zip(["one", "two"]) {
            let inner = tickwire::internals::transports::Loopback::join(hub, rank).unwrap();
            let inner = tickwire::testing::Sim::new(inner, rank, &net);
            let config = ProviderConfig { name, priority, ..ProviderConfig::calm(1) };
            builder = builder.transport(tickwire::testing::Provider::new(inner, rank, config).unwrap());
        }
        builder
    });
    let matches = |cluster: &mut Cluster| {
        rows(&mut cluster.engines[0]).endpoints.iter().map(|endpoint| endpoint.matches).collect::<Vec<_>>()
    };
    assert_eq!(matches(&mut cluster), [true, false]);
    // The second endpoint has the higher priority. The engine matches its messages.
    cases::storm(&mut cluster, 3, 5);
}

#[test]
fn tests_that_are_open_stay_open() {
    let mut cluster = provider(2, 1);
    let request = post(&mut cluster, Rank(1), Tag(5));
    cluster.tick_times(50);
    assert!(matches!(cluster.engines[0].test(&request), Ok(Test::Pending)));
    drop(request);
    send(&mut cluster, 1, 5, b"for a receive whose token was dropped");
    cluster.tick_times(50);
    cluster.assert_at_rest();
}
