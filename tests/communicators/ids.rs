//! Ids of communicators: a new one has the smallest id that is free on all members. Also what happens when there are
//! many.

use crate::kit::{WORLD, id, pass};
use bevy_ecs::prelude::*;
use tickwire::internals::components::context;
use tickwire::internals::components::limits::{CONTEXTS_MAX, Limits};
use tickwire::internals::traces::dump::SHOWN_MAX;
use tickwire::internals::transports::Hub;
use tickwire::testing::{Cluster, SimConfig, SimNet};
use tickwire::{Bootstrap, Comm, CommError, Engine, Group, PostError, Rank, Source, Tag, TagFilter};
use tickwire_tests::agreements::{agree, dup, everyone, settle};
use tickwire_tests::cases::{BOUND, content};

#[test]
fn the_smallest_id_that_is_free_on_all_members_is_used_and_used_again() {
    let mut cluster = Cluster::loopback(4);
    let made: Vec<Vec<Comm>> = (0..4).map(|_| dup(&mut cluster, WORLD)).collect();
    let ids: Vec<u32> = (0..4).map(|index| id(&mut cluster, 1, made[index][1])).collect();
    assert_eq!(ids, [2, 3, 4, 5]);
    // Id 3 is free on all members but one. Id 4 is free on all.
    for rank in 0..4 {
        if rank != 2 {
            cluster.engines[rank].comm_free(made[1][rank]).unwrap();
        }
        cluster.engines[rank].comm_free(made[2][rank]).unwrap();
    }
    let next = dup(&mut cluster, WORLD);
    assert_eq!(id(&mut cluster, 0, next[0]), 4);
    let without = Group::from_procs(&[0, 1, 3]).unwrap();
    let some = agree(&mut cluster, &[0, 1, 2, 3], |engine| engine.start_create(WORLD, &without));
    assert_eq!(id(&mut cluster, 3, some[3].clone().unwrap().unwrap()), 3, "who is not in it does not count");
    cluster.engines[2].comm_free(made[1][2]).unwrap();
    let many: Vec<u32> = (0..200)
        .map(|_| {
            let made = dup(&mut cluster, WORLD);
            let number = id(&mut cluster, 2, made[2]);
            (0..4).for_each(|rank| cluster.engines[rank].comm_free(made[rank]).unwrap());
            number
        })
        .collect();
    assert!(many.iter().all(|&number| number == 6), "{many:?}");
    // All two hundred old handles of that row are stale.
    let stale = Comm(6 | 5 << context::ID_BITS);
    let refused = cluster.engines[2].isend(vec![1u8], Rank(0), Tag(0), stale).unwrap_err();
    assert_eq!(refused.error, PostError::Freed(stale.0));
    cluster.assert_at_rest();
}

#[test]
fn tables_grow_for_many_communicators_beside_systems_of_the_application() {
    let mut cluster = Cluster::loopback_with(2, |builder| {
        builder.systems(|schedule| {
            schedule.add_systems((|| {}).after(tickwire::ProgressSystems::Complete));
        })
    });
    let made: Vec<Vec<Comm>> = (0..150).map(|_| dup(&mut cluster, WORLD)).collect();
    for (index, made) in made.iter().enumerate() {
        assert_eq!(id(&mut cluster, 1, made[1]), index as u32 + 2);
    }
    pass(&mut cluster, (0, made[149][0]), (1, made[149][1]), b"in the last");
    pass(&mut cluster, (1, made[0][1]), (0, made[0][0]), b"in the first");
    for made in made {
        (0..2).for_each(|rank| cluster.engines[rank].comm_free(made[rank]).unwrap());
    }
    let again = dup(&mut cluster, WORLD);
    assert_eq!(id(&mut cluster, 0, again[0]), 2);
}

