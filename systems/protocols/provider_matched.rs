//! Provider matching: receives at a transport that matches by itself, and messages of other transports that meet such a receive. Used
//! by posting, Post and Match. One endpoint of an engine matches at most; the others leave it to the engine.
//!
//! A receive from one proc that is reached by this endpoint is at the transport only. One from any source is in the index of
//! posted receives as well, where messages of other transports find it. Such a message is *held*: it keeps its place
//! among those of its sender, in a temporary, while the receive is asked back. If it comes back it is the message's; if the
//! transport had paired it first, the message is matched anew with what is posted, and may be held again. What the same
//! sender has sent after it waits behind it, and receives that are posted meanwhile wait until nothing is held, so that
//! none takes a message that an older one might.
//!
//! Only the application's messages are matched by the transport: what the engine says on behalf of a communicator
//! is in frames, and comes to receives in the engine's own queues.
//!
//! What waits at the transport without a receive can be moved into the engine's own queue of unexpected messages, oldest first
//! ([`Pull`]): a dump shows it then, and a probe knows its length. Receives look there before they go to the transport, so
//! the order stays.

mod offers;

use crate::procs::communicators::known;
use crate::procs::endpoint::Endpoint;
use crate::protocols::NotTaken;
use crate::protocols::credit::list_granter;
use crate::protocols::provider_matched::offers::hear;
use crate::protocols::rendezvous::{body_of, offer};
use crate::rows::Rows;
use crate::steps::check::{check_envelope, refuse};
use crate::steps::finish::abort;
use crate::steps::matching::{key, leave_index, make_index, meet};
use crate::steps::place::receive_whole;
use crate::steps::posting::list_sender;
use crate::steps::unexpected::{find_place, receive_unexpected};
pub(crate) use offers::{gave, tell};
use tickwire_components::credit::cost;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Arrival, ArrivalState, Car, CarKind, CarState, Communicator, HeldMessage, Large, NIL, Pending, Progress, Pull, Row,
    Span, Vc, VcState, car_flags, context,
};
use tickwire_transports::{Peeked, ReceiveEnvelope, Sent};

/// What is told of a peer that makes more offers than it may.
const OVERDRAWN: &str = "more offers than it was granted";

/// Whether the messages of a VC in a context are matched by its transport.
#[inline]
pub fn is_matched(progress: &Progress, vc: &Vc, context: u32) -> bool {
    u32::from(vc.endpoint) == progress.provider.endpoint && vc.link != NIL && context::plane(context) == context::USER
}

/// Posts a receive that the transport is given; `false` if it is not, and is for the engine's queues.
#[cold]
pub fn enqueue(progress: &mut Progress, cars: &mut [Car], vcs: &mut [Vc], row: Row) -> bool {
    let car = &mut cars[row as usize];
    if let Some(vc) = vcs.get(car.vc as usize) {
        if !is_matched(progress, vc, car.context) {
            return false;
        }
        car.state = CarState::ToProvider;
    } else {
        if context::plane(car.context) != context::USER {
            return false;
        }
        if !progress.indexed() {
            make_index(progress, cars, vcs);
        }
        progress.posted.push(key(&cars[row as usize]), row);
    }
    progress.provider.queue.push(cars, row);
    progress.pending |= Pending::POST;
    true
}

