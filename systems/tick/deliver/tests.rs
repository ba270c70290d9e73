use super::*;
use crate::testing::{Posted, TestWorld};
use crate::tick::complete::complete;
use std::sync::Arc;
use tickwire_components::car_flags;
use tickwire_components::wire::Kind;
use tickwire_components::wire::READABLE;
use tickwire_components::{Access, Registration, RequestState, VcState};

fn eager(tag: u32, length: usize) -> Header {
    Header::new(Kind::Eager, 0, 1, tag, 0, length as u64)
}

/// A world of two procs that are connected, and the VC of the other one.
fn world() -> (TestWorld, Row) {
    let mut world = TestWorld::new(2);
    let vc = world.contact(1, VcState::Connected);
    (world, vc)
}

/// Offers a frame as a transport does.
fn offer(world: &mut TestWorld, vc: Row, header: Header, bytes: &mut [u8]) -> bool {
    // SAFETY: the bytes outlive the call.
    #[expect(unsafe_code, reason = "a span over a test's bytes")]
    let payload = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    world.store.with(|rows, _| unsafe {
        match header.kind() {
            Some(Kind::Eager) => rows.message(&header, payload, vc),
            _ => !matches!(rows.other(&header, payload, vc), Other::Left),
        }
    })
}

fn ended(world: &mut TestWorld, posted: Posted) -> (RequestState, u64, u16) {
    let car = world.car(posted);
    (world.request(posted).state, car.done, car.flags)
}

#[test]
fn a_whole_message_among_the_other_frames_is_delivered_too() {
    let (mut world, vc) = world();
    let mut bytes = *b"abcd";
    let header = Header::new(Kind::Eager, 0, 1, 5, 0, 4);
    // SAFETY: the bytes outlive the calls.
    #[expect(unsafe_code, reason = "a span over a test's bytes")]
    let payload = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let other = |world: &mut TestWorld| world.store.with(|rows, _| unsafe { rows.other(&header, payload, vc) });
    assert!(matches!(other(&mut world), Other::Left), "nobody waits for it: it stays where it is");
    let posted = world.receive(Some(1), Some(5), &[4]);
    assert!(matches!(other(&mut world), Other::Taken));
    assert_eq!((ended(&mut world, posted), world.bytes(posted)), ((RequestState::Done, 4, 0), b"abcd".to_vec()));
}

#[test]
fn a_message_that_is_awaited_is_done_at_once() {
    let (mut world, vc) = world();
    let later = world.receive(Some(1), Some(5), &[8]);
    let any = world.receive(None, None, &[8]);
    let mut bytes = *b"abcdefgh";
    assert!(offer(&mut world, vc, eager(5, 8), &mut bytes));
    assert!(offer(&mut world, vc, eager(5, 3), &mut bytes[..3]));
    assert_eq!((world.bytes(later), &world.bytes(any)[..3]), (bytes.to_vec(), &b"abc"[..]));
    let flags = car_flags::ANY_SOURCE;
    let found = [ended(&mut world, later), ended(&mut world, any)];
    assert_eq!(found, [(RequestState::Done, 8, 0), (RequestState::Done, 3, flags)]);
    assert_eq!((world.car(any).source, world.car(any).tag, world.car(any).vc), (1, 5, vc));
    let progress = world.all().progress;
    assert_eq!((progress.active, progress.work.completed.get()), (0, 2));
    assert!(progress.finished.is_empty() && !progress.pending.has(Pending::COMPLETE));
}

#[test]
fn what_is_not_awaited_or_cannot_be_is_left_to_the_systems() {
    let (mut world, vc) = world();
    let posted = world.receive(Some(1), Some(5), &[8]);
    let wrong = [eager(6, 0), Header::new(Kind::Eager, 0, 0, 5, 0, 0), Header::new(Kind::Eager, 9, 1, 5, 0, 0)];
    for header in wrong {
        assert!(!offer(&mut world, vc, header, &mut []));
    }
    assert!(!offer(&mut world, 77, eager(5, 0), &mut []));
    assert!(!offer(&mut world, vc, eager(1 << 31, 0), &mut []));
    assert_eq!(world.request(posted).state, RequestState::Active);
    assert_eq!(world.all().progress.unexpected.count, 0);
}

