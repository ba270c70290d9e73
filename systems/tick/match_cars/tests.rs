use super::*;
use crate::testing::{Posted, TestWorld};
use tickwire_components::limits::{ANY, ARRIVALS, MESSAGE_MAX, TAG_MAX};
use tickwire_components::wire::{Header, KINDS_END, Kind};
use tickwire_components::{Body, CarState, Control, Ended, Large, NIL, Pending, Queue, Row, VcState, context, wire};

fn eager(tag: u32, source: u32, length: u64) -> Header {
    Header::new(Kind::Eager, 0, source, tag, 0, length)
}

/// A world of four procs, of which 1 and 2 are connected: (world, VC of 1, VC of 2).
fn world() -> (TestWorld, Row, Row) {
    let mut world = TestWorld::new(4);
    let one = world.contact(1, VcState::Connected);
    let two = world.contact(2, VcState::Connected);
    (world, one, two)
}

/// The receives that messages of proc 1 with tag 5 are paired with, in order of arrival.
fn matches(world: &mut TestWorld, vc: Row, messages: usize) -> Vec<Row> {
    let rows: Vec<Row> = (0..messages).map(|_| world.arrive(vc, eager(5, 1, 0), &[])).collect();
    world.step(match_cars);
    rows.iter().map(|&row| world.arrival(row).receive()).collect()
}

#[test]
fn a_message_meets_its_posted_receive() {
    let (mut world, one, _) = world();
    let other = world.receive(Some(1), Some(4), &[8]);
    let posted = world.receive(Some(1), Some(5), &[8]);
    let row = world.arrive(one, eager(5, 1, 3), b"abc");
    world.step(match_cars);
    let (arrival, car) = (world.arrival(row), world.car(posted));
    assert_eq!((arrival.state, arrival.receive()), (ArrivalState::Placed, posted.car));
    assert_eq!((car.state, car.source, car.tag), (CarState::Matched, 1, 5));
    let queue = world.vc(one).posted;
    assert_eq!(world.cars_in(queue), [other.car]);
    let progress = world.all().progress;
    assert!(progress.pending.has(Pending::TRANSFER));
    assert_eq!(progress.work.matched.get(), 1);
}

#[test]
fn messages_of_one_sender_and_receives_keep_their_order() {
    let (mut world, one, _) = world();
    let posted: Vec<Row> = (0..3).map(|_| world.receive(Some(1), Some(5), &[8]).car).collect();
    assert_eq!(matches(&mut world, one, 3), posted);
}

#[test]
fn the_older_of_a_known_source_and_a_wildcard_wins_and_ties_are_the_wildcards() {
    for start in [0, u32::MAX - 1, i32::MAX as u32 - 1] {
        let (mut world, one, _) = world();
        world.all().progress.counter = start;
        let sources = [Some(1), None, Some(1), Some(1), None, None, Some(1)];
        let posted: Vec<Row> = sources.iter().map(|&source| world.receive(source, Some(5), &[8]).car).collect();
        assert_eq!(matches(&mut world, one, 7), posted, "from counter {start}");
    }
}

#[test]
fn a_wildcard_in_front_does_not_hold_up_receives_it_does_not_compete_with() {
    let (mut world, one, two) = world();
    let wild = world.receive(None, Some(9), &[8]);
    let any_tag = world.receive(Some(2), None, &[8]);
    let known = world.receive(Some(1), Some(5), &[8]);
    let rows = [
        world.arrive(one, eager(5, 1, 0), &[]),
        world.arrive(two, eager(5, 2, 0), &[]),
        world.arrive(two, eager(9, 2, 0), &[]),
    ];
    world.step(match_cars);
    assert_eq!(rows.map(|row| world.arrival(row).receive()), [known.car, any_tag.car, wild.car]);
    assert_eq!(world.car(wild).vc, two);
}

#[test]
fn what_nobody_waits_for_is_queued_in_order() {
    let (mut world, one, two) = world();
    let rows = [
        world.arrive(one, eager(5, 1, 2), b"ab"),
        world.arrive(two, eager(5, 2, 0), &[]),
        world.arrive(one, Header::new(Kind::Rts, 0, 1, 5, 77, 1 << 30), &[]),
    ];
    world.step(match_cars);
    let states = rows.map(|row| world.arrival(row).state);
    assert_eq!(states, [ArrivalState::Unexpected, ArrivalState::Handled, ArrivalState::Handled]);
    let progress = world.all().progress;
    let found: Vec<_> =
        progress.unexpected.entries.iter().map(|u| (u.vc, u.source, u.tag, u.length, u.message())).collect();
    assert_eq!(found, [(one, 1, 5, 2, NIL), (two, 2, 5, 0, NIL), (one, 1, 5, 1 << 30, 77)]);
    assert!(progress.pending.has(Pending::SUPPLY) && progress.pending.has(Pending::TRANSFER));
    assert_eq!(progress.unexpected.bytes, 2);
}