/// Gives receives to the transport as far as it takes them, and asks back those that are wanted back.
#[cold]
pub fn drive(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    while let Some(&(vc, peer)) = rows.progress.provider.receipts.last() {
        let Some(row) = rows.progress.free_cars.pop(&mut rows.cars) else { break };
        rows.progress.provider.receipts.pop();
        let (kind, state) = (CarKind::Acknowledgement, CarState::Queued);
        rows.cars[row as usize] = Car { kind, state, peer, vc, ..Car::default() };
        rows.large[row as usize] = Large::default();
        rows.progress.replies.push(&mut rows.cars, row);
        list_sender(&mut rows.progress, &mut rows.vcs, vc);
    }
    let Some(endpoint) = endpoints.get_mut(rows.progress.provider.endpoint as usize) else { return };
    let transport = endpoint.transport.get();
    for row in rows.progress.provider.recalls.drain(..) {
        // What its peer sent before it ended can still be received.
        transport.recall(row, rows.cars[row as usize].flags & car_flags::PEER_FAILED != 0);
    }
    match rows.progress.provider.pull {
        Pull::No => {}
        Pull::Left if transport.peeked() == Peeked::Nothing => rows.progress.provider.pull = Pull::No,
        _ => return,
    }
    while let Some(&car) = rows.cars.get(rows.progress.provider.queue.head as usize) {
        let row = rows.progress.provider.queue.head;
        let vc = rows.vcs.get(car.vc as usize).copied();
        let link = vc.map_or(NIL, |vc| vc.link);
        let sent = transport
            .post_receive(row, &ReceiveEnvelope { link, context: car.context, source: car.source, tag: car.tag });
        if sent == Sent::Blocked {
            return;
        }
        rows.progress.provider.queue.pop(&mut rows.cars);
        let car = &mut rows.cars[row as usize];
        match (sent, vc) {
            (Sent::Done, None) => car.flags |= car_flags::AT_PROVIDER,
            (Sent::Done, Some(vc)) => {
                car.state = CarState::AtProvider;
                rows.progress.provider.peer(car.vc).receives += 1;
                if vc.envelopes_left == 0 {
                    list_granter(&mut rows.progress, &mut rows.vcs, car.vc);
                }
                if vc.state == VcState::Failed {
                    // What had arrived can be received; nothing else will come.
                    car.state = CarState::Recalled;
                    car.flags |= car_flags::PEER_FAILED;
                    transport.recall(row, true);
                }
            }
            // One from any source is still there for the other transports.
            (_, None) => continue,
            (_, Some(_)) => {
                abort(&mut rows.progress, &mut rows.cars, row, car_flags::PEER_FAILED);
                continue;
            }
        }
        rows.progress.provider.count += 1;
    }
}

/// Asks a receive back that is at the transport; once it is back it ends with `flags`, or is its message's if there are none.
pub fn recall(progress: &mut Progress, cars: &mut [Car], row: Row, flags: u8) {
    let car = &mut cars[row as usize];
    if car.state == CarState::Posted {
        progress.posted.remove(&key(car), row);
        leave_index(progress);
    }
    car.state = CarState::Recalled;
    car.flags |= flags;
    progress.provider.recalls.push(row);
    progress.pending |= Pending::POST;
}

/// Whether a receive is at the transport and nobody has asked for it back.
#[inline]
pub fn is_at_provider(car: &Car) -> bool {
    car.kind == CarKind::Receive
        && (car.state == CarState::AtProvider
            || (car.state == CarState::Posted && car.flags & car_flags::AT_PROVIDER != 0))
}

/// Whether a posted receive, which takes a message of a VC, cannot have it at once. One that can leaves the queue to the
/// transport.
#[cold]
pub(crate) fn keeps(progress: &mut Progress, cars: &mut [Car], vc_row: Row, row: Row) -> bool {
    if progress.provider.holds(vc_row) || is_at_provider(&cars[row as usize]) {
        return true;
    }
    if cars[row as usize].flags & car_flags::ANY_SOURCE != 0 {
        progress.provider.queue.remove(cars, row);
    }
    false
}

/// Holds a message that was not paired, if it must wait for a receive or behind another message; `false` if it need not.
#[cold]
pub(crate) fn hold(rows: &mut Rows<'_>, arrival: &mut Arrival) -> bool {
    let (header, vc) = (arrival.header, arrival.vc);
    let message = EnvelopeKey { context: header.context(), source: header.source(), tag: header.tag() };
    let behind = rows.progress.provider.holds(vc);
    let receive = if behind || !rows.progress.indexed() { None } else { rows.progress.posted.find(&message) };
    if !behind && receive.is_none() {
        return false;
    }
    let Some(entry) = find_place(&mut rows.progress, arrival, &header, &mut rows.vcs, &rows.communicators) else {
        return true;
    };
    rows.progress.unexpected.claim(entry);
    rows.progress.starved_peers += 1;
    let receive = receive.unwrap_or(NIL);
    rows.progress.provider.held.push(HeldMessage { entry, vc, receive, came_back: false });
    if receive != NIL {
        recall(&mut rows.progress, &mut rows.cars, receive, 0);
    }
    true
}