#[test]
fn ids_go_on_where_thirteen_bits_end_and_members_that_use_others_find_the_smallest() {
    let mut cluster = Cluster::loopback(2);
    let mut own = [0, 1].map(|rank| (cluster.engines[rank].comm_self(), Vec::new()));
    // The ids in use on the two members are far apart. Members tell each other only a part of the range at a time.
    for (rank, count) in [(0, 20_000), (1, 9000)] {
        let (parent, made) = &mut own[rank];
        made.extend((0..count).map(|_| cluster.engines[rank].comm_dup(*parent).unwrap()));
    }
    let high = dup(&mut cluster, WORLD);
    assert_eq!(id(&mut cluster, 1, high[1]), 20_002);
    assert_eq!(CONTEXTS_MAX, (1 << 20) - 1, "each id of 20 bits but the last");
    pass(&mut cluster, (0, high[0]), (1, high[1]), b"in the twenty thousandth");
    for number in [100, 8998, 15_000] {
        cluster.engines[0].comm_free(own[0].1[number]).unwrap();
    }
    let lower = agree(&mut cluster, &[0, 1], |engine| engine.start_split(WORLD, Some(1), 0));
    let lower: Vec<Comm> = lower.into_iter().map(|made| made.unwrap().unwrap()).collect();
    assert_eq!(id(&mut cluster, 0, lower[0]), 15_002, "the other two are in use at the other member");
    pass(&mut cluster, (1, lower[1]), (0, lower[0]), b"in between");
    cluster.assert_at_rest();
}

#[test]
fn a_dump_lists_the_communicators_of_the_operations_that_it_lists() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let made: Vec<Comm> = (0..SHOWN_MAX + 300).map(|_| engine.comm_dup(WORLD).unwrap()).collect();
    let pending: Vec<_> = made
        .iter()
        .map(|&comm| {
            engine.tick();
            engine.irecv([0u8; 1], Rank(0), Tag(1), comm).unwrap()
        })
        .collect();
    let dump = engine.dump();
    assert_eq!((dump.operations.len(), dump.operations_left_out), (SHOWN_MAX, 300));
    // The oldest ones, and those with low ids.
    assert!(dump.communicators.len() <= SHOWN_MAX + 2, "{}", dump.communicators.len());
    let listed = |context| dump.communicators.iter().any(|comm| comm.context == context);
    assert!(dump.operations.iter().all(|operation| listed(operation.context)));
    drop(pending);
}

#[test]
fn no_context_comes_a_second_time() {
    let mut cluster = Cluster::loopback(2);
    let mut words = std::collections::BTreeSet::new();
    let mut ids = std::collections::BTreeSet::new();
    for round in 0..2 * context::INCARNATIONS {
        let made = dup(&mut cluster, WORLD);
        let old = cluster.engines[1].iprobe(Source::Any, TagFilter::Any, made[1]).unwrap();
        assert!(old.is_none(), "round {round}: {old:?} was sent in an earlier communicator");
        // Nobody receives this message. It must not appear in a later communicator.
        let send = cluster.engines[0].isend(vec![1u8], Rank(1), Tag(round), made[0]).unwrap();
        drop(send);
        let dumped = cluster.engines[0].dump().communicators;
        let comm = dumped.iter().find(|comm| comm.id > 1).unwrap();
        assert!(words.insert(comm.context), "{comm:?}");
        ids.insert(comm.id);
        cluster.tick_until(BOUND, "the message has come", |cluster| {
            let seen = cluster.engines[1].iprobe(Source::Any, TagFilter::Any, made[1]).unwrap();
            seen.inspect(|status| assert_eq!(status.tag, Tag(round))).is_some()
        });
        for rank in [0, 1] {
            cluster.engines[rank].comm_free(made[rank]).unwrap();
        }
        cluster.tick_times(1);
    }
    assert_eq!(ids, [2, 3, 4].into(), "an id is used until its incarnations are");
}

