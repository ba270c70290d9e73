//! Transports that match by themselves: the same cases as over the others, and what is special about them. Under virtual
//! time, over a provider that is simulated from a seed.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use tickwire::testing::{Cluster, Death, ProviderConfig, ProviderTags, SimConfig, SimNet, TagMode, rows};
use tickwire::{Agreed, CommError, PostError, Rank, Request, RequestError, Source, Tag, TagFilter, Test};
use tickwire_tests::cases::{self, BOUND, content, is_pending};

/// Engines that all reach each other over the provider.
fn provider(engines: u32, seed: u64) -> Cluster {
    Cluster::provider(engines, &SimNet::new(engines, SimConfig::calm(seed)), |_| ProviderConfig::new(seed))
}

/// Two methods: procs of the same parity reach each other through a hub, all others over the provider.
fn mixed(engines: u32, seed: u64, config: ProviderConfig) -> Cluster {
    let net = SimNet::new(engines, SimConfig::calm(seed));
    Cluster::provider(engines, &net, |rank| {
        let procs = Some((0..engines).filter(|proc| proc % 2 != rank % 2).collect());
        ProviderConfig { procs, ..config.clone() }
    })
}

fn post(cluster: &mut Cluster, source: impl Into<Source>, tag: impl Into<TagFilter>) -> Request<Vec<u8>> {
    let world = cluster.engines[0].comm_world();
    cluster.engines[0].irecv(vec![0; 64], source, tag, world).unwrap()
}

fn send(cluster: &mut Cluster, from: usize, tag: u32, bytes: &[u8]) {
    let world = cluster.engines[from].comm_world();
    drop(cluster.engines[from].isend(bytes.to_vec(), Rank(0), Tag(tag), world).unwrap());
}

/// What a receive of engine 0 has got, and from whom.
fn got(cluster: &mut Cluster, request: Request<Vec<u8>>) -> (u32, Vec<u8>) {
    let (bytes, status) = cluster.finish(BOUND, 0, request).unwrap();
    (status.source.0, bytes[..status.length].to_vec())
}

/// Both of engine 0's peers are connected, and nothing is on its way.
fn acquainted(cluster: &mut Cluster) {
    for from in 1..cluster.engines.len() {
        let request = post(cluster, Rank(from as u32), Tag(99));
        send(cluster, from, 99, b"hello");
        assert_eq!(got(cluster, request), (from as u32, b"hello".to_vec()));
    }
    cluster.tick_times(20);
}

fn at_provider(cluster: &mut Cluster, rank: usize) -> u32 {
    rows(&mut cluster.engines[rank]).progress.provider.count
}

#[test]
fn all_cases() {
    for seed in 0..4 {
        cases::all(&mut provider(3, seed));
    }
}

#[test]
fn all_cases_over_two_methods() {
    for seed in 0..4 {
        cases::all(&mut mixed(4, seed, ProviderConfig::new(seed)));
    }
}

#[test]
fn all_cases_in_each_tag_mode() {
    let net = || SimNet::new(2, SimConfig::calm(1));
    let modes = [TagMode::One, TagMode::Two, TagMode::Full].map(|mode| (mode, 8));
    // Without CQ data, and with less than a length needs.
    for (mode, data_bytes) in modes.into_iter().chain([(TagMode::One, 0), (TagMode::Two, 0), (TagMode::Full, 4)]) {
        for format in [u64::MAX, u64::MAX >> 1] {
            let calm = ProviderConfig::calm(1);
            let tags = ProviderTags { format, data_bytes, ..calm.tags };
            cases::all(&mut Cluster::provider(2, &net(), |_| ProviderConfig { mode, tags, ..calm.clone() }));
        }
    }
}

#[test]
fn storms_over_two_methods_from_many_seeds() {
    for seed in 0..24 {
        cases::storm(&mut mixed(4, seed, ProviderConfig::new(seed)), seed, 8);
    }
}

#[test]
fn storms_over_a_slow_network() {
    for seed in 0..6 {
        let net = SimNet::new(4, SimConfig::new(seed));
        cases::storm(&mut Cluster::provider(4, &net, |_| ProviderConfig::new(seed)), seed, 8);
    }
}

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
        let request = cluster.engines[0].irecv(vec![0; length], Source::Any, Tag(5), world).unwrap();
        assert!(cluster.finish(BOUND, 0, request).unwrap().0 == message);
        cluster.finish(BOUND, 1, sent).unwrap();
    }
    cluster.tick_times(20);
    cluster.assert_at_rest();
}