/// Gives the messages that were held to their receives, as far as these are known. `true` if some are still held.
#[cold]
pub(crate) fn match_held(rows: &mut Rows<'_>, arrivals: &[Arrival]) -> bool {
    if rows.progress.provider.held.is_empty() {
        return false;
    }
    // Bytes that are still to be moved into a temporary cannot be moved out of it.
    let moves = |arrival: &Arrival| matches!(arrival.state, ArrivalState::Unexpected | ArrivalState::Placed);
    if arrivals[..rows.progress.arrivals as usize].iter().any(moves) {
        rows.progress.pending |= Pending::MATCH;
        return true;
    }
    let mut place = 0;
    while let Some(&held) = rows.progress.provider.held.get(place) {
        let first = rows.progress.provider.held[..place].iter().all(|before| before.vc != held.vc);
        if !first || held.receive != NIL && !held.came_back {
            place += 1;
            continue;
        }
        let found = rows.progress.unexpected.entries[held.entry as usize];
        let mut receive = held.receive;
        if receive == NIL
            && let Some(row) = rows.progress.posted.find(&found.key())
        {
            if is_at_provider(&rows.cars[row as usize]) {
                rows.progress.provider.held[place].receive = row;
                recall(&mut rows.progress, &mut rows.cars, row, 0);
                place += 1;
                continue;
            }
            rows.progress.posted.remove(&key(&rows.cars[row as usize]), row);
            rows.progress.provider.queue.remove(&mut rows.cars, row);
            receive = row;
        }
        rows.progress.provider.held.remove(place);
        rows.progress.starved_peers -= 1;
        if receive == NIL {
            rows.progress.unexpected.restore(held.entry);
        } else {
            rows.progress.unexpected.release(held.entry);
            receive_unexpected(rows, receive, &found);
        }
    }
    if rows.progress.provider.held.is_empty() {
        leave_index(&mut rows.progress);
        return false;
    }
    true
}

/// What the transport says of a receive or of a message that it was asked for.
#[cold]
pub(crate) fn take(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    let state = std::mem::replace(&mut arrival.state, ArrivalState::Handled);
    rows.progress.pending |= Pending::TRANSFER;
    match state {
        ArrivalState::Claimed => take_claimed(rows, arrival),
        ArrivalState::Recalled => take_back(rows, arrival.car),
        _ => take_matched(rows, arrival),
    }
    if !rows.progress.provider.queue.is_empty() {
        // There may be room now.
        rows.progress.pending |= Pending::POST;
    }
}

/// A receive that the transport has paired with a message.
fn take_matched(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    let (row, header) = (arrival.car, arrival.header);
    let asked = key(&rows.cars[row as usize]);
    leave(&mut rows.progress, &mut rows.cars, row);
    let message = EnvelopeKey { context: header.context(), source: header.source(), tag: header.tag() };
    let takes = || if asked.takes(&message) { Ok(()) } else { Err("a message that its receive does not take") };
    let checked = check_paired(arrival)
        .and_then(|()| takes())
        .and_then(|()| check_envelope(&header, rows.vcs.get(arrival.vc as usize), &rows.communicators));
    let is_offer = header.kind() == Some(Kind::Rts);
    let checked =
        checked.and_then(|()| match is_offer && !offers::paired(&mut rows.progress, &mut rows.vcs, arrival.vc) {
            true => Err(OVERDRAWN),
            false => Ok(()),
        });
    if let Err(wrong) = checked {
        refuse(&mut rows.progress, arrival, wrong);
        crate::steps::matching::enqueue(&mut rows.progress, &mut rows.cars, &mut rows.vcs, row);
        return;
    }
    give(rows, arrival, row);
}

/// A message goes to the receive that it was paired with.
fn give(rows: &mut Rows<'_>, arrival: &mut Arrival, row: Row) {
    let header = arrival.header;
    rows.progress.work.matched += 1;
    let car = &mut rows.cars[row as usize];
    arrival.car = row;
    (car.source, car.tag, car.vc, car.priority) = (header.source(), header.tag(), arrival.vc, header.priority());
    if header.kind() == Some(Kind::Rts) {
        return offer(
            &mut rows.progress,
            &mut rows.cars,
            &mut rows.large,
            row,
            header.message(),
            header.length,
            body_of(&header, arrival.payload),
        );
    }
    car.state = CarState::Matched;
    receipt(&mut rows.progress, arrival);
    owe_lines(&mut rows.progress, &mut rows.vcs, arrival.vc, header.length);
    arrival.state = ArrivalState::Placed;
}

