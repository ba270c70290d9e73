use super::*;
use crate::testing::{Posted, TestWorld, WireState};
use crate::tick::match_cars::match_cars;
use crate::tick::post::post;
use crate::tick::supply_buffers::supply_buffers;
use crate::tick::transfer::transfer;
use std::sync::{Arc, Mutex};
use tickwire_components::wire::{KINDS_END, Kind};
use tickwire_components::{CommState, Ended, RequestState, wire};

type Wire = Arc<Mutex<WireState>>;

/// A world of four procs: 1 is reached over a wire that matches, 2 over one that does not. Also their VCs.
fn world() -> (TestWorld, Wire, Row, Row) {
    let mut world = TestWorld::new(4);
    let wire = Wire::default();
    let endpoint = world.add_matching_wire(wire.clone());
    let [far, near] = [1, 2].map(|proc| world.contact(proc, VcState::Connected));
    world.all().vcs[far as usize].endpoint = endpoint;
    (world, wire, far, near)
}

fn at_provider(wire: &Wire) -> Vec<Row> {
    wire.lock().unwrap().posted_receives.iter().map(|(row, _)| *row).collect()
}

fn recalled(wire: &Wire) -> Vec<Row> {
    std::mem::take(&mut wire.lock().unwrap().recalled)
}

fn eager(source: u32, tag: u32, bytes: &[u8]) -> Header {
    Header::new(Kind::Eager, 0, source, tag, 0, bytes.len() as u64)
}

/// The wire's report of a receive.
fn tell(world: &mut TestWorld, state: ArrivalState, posted: Posted, vc: Row, header: Header, bytes: &[u8]) {
    let row = world.arrive(vc, header, bytes);
    let arrival = &mut world.all().arrivals[row as usize];
    (arrival.to, arrival.state) = (Destination::Receive(posted.car), state);
}

/// A pass without Post and Complete.
fn pass(world: &mut TestWorld) {
    world.step(match_cars);
    world.step(supply_buffers);
    world.step(transfer);
}

#[test]
fn receives_are_given_in_order_as_far_as_there_is_room() {
    let (mut world, wire, _, near) = world();
    wire.lock().unwrap().room_for_receives = Some(2);
    let known = world.receive(Some(1), Some(5), &[8]);
    let any = world.receive(None, None, &[8]);
    let late = world.receive(Some(1), None, &[8]);
    let other = world.receive(Some(2), Some(5), &[8]);
    world.step(post);
    assert_eq!(at_provider(&wire), [known.car, any.car]);
    let wanted = wire.lock().unwrap().posted_receives[0].1;
    assert_eq!(wanted, ReceiveEnvelope { link: 1, context: 0, source: 1, tag: 5 });
    assert_eq!(
        [known, any, late].map(|p| world.car(p).state),
        [CarState::AtProvider, CarState::Posted, CarState::ToProvider]
    );
    assert!(is_at_provider(&world.car(any)) && world.all().progress.provider.count == 2);
    wire.lock().unwrap().room_for_receives = None;
    world.step(post);
    assert_eq!(at_provider(&wire), [known.car, any.car, late.car]);
    // A receive from a proc for which the engine matches is in the engine's own queue. So are those from any source.
    assert_eq!((world.car(other).state, world.vc(near).posted), (CarState::Posted, tickwire_components::Queue::EMPTY));
    assert_eq!(world.all().progress.posted.count, 2);
}

