//! Requests: calls on several requests, how these calls report the error of one request, and what they give back if a
//! request cannot be taken. Also invalid ranks and tags.

use crate::kit::{ME, one, solo, some};
use tickwire::internals::components::TagFilter;
use tickwire::testing::{Cluster, ProviderConfig, SimConfig, SimNet};
use tickwire::{
    Comm, Engine, Failed, List, OperationError, PostError, Rank, Request, RequestError, RequestId, Source, Status, Tag,
    Test, Tested,
};
use tickwire_tests::cases::BOUND;

type Receive = Request<Vec<u8>>;

fn receive(engine: &mut Engine, tag: u32) -> Receive {
    let world = engine.comm_world();
    engine.irecv(vec![0u8; 4], ME, Tag(tag), world).unwrap()
}

/// Sends `length` bytes to the own rank.
fn send(engine: &mut Engine, tag: u32, length: usize) {
    let world = engine.comm_world();
    engine.send(vec![tag as u8; length], ME, Tag(tag), world).unwrap();
}

/// The error of a call on several requests, if the request `index` has failed.
fn in_status(index: usize, error: RequestError) -> RequestError {
    RequestError::InStatus { index, error: Box::new(error) }
}

fn truncated(tag: u32) -> RequestError {
    let status = Status { source: ME, tag: Tag(tag), length: 9 };
    RequestError::Truncated { status, capacity: 4 }
}

// Taking requests.

#[test]
fn a_request_that_is_taken_too_early_comes_back() {
    let mut engine = solo();
    let request = receive(&mut engine, 1);
    let id = request.id();
    let Failed { error, buffer, request } = engine.take(request).unwrap_err();
    assert_eq!((error, buffer), (RequestError::Pending, None));
    let request = request.unwrap();
    assert_eq!((request.id(), engine.test(&request)), (id, Ok(Test::Pending)));
    send(&mut engine, 1, 3);
    engine.wait(&request).unwrap();
    assert_eq!(engine.take(request).unwrap().0, [1, 1, 1, 0]);
}

#[test]
fn a_request_that_comes_back_and_is_dropped_is_detached() {
    let mut engine = solo();
    let early = |engine: &mut Engine, request: Receive| -> Result<Status, RequestError> { Ok(engine.take(request)?.1) };
    let request = receive(&mut engine, 1);
    assert_eq!(early(&mut engine, request), Err(RequestError::Pending));
    let next = receive(&mut engine, 1);
    send(&mut engine, 1, 1);
    send(&mut engine, 1, 2);
    assert_eq!(engine.wait(&next).unwrap().length, 2, "the detached one took the first message");
}

#[test]
fn a_request_that_another_engine_was_asked_for_comes_back() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let request = cluster.engines[0].irecv(vec![0u8; 4], Rank(1), Tag(0), world).unwrap();
    let failed = cluster.engines[1].take(request).unwrap_err();
    assert!(failed.error == RequestError::Stale && failed.buffer.is_none());
    let send = cluster.engines[1].isend(vec![7u8; 4], ME, Tag(0), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    assert_eq!(cluster.finish(BOUND, 0, failed.request.unwrap()).unwrap().0, [7; 4]);
    let persistent = cluster.engines[0].recv_init(vec![0u8; 4], Rank(1), Tag(0), world).unwrap();
    let failed = cluster.engines[1].free(persistent).unwrap_err();
    assert_eq!(cluster.engines[0].free(failed.request.unwrap()).unwrap(), [0; 4]);
    cluster.assert_at_rest();
}

