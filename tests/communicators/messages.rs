//! Messages that arrive before their communicator is made, or after it was freed.

use crate::kit::{WORLD, id, pass};
use tickwire::internals::components::{CommState, VcState};
use tickwire::testing::{Cluster, rows};
use tickwire::{Agreed, PostError, Rank, RequestError, Source, Tag, TagFilter};
use tickwire_tests::agreements::{agree, dup, settle};
use tickwire_tests::cases::{self, BOUND, content};

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
    // From here on engine 2 does not tick until the others are done and have sent.
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
    // The message of engine 0 has two frames in its ring. A second drain finds the second frame.
    for rank in [0, 1, 2, 2] {
        cluster.tick(rank);
    }
    assert!(reserved(&mut cluster, 2), "not made yet");
    assert_eq!(rows(&mut cluster.engines[2]).progress.unexpected.count, 2, "both messages are kept");
    let third = begun.pop().unwrap();
    let made = settle(&mut cluster, vec![(2, third)]).pop().unwrap().unwrap().unwrap();
    for (rank, length) in [(1, 100), (0, 30_000)] {
        let receive = cluster.engines[2].irecv(vec![0u8; length], Rank(rank), Tag(3), made).unwrap();
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
    let known = cluster.engines[0].irecv(vec![0u8; 200_000], Rank(1), Tag(1), made[0]).unwrap();
    let any = cluster.engines[1].irecv(vec![0u8; 10], Source::Any, TagFilter::Any, made[1]).unwrap();
    let last = cluster.engines[0].isend(content(2, 10), Rank(1), Tag(2), made[0]).unwrap();
    for rank in 0..2 {
        cluster.engines[rank].comm_free(made[rank]).unwrap();
        let refused = cluster.engines[rank].isend(vec![1u8], Rank(0), Tag(1), made[rank]).unwrap_err();
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
fn long_and_synchronous_sends_to_a_freed_communicator_end_as_short_ones_do() {
    for mut cluster in [Cluster::loopback(2), Cluster::shm(2)] {
        let made = dup(&mut cluster, WORLD);
        let send = |cluster: &mut Cluster| {
            let engine = &mut cluster.engines[1];
            let long = engine.isend(content(1, 200_000), Rank(0), Tag(1), made[1]).unwrap();
            let synchronous = engine.issend(content(2, 10), Rank(0), Tag(2), made[1]).unwrap();
            [long, synchronous]
        };
        let early = send(&mut cluster);
        cluster.tick_times(20);
        assert_eq!(rows(&mut cluster.engines[0]).progress.unexpected.count, 2);
        cluster.engines[0].comm_free(made[0]).unwrap();
        let late = send(&mut cluster);
        for request in early.into_iter().chain(late) {
            cluster.finish(BOUND, 1, request).unwrap();
        }
        cluster.engines[1].comm_free(made[1]).unwrap();
        let next = dup(&mut cluster, WORLD);
        assert_eq!(id(&mut cluster, 0, next[0]), 2, "nothing of the first one is left");
    }
}

#[test]
fn blocks_whose_receiver_has_freed_the_communicator_end() {
    const BYTES: usize = 300_000;
    for mut cluster in [Cluster::loopback(3), Cluster::shm(3)] {
        let made = dup(&mut cluster, WORLD);
        let send = |cluster: &mut Cluster, tag: u32| {
            let engine = &mut cluster.engines[1];
            engine.gather_block(Rank(0), Tag(tag), made[1]).send(content(1, BYTES)).start().unwrap()
        };
        // Rank 2 passes on what rank 1 sends.
        let (from, to) = (Tag(7), Rank(0));
        let first = cluster.engines[1].gather_block(Rank(2), from, made[1]).send(content(2, BYTES)).start().unwrap();
        let middle = cluster.engines[2].scatter_block(Rank(1), from, made[2]).forward(BYTES, to).start().unwrap();
        let early = send(&mut cluster, 1);
        cluster.tick_times(40);
        cluster.engines[0].comm_free(made[0]).unwrap();
        let late = send(&mut cluster, 2);
        for (rank, request) in [(1, early), (1, late)] {
            let ended = cluster.finish(BOUND, rank, request).unwrap_err().error;
            assert_eq!(ended, RequestError::Abandoned(Rank(0)));
        }
        assert_eq!(cluster.finish(BOUND, 2, middle).unwrap_err().error, RequestError::Abandoned(Rank(0)));
        // Its bytes may have been taken before.
        let _ = cluster.finish(BOUND, 1, first);
        for rank in 1..3 {
            cluster.engines[rank].comm_free(made[rank]).unwrap();
        }
        let next = dup(&mut cluster, WORLD);
        assert_eq!(id(&mut cluster, 0, next[0]), 2, "nothing of the first one is left");
        (0..3).for_each(|rank| assert_eq!(cluster.vc_state(rank, (rank as u32 + 1) % 3), Some(VcState::Connected)));
    }
}

#[test]
fn members_that_free_a_communicator_with_long_sends_to_each_other_do_not_wait() {
    for mut cluster in [Cluster::loopback(2), Cluster::shm(2)] {
        let made = dup(&mut cluster, WORLD);
        // More than control frames have room for.
        let mut sends = Vec::new();
        for (rank, number) in (0..2).flat_map(|rank| (0..150).map(move |number| (rank, number))) {
            let engine = &mut cluster.engines[rank];
            let to = Rank(1 - rank as u32);
            sends.push((rank, engine.issend(content(number, 10), to, Tag(1), made[rank]).unwrap()));
        }
        cluster.tick_times(20);
        // A receive that is posted already gets its message.
        let first = cluster.engines[0].irecv(vec![0u8; 10], Rank(1), Tag(1), made[0]).unwrap();
        (0..2).for_each(|rank| cluster.engines[rank].comm_free(made[rank]).unwrap());
        assert!(cluster.finish(BOUND, 0, first).unwrap().0 == content(0, 10));
        for (rank, send) in sends {
            cluster.finish(BOUND, rank, send).unwrap();
        }
        let next = dup(&mut cluster, WORLD);
        assert_eq!(id(&mut cluster, 0, next[0]), 2, "nothing of the first one is left");
        cluster.assert_at_rest();
    }
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
    let receive = cluster.engines[0].irecv(vec![0u8; 100], Source::Any, TagFilter::Any, next[0]).unwrap();
    cluster.tick_times(20);
    assert!(cases::is_pending(&mut cluster, 0, &receive), "it is another communicator");
    let send = cluster.engines[1].isend(content(3, 100), Rank(0), Tag(1), next[1]).unwrap();
    assert!(cluster.finish(BOUND, 0, receive).unwrap().0 == content(3, 100));
    cluster.finish(BOUND, 1, send).unwrap();
    cluster.assert_at_rest();
}