#[test]
fn what_completes_otherwise_is_left_to_complete() {
    let (mut world, vc) = world();
    let short = world.receive(Some(1), Some(5), &[4]);
    let pieces = world.receive(Some(1), Some(5), &[3, 5]);
    let detached = world.receive(Some(1), Some(5), &[8]);
    world.all().requests[detached.car as usize].state = RequestState::Detached;
    let mut bytes = *b"abcdefgh";
    for _ in 0..3 {
        assert!(offer(&mut world, vc, eager(5, 8), &mut bytes));
    }
    assert_eq!(world.finished(), [short.car, pieces.car, detached.car]);
    assert_eq!((world.bytes(short), world.bytes(pieces)), (b"abcd".to_vec(), bytes.to_vec()));
    world.step(complete);
    assert_eq!(ended(&mut world, short), (RequestState::Done, 8, car_flags::TRUNCATED));
    assert_eq!(ended(&mut world, pieces), (RequestState::Done, 8, 0));
    assert_eq!(world.request(detached).state, RequestState::Free);
}

#[test]
fn a_message_that_its_transport_has_paired_is_done_at_once() {
    let (mut world, vc) = world();
    let endpoint = world.add_matching_wire(Arc::default());
    world.all().vcs[vc as usize].endpoint = endpoint;
    let (known, any) = (world.receive(Some(1), Some(5), &[4]), world.receive(None, None, &[8]));
    let mut bytes = *b"abcdefgh";
    // SAFETY: the bytes outlive the calls.
    #[expect(unsafe_code, reason = "a span over a test's bytes")]
    let payload = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
    let matched = |world: &mut TestWorld, vc: Row, header: Header, posted: Posted| {
        let payload = payload.part(0, header.length as usize);
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "a span over a test's bytes")]
        world.store.with(|rows, _| unsafe { rows.matched(&header, payload, vc, posted.car) })
    };
    assert!(!matched(&mut world, vc, eager(5, 8), any), "the transport does not have it yet");
    world.step(crate::tick::post::post);
    assert!(!matched(&mut world, vc, eager(6, 4), known), "it takes another tag");
    assert!(!matched(&mut world, 77, eager(5, 4), known), "of nobody");
    assert!(matched(&mut world, vc, eager(7, 3), any));
    assert!(matched(&mut world, vc, eager(5, 8), known));
    assert!(!matched(&mut world, vc, eager(7, 3), any), "it is over");
    assert_eq!((world.bytes(known), &world.bytes(any)[..3]), (b"abcd".to_vec(), &b"abc"[..]));
    assert_eq!(world.finished(), [known.car], "of one that was cut off Complete tells");
    assert_eq!(ended(&mut world, any), (RequestState::Done, 3, car_flags::ANY_SOURCE));
    let progress = world.all().progress;
    assert_eq!((progress.provider.count, progress.posted.count, progress.indexed()), (0, 0, false));
}

fn offered(length: u64, message: u32) -> Header {
    Header::new(Kind::Rts, 0, 1, 5, message, length).with_flags(READABLE)
}

#[test]
fn an_offer_whose_receive_is_posted_is_read_and_answered() {
    let (mut world, vc) = world();
    // As over a transport that may take a part of a frame: frames leave with Post.
    world.all().endpoints[0].by_post = true;
    let posted = world.receive(Some(1), Some(5), &[100]);
    world.wire().memory.push((4096, (0..100).collect()));
    let mut address = 4096u64.to_ne_bytes();
    assert!(offer(&mut world, vc, offered(100, 33), &mut address));
    assert!(!offer(&mut world, vc, offered(100, 34), &mut address), "of another nobody has posted a receive");
    world.store.with(read_offered);
    assert_eq!(world.bytes(posted), (0..100).collect::<Vec<u8>>());
    world.step(crate::tick::post::post);
    let answers: Vec<_> = world.wire().sent.iter().map(|f| (f.header.kind(), f.header.message())).collect();
    assert_eq!(answers, [(Some(Kind::Done), 33)]);
    assert_eq!((world.finished(), world.car(posted).done), (vec![posted.car], 100));
}