#[test]
fn what_the_transport_has_paired_is_received_and_the_engine_forgets_it() {
    let (mut world, wire, far, _) = world();
    let (any, known) = (world.receive(None, Some(5), &[8]), world.receive(Some(1), None, &[4]));
    world.step(post);
    assert_eq!(at_provider(&wire), [any.car, known.car]);
    tell(&mut world, ArrivalState::Matched, known, far, eager(1, 9, b"longer"), b"longer");
    tell(&mut world, ArrivalState::Matched, any, far, eager(1, 5, b"abc"), b"abc");
    pass(&mut world);
    assert_eq!((world.bytes(known), &world.bytes(any)[..3]), (b"long".to_vec(), &b"abc"[..]));
    assert_eq!(world.car(known).flags, car_flags::TRUNCATED);
    assert_eq!((world.car(any).source, world.car(any).tag, world.car(any).vc), (1, 5, far));
    assert_eq!(world.finished(), [known.car, any.car]);
    let progress = world.all().progress;
    assert_eq!((progress.provider.count, progress.posted.count, progress.indexed()), (0, 0, false));
}

#[test]
fn a_message_of_another_transport_waits_until_its_receive_is_back() {
    let (mut world, wire, _, near) = world();
    let any = world.receive(None, Some(5), &[8]);
    world.step(post);
    world.arrive(near, eager(2, 5, b"first"), b"first");
    world.arrive(near, eager(2, 6, b"behind"), b"behind");
    pass(&mut world);
    assert_eq!(world.all().progress.provider.deferred.len(), 2);
    assert_eq!((world.all().progress.unexpected.count, world.car(any).state), (0, CarState::Recalled));
    // A receive that is posted now waits, whatever it matches.
    let next = world.receive(Some(2), None, &[8]);
    assert_eq!(world.car(next).state, CarState::New);
    world.step(post);
    assert_eq!(recalled(&wire), [any.car]);
    pass(&mut world);
    assert_eq!(world.car(next).state, CarState::New);
    tell(&mut world, ArrivalState::Recalled, any, NIL, Header::default(), &[]);
    pass(&mut world);
    pass(&mut world);
    assert_eq!((&world.bytes(any)[..5], &world.bytes(next)[..6]), (&b"first"[..], &b"behind"[..]));
    assert_eq!(world.finished(), [any.car, next.car]);
    assert!(world.all().progress.provider.deferred.is_empty() && world.all().progress.starved_peers == 0);
}

#[test]
fn what_a_receive_takes_is_kept_though_its_communicator_is_being_freed() {
    let (mut world, _, _, near) = world();
    let other = world.contact(3, VcState::Connected);
    let (any, behind) = (world.receive(None, Some(5), &[8]), world.receive(Some(2), Some(6), &[8]));
    world.step(post);
    world.all().communicators[0].state = CommState::Closing;
    for (tag, bytes) in [(5, b"first"), (6, b"after"), (4, b"never")] {
        world.arrive(near, eager(2, tag, bytes), bytes);
    }
    pass(&mut world);
    assert_eq!(world.all().progress.provider.deferred.len(), 2);
    // This one waits, since messages are deferred.
    let waits = world.receive(Some(3), Some(7), &[8]);
    world.arrive(other, eager(3, 7, b"kept"), b"kept");
    world.arrive(other, eager(3, 8, b"gone"), b"gone");
    pass(&mut world);
    assert_eq!((world.car(waits).state, world.all().progress.unexpected.count), (CarState::New, 1));
    world.step(post);
    tell(&mut world, ArrivalState::Recalled, any, NIL, Header::default(), &[]);
    pass(&mut world);
    pass(&mut world);
    let bytes = [any, behind, waits].map(|receive| world.bytes(receive));
    assert_eq!((&bytes[0][..5], &bytes[1][..5], &bytes[2][..4]), (&b"first"[..], &b"after"[..], &b"kept"[..]));
    assert_eq!((world.finished(), world.all().progress.unexpected.count), (vec![any.car, behind.car, waits.car], 0));
}

