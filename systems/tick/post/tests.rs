mod submissions;

use super::*;
use crate::steps::arguments::Envelope;
use crate::steps::posting::{Plainly, send_copied, send_inline};
use crate::steps::send::offer_now;
use crate::store::Tables;
use crate::testing::TestWorld;
use std::ops::Range;
use tickwire_components::credit::Credit;
use tickwire_components::limits::{ANY, CREDIT_INITIAL, Limits};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    CarState, Control, Large, Queue, Rank, RequestState, Source, Span, Tag, TagFilter, Way, wire,
};
use tickwire_transports::Mapped;

fn world() -> (TestWorld, Row) {
    let mut world = TestWorld::new(3);
    let vc = world.contact(1, VcState::Connected);
    (world, vc)
}

fn send(to: u32, tag: u32) -> Operation {
    Operation::Send { to: Rank(to), tag: Tag(tag) }
}

fn kinds(world: &TestWorld) -> Vec<Option<Kind>> {
    world.wire().sent.iter().map(|frame| frame.header.kind()).collect()
}

#[test]
fn short_messages_go_whole_and_are_done() {
    let (mut world, vc) = world();
    let posted = world.send(1, 5, &[b"abc", b"", b"defg"]);
    world.step(post);
    let sent = world.wire().sent.clone();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].header, &sent[0].payload[..]), (Header::new(Kind::Eager, 0, 0, 5, 0, 7), &b"abcdefg"[..]));
    assert_eq!((world.finished(), world.car(posted).done), (vec![posted.car], 7));
    assert!(world.vc(vc).sends.is_empty() && world.all().progress.pending.has(Pending::COMPLETE));
}

#[test]
fn what_an_endpoint_does_not_take_whole_goes_in_parts_if_it_is_in_one_run() {
    let (mut world, _) = world();
    world.all().endpoints[0].part_bytes = 100;
    let bytes: Vec<u8> = (0..250).collect();
    world.send(1, 5, &[&bytes[..60], &bytes[60..101]]);
    world.send(1, 6, &[&bytes[..60], &bytes[60..100]]);
    world.send(1, 7, &[&bytes[..101]]);
    world.step(post);
    let (asked, whole) = (Some(Kind::Rts), Some(Kind::Eager));
    assert_eq!(kinds(&world), [asked, whole, Some(Kind::Head), Some(Kind::Part)]);
}

/// A world whose connections take frames of 100 bytes for certain.
fn narrow() -> (TestWorld, Row) {
    let (mut world, vc) = world();
    let endpoint = &mut world.all().endpoints[0];
    (endpoint.sure_bytes, endpoint.rows) = (100, None);
    world.wire().fits = Some(100);
    (world, vc)
}

#[test]
fn what_a_connection_does_not_take_whole_goes_in_parts_or_is_asked_for() {
    let (mut world, vc) = narrow();
    let bytes: Vec<u8> = (0..250).collect();
    world.send(1, 5, &[&bytes]);
    world.send(1, 6, &[&bytes[..100]]);
    world.send(1, 7, &[&bytes[..60], &bytes[60..101]]);
    world.send(1, 8, &[&bytes[..60], &bytes[60..100]]);
    world.step(post);
    let lengths: Vec<_> = world.wire().sent.iter().map(|f| (f.header.kind(), f.payload.len())).collect();
    let [head, part, eager, offer] = [Kind::Head, Kind::Part, Kind::Eager, Kind::Rts].map(Some);
    assert_eq!(lengths, [(head, 100), (part, 100), (part, 50), (eager, 100), (offer, 0), (eager, 100)]);
    let sent: Vec<u8> = world.wire().sent[..3].iter().flat_map(|frame| frame.payload.clone()).collect();
    assert_eq!(sent, bytes);
    assert!(world.vc(vc).sends.is_empty());
}

#[test]
fn a_connection_that_takes_more_by_then_is_used_as_it_is() {
    let bytes: Vec<u8> = (0..250).collect();
    for (gone, rest) in [(0, &[(Kind::Eager, 250)][..]), (1, &[(Kind::Part, 150)][..])] {
        let (mut world, vc) = narrow();
        world.wire().room = Some(gone);
        world.send(1, 5, &[&bytes]);
        world.step(post);
        assert_eq!(world.wire().sent.len(), gone, "parts, by what there was room for");
        (world.wire().fits, world.wire().room) = (None, None);
        world.step(post);
        let sent: Vec<_> = world.wire().sent[gone..].iter().map(|f| (f.header.kind(), f.payload.len())).collect();
        assert_eq!(sent, rest.iter().map(|&(kind, bytes)| (Some(kind), bytes)).collect::<Vec<_>>());
        let all: Vec<u8> = world.wire().sent.iter().flat_map(|frame| frame.payload.clone()).collect();
        assert!(all == bytes && world.vc(vc).sends.is_empty() && world.finished().len() == 1);
    }
}