#[test]
fn a_new_receive_takes_the_oldest_unexpected_message_it_may() {
    let (mut world, one, two) = world();
    world.arrive(two, eager(5, 2, 0), &[]);
    world.arrive(one, eager(5, 1, 0), &[]);
    world.arrive(one, Header::new(Kind::Rts, 0, 1, 5, 77, 100), &[]);
    world.step(match_cars);
    world.all().progress.arrivals = 0;
    let from_one = world.receive(Some(1), Some(5), &[8]);
    let any = world.receive(None, None, &[8]);
    let large = world.receive(Some(1), None, &[200]);
    let none = world.receive(None, Some(5), &[8]);
    assert_eq!(world.car(from_one).state, CarState::New);
    world.step(match_cars);
    let progress = world.all().progress;
    let (copies, offers, wildcard) = (progress.copies, progress.offers, progress.wildcard);
    assert_eq!(world.cars_in(copies), [from_one.car, any.car]);
    assert_eq!(world.cars_in(offers), [large.car]);
    assert_eq!(world.cars_in(wildcard), [none.car]);
    assert_eq!((world.car(any).vc, world.car(any).source), (two, 2));
    assert_eq!((world.all().large[large.car as usize].peer, world.all().large[large.car as usize].length), (77, 100));
    assert_eq!(world.car(none).state, CarState::Posted);
}

#[test]
fn an_offer_that_meets_a_receive_waits_for_a_buffer() {
    let (mut world, one, _) = world();
    let posted = world.receive(None, Some(5), &[64]);
    let row = world.arrive(one, Header::new(Kind::Rts, 0, 1, 5, 77, 50), &[]);
    world.step(match_cars);
    assert_eq!(world.arrival(row).state, ArrivalState::Handled);
    let (car, offers) = (world.car(posted), world.all().progress.offers);
    assert_eq!((car.state, world.all().large[posted.car as usize].peer, car.vc), (CarState::Matched, 77, one));
    assert_eq!(world.cars_in(offers), [posted.car]);
    assert!(world.all().progress.pending.has(Pending::SUPPLY));
}

/// A send to proc 1 that was offered, and a receive from it whose pieces are arriving.
fn rendezvous(world: &mut TestWorld) -> (Posted, Posted) {
    let (send, receive) = (world.send(1, 5, &[&[7; 100]]), world.receive(Some(1), Some(5), &[100]));
    let all = world.all();
    let vc = &mut all.vcs[1];
    (vc.sends, vc.posted) = (Queue::EMPTY, Queue::EMPTY);
    all.cars[send.car as usize].state = CarState::Offered;
    all.cars[receive.car as usize].state = CarState::Receiving;
    all.large[receive.car as usize] = Large { wanted: 60, ..Large::of(100) };
    (send, receive)
}

#[test]
fn a_clear_to_send_starts_the_pieces() {
    let (mut world, one, _) = world();
    let (send, _) = rendezvous(&mut world);
    world.arrive(one, Header::new(Kind::Cts, 0, 0, 9, send.car, 60), &[]);
    world.step(match_cars);
    let (car, data) = (world.car(send), world.vc(one).data);
    assert_eq!(
        (car.state, world.all().large[send.car as usize].peer, world.all().large[send.car as usize].wanted),
        (CarState::Sending, 9, 60)
    );
    assert_eq!(world.cars_in(data), [send.car]);
    assert!(world.vc(one).listed && world.take_ended().is_empty());
}

#[test]
fn a_receiver_that_wants_nothing_completes_the_send() {
    let (mut world, one, _) = world();
    let (send, _) = rendezvous(&mut world);
    world.arrive(one, Header::new(Kind::Cts, 0, 0, 9, send.car, 0), &[]);
    world.step(match_cars);
    assert_eq!((world.finished(), world.car(send).done), (vec![send.car], 100));
}

#[test]
fn a_piece_finds_its_receive() {
    let (mut world, one, _) = world();
    let (_, receive) = rendezvous(&mut world);
    let row = world.arrive(one, Header::new(Kind::Piece, 0, 0, 0, receive.car, 4), b"abcd");
    world.step(match_cars);
    assert_eq!((world.arrival(row).state, world.arrival(row).receive()), (ArrivalState::Placed, receive.car));
}

