//! Calls that make communicators: duplicates, splits, and communicators of groups.

use crate::kit::{WORLD, id, pass};
use tickwire::testing::{Cluster, rows};
use tickwire::{Cartesian, Comm, Group, PostError, Rank, Source, Tag, TagFilter, Topology};
use tickwire_tests::agreements::{agree, dup, everyone, settle};
use tickwire_tests::cases::{self, BOUND, content};

#[test]
fn a_duplicate_keeps_its_messages_apart() {
    for mut cluster in [Cluster::loopback(2), Cluster::loopback(5), Cluster::shm(3)] {
        let made = dup(&mut cluster, WORLD);
        let last = made.len() - 1;
        // Both messages have the same envelope. Each must be received in its own communicator, whichever comes first.
        let in_dup = cluster.engines[last].isend(content(1, 100), Rank(0), Tag(7), made[last]).unwrap();
        let in_world = cluster.engines[last].isend(content(2, 100), Rank(0), Tag(7), WORLD).unwrap();
        let first = cluster.engines[0].irecv(vec![0u8; 100], Source::Any, TagFilter::Any, WORLD).unwrap();
        assert!(cluster.finish(BOUND, 0, first).unwrap().0 == content(2, 100));
        let second = cluster.engines[0].irecv(vec![0u8; 100], Source::Any, TagFilter::Any, made[0]).unwrap();
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
fn a_duplicate_has_the_topology_that_the_original_had_when_the_call_began() {
    let mut cluster = Cluster::loopback(3);
    let ring = Topology::Cartesian(Cartesian::new(&[(3, true)]));
    let first = dup(&mut cluster, WORLD);
    for (engine, &comm) in cluster.engines.iter_mut().zip(&first) {
        assert_eq!(engine.comm_topology(comm), None);
        engine.comm_set_topology(comm, ring.clone()).unwrap();
    }
    let begun = first.iter().enumerate().map(|(rank, &comm)| (rank, cluster.engines[rank].start_dup(comm).unwrap()));
    let begun = begun.collect();
    for (engine, &comm) in cluster.engines.iter_mut().zip(&first) {
        engine.comm_free(comm).unwrap();
    }
    let second = settle(&mut cluster, begun);
    for (engine, made) in cluster.engines.iter().zip(second) {
        assert_eq!(engine.comm_topology(made.unwrap().unwrap()), Some(&ring));
    }
}

#[test]
fn a_wildcard_in_the_parent_sees_nothing_of_the_engines_or_the_childs() {
    let mut cluster = Cluster::loopback(4);
    let any: Vec<_> = (0..4)
        .map(|rank| cluster.engines[rank].irecv(vec![0u8; 4000], Source::Any, TagFilter::Any, WORLD).unwrap())
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
    // Two calls at the same time with different tags. Their groups share all members but one, and members begin them
    // in opposite orders.
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