#[test]
fn what_was_read_ends_at_once_and_in_order_as_far_as_complete_need_not_look() {
    let (mut world, vc) = world();
    // As over shared memory: frames leave when they are made.
    let endpoint = &mut world.all().endpoints[0];
    (endpoint.rows, endpoint.by_post) = (None, false);
    world.wire().memory.push((4096, (0..100).collect()));
    let posted = [100, 100, 90, 100].map(|length| world.receive(Some(1), Some(5), &[length]));
    let mut address = 4096u64.to_ne_bytes();
    let mut take = |world: &mut TestWorld, messages: std::ops::Range<u32>| {
        for message in messages {
            assert!(offer(world, vc, offered(100, message), &mut address));
        }
        world.store.with(read_offered);
        world.all().progress.pending.has(Pending::COMPLETE)
    };
    assert!(!take(&mut world, 33..35), "nothing is left to look at");
    let states = |world: &mut TestWorld| posted.map(|posted| world.request(posted).state);
    let (done, active) = (RequestState::Done, RequestState::Active);
    assert_eq!(states(&mut world), [done, done, active, active]);
    assert!(take(&mut world, 35..37), "one was cut off");
    assert_eq!(states(&mut world), [done, done, active, active], "nor does the one behind it end before it");
    assert_eq!(world.finished(), [posted[2].car, posted[3].car]);
    world.step(complete);
    assert_eq!(states(&mut world), [done; 4]);
    let progress = world.all().progress;
    assert_eq!((progress.active, progress.work.completed.get()), (0, 4));
}

/// A world whose wire sends at once, and has mapped 100 bytes of its peer's memory at address 4096, and a vc.
fn mapped() -> (TestWorld, Row) {
    let (mut world, vc) = world();
    let endpoint = &mut world.all().endpoints[0];
    (endpoint.rows, endpoint.by_post, endpoint.plain) = (None, false, true);
    let mut wire = world.wire();
    wire.memory.push((4096, (0..100).collect()));
    wire.is_mapped = true;
    drop(wire);
    (world, vc)
}

fn look(world: &mut TestWorld) {
    world.store.with(read_offered);
}

#[test]
fn what_is_mapped_is_copied_answered_and_ended_by_the_look_that_finds_its_offer() {
    let (mut world, vc) = mapped();
    let plain = [100, 120].map(|length| world.receive(Some(1), Some(5), &[length]));
    // Cut off, and in two runs.
    let others = [&[90][..], &[60, 40]].map(|lengths| world.receive(Some(1), Some(5), lengths));
    let mut address = 4096u64.to_ne_bytes();
    for message in 33..37 {
        assert!(offer(&mut world, vc, offered(100, message), &mut address));
    }
    look(&mut world);
    let states = plain.map(|posted| world.request(posted).state);
    assert_eq!((states, world.wire().reads.clone()), ([RequestState::Done; 2], vec![3]), "the others by one call");
    assert!(plain.into_iter().chain(others).all(|p| world.bytes(p)[..90] == (0..90).collect::<Vec<u8>>()));
    let answers: Vec<_> = world.wire().sent.iter().map(|f| (f.header.kind(), f.header.message())).collect();
    assert_eq!(answers, [33, 34, 35, 36].map(|message| (Some(Kind::Done), message)));
    world.step(complete);
    assert_eq!(others.map(|posted| world.car(posted).flags), [car_flags::TRUNCATED, 0]);
    let moved = world.all().progress.moved.transfer;
    assert_eq!((world.all().progress.active, moved), (0, 2 * 100 + 90 + 100));
}

#[test]
fn what_is_mapped_goes_behind_what_is_more_urgent() {
    let (mut world, vc) = mapped();
    let posted = [100, 100].map(|length| world.receive(Some(1), Some(5), &[length]));
    let mut address = 4096u64.to_ne_bytes();
    for (message, priority) in [(33, 0), (34, 3)] {
        assert!(offer(&mut world, vc, offered(100, message).with_priority(priority), &mut address));
    }
    look(&mut world);
    let answers: Vec<_> = world.wire().sent.iter().map(|frame| frame.header.message()).collect();
    assert_eq!((answers, world.wire().read_at_once), (vec![34, 33], 0));
    assert!(posted.iter().all(|&posted| world.bytes(posted) == (0..100).collect::<Vec<u8>>()));
}