#[test]
fn a_receive_that_was_cancelled_can_be_taken_at_once() {
    let config = |_| ProviderConfig::calm(1);
    let provider = Cluster::provider(2, &SimNet::new(2, SimConfig::calm(1)), config);
    for mut cluster in [Cluster::loopback(2), Cluster::shm(2), provider] {
        let world = cluster.engines[0].comm_world();
        for source in [Source::Rank(Rank(1)), Source::Any, Source::Rank(Rank(0))] {
            let engine = &mut cluster.engines[0];
            let one = engine.irecv(vec![3u8; 4], source, Tag(0), world).unwrap();
            let several = engine.irecv(List(vec![vec![4u8; 2]; 3]), source, Tag(0), world).unwrap();
            for cancelled in [engine.cancel(&one), engine.cancel(&several)] {
                assert_eq!(cancelled, Ok(true));
            }
            let failed = engine.take(one).unwrap_err();
            assert_eq!((failed.error, failed.buffer), (RequestError::Cancelled, Some(vec![3u8; 4])));
            let failed = engine.take(several).unwrap_err();
            assert_eq!((failed.error, failed.buffer), (RequestError::Cancelled, Some(List(vec![vec![4u8; 2]; 3]))));
            let persistent = engine.recv_init(vec![5u8; 4], source, Tag(0), world).unwrap();
            engine.start(&persistent).unwrap();
            assert_eq!(engine.cancel(&persistent), Ok(true));
            assert_eq!(engine.free(persistent).unwrap(), [5; 4]);
        }
        cluster.tick_times(10);
        cluster.assert_at_rest();
    }
}

// Calls on several requests.

#[test]
fn what_is_no_request_does_not_count() {
    let mut engine = solo();
    let none: [Option<Receive>; 2] = [None, None];
    for requests in [&none[..], &[]] {
        assert_eq!(engine.wait_any(requests), Ok(None));
        assert_eq!(engine.wait_some(requests), Ok(vec![]));
        assert_eq!(engine.wait_all(requests), Ok(()));
        assert_eq!(engine.test_any(requests), Ok(Tested::Nothing));
        assert_eq!(engine.test_some(requests), Ok(Tested::Nothing));
        assert_eq!(engine.test_all(requests), Ok(true));
    }
    assert_eq!(engine.wait(&none[0]), Ok(Status::NULL));
    let mut open: Vec<_> =
        [None, Some(1), Some(2), None, Some(3)].map(|tag: Option<u32>| tag.map(|tag| receive(&mut engine, tag))).into();
    assert_eq!(engine.test_any(&open), Ok(Tested::Pending));
    assert_eq!(engine.test_some(&open), Ok(Tested::Pending));
    assert_eq!(engine.test_all(&open), Ok(false));
    for tag in [3, 1, 2] {
        send(&mut engine, tag, 4);
    }
    // A master's loop: each completion is returned once.
    let mut told = Vec::new();
    while let Some((index, status)) = engine.wait_any(&open).unwrap() {
        let (bytes, taken) = engine.take(open[index].take().unwrap()).unwrap();
        assert_eq!(status, taken);
        told.push((index, bytes[0]));
    }
    told.sort_unstable();
    assert_eq!(told, [(1, 1), (2, 2), (4, 3)]);
}

#[test]
fn what_was_done_when_it_was_posted_counts() {
    let mut engine = solo();
    let world = engine.comm_world();
    let open = receive(&mut engine, 1);
    let ready = engine.isend(vec![1u8; 4], Rank::NULL, Tag(0), world).unwrap();
    assert_eq!(ready.id().row, tickwire::internals::components::NIL);
    let mut requests = [Some(open), Some(ready), None];
    let told = Status { source: Rank::NULL, ..Status::NULL };
    assert_eq!(engine.test_any(&requests), Ok(Tested::Done((1, told))));
    assert_eq!(engine.wait_some(&requests).map(some), Ok(vec![1]));
    engine.take(requests[1].take().unwrap()).unwrap();
    assert_eq!(engine.test_any(&requests), Ok(Tested::Pending));
}

#[test]
fn a_persistent_request_is_told_of_once_a_start() {
    let mut engine = solo();
    let world = engine.comm_world();
    let receives: Vec<_> = (0..3).map(|tag| engine.recv_init(vec![0u8; 4], ME, Tag(tag), world).unwrap()).collect();
    assert_eq!(engine.wait_any(&receives), Ok(None), "none was started");
    for round in 1..4 {
        engine.start_all(&receives[..2]).unwrap();
        assert_eq!(engine.test_some(&receives), Ok(Tested::Pending));
        send(&mut engine, 1, round);
        assert_eq!(engine.wait_any(&receives).map(one), Ok(Some(1)));
        assert_eq!(engine.test(&receives[1]).unwrap(), engine.wait(&receives[1]).map(Test::Done).unwrap());
        assert_eq!(engine.wait(&receives[1]).unwrap().length, round, "it says how it ended, as often as it is asked");
        assert_eq!(engine.test_any(&receives), Ok(Tested::Pending), "it is inactive, and the other one is not done");
        assert_eq!(engine.test_any(&[&receives[1], &receives[2]]), Ok(Tested::Nothing));
        let ids: Vec<RequestId> = receives.iter().map(|receive| receive.id()).collect();
        assert_eq!(engine.test_any(&ids), Ok(Tested::Pending), "also by name");
        send(&mut engine, 0, 4);
        match round {
            1 => assert_eq!(engine.wait_some(&receives).map(some), Ok(vec![0])),
            2 => assert_eq!(engine.wait_all(&receives), Ok(())),
            _ => assert_eq!(engine.wait(&receives[0]).unwrap().length, 4),
        }
        assert_eq!(engine.wait_some(&receives), Ok(vec![]));
        assert_eq!(engine.test_some(&receives), Ok(Tested::Nothing));
        assert_eq!(engine.test_all(&receives), Ok(true));
    }
}

