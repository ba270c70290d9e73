//! Ways to learn of the end of an operation: callbacks, ids of requests, and futures.

use crate::kit::{LONG, ME, solo};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use tickwire::internals::components::{Outcome, PostError};
use tickwire::testing::{Cluster, rows};
use tickwire::{Rank, RequestError, Status, Tag};
use tickwire_tests::cases::{BOUND, content, everywhere};

#[test]
fn callbacks_run_once_in_complete_with_how_it_ended() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        let calls: Arc<Mutex<Vec<(u32, Outcome)>>> = Arc::default();
        let note = |name| {
            let calls = calls.clone();
            move |outcome| calls.lock().unwrap().push((name, outcome))
        };
        let engine = &mut cluster.engines[0];
        let [good, short, cancelled, dropped] = [(8, 0), (2, 1), (8, 2), (8, 3)]
            .map(|(room, tag)| engine.irecv(vec![0u8; room], Rank(1), Tag(tag), world).unwrap());
        for (name, request) in [(0, &good), (1, &short), (2, &cancelled), (3, &dropped), (4, &good)] {
            engine.on_complete(request, note(name)).unwrap();
        }
        drop(dropped);
        assert_eq!(engine.cancel(&cancelled), Ok(true));
        assert!(calls.lock().unwrap().is_empty(), "by a tick, not by the call");
        for tag in [0u8, 1, 3] {
            let send = cluster.engines[1].isend(vec![tag; 8], ME, Tag(tag.into()), world).unwrap();
            cluster.engines[1].on_complete(&send, note(10 + u32::from(tag))).unwrap();
            cluster.finish(BOUND, 1, send).unwrap();
        }
        cluster.tick_until(BOUND, "all are called", |_| calls.lock().unwrap().len() == 8);
        cluster.tick_times(50);
        let mut found = std::mem::take(&mut *calls.lock().unwrap());
        found.sort_by_key(|(name, _)| *name);
        let status = |source, tag| Status { source: Rank(source), tag: Tag(tag), length: 8 };
        let ends = [
            (0, Ok(status(1, 0))),
            (1, Err(RequestError::Truncated { status: status(1, 1), capacity: 2 })),
            (2, Err(RequestError::Cancelled)),
            (3, Ok(status(1, 3))),
            (4, Ok(status(1, 0))),
            (10, Ok(status(0, 0))),
            (11, Ok(status(0, 1))),
            (13, Ok(status(0, 3))),
        ];
        assert_eq!(found.len(), ends.len());
        for ((name, outcome), (expected, end)) in found.iter().zip(&ends) {
            let tag_of_send = name >= &10;
            assert!(name == expected && (outcome == end || tag_of_send && outcome.is_ok()), "{name}: {outcome:?}");
        }
        for request in [good, short, cancelled] {
            let _ = cluster.finish(BOUND, 0, request);
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn a_callback_of_what_is_done_runs_with_the_next_tick_and_a_panic_poisons() {
    let mut engine = solo();
    let world = engine.comm_world();
    let receive = engine.irecv(vec![0u8; 4], ME, Tag(1), world).unwrap();
    engine.send(&[1u8; 4], ME, Tag(1), world).unwrap();
    engine.wait(&receive).unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    engine
        .on_complete(&receive, move |outcome| {
            assert_eq!(outcome.unwrap().length, 4);
            counter.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 0);
    engine.tick();
    engine.tick();
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let id = receive.id();
    engine.take(receive).unwrap();
    assert_eq!(engine.on_complete(&id, |_| {}), Err(RequestError::Stale));
    let receive = engine.irecv(vec![0u8; 4], ME, Tag(1), world).unwrap();
    engine.on_complete(&receive, |_| panic!("a callback gave up")).unwrap();
    engine.send(&[1u8; 4], ME, Tag(1), world).unwrap();
    // The message has arrived, and its callback has poisoned the engine.
    assert_eq!(engine.wait(&receive).unwrap().length, 4);
    let error = engine.irecv(vec![0u8; 4], ME, Tag(1), world).unwrap_err();
    assert!(matches!(&error.error, PostError::Poisoned(why) if why.contains("gave up")), "{error}");
    assert_eq!(engine.take(receive).unwrap().0, [1; 4]);
}

#[test]
fn a_panic_of_one_who_is_told_keeps_it_from_no_other() {
    let mut engine = solo();
    let world = engine.comm_world();
    let told = Arc::new(AtomicU32::new(0));
    let count = |expected: fn(&Result<Status, RequestError>) -> bool| {
        let told = told.clone();
        move |outcome: Result<Status, RequestError>| {
            assert!(expected(&outcome), "{outcome:?}");
            told.fetch_add(1, Ordering::Relaxed);
        }
    };
    let done: Vec<_> = (0..3).map(|tag| engine.irecv(vec![0u8; 4], ME, Tag(tag), world).unwrap()).collect();
    let open = engine.irecv(vec![0u8; 4], ME, Tag(9), world).unwrap();
    for request in &done {
        engine.on_complete(request, |_| panic!("the first gave up")).unwrap();
        engine.on_complete(request, count(Result::is_ok)).unwrap();
    }
    engine.on_complete(&open, count(|outcome| matches!(outcome, Err(RequestError::Poisoned(_))))).unwrap();
    for tag in 0..3 {
        engine.send(&[1u8; 4], ME, Tag(tag), world).unwrap();
    }
    for _ in 0..100 {
        engine.tick();
    }
    assert_eq!(told.load(Ordering::Relaxed), 4, "three of what is done, one of what will not be");
    let error = engine.irecv(vec![0u8; 4], ME, Tag(1), world).unwrap_err();
    assert!(matches!(&error.error, PostError::Poisoned(why) if why.contains("the first gave up")), "{error}");
    for request in done {
        assert_eq!(engine.take(request).unwrap().0, [1; 4]);
    }
}

#[test]
fn a_name_is_stale_however_often_its_row_was_used() {
    let mut engine = solo();
    let world = engine.comm_world();
    let request = engine.irecv(vec![0u8; 4], ME, Tag(1), world).unwrap();
    let old = request.id();
    engine.send(&[1u8; 4], ME, Tag(1), world).unwrap();
    engine.wait(&request).unwrap();
    engine.take(request).unwrap();
    // The generation moves on by 2³² − 1, as if the row had been used that often.
    let generation = &mut rows(&mut engine).requests[old.row as usize].generation;
    *generation = generation.wrapping_add(((1u64 << 32) - 1) as _);
    let new = engine.irecv(vec![0u8; 4], ME, Tag(1), world).unwrap();
    assert_eq!(new.id().row, old.row);
    assert_eq!(engine.test(&old), Err(RequestError::Stale));
    assert_eq!(engine.cancel(&old), Err(RequestError::Stale));
    assert_eq!(engine.cancel(&new), Ok(true));
}

#[test]
fn a_request_is_a_future() {
    struct Flag(AtomicU32);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let receive = cluster.engines[0].irecv(vec![0u8; LONG], Rank(1), Tag(1), world).unwrap();
    let mut future = Box::pin(cluster.engines[0].completion(&receive).unwrap());
    let flag = Arc::new(Flag(AtomicU32::new(0)));
    let waker = Waker::from(flag.clone());
    let mut context = Context::from_waker(&waker);
    assert!(future.as_mut().poll(&mut context).is_pending());
    let send = cluster.engines[1].isend(content(1, LONG), ME, Tag(1), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    cluster.tick_until(BOUND, "the waker is called", |_| flag.0.load(Ordering::Relaxed) == 1);
    assert!(matches!(future.as_mut().poll(&mut context), Poll::Ready(Ok(status)) if status.length == LONG));
    assert!(cluster.engines[0].take(receive).unwrap().0 == content(1, LONG));
    // An engine that goes away ends its open operations.
    let open = cluster.engines[0].irecv(vec![0u8; 4], Rank(1), Tag(1), world).unwrap();
    let mut future = Box::pin(cluster.engines[0].completion(&open).unwrap());
    drop(cluster);
    assert!(matches!(future.as_mut().poll(&mut context), Poll::Ready(Err(RequestError::Finalized))));
}