#[test]
fn if_the_transport_was_first_the_message_is_matched_anew_and_those_behind_it_after_it() {
    let (mut world, wire, far, near) = world();
    let receives = [(None, None), (Some(2), Some(6)), (None, Some(5))];
    let [any, six, five] = receives.map(|(source, tag)| world.receive(source, tag, &[8]));
    world.step(post);
    for (tag, bytes) in [(5, b"one"), (6, b"two"), (7, b"six")] {
        world.arrive(near, eager(2, tag, bytes), bytes);
    }
    pass(&mut world);
    tell(&mut world, ArrivalState::Matched, any, far, eager(1, 8, b"far"), b"far");
    pass(&mut world);
    pass(&mut world);
    // The first message meets the next receive from any source, which is at the transport too. The other messages still wait.
    assert_eq!((world.finished(), world.car(five).state), (vec![any.car], CarState::Recalled));
    assert_eq!((&world.bytes(any)[..3], world.all().progress.provider.deferred.len()), (&b"far"[..], 3));
    world.step(post);
    assert_eq!(recalled(&wire), [any.car, five.car]);
    tell(&mut world, ArrivalState::Recalled, five, NIL, Header::default(), &[]);
    pass(&mut world);
    pass(&mut world);
    assert_eq!((&world.bytes(five)[..3], &world.bytes(six)[..3]), (&b"one"[..], &b"two"[..]));
    assert_eq!(world.all().progress.unexpected.count, 1, "what nobody has asked for");
    assert!(world.all().progress.provider.deferred.is_empty());
}

#[test]
fn a_synchronous_message_is_acknowledged_once_it_is_paired() {
    let (mut world, wire, far, _) = world();
    let posted = world.receive(Some(1), Some(5), &[8]);
    world.step(post);
    let header = Header::new(Kind::Sync, 0, 1, 5, 33, 3);
    tell(&mut world, ArrivalState::Matched, posted, far, header, b"abc");
    pass(&mut world);
    world.step(post);
    let sent: Vec<_> = wire.lock().unwrap().sent.iter().map(|f| (f.header.kind(), f.header.message())).collect();
    assert_eq!((sent, world.finished()), (vec![(Some(Kind::Done), 33)], vec![posted.car]));
}

#[test]
fn a_message_that_cannot_be_ends_its_vc_and_the_receive_is_given_again() {
    let (mut world, wire, far, _) = world();
    let posted = world.receive(None, Some(5), &[8]);
    world.step(post);
    let frames = [Header::new(Kind::Piece, 0, 1, 5, 0, 0), Header { lead: KINDS_END.into(), ..eager(1, 5, b"") }];
    let flagged = [eager(1, 5, b"").with_flags(wire::READABLE), eager(1, 5, b"x"), eager(1, 5, b"").with_type(1)];
    let envelopes = [eager(2, 5, b""), eager(1, 6, b"")];
    for wrong in envelopes.into_iter().chain(frames).chain(flagged) {
        tell(&mut world, ArrivalState::Matched, posted, far, wrong, b"");
        world.step(match_cars);
        world.all().progress.arrivals = 0;
        assert!(matches!(world.take_ended()[..], [(row, Ended::Corrupt(_))] if row == far));
        world.step(post);
        assert!(is_at_provider(&world.car(posted)) && world.request(posted).state == RequestState::Active);
    }
    assert_eq!(at_provider(&wire), [posted.car; 8]);
}

#[test]
fn a_message_that_was_claimed_and_cannot_be_ends_its_vc() {
    for wrong in [Header { lead: KINDS_END.into(), ..eager(1, 5, b"") }, eager(1, 5, b"").with_flags(wire::READY)] {
        let (mut world, _, far, _) = world();
        let row = world.arrive(far, wrong, &[]);
        world.all().arrivals[row as usize].state = ArrivalState::Claimed;
        world.step(match_cars);
        assert!(matches!(world.take_ended()[..], [(row, Ended::Corrupt(_))] if row == far));
        assert_eq!(world.all().progress.unexpected.count, 0);
    }
}

