//! Engines that end. Messages that they sent must arrive, and their peers must learn whether they finalized.

use crate::kit::{ME, told, ways};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tickwire::testing::{Cluster, STEP_NS};
use tickwire::{Comm, Engine, FinalizeError, Rank, RequestError, Source, Status, Tag, Test, op};
use tickwire_tests::cases::{BOUND, content};

#[test]
fn what_was_sent_before_a_peer_finalized_arrives() {
    for mut cluster in [Cluster::loopback(2), Cluster::shm(2)] {
        let world = cluster.engines[0].comm_world();
        let warm = cluster.engines[1].irecv(vec![0u8; 1], ME, Tag(0), world).unwrap();
        let send = cluster.engines[0].isend(vec![1u8], Rank(1), Tag(0), world).unwrap();
        cluster.finish(BOUND, 1, warm).unwrap();
        cluster.finish(BOUND, 0, send).unwrap();
        for number in 0..10 {
            let _ = cluster.engines[1].isend(content(number, 100), ME, Tag(1), world).unwrap();
        }
        assert_eq!(cluster.engines[1].finalize(Duration::from_secs(1)), Ok(()));
        cluster.tick_times(20);
        for number in 0..10 {
            let receive = cluster.engines[0].irecv(vec![0u8; 100], Rank(1), Tag(1), world).unwrap();
            assert_eq!(cluster.finish(BOUND, 0, receive).unwrap().0, content(number, 100));
        }
        let none = cluster.engines[0].irecv(vec![0u8; 100], Rank(1), Tag(1), world).unwrap();
        let failed = cluster.finish(BOUND, 0, none).unwrap_err();
        assert!(matches!(failed.error, RequestError::PeerFailed { .. }), "{failed:?}");
    }
}

#[test]
fn an_engine_that_goes_says_whether_it_has_finalized() {
    type Go = fn(Engine);
    let idle: Go = |engine| drop(engine);
    let finalized: Go = |mut engine| {
        let world = engine.comm_world();
        let _never = engine.irecv(vec![0u8; 8], Source::Any, Tag(9), world).unwrap();
        engine.finalize(Duration::from_secs(1)).unwrap();
    };
    let panics: Go = |engine| {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _engine = engine;
            resume_unwind(Box::new("a bug of the application"));
        }));
        assert!(caught.is_err());
    };
    let half_way: Go = |mut engine| {
        let world = engine.comm_world();
        let _never = engine.irecv(vec![0u8; 8], Source::Any, Tag(9), world).unwrap();
        drop(engine);
    };
    let undelivered: Go = |mut engine| {
        let world = engine.comm_world();
        let _large = engine.isend(vec![0u8; 1 << 20], ME, Tag(9), world).unwrap();
        let ended = engine.finalize(Duration::from_millis(5)).unwrap_err();
        assert!(matches!(ended, FinalizeError::Pending { pending: 1, .. }), "{ended}");
    };
    for (what, go, orderly) in [
        ("dropped idle", idle, true),
        ("finalized", finalized, true),
        ("dropped by a panic", panics, false),
        ("dropped half way", half_way, false),
        ("finalized in vain", undelivered, false),
    ] {
        for mut cluster in ways(3) {
            let world = cluster.engines[0].comm_world();
            // This message connects the engines. All earlier messages are read.
            let hello = cluster.engines[2].isend(vec![1u8], ME, Tag(0), world).unwrap();
            let receive = cluster.engines[0].irecv(vec![0u8], Rank(2), Tag(0), world).unwrap();
            cluster.finish(BOUND, 0, receive).unwrap();
            cluster.finish(BOUND, 2, hello).unwrap();
            let last = cluster.engines[2].isend(vec![2u8], ME, Tag(1), world).unwrap();
            let _ = cluster.engines[2].take(last);
            let any = cluster.engines[0].irecv(vec![0u8; 8], Source::Any, Tag(2), world).unwrap();
            let from = cluster.engines[0].irecv(vec![0u8; 8], Rank(2), Tag(2), world).unwrap();
            go(cluster.engines.pop().unwrap());
            cluster.checked = false;
            let error = cluster.finish(BOUND, 0, from).unwrap_err().error.to_string();
            let words = if orderly { "the peer has finalized" } else { "without having finalized" };
            assert!(error.contains(words), "{what}: {error}");
            cluster.tick_times(5);
            match told(&mut cluster, 0, &any) {
                None => assert!(orderly, "{what}"),
                Some((proc, reason)) => assert!(!orderly && proc == 2 && reason.contains(words), "{what}: {reason}"),
            }
            let last = cluster.engines[0].irecv(vec![0u8], Rank(2), Tag(1), world).unwrap();
            assert_eq!(cluster.finish(BOUND, 0, last).unwrap().0, [2], "{what}: it came before");
        }
    }
}

#[test]
fn buffers_come_back_only_when_peers_have_been_told_to_read_no_more() {
    for dropped in [false, true] {
        let mut cluster = Cluster::shm(2);
        let world = cluster.engines[0].comm_world();
        let offered = cluster.engines[1].isend(vec![7u8; 1 << 20], ME, Tag(1), world).unwrap();
        cluster.tick_until(BOUND, "it is offered", |c| c.engines[0].dump().unexpected.len() == 1);
        let (mut sender, now_ns) = (cluster.engines.pop().unwrap(), cluster.now_ns);
        let receiver = Mutex::new((cluster.engines.pop().unwrap(), now_ns));
        let outcome = Arc::new(Mutex::new(None));
        let says = outcome.clone();
        let call = move |sent: Result<Status, RequestError>| {
            assert_eq!(sent, Err(RequestError::Finalized));
            // The sender has its memory back. A read of it would not give the message any more.
            let (engine, now_ns) = &mut *receiver.lock().unwrap();
            let receive = engine.irecv(vec![0u8; 1 << 20], Rank(1), Tag(1), Comm(0)).unwrap();
            for _ in 0..BOUND {
                *now_ns += STEP_NS;
                engine.tick_at(*now_ns);
                match engine.test(&receive) {
                    Ok(Test::Pending) => {}
                    ended => return *says.lock().unwrap() = Some(ended),
                }
            }
        };
        sender.on_complete(&offered, call).unwrap();
        drop(offered);
        match dropped {
            true => drop(sender),
            false => assert!(sender.finalize(Duration::from_millis(5)).is_err()),
        }
        let ended = outcome.lock().unwrap().take().expect("it has ended");
        assert!(matches!(ended, Err(RequestError::PeerFailed { .. })), "{ended:?}");
    }
}

#[test]
fn what_an_operation_of_all_has_left_is_not_waited_for() {
    for mut cluster in ways(2) {
        let world = cluster.engines[0].comm_world();
        let begin = |engine: &mut Engine| engine.iallreduce(vec![1u64], vec![0u64], op::Sum, world).unwrap();
        let begun: Vec<_> = cluster.engines.iter_mut().map(begin).collect();
        for (rank, request) in begun.into_iter().enumerate() {
            assert_eq!(cluster.finish(BOUND, rank, request).unwrap().0.1, [2]);
        }
        let _never = cluster.engines[0].irecv(vec![0u8; 8], Rank(1), Tag(9), world).unwrap();
        // The graph of the operation is kept for the next equal call. It must not count as unsent.
        assert_eq!(cluster.engines[0].finalize(Duration::ZERO), Ok(()));
    }
}