#[test]
fn long_messages_are_offered() {
    let (mut world, vc) = world();
    let posted = world.send(1, 5, &[&[1; 9000]]);
    world.step(post);
    // In one run, so that a transport may move it.
    let header = Header::new(Kind::Rts, 0, 0, 5, posted.car, 9000).with_flags(wire::DIRECT);
    let sent = world.wire().sent.clone();
    assert_eq!((sent.len(), sent[0].header, sent[0].payload.len()), (1, header, 0));
    assert_eq!(world.car(posted).state, CarState::Offered);
    assert!(world.finished().is_empty() && world.vc(vc).sends.is_empty());
}

/// Receives that SupplyBuffers has answered.
fn replies(world: &mut TestWorld, vc: Row, wanted: u64) -> Row {
    let posted = world.receive(Some(1), Some(5), &[wanted as usize]);
    let all = world.all();
    all.vcs[vc as usize].posted.remove(all.cars, posted.car);
    let car = &mut all.cars[posted.car as usize];
    car.state = CarState::Queued;
    all.large[posted.car as usize] = Large { wanted, peer: 77, ..Large::of(9000) };
    all.progress.replies.push(all.cars, posted.car);
    crate::procs::priorities::list_sender(all.progress, all.vcs, vc);
    posted.car
}

#[test]
fn replies_name_both_cars_and_a_receiver_that_wants_nothing_is_done() {
    let (mut world, vc) = world();
    let (some, none) = (replies(&mut world, vc, 600), replies(&mut world, vc, 0));
    world.step(post);
    let headers: Vec<Header> = world.wire().sent.iter().map(|frame| frame.header).collect();
    let cts = |row, wanted| Header::new(Kind::Cts, 0, 0, row, 77, wanted);
    assert_eq!(headers, [cts(some, 600), cts(none, 0)]);
    assert_eq!(world.all().cars[some as usize].state, CarState::Receiving);
    assert_eq!((world.finished(), world.all().cars[none as usize].done), (vec![none], 9000));
}

#[test]
fn a_blocked_transport_keeps_the_queue_in_order() {
    let (mut world, vc) = world();
    let posted: Vec<Row> = (0..4).map(|tag| world.send(1, tag, &[b"x"]).car).collect();
    world.wire().room = Some(1);
    for _ in 0..3 {
        world.step(post);
    }
    let sends = world.vc(vc).sends;
    assert_eq!((world.cars_in(sends), world.wire().sent.len()), (posted[1..].to_vec(), 1));
    world.wire().room = None;
    world.step(post);
    let sent: Vec<(u32, u32)> = world.wire().sent.iter().map(|f| (f.header.tag(), f.refusals)).collect();
    assert_eq!(sent, [(0, 0), (1, 3), (2, 0), (3, 0)], "tags and refusals, as the CARs' row states tell");
    assert_eq!(world.finished(), posted);
}

#[test]
fn a_failed_link_ends_its_vc_and_others_go_on() {
    let (mut world, one) = world();
    let two = world.contact(2, VcState::Connected);
    world.send(1, 1, &[b"x"]);
    let goes = world.send(2, 2, &[b"y"]);
    world.wire().broken.push(1);
    world.step(post);
    assert!(matches!(world.take_ended()[..], [(row, Ended::Link(_))] if row == one));
    assert_eq!((world.finished(), world.vc(two).sends), (vec![goes.car], Queue::EMPTY));
}

#[test]
fn nothing_goes_before_the_connection_is_there() {
    let (mut world, vc) = world();
    world.all().vcs[vc as usize].state = VcState::Connecting;
    let posted = world.send(1, 1, &[b"x"]);
    world.step(post);
    assert!(world.wire().sent.is_empty());
    assert_eq!(world.car(posted).state, CarState::Queued);
}

/// A world that knows that peers have mapped 9000 bytes, but for the first 1000 and the last 100 of them.
fn mapped(bytes: &[u8; 9000]) -> TestWorld {
    let (mut world, _) = world();
    let endpoint = &mut world.all().endpoints[0];
    endpoint.mapped = Mapped { start: bytes.as_ptr().addr() + 1000, bytes: 7900 };
    (endpoint.mapped_min, endpoint.inline_end_mapped) = (500, 500);
    (endpoint.rows, endpoint.by_post, endpoint.plain) = (None, false, true);
    world
}

