//! Communicators: what all members do together, over engines in one process, and what follows for their messages.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]
#![allow(clippy::needless_range_loop, reason = "a rank names an engine and what is known of it alike")]

use bevy_ecs::prelude::*;
use std::process::Command;
use std::time::Duration;
use tickwire::components::limits::{CONTEXTS_MAX, Limits};
use tickwire::components::{CommState, context};
use tickwire::launch::{Job, OnFailure, RankStatus};
use tickwire::testing::{Cluster, Death, SimConfig, SimNet, rows};
use tickwire::transports::Hub;
use tickwire::{
    Agreed, Agreement, Comm, CommError, Comparison, Engine, ErrorHandler, Group, PostError, ProcId, Rank, RequestError,
    Source, Tag, TagFilter,
};
use tickwire_tests::cases::{self, BOUND, content};

/// What came of an agreement on each engine.
type Outcomes = Vec<Result<Option<Comm>, CommError>>;

/// Lets the engines of some ranks begin an agreement, and ticks all until each has its result.
fn agree(
    cluster: &mut Cluster,
    ranks: &[usize],
    mut begin: impl FnMut(&mut Engine) -> Result<Agreement, CommError>,
) -> Outcomes {
    let begun = ranks.iter().map(|&rank| (rank, begin(&mut cluster.engines[rank]).unwrap())).collect();
    settle(cluster, begun)
}

/// Ticks all until each of these agreements has its result.
fn settle(cluster: &mut Cluster, mut begun: Vec<(usize, Agreement)>) -> Outcomes {
    let mut outcomes: Vec<_> = begun.iter().map(|_| None).collect();
    cluster.tick_until(BOUND, "all have agreed", |cluster| {
        for ((rank, agreement), outcome) in begun.iter_mut().zip(&mut outcomes) {
            if outcome.is_none() {
                *outcome = match cluster.engines[*rank].test_agreement(agreement) {
                    Ok(Agreed::Pending) => None,
                    Ok(Agreed::Done(made)) => Some(Ok(made)),
                    Err(error) => Some(Err(error)),
                };
            }
        }
        outcomes.iter().all(Option::is_some)
    });
    for (rank, mut agreement) in begun {
        assert_eq!(cluster.engines[rank].test_agreement(&mut agreement), Err(CommError::Stale), "taken");
    }
    outcomes.into_iter().flatten().collect()
}

fn everyone(cluster: &Cluster) -> Vec<usize> {
    (0..cluster.engines.len()).collect()
}

/// Duplicates a communicator that has the same handle everywhere.
fn dup(cluster: &mut Cluster, comm: Comm) -> Vec<Comm> {
    let ranks = everyone(cluster);
    agree(cluster, &ranks, |engine| engine.start_dup(comm)).into_iter().map(|made| made.unwrap().unwrap()).collect()
}

const WORLD: Comm = Comm(0);

fn id(cluster: &mut Cluster, rank: usize, comm: Comm) -> u32 {
    cluster.engines[rank].comm_context_id(comm).unwrap()
}

/// Sends a message from one engine to another in their communicators, and receives it there from any source.
fn pass(cluster: &mut Cluster, from: (usize, Comm), to: (usize, Comm), bytes: &[u8]) {
    let rank = cluster.engines[to.0].comm_rank(to.1).unwrap();
    let sender = cluster.engines[from.0].comm_rank(from.1).unwrap();
    let send = cluster.engines[from.0].isend(bytes.to_vec(), rank, Tag(1), from.1).unwrap();
    let receive = cluster.engines[to.0].irecv(vec![0; bytes.len()], Source::Any, TagFilter::Any, to.1).unwrap();
    let (found, status) = cluster.finish(BOUND, to.0, receive).unwrap();
    assert!(found == bytes);
    assert_eq!((status.source, status.length), (sender, bytes.len()));
    cluster.finish(BOUND, from.0, send).unwrap();
}

// Making them.

#[test]
fn a_duplicate_keeps_its_messages_apart() {
    for mut cluster in [Cluster::loopback(2), Cluster::loopback(5), Cluster::shm(3)] {
        let made = dup(&mut cluster, WORLD);
        let last = made.len() - 1;
        // The same envelope in both; each is received in its own, whatever comes first.
        let in_dup = cluster.engines[last].isend(content(1, 100), Rank(0), Tag(7), made[last]).unwrap();
        let in_world = cluster.engines[last].isend(content(2, 100), Rank(0), Tag(7), WORLD).unwrap();
        let first = cluster.engines[0].irecv(vec![0; 100], Source::Any, TagFilter::Any, WORLD).unwrap();
        assert!(cluster.finish(BOUND, 0, first).unwrap().0 == content(2, 100));
        let second = cluster.engines[0].irecv(vec![0; 100], Source::Any, TagFilter::Any, made[0]).unwrap();
        assert!(cluster.finish(BOUND, 0, second).unwrap().0 == content(1, 100));
        cluster.finish(BOUND, last, in_dup).unwrap();
        cluster.finish(BOUND, last, in_world).unwrap();
        for from in 0..=last {
            for to in 0..=last {
                pass(&mut cluster, (from, made[from]), (to, made[to]), &content(3, 20_000));
            }
        }
        cluster.assert_at_rest();
    }
}

