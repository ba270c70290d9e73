//! Eager: a message in one frame, envelope and bytes.

use crate::rows::{Rows, Wire};
use crate::steps::check::NotTaken;
use crate::steps::check::check_envelope;
use crate::steps::credit::owe_lines;
use crate::steps::matching::{find_posted, meet};
use crate::steps::place::receive_whole;
use crate::steps::posted::key;
use crate::steps::signatures::{check_peer, compare};
use tickwire_components::index::EnvelopeKey;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, ArrivalState, CarState, Row, Span};

/// Pairs a message with its posted receive: the row.
///
/// # Errors
/// If there is none, or the envelope cannot be.
#[inline(always)]
pub(crate) fn pair(rows: &mut Rows<'_>, header: &Header, vc_row: Row) -> Result<Row, NotTaken> {
    let Rows { progress, cars, vcs, communicators, .. } = rows;
    check_envelope(header, vcs.get(vc_row as usize), communicators).map_err(NotTaken::Wrong)?;
    let row = find_posted(progress, vc_row, header, cars, vcs).ok_or(NotTaken::Unexpected)?;
    owe_lines(progress, vcs, vc_row, header.length);
    meet(progress, &mut cars[row as usize], header, vc_row);
    Ok(row)
}

/// A message that has its receive waits for Transfer.
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
    (arrival.car, arrival.state) = (row, ArrivalState::Placed);
    Ok(())
}

/// A message from its arrival to the end of its request; `false` leaves it where it is.
#[inline(always)]
pub(crate) fn receive(rows: &mut Rows<'_>, header: &Header, payload: Span, vc_row: Row) -> bool {
    let Ok(row) = pair(rows, header, vc_row) else { return false };
    receive_whole(rows, row, header.length, payload);
    true
}

/// A message to oneself goes to its receive at once, past the transport; `false` if that is not for here: the oldest receive
/// does not take it, or something is before it, or it is longer than what goes as a whole.
///
/// As with arrivals, only without systems of the application, which may look at the rows in between.
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
    // Neither receives that have not been looked at nor unexpected messages matter: those are younger than the posted ones,
    // and these are of no use to them.
    if !progress.wildcard.is_empty() || progress.arrivals != 0 || !vc.sends.is_empty() {
        return false;
    }
    let Some(endpoint) = wire.endpoints.get_mut(vc.endpoint as usize) else { return false };
    let length = payload.len() as u64;
    if length >= endpoint.inline_end || !endpoint.transport.get().is_drained(vc.link) {
        return false;
    }
    let car = &mut cars[row as usize];
    vc.posted.pop_first(car);
    // All else it knew when it was posted: no receive from any source is here.
    car.tag = message.tag;
    progress.work.matched += 1;
    progress.work.posted += 1;
    receive_whole(rows, row, length, payload);
    true
}
