//! Provider matching: receives at a transport that matches by itself, and messages over other transports that meet such a receive. Used by
//! posting, Post and Match. At most one endpoint of an engine matches by itself; for the others the engine matches.
//!
//! A receive from one proc that this endpoint reaches is at the transport only. A receive from any source is also in the index of posted
//! receives, where messages over other transports find it. Such a message is *deferred*: it keeps its place in its sender's order, in a
//! temporary, while the transport is asked to return the receive. If the receive comes back, it gets the message. If the transport had
//! paired it already, the message is matched again with the other posted receives, and may be deferred again. Later messages of the same
//! sender wait behind it. Receives that are posted meanwhile wait until nothing is deferred, so that none of them takes a message that an
//! older receive might match.
//!
//! The transport matches only messages of the application. Messages of the engine on behalf of a communicator go in frames, and meet
//! receives in the engine's own queues.
//!
//! Messages that wait at the transport without a receive can be moved into the engine's own queue of unexpected messages, oldest first
//! ([`Pull`]). Then a dump shows them, and a probe knows their lengths. Receives look there before they go to the transport, so the order
//! stays.

use crate::procs::communicators::proc_of;
use crate::procs::endpoint::Endpoint;
use crate::procs::priorities::list_sender;
use crate::rows::Rows;
use crate::steps::check::NotTaken;
use crate::steps::check::{check_envelope, refuse};
use crate::steps::credit::list_granter;
use crate::steps::finish::abort;
use crate::steps::matching::meet;
use crate::steps::offer::{Offered, offer};
use crate::steps::offer_counts;
use crate::steps::offer_counts::hear;
use crate::steps::place::receive_whole;
use crate::steps::posted::{key, leave_index};
use crate::steps::provider::is_at_provider;
use crate::steps::unexpected::find_place;
use tickwire_components::credit::cost;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::wire::Header;
use tickwire_components::{
    Arrival, ArrivalState, Car, CarState, Communicator, Control, Destination, NIL, Pending, Progress, Pull, Row, Span,
    Vc, VcState, car_flags,
};
use tickwire_transports::{AnyTransport, Matching, Peeked, ReceiveEnvelope, Sent};

/// The error of a peer that makes more offers than it may.
const OVERDRAWN: &str = "more offers than it was granted";

/// Asks the transport to return a receive. See [`Matching::recall`].
fn recall(transport: &mut AnyTransport, row: Row, unless_message: bool) {
    if let Some(matching) = transport.matching() {
        matching.recall(row, unless_message);
    }
}

/// Gives receives to the transport as far as it takes them, asks it to return those that are wanted back, and queues acknowledgements of
/// synchronous messages.
#[cold]
pub fn drive(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    while let Some(&(vc, message)) = rows.progress.provider.acknowledgements.last() {
        if !rows.progress.control.push(vc, Control::Acknowledgement { message }) {
            break;
        }
        rows.progress.provider.acknowledgements.pop();
        list_sender(&mut rows.progress, &mut rows.vcs, vc);
    }
    let Some(endpoint) = endpoints.get_mut(rows.progress.provider.endpoint as usize) else { return };
    let transport = endpoint.transport.get();
    for row in rows.progress.provider.recalls.drain(..) {
        // Messages that the peer sent before it ended can still be received.
        recall(transport, row, rows.cars[row as usize].flags & car_flags::PEER_FAILED != 0);
    }
    match rows.progress.provider.pull {
        Pull::No => {}
        Pull::Left if transport.matching().map(Matching::peeked) == Some(Peeked::Nothing) => {
            rows.progress.provider.pull = Pull::No
        }
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
                    // Messages that had arrived can still be received. No others will come.
                    car.state = CarState::Recalled;
                    car.flags |= car_flags::PEER_FAILED;
                    recall(transport, row, true);
                }
            }
            // A receive from any source still waits for messages over the other transports.
            (_, None) => continue,
            (_, Some(_)) => {
                abort(&mut rows.progress, &mut rows.cars, row, car_flags::PEER_FAILED);
                continue;
            }
        }
        rows.progress.provider.count += 1;
    }
}

