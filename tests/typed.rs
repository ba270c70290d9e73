//! Buffers of elements. Every call that moves data takes them, and counts elements.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod checked_types;

use std::sync::Arc;
use std::time::Duration;
use tickwire::internals::components::CountError;
use tickwire::testing::Cluster;
use tickwire::{
    Bootstrap, Cells, Datatype, Described, Engine, List, OperationError, PostError, Rank, RequestError, SendOptions,
    Source, Tag, TagFilter, Typed,
};
use tickwire_tests::cases::BOUND;

const TAG: Tag = Tag(3);
const ME: Rank = Rank(0);

fn solo() -> Engine {
    Engine::builder().build(Bootstrap::solo()).unwrap()
}

/// Counts of elements: none, a short message, a message above the eager limit, and a long one.
fn lengths() -> [usize; 4] {
    [0, 5, 3000, 200_000]
}

fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|n| n as f64 / 3.0).collect()
}

#[test]
fn elements_arrive_over_every_transport() {
    for mut cluster in [Cluster::loopback(2), Cluster::shm(2)] {
        let world = cluster.engines[0].comm_world();
        for count in lengths() {
            let all = numbers(count);
            let send = cluster.engines[0].isend(all.clone(), Rank(1), TAG, world).unwrap();
            let receive = cluster.engines[1].irecv(vec![0f64; count + 2], Rank(0), TAG, world).unwrap();
            let (into, status) = cluster.finish(BOUND, 1, receive).unwrap();
            assert_eq!(status.count::<f64>(), Ok(count));
            assert!(into[..count] == all && into[count..] == [0.0; 2], "{count}");
            assert!(cluster.finish(BOUND, 0, send).unwrap().0 == all);
        }
        cluster.assert_at_rest();
    }
}

#[test]
fn every_kind_of_buffer_is_taken() {
    let mut engine = solo();
    let world = engine.comm_world();
    let expected = [1u64, 2, 1 << 60];
    let shared: Arc<[u64]> = expected.into();
    macro_rules! each {
        ($($buffer:expr),*) => {$(
            let receive = engine.irecv([0u64; 3], ME, TAG, world).unwrap();
            let send = engine.isend($buffer, ME, TAG, world).unwrap();
            let (into, status) = engine.wait_take(receive).unwrap();
            assert_eq!((*into, status.count::<u64>()), (expected, Ok(3)));
            engine.wait_take(send).unwrap();
        )*};
    }
    each!(expected, expected.to_vec(), Box::new(expected), Box::<[u64]>::from(expected), shared.clone());
    each!(Arc::new(expected), List(vec![vec![1u64], vec![], vec![2, 1 << 60]]));
    // Blocking calls take borrowed buffers, whole or in part.
    let (vector, boxed) = (expected.to_vec(), Box::<[u64]>::from(expected));
    let mut into = vec![0u64; 3];
    macro_rules! blocking {
        ($($buffer:expr),*) => {$(
            engine.send($buffer, ME, TAG, world).unwrap();
            into.fill(0);
            assert_eq!(engine.recv(&mut into, ME, TAG, world).unwrap().count::<u64>(), Ok(3));
            assert_eq!(into, expected);
        )*};
    }
    blocking!(&expected, &expected[..], &vector, &vector[..], &boxed, &shared, vector.clone());
    let mut array = [0u64; 3];
    engine.send(&expected, ME, TAG, world).unwrap();
    engine.recv(&mut array, ME, TAG, world).unwrap();
    engine.send(&expected[..2], ME, TAG, world).unwrap();
    engine.recv(&mut into[1..], ME, TAG, world).unwrap();
    assert_eq!((array, &into[..]), (expected, &[1, 1, 2][..]));
}