#[test]
fn frames_that_cannot_be_end_their_vc_and_nothing_else() {
    use Kind::{Cts, Denial, Done, Eager, Inquiry, Piece, Rts, Sync};
    let collective = context::COLLECTIVE;
    let (one, two) = (1, 2);
    let (send, receive) = (0, 1);
    let flagged = |kind, flags| Header::new(kind, 0, 1, 5, 3, 0).with_flags(flags);
    let hostile: [(&str, Row, Header); 34] = [
        ("unknown context", one, Header::new(Eager, 2, 1, 5, 0, 0)),
        ("unknown context", one, Header::new(Rts, u32::MAX, 1, 5, 3, 0)),
        ("source is not", one, Header::new(Eager, 0, 2, 5, 0, 0)),
        ("source is not", one, Header::new(Eager, 0, u32::MAX, 5, 0, 0)),
        ("source is not", one, Header::new(Eager, 1, 0, 5, 0, 0)),
        ("impossible tag or length", one, Header::new(Eager, 0, 1, TAG_MAX + 1, 0, 0)),
        ("impossible tag or length", one, Header::new(Eager, 0, 1, ANY, 0, 0)),
        ("impossible tag or length", one, Header::new(Rts, 0, 1, 5, 3, MESSAGE_MAX + 1)),
        ("without a message id", one, Header::new(Rts, 0, 1, 5, NIL, 10)),
        ("belongs to no proc", NIL, Header::new(Eager, 0, 1, 5, 0, 0)),
        ("expects none", one, Header::new(Piece, 0, 0, 0, NIL, 1)),
        ("expects none", one, Header::new(Piece, 0, 0, 0, send, 1)),
        ("expects none", two, Header::new(Piece, 0, 0, 0, receive, 1)),
        ("longer than what is missing", one, Header::new(Piece, 0, 0, 0, receive, 61)),
        ("length that its kind cannot have", one, Header::new(Piece, 0, 0, 0, receive, 0)),
        ("was not offered", one, Header::new(Cts, 0, 0, 9, NIL, 1)),
        ("was not offered", two, Header::new(Cts, 0, 0, 9, send, 1)),
        ("for more than was offered", one, Header::new(Cts, 0, 0, 9, send, 101)),
        ("unknown kind", one, Header { lead: wire::TRANSPORTS_OWN.into(), ..Header::new(Eager, 0, 0, 0, send, 1) }),
        ("unknown kind", one, Header { lead: KINDS_END.into(), ..Header::new(Kind::Cts, 0, 0, 0, send, 1) }),
        ("unknown kind", one, Header { lead: 255, ..Header::new(Eager, 0, 1, 5, 0, 0) }),
        ("about no collective operation", one, Header::new(Inquiry, 0, 1, 5, NIL, 0)),
        ("source is not the sender's rank", one, Header::new(Inquiry, collective, 2, 5, NIL, 0)),
        ("source is not the sender's rank", one, Header::new(Denial, collective, 2, 5, send, 0)),
        ("unknown context", one, Header::new(Inquiry, context::word(77, 0) | collective, 1, 5, NIL, 0)),
        ("flags that its kind cannot have", one, flagged(Eager, wire::READABLE)),
        ("flags that its kind cannot have", one, flagged(Eager, wire::READY)),
        ("flags that its kind cannot have", one, flagged(Rts, wire::READABLE | wire::DIRECT)),
        ("flags that its kind cannot have", one, flagged(Cts, wire::READABLE)),
        ("a priority, which its kind cannot have", one, flagged(Eager, 0).with_priority(1)),
        ("a type, which its kind cannot have or nobody checks here", one, flagged(Rts, 0).with_type(1)),
        ("one engine checks the types", one, Header::new(Kind::Type, 0, 0, 0, 0, 0)),
        ("length that its kind cannot have", one, Header::new(Done, 0, 0, 0, send, 1)),
        ("past the matching of its transport", one, Header::new(Sync, 0, 1, 5, 3, 0)),
    ];
    let unknown = Header { lead: 0xFF, ..Header::default() };
    for (words, vc, header) in hostile.into_iter().chain([("unknown kind", one, unknown)]) {
        let (mut world, ..) = world();
        let rows = rendezvous(&mut world);
        assert_eq!((rows.0.car, rows.1.car), (send, receive), "the rows that the headers name");
        world.receive(None, None, &[8]);
        let before = world.all().cars.to_vec();
        let row = world.arrive(vc, header, &vec![0; header.payload() as usize]);
        world.step(match_cars);
        let ended = world.take_ended();
        assert!(
            matches!(&ended[..], [(row, Ended::Corrupt(why))] if *row == vc && why.contains(words)),
            "{words}: {ended:?}"
        );
        assert_eq!(world.arrival(row).state, ArrivalState::Handled, "{words}");
        assert!(world.all().progress.pending.has(Pending::WORLD), "{words}");
        assert_eq!(format!("{:?}", world.all().cars), format!("{before:?}"), "{words}: no CAR has changed");
        assert_eq!(world.all().progress.unexpected.count, 0, "{words}");
    }
}