/// Handles what the transport reports of a receive, or of a message that it was asked for.
#[cold]
pub(crate) fn take(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    let state = std::mem::replace(&mut arrival.state, ArrivalState::Handled);
    rows.progress.pending |= Pending::TRANSFER;
    match state {
        ArrivalState::Claimed => take_claimed(rows, arrival),
        ArrivalState::Recalled => take_back(rows, arrival.receive()),
        _ => take_matched(rows, arrival),
    }
    if !rows.progress.provider.queue.is_empty() {
        // There may be room now.
        rows.progress.pending |= Pending::POST;
    }
}

/// Handles a receive that the transport has paired with a message.
fn take_matched(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    let (row, header) = (arrival.receive(), arrival.header);
    let asked = key(&rows.cars[row as usize]);
    leave(&mut rows.progress, &mut rows.cars, row);
    let message = EnvelopeKey { context: header.context(), source: header.source(), tag: header.tag() };
    let takes = || if asked.takes(&message) { Ok(()) } else { Err("a message that its receive does not take") };
    let checked = check_paired(arrival)
        .and_then(|()| takes())
        .and_then(|()| check_envelope(&header, rows.vcs.get(arrival.vc as usize), &rows.communicators));
    let checked = checked.and_then(|()| {
        match header.is_offer() && !offer_counts::paired(&mut rows.progress, &mut rows.vcs, arrival.vc) {
            true => Err(OVERDRAWN),
            false => Ok(()),
        }
    });
    if let Err(wrong) = checked {
        refuse(&mut rows.progress, arrival, wrong);
        crate::steps::matching::enqueue(&mut rows.progress, &mut rows.cars, &mut rows.vcs, row);
        return;
    }
    give(rows, arrival, row);
}

/// Gives a message to the receive that it was paired with.
fn give(rows: &mut Rows<'_>, arrival: &mut Arrival, row: Row) {
    let header = arrival.header;
    rows.progress.work.matched += 1;
    let car = &mut rows.cars[row as usize];
    arrival.to = Destination::Receive(row);
    (car.source, car.tag, car.vc, car.priority) = (header.source(), header.tag(), arrival.vc, header.priority());
    if header.is_offer() {
        let Rows { progress, cars, large, .. } = rows;
        return offer(progress, cars, large, row, Offered::of(&header, arrival.payload));
    }
    car.state = CarState::Matched;
    acknowledge(&mut rows.progress, arrival);
    owe_lines(&mut rows.progress, &mut rows.vcs, arrival.vc, header.length);
    arrival.state = ArrivalState::Placed;
}

/// Checks that an arrival is a valid message or offer, of a kind that a transport can pair.
fn check_paired(arrival: &Arrival) -> Result<(), &'static str> {
    match arrival.header.is_envelope() && !arrival.header.is_head() {
        true => arrival.header.check(arrival.payload.len(), false),
        false => Err("a message of a kind that no transport pairs"),
    }
}

/// Notes that the sender of a synchronous message must be told of its receive. From here on the message is treated as an ordinary one.
fn acknowledge(progress: &mut Progress, arrival: &mut Arrival) {
    let header = arrival.header;
    if header.is_synchronous() {
        progress.provider.acknowledgements.push((arrival.vc, header.message()));
        progress.pending |= Pending::POST;
        arrival.header = Header::eager(header.context(), header.source(), header.tag(), header.length);
    }
}

/// Updates the tables for a receive that is no longer at the transport.
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
            if let Some(deferred) = progress.provider.deferred.iter_mut().find(|deferred| deferred.receive == row) {
                deferred.receive = NIL;
                progress.pending |= Pending::MATCH;
            }
        }
        _ => {}
    }
    car.flags &= !car_flags::AT_PROVIDER;
}