#[test]
fn an_error_of_a_persistent_request_is_told_once_too() {
    let mut engine = solo();
    let world = engine.comm_world();
    let receives: Vec<_> = (0..3).map(|tag| engine.recv_init(vec![0u8; 4], ME, Tag(tag), world).unwrap()).collect();
    for round in 0..3 {
        engine.start_all(&receives).unwrap();
        send(&mut engine, 0, 4);
        send(&mut engine, 1, 9);
        send(&mut engine, 2, 4);
        for _ in 0..3 {
            engine.tick();
        }
        match round {
            0 => {
                assert_eq!(engine.wait_all(&receives), Err(in_status(1, truncated(1))));
                assert_eq!(engine.wait_all(&receives), Ok(()));
            }
            1 => {
                assert_eq!(engine.wait_some(&receives), Err(in_status(1, truncated(1))));
                assert_eq!(engine.wait_some(&receives).map(some), Ok(vec![0, 2]), "the others were not told of yet");
            }
            _ => {
                assert_eq!(engine.wait_any(&receives).map(one), Ok(Some(0)));
                assert_eq!(engine.wait_any(&receives), Err(in_status(1, truncated(1))));
                assert_eq!(engine.wait_any(&receives).map(one), Ok(Some(2)));
            }
        }
        assert_eq!(engine.wait_any(&receives), Ok(None));
        assert_eq!(engine.test(&receives[1]), Err(truncated(1)), "it still says so itself");
    }
}

#[test]
fn an_error_of_one_is_an_error_of_the_call() {
    let mut engine = solo();
    let open: Vec<_> = (0..4).map(|tag| receive(&mut engine, tag)).collect();
    send(&mut engine, 1, 9);
    send(&mut engine, 3, 9);
    engine.tick();
    assert_eq!(engine.test_all(&open), Ok(false), "not all are done");
    for _ in 0..2 {
        assert_eq!(engine.test_any(&open), Err(in_status(1, truncated(1))));
        assert_eq!(engine.wait_any(&open), Err(in_status(1, truncated(1))));
        assert_eq!(engine.test_some(&open), Err(in_status(1, truncated(1))));
        assert_eq!(engine.wait_some(&open), Err(in_status(1, truncated(1))));
    }
    send(&mut engine, 0, 4);
    send(&mut engine, 2, 4);
    assert_eq!(engine.wait_all(&open), Err(in_status(1, truncated(1))));
    assert_eq!(engine.test_all(&open), Err(in_status(1, truncated(1))));
    let words = engine.wait_all(&open).unwrap_err().to_string();
    assert!(words.starts_with("request 1 of those that were given: message truncated"), "{words}");
    // Each request gives its own result. After the failed ones are taken, the others are left.
    let mut open: Vec<_> = open.into_iter().map(Some).collect();
    let failed = engine.take(open[1].take().unwrap()).unwrap_err();
    assert_eq!((failed.error, failed.buffer), (truncated(1), Some(vec![1u8; 4])));
    assert_eq!(engine.wait_some(&open), Err(in_status(3, truncated(3))));
    open[3] = None;
    assert_eq!(engine.wait_some(&open).map(some), Ok(vec![0, 2]));
    assert_eq!(engine.wait_all(&open), Ok(()));
}

