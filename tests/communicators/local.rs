//! Calls that need no other rank: comparing, the promise of no wildcards, invalid arguments and stale handles.

use crate::kit::{WORLD, id, pass};
use std::time::Duration;
use tickwire::internals::components::CommState;
use tickwire::testing::{Cluster, rows};
use tickwire::{
    Comm, CommError, Comparison, Engine, ErrorHandler, Group, PostError, ProcId, Rank, RequestError, Source, Tag,
    TagFilter,
};
use tickwire_tests::agreements::{agree, dup, everyone, settle};

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
        let calls = [
            (Source::Any, TagFilter::Tag(Tag(1))),
            (Source::Rank(Rank(1)), TagFilter::Any),
            (Source::Any, TagFilter::Any),
        ];
        for (source, tag) in calls {
            let refused = engine.irecv(vec![7u8], source, tag, comm).unwrap_err();
            assert_eq!((&refused.error, &refused.buffer), (&PostError::Wildcard(comm.0), &vec![7]));
            assert!(refused.error.to_string().contains("wildcard"));
        }
        let submitted = engine.submitter().irecv(vec![7u8], Source::Any, Tag(1), comm).unwrap();
        cluster.tick_all();
        let failed = submitted.wait().unwrap_err();
        assert_eq!(failed.error, RequestError::NotPosted(PostError::Wildcard(comm.0)));
    }
    let split = agree(&mut cluster, &[0, 1], |engine| engine.start_split(kept_of(&kept, engine), Some(0), 0));
    let split = split[0].clone().unwrap().unwrap();
    for comm in [split, WORLD] {
        assert!(
            cluster.engines[0].irecv(vec![7u8], Source::Any, TagFilter::Any, comm).is_ok(),
            "a promise of one alone"
        );
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
    // None of these calls has counted as an agreement, so the engines still agree.
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
    assert_eq!(engine.isend(vec![7u8], Rank(1), Tag(0), stale).unwrap_err().error, freed);
    assert_eq!(engine.irecv(vec![7u8], Source::Any, TagFilter::Any, stale).unwrap_err().error, freed);
    assert!(freed.to_string().contains("has been freed"));
    assert_eq!(engine.comm_rank(stale), Err(freed.clone().into()));
    assert_eq!(engine.start_dup(stale).unwrap_err(), freed.clone().into());
    assert_eq!(engine.comm_free(stale), Err(freed.clone().into()));
    let submitted = engine.submitter().isend(vec![7u8], Rank(1), Tag(0), stale).unwrap();
    cluster.tick_all();
    let failed = submitted.wait().unwrap_err();
    assert_eq!((failed.error, failed.buffer), (RequestError::NotPosted(freed), Some(vec![7])));
    // An agreement of another engine, and one whose handle is dropped.
    let mut other = cluster.engines[1].start_dup(WORLD).unwrap();
    assert_eq!(cluster.engines[0].test_agreement(&mut other), Err(CommError::Stale));
    drop(cluster.engines[0].start_dup(WORLD).unwrap());
    settle(&mut cluster, vec![(1, other)])[0].clone().unwrap();
    cluster.tick_times(5);
    let free = rows(&mut cluster.engines[0]).communicators[3].state == CommState::Free;
    assert!(free, "what came of it is freed");
    cluster.assert_at_rest();
}

#[test]
fn a_communicator_of_a_dropped_future_is_freed() {
    for ends_first in [false, true] {
        let mut cluster = Cluster::loopback(2);
        let engine = &mut cluster.engines[0];
        let agreement = engine.start_dup(WORLD).unwrap();
        let mut future = Some(engine.agreed(agreement).unwrap());
        if !ends_first {
            future = None;
        }
        let other = cluster.engines[1].start_dup(WORLD).unwrap();
        let made = settle(&mut cluster, vec![(1, other)])[0].clone().unwrap().unwrap();
        cluster.tick_times(5);
        drop(future);
        cluster.engines[1].comm_free(made).unwrap();
        cluster.tick_times(5);
        let next = dup(&mut cluster, WORLD);
        assert_eq!(id(&mut cluster, 0, next[0]), 2, "the row is used again, {ends_first}");
    }
}
