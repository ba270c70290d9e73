//! `Builder::check_types`: a receive fails if its type differs from that of the message. The error names both types.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tickwire::testing::{Cluster, ProviderConfig, SimConfig, SimNet};
use tickwire::{
    Builder, Comm, Datatype, Engine, LeasedBytes, Limits, List, Pieces, Rank, RequestError, SendOptions, Source, Tag,
    TagFilter, Typed,
};
use tickwire_tests::agreements;
use tickwire_tests::cases::{self, BOUND};

const TAG: Tag = Tag(3);
const WORLD: Comm = Comm::WORLD;

fn checked(builder: Builder) -> Builder {
    builder.check_types(true)
}

/// Clusters over all transports.
fn clusters() -> Vec<Cluster> {
    let net = |seed| SimNet::new(2, SimConfig::new(seed));
    vec![
        Cluster::loopback_with(2, checked),
        Cluster::shm_with(2, checked),
        Cluster::sim_with(2, &net(1), checked),
        Cluster::provider_with(2, &net(2), |_| ProviderConfig::calm(2), checked),
    ]
}

/// The result of a receive of the second engine for a message of the first one: once with the receive posted first,
/// and once with the message there first.
fn meets<S: Pieces + Send + 'static, R: LeasedBytes + Send + 'static>(
    cluster: &mut Cluster,
    message: impl Fn() -> S,
    into: impl Fn() -> R,
) -> [Result<usize, RequestError>; 2] {
    [true, false].map(|posted| {
        let post =
            |cluster: &mut Cluster| cluster.engines[1].irecv(into(), Source::Any, TagFilter::Any, WORLD).unwrap();
        let early = posted.then(|| post(cluster));
        let send = cluster.engines[0].isend(message(), Rank(1), TAG, WORLD).unwrap();
        let receive = early.unwrap_or_else(|| {
            cluster.tick_until(BOUND, "it is unexpected", |cluster| {
                cluster.engines[1].iprobe(Source::Any, TagFilter::Any, WORLD).unwrap().is_some()
            });
            post(cluster)
        });
        let received = cluster.finish(BOUND, 1, receive);
        cluster.finish(BOUND, 0, send).unwrap();
        received.map(|(_, status)| status.length).map_err(|failed| failed.error)
    })
}

fn fits<S: Pieces + Send + 'static, R: LeasedBytes + Send + 'static>(
    cluster: &mut Cluster,
    message: impl Fn() -> S,
    into: impl Fn() -> R,
) {
    assert_eq!(meets(cluster, &message, &into), [Ok(message().total()), Ok(message().total())]);
}

fn differs<S: Pieces + Send + 'static, R: LeasedBytes + Send + 'static>(
    cluster: &mut Cluster,
    message: impl Fn() -> S,
    into: impl Fn() -> R,
    types: [&str; 2],
) {
    for ended in meets(cluster, &message, &into) {
        let Err(RequestError::OtherType(other)) = ended else { panic!("{ended:?}") };
        assert_eq!((other.sent.as_str(), other.expected), (types[0], types[1]));
        let status = other.status;
        assert_eq!((status.source, status.tag, status.length), (Rank(0), TAG, message().total()));
    }
}

#[test]
fn a_receive_of_another_type_fails_over_every_transport_and_by_every_protocol() {
    for mut cluster in clusters() {
        // The message fits into the header's line, or is eager in several lines, or is offered.
        for count in [1, 500, 100_000] {
            fits(&mut cluster, || vec![1f64; count], || vec![0f64; count]);
            differs(&mut cluster, || vec![1f64; count], || vec![0i64; count], ["f64", "i64"]);
            differs(&mut cluster, || vec![1u8; 4 * count], || vec![0f32; count], ["u8", "f32"]);
            fits(&mut cluster, || vec![1u8; count], || vec![0u8; count]);
        }
        cluster.assert_at_rest();
    }
}