#[test]
fn a_wildcard_in_the_parent_sees_nothing_of_the_engines_or_the_childs() {
    let mut cluster = Cluster::loopback(4);
    let any: Vec<_> = (0..4)
        .map(|rank| cluster.engines[rank].irecv(vec![0; 4000], Source::Any, TagFilter::Any, WORLD).unwrap())
        .collect();
    let made = dup(&mut cluster, WORLD);
    let split = agree(&mut cluster, &[0, 1, 2, 3], |engine| engine.start_split(WORLD, Some(1), 0));
    pass(&mut cluster, (1, made[1]), (2, made[2]), &[5; 10]);
    pass(&mut cluster, (3, split[3].clone().unwrap().unwrap()), (0, split[0].clone().unwrap().unwrap()), &[5; 9000]);
    cluster.tick_times(50);
    for (rank, receive) in any.into_iter().enumerate() {
        assert!(cases::is_pending(&mut cluster, rank, &receive), "rank {rank} has received something");
        assert!(cluster.engines[rank].cancel(&receive).unwrap());
    }
    cluster.tick_times(2);
    cluster.assert_at_rest();
}

#[test]
fn rows_and_columns_with_keys_that_reverse_the_order() {
    let mut cluster = Cluster::loopback(12);
    let ranks = everyone(&cluster);
    let rows_of = agree(&mut cluster, &ranks, |engine| {
        let me = engine.rank().0;
        engine.start_split(WORLD, Some(me / 4), -(me as i32))
    });
    let columns = agree(&mut cluster, &ranks, |engine| {
        let me = engine.rank().0;
        engine.start_split(WORLD, (me % 4 != 3).then_some(me % 4), 0)
    });
    for me in 0..12usize {
        let row = rows_of[me].clone().unwrap().unwrap();
        let engine = &mut cluster.engines[me];
        let group: Vec<u32> = engine.comm_group(row).unwrap().procs().collect();
        let first = me as u32 / 4 * 4;
        assert_eq!(group, [first + 3, first + 2, first + 1, first]);
        assert_eq!((engine.comm_rank(row).unwrap(), engine.comm_size(row).unwrap()), (Rank(3 - me as u32 % 4), 4));
        assert_eq!(engine.comm_context_id(row).unwrap(), 2, "rows share no proc, so one id does for all");
        let column = columns[me].clone().unwrap();
        assert_eq!(column.is_none(), me % 4 == 3, "no color, no communicator");
        let Some(column) = column else { continue };
        let group: Vec<u32> = engine.comm_group(column).unwrap().procs().collect();
        assert_eq!(group, [me as u32 % 4, me as u32 % 4 + 4, me as u32 % 4 + 8], "equal keys keep the order");
        assert_eq!(engine.comm_context_id(column).unwrap(), 3);
    }
    let [three, two] = [3, 2].map(|me: usize| rows_of[me].clone().unwrap().unwrap());
    pass(&mut cluster, (3, three), (2, two), b"from rank 0 to rank 1");
    assert_eq!(cluster.engines[3].comm_context_id(Comm(3)).unwrap_err(), PostError::Communicator(3).into());
    cluster.assert_at_rest();
}

#[test]
fn created_of_groups() {
    let mut cluster = Cluster::loopback(6);
    let ranks = everyone(&cluster);
    let (evens, odds) = (Group::from_procs(&[4, 0, 2]).unwrap(), Group::from_procs(&[1, 5]).unwrap());
    let made = agree(&mut cluster, &ranks, |engine| match engine.rank().0 % 2 {
        0 => engine.start_create(WORLD, &evens),
        _ => engine.start_create(WORLD, &odds),
    });
    for (me, made) in made.iter().enumerate() {
        let made = made.clone().unwrap();
        assert_eq!(made.is_some(), me != 3);
        let Some(made) = made else { continue };
        let group = cluster.engines[me].comm_group(made).unwrap();
        assert_eq!(group, if me % 2 == 0 { evens.clone() } else { odds.clone() });
    }
    let [four, zero] = [4, 0].map(|me: usize| made[me].clone().unwrap().unwrap());
    pass(&mut cluster, (4, four), (0, zero), &content(1, 30_000));
    let none = agree(&mut cluster, &ranks, |engine| engine.start_create(WORLD, &Group::EMPTY));
    assert!(none.iter().all(|made| *made == Ok(None)));
    cluster.assert_at_rest();
}