#[test]
fn what_is_mapped_is_no_more_than_a_turn_and_then_waits_for_its_own() {
    let (mut world, vc) = mapped();
    let length = READ_BYTES_A_TURN / 2;
    world.wire().memory.push((1 << 20, vec![7; length]));
    let posted = [(); 3].map(|()| world.receive(Some(1), Some(5), &[length]));
    for message in 33..36 {
        assert!(offer(&mut world, vc, offered(length as u64, message), &mut (1u64 << 20).to_ne_bytes()));
    }
    look(&mut world);
    assert_eq!(world.wire().reads, [1], "the third by itself");
    assert!(posted.iter().all(|&posted| world.bytes(posted) == vec![7; length]));
}

#[test]
fn what_is_alone_is_read_by_the_look_that_finds_its_offer_and_several_are_by_one_call() {
    let (mut world, vc) = mapped();
    world.wire().is_mapped = false;
    world.wire().reads_alone = true;
    let posted = [100, 100, 100].map(|length| world.receive(Some(1), Some(5), &[length]));
    let mut address = 4096u64.to_ne_bytes();
    assert!(offer(&mut world, vc, offered(100, 33), &mut address));
    look(&mut world);
    let counted = |world: &TestWorld| {
        let wire = world.wire();
        (wire.read_at_once, wire.reads.clone())
    };
    assert_eq!(counted(&world), (100, vec![]));
    for message in 34..36 {
        assert!(offer(&mut world, vc, offered(100, message), &mut address));
    }
    look(&mut world);
    assert_eq!(counted(&world), (100, vec![2]));
    assert_eq!(posted.map(|posted| world.request(posted).state), [RequestState::Done; 3]);
    assert!(posted.iter().all(|&posted| world.bytes(posted) == (0..100).collect::<Vec<u8>>()));
}

#[test]
fn what_is_mapped_does_not_end_before_what_has_finished_before() {
    let (mut world, vc) = mapped();
    let posted = [4, 100].map(|length| world.receive(Some(1), Some(5), &[length]));
    assert!(offer(&mut world, vc, eager(5, 8), &mut [1; 8]));
    assert!(offer(&mut world, vc, offered(100, 33), &mut 4096u64.to_ne_bytes()));
    look(&mut world);
    assert_eq!(world.finished(), posted.map(|posted| posted.car), "one was cut off, and Complete tells of both");
    assert_eq!((world.bytes(posted[1]), world.wire().sent.len()), ((0..100).collect(), 1));
    world.step(complete);
    assert_eq!(posted.map(|posted| world.request(posted).state), [RequestState::Done; 2]);
}

#[test]
fn what_is_short_does_not_end_before_what_has_finished_before() {
    let (mut world, vc) = world();
    let posted = [4, 100].map(|length| world.receive(Some(1), Some(5), &[length]));
    for length in [8, 100] {
        assert!(offer(&mut world, vc, eager(5, length), &mut [1; 100][..length]));
    }
    assert_eq!(world.finished(), posted.map(|posted| posted.car), "one was cut off, and Complete tells of both");
    world.step(complete);
    assert_eq!(posted.map(|posted| world.request(posted).state), [RequestState::Done; 2]);
}

#[test]
fn what_is_mapped_is_told_when_there_is_room() {
    let (mut world, vc) = mapped();
    let posted = [100, 100].map(|length| world.receive(Some(1), Some(5), &[length]));
    let mut address = 4096u64.to_ne_bytes();
    assert!(offer(&mut world, vc, offered(100, 33), &mut address));
    world.wire().room = Some(0);
    look(&mut world);
    assert!(offer(&mut world, vc, offered(100, 34), &mut address));
    world.wire().room = None;
    look(&mut world);
    assert_eq!(posted.map(|posted| world.bytes(posted)), [(); 2].map(|()| (0..100).collect::<Vec<u8>>()));
    assert!(world.wire().sent.is_empty() && posted.iter().all(|&p| world.request(p).state == RequestState::Active));
    world.step(crate::tick::post::post);
    let answers: Vec<_> = world.wire().sent.iter().map(|f| (f.header.kind(), f.header.message())).collect();
    assert_eq!(answers, [33, 34].map(|message| (Some(Kind::Done), message)), "in order");
    world.step(complete);
    assert!(posted.iter().all(|&posted| world.request(posted).state == RequestState::Done));
}