#[test]
fn arrays_lists_and_datatypes_are_of_their_elements() {
    let mut cluster = Cluster::loopback_with(2, checked);
    let cluster = &mut cluster;
    fits(cluster, || vec![[1f32; 3]; 4], || vec![0f32; 12]);
    fits(cluster, || List(vec![vec![1i32, 2], vec![3]]), || vec![0i32; 3]);
    differs(cluster, || vec![[1f32; 3]; 4], || vec![0i32; 12], ["f32", "i32"]);
    let column = || Typed::new(vec![1f64; 16], &Datatype::vector(4, 1, 4, &Datatype::of::<f64>()).unwrap(), 1).unwrap();
    fits(cluster, column, || vec![0f64; 4]);
    differs(cluster, column, || vec![0u64; 4], ["f64", "u64"]);
    fits(cluster, || "text".to_owned(), || vec![0u8; 4]);
    // A message without bytes has no type.
    fits(cluster, Vec::<f64>::new, || vec![0i8; 1]);
    cluster.assert_at_rest();
}

#[test]
fn every_kind_of_receive_and_send_is_checked() {
    let mut cluster = Cluster::loopback_with(2, checked);
    let other = |error: &RequestError| matches!(error, RequestError::OtherType(_));
    // Persistent requests on both sides, started twice.
    let send = cluster.engines[0].ssend_init(vec![1u16; 4], Rank(1), TAG, WORLD).unwrap();
    let receive = cluster.engines[1].recv_init(vec![0i16; 4], Rank(0), TAG, WORLD).unwrap();
    for _ in 0..2 {
        cluster.engines[0].start(&send).unwrap();
        cluster.engines[1].start(&receive).unwrap();
        cluster.tick_until(BOUND, "the receive fails", |cluster| {
            let ended = cluster.engines[1].test(&receive);
            assert!(ended.as_ref().err().is_none_or(other), "{ended:?}");
            ended.is_err()
        });
        cluster.tick_until(BOUND, "the send is done", |cluster| cluster.engines[0].test(&send).unwrap().is_done());
    }
    drop((send, receive));
    // A buffered send, received by a probe.
    cluster.engines[0].attach_buffer(10_000);
    cluster.engines[0].bsend(&[1f32; 8], Rank(1), TAG, WORLD).unwrap();
    let mut message = None;
    cluster.tick_until(BOUND, "it is found", |cluster| {
        message = cluster.engines[1].improbe(Rank(0), TAG, WORLD).unwrap();
        message.is_some()
    });
    let receive = cluster.engines[1].imrecv(message.unwrap(), vec![0u8; 32]).unwrap();
    assert!(other(&cluster.finish(BOUND, 1, receive).unwrap_err().error));
    // Operations submitted by another thread.
    let submitter = cluster.engines[1].submitter();
    let receive = submitter.irecv(vec![0u32; 4], Rank(0), TAG, WORLD).unwrap();
    let submitter = cluster.engines[0].submitter();
    let send = submitter.isend(vec![0f32; 4], Rank(1), TAG, WORLD).unwrap();
    let (mut receive, mut send) = (pin!(receive), pin!(send));
    let mut context = Context::from_waker(Waker::noop());
    let (mut received, mut sent) = (Poll::Pending, Poll::Pending);
    cluster.tick_until(BOUND, "both are done", |_| {
        if received.is_pending() {
            received = receive.as_mut().poll(&mut context).map(|ended| ended.map(drop).map_err(|failed| failed.error));
        }
        if sent.is_pending() {
            sent = send.as_mut().poll(&mut context).map(|ended| ended.is_ok());
        }
        received.is_ready() && sent.is_ready()
    });
    let Poll::Ready(Err(error)) = received else { panic!("{received:?}") };
    assert!(
        error.to_string().starts_with("a message of `f32` from rank 0 with tag 3 into a receive of `u32`"),
        "{error}"
    );
    assert_eq!(sent, Poll::Ready(true));
    cluster.assert_at_rest();
}

#[test]
fn rows_are_used_again_with_other_types() {
    let mut cluster = Cluster::loopback_with(2, checked);
    for round in 0..200u64 {
        match round % 3 {
            0 => fits(&mut cluster, || vec![round; 3], || vec![0u64; 3]),
            1 => differs(&mut cluster, || vec![round as i32; 3], || vec![0u64; 3], ["i32", "u64"]),
            _ => fits(&mut cluster, || vec![round as i32; 3], || vec![0i32; 3]),
        }
    }
    cluster.assert_at_rest();
}