#[test]
fn a_piece_longer_than_what_is_left_of_its_message_ends_the_vc() {
    for (length, is_wrong) in [(20, false), (21, true)] {
        let (mut world, one, _) = world();
        let (_, receive) = rendezvous(&mut world);
        // Of 60 bytes.
        world.all().cars[receive.car as usize].done = 40;
        world.arrive(one, Header::new(Kind::Piece, 0, 0, 0, receive.car, length), &vec![7; length as usize]);
        world.step(match_cars);
        assert_eq!(world.take_ended().len(), usize::from(is_wrong), "{length}");
    }
}

#[test]
fn a_payload_of_another_length_than_it_says_ends_the_vc() {
    for (length, payload) in [(3, 2), (3, 4), (0, 1)] {
        let (mut world, one, _) = world();
        let posted = world.receive(Some(1), Some(5), &[8]);
        world.arrive(one, eager(5, 1, length), &vec![7; payload]);
        world.step(match_cars);
        assert!(matches!(&world.take_ended()[..], [(row, Ended::Corrupt(_))] if *row == one), "{length} {payload}");
        assert_eq!(world.car(posted).state, CarState::Posted);
    }
}

#[test]
fn a_goodbye_ends_the_vc() {
    let (mut world, one, _) = world();
    world.arrive(one, Header::new(Kind::Bye, 0, 0, 0, 0, 0), &[]);
    world.step(match_cars);
    assert_eq!(world.take_ended(), [(one, Ended::Finalized)]);
    world.all().progress.arrivals = 0;
    world.arrive(one, Header::new(Kind::Bye, 0, 0, wire::UNFINISHED, 0, 0), &[]);
    world.step(match_cars);
    assert_eq!(world.take_ended(), [(one, Ended::Unfinished)]);
    world.all().progress.arrivals = 0;
    world.arrive(one, Header::new(Kind::Bye, 0, 0, 2, 0, 0), &[]);
    world.step(match_cars);
    assert!(matches!(world.take_ended()[..], [(row, Ended::Corrupt(_))] if row == one));
}

#[test]
fn a_receive_from_a_failed_proc_ends_unless_its_message_has_arrived() {
    let (mut world, one, _) = world();
    world.arrive(one, eager(5, 1, 0), &[]);
    world.step(match_cars);
    world.all().progress.arrivals = 0;
    world.all().vcs[one as usize].state = VcState::Failed;
    let (has, lacks) = (world.receive(Some(1), Some(5), &[8]), world.receive(Some(1), Some(5), &[8]));
    world.step(match_cars);
    let copies = world.all().progress.copies;
    assert_eq!(world.cars_in(copies), [has.car]);
    assert_eq!((world.finished(), world.car(lacks).flags), (vec![lacks.car], car_flags::PEER_FAILED));
}

#[test]
fn the_head_of_a_message_of_a_failed_proc_begins_nothing() {
    let (mut world, one, _) = world();
    let any = world.receive(None, None, &[100]);
    world.arrive(one, Header::new(Kind::Head, 0, 1, 5, 64, 100), &[7; 64]);
    world.all().vcs[one as usize].state = VcState::Failed;
    world.step(match_cars);
    assert_eq!(world.car(any).state, CarState::Posted, "it would wait for the other parts for ever");
    assert!(world.all().progress.streams.is_empty() && world.all().progress.unexpected.count == 0);
    assert_eq!(world.arrival(0).state, ArrivalState::Handled);
}