#[test]
fn created_by_the_members_of_a_group_alone() {
    let mut cluster = Cluster::loopback(8);
    let group = Group::from_procs(&[6, 1, 3, 4, 0]).unwrap();
    let ranks = [6, 1, 3, 4, 0];
    let made = agree(&mut cluster, &ranks, |engine| engine.start_create_group(WORLD, &group, Tag::MAX));
    for (rank, made) in ranks.iter().zip(&made) {
        let made = made.clone().unwrap().unwrap();
        assert_eq!(cluster.engines[*rank].comm_group(made).unwrap(), group);
        assert_eq!(id(&mut cluster, *rank, made), 2);
    }
    // Two at once, with tags of their own, overlapping in all but one member and begun in opposite orders.
    let other = Group::from_procs(&[0, 6, 1, 3, 5]).unwrap();
    let mut begun = Vec::new();
    for rank in [6usize, 1, 3, 0] {
        let calls = [(&group, Tag(1)), (&other, Tag(2))];
        for index in [rank % 2, 1 - rank % 2] {
            let (group, tag) = calls[index];
            begun.push((rank, cluster.engines[rank].start_create_group(WORLD, group, tag).unwrap()));
        }
    }
    begun.push((4, cluster.engines[4].start_create_group(WORLD, &group, Tag(1)).unwrap()));
    begun.push((5, cluster.engines[5].start_create_group(WORLD, &other, Tag(2)).unwrap()));
    let ends: Vec<usize> = begun.iter().map(|(rank, _)| *rank).collect();
    let made = settle(&mut cluster, begun);
    for (rank, made) in ends.iter().zip(&made) {
        let made = made.clone().unwrap().unwrap();
        let comm = cluster.engines[*rank].comm_group(made).unwrap();
        assert!([&group, &other].iter().any(|group| **group == comm));
    }
    let mut ids: Vec<u32> = (0..2).map(|index| id(&mut cluster, 6, made[index].clone().unwrap().unwrap())).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2, "they have two ids");
    cluster.assert_at_rest();
}

#[test]
fn sixty_four_members_take_a_tree() {
    let mut cluster = Cluster::loopback(64);
    let connections =
        |cluster: &mut Cluster| -> usize { cluster.engines.iter_mut().map(|engine| rows(engine).vcs.len()).sum() };
    let before = (connections(&mut cluster), cluster.now_ns);
    dup(&mut cluster, WORLD);
    let rounds = (cluster.now_ns - before.1) / tickwire::testing::STEP_NS;
    assert!(rounds <= 4 * 6 * 2, "{rounds} rounds of ticks for four passes over six levels");
    assert_eq!(connections(&mut cluster) - before.0, 2 * 63, "each talks to its neighbours in the tree only");
    cluster.assert_at_rest();
}

// Ids.