#[test]
fn when_no_id_is_free_on_all_members_they_are_told() {
    const MOST: usize = 1000;
    let hub = Hub::new(3, 1 << 16);
    // The smallest limit of any member counts, wherever that member is in the tree.
    let mut cluster = Cluster::build(3, |rank| {
        let contexts_max = [CONTEXTS_MAX, MOST, 2 * MOST][rank as usize];
        Engine::builder().limits(Limits { contexts_max, ..Limits::default() }).hub(hub.clone())
    });
    let engine = &mut cluster.engines[1];
    let own = engine.comm_self();
    let made: Vec<Comm> = (2..MOST).map(|_| engine.comm_dup(own).unwrap()).collect();
    assert_eq!(engine.comm_dup(own), Err(CommError::Exhausted));
    let failed = agree(&mut cluster, &[0, 1, 2], |engine| engine.start_dup(WORLD));
    assert!(failed.iter().all(|made| *made == Err(CommError::Exhausted)), "{failed:?}");
    cluster.engines[1].comm_free(made[400]).unwrap();
    let last = dup(&mut cluster, WORLD);
    assert_eq!(id(&mut cluster, 0, last[0]), 402);
    assert!(cluster.engines[0].comm_dup(own).is_ok());
    pass(&mut cluster, (0, last[0]), (1, last[1]), b"in the last one that is free");
    cluster.assert_at_rest();
}

#[test]
fn agreements_that_overlap_never_clash() {
    for seed in 0..12 {
        let engines = 2 + seed as usize % 7;
        let config = SimConfig { delay_ns: 0..[1, 300_000, 3_000_000][seed as usize % 3], ..SimConfig::new(seed) };
        let mut cluster = match seed % 2 {
            0 => Cluster::loopback(engines as u32),
            _ => Cluster::sim(engines as u32, &SimNet::new(engines as u32, config)),
        };
        let ranks = everyone(&cluster);
        let split = |cluster: &mut Cluster, color: &dyn Fn(u32) -> u32| -> Vec<Comm> {
            let made = agree(cluster, &ranks, |engine| {
                let me = engine.rank().0;
                engine.start_split(WORLD, Some(color(me)), me as i32)
            });
            made.into_iter().map(|made| made.unwrap().unwrap()).collect()
        };
        let halves = split(&mut cluster, &|me| me / 2);
        let others = split(&mut cluster, &|me| me.div_ceil(2));
        let thirds = split(&mut cluster, &|me| me % 3);
        let mut random = tickwire::testing::SplitMix::new(seed);
        for _ in 0..6 {
            let mut begun = Vec::new();
            for rank in 0..engines {
                let mut parents = [(0, WORLD), (1, halves[rank]), (2, others[rank]), (3, thirds[rank]), (4, WORLD)];
                // Each member begins them in its own order, except for the two on the world.
                for at in (1..4).rev() {
                    parents.swap(at, random.below(at as u64 + 1) as usize);
                }
                for (kind, parent) in parents {
                    let agreement = cluster.engines[rank].start_dup(parent).unwrap();
                    begun.push((kind, rank, agreement));
                    if random.below(3) == 0 {
                        cluster.tick(random.below(engines as u64) as usize);
                    }
                }
            }
            let ends: Vec<(i32, usize)> = begun.iter().map(|(kind, rank, _)| (*kind, *rank)).collect();
            let made = settle(&mut cluster, begun.into_iter().map(|(_, rank, agreement)| (rank, agreement)).collect());
            let made: Vec<Comm> = made.into_iter().map(|made| made.unwrap().unwrap()).collect();
            check_apart(&mut cluster, &ends, &made);
        }
        cluster.assert_at_rest();
    }
}

/// Checks that all members of each communicator have the same id for it, that no engine uses an id twice, and that
/// messages arrive. Then frees the communicators.
fn check_apart(cluster: &mut Cluster, ends: &[(i32, usize)], made: &[Comm]) {
    let mut seen = Vec::new();
    for (index, (&(kind, rank), &comm)) in ends.iter().zip(made).enumerate() {
        let number = id(cluster, rank, comm);
        assert!(!seen.contains(&(rank, number)), "engine {rank} has id {number} twice");
        seen.push((rank, number));
        let group = cluster.engines[rank].comm_group(comm).unwrap();
        let peer = group.proc((index as u32 * 7) % group.size()).unwrap() as usize;
        let there = ends.iter().position(|end| *end == (kind, peer)).unwrap();
        assert_eq!(id(cluster, peer, made[there]), number);
        assert_eq!(cluster.engines[peer].comm_group(made[there]).unwrap(), group);
        pass(cluster, (rank, comm), (peer, made[there]), &content(index as u64, 50));
    }
    for (&(_, rank), &comm) in ends.iter().zip(made) {
        cluster.engines[rank].comm_free(comm).unwrap();
    }
}
