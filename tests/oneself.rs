//! Messages of a proc to itself. Some go to their receives within the send. What receives get must not depend on that.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use bevy_ecs::prelude::*;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tickwire::internals::components::Progress;
use tickwire::testing::{SplitMix, check_invariants};
use tickwire::{
    Bootstrap, Cells, Engine, Limits, List, ProgressSystems, Rank, Request, RequestError, Source, Status, Tag,
    TagFilter,
};

const ME: Rank = Rank(0);

fn solo() -> Engine {
    Engine::builder().build(Bootstrap::solo()).unwrap()
}

fn receive(engine: &mut Engine, source: impl Into<Source>, tag: u32, room: usize) -> Request<Vec<u8>> {
    let world = engine.comm_world();
    engine.irecv(vec![0u8; room], source, Tag(tag), world).unwrap()
}

fn send(engine: &mut Engine, tag: u32, bytes: &[u8]) -> Request<Vec<u8>> {
    let world = engine.comm_world();
    engine.isend(bytes.to_vec(), ME, Tag(tag), world).unwrap()
}

/// Whether a request is done. The test does not tick.
fn is_done(engine: &mut Engine, request: &Request<Vec<u8>>) -> bool {
    engine.test(request).unwrap().is_done()
}

/// Waits for a receive, if needed. Returns its bytes and status.
fn take(engine: &mut Engine, request: Request<Vec<u8>>) -> (Vec<u8>, Status) {
    engine.wait(&request).unwrap();
    let (mut bytes, status) = engine.take(request).unwrap();
    bytes.truncate(status.length);
    (bytes, status)
}

fn of(tag: u32, length: usize) -> Status {
    Status { source: ME, tag: Tag(tag), length }
}

#[test]
fn what_is_awaited_is_there_when_the_send_returns() {
    let mut engine = solo();
    let eager_max = engine.limits().eager_max;
    for length in [0, 1, 3, 8, 64, 65, 1000, 4000] {
        assert!(length < eager_max);
        let bytes: Vec<u8> = (0..length).map(|i| i as u8).collect();
        let incoming = receive(&mut engine, ME, 5, length + 1);
        let outgoing = send(&mut engine, 5, &bytes);
        assert!(is_done(&mut engine, &incoming) && is_done(&mut engine, &outgoing));
        assert_eq!(take(&mut engine, incoming), (bytes, of(5, length)));
        engine.take(outgoing).unwrap();
    }
    let work = engine.tick();
    assert_eq!((work.posted, work.matched, work.completed, work.sent, work.received), (16, 8, 8, 0, 0));
    check_invariants(&mut engine).unwrap();
}

#[test]
fn what_is_not_or_is_longer_goes_through_a_tick() {
    let mut engine = solo();
    let early = send(&mut engine, 1, b"early");
    let late = receive(&mut engine, ME, 1, 8);
    assert!(is_done(&mut engine, &early) && !is_done(&mut engine, &late));
    assert_eq!(take(&mut engine, late), (b"early".to_vec(), of(1, 5)));

    let any = receive(&mut engine, Source::Any, 2, 8);
    drop(send(&mut engine, 2, b"any"));
    assert!(!is_done(&mut engine, &any));
    assert_eq!(take(&mut engine, any), (b"any".to_vec(), of(2, 3)));

    let long = vec![7u8; 1 << 20];
    let incoming = receive(&mut engine, ME, 3, long.len());
    let outgoing = send(&mut engine, 3, &long);
    assert!(!is_done(&mut engine, &incoming));
    assert_eq!(take(&mut engine, incoming), (long, of(3, 1 << 20)));
    engine.wait(&outgoing).unwrap();
    check_invariants(&mut engine).unwrap();
}

