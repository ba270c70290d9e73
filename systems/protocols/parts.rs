//! Messages in parts: each part a frame, the first of them with the envelope.

#![expect(unsafe_code, reason = "bytes that are addresses")]

use crate::protocols::NotTaken;
use crate::protocols::credit::owe_lines;
use crate::rows::Rows;
use crate::steps::check::check_envelope;
use crate::steps::finish::finish_car;
use crate::steps::matching::{find_posted, meet};
use crate::steps::place::fill;
use tickwire_components::credit::LINE_BYTES;
use tickwire_components::{
    Arrival, ArrivalState, Car, CarState, Destination, Kept, Large, NIL, Pending, Progress, Row, Stream, Unexpected,
    VcState, car_flags,
};
use tickwire_transports::copy;

/// Pairs the first part of a message with its posted receive.
///
/// # Errors
/// If there is none, or the envelope cannot be.
pub(crate) fn take_head(rows: &mut Rows<'_>, arrival: &mut Arrival) -> Result<(), NotTaken> {
    let Rows { progress, cars, large, vcs, communicators, .. } = rows;
    let (header, vc_row) = (arrival.header, arrival.vc);
    check_envelope(&header, vcs.get(vc_row as usize), communicators).map_err(NotTaken::Wrong)?;
    if vcs[vc_row as usize].state == VcState::Failed {
        // Its connection has ended since it was read, and with it the parts that were to come.
        return Ok(());
    }
    if !may_begin(progress, arrival) {
        return Err(NotTaken::Wrong("a message in parts that cannot be"));
    }
    let row = find_posted(progress, vc_row, &header, cars, vcs).ok_or(NotTaken::Unexpected)?;
    owe_lines(progress, vcs, vc_row, header.length);
    let car = &mut cars[row as usize];
    meet(progress, car, &header, vc_row);
    (car.state, car.done) = (CarState::Receiving, 0);
    large[row as usize] = Large { wanted: 0, ..Large::of(header.length) };
    begin(progress, arrival, Destination::Receive(row));
    Ok(())
}

/// A receive that was paired with a message of which parts are still to come: those that are there are copied, the others go
/// straight to it. If they never will, it has failed.
pub(crate) fn take_over(rows: &mut Rows<'_>, found: &Unexpected, row: Row) {
    let stream = rows.progress.streams.iter_mut().find(|stream| stream.vc == found.vc);
    let Some(stream) = stream.filter(|_| matches!(found.kept, Kept::Arriving { .. })) else {
        // Transfer, which gives the temporary back, ends it.
        rows.cars[row as usize].flags |= car_flags::PEER_FAILED;
        return;
    };
    stream.to = Destination::Receive(row);
    rows.cars[row as usize].done = stream.seen;
    rows.large[row as usize] = Large { wanted: 0, ..Large::of(found.length) };
}

/// Whether the head of a message may be one: none is arriving, and it fits the window.
pub(crate) fn may_begin(progress: &Progress, arrival: &Arrival) -> bool {
    let length = arrival.header.length;
    length <= u64::from(progress.window.lines) * LINE_BYTES as u64
        && progress.streams.iter().all(|stream| stream.vc != arrival.vc)
}

/// A message in parts of which the first is there.
pub(crate) fn begin(progress: &mut Progress, arrival: &mut Arrival, to: Destination) {
    let (vc, length) = (arrival.vc, arrival.header.length);
    progress.streams.push(Stream { vc, to, seen: arrival.payload.len() as u64, length });
    if let Destination::Receive(row) = to {
        arrival.car = row;
        arrival.state = ArrivalState::Placed;
    }
    progress.pending |= Pending::TRANSFER;
}

const NO_MESSAGE: NotTaken = NotTaken::Wrong("a part of no message");

/// Says where a part goes: its header's origin becomes its first byte's place in the message, its name the length of that.
///
/// # Errors
/// If there is no message that it is a part of.
pub(crate) fn take_part(progress: &mut Progress, arrival: &mut Arrival) -> Result<(), NotTaken> {
    let Some(at) = progress.streams.iter().position(|stream| stream.vc == arrival.vc) else {
        return Err(NO_MESSAGE);
    };
    let stream = &mut progress.streams[at];
    let part = arrival.header.length;
    if part > stream.length - stream.seen {
        return Err(NO_MESSAGE);
    }
    (arrival.header.origin, arrival.header.name) = (stream.seen, stream.length);
    stream.seen += part;
    match stream.to {
        Destination::Receive(row) => (arrival.car, arrival.state) = (row, ArrivalState::Placed),
        Destination::Temporary(entry) => {
            (arrival.car, arrival.state) = (entry, ArrivalState::Unexpected);
            if stream.seen == stream.length {
                progress.unexpected.entries[entry as usize].complete();
            }
            progress.pending |= Pending::SUPPLY;
        }
        Destination::Nobody => {}
    }
    if stream.seen == stream.length {
        progress.streams.swap_remove(at);
    }
    Ok(())
}

/// Moves a part of a message that arrives in parts; with the last one the receive is done.
pub(crate) fn receive_part(progress: &mut Progress, arrival: &Arrival, cars: &mut [Car], at: usize) {
    let row = arrival.car;
    let car = &mut cars[row as usize];
    let moved = if car.chain == NIL {
        // SAFETY: as in `place`.
        unsafe { copy::copy_long(car.span.part(at, usize::MAX), arrival.payload) as u64 }
    } else {
        fill(cars, row, arrival.payload)
    };
    progress.moved.transfer += moved;
    let car = &mut cars[row as usize];
    car.done += moved;
    let length = arrival.header.name;
    if at > 0 && at as u64 + arrival.payload.len() as u64 == length {
        let truncated = car.done < length;
        finish_car(progress, cars, row, length, truncated);
    }
}
