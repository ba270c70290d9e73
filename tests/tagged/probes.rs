//! Probes and dumps see the messages that wait at the provider. They must not change the order of messages.

use crate::kit::{acquainted, come_to_rest, got, mixed, post, race, send};
use tickwire::testing::{Cluster, ProviderConfig, ProviderTags, SimConfig, SimNet, rows};
use tickwire::{Rank, Request, Source, Tag, TagFilter};
use tickwire_tests::cases::{BOUND, content, is_pending};

/// A provider as for this seed, but without CQ data.
fn without_data(seed: u64) -> ProviderConfig {
    let config = ProviderConfig::new(seed);
    ProviderConfig { tags: ProviderTags { data_bytes: 0, ..config.tags }, ..config }
}

/// Sends three messages from engine 1 with these tags: "first", "second" in synchronous mode, and a long one. Returns
/// the request of the second and the bytes of the long one.
fn send_three(cluster: &mut Cluster, tags: [u32; 3]) -> (Request<Vec<u8>>, Vec<u8>) {
    let (world, long) = (cluster.engines[1].comm_world(), content(7, 60_000));
    send(cluster, 1, tags[0], b"first");
    let synchronous = cluster.engines[1].issend(b"second".to_vec(), Rank(0), Tag(tags[1]), world).unwrap();
    send(cluster, 1, tags[2], &long);
    (synchronous, long)
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
        let request = cluster.engines[0].imrecv(message, vec![0u8; length]).unwrap();
        assert!(cluster.finish(BOUND, 0, request).unwrap().0 == expected);
    }
    cluster.finish(BOUND, 1, synchronous).unwrap();
    let dropped = cluster.engines[0].improbe(Rank(1), Tag(5), world).unwrap();
    assert_eq!(dropped.unwrap().status().length, 6);
    let near = post(&mut cluster, Source::Any, TagFilter::Any);
    assert_eq!(got(&mut cluster, near), (2, b"near".to_vec()));
    come_to_rest(&mut cluster);
}

#[test]
fn a_probe_that_has_to_take_a_message_out_of_the_provider_changes_no_order_and_ends_no_synchronous_send() {
    for seed in 0..8 {
        let net = SimNet::new(2, SimConfig::calm(seed));
        let mut cluster = Cluster::provider(2, &net, |_| without_data(seed));
        assert_eq!(cluster.engines[0].tag_limits().mode, "ofi_tag_1");
        acquainted(&mut cluster);
        let world = cluster.engines[0].comm_world();
        let (synchronous, long) = send_three(&mut cluster, [5, 6, 7]);
        send(&mut cluster, 1, 6, b"fourth");
        cluster.tick_times(50);
        let seen = cluster.engines[0].iprobe(Rank(1), Tag(7), world).unwrap().unwrap();
        assert_eq!((seen.tag, seen.length), (Tag(7), 60_000));
        assert_eq!(cluster.engines[0].iprobe(Rank(1), Tag(9), world).unwrap(), None);
        cluster.tick_times(50);
        assert!(is_pending(&mut cluster, 1, &synchronous), "seed {seed}: nothing has received it");
        send(&mut cluster, 1, 5, b"fifth");
        for expected in [&b"first"[..], b"second", &long, b"fourth", b"fifth"] {
            let request = cluster.engines[0].irecv(vec![0u8; 60_000], Source::Any, TagFilter::Any, world).unwrap();
            let (bytes, status) = cluster.finish(BOUND, 0, request).unwrap();
            assert!(bytes[..status.length] == *expected, "seed {seed}");
        }
        cluster.finish(BOUND, 1, synchronous).unwrap();
        come_to_rest(&mut cluster);
    }
}