#[test]
fn what_was_sent_before_is_received_before() {
    // The first message is in a ring and not seen yet.
    let mut engine = solo();
    drop(send(&mut engine, 1, b"first"));
    let [one, two] = [0; 2].map(|_| receive(&mut engine, ME, 1, 8));
    drop(send(&mut engine, 1, b"second"));
    assert_eq!(take(&mut engine, one).0, b"first");
    assert_eq!(take(&mut engine, two).0, b"second");

    // The first message is in the send queue, because it is longer than a ring takes.
    let long = vec![7u8; 1 << 20];
    let [one, two] = [0; 2].map(|_| receive(&mut engine, ME, 1, 1 << 20));
    let outgoing = send(&mut engine, 1, &long);
    drop(send(&mut engine, 1, b"short"));
    assert_eq!(take(&mut engine, two).0, b"short");
    assert_eq!(take(&mut engine, one).0, long);
    engine.wait(&outgoing).unwrap();

    // The first message is unexpected and has another tag. The next message does not wait for it.
    drop(send(&mut engine, 9, b"kept"));
    engine.tick();
    let next = receive(&mut engine, ME, 1, 8);
    drop(send(&mut engine, 1, b"next"));
    assert_eq!(take(&mut engine, next).0, b"next");
    let kept = receive(&mut engine, ME, 9, 8);
    assert_eq!(take(&mut engine, kept).0, b"kept");
    check_invariants(&mut engine).unwrap();
}

#[test]
fn what_waits_for_credit_is_received_before() {
    let limits = Limits { unexpected_bytes_max: 64 << 10, ..Limits::default() };
    let mut engine = Engine::builder().limits(limits).build(Bootstrap::solo()).unwrap();
    let mut flood = Vec::new();
    // Sends until not even one byte leaves. Without credit for bytes, messages are only offered, as long as there are
    // envelopes.
    while flood.last().is_none_or(|last| is_done(&mut engine, last)) {
        assert!(flood.len() < 10_000, "credit has an end");
        flood.push(send(&mut engine, 9, &[9u8; 4000]));
        engine.tick();
        flood.push(send(&mut engine, 9, &[9u8]));
        engine.tick();
    }
    let first = send(&mut engine, 1, b"first");
    engine.tick();
    assert!(!is_done(&mut engine, &first));
    let [one, two] = [0; 2].map(|_| receive(&mut engine, ME, 1, 8));
    drop(send(&mut engine, 1, b"second"));
    for _ in &flood {
        let incoming = receive(&mut engine, ME, 9, 4000);
        assert!(take(&mut engine, incoming).0.iter().all(|&byte| byte == 9));
    }
    assert_eq!(take(&mut engine, one).0, b"first");
    assert_eq!(take(&mut engine, two).0, b"second");
    engine.wait_all(&flood).unwrap();
    check_invariants(&mut engine).unwrap();
}

#[test]
fn any_tag_and_too_little_room_are_told_as_ever() {
    let mut engine = solo();
    let world = engine.comm_world();
    let any = engine.irecv(vec![0u8; 4], ME, TagFilter::Any, world).unwrap();
    drop(send(&mut engine, 77, b"four"));
    assert_eq!(engine.wait(&any), Ok(of(77, 4)));
    let short = receive(&mut engine, ME, 1, 3);
    drop(send(&mut engine, 1, b"longer"));
    assert!(matches!(engine.wait(&short), Err(RequestError::Truncated { .. })));
    assert_eq!(engine.take(short).unwrap_err().buffer, Some(b"lon".to_vec()));
}

#[test]
fn parts_of_one_buffer_may_be_sent_to_others_of_it() {
    for length in [3, 7, 8, 13, 20, 40, 64, 100, 300] {
        let mut bytes: Vec<u8> = (0..400).map(|i| i as u8).collect();
        let mut model = bytes.clone();
        model.copy_within(0..length, 2);
        let cells = Cell::from_mut(&mut bytes[..]).as_slice_of_cells();
        solo().scope(|scope| {
            let incoming = scope.irecv(Cells(&cells[2..2 + length]), ME, Tag(1), scope.comm_world()).unwrap();
            let outgoing = scope.isend(Cells(&cells[..length]), ME, Tag(1), scope.comm_world()).unwrap();
            scope.wait_all(&[incoming.id(), outgoing.id()]).unwrap();
        });
        assert_eq!(bytes, model, "{length} B");
    }
}

#[test]
fn places_of_a_receive_may_be_parts_of_the_message_in_another_order() {
    for length in [3usize, 4, 16, 40, 100] {
        let mut bytes: Vec<u8> = (0..2 * length).map(|i| i as u8).collect();
        let turned = [&bytes[length..], &bytes[..length]].concat();
        let cells = Cell::from_mut(&mut bytes[..]).as_slice_of_cells();
        solo().scope(|scope| {
            let places = List(vec![Cells(&cells[length..]), Cells(&cells[..length])]);
            let incoming = scope.irecv(places, ME, Tag(1), scope.comm_world()).unwrap();
            let outgoing = scope.isend(Cells(cells), ME, Tag(1), scope.comm_world()).unwrap();
            scope.wait_all(&[incoming.id(), outgoing.id()]).unwrap();
        });
        // The first half of the message goes to the second half of the buffer.
        assert_eq!(bytes, turned, "{length} B");
    }
}