#[test]
fn the_smallest_id_that_is_free_on_all_members_is_used_and_used_again() {
    let mut cluster = Cluster::loopback(4);
    let made: Vec<Vec<Comm>> = (0..4).map(|_| dup(&mut cluster, WORLD)).collect();
    let ids: Vec<u32> = (0..4).map(|index| id(&mut cluster, 1, made[index][1])).collect();
    assert_eq!(ids, [2, 3, 4, 5]);
    // Id 3 is free on all members but one, id 4 on all.
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
    // Old handles of that row are stale, each of the two hundred.
    let stale = Comm(6 | 5 << context::ID_BITS);
    let refused = cluster.engines[2].isend(vec![1], Rank(0), Tag(0), stale).unwrap_err();
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
    // What one member uses is far from what the other one does: a part of the range at a time is told.
    for (rank, count) in [(0, 20_000), (1, 9000)] {
        let (parent, made) = &mut own[rank];
        made.extend((0..count).map(|_| cluster.engines[rank].comm_dup(*parent).unwrap()));
    }
    let high = dup(&mut cluster, WORLD);
    assert_eq!(id(&mut cluster, 1, high[1]), 20_002);
    assert_eq!(CONTEXTS_MAX, 1 << 20);
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
fn no_context_comes_a_second_time() {
    let mut cluster = Cluster::loopback(2);
    let mut words = std::collections::BTreeSet::new();
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..2 * context::INCARNATIONS {
        let made = dup(&mut cluster, WORLD);
        // Nobody receives it: it is of no later communicator.
        let send = cluster.engines[0].isend(vec![1], Rank(1), Tag(5), made[0]).unwrap();
        drop(send);
        let dumped = cluster.engines[0].dump().communicators;
        let comm = dumped.iter().find(|comm| comm.id > 1).unwrap();
        assert!(words.insert(comm.context), "{comm:?}");
        ids.insert(comm.id);
        let seen = cluster.engines[1].iprobe(Source::Any, TagFilter::Any, made[1]).unwrap();
        assert!(seen.is_none_or(|status| status.tag == Tag(5)));
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
    // That of the member with the fewest counts, wherever it is in the tree.
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
                // Each member begins them in an order of its own, but for the two on the world.
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

/// All members of each communicator have the same id for it, no engine has an id twice, and messages arrive. Frees them.
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

// Messages that come early or late.

#[test]
fn a_message_for_a_communicator_that_does_not_exist_here_yet() {
    let mut cluster = Cluster::loopback(3);
    pass(&mut cluster, (1, WORLD), (2, WORLD), b"connected");
    let mut begun: Vec<_> = (0..3).map(|rank| cluster.engines[rank].start_dup(WORLD).unwrap()).collect();
    let reserved = |cluster: &mut Cluster, rank: usize| {
        rows(&mut cluster.engines[rank]).communicators.get(2).is_some_and(|comm| comm.state == CommState::Reserved)
    };
    cluster.tick_until(BOUND, "engine 2 has voted", |cluster| reserved(cluster, 2));
    cluster.tick(2);
    // From here on engine 2 sleeps, until the others are done and have sent.
    let mut made = [None; 2];
    for _ in 0..50 {
        for rank in 0..2 {
            cluster.tick(rank);
            if made[rank].is_none()
                && let Ok(Agreed::Done(comm)) = cluster.engines[rank].test_agreement(&mut begun[rank])
            {
                made[rank] = comm;
            }
        }
        cluster.now_ns += tickwire::testing::STEP_NS;
    }
    let sends: Vec<_> = [(0, 30_000), (1, 100)]
        .into_iter()
        .map(|(rank, length)| {
            let (comm, bytes) = (made[rank].unwrap(), content(rank as u64, length));
            cluster.engines[rank].isend(bytes, Rank(2), Tag(3), comm).unwrap()
        })
        .collect();
    // The ring of engine 0 has two frames; the second one is looked for by a drain of its own.
    for rank in [0, 1, 2, 2] {
        cluster.tick(rank);
    }
    assert!(reserved(&mut cluster, 2), "not made yet");
    assert_eq!(rows(&mut cluster.engines[2]).progress.unexpected.count, 2, "both messages are kept");
    let third = begun.pop().unwrap();
    let made = settle(&mut cluster, vec![(2, third)]).pop().unwrap().unwrap().unwrap();
    for (rank, length) in [(1, 100), (0, 30_000)] {
        let receive = cluster.engines[2].irecv(vec![0; length], Rank(rank), Tag(3), made).unwrap();
        assert!(cluster.finish(BOUND, 2, receive).unwrap().0 == content(rank.into(), length));
    }
    for (rank, send) in sends.into_iter().enumerate() {
        cluster.finish(BOUND, rank, send).unwrap();
    }
    cluster.assert_at_rest();
}

#[test]
fn freeing_waits_for_what_is_pending() {
    let mut cluster = Cluster::loopback(2);
    let made = dup(&mut cluster, WORLD);
    let large = cluster.engines[1].isend(content(1, 200_000), Rank(0), Tag(1), made[1]).unwrap();
    let known = cluster.engines[0].irecv(vec![0; 200_000], Rank(1), Tag(1), made[0]).unwrap();
    let any = cluster.engines[1].irecv(vec![0; 10], Source::Any, TagFilter::Any, made[1]).unwrap();
    let last = cluster.engines[0].isend(content(2, 10), Rank(1), Tag(2), made[0]).unwrap();
    for rank in 0..2 {
        cluster.engines[rank].comm_free(made[rank]).unwrap();
        let refused = cluster.engines[rank].isend(vec![1], Rank(0), Tag(1), made[rank]).unwrap_err();
        assert_eq!((refused.error, refused.buffer), (PostError::Freed(made[rank].0), vec![1]));
        assert_eq!(cluster.engines[rank].comm_free(made[rank]), Err(PostError::Freed(made[rank].0).into()));
    }
    let meanwhile = agree(&mut cluster, &[1], |engine| engine.start_dup(engine.comm_self()));
    let meanwhile = meanwhile[0].clone().unwrap().unwrap();
    assert_eq!(id(&mut cluster, 1, meanwhile), 3, "the id is still in use");
    assert!(cluster.finish(BOUND, 0, known).unwrap().0 == content(1, 200_000));
    assert!(cluster.finish(BOUND, 1, any).unwrap().0 == content(2, 10));
    cluster.finish(BOUND, 1, large).unwrap();
    cluster.finish(BOUND, 0, last).unwrap();
    let next = dup(&mut cluster, WORLD);
    assert_eq!(id(&mut cluster, 0, next[0]), 2, "now it is free");
    cluster.assert_at_rest();
}

#[test]
fn a_parent_may_be_freed_while_its_members_agree() {
    let mut cluster = Cluster::loopback(3);
    let made = dup(&mut cluster, WORLD);
    let mut begun = Vec::new();
    for rank in 0..3 {
        begun.push((rank, cluster.engines[rank].start_dup(made[rank]).unwrap()));
        cluster.engines[rank].comm_free(made[rank]).unwrap();
        cluster.tick(rank);
    }
    let children = settle(&mut cluster, begun);
    let child = |rank: usize| children[rank].clone().unwrap().unwrap();
    pass(&mut cluster, (2, child(2)), (0, child(0)), &content(1, 100));
    assert_eq!(id(&mut cluster, 1, child(1)), 3);
    let next = dup(&mut cluster, WORLD);
    assert_eq!(id(&mut cluster, 1, next[1]), 2, "the parent is gone");
    cluster.assert_at_rest();
}

#[test]
fn what_was_sent_and_never_received_is_discarded_with_its_communicator() {
    let mut cluster = Cluster::loopback(2);
    let made = dup(&mut cluster, WORLD);
    let early = cluster.engines[1].isend(content(1, 100), Rank(0), Tag(1), made[1]).unwrap();
    cluster.tick_times(3);
    assert_eq!(rows(&mut cluster.engines[0]).progress.unexpected.count, 1);
    cluster.engines[0].comm_free(made[0]).unwrap();
    let late = cluster.engines[1].isend(content(2, 100), Rank(0), Tag(1), made[1]).unwrap();
    cluster.finish(BOUND, 1, early).unwrap();
    cluster.finish(BOUND, 1, late).unwrap();
    cluster.engines[1].comm_free(made[1]).unwrap();
    let next = dup(&mut cluster, WORLD);
    assert_eq!(id(&mut cluster, 0, next[0]), 2);
    let receive = cluster.engines[0].irecv(vec![0; 100], Source::Any, TagFilter::Any, next[0]).unwrap();
    cluster.tick_times(20);
    assert!(cases::is_pending(&mut cluster, 0, &receive), "it is another communicator");
    let send = cluster.engines[1].isend(content(3, 100), Rank(0), Tag(1), next[1]).unwrap();
    assert!(cluster.finish(BOUND, 0, receive).unwrap().0 == content(3, 100));
    cluster.finish(BOUND, 1, send).unwrap();
    cluster.assert_at_rest();
}

// Local calls.

#[test]
fn communicators_are_compared() {
    let mut cluster = Cluster::loopback(3);
    let made = dup(&mut cluster, WORLD);
    let turned = agree(&mut cluster, &[0, 1, 2], |engine| {
        let me = engine.rank().0;
        engine.start_split(WORLD, Some(0), -(me as i32))
    });
    let few =
        agree(&mut cluster, &[0, 1, 2], |engine| engine.start_split(WORLD, Some(u32::from(engine.rank().0 == 2)), 0));
    let (turned, few) = (turned[1].clone().unwrap().unwrap(), few[1].clone().unwrap().unwrap());
    let engine = &mut cluster.engines[1];
    let own = engine.comm_self();
    for (other, expected) in [
        (WORLD, Comparison::Identical),
        (made[1], Comparison::Congruent),
        (turned, Comparison::Similar),
        (few, Comparison::Unequal),
        (own, Comparison::Unequal),
    ] {
        assert_eq!(engine.comm_compare(WORLD, other), Ok(expected));
        assert_eq!(engine.comm_compare(other, WORLD), Ok(expected));
    }
    assert_eq!(engine.comm_compare(WORLD, Comm(77)), Err(PostError::Communicator(77).into()));
    assert_eq!(engine.comm_group(WORLD), Ok(Group::all(3)));
    assert_eq!(engine.comm_group(own).unwrap(), Group::from_procs(&[1]).unwrap());
    assert_eq!((engine.comm_rank(own), engine.comm_size(own)), (Ok(Rank(0)), Ok(1)));
}

#[test]
fn a_promise_of_no_wildcards_is_held_and_handed_on() {
    let mut cluster = Cluster::loopback(2);
    let plain = dup(&mut cluster, WORLD);
    for rank in 0..2 {
        cluster.engines[rank].comm_set_no_wildcard(plain[rank], true).unwrap();
        cluster.engines[rank].comm_set_error_handler(WORLD, ErrorHandler::Return).unwrap();
    }
    let kept = dup(&mut cluster, plain[0]);
    for comm in [plain[0], kept[0]] {
        let engine = &mut cluster.engines[0];
        let calls =
            [(Source::Any, TagFilter::Tag(1)), (Source::Rank(1), TagFilter::Any), (Source::Any, TagFilter::Any)];
        for (source, tag) in calls {
            let refused = engine.irecv(vec![7], source, tag, comm).unwrap_err();
            assert_eq!((&refused.error, &refused.buffer), (&PostError::Wildcard(comm.0), &vec![7]));
            assert!(refused.error.to_string().contains("wildcard"));
        }
        let submitted = engine.submitter().irecv(vec![7], Source::Any, Tag(1), comm).unwrap();
        cluster.tick_all();
        let failed = submitted.wait().unwrap_err();
        assert_eq!(failed.error, RequestError::NotPosted(PostError::Wildcard(comm.0)));
    }
    let split = agree(&mut cluster, &[0, 1], |engine| engine.start_split(kept_of(&kept, engine), Some(0), 0));
    let split = split[0].clone().unwrap().unwrap();
    for comm in [split, WORLD] {
        assert!(cluster.engines[0].irecv(vec![7], Source::Any, TagFilter::Any, comm).is_ok(), "a promise of one alone");
    }
    cluster.engines[0].comm_set_no_wildcard(plain[0], false).unwrap();
    pass(&mut cluster, (1, plain[1]), (0, plain[0]), b"taken back");
}

fn kept_of(made: &[Comm], engine: &Engine) -> Comm {
    made[engine.rank().0 as usize]
}

#[test]
fn wrong_arguments_are_refused_before_anybody_is_asked() {
    let mut cluster = Cluster::loopback(4);
    let ranks = everyone(&cluster);
    let half = agree(&mut cluster, &ranks, |engine| {
        let me = engine.rank().0;
        engine.start_split(WORLD, Some(me / 2), 0)
    });
    let half = half[0].clone().unwrap().unwrap();
    let group = |procs: &[u32]| Group::from_procs(procs).unwrap();
    let engine = &mut cluster.engines[0];
    let outside = CommError::NotSubset { proc: ProcId(3) };
    assert_eq!(engine.start_create(half, &group(&[0, 3])).unwrap_err(), outside);
    assert_eq!(engine.start_create_group(half, &group(&[0, 3]), Tag(0)).unwrap_err(), outside);
    assert_eq!(engine.start_create(WORLD, &group(&[0, 9])).unwrap_err(), CommError::NotSubset { proc: ProcId(9) });
    assert_eq!(engine.start_create_group(WORLD, &group(&[1, 2]), Tag(0)).unwrap_err(), CommError::NotMember);
    assert_eq!(engine.start_create_group(WORLD, &Group::EMPTY, Tag(0)).unwrap_err(), CommError::NotMember);
    let tag = Tag(1 << 31);
    assert_eq!(
        engine.start_create_group(WORLD, &group(&[0, 1]), tag).unwrap_err(),
        PostError::Tag { tag: tag.0 }.into()
    );
    assert_eq!(engine.start_dup(Comm(50)).unwrap_err(), PostError::Communicator(50).into());
    assert_eq!(engine.comm_split(Comm(50), None, 0), Err(PostError::Communicator(50).into()));
    let own = engine.comm_self();
    for comm in [WORLD, own] {
        assert_eq!(engine.comm_free(comm), Err(CommError::Permanent));
    }
    let _open = engine.start_create_group(WORLD, &group(&[0, 1]), Tag(5)).unwrap();
    let again = engine.start_create_group(WORLD, &group(&[0, 1]), Tag(5)).unwrap_err();
    assert_eq!(again, CommError::InProgress(Tag(5)));
    let made = agree(&mut cluster, &[1], |engine| engine.start_create_group(WORLD, &group(&[0, 1]), Tag(5)));
    assert!(made[0].is_ok());
    // None of these has used up a number: all still agree.
    dup(&mut cluster, WORLD);
    let engine = &mut cluster.engines[2];
    engine.finalize(Duration::from_secs(1)).unwrap();
    assert_eq!(engine.comm_dup(WORLD), Err(PostError::Finalized.into()));
    assert_eq!(engine.comm_size(WORLD), Err(PostError::Finalized.into()));
}

#[test]
fn stale_handles_are_refused_whoever_uses_them() {
    let mut cluster = Cluster::loopback(2);
    let made = dup(&mut cluster, WORLD);
    let stale = made[0];
    (0..2).for_each(|rank| cluster.engines[rank].comm_free(made[rank]).unwrap());
    let next = dup(&mut cluster, WORLD);
    assert_eq!(id(&mut cluster, 0, next[0]), 2, "the row is used again");
    let freed = PostError::Freed(stale.0);
    let engine = &mut cluster.engines[0];
    assert_eq!(engine.isend(vec![7], Rank(1), Tag(0), stale).unwrap_err().error, freed);
    assert_eq!(engine.irecv(vec![7], Source::Any, TagFilter::Any, stale).unwrap_err().error, freed);
    assert!(freed.to_string().contains("has been freed"));
    assert_eq!(engine.comm_rank(stale), Err(freed.clone().into()));
    assert_eq!(engine.start_dup(stale).unwrap_err(), freed.clone().into());
    assert_eq!(engine.comm_free(stale), Err(freed.clone().into()));
    let submitted = engine.submitter().isend(vec![7], Rank(1), Tag(0), stale).unwrap();
    cluster.tick_all();
    let failed = submitted.wait().unwrap_err();
    assert_eq!((failed.error, failed.buffer), (RequestError::NotPosted(freed), Some(vec![7])));
    // An agreement of another engine, and one whose token is dropped.
    let mut other = cluster.engines[1].start_dup(WORLD).unwrap();
    assert_eq!(cluster.engines[0].test_agreement(&mut other), Err(CommError::Stale));
    drop(cluster.engines[0].start_dup(WORLD).unwrap());
    settle(&mut cluster, vec![(1, other)])[0].clone().unwrap();
    cluster.tick_times(5);
    let free = rows(&mut cluster.engines[0]).communicators[3].state == CommState::Free;
    assert!(free, "what came of it is freed");
    cluster.assert_at_rest();
}

// Failure.

#[test]
fn members_that_disagree_are_told_and_may_go_on() {
    let mut cluster = Cluster::loopback(5);
    for odd in 0..5u32 {
        let ranks = everyone(&cluster);
        let made = agree(&mut cluster, &ranks, |engine| match engine.rank().0 == odd {
            true => engine.start_split(WORLD, Some(1), 0),
            false => engine.start_dup(WORLD),
        });
        assert!(made.iter().all(|made| *made == Err(CommError::Mismatch)), "{made:?}");
        cluster.tick_times(5);
        cluster.assert_at_rest();
        let next = dup(&mut cluster, WORLD);
        assert_eq!(id(&mut cluster, 0, next[0]), 2 + odd);
    }
}

#[test]
fn a_member_that_dies_ends_the_agreement_for_all() {
    // Wherever it stands in the tree, and at whichever of its messages it dies; the first is before it has begun.
    for dead in 0..6usize {
        for frame in 0..7 {
            let seed = (dead * 10 + frame) as u64;
            let net = SimNet::new(6, SimConfig::new(seed));
            let mut cluster = Cluster::sim(6, &net);
            dup(&mut cluster, WORLD);
            let mut begun: Vec<_> = (0..6).map(|rank| cluster.engines[rank].start_dup(WORLD).unwrap()).collect();
            net.kill(dead as u32, Death::Frame(net.frames(dead as u32) + frame as u64));
            let mut results: Vec<Option<Result<Agreed, CommError>>> = vec![None; 6];
            let waited = cluster.tick_until(BOUND, "all have an answer", |cluster| {
                for rank in (0..6).filter(|&rank| rank != dead) {
                    if results[rank].is_none() {
                        let asked = cluster.engines[rank].test_agreement(&mut begun[rank]);
                        results[rank] = (asked != Ok(Agreed::Pending)).then_some(asked);
                    }
                }
                (0..6).all(|rank| rank == dead || results[rank].is_some())
            });
            let bound = 1_500_000_000 / tickwire::testing::STEP_NS as u32;
            assert!(waited <= bound, "{waited} rounds");
            for result in results.iter().flatten() {
                match result {
                    Ok(_) => {}
                    Err(CommError::MemberFailed { proc, .. }) => assert_eq!(proc.0 as usize, dead),
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            if net.died_ns(dead as u32).is_none() {
                continue;
            }
            let told = results.iter().flatten().filter(|result| result.is_err()).count();
            assert!(frame > 0 || told == 5, "who dies before it has said anything is missed by all: {results:?}");
            // The others go on without it.
            let ranks: Vec<usize> = (0..6).filter(|&rank| rank != dead).collect();
            let group = Group::all(6).exclude(&[dead as u32]).unwrap();
            let made = agree(&mut cluster, &ranks, |engine| engine.start_create_group(WORLD, &group, Tag(1)));
            let made: Vec<Comm> = made.into_iter().map(|made| made.unwrap().unwrap()).collect();
            pass(&mut cluster, (ranks[4], made[4]), (ranks[0], made[0]), &content(1, 20_000));
            let ids: Vec<u32> = (0..5).map(|place| id(&mut cluster, ranks[place], made[place])).collect();
            assert!(ids.iter().all(|&id| id == ids[0]), "{ids:?}");
        }
    }
}

/// Lets one member die instead of sending a message of an agreement that all begin, one of them only after the death is
/// known, if so asked. All others must end. Returns whether it has died, and how they ended.
fn dies_at(
    size: u32,
    dead: u32,
    frame: u64,
    late: Option<u32>,
    begin: &dyn Fn(&mut Engine) -> Agreement,
) -> (bool, Vec<Result<Agreed, CommError>>) {
    let note = format!("{dead} of {size} dies at its message {frame}, {late:?} is late");
    let net = SimNet::new(size, SimConfig { notice_ns: 1_000_000, ..SimConfig::calm(1) });
    let mut cluster = Cluster::sim(size, &net);
    (cluster.checked, cluster.note) = (false, note.clone());
    dup(&mut cluster, WORLD);
    net.kill(dead, Death::Frame(net.frames(dead) + frame));
    let mut begun: Vec<_> = (0..size as usize).map(|_| None).collect();
    for rank in (0..size).filter(|&rank| Some(rank) != late) {
        begun[rank as usize] = Some(begin(&mut cluster.engines[rank as usize]));
    }
    if let Some(late) = late {
        cluster.tick_times(60);
        begun[late as usize] = Some(begin(&mut cluster.engines[late as usize]));
    }
    let mut results: Vec<Option<Result<Agreed, CommError>>> = vec![None; size as usize];
    // Those who have been told go on to use the connection: it is another agreement's message that they would get.
    cluster.tick_until(1000, &note, |cluster| {
        for rank in (0..size as usize).filter(|&rank| rank != dead as usize) {
            if let (None, Some(agreement)) = (&results[rank], &mut begun[rank]) {
                let asked = cluster.engines[rank].test_agreement(agreement);
                results[rank] = (asked != Ok(Agreed::Pending)).then_some(asked);
            }
        }
        (0..size as usize).all(|rank| rank == dead as usize || results[rank].is_some())
    });
    let died = net.died_ns(dead).is_some();
    if died && size > 2 {
        // Nothing is left over that the next agreement of those who live could take for its own.
        let group = Group::all(size).exclude(&[dead]).unwrap();
        let ranks: Vec<usize> = (0..size as usize).filter(|&rank| rank != dead as usize).collect();
        for _ in 0..2 {
            let made = agree(&mut cluster, &ranks, |engine| engine.start_create_group(WORLD, &group, Tag(3)));
            let made: Vec<Comm> =
                made.into_iter().map(|made| made.unwrap_or_else(|e| panic!("{note}: {e}")).unwrap()).collect();
            let last = ranks.len() - 1;
            pass(&mut cluster, (ranks[last], made[last]), (ranks[0], made[0]), &content(1, 100));
            for (&rank, comm) in ranks.iter().zip(made) {
                cluster.engines[rank].comm_free(comm).unwrap();
            }
        }
    }
    (died, results.into_iter().flatten().collect())
}

#[test]
fn whoever_dies_at_whichever_message_all_other_members_end() {
    let dup: &dyn Fn(&mut Engine) -> Agreement = &|engine| engine.start_dup(WORLD).unwrap();
    let split: &dyn Fn(&mut Engine) -> Agreement = &|engine| {
        let me = engine.rank().0;
        engine.start_split(WORLD, Some(me % 2), 0).unwrap()
    };
    let mut deaths = 0;
    for size in 2..=8 {
        for dead in 0..size {
            for late in (0..size).map(Some).chain([None]) {
                let begin = if (size + dead) % 4 == 0 { split } else { dup };
                // From the first message to the one behind the last, when it does not die.
                for frame in 0.. {
                    let (died, results) = dies_at(size, dead, frame, late, begin);
                    if !died {
                        assert!(results.iter().all(|result| matches!(result, Ok(Agreed::Done(_)))), "{results:?}");
                        assert!(frame > 0, "everybody says something");
                        break;
                    }
                    deaths += 1;
                    for result in results {
                        let known = matches!(&result, Err(CommError::MemberFailed { proc, .. }) if proc.0 == dead);
                        assert!(known || result.is_ok(), "{dead} of {size}, {frame}, {late:?}: {result:?}");
                    }
                }
            }
        }
    }
    println!("{deaths} deaths");
    assert!(deaths > 500, "{deaths}");
}

#[test]
fn a_member_that_begins_long_after_the_others_is_waited_for() {
    let mut cluster = Cluster::shm(4);
    let mut begun: Vec<_> = [0, 1, 3].map(|rank: usize| (rank, cluster.engines[rank].start_dup(WORLD).unwrap())).into();
    // An hour in which it computes.
    for _ in 0..60 {
        cluster.now_ns += 60_000_000_000;
        for (rank, agreement) in &mut begun {
            cluster.tick(*rank);
            assert_eq!(cluster.engines[*rank].test_agreement(agreement), Ok(Agreed::Pending));
        }
    }
    begun.push((2, cluster.engines[2].start_dup(WORLD).unwrap()));
    let made = settle(&mut cluster, begun);
    assert!(made.iter().all(Result::is_ok), "{made:?}");
}

#[test]
fn a_member_that_has_finalized_ends_a_blocking_call() {
    let mut cluster = Cluster::shm(2);
    dup(&mut cluster, WORLD);
    cluster.engines[1].finalize(Duration::from_secs(1)).unwrap();
    let failed = cluster.engines[0].comm_dup(WORLD).unwrap_err();
    assert!(matches!(failed, CommError::MemberFailed { proc: ProcId(1), .. }), "{failed}");
    let own = cluster.engines[0].comm_self();
    assert!(cluster.engines[0].comm_dup(own).is_ok());
}

// Error handlers.

#[test]
fn an_error_on_a_communicator_whose_handler_is_abort_ends_the_process() {
    let line = |what: &str, on: &str, why: &str| format!("tickwire: rank 0: {what} on communicator {on}: {why}");
    let cases = [
        ("send", line("send", "0 (world)", "rank 7 is out of range")),
        ("receive", line("receive", "0 (world)", "rank 7 is out of range")),
        ("blocking", line("send", "0 (world)", "rank 7 is out of range")),
        ("test", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("take", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("wait", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("wait_all", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("wait_any", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("wait_some", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("test_all", line("receive", "0 (world)", "message truncated: 5 bytes")),
        ("nobody", line("send", "0 (world)", "tag 4294967295 is above the bound")),
        ("inherited", line("send", "3", "tag 4294967295 is above the bound")),
        ("free", line("comm_free", "0 (world)", "the communicators of the world")),
        ("stale", line("send", "2", "communicator 2 has been freed")),
        ("freed", line("receive", "3", "message truncated: 5 bytes")),
    ];
    for (what, start) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_tests-communicators")).arg(what).output().unwrap();
        let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!((output.status.code(), &*out), (Some(1), ""), "{what}: {error}");
        assert!(error.starts_with(&start) && error.lines().count() == 1, "{what}: {error}");
    }
}

#[test]
fn a_rank_that_aborts_ends_its_job() {
    let job = Job::new(3).program(env!("CARGO_BIN_EXE_tests-communicators")).args(["together"]);
    let outcome = job.on_failure(OnFailure::End).run().unwrap();
    assert_eq!(outcome.code(), 1, "{outcome:?}");
    assert_eq!(outcome.first_failure.map(|(rank, _)| rank), Some(1), "{outcome:?}");
}

// Processes.

#[test]
fn a_blocking_call_ends_when_a_member_is_killed() {
    let job = Job::new(4).program(env!("CARGO_BIN_EXE_tests-communicators")).args(["killed"]);
    let outcome = job.on_failure(OnFailure::Continue).tag_output(true).run().unwrap();
    assert_eq!(outcome.first_failure, Some((3, RankStatus::Killed(9))), "{outcome:?}");
    assert!(outcome.statuses[..3].iter().all(|status| status.is_success()), "{outcome:?}");
}

#[test]
fn four_processes_over_shared_memory() {
    let job = Job::new(4).program(env!("CARGO_BIN_EXE_tests-communicators")).args(["four"]);
    let outcome = job.on_failure(OnFailure::End).tag_output(true).run().unwrap();
    assert_eq!(outcome.code(), 0, "{outcome:?}");
}
