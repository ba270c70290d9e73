//! Invalid arguments and handles, limits, and the ways to wait, cancel and drop.

use crate::kit::{ME, one, solo, some};
use std::sync::Arc;
use std::time::Duration;
use tickwire::internals::components::TagFilter;
use tickwire::testing::Cluster;
use tickwire::{
    Bootstrap, Comm, Engine, Limits, List, OperationError, PostError, Rank, RequestError, Source, Tag, Test,
};
use tickwire_tests::cases::BOUND;

#[test]
fn wrong_arguments_are_refused_and_buffers_come_back() {
    let mut cluster = Cluster::loopback(2);
    let engine = &mut cluster.engines[0];
    let world = engine.comm_world();
    let refused = engine.isend(vec![7u8], Rank(2), Tag(0), world).unwrap_err();
    assert_eq!((refused.error, refused.buffer), (PostError::Rank { rank: 2, last: 1 }, vec![7]));
    let refused = engine.isend(vec![7u8], Rank(1), Tag(1 << 31), world).unwrap_err();
    assert_eq!(refused.error, PostError::Tag { tag: 1 << 31 });
    assert!(refused.error.to_string().contains("above the bound"));
    assert_eq!(engine.isend(vec![7u8], Rank(0), Tag(0), Comm(2)).unwrap_err().error, PostError::Communicator(2));
    let alone = engine.comm_self();
    assert_eq!(
        engine.isend(vec![7u8], Rank(1), Tag(0), alone).unwrap_err().error,
        PostError::Rank { rank: 1, last: 0 }
    );
    let refused = engine.irecv(vec![7u8], Rank(9), Tag(0), world).unwrap_err();
    assert_eq!((refused.error, refused.buffer), (PostError::Rank { rank: 9, last: 1 }, vec![7]));
    for tag in [1 << 31, u32::MAX] {
        let refused = engine.irecv(vec![7u8], ME, TagFilter::Tag(Tag(tag)), world).unwrap_err();
        assert!(matches!(refused.error, PostError::Tag { .. }));
    }
    assert_eq!(engine.isend(vec![7u8], ME, Tag::MAX, alone).map(drop).map_err(|r| r.error), Ok(()));
    let receive = engine.irecv(vec![0u8], Rank(0), Tag::MAX, alone).unwrap();
    assert_eq!(cluster.finish(BOUND, 0, receive).unwrap().0, [7]);
    cluster.tick_times(3);
    cluster.assert_at_rest();
}

#[test]
fn handles_of_the_past_and_of_other_engines_are_stale() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let request = cluster.engines[0].irecv(vec![0u8; 4], Source::Any, Tag(0), world).unwrap();
    let id = request.id();
    let other = &mut cluster.engines[1];
    assert_eq!(other.test(&request), Err(RequestError::Stale));
    assert_eq!(other.cancel(&request), Err(RequestError::Stale));
    let own = other.irecv(vec![0u8; 4], Source::Any, Tag(0), world).unwrap();
    assert_eq!(own.id().row, id.row, "a row of the same number");
    assert_eq!(other.wait(&request), Err(RequestError::Stale));
    let stale = || RequestError::InStatus { index: 0, error: Box::new(RequestError::Stale) };
    assert_eq!(other.wait_all(&[&request]), Err(stale()));
    assert_eq!(other.cancel(&own), Ok(true));
    cluster.finish(BOUND, 1, own).unwrap_err();
    assert_eq!(cluster.engines[0].cancel(&request), Ok(true));
    let failed = cluster.finish(BOUND, 0, request).unwrap_err();
    assert_eq!((failed.error, failed.buffer), (RequestError::Cancelled, Some(vec![0u8; 4])));
    assert_eq!(cluster.engines[0].wait(&id), Err(RequestError::Stale));
    assert_eq!(cluster.engines[0].wait_any(&[id]), Err(stale()));
    let request = cluster.engines[0].irecv(vec![0u8; 4], Source::Any, Tag(0), world).unwrap();
    let failed = cluster.engines[1].take(request).unwrap_err();
    assert_eq!(failed.error, RequestError::Stale);
    // Dropping the request detaches the operation. The engine frees it when its message arrives.
    drop(failed.request);
    let send = cluster.engines[1].isend(vec![1u8; 4], ME, Tag(0), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    cluster.tick_times(10);
    cluster.assert_at_rest();
}