#[test]
fn a_dump_shows_what_waits_at_the_provider_and_changes_nothing_for_receives() {
    for seed in 0..8 {
        let mut cluster = mixed(3, seed, ProviderConfig::new(seed));
        acquainted(&mut cluster);
        let world = cluster.engines[0].comm_world();
        let taken = post(&mut cluster, Rank(1), Tag(9));
        let (synchronous, long) = send_three(&mut cluster, [5, 5, 6]);
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
        let request = cluster.engines[0].irecv(vec![0u8; 60_000], Rank(1), TagFilter::Any, world).unwrap();
        assert!(cluster.finish(BOUND, 0, request).unwrap().0 == long);
        let request = post(&mut cluster, Source::Any, TagFilter::Any);
        assert_eq!(got(&mut cluster, request), (2, b"near".to_vec()));
        cluster.finish(BOUND, 1, synchronous).unwrap();
        come_to_rest(&mut cluster);
    }
}

#[test]
fn dumps_in_a_storm_lose_nothing_and_change_no_order() {
    for seed in 0..12 {
        let mut cluster = mixed(4, seed, if seed % 2 == 0 { ProviderConfig::new(seed) } else { without_data(seed) });
        let mut random = tickwire::testing::SplitMix::new(seed);
        let worlds = [0, 1, 2, 3].map(|rank: usize| cluster.engines[rank].comm_world());
        // All other ranks send to rank 0 with three tags. Messages of a rank with the same tag must keep their order.
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
                let source =
                    if random.below(2) == 0 { Source::Any } else { Source::Rank(Rank(1 + random.below(3) as u32)) };
                let tag =
                    if random.below(2) == 0 { TagFilter::Any } else { TagFilter::Tag(Tag(random.below(3) as u32)) };
                let engine = &mut cluster.engines[0];
                receives.push((round, engine.irecv(vec![0u8; 9000], source, tag, worlds[0]).unwrap()));
            }
            cluster.tick_times(random.below(4) as u32);
            if random.below(3) == 0 {
                drop(cluster.engines[0].dump());
            }
        }
        // Receives that take anything, as many as there are messages left.
        let rest = sent as usize - receives.len();
        for _ in 0..rest {
            let engine = &mut cluster.engines[0];
            receives.push((60, engine.irecv(vec![0u8; 9000], Source::Any, TagFilter::Any, worlds[0]).unwrap()));
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
            // Receives are finished in the order of posting. So the numbers of a sender and tag must grow.
            let before = last.insert((status.source.0, status.tag.0), number);
            assert!(before.is_none_or(|before| before < number), "seed {seed}: {before:?} before {number}");
        }
    }
}

/// A receive that waits, since another message is deferred, goes before a probe, wherever its message is.
#[test]
fn a_probe_does_not_see_what_a_waiting_receive_takes() {
    let slow = ProviderConfig { recall_ns: 300_000..300_001, ..ProviderConfig::calm(1) };
    // The second provider's looks do not tell lengths.
    for config in [slow.clone(), ProviderConfig { tags: without_data(1).tags, ..slow }] {
        let mut cluster = race(config);
        send(&mut cluster, 2, 9, b"here");
        send(&mut cluster, 1, 9, b"there");
        cluster.tick_times(5);
        let any = post(&mut cluster, Source::Any, Tag(5));
        cluster.tick_times(5);
        send(&mut cluster, 2, 5, b"near");
        cluster.tick_times(2);
        assert_eq!(rows(&mut cluster.engines[0]).progress.provider.deferred.len(), 1);
        let wait = [1, 2].map(|from| post(&mut cluster, Rank(from), Tag(9)));
        let engine = &mut cluster.engines[0];
        let world = engine.comm_world();
        for from in [1, 2] {
            assert_eq!(engine.iprobe(Rank(from), Tag(9), world).unwrap(), None, "{from}");
            assert!(engine.improbe(Rank(from), Tag(9), world).unwrap().is_none(), "{from}");
        }
        assert_eq!(got(&mut cluster, any), (2, b"near".to_vec()));
        let [there, here] = wait;
        assert_eq!(got(&mut cluster, here), (2, b"here".to_vec()));
        assert_eq!(got(&mut cluster, there), (1, b"there".to_vec()));
        come_to_rest(&mut cluster);
    }
}
