//! Credit: offers that wait at the provider count.

use crate::kit::{acquainted, got, post, provider, send};
use tickwire::testing::{Cluster, ProviderConfig, SimConfig, SimNet};
use tickwire::{Rank, Source, Tag, TagFilter};
use tickwire_tests::cases::{BOUND, content};

/// Engines whose peers may make only 64 offers before there are receives.
fn narrow(engines: u32, seed: u64) -> Cluster {
    let net = SimNet::new(engines, SimConfig::calm(seed));
    let limits = tickwire::internals::components::limits::Limits { unexpected_bytes_max: 0, ..Default::default() };
    Cluster::provider_with(engines, &net, |_| ProviderConfig::new(seed), |b| b.limits(limits.clone()))
}

/// The number of an engine's sends that were offered, and of those that wait for credit.
fn offered(cluster: &mut Cluster, rank: usize) -> [usize; 2] {
    use tickwire::internals::traces::dump::{Obstacle, Stage};
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
        // A receive from another peer does not let more offers in.
        let other = post(&mut cluster, Rank(2), Tag(5));
        let sends: Vec<_> = (0..400u32)
            .map(|tag| cluster.engines[1].isend(content(tag.into(), 9000), Rank(0), Tag(tag), world).unwrap())
            .collect();
        cluster.tick_times(200);
        assert_eq!(offered(&mut cluster, 1), [64, 336], "seed {seed}");
        for tag in (0..400).rev() {
            let request = cluster.engines[0].irecv(vec![0u8; 9000], Rank(1), Tag(tag), world).unwrap();
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
        let request = cluster.engines[0].irecv(vec![0u8; 9000], Rank(1), TagFilter::Any, world).unwrap();
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
        let request = cluster.engines[0].irecv(vec![0u8; 9000], Rank(1), Tag(tag), world).unwrap();
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
            let request = cluster.engines[0].irecv(vec![0u8; 4], Source::Any, Tag(round), world).unwrap();
            assert_eq!(cluster.finish(BOUND, 0, request).unwrap().0, number.to_ne_bytes());
        }
        sends.into_iter().for_each(|send| drop(cluster.finish(BOUND, 1, send).unwrap()));
    }
}