/// Whether a transport can have paired or claimed it: a message or an offer that can be.
fn check_paired(arrival: &Arrival) -> Result<(), &'static str> {
    match arrival.header.kind() {
        Some(Kind::Eager | Kind::Sync | Kind::Rts) => arrival.header.check(arrival.payload.len()),
        _ => Err("a message of a kind that no transport pairs"),
    }
}

/// Notes whom to tell that a synchronous message has met its receive; from here on it is any message.
fn receipt(progress: &mut Progress, arrival: &mut Arrival) {
    let header = arrival.header;
    if header.kind() == Some(Kind::Sync) {
        progress.provider.receipts.push((arrival.vc, header.message()));
        progress.pending |= Pending::POST;
        arrival.header = Header::new(Kind::Eager, header.context(), header.source(), header.tag(), 0, header.length);
    }
}

/// Takes a receive that is at the transport no more out of where it was.
pub(crate) fn leave(progress: &mut Progress, cars: &mut [Car], row: Row) {
    progress.provider.count -= 1;
    let car = &mut cars[row as usize];
    if let Some(peer) = progress.provider.peers.get_mut(car.vc as usize) {
        peer.receives = peer.receives.saturating_sub(1);
    }
    match car.state {
        CarState::Posted => {
            progress.posted.remove(&key(car), row);
            leave_index(progress);
        }
        CarState::Recalled => {
            car.flags &= !car_flags::ERRORS;
            if let Some(held) = progress.provider.held.iter_mut().find(|held| held.receive == row) {
                held.receive = NIL;
                progress.pending |= Pending::MATCH;
            }
        }
        _ => {}
    }
    car.flags &= !car_flags::AT_PROVIDER;
}

/// A receive that has come back unpaired.
fn take_back(rows: &mut Rows<'_>, row: Row) {
    if let Some(held) = rows.progress.provider.held.iter_mut().find(|held| held.receive == row) {
        held.came_back = true;
        rows.progress.provider.count -= 1;
        rows.cars[row as usize].flags &= !car_flags::AT_PROVIDER;
        rows.progress.pending |= Pending::MATCH;
        return;
    }
    if rows.cars[row as usize].state == CarState::Posted {
        // Nobody has asked for it: it keeps its place here, and is given again.
        rows.progress.provider.count -= 1;
        rows.cars[row as usize].flags &= !car_flags::AT_PROVIDER;
        return rows.progress.provider.queue.push(&mut rows.cars, row);
    }
    let flags = rows.cars[row as usize].flags & car_flags::ERRORS;
    leave(&mut rows.progress, &mut rows.cars, row);
    if flags != 0 {
        return abort(&mut rows.progress, &mut rows.cars, row, flags);
    }
    crate::steps::matching::enqueue(&mut rows.progress, &mut rows.cars, &mut rows.vcs, row);
}

/// A message that was claimed. For a probe no receive finds it; one that was pulled is unexpected as any other.
fn take_claimed(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    let pulled = std::mem::take(&mut rows.progress.provider.pull) != Pull::No;
    let header = arrival.header;
    if arrival.vc == NIL {
        let proc = known(&rows.communicators, header.context()).and_then(|comm| comm.proc(header.source()));
        arrival.vc = proc.and_then(|proc| rows.vcs.iter().position(|vc| vc.proc == proc)).map_or(NIL, |row| row as Row);
    }
    let checked = check_paired(arrival);
    if let Err(wrong) =
        checked.and_then(|()| check_envelope(&header, rows.vcs.get(arrival.vc as usize), &rows.communicators))
    {
        return refuse(&mut rows.progress, arrival, wrong);
    }
    if header.kind() == Some(Kind::Rts) && !offers::paired(&mut rows.progress, &mut rows.vcs, arrival.vc) {
        return refuse(&mut rows.progress, arrival, OVERDRAWN);
    }
    if pulled {
        if let Some(row) = take_queued(&mut rows.progress, &mut rows.cars, &header) {
            return give(rows, arrival, row);
        }
        if header.kind() == Some(Kind::Sync) {
            offer_anew(&mut rows.progress, arrival, &mut rows.vcs);
        }
        let header = arrival.header;
        find_place(&mut rows.progress, arrival, &header, &mut rows.vcs, &rows.communicators);
        return;
    }
    receipt(&mut rows.progress, arrival);
    let header = arrival.header;
    let Some(entry) = find_place(&mut rows.progress, arrival, &header, &mut rows.vcs, &rows.communicators) else {
        return;
    };
    rows.progress.unexpected.claim(entry);
    rows.progress.provider.claimed.push(entry);
}