#[test]
fn at_the_limit_posting_says_full_and_loses_nothing() {
    let limits = Limits { cars_max: 8, ..Limits::default() };
    let mut cluster = Cluster::loopback_with(2, |builder| builder.limits(limits.clone()));
    let world = cluster.engines[0].comm_world();
    let posted: Vec<_> =
        (0..8).map(|tag| cluster.engines[0].irecv(vec![0u8; 4], Rank(1), Tag(tag), world).unwrap()).collect();
    let full = cluster.engines[0].irecv(vec![3u8; 5], Rank(1), Tag(9), world).unwrap_err();
    assert!(matches!(full.error, PostError::Full { rows: 8, .. }), "{full:?}");
    assert_eq!(full.buffer, [3; 5]);
    assert!(full.error.to_string().contains("raise the limit"), "{full}");
    for tag in 0..8 {
        let send = cluster.engines[1].isend(vec![tag as u8; 4], ME, Tag(tag), world).unwrap();
        cluster.finish(BOUND, 1, send).unwrap();
    }
    for (tag, request) in posted.into_iter().enumerate() {
        assert_eq!(cluster.finish(BOUND, 0, request).unwrap().0, [tag as u8; 4]);
    }
    let again = cluster.engines[0].irecv(full.buffer, Rank(1), Tag(9), world).unwrap();
    let send = cluster.engines[1].isend(vec![8u8; 5], ME, Tag(9), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    assert_eq!(cluster.finish(BOUND, 0, again).unwrap().0, [8; 5]);
    // There are more runs than there can be rows.
    let runs = List(vec![vec![0u8]; 9]);
    assert!(matches!(cluster.engines[0].irecv(runs, ME, Tag(0), world).unwrap_err().error, PostError::Full { .. }));
    cluster.assert_at_rest();
}

#[test]
fn a_finalized_engine_refuses_and_gives_buffers_back() {
    let mut engine = solo();
    let world = engine.comm_world();
    let open = engine.irecv(vec![1u8, 2], ME, Tag(0), world).unwrap();
    assert_eq!(engine.finalize(Duration::from_secs(1)), Ok(()));
    assert_eq!(engine.finalize(Duration::from_secs(1)), Ok(()), "again is nothing");
    assert_eq!(engine.isend(vec![1u8], ME, Tag(0), world).unwrap_err().error, PostError::Finalized);
    assert_eq!(engine.irecv(vec![1u8], ME, Tag(0), world).unwrap_err().error, PostError::Finalized);
    assert_eq!(engine.test(&open), Err(RequestError::Finalized));
    let failed = engine.take(open).unwrap_err();
    assert_eq!((failed.error, failed.buffer), (RequestError::Finalized, Some(vec![1, 2])));
    assert!(engine.tick().is_idle());
    assert!(matches!(engine.recv(&mut [0u8], ME, Tag(0), world), Err(OperationError::Post(PostError::Finalized))));
}

// Waiting, cancelling and dropping.

#[test]
fn cancel_ends_receives_that_have_no_message_and_nothing_else() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let posted: Vec<_> = [Source::Rank(Rank(1)), Source::Any, Source::Rank(Rank(1))]
        .map(|source| cluster.engines[0].irecv(vec![0u8; 8], source, Tag(0), world).unwrap())
        .into_iter()
        .collect();
    let [first, second, third] = posted.try_into().unwrap();
    assert_eq!(cluster.engines[0].cancel(&first), Ok(true));
    assert_eq!(cluster.engines[0].cancel(&second), Ok(true));
    let send = cluster.engines[1].isend(vec![5u8; 8], ME, Tag(0), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    assert_eq!(cluster.finish(BOUND, 0, third).unwrap().0, [5; 8], "the message goes to the next receive");
    for cancelled in [first, second] {
        assert_eq!(cluster.finish(BOUND, 0, cancelled).unwrap_err().error, RequestError::Cancelled);
    }
    // A send, or a receive whose large message is already being transferred, can no longer be cancelled.
    let send = cluster.engines[1].isend(vec![6u8; 200_000], ME, Tag(0), world).unwrap();
    assert_eq!(cluster.engines[1].cancel(&send), Ok(false));
    cluster.tick_times(3);
    let large = cluster.engines[0].irecv(vec![0u8; 200_000], Source::Any, Tag(0), world).unwrap();
    cluster.tick_times(1);
    assert_eq!(cluster.engines[0].cancel(&large), Ok(false));
    assert!(cluster.finish(BOUND, 0, large).unwrap().0 == [6; 200_000]);
    cluster.finish(BOUND, 1, send).unwrap();
    cluster.assert_at_rest();
}

#[test]
fn a_wait_that_never_stops_spinning_keeps_its_time() {
    let limits = Limits { spins: u32::MAX, ..Limits::default() };
    let mut engine = Engine::builder().limits(limits).build(Bootstrap::solo()).unwrap();
    let never = engine.irecv(vec![0u8; 4], ME, Tag(0), engine.comm_world()).unwrap();
    assert_eq!(engine.wait_for(&never, Duration::from_millis(2)), Err(RequestError::Timeout));
}

#[test]
fn waits_for_any_some_all_and_a_time() {
    let mut engine = solo();
    let world = engine.comm_world();
    assert_eq!(engine.wait_any::<tickwire::RequestId>(&[]), Ok(None));
    assert_eq!(engine.wait_some::<tickwire::RequestId>(&[]), Ok(vec![]));
    let requests: Vec<_> = (0..4).map(|tag| engine.irecv(vec![0u8; 4], ME, Tag(tag), world).unwrap()).collect();
    assert_eq!(engine.wait_for(&requests[0], Duration::from_millis(2)), Err(RequestError::Timeout));
    engine.send(&[1u8; 4], ME, Tag(2), world).unwrap();
    assert_eq!(engine.wait_any(&requests).map(one), Ok(Some(2)));
    engine.send(&[1u8; 2], ME, Tag(0), world).unwrap();
    assert_eq!(engine.wait(&requests[0]).map(|status| status.length), Ok(2));
    assert_eq!(engine.wait_some(&requests).map(some), Ok(vec![0, 2]));
    assert_eq!(engine.test(&requests[1]), Ok(Test::Pending));
    engine.send(&[1u8; 9], ME, Tag(1), world).unwrap();
    engine.send(&[1u8; 4], ME, Tag(3), world).unwrap();
    let told = engine.wait_all(&requests).unwrap_err();
    assert!(matches!(&told, RequestError::InStatus { index: 1, .. }), "{told}");
    assert!(engine.test(&requests[3]).unwrap().is_done(), "all are done");
    assert!(matches!(engine.test(&requests[1]), Err(RequestError::Truncated { capacity: 4, .. })));
    assert!(matches!(engine.wait(&requests[1]), Err(RequestError::Truncated { capacity: 4, .. })));
    let results: Vec<bool> = requests.into_iter().map(|request| engine.take(request).is_ok()).collect();
    assert_eq!(results, [true, false, true, true]);
}

#[test]
fn dropped_tokens_free_their_rows_and_buffers() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let shared: Arc<[u8]> = vec![1u8; 20_000].into();
    drop(cluster.engines[1].isend(shared.clone(), ME, Tag(0), world).unwrap());
    drop(cluster.engines[0].irecv(vec![0u8; 20_000], Rank(1), Tag(0), world).unwrap());
    let done = cluster.engines[0].irecv(vec![0u8; 4], Rank(1), Tag(1), world).unwrap();
    let send = cluster.engines[1].isend(vec![1u8; 4], ME, Tag(1), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    cluster.tick_times(100);
    assert!(cluster.engines[0].test(&done).unwrap().is_done());
    drop(done);
    cluster.tick_times(3);
    cluster.assert_at_rest();
    assert_eq!(Arc::strong_count(&shared), 1);
}