#[test]
fn what_is_said_to_be_mapped_and_is_not_comes_in_pieces() {
    let (mut world, vc) = mapped();
    let posted = world.receive(Some(1), Some(5), &[100]);
    assert!(offer(&mut world, vc, offered(100, 33), &mut 4097u64.to_ne_bytes()));
    look(&mut world);
    let answer = world.wire().sent[0].header;
    assert_eq!((answer.kind(), answer.message(), answer.length), (Some(Kind::Cts), 33, 100));
    assert_eq!((world.request(posted).state, world.car(posted).done), (RequestState::Active, 0));
}

#[test]
fn the_end_of_a_message_that_was_read_ends_its_send_and_no_other() {
    let (mut world, vc) = world();
    let posted = world.send(1, 5, &[&[7; 9000]]);
    world.step(crate::tick::post::post);
    let done = |row| Header::new(Kind::Done, 0, 0, 0, row, 0);
    assert!(!offer(&mut world, vc + 1, done(posted.car), &mut []), "it was offered to somebody else");
    assert!(offer(&mut world, vc, done(posted.car), &mut []));
    assert_eq!(ended(&mut world, posted), (RequestState::Done, 9000, car_flags::STARTED));
    assert!(!offer(&mut world, vc, done(posted.car), &mut []), "it is over");
}

#[test]
fn what_is_registered_for_a_message_is_let_go_of_by_complete() {
    let (mut world, vc) = world();
    world.all().endpoints[0].read_min = 9000;
    let [held, other] = [1u8, 2].map(|byte| world.send(1, 5, &[&[byte; 9000][..]]));
    world.step(crate::tick::post::post);
    let run = world.car(held).span;
    let progress = world.all().progress;
    let reference = progress.registrations.insert(0, run, Access::SEND, Registration(1));
    progress.registrations.hold(held.car, reference, false);
    progress.registered = progress.registrations.users();
    let done = |row| Header::new(Kind::Done, 0, 0, 0, row, 0);
    assert!(offer(&mut world, vc, done(other.car), &mut []));
    assert_eq!(world.request(other).state, RequestState::Done, "nothing of it is registered");
    assert!(offer(&mut world, vc, done(held.car), &mut []));
    assert_eq!((world.request(held).state, world.finished()), (RequestState::Active, vec![held.car]));
    world.step(complete);
    let progress = world.all().progress;
    assert_eq!((progress.registered, progress.registrations.users()), (0, 0));
    assert_eq!(world.request(held).state, RequestState::Done);
}

#[test]
fn the_transport_is_told_what_its_peer_reads_no_more() {
    let (mut world, vc) = world();
    world.all().endpoints[0].read_min = 9000;
    let [whole, parts] = [&[&[7; 9000][..]][..], &[&[7; 5000], &[8; 5000]]].map(|runs| world.send(1, 5, runs));
    world.step(crate::tick::post::post);
    let run = world.car(whole).span;
    assert_eq!(world.wire().exposed, [(1, run.start().addr(), 9000)], "what has no address is not exposed");
    let mut other = |posted: Posted, vc| {
        let header = Header::new(Kind::Done, 0, 0, 0, posted.car, 0);
        // SAFETY: there are no bytes.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        world.store.with(|rows, _| unsafe { rows.other(&header, Span::EMPTY, vc) })
    };
    assert!(matches!(other(whole, vc + 1), Other::Left));
    let Other::Ended(ended) = other(whole, vc) else { panic!("it is over") };
    assert_eq!((ended.start(), ended.len()), (run.start(), run.len()));
    assert!(matches!(other(whole, vc), Other::Left));
    assert!(matches!(other(parts, vc), Other::Taken), "nothing of it was exposed");
}