/// The oldest receive that takes a message and has yet to be given to the transport, out of the queue.
fn take_queued(progress: &mut Progress, cars: &mut [Car], header: &Header) -> Option<Row> {
    let message = EnvelopeKey { context: header.context(), source: header.source(), tag: header.tag() };
    let mut row = progress.provider.queue.head;
    while let Some(car) = cars.get(row as usize) {
        if key(car).takes(&message) {
            break;
        }
        row = car.next;
    }
    let asked = key(cars.get(row as usize)?);
    progress.provider.queue.remove(cars, row);
    if cars[row as usize].state == CarState::Posted {
        progress.posted.remove(&asked, row);
        leave_index(progress);
    }
    Some(row)
}

/// A synchronous message that no receive has taken becomes an offer: its sender still has the bytes, and is not told of a receive
/// before there is one.
fn offer_anew(progress: &mut Progress, arrival: &mut Arrival, vcs: &mut [Vc]) {
    let header = arrival.header;
    owe_lines(progress, vcs, arrival.vc, header.length);
    let (context, source, tag) = (header.context(), header.source(), header.tag());
    let offer = Header::new(Kind::Rts, context, source, tag, header.message(), header.length);
    arrival.header = offer.with_priority(header.priority());
}

/// A message of a peer is kept at the transport no more. As [`crate::protocols::credit::owe_lines`], in quarters of what the peer may have
/// outstanding there.
#[inline]
pub(crate) fn owe_lines(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row, length: u64) {
    let vc = &mut vcs[vc_row as usize];
    vc.lines_owed += cost(length);
    if vc.lines_owed >= progress.provider.window.lines / 4 {
        list_granter(progress, vcs, vc_row);
    }
}

/// Whether a peer whose messages the transport matches has no offer left to make, while some wait there.
#[cold]
pub fn is_starved(progress: &Progress, vcs: &[Vc]) -> bool {
    let waits = |row: usize| progress.provider.peers.get(row).is_some_and(|peer| peer.there > 0);
    progress.starved_peers > 0 && (0..).zip(vcs).any(|(row, vc)| vc.envelopes_left == 0 && waits(row))
}

/// Lists the VCs whose peers are owed credit by messages that went another way than most: those that were pulled or claimed.
#[cold]
pub fn list_granters(progress: &mut Progress, vcs: &mut [Vc]) {
    for row in 0..vcs.len() {
        let vc = &vcs[row];
        let matched = u32::from(vc.endpoint) == progress.provider.endpoint;
        if matched && vc.lines_owed >= progress.provider.window.lines / 4 {
            list_granter(progress, vcs, row as Row);
        }
    }
}

/// The envelope that a transport has found for a probe, as far as it is one.
pub fn checked(header: &Header, vc: Option<&Vc>, communicators: &[Communicator]) -> bool {
    check_envelope(header, vc, communicators).is_ok()
}

/// A message that its transport has paired with a receive; from its arrival to the end of its request; `false` leaves it
/// where it is.
#[inline]
pub(crate) fn receive(rows: &mut Rows<'_>, header: &Header, payload: Span, vc_row: Row, row: Row) -> bool {
    let Rows { progress, cars, vcs, communicators, .. } = rows;
    let message = EnvelopeKey { context: header.context(), source: header.source(), tag: header.tag() };
    if check_envelope(header, vcs.get(vc_row as usize), communicators).is_err()
        || !cars.get(row as usize).is_some_and(|car| is_at_provider(car) && key(car).takes(&message))
    {
        return false;
    }
    leave(progress, cars, row);
    owe_lines(progress, vcs, vc_row, header.length);
    meet(progress, &mut cars[row as usize], header, vc_row);
    receive_whole(rows, row, header.length, payload);
    if !rows.progress.provider.queue.is_empty() {
        // There may be room now.
        rows.progress.pending |= Pending::POST;
    }
    true
}