#[test]
fn receives_of_a_proc_that_fails_are_asked_back_and_have_what_was_there() {
    let (mut world, wire, far, _) = world();
    let [there, gone, any] = [Some(1), Some(1), None].map(|source| world.receive(source, None, &[8]));
    world.step(post);
    wire.lock().unwrap().room_for_receives = Some(0);
    let waiting = world.receive(Some(1), None, &[8]);
    world.step(post);
    crate::procs::ending::fail(&mut world.all(), far, "gone".into());
    assert_eq!((world.finished(), world.car(any).state), (vec![waiting.car], CarState::Posted));
    world.step(post);
    assert_eq!(recalled(&wire).len(), 2);
    tell(&mut world, ArrivalState::Matched, there, far, eager(1, 5, b"words"), b"words");
    tell(&mut world, ArrivalState::Recalled, gone, NIL, Header::default(), &[]);
    pass(&mut world);
    assert_eq!([there, gone].map(|p| world.car(p).flags), [0, car_flags::PEER_FAILED]);
    assert_eq!(&world.bytes(there)[..5], b"words");
    // A receive that is posted later looks at the messages that are here, and comes back.
    wire.lock().unwrap().room_for_receives = None;
    let late = world.receive(Some(1), None, &[8]);
    world.step(post);
    assert_eq!((recalled(&wire), world.car(late).state), (vec![late.car], CarState::Recalled));
}

/// The wire's report of a message that was pulled.
fn give_pulled(world: &mut TestWorld, vc: Row, header: Header, bytes: &[u8]) {
    world.all().progress.provider.pull = Pull::Awaited;
    let row = world.arrive(vc, header, bytes);
    world.all().arrivals[row as usize].state = ArrivalState::Claimed;
    pass(world);
    assert_eq!(world.all().progress.provider.pull, Pull::No);
}

#[test]
fn no_receive_is_given_while_a_message_is_pulled_which_is_the_oldest_ones_that_waits() {
    let (mut world, wire, far, _) = world();
    world.all().progress.provider.pull = Pull::Awaited;
    let receives = [(Some(1), Some(6)), (None, Some(5)), (Some(1), None)];
    let [other, any, known] = receives.map(|(source, tag)| world.receive(source, tag, &[8]));
    world.step(post);
    assert!(at_provider(&wire).is_empty());
    give_pulled(&mut world, far, eager(1, 5, b"first"), b"first");
    assert_eq!((&world.bytes(any)[..5], world.finished()), (&b"first"[..], vec![any.car]));
    give_pulled(&mut world, far, eager(1, 5, b"next"), b"next");
    assert_eq!((&world.bytes(known)[..4], world.finished()), (&b"next"[..], vec![any.car, known.car]));
    // A message that no receive matches is unexpected.
    give_pulled(&mut world, far, eager(1, 7, b"last"), b"last");
    assert_eq!(world.all().progress.unexpected.count, 1);
    world.step(post);
    assert_eq!(at_provider(&wire), [other.car]);
    assert_eq!(world.all().progress.provider.peer(far).receives, 1);
    assert_eq!(world.all().progress.posted.count, 0);
}

#[test]
fn a_synchronous_message_that_is_pulled_is_acknowledged_by_nothing_but_its_receive() {
    let (mut world, wire, far, _) = world();
    let owed = world.vc(far).lines_owed;
    let header = Header::new(Kind::Sync, 0, 1, 5, 33, 3);
    give_pulled(&mut world, far, header, b"abc");
    world.step(post);
    let told = |wire: &Wire| wire.lock().unwrap().sent.iter().map(|f| f.header.kind()).collect::<Vec<_>>();
    assert_eq!((told(&wire), world.all().progress.unexpected.count), (vec![], 1));
    assert_eq!(world.vc(far).lines_owed, owed + cost(3), "its bytes are not kept");
    let posted = world.receive(Some(1), Some(5), &[8]);
    pass(&mut world);
    world.step(post);
    assert_eq!(told(&wire), [Some(Kind::Cts)]);
    assert_eq!((wire.lock().unwrap().sent[0].header.message(), world.car(posted).vc), (33, far));
}