#[test]
fn an_offer_of_a_failed_proc_is_nobodys_message_and_takes_no_credit() {
    let (mut world, one, _) = world();
    let any = world.receive(None, None, &[100]);
    world.arrive(one, Header::new(Kind::Rts, 0, 1, 5, 77, 500), &[]);
    world.arrive(one, Header::new(Kind::Rts, 0, 1, 6, 78, 500), &[]);
    // As the end of a VC leaves it.
    let vc = &mut world.all().vcs[one as usize];
    (vc.state, vc.envelopes_left) = (VcState::Failed, 1);
    world.step(match_cars);
    assert_eq!(world.car(any).state, CarState::Posted, "it stays for the messages of others");
    let all = world.all();
    assert_eq!((all.progress.unexpected.count, all.progress.starved_peers), (0, 0));
    assert_eq!([0, 1].map(|row| world.arrival(row).state), [ArrivalState::Handled; 2]);
}

#[test]
fn an_offer_that_can_be_read_says_where_and_its_end_completes_it() {
    let (mut world, one, _) = world();
    let rts = Header::new(Kind::Rts, 0, 1, 5, 77, 500).with_flags(wire::READABLE);
    let posted = world.receive(Some(1), Some(5), &[500]);
    world.arrive(one, rts, &4096u64.to_ne_bytes());
    world.arrive(one, rts, &8192u64.to_ne_bytes());
    world.step(match_cars);
    assert_eq!(world.all().large[posted.car as usize].body, Body::Readable { address: 4096 });
    let late = world.receive(Some(1), Some(5), &[500]);
    world.step(match_cars);
    assert_eq!(world.all().large[late.car as usize].body, Body::Readable { address: 8192 }, "an unexpected one too");

    let send = world.send(1, 5, &[&[1; 500]]);
    let all = world.all();
    all.vcs[one as usize].sends.remove(all.cars, send.car);
    all.cars[send.car as usize].state = CarState::Offered;
    world.arrive(one, Header::new(Kind::Done, 0, 0, 0, send.car, 0), &[]);
    world.step(match_cars);
    assert_eq!((world.finished(), world.car(send).done), (vec![send.car], 500));
    assert!(world.take_ended().is_empty());
    world.all().progress.arrivals = 0;
    world.arrive(one, Header::new(Kind::Done, 0, 0, 0, send.car, 0), &[]);
    world.step(match_cars);
    assert!(matches!(world.take_ended()[..], [(row, Ended::Corrupt(_))] if row == one));
}

#[test]
fn an_answer_to_an_offer_ends_what_its_receiver_may_read() {
    for (kind, flags) in [(Kind::Done, 0), (Kind::Cts, 0), (Kind::Nack, car_flags::READY)] {
        let (mut world, one, two) = world();
        world.all().endpoints[0].read_min = 9000;
        let sends = [1, 2].map(|to| world.send(to, 5, &[&[1; 9000]]));
        for posted in sends {
            world.all().cars[posted.car as usize].flags |= flags;
        }
        world.step(crate::tick::post::post);
        let exposed = sends.map(|posted| world.car(posted).span.start().addr());
        assert_eq!(world.wire().exposed, [(1, exposed[0], 9000), (2, exposed[1], 9000)]);
        // Not his to answer.
        let answer = |posted: Posted| Header::new(kind, 0, 0, 0, posted.car, 0);
        world.arrive(two, answer(sends[0]), &[]);
        world.step(match_cars);
        assert_eq!(world.wire().exposed.len(), 2, "{kind:?}");
        assert!(matches!(world.take_ended()[..], [(row, Ended::Corrupt(_))] if row == two));
        world.all().progress.arrivals = 0;
        world.arrive(one, answer(sends[0]), &[]);
        world.step(match_cars);
        assert_eq!(world.wire().exposed, [(2, exposed[1], 9000)], "{kind:?}");
        assert!(world.take_ended().is_empty());
    }
}

#[test]
fn an_offer_in_ready_mode_without_a_receive_is_refused_or_kept_where_too_many_answers_wait() {
    let (mut world, one, _) = world();
    let offer = |world: &mut TestWorld, message: Row| {
        world.arrive(one, Header::new(Kind::Rts, 0, 1, 5, message, 100).with_flags(wire::READY), &[]);
        world.step(match_cars);
    };
    offer(&mut world, 7);
    let owed = world.all().progress.control.pop().map(|frame| (frame.vc, frame.what));
    assert_eq!(owed, Some((one, Control::Refusal { context: 0, message: 7 })));
    assert_eq!(world.all().progress.unexpected.count, 0);
    let refusals =
        (0..).take_while(|&message| world.all().progress.control.push(one, Control::Refusal { context: 0, message }));
    assert_eq!(refusals.count(), ARRIVALS, "the answers to all arrivals of a pass");
    offer(&mut world, 8);
    assert_eq!((world.all().progress.unexpected.count, world.all().progress.control.has_room(true)), (1, true));
}