#[test]
fn the_cases_of_all_transports_hold_while_types_are_checked() {
    for mut cluster in clusters() {
        cases::all(&mut cluster);
    }
}

#[test]
fn communicators_are_made_while_types_are_checked() {
    let mut cluster = Cluster::loopback_with(3, checked);
    let mut agreements: Vec<_> = cluster.engines.iter_mut().map(|engine| engine.start_dup(WORLD).unwrap()).collect();
    cluster.tick_until(BOUND, "all have agreed", |cluster| {
        cluster
            .engines
            .iter_mut()
            .zip(&mut agreements)
            .all(|(engine, agreement)| !matches!(engine.test_agreement(agreement).unwrap(), tickwire::Agreed::Pending))
    });
}

#[test]
fn ranks_that_do_not_say_the_same_refuse_each_other() {
    for checks in [[true, false], [false, true]] {
        let net = SimNet::new(2, SimConfig::new(5));
        let mut cluster = Cluster::sim_each(2, &net, |rank, builder| builder.check_types(checks[rank as usize]));
        let receive = cluster.engines[1].irecv(vec![0u8; 4], Rank(0), TAG, WORLD).unwrap();
        let send = cluster.engines[0].issend(vec![1u8; 4], Rank(1), TAG, WORLD).unwrap();
        let error = cluster.finish(BOUND, 1, receive).unwrap_err().error;
        assert!(error.to_string().contains("give both the same Builder::check_types"), "{error}");
        let error = cluster.finish(BOUND, 0, send).unwrap_err().error;
        assert!(matches!(error, RequestError::PeerFailed { .. }), "{error}");
    }
}

#[test]
fn without_checks_types_do_not_matter() {
    let mut cluster = Cluster::loopback(2);
    fits(&mut cluster, || vec![1f64; 4], || vec![0u32; 8]);
    let limits = Limits { check_types: true, ..Limits::default() };
    let engine = Engine::builder().limits(limits).build(tickwire::Bootstrap::solo());
    assert!(engine.is_ok());
}

#[test]
fn an_urgent_message_does_not_cut_off_a_name_that_has_begun_to_leave() {
    for seed in 0..40 {
        // All frames are taken in parts.
        let net = SimNet::new(2, SimConfig { partial_of_256: 255, ..SimConfig::calm(seed) });
        let mut cluster = Cluster::sim_with(2, &net, checked);
        let urgent = agreements::dup(&mut cluster, WORLD);
        let pass = |cluster: &mut Cluster, from: usize| {
            let send = cluster.engines[from].isend(vec![1u8; 8], Rank(1 - from as u32), Tag(1), WORLD).unwrap();
            let receive = cluster.engines[1 - from].irecv(vec![0u8; 8], Rank(from as u32), Tag(1), WORLD).unwrap();
            cluster.finish(BOUND, 1 - from, receive).unwrap();
            cluster.finish(BOUND, from, send).unwrap();
        };
        (0..2).for_each(|from| pass(&mut cluster, from));
        // The peer does not know this type yet.
        let first = cluster.engines[0].isend(vec![1f64], Rank(1), Tag(2), WORLD).unwrap();
        cluster.tick(0);
        let options = SendOptions::new().priority(9);
        let second = cluster.engines[0].isend_with(vec![1u8; 8], Rank(1), Tag(3), urgent[0], options).unwrap();
        let receives = (
            cluster.engines[1].irecv(vec![0f64], Rank(0), Tag(2), WORLD).unwrap(),
            cluster.engines[1].irecv(vec![0u8; 8], Rank(0), Tag(3), urgent[1]).unwrap(),
        );
        assert_eq!(cluster.finish(BOUND, 1, receives.0).unwrap().0, [1.0], "seed {seed}");
        assert_eq!(cluster.finish(BOUND, 1, receives.1).unwrap().0, [1; 8], "seed {seed}");
        cluster.finish(BOUND, 0, first).unwrap();
        cluster.finish(BOUND, 0, second).unwrap();
    }
}