/// A peer has said how many offers it has made.
///
/// # Errors
/// If no transport matches its messages.
pub(crate) fn take_count(
    progress: &mut Progress,
    vcs: &mut [Vc],
    header: &Header,
    vc_row: Row,
) -> Result<(), NotTaken> {
    match hear(progress, vcs, vc_row, header.tag()) {
        true => Ok(()),
        false => Err(NotTaken::Wrong("a count of offers where no transport matches")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Posted, TestWorld, WireState};
    use crate::tick::match_cars::match_cars;
    use crate::tick::post::post;
    use crate::tick::supply_buffers::supply_buffers;
    use crate::tick::transfer::transfer;
    use std::sync::{Arc, Mutex};
    use tickwire_components::{Ended, RequestState, wire};

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

    /// What the wire says of a receive.
    fn tell(world: &mut TestWorld, state: ArrivalState, posted: Posted, vc: Row, header: Header, bytes: &[u8]) {
        let row = world.arrive(vc, header, bytes);
        let arrival = &mut world.all().arrivals[row as usize];
        (arrival.car, arrival.state) = (posted.car, state);
    }

    /// A pass but for Post and Complete.
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
        // That of a proc that the engine matches for is in the engine's own queue, with those from any source.
        assert_eq!(
            (world.car(other).state, world.vc(near).posted),
            (CarState::Posted, tickwire_components::Queue::EMPTY)
        );
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
        assert_eq!(world.all().progress.provider.held.len(), 2);
        assert_eq!((world.all().progress.unexpected.count, world.car(any).state), (0, CarState::Recalled));
        // One that is posted now waits, whatever it asks for.
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
        assert!(world.all().progress.provider.held.is_empty() && world.all().progress.starved_peers == 0);
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
        // The first one meets the next receive from any source, which is at the transport, too; the others still wait.
        assert_eq!((world.finished(), world.car(five).state), (vec![any.car], CarState::Recalled));
        assert_eq!((&world.bytes(any)[..3], world.all().progress.provider.held.len()), (&b"far"[..], 3));
        world.step(post);
        assert_eq!(recalled(&wire), [any.car, five.car]);
        tell(&mut world, ArrivalState::Recalled, five, NIL, Header::default(), &[]);
        pass(&mut world);
        pass(&mut world);
        assert_eq!((&world.bytes(five)[..3], &world.bytes(six)[..3]), (&b"one"[..], &b"two"[..]));
        assert_eq!(world.all().progress.unexpected.count, 1, "what nobody has asked for");
        assert!(world.all().progress.provider.held.is_empty());
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
        let frames = [Header::new(Kind::Piece, 0, 1, 5, 0, 0), Header { lead: Kind::Wrap as u64, ..eager(1, 5, b"") }];
        let flagged =
            [eager(1, 5, b"").with_flags(wire::READABLE), eager(1, 5, b"x"), eager(1, 5, b"").with_reserved(1)];
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
        for wrong in [Header { lead: Kind::Wrap as u64, ..eager(1, 5, b"") }, eager(1, 5, b"").with_flags(wire::READY)]
        {
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
        crate::procs::connections::fail(&mut world.all(), far, "gone".into());
        assert_eq!((world.finished(), world.car(any).state), (vec![waiting.car], CarState::Posted));
        world.step(post);
        assert_eq!(recalled(&wire).len(), 2);
        tell(&mut world, ArrivalState::Matched, there, far, eager(1, 5, b"words"), b"words");
        tell(&mut world, ArrivalState::Recalled, gone, NIL, Header::default(), &[]);
        pass(&mut world);
        assert_eq!([there, gone].map(|p| world.car(p).flags), [0, car_flags::PEER_FAILED]);
        assert_eq!(&world.bytes(there)[..5], b"words");
        // One that is posted later looks at what is there, and comes back.
        wire.lock().unwrap().room_for_receives = None;
        let late = world.receive(Some(1), None, &[8]);
        world.step(post);
        assert_eq!((recalled(&wire), world.car(late).state), (vec![late.car], CarState::Recalled));
    }

    /// What the wire gives of a message that was pulled.
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
        // One that none of them takes is unexpected.
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
}