/// Any source, engine 1 over the provider and engine 2 through the hub.
fn race(config: ProviderConfig) -> Cluster {
    let mut cluster = mixed(3, 0, config);
    acquainted(&mut cluster);
    cluster
}

#[test]
fn a_message_from_elsewhere_gets_the_receive_once_the_provider_has_given_it_back() {
    let mut cluster = race(ProviderConfig { recall_ns: 300_000..300_001, ..ProviderConfig::calm(1) });
    let first = post(&mut cluster, Source::Any, TagFilter::Any);
    cluster.tick_times(5);
    assert_eq!(at_provider(&mut cluster, 0), 1);
    send(&mut cluster, 2, 5, b"near");
    cluster.tick_times(2);
    assert_eq!(rows(&mut cluster.engines[0]).progress.provider.held.len(), 1, "it waits for the answer");
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
    // The provider has paired it, and nobody knows.
    for bytes in [&b"near 1"[..], b"near 2", b"near 3"] {
        send(&mut cluster, 2, 5, bytes);
    }
    cluster.tick_times(3);
    assert_eq!(rows(&mut cluster.engines[0]).progress.provider.held.len(), 3, "behind each other");
    // Posted while it is open who gets what.
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
    // It finds the first receive, which is the near one's if it comes back. The near one then takes the second.
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
            (0..6).map(|_| cluster.engines[0].irecv(vec![0; 100_000], Source::Any, Tag(5), world).unwrap()).collect();
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
    for source in [Source::Any, Source::Rank(1)] {
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
    // What comes back late is not called cancelled before, and ends so, or with a message that was there first.
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

/// A provider without CQ data, as the seed has it.
fn without_data(seed: u64) -> ProviderConfig {
    let config = ProviderConfig::new(seed);
    ProviderConfig { tags: ProviderTags { data_bytes: 0, ..config.tags }, ..config }
}

#[test]
fn probes_see_what_is_at_the_provider_and_matched_ones_take_it() {
    for config in [ProviderConfig::new(4), without_data(4), without_data(5)] {
        look_at_what_is_there(config);
    }
}

fn look_at_what_is_there(config: ProviderConfig) {
    let mut cluster = race(config);
    let world = cluster.engines[0].comm_world();
    assert_eq!(cluster.engines[0].iprobe(Source::Any, TagFilter::Any, world).unwrap(), None);
    let long = content(3, 60_000);
    send(&mut cluster, 1, 5, b"first");
    send(&mut cluster, 1, 6, &long);
    let synchronous = cluster.engines[1].issend(b"third".to_vec(), Rank(0), Tag(7), world).unwrap();
    send(&mut cluster, 1, 5, b"fourth");
    send(&mut cluster, 2, 9, b"near");
    cluster.tick_times(50);
    let engine = &mut cluster.engines[0];
    let status = engine.iprobe(Rank(1), TagFilter::Any, world).unwrap().unwrap();
    assert_eq!((status.source, status.tag, status.length), (Rank(1), Tag(5), 5));
    assert_eq!(engine.iprobe(Rank(1), Tag(6), world).unwrap().unwrap().length, 60_000);
    assert_eq!(engine.iprobe(Source::Any, Tag(9), world).unwrap().unwrap().source, Rank(2));
    assert_eq!(engine.iprobe(Rank(1), Tag(9), world).unwrap(), None);
    let taken = [Tag(6), Tag(7), Tag(5)].map(|tag| engine.improbe(Source::Any, tag, world).unwrap().unwrap());
    let next = engine.iprobe(Rank(1), TagFilter::Any, world).unwrap().unwrap();
    assert_eq!((next.tag, next.length), (Tag(5), 6), "the others are taken");
    let expected = [&long[..], b"third", b"first"];
    for (message, expected) in taken.into_iter().zip(expected) {
        let length = message.status().length;
        let request = cluster.engines[0].imrecv(message, vec![0; length]).unwrap();
        assert!(cluster.finish(BOUND, 0, request).unwrap().0 == expected);
    }
    cluster.finish(BOUND, 1, synchronous).unwrap();
    let dropped = cluster.engines[0].improbe(Rank(1), Tag(5), world).unwrap();
    assert_eq!(dropped.unwrap().status().length, 6);
    let near = post(&mut cluster, Source::Any, TagFilter::Any);
    assert_eq!(got(&mut cluster, near), (2, b"near".to_vec()));
    cluster.tick_times(50);
    cluster.assert_at_rest();
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
fn a_probe_that_has_to_take_a_message_out_of_the_provider_changes_no_order_and_ends_no_synchronous_send() {
    for seed in 0..8 {
        let net = SimNet::new(2, SimConfig::calm(seed));
        let mut cluster = Cluster::provider(2, &net, |_| without_data(seed));
        assert_eq!(cluster.engines[0].tag_limits().mode, "ofi_tag_1");
        acquainted(&mut cluster);
        let world = cluster.engines[0].comm_world();
        let long = content(7, 60_000);
        send(&mut cluster, 1, 5, b"first");
        let synchronous = cluster.engines[1].issend(b"second".to_vec(), Rank(0), Tag(6), world).unwrap();
        send(&mut cluster, 1, 7, &long);
        send(&mut cluster, 1, 6, b"fourth");
        cluster.tick_times(50);
        let seen = cluster.engines[0].iprobe(Rank(1), Tag(7), world).unwrap().unwrap();
        assert_eq!((seen.tag, seen.length), (Tag(7), 60_000));
        assert_eq!(cluster.engines[0].iprobe(Rank(1), Tag(9), world).unwrap(), None);
        cluster.tick_times(50);
        assert!(is_pending(&mut cluster, 1, &synchronous), "seed {seed}: nothing has received it");
        send(&mut cluster, 1, 5, b"fifth");
        for expected in [&b"first"[..], b"second", &long, b"fourth", b"fifth"] {
            let request = cluster.engines[0].irecv(vec![0; 60_000], Source::Any, TagFilter::Any, world).unwrap();
            let (bytes, status) = cluster.finish(BOUND, 0, request).unwrap();
            assert!(bytes[..status.length] == *expected, "seed {seed}");
        }
        cluster.finish(BOUND, 1, synchronous).unwrap();
        cluster.tick_times(50);
        cluster.assert_at_rest();
    }
}

#[test]
fn a_dump_shows_what_waits_at_the_provider_and_changes_nothing_for_receives() {
    for seed in 0..8 {
        let mut cluster = mixed(3, seed, ProviderConfig::new(seed));
        acquainted(&mut cluster);
        let world = cluster.engines[0].comm_world();
        let taken = post(&mut cluster, Rank(1), Tag(9));
        let long = content(7, 60_000);
        send(&mut cluster, 1, 5, b"first");
        let synchronous = cluster.engines[1].issend(b"second".to_vec(), Rank(0), Tag(5), world).unwrap();
        send(&mut cluster, 1, 6, &long);
        send(&mut cluster, 2, 5, b"near");
        cluster.tick_times(50);
        for _ in 0..2 {
            let dump = cluster.engines[0].dump();
            let far = dump.unexpected.iter().filter(|message| message.peer == Some(1));
            let far: Vec<_> = far.map(|message| (message.tag, message.bytes, message.offered)).collect();
            assert_eq!(far, [(5, 5, false), (5, 6, true), (6, 60_000, true)], "seed {seed}");
            assert_eq!((dump.unexpected.len(), &dump.hidden), (4, &None));
        }
        assert!(is_pending(&mut cluster, 1, &synchronous), "seed {seed}: nothing has received it");
        send(&mut cluster, 1, 9, b"taken");
        assert_eq!(got(&mut cluster, taken), (1, b"taken".to_vec()));
        send(&mut cluster, 1, 5, b"fourth");
        for expected in [&b"first"[..], b"second", b"fourth"] {
            let request = post(&mut cluster, Rank(1), Tag(5));
            assert_eq!(got(&mut cluster, request), (1, expected.to_vec()), "seed {seed}");
        }
        let request = cluster.engines[0].irecv(vec![0; 60_000], Rank(1), TagFilter::Any, world).unwrap();
        assert!(cluster.finish(BOUND, 0, request).unwrap().0 == long);
        let request = post(&mut cluster, Source::Any, TagFilter::Any);
        assert_eq!(got(&mut cluster, request), (2, b"near".to_vec()));
        cluster.finish(BOUND, 1, synchronous).unwrap();
        cluster.tick_times(50);
        cluster.assert_at_rest();
    }
}

#[test]
fn dumps_in_a_storm_lose_nothing_and_change_no_order() {
    for seed in 0..12 {
        let mut cluster = mixed(4, seed, if seed % 2 == 0 { ProviderConfig::new(seed) } else { without_data(seed) });
        let mut random = tickwire::testing::SplitMix::new(seed);
        let worlds = [0, 1, 2, 3].map(|rank: usize| cluster.engines[rank].comm_world());
        // To rank 0, from each other rank, with three tags; each tag of a rank in the order in which it was sent.
        let mut sent = 0u32;
        let mut receives = Vec::new();
        for round in 0..60u32 {
            let (from, tag) = (1 + random.below(3) as usize, random.below(3) as u32);
            let length = [4, 600, 9000][random.below(3) as usize];
            let mut bytes = sent.to_ne_bytes().to_vec();
            bytes.resize(length, 0);
            drop(cluster.engines[from].isend(bytes, Rank(0), Tag(tag), worlds[from]).unwrap());
            sent += 1;
            if random.below(3) == 0 {
                let source = if random.below(2) == 0 { Source::Any } else { Source::Rank(1 + random.below(3) as u32) };
                let tag = if random.below(2) == 0 { TagFilter::Any } else { TagFilter::Tag(random.below(3) as u32) };
                let engine = &mut cluster.engines[0];
                receives.push((round, engine.irecv(vec![0; 9000], source, tag, worlds[0]).unwrap()));
            }
            cluster.tick_times(random.below(4) as u32);
            if random.below(3) == 0 {
                drop(cluster.engines[0].dump());
            }
        }
        // Those that take anything, until nothing is left.
        let rest = sent as usize - receives.len();
        for _ in 0..rest {
            let engine = &mut cluster.engines[0];
            receives.push((60, engine.irecv(vec![0; 9000], Source::Any, TagFilter::Any, worlds[0]).unwrap()));
        }
        let mut last = std::collections::BTreeMap::new();
        cluster.tick_times(400);
        for (round, receive) in receives {
            if is_pending(&mut cluster, 0, &receive) {
                assert!(round < 60, "seed {seed}: one that takes anything is left");
                continue;
            }
            let (bytes, status) = cluster.finish(BOUND, 0, receive).unwrap();
            let number = u32::from_ne_bytes(bytes[..4].try_into().unwrap());
            // Receives are looked at in the order in which they were posted, so of one sender and tag numbers grow.
            let before = last.insert((status.source.0, status.tag.0), number);
            assert!(before.is_none_or(|before| before < number), "seed {seed}: {before:?} before {number}");
        }
    }
}

/// Engines whose peers may make 64 offers before their receives.
fn narrow(engines: u32, seed: u64) -> Cluster {
    let net = SimNet::new(engines, SimConfig::calm(seed));
    let limits = tickwire::components::limits::Limits { unexpected_bytes_max: 0, ..Default::default() };
    Cluster::provider_with(engines, &net, |_| ProviderConfig::new(seed), |b| b.limits(limits.clone()))
}

/// Sends of an engine that were offered, and those that wait for credit.
fn offered(cluster: &mut Cluster, rank: usize) -> [usize; 2] {
    use tickwire::traces::dump::{Obstacle, Stage};
    let operations = cluster.engines[rank].dump().operations;
    let waits = operations.iter().filter(|o| o.stage == Stage::Queued && o.obstacle == Obstacle::Credit).count();
    [operations.iter().filter(|o| o.stage == Stage::Offered).count(), waits]
}

#[test]
fn offers_that_wait_at_the_provider_are_counted_and_no_more_than_the_window_do() {
    for seed in 0..4 {
        let mut cluster = narrow(3, seed);
        acquainted(&mut cluster);
        let world = cluster.engines[0].comm_world();
        // A receive from another peer is no reason to let more come.
        let other = post(&mut cluster, Rank(2), Tag(5));
        let sends: Vec<_> = (0..400u32)
            .map(|tag| cluster.engines[1].isend(content(tag.into(), 9000), Rank(0), Tag(tag), world).unwrap())
            .collect();
        cluster.tick_times(200);
        assert_eq!(offered(&mut cluster, 1), [64, 336], "seed {seed}");
        for tag in (0..400).rev() {
            let request = cluster.engines[0].irecv(vec![0; 9000], Rank(1), Tag(tag), world).unwrap();
            assert!(cluster.finish(BOUND, 0, request).unwrap().0 == content(tag.into(), 9000));
        }
        for send in sends {
            cluster.finish(BOUND, 1, send).unwrap();
        }
        send(&mut cluster, 2, 5, b"other");
        assert_eq!(got(&mut cluster, other), (2, b"other".to_vec()));
        cluster.tick_times(20);
        cluster.assert_at_rest();
    }
}

#[test]
fn a_probe_finds_a_message_behind_more_offers_than_the_window() {
    let mut cluster = narrow(2, 3);
    acquainted(&mut cluster);
    let world = cluster.engines[0].comm_world();
    for tag in 0..200u32 {
        drop(cluster.engines[1].isend(content(tag.into(), 9000), Rank(0), Tag(tag), world).unwrap());
    }
    cluster.tick_times(100);
    cluster.tick_until(BOUND, "a probe finds it", |cluster| {
        cluster.engines[0].iprobe(Source::Any, Tag(199), world).unwrap().is_some()
    });
    for tag in 0..200u32 {
        let request = cluster.engines[0].irecv(vec![0; 9000], Rank(1), TagFilter::Any, world).unwrap();
        let (bytes, status) = cluster.finish(BOUND, 0, request).unwrap();
        assert!(status.tag == Tag(tag) && bytes == content(tag.into(), 9000));
    }
}

#[test]
fn offers_of_every_kind_come_in_the_order_of_their_receives() {
    let mut cluster = provider(2, 8);
    acquainted(&mut cluster);
    let world = cluster.engines[0].comm_world();
    let sends: Vec<_> = (0..400u32)
        .map(|tag| cluster.engines[1].isend(content(tag.into(), 9000), Rank(0), Tag(tag), world).unwrap())
        .collect();
    cluster.tick_times(50);
    for tag in (0..400).rev() {
        let request = cluster.engines[0].irecv(vec![0; 9000], Rank(1), Tag(tag), world).unwrap();
        assert!(cluster.finish(BOUND, 0, request).unwrap().0 == content(tag.into(), 9000));
    }
    for send in sends {
        cluster.finish(BOUND, 1, send).unwrap();
    }
    cluster.tick_times(20);
    cluster.assert_at_rest();
}

#[test]
fn short_messages_without_credit_are_offered_and_credit_comes_back() {
    let mut cluster = provider(2, 9);
    acquainted(&mut cluster);
    let world = cluster.engines[0].comm_world();
    for round in 0..3u32 {
        let sends: Vec<_> = (0..6000u32)
            .map(|number| cluster.engines[1].isend(number.to_ne_bytes().to_vec(), Rank(0), Tag(round), world).unwrap())
            .collect();
        for number in 0..6000u32 {
            let request = cluster.engines[0].irecv(vec![0; 4], Source::Any, Tag(round), world).unwrap();
            assert_eq!(cluster.finish(BOUND, 0, request).unwrap().0, number.to_ne_bytes());
        }
        sends.into_iter().for_each(|send| drop(cluster.finish(BOUND, 1, send).unwrap()));
    }
}

#[test]
fn limits_of_a_tag_mode_are_told_where_they_are_met() {
    let net = SimNet::new(2, SimConfig::calm(1));
    let two = |_| ProviderConfig { mode: TagMode::Two, ..ProviderConfig::calm(1) };
    let mut cluster = Cluster::provider(2, &net, two);
    let world = cluster.engines[0].comm_world();
    assert_eq!(cluster.engines[0].tag_limits().tag_max, 524_287);
    let engine = &mut cluster.engines[0];
    let refused = engine.isend(vec![1], Rank(1), Tag(524_288), world).unwrap_err().error;
    assert_eq!(refused, PostError::TagMode { tag: 524_288, most: 524_287 });
    assert!(refused.to_string().contains("ofi_tag_2") && refused.to_string().contains("524287"));
    assert_eq!(
        engine.irecv(vec![1], Source::Any, Tag(600_000), world).unwrap_err().error,
        PostError::TagMode { tag: 600_000, most: 524_287 }
    );
    assert!(matches!(engine.isend(vec![1], Rank(1), Tag(u32::MAX), world).unwrap_err().error, PostError::Tag { .. }));

    // A provider that leaves 3 bits for contexts: 8 ids, two of which are there from the start.
    let tags = ProviderTags { format: u64::MAX >> 9, data_bytes: 0, directed_receive: false };
    let net = SimNet::new(2, SimConfig::calm(1));
    let mut cluster = Cluster::provider(2, &net, |_| ProviderConfig { tags, ..ProviderConfig::calm(1) });
    assert_eq!(cluster.engines[0].tag_limits().mode, "ofi_tag_1");
    let mut made = Vec::new();
    let refused = loop {
        match duplicate(&mut cluster) {
            Ok(comm) => made.push(comm),
            Err(errors) => break errors,
        }
    };
    assert_eq!(made.len(), 6);
    for words in refused {
        assert!(words.contains("8 context ids") && words.contains("ofi_tag_1"), "{words}");
    }
    // Its messages could not be told from those of the next one with its id.
    let [mine, yours] = made.pop().unwrap();
    cluster.engines[0].comm_free(mine).unwrap();
    cluster.engines[1].comm_free(yours).unwrap();
    cluster.tick_times(10);
    duplicate(&mut cluster).unwrap_err();
}

#[test]
fn a_late_message_never_meets_the_next_communicator_with_its_id_in_any_tag_mode() {
    // The second one has 24 bits for the context, so each id is used 15 times.
    for (mode, uses) in [(TagMode::One, 1), (TagMode::Two, 15), (TagMode::Full, 255)] {
        let net = SimNet::new(2, SimConfig::calm(1));
        let config = ProviderConfig { mode, ..ProviderConfig::calm(1) };
        let mut cluster = Cluster::provider(2, &net, |_| config.clone());
        acquainted(&mut cluster);
        let mut used = std::collections::BTreeMap::new();
        for round in 0..40u8 {
            let [mine, yours] = duplicate(&mut cluster).unwrap();
            *used.entry(cluster.engines[0].comm_context_id(mine).unwrap()).or_insert(0) += 1;
            // It leaves when this side has freed the communicator, or is here when it does.
            if round % 2 == 0 {
                cluster.engines[0].comm_free(mine).unwrap();
            }
            let late = cluster.engines[1].isend(vec![round; 8], Rank(0), Tag(5), yours).unwrap();
            cluster.finish(BOUND, 1, late).unwrap();
            if round % 2 == 1 {
                cluster.tick_times(3);
                cluster.engines[0].comm_free(mine).unwrap();
            }
            cluster.engines[1].comm_free(yours).unwrap();
            let [mine, yours] = duplicate(&mut cluster).unwrap();
            *used.entry(cluster.engines[0].comm_context_id(mine).unwrap()).or_insert(0) += 1;
            let request = cluster.engines[0].irecv(vec![0; 8], Source::Any, TagFilter::Any, mine).unwrap();
            cluster.tick_times(5);
            assert!(is_pending(&mut cluster, 0, &request), "{mode}, {round}: a message of another communicator");
            drop(cluster.engines[1].isend(vec![99; 8], Rank(0), Tag(6), yours).unwrap());
            assert_eq!(cluster.finish(BOUND, 0, request).unwrap().0, [99; 8]);
            for (rank, comm) in [(0, mine), (1, yours)] {
                cluster.engines[rank].comm_free(comm).unwrap();
            }
        }
        assert!(used.values().all(|&times| times <= uses), "{mode}: {used:?}");
        assert!(mode != TagMode::Full || used.len() < 3, "{used:?}");
    }
}

/// Duplicates the world's communicator on both engines of a cluster.
fn duplicate(cluster: &mut Cluster) -> Result<[tickwire::Comm; 2], [String; 2]> {
    let world = cluster.engines[0].comm_world();
    let mut agreements = [0, 1].map(|rank| cluster.engines[rank].start_dup(world).unwrap());
    let mut ended: [Option<Result<tickwire::Comm, CommError>>; 2] = [None, None];
    cluster.tick_until(BOUND, "a communicator is made", |cluster| {
        for rank in [0, 1] {
            if ended[rank].is_none() {
                ended[rank] = match cluster.engines[rank].test_agreement(&mut agreements[rank]) {
                    Ok(Agreed::Pending) => None,
                    Ok(Agreed::Done(Some(comm))) => Some(Ok(comm)),
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => Some(Err(error)),
                };
            }
        }
        ended.iter().all(Option::is_some)
    });
    match ended.map(Option::unwrap) {
        [Ok(first), Ok(second)] => Ok([first, second]),
        [Err(first), Err(second)] => Err([first.to_string(), second.to_string()]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_endpoint_matches_at_most() {
    let hubs = [0; 2].map(|_| tickwire::transports::Hub::new(2, 1 << 16));
    let net = SimNet::new(2, SimConfig::calm(1));
    let mut cluster = Cluster::build(2, |rank| {
        let mut builder = tickwire::Engine::builder().exclude(["loopback", "shm"]);
        for ((hub, priority), name) in hubs.iter().zip([10, 20]).zip(["one", "two"]) {
            let inner = tickwire::transports::Loopback::join(hub, rank).unwrap();
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
    // The second has the higher priority, and the engine matches for it.
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