#[test]
fn every_call_takes_elements() {
    let mut engine = solo();
    let world = engine.comm_world();
    engine.attach_buffer(1 << 16);
    let due = [-1.5f32, 0.25];
    let fresh = || vec![0f32; 2];
    let receive = |engine: &mut Engine| {
        let mut into = [0f32; 2];
        assert_eq!(engine.recv(&mut into, ME, TAG, world).unwrap().count::<f32>(), Ok(2));
        assert_eq!(into, due);
    };
    engine.bsend(&due, ME, TAG, world).unwrap();
    receive(&mut engine);
    engine.ibsend(due, ME, TAG, world).map(drop).unwrap();
    receive(&mut engine);
    for mode in 0..4 {
        let waiting = engine.irecv(fresh(), ME, TAG, world).unwrap();
        match mode {
            0 => engine.issend(due, ME, TAG, world).map(drop).unwrap(),
            1 => engine.irsend(due, ME, TAG, world).map(drop).unwrap(),
            2 => engine.ssend(&due, ME, TAG, world).unwrap(),
            _ => engine.isend_with(due, ME, TAG, world, SendOptions::new().synchronous()).map(drop).unwrap(),
        }
        assert_eq!(engine.wait_take(waiting).unwrap().0, due);
    }
    // Matched probes take typed buffers too.
    engine.send(&due, ME, TAG, world).unwrap();
    let message = engine.mprobe(Source::Any, TagFilter::Any, world).unwrap();
    assert_eq!(message.status().count::<f32>(), Ok(2));
    let found = engine.imrecv(message, fresh()).unwrap();
    assert_eq!(engine.wait_take(found).unwrap().0, due);
    // So do persistent requests.
    let outgoing = engine.send_init(due, ME, TAG, world).unwrap();
    let incoming = engine.recv_init(fresh(), ME, TAG, world).unwrap();
    for _ in 0..2 {
        engine.start(&incoming).unwrap();
        engine.start(&outgoing).unwrap();
        assert_eq!(engine.wait(&incoming).unwrap().count::<f32>(), Ok(2));
        engine.wait(&outgoing).unwrap();
    }
    // So do exchanges in place, scopes, registered buffers and receipts.
    let mut swapped = due;
    engine.sendrecv_replace(&mut swapped, ME, TAG, ME, TAG, world).unwrap();
    let mut into = fresh();
    engine.sendrecv(&due, ME, TAG, &mut into, ME, TAG, world).unwrap();
    assert_eq!((swapped, &into[..]), (due, &due[..]));
    let mut lent = [0f32; 2];
    engine.scope(|scope| {
        let receive = scope.irecv(&mut lent, ME, TAG, world).unwrap();
        scope.isend(&due, ME, TAG, world).map(drop).unwrap();
        scope.wait_take(receive).unwrap();
    });
    assert_eq!(lent, due);
    let mut cells = [0f32; 2];
    let shared = std::cell::Cell::from_mut(&mut cells[..]).as_slice_of_cells();
    engine.scope(|scope| {
        let receive = scope.irecv(Cells(shared), ME, TAG, world).unwrap();
        scope.send(&due, ME, TAG, world).unwrap();
        scope.wait(&receive).unwrap();
        assert_eq!(shared[1].get(), due[1]);
    });
    let registered = engine.register(due.to_vec());
    let receive = engine.receipted().irecv(fresh(), ME, TAG, world).unwrap();
    engine.isend(registered, ME, TAG, world).map(drop).unwrap();
    assert_eq!(engine.wait_take(receive).unwrap().0, due);
    engine.finalize(Duration::from_secs(5)).unwrap();
}

#[test]
fn other_threads_submit_elements() {
    let mut engine = solo();
    let world = engine.comm_world();
    let submitter = engine.submitter();
    let receive = submitter.irecv([0i32; 3], ME, TAG, world).unwrap();
    let send = submitter.isend([7i32, -8, 9], ME, TAG, world).unwrap();
    let other = std::thread::spawn(move || (receive.wait().unwrap(), send.wait().unwrap().0));
    for _ in 0..BOUND {
        if other.is_finished() {
            break;
        }
        engine.tick();
        std::thread::yield_now();
    }
    let ((into, status), _) = other.join().unwrap();
    assert_eq!((*into, status.count::<i32>()), ([7, -8, 9], Ok(3)));
}

#[test]
fn a_vector_is_as_long_as_its_message() {
    let mut engine = solo();
    let world = engine.comm_world();
    for count in lengths() {
        let all = numbers(count);
        let send = engine.isend(all.clone(), ME, TAG, world).unwrap();
        let (into, status) = engine.recv_vec::<f64>(Source::Any, TAG, world).unwrap();
        assert!(into == all && status.tag == TAG && status.length == 8 * count);
        engine.wait_take(send).unwrap();
    }
    assert!(engine.recv_vec::<f64>(Rank::NULL, TAG, world).unwrap().0.is_empty());
    // A message that is no whole number of elements is not taken. It can still be received as bytes.
    engine.send(b"nine bytes"[..9].to_vec(), ME, TAG, world).unwrap();
    let error = engine.recv_vec::<u32>(ME, TAG, world).unwrap_err();
    let expected = CountError { bytes: 9, size: 4, element: "u32" };
    assert_eq!(error, OperationError::Count(expected));
    assert!(error.to_string().contains("9 bytes, no multiple of the 4 of u32"), "{error}");
    assert_eq!(engine.recv_vec::<u8>(ME, TAG, world).unwrap().0, b"nine byte");
}

