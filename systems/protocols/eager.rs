//! Eager: a message in one frame, with envelope and bytes.

use crate::rows::{Rows, Wire};
use crate::steps::check::{NotTaken, check_envelope, check_envelope_for};
use crate::steps::credit::{add_owed, list_granter, owe_lines};
use crate::steps::matching::{find_first, find_otherwise, find_posted, meet};
use crate::steps::place::receive_whole;
use crate::steps::posted::key;
use crate::steps::signatures::{check_peer, compare};
use tickwire_components::index::EnvelopeKey;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, ArrivalState, CarState, Destination, NIL, Row, Span, context};

/// Pairs a message with its posted receive. Returns the receive's row.
///
/// # Errors
/// If no receive matches, or the envelope is invalid.
#[inline(always)]
fn pair(rows: &mut Rows<'_>, header: &Header, vc_row: Row) -> Result<Row, NotTaken> {
    let Rows { progress, cars, vcs, communicators, .. } = rows;
    check_envelope(header, vcs.get(vc_row as usize), communicators).map_err(NotTaken::Wrong)?;
    let row = find_posted(progress, vc_row, header, cars, vcs).ok_or(NotTaken::Unexpected)?;
    meet(progress, &mut cars[row as usize], header, vc_row);
    owe_lines(progress, vcs, vc_row, header.length);
    Ok(row)
}

/// Pairs a message with its receive. Transfer will move the bytes.
///
/// # Errors
/// As [`pair`].
#[inline(always)]
pub(crate) fn take(rows: &mut Rows<'_>, arrival: &mut Arrival) -> Result<(), NotTaken> {
    check_peer(&mut rows.progress, arrival.vc)?;
    let row = pair(rows, &arrival.header, arrival.vc)?;
    if let Some(types) = &mut rows.progress.signatures {
        let (number, length) = (arrival.header.type_number(), arrival.header.length);
        compare(types, &mut rows.cars[row as usize], row, arrival.vc, number, length);
    }
    rows.cars[row as usize].state = CarState::Matched;
    (arrival.to, arrival.state) = (Destination::Receive(row), ArrivalState::Placed);
    Ok(())
}

/// Handles a message completely, from its arrival to the end of its receive's request. `false` leaves it in the transport.
#[inline(always)]
pub(crate) fn receive(rows: &mut Rows<'_>, header: &Header, payload: Span, vc_row: Row) -> bool {
    header.length == payload.len() as u64 && receive_apart(rows, header.origin, header.name, payload, vc_row)
}

/// As [`receive`], for a message whose payload has the length that its header says. The arguments fit the registers for arguments, so that
/// a transport that hands over frames can keep its own values in the others.
// Calls come last, so that the frequent case saves no registers on the stack.
#[inline(never)]
fn receive_apart(rows: &mut Rows<'_>, origin: u64, name: u64, payload: Span, vc_row: Row) -> bool {
    let header = Header::eager_of(origin, name, payload.len() as u64);
    let Rows { progress, cars, vcs, communicators, .. } = rows;
    // A message of a block may call a function of the application. That may panic, which is caught around the systems alone.
    let takes = |word| context::plane(word) != context::BLOCK;
    if check_envelope_for(&header, vcs.get(vc_row as usize), communicators, takes).is_err() {
        return false;
    }
    match find_first(progress, vc_row, &header, cars, vcs) {
        Some(row) => end(rows, row, &header, payload, vc_row),
        None => receive_otherwise(rows, origin, name, payload, vc_row),
    }
}

/// As [`receive_apart`], if the first posted receive does not match.
#[inline(never)]
fn receive_otherwise(rows: &mut Rows<'_>, origin: u64, name: u64, payload: Span, vc_row: Row) -> bool {
    let header = Header::eager_of(origin, name, payload.len() as u64);
    let Rows { progress, cars, vcs, .. } = rows;
    match find_otherwise(progress, vc_row, &header, cars, vcs) {
        Some(row) => end(rows, row, &header, payload, vc_row),
        None => false,
    }
}

/// Ends a receive with its message. Always `true`.
#[inline(always)]
fn end(rows: &mut Rows<'_>, row: Row, header: &Header, payload: Span, vc_row: Row) -> bool {
    let Rows { progress, cars, vcs, .. } = rows;
    meet(progress, &mut cars[row as usize], header, vc_row);
    if add_owed(progress, &mut vcs[vc_row as usize], header.length) {
        return end_and_grant(rows, row, payload, vc_row);
    }
    receive_whole(rows, row, header.length, payload);
    true
}

/// The rest of [`end`], if the peer may be granted credit.
#[cold]
#[inline(never)]
fn end_and_grant(rows: &mut Rows<'_>, row: Row, payload: Span, vc_row: Row) -> bool {
    list_granter(&mut rows.progress, &mut rows.vcs, vc_row);
    receive_whole(rows, row, payload.len() as u64, payload);
    true
}

/// Delivers a message to this process itself directly to its receive, past the transport. `false` if that is not possible: the oldest
/// receive from this process does not match or has several places, a receive from any source is posted, other frames or sends are before
/// the message, or it is too long to be sent as a whole.
///
/// As for arrivals, this must not be used with systems of the application, which may look at the rows in between.
///
/// # Safety
/// The payload is valid for reads.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[inline(always)]
pub unsafe fn deliver_own(
    rows: &mut Rows<'_>,
    wire: &mut Wire<'_>,
    vc_row: Row,
    message: &EnvelopeKey,
    payload: Span,
) -> bool {
    let Rows { progress, cars, vcs, .. } = rows;
    let Some(vc) = vcs.get_mut(vc_row as usize) else { return false };
    let row = vc.posted.head;
    if !cars.get(row as usize).is_some_and(|car| key(car).takes(message)) {
        return false;
    }
    // New receives and unexpected messages do not matter: new receives are younger than the posted ones, and the posted ones match no
    // unexpected message.
    if !progress.wildcard.is_empty() || progress.arrivals != 0 || !vc.sends.is_empty() {
        return false;
    }
    let Some(endpoint) = wire.endpoints.get_mut(vc.endpoint as usize) else { return false };
    let length = payload.len() as u64;
    if length >= endpoint.inline_end || !endpoint.transport.get().is_drained(vc.link) {
        return false;
    }
    let car = &mut cars[row as usize];
    if car.chain != NIL {
        // It has several places, which may be parts of the message. The transport keeps the message apart from them.
        return false;
    }
    vc.posted.pop_first(car);
    // Source and VC are known already: no receive from any source is posted.
    car.tag = message.tag;
    progress.work.matched += 1;
    progress.work.posted += 1;
    receive_whole(rows, row, length, payload);
    true
}