#[expect(unsafe_code, reason = "a span over a test's bytes")]
fn run(bytes: &[u8]) -> Span {
    // SAFETY: the bytes outlive the world, and are only read.
    unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) }
}

const SHORT: Range<usize> = 1000..1499;
const INSIDE: Range<usize> = 1000..1500;
const BEFORE: Range<usize> = 999..1999;

#[test]
fn what_is_mapped_is_offered_to_be_read_however_short() {
    let bytes = [3; 9000];
    let mut world = mapped(&bytes);
    let eager = (Some(Kind::Eager), 0);
    let read = (Some(Kind::Rts), wire::READABLE);
    for place in [SHORT, INSIDE, BEFORE, 8400..8900, 8401..8901] {
        let posted = world.send(1, 5, &[&bytes[place.clone()]]);
        world.all().cars[posted.car as usize].span = run(&bytes[place]);
    }
    world.send(1, 5, &[&bytes[..500], &bytes[..500]]);
    world.step(post);
    let kinds = |world: &TestWorld| -> Vec<_> {
        world.wire().sent.iter().map(|frame| (frame.header.kind(), frame.header.flags())).collect()
    };
    assert_eq!(kinds(&world), [eager, read, eager, read, eager, eager]);
    let addresses = [INSIDE.start, 8400].map(|start| (bytes.as_ptr() as u64 + start as u64).to_ne_bytes());
    assert_eq!([1, 3].map(|frame: usize| world.wire().sent[frame].payload.clone()), addresses.map(Vec::from));
    // Without a credit for the question, it goes as any other of its length.
    let vc = world.all().vcs.iter().position(|vc| vc.proc == 1).unwrap();
    world.all().vcs[vc].envelopes = 0;
    let posted = world.send(1, 5, &[&bytes[INSIDE]]);
    world.all().cars[posted.car as usize].span = run(&bytes[INSIDE]);
    world.step(post);
    assert_eq!(kinds(&world)[6..], [eager]);
}

/// Offers at once; the row.
fn offer_at_once(world: &mut TestWorld, place: &[u8]) -> Row {
    let envelope = Envelope { context: 0, tag: 5, source: 0, proc: 1, length: place.len() as u64 };
    // SAFETY: the place outlives the world's run.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe {
        offer_now(world.store.all(), &envelope, 0, run(place))
    }
}

#[test]
fn what_is_read_is_offered_at_once_where_nothing_is_before_it() {
    let bytes = [3; 9000];
    let mut world = mapped(&bytes);
    assert_eq!([SHORT, BEFORE].map(|place| offer_at_once(&mut world, &bytes[place])), [NIL; 2]);
    let row = offer_at_once(&mut world, &bytes[INSIDE]);
    let sent = world.wire().sent[0].clone();
    let header = Header::new(Kind::Rts, 0, 0, 5, row, 500).with_flags(wire::READABLE);
    assert_eq!((sent.header, &sent.payload[..]), (header, &(bytes.as_ptr() as u64 + 1000).to_ne_bytes()[..]));
    let (car, large) = (world.all().cars[row as usize], world.all().large[row as usize]);
    assert_eq!((car.state, car.request, large.length, large.way), (CarState::Offered, row, 500, Way::Offered));
    assert_eq!(world.all().progress.active, 1);
    assert_eq!(world.wire().exposed, [(1, bytes.as_ptr().addr() + 1000, 500)]);
    // Longer than an eager message, and so read wherever it is.
    (world.all().endpoints[0].read_min, world.all().endpoints[0].eager_max) = (900, 900);
    let row = offer_at_once(&mut world, &bytes[BEFORE]);
    assert_eq!(world.wire().sent[1].header.message(), row);
    let vc = world.all().vcs.iter().position(|vc| vc.proc == 1).unwrap();
    assert_eq!(world.all().vcs[vc].envelopes, CREDIT_INITIAL.envelopes as u16 - 2);
    // Blocked, it is the first of the queue, behind which nothing goes at once.
    world.wire().room = Some(0);
    let waiting = offer_at_once(&mut world, &bytes[INSIDE]);
    assert_eq!(world.all().vcs[vc].sends.head, waiting);
    assert_eq!(world.wire().exposed.len(), 2, "what was not offered is not exposed");
    assert_eq!(offer_at_once(&mut world, &bytes[INSIDE]), NIL);
    world.wire().room = None;
    world.step(post);
    assert_eq!(world.wire().sent[2].header.message(), waiting);
    assert_eq!(world.wire().exposed[2], (1, bytes.as_ptr().addr() + 1000, 500));
    assert_eq!(world.all().cars[waiting as usize].state, CarState::Offered);
    // What needs more than its frame is not for here.
    world.all().endpoints[0].plain = false;
    assert_eq!(offer_at_once(&mut world, &bytes[INSIDE]), NIL);
    world.all().endpoints[0].plain = true;
    world.all().communicators[0].priority = 1;
    assert_eq!(offer_at_once(&mut world, &bytes[INSIDE]), NIL);
    world.all().communicators[0].priority = 0;
    world.all().vcs[vc].envelopes = 0;
    assert_eq!(offer_at_once(&mut world, &bytes[INSIDE]), NIL);
}