/// Handles a receive that has come back unpaired.
fn take_back(rows: &mut Rows<'_>, row: Row) {
    if let Some(deferred) = rows.progress.provider.deferred.iter_mut().find(|deferred| deferred.receive == row) {
        deferred.came_back = true;
        rows.progress.provider.count -= 1;
        rows.cars[row as usize].flags &= !car_flags::AT_PROVIDER;
        rows.progress.pending |= Pending::MATCH;
        return;
    }
    if rows.cars[row as usize].state == CarState::Posted {
        // It was not recalled. It stays posted, and is given to the transport again.
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

/// Handles a message that was claimed at the transport, to move it into the engine's own queue. From here on it is an unexpected message
/// like any other.
fn take_claimed(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    rows.progress.provider.pull = Pull::No;
    let header = arrival.header;
    if arrival.vc == NIL {
        let proc = proc_of(&rows.communicators, &header);
        arrival.vc = proc.and_then(|proc| rows.vcs.iter().position(|vc| vc.proc == proc)).map_or(NIL, |row| row as Row);
    }
    let checked = check_paired(arrival);
    if let Err(wrong) =
        checked.and_then(|()| check_envelope(&header, rows.vcs.get(arrival.vc as usize), &rows.communicators))
    {
        return refuse(&mut rows.progress, arrival, wrong);
    }
    if header.is_offer() && !offer_counts::paired(&mut rows.progress, &mut rows.vcs, arrival.vc) {
        return refuse(&mut rows.progress, arrival, OVERDRAWN);
    }
    if let Some(row) = take_queued(&mut rows.progress, &mut rows.cars, &header) {
        return give(rows, arrival, row);
    }
    if header.is_synchronous() {
        offer_anew(&mut rows.progress, arrival, &mut rows.vcs);
    }
    let header = arrival.header;
    find_place(&mut rows.progress, arrival, &header, &mut rows.vcs, (&rows.communicators, &rows.cars));
}

/// Takes the oldest receive out of the queue for the transport that matches a message.
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

/// Turns a synchronous message that no receive has taken into an offer. Its sender still has the bytes, and must not hear of a receive
/// before there is one.
fn offer_anew(progress: &mut Progress, arrival: &mut Arrival, vcs: &mut [Vc]) {
    let header = arrival.header;
    owe_lines(progress, vcs, arrival.vc, header.length);
    let (context, source, tag) = (header.context(), header.source(), header.tag());
    let offer = Header::offer(context, source, tag, header.message(), header.length);
    arrival.header = offer.with_priority(header.priority());
}

/// As [`crate::steps::credit::owe_lines`], for a message that the transport no longer keeps. Credit goes back in quarters of what the peer
/// may have outstanding there.
#[inline]
pub(crate) fn owe_lines(progress: &mut Progress, vcs: &mut [Vc], vc_row: Row, length: u64) {
    let vc = &mut vcs[vc_row as usize];
    vc.lines_owed += cost(length);
    if vc.lines_owed >= progress.provider.window.lines / 4 {
        list_granter(progress, vcs, vc_row);
    }
}

/// Whether some peer whose messages the transport matches has no envelope credit left, while offers of it wait at the transport.
#[cold]
pub fn is_starved(progress: &Progress, vcs: &[Vc]) -> bool {
    let waits = |row: usize| progress.provider.peers.get(row).is_some_and(|peer| peer.there > 0);
    progress.starved_peers > 0 && (0..).zip(vcs).any(|(row, vc)| vc.envelopes_left == 0 && waits(row))
}

/// Lists the VCs whose peers are owed credit for messages that took a rarer way: those that were pulled.
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

/// Whether an envelope that a transport has found for a probe is valid.
pub fn checked(header: &Header, vc: Option<&Vc>, communicators: &[Communicator]) -> bool {
    check_envelope(header, vc, communicators).is_ok()
}

/// Handles a message that the transport has paired with a receive, from its arrival to the end of the request. `false` leaves it in the
/// transport.
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

/// Takes a peer's count of the offers that it has made.
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
mod tests;