#[test]
fn who_wants_to_be_told_is_told_by_a_tick() {
    let mut engine = solo();
    let told = Arc::new(AtomicU32::new(0));
    let incoming = receive(&mut engine, ME, 1, 8);
    let count = told.clone();
    engine
        .on_complete(&incoming, move |ended| {
            count.fetch_add(ended.unwrap().length as u32, Ordering::Relaxed);
        })
        .unwrap();
    drop(send(&mut engine, 1, b"bytes"));
    assert_eq!(told.load(Ordering::Relaxed), 0);
    engine.tick();
    assert_eq!((told.load(Ordering::Relaxed), take(&mut engine, incoming).0), (5, b"bytes".to_vec()));
}

#[test]
fn systems_of_the_application_see_them_all() {
    let seen = Arc::new(AtomicU32::new(0));
    let count = seen.clone();
    let look = move |progress: Query<&Progress>| {
        count.fetch_add(progress.iter().map(|progress| progress.arrivals).sum(), Ordering::Relaxed);
    };
    let add = |schedule: &mut Schedule| {
        schedule.add_systems(look.before(ProgressSystems::Match).after(ProgressSystems::Post));
    };
    let mut engine = Engine::builder().systems(add).build(Bootstrap::solo()).unwrap();
    let incoming = receive(&mut engine, ME, 1, 8);
    drop(send(&mut engine, 1, b"seen"));
    assert!(!is_done(&mut engine, &incoming));
    assert_eq!(take(&mut engine, incoming).0, b"seen");
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

/// Plays a random program of one proc. Returns what its receives got, in their order, and how many messages arrived
/// within their send.
fn play(seed: u64, own_at_once: bool) -> (Vec<(Vec<u8>, Status)>, usize) {
    let limits = Limits { own_at_once, ..Limits::default() };
    let mut engine = Engine::builder().limits(limits).build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    let mut random = SplitMix::new(seed);
    let (mut incoming, mut outgoing, mut at_once) = (Vec::new(), Vec::new(), 0);
    let (mut sent, mut posted) = ([0u32; 3], [0u32; 3]);
    let done = |engine: &mut Engine, requests: &[_]| requests.iter().filter(|request| is_done(engine, request)).count();
    for number in 0..600u32 {
        let tag = random.below(3) as usize;
        match random.below(8) {
            0..3 => {
                let length = [4, 4, 8, 8, 40, 40, 900, 900, 5000, 40_000][random.below(10) as usize];
                let mut bytes = vec![number as u8; length];
                bytes[..4].copy_from_slice(&number.to_le_bytes());
                let before = done(&mut engine, &incoming);
                outgoing.push(engine.isend(bytes, ME, Tag(tag as u32), world).unwrap());
                sent[tag] += 1;
                at_once += done(&mut engine, &incoming) - before;
            }
            3..6 => {
                let source = if random.below(40) == 0 { Source::Any } else { ME.into() };
                incoming.push(engine.irecv(vec![0u8; 40_000], source, Tag(tag as u32), world).unwrap());
                posted[tag] += 1;
            }
            _ => drop(engine.tick()),
        }
    }
    for tag in 0..3 {
        for _ in posted[tag]..sent[tag] {
            incoming.push(engine.irecv(vec![0u8; 40_000], ME, Tag(tag as u32), world).unwrap());
        }
        for _ in sent[tag]..posted[tag] {
            outgoing.push(engine.isend(vec![0u8; 4], ME, Tag(tag as u32), world).unwrap());
        }
    }
    let received = incoming.into_iter().map(|request| take(&mut engine, request)).collect();
    engine.wait_all(&outgoing).unwrap();
    outgoing.into_iter().for_each(|request| drop(engine.take(request).unwrap()));
    check_invariants(&mut engine).unwrap();
    (received, at_once)
}

#[test]
fn each_receive_gets_what_it_gets_through_a_tick() {
    let mut at_once = 0;
    for seed in 0..30 {
        let ((received, early), by_tick) = (play(seed, true), play(seed, false));
        assert!((received, 0) == by_tick, "seed {seed}");
        at_once += early;
    }
    assert!(at_once > 300, "{at_once} messages went at once");
}