#[test]
fn what_is_mapped_is_copied_only_where_it_must_be() {
    let bytes = [3; 9000];
    let mut world = mapped(&bytes);
    let mut send = |place: &[u8], copied: bool| {
        let envelope = Envelope { context: 0, tag: 5, source: 0, proc: 1, length: place.len() as u64 };
        let Tables { progress, procs, vcs, endpoints, .. } = world.store.all();
        let vc = &mut vcs[procs.known[1].row as usize];
        match copied {
            true => send_copied(progress, vc, &mut endpoints[0], &envelope, &place),
            false => send_inline::<Plainly, _>(progress, vc, &mut endpoints[0], &envelope, &place),
        }
    };
    assert_eq!([SHORT, INSIDE, BEFORE].map(|place| send(&bytes[place], false)), [true, false, true]);
    assert_eq!([SHORT, INSIDE, BEFORE].map(|place| send(&bytes[place], true)), [true; 3]);
    assert!(!send(&bytes, true), "longer than an eager message");
    assert_eq!(kinds(&world), [Some(Kind::Eager); 5]);
}

#[test]
fn a_large_message_in_one_run_is_offered_to_be_read() {
    let (mut world, _) = world();
    world.all().endpoints[0].read_min = 10_000;
    let bytes = vec![1; 20_000];
    let posted = world.send(1, 5, &[&bytes]);
    world.send(1, 5, &[&bytes[..9000]]);
    world.send(1, 5, &[&bytes[..9000], &bytes[9000..]]);
    world.all().endpoints[0].eager_max = 8192;
    world.step(post);
    let sent = world.wire().sent.clone();
    let flags: Vec<u8> = sent.iter().map(|frame| frame.header.flags()).collect();
    assert_eq!(flags, [wire::READABLE, wire::DIRECT, 0], "not the short one, nor the one in two runs");
    let address = world.car(posted).span.start().addr();
    assert_eq!(sent[0].payload, (address as u64).to_ne_bytes());
    assert!(sent[1].payload.is_empty());
    assert_eq!(world.wire().exposed, [(1, address, 20_000)], "only what has an address");
}

#[test]
fn control_frames_wait_for_room_in_their_order_and_keep_the_state_of_their_transport() {
    let (mut world, vc) = world();
    let other = world.contact(2, VcState::Connected);
    world.wire().room = Some(1);
    let frames = [
        (vc, Control::Credit(Credit { lines: 3, envelopes: 4 })),
        (other, Control::Refusal { context: 0, message: 7 }),
        (vc, Control::Acknowledgement { message: 8 }),
    ];
    for (vc, what) in frames {
        assert!(world.all().progress.control.push(vc, what));
    }
    world.step(post);
    assert_eq!((kinds(&world), world.all().progress.work.sent.get()), (vec![Some(Kind::Credit)], 1));
    world.step(post);
    world.wire().room = None;
    world.step(post);
    let sent: Vec<_> = world.wire().sent.iter().map(|f| (f.link, f.header.kind(), f.refusals)).collect();
    assert_eq!(sent, [(1, Some(Kind::Credit), 0), (2, Some(Kind::Nack), 2), (1, Some(Kind::Done), 2)]);
    assert!(world.all().progress.control.is_empty());
}

#[test]
fn control_frames_of_a_vc_that_fails_are_forgotten() {
    let (mut world, vc) = world();
    let other = world.contact(2, VcState::Connected);
    world.wire().room = Some(0);
    for to in [vc, other] {
        assert!(world.all().progress.control.push(to, Control::Refusal { context: 0, message: 7 }));
    }
    world.step(post);
    crate::procs::ending::fail(&mut world.all(), vc, "gone".into());
    world.wire().room = None;
    world.step(post);
    let sent: Vec<_> = world.wire().sent.iter().map(|frame| frame.link).collect();
    assert_eq!(sent, [2]);
}