#[test]
fn all_are_done_when_an_error_is_told_of_one_of_all() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let cancelled = cluster.engines[0].irecv(vec![0u8; 4], Rank(1), Tag(9), world).unwrap();
    assert_eq!(cluster.engines[0].cancel(&cancelled), Ok(true));
    let send = cluster.engines[1].isend(vec![1u8; 4], ME, Tag(1), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    let late = cluster.engines[0].irecv(vec![0u8; 4], Rank(1), Tag(1), world).unwrap();
    let both = [cancelled, late];
    assert_eq!(cluster.engines[0].wait_all(&both), Err(in_status(0, RequestError::Cancelled)));
    assert!(cluster.engines[0].test(&both[1]).unwrap().is_done());
}

// Invalid ranks and tags.

/// The errors of all calls that receive or probe.
fn errors_of_receives(engine: &mut Engine, source: Source, tag: TagFilter, comm: Comm) -> Vec<PostError> {
    let post = |error: OperationError| match error {
        OperationError::Post(error) => error,
        other => panic!("{other}"),
    };
    let submitted = engine.submitter().irecv(vec![0u8; 4], source, tag, comm).unwrap();
    engine.tick();
    let submitted = match submitted.wait().unwrap_err().error {
        RequestError::NotPosted(error) => error,
        other => panic!("{other}"),
    };
    vec![
        submitted,
        engine.irecv(vec![0u8; 4], source, tag, comm).unwrap_err().error,
        engine.irecv(List(vec![vec![0u8; 2]; 2]), source, tag, comm).unwrap_err().error,
        post(engine.recv(&mut [0u8; 4], source, tag, comm).unwrap_err()),
        engine.recv_init(vec![0u8; 4], source, tag, comm).map(drop).unwrap_err().error,
        engine.iprobe(source, tag, comm).unwrap_err(),
        post(engine.probe(source, tag, comm).unwrap_err()),
        engine.improbe(source, tag, comm).map(drop).unwrap_err(),
        post(engine.mprobe(source, tag, comm).map(drop).unwrap_err()),
        post(engine.sendrecv(&[1u8], Rank::NULL, Tag(0), &mut [0u8; 4], source, tag, comm).unwrap_err()),
    ]
}

#[test]
fn no_number_of_a_rank_is_a_wildcard() {
    let mut engine = solo();
    let world = engine.comm_world();
    send(&mut engine, 0, 4);
    for rank in [ME.0.wrapping_sub(1), ME.0.wrapping_sub(2), u32::MAX, u32::MAX / 2, 1] {
        let expected = PostError::Rank { rank, last: 0 };
        for error in errors_of_receives(&mut engine, Rank(rank).into(), Tag(0).into(), world) {
            assert_eq!(error, expected);
        }
        assert_eq!(engine.isend(vec![1u8], Rank(rank), Tag(0), world).unwrap_err().error, expected);
    }
    assert_eq!(engine.recv(&mut [0u8; 4], Source::Any, Tag(0), world).unwrap().length, 4, "the message is still there");
}

#[test]
fn no_number_of_a_tag_is_a_wildcard() {
    let mut engine = solo();
    let world = engine.comm_world();
    engine.attach_buffer(1 << 12);
    send(&mut engine, 0, 4);
    for tag in [0u32.wrapping_sub(1), Tag::ANY.0, u32::MAX - 1, Tag::MAX.0 + 1] {
        let expected = PostError::Tag { tag };
        for source in [Source::from(ME), Source::Any, Source::from(Rank::NULL)] {
            for error in errors_of_receives(&mut engine, source, Tag(tag).into(), world) {
                assert_eq!(error, expected, "from {source:?}");
            }
        }
        for to in [ME, Rank::NULL] {
            let errors = [
                engine.isend(vec![1u8], to, Tag(tag), world).unwrap_err().error,
                engine.issend(vec![1u8], to, Tag(tag), world).unwrap_err().error,
                engine.irsend(vec![1u8], to, Tag(tag), world).unwrap_err().error,
                engine.ibsend(vec![1u8; 0], to, Tag(tag), world).unwrap_err().error,
                engine.send_init(vec![1u8], to, Tag(tag), world).map(drop).unwrap_err().error,
            ];
            assert!(errors.iter().all(|error| *error == expected), "to {to:?}: {errors:?}");
        }
    }
    assert_eq!(engine.recv(&mut [0u8; 4], ME, TagFilter::Any, world).unwrap().length, 4, "the message is still there");
}