#[test]
fn elements_without_bytes_and_large_alignments_are_moved() {
    let mut engine = solo();
    let world = engine.comm_world();
    engine.send(&[(); 5], ME, TAG, world).unwrap();
    let mut nothing = [(); 5];
    let status = engine.recv(&mut nothing, ME, TAG, world).unwrap();
    assert_eq!((status.length, status.count::<()>()), (0, Ok(0)));
    let wide: Vec<u128> = (0..40).map(|n| u128::MAX / (n + 1)).collect();
    engine.send(&wide, ME, TAG, world).unwrap();
    assert_eq!(engine.recv_vec::<u128>(ME, TAG, world).unwrap().0, wide);
    // A large array goes into a box. An array of arrays is one run.
    let receive = engine.irecv(vec![[0u16; 3]; 10_000], ME, TAG, world).unwrap();
    let send = engine.isend([[1u16, 2, 3]; 10_000], ME, TAG, world).unwrap();
    let (into, status) = engine.wait_take(receive).unwrap();
    assert!(into.iter().all(|three| *three == [1, 2, 3]) && status.count::<[u16; 3]>() == Ok(10_000));
    engine.wait_take(send).unwrap();
    // Truth values can be sent, but not every byte is one. So they are received as bytes here.
    engine.send(&[true, false], ME, TAG, world).unwrap();
    assert_eq!(engine.recv_vec::<u8>(ME, TAG, world).unwrap().0, [1, 0]);
}

#[test]
fn a_message_that_is_too_long_is_truncated_at_a_byte_and_told() {
    let mut engine = solo();
    let world = engine.comm_world();
    let receive = engine.irecv([0u32; 2], ME, TAG, world).unwrap();
    let _sent = engine.isend([1u32, 2, 3], ME, TAG, world).unwrap();
    let failed = engine.wait_take(receive).unwrap_err();
    assert!(matches!(failed.error, RequestError::Truncated { .. }) && failed.request.is_none());
    assert_eq!(*failed.buffer.unwrap(), [1, 2]);
}

#[test]
fn a_wait_that_is_impossible_gives_the_request_back() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let engine = &mut cluster.engines[0];
    // The peer cannot tick during a wait here, so the wait could never end. The request is only tested.
    let receive = engine.irecv(vec![0u8; 4], Rank(1), TAG, world).unwrap();
    let early = engine.take(receive).unwrap_err();
    assert_eq!(early.error, RequestError::Pending);
    let receive = early.request.expect("it is given back");
    assert_eq!(engine.cancel(&receive), Ok(true));
    let failed = engine.wait_take(receive).unwrap_err();
    assert_eq!((failed.error, failed.buffer), (RequestError::Cancelled, Some(vec![0; 4])));
    // A request of another engine is given back too.
    let other = cluster.engines[1].irecv([0u8; 4], Rank(0), TAG, world).unwrap();
    let failed = cluster.engines[0].wait_take(other).unwrap_err();
    assert!(failed.error == RequestError::Stale && failed.request.is_some());
    drop(failed);
    let refused = cluster.engines[0].isend([1u64; 2], Rank(7), TAG, world).unwrap_err();
    assert_eq!((refused.error, *refused.buffer), (PostError::Rank { rank: 7, last: 1 }, [1; 2]));
}

/// A struct of an application, with padding behind `id` and a private field.
#[derive(Clone, Debug, Default, PartialEq, Datatype)]
struct Body {
    id: u8,
    place: [f64; 3],
    mass: f32,
    #[datatype(skip)]
    name: Option<String>,
    spin: Spin<i16>,
}

#[derive(Clone, Debug, Default, PartialEq, Datatype)]
struct Spin<T>(T, u64);

#[test]
fn structs_are_sent_field_by_field() {
    let bodies = |name: &str| -> Vec<Body> {
        let body = |n: u8| Body {
            id: n,
            place: [f64::from(n), 0.5, -1.0],
            mass: 2.0,
            name: Some(format!("{name} {n}")),
            spin: Spin(-7, u64::MAX - u64::from(n)),
        };
        (0..100).map(body).collect()
    };
    assert_eq!(<Body as Described>::layout().size(), 1 + 24 + 4 + 2 + 8, "without padding and the name");
    assert_eq!(<Body as Described>::layout().extent() as usize, size_of::<Body>());
    for mut cluster in [Cluster::loopback(2), Cluster::shm(2)] {
        let world = cluster.engines[0].comm_world();
        let mut empty = bodies("there");
        empty.iter_mut().for_each(|body| *body = Body { name: body.name.take(), ..Body::default() });
        let receive = cluster.engines[1].irecv(Typed::all(empty).unwrap(), Rank(0), TAG, world).unwrap();
        let send = cluster.engines[0].isend(Typed::all(bodies("here")).unwrap(), Rank(1), TAG, world).unwrap();
        let (into, status) = cluster.finish(BOUND, 1, receive).unwrap();
        assert_eq!(status.length, 39 * 100);
        assert_eq!(into.into_buffer(), bodies("there"), "what is skipped stays as it was");
        cluster.finish(BOUND, 0, send).unwrap();
    }
}
