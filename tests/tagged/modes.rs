//! Limits of the tag modes, and reuse of communicator ids.

use crate::kit::acquainted;
use tickwire::testing::{Cluster, ProviderConfig, ProviderTags, SimConfig, SimNet, TagMode};
use tickwire::{PostError, Rank, Source, Tag, TagFilter};
use tickwire_tests::agreements::agree;
use tickwire_tests::cases::{BOUND, is_pending};

#[test]
fn limits_of_a_tag_mode_are_told_where_they_are_met() {
    let net = SimNet::new(2, SimConfig::calm(1));
    let two = |_| ProviderConfig { mode: TagMode::Two, ..ProviderConfig::calm(1) };
    let mut cluster = Cluster::provider(2, &net, two);
    let world = cluster.engines[0].comm_world();
    assert_eq!(cluster.engines[0].tag_limits().tag_max, 524_287);
    let engine = &mut cluster.engines[0];
    let refused = engine.isend(vec![1u8], Rank(1), Tag(524_288), world).unwrap_err().error;
    assert_eq!(refused, PostError::TagMode { tag: 524_288, most: 524_287 });
    assert!(refused.to_string().contains("ofi_tag_2") && refused.to_string().contains("524287"));
    assert_eq!(
        engine.irecv(vec![1u8], Source::Any, Tag(600_000), world).unwrap_err().error,
        PostError::TagMode { tag: 600_000, most: 524_287 }
    );
    assert!(matches!(engine.isend(vec![1u8], Rank(1), Tag(u32::MAX), world).unwrap_err().error, PostError::Tag { .. }));

    // A provider that leaves 3 bits for contexts. There are 8 ids, and two are used from the start.
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
    // The id is not used again: its late messages could be taken for messages of the next communicator with this id.
    let [mine, yours] = made.pop().unwrap();
    cluster.engines[0].comm_free(mine).unwrap();
    cluster.engines[1].comm_free(yours).unwrap();
    cluster.tick_times(10);
    duplicate(&mut cluster).unwrap_err();
}

#[test]
fn a_late_message_never_meets_the_next_communicator_with_its_id_in_any_tag_mode() {
    // The second mode has 24 bits for the context, so each id is used 15 times.
    for (mode, uses) in [(TagMode::One, 1), (TagMode::Two, 15), (TagMode::Full, 255)] {
        let net = SimNet::new(2, SimConfig::calm(1));
        let config = ProviderConfig { mode, ..ProviderConfig::calm(1) };
        let mut cluster = Cluster::provider(2, &net, |_| config.clone());
        acquainted(&mut cluster);
        let mut used = std::collections::BTreeMap::new();
        for round in 0..40u8 {
            let [mine, yours] = duplicate(&mut cluster).unwrap();
            *used.entry(cluster.engines[0].comm_context_id(mine).unwrap()).or_insert(0) += 1;
            // In even rounds the message leaves after this side has freed the communicator. In odd rounds it is
            // already here when this side frees it.
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
            let request = cluster.engines[0].irecv(vec![0u8; 8], Source::Any, TagFilter::Any, mine).unwrap();
            cluster.tick_times(5);
            assert!(is_pending(&mut cluster, 0, &request), "{mode}, {round}: a message of another communicator");
            drop(cluster.engines[1].isend(vec![99u8; 8], Rank(0), Tag(6), yours).unwrap());
            assert_eq!(cluster.finish(BOUND, 0, request).unwrap().0, [99; 8]);
            for (rank, comm) in [(0, mine), (1, yours)] {
                cluster.engines[rank].comm_free(comm).unwrap();
            }
        }
        assert!(used.values().all(|&times| times <= uses), "{mode}: {used:?}");
        assert!(mode != TagMode::Full || used.len() < 3, "{used:?}");
    }
}

/// Duplicates the world on both engines of a cluster.
fn duplicate(cluster: &mut Cluster) -> Result<[tickwire::Comm; 2], [String; 2]> {
    let world = cluster.engines[0].comm_world();
    let ended = agree(cluster, &[0, 1], |engine| engine.start_dup(world));
    match &ended[..] {
        [Ok(Some(first)), Ok(Some(second))] => Ok([*first, *second]),
        [Err(first), Err(second)] => Err([first.to_string(), second.to_string()]),
        other => panic!("{other:?}"),
    }
}
