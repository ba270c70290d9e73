//! Moves the bytes of messages to where earlier steps have decided that they go.

#![expect(unsafe_code, reason = "bytes that are addresses")]

use crate::protocols::graph::blocks;
use crate::rows::Rows;
use crate::steps::chain::is_passage;
use crate::steps::finish::{end_plain, finish_car};
use crate::steps::supply::pool;
use tickwire_components::limits::{UNPACKED_BYTES, UNPACKED_MIN};
use tickwire_components::{
    Arrival, ArrivalState, Car, CarState, Destination, Ended, NIL, PartPlace, Progress, Row, Span, Stretch,
};
use tickwire_transports::copy;

/// Copies a whole message into its receive, and ends the receive.
#[inline(always)]
pub(crate) fn receive_whole(rows: &mut Rows<'_>, row: Row, length: u64, payload: Span) {
    let Rows { progress, cars, requests, .. } = rows;
    let car = &mut cars[row as usize];
    if car.chain != NIL || payload.len() > car.span.len() || payload.len() as u64 != length {
        return receive_otherwise(rows, row, length, payload);
    }
    let place = car.span;
    progress.moved.deliver += length;
    car.done = length;
    if !end_plain(progress, car, requests, row) {
        return receive_for_complete(rows, row, length, payload);
    }
    // Last, since it may be a call.
    // SAFETY: the place of a posted receive is the engine's until the application takes it, which comes after this; a payload is
    // there until the transport is told to release it.
    unsafe { copy::copy_whole(place, payload) };
}

/// As [`receive_whole`], for a receive that Complete must end.
#[inline(never)]
fn receive_for_complete(rows: &mut Rows<'_>, row: Row, length: u64, payload: Span) {
    let Rows { progress, cars, .. } = rows;
    // SAFETY: as in `receive_whole`.
    unsafe { copy::copy_whole(cars[row as usize].span, payload) };
    finish_car(progress, cars, row, length, false);
}

/// As [`receive_whole`], for a receive in several runs, with a datatype, or with too little room.
#[cold]
#[inline(never)]
fn receive_otherwise(rows: &mut Rows<'_>, row: Row, length: u64, payload: Span) {
    if is_passage(&rows.cars, row) {
        return blocks::receive_whole(rows, row, length, payload);
    }
    let Rows { progress, cars, .. } = rows;
    let moved = put(cars, row, payload);
    progress.moved.deliver += moved;
    finish_car(progress, cars, row, length, moved < length);
}

/// Copies a payload into its receive. Returns how many bytes there was room for.
#[inline(always)]
pub(crate) fn put(cars: &mut [Car], row: Row, payload: Span) -> u64 {
    let car = &cars[row as usize];
    match car.chain {
        // SAFETY: the place of a posted receive is there until it ends, a payload until the transport is told to release it.
        NIL => unsafe { copy::copy_long(car.span, payload) as u64 },
        _ => fill(cars, row, payload),
    }
}

/// Moves an arrival's payload to its destination.
#[inline]
pub(crate) fn place(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    arrival.state = ArrivalState::Handled;
    let Rows { progress, cars, .. } = rows;
    // The frequent case: a whole message.
    if let (Destination::Receive(row), true) = (arrival.to, arrival.header.is_eager()) {
        let length = arrival.header.length;
        let car = &cars[row as usize];
        if car.chain != NIL {
            return place_chained(rows, arrival, row);
        }
        // SAFETY: as in `put`.
        let moved = unsafe { copy::copy_long(car.span, arrival.payload) as u64 };
        progress.moved.transfer += moved;
        return finish_car(progress, cars, row, length, moved < length);
    }
    place_rest(rows, arrival);
}

/// As [`place`], for a whole message whose receive is in several runs, has a datatype, or is in a graph.
#[cold]
#[inline(never)]
fn place_chained(rows: &mut Rows<'_>, arrival: &Arrival, row: Row) {
    let length = arrival.header.length;
    if is_passage(&rows.cars, row) {
        return blocks::receive_whole(rows, row, length, arrival.payload);
    }
    let Rows { progress, cars, .. } = rows;
    let moved = fill(cars, row, arrival.payload);
    progress.moved.transfer += moved;
    finish_car(progress, cars, row, length, moved < length);
}

/// As [`place`], for unexpected messages that go into temporaries, and for parts and pieces of messages.
#[inline(never)]
pub(crate) fn place_rest(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    let part = arrival.part_place();
    let at = part.map_or(0, |part| part.at as usize);
    let row = match arrival.to {
        Destination::Receive(row) => row,
        Destination::Temporary(buffer) => {
            let storage = pool::span(&mut rows.buffers[buffer as usize]);
            // SAFETY: the row's own storage; a payload is there until the transport is told to release it.
            rows.progress.moved.transfer +=
                unsafe { copy::copy_long(storage.part(at, usize::MAX), arrival.payload) } as u64;
            return;
        }
        Destination::Unexpected(_) | Destination::Nobody => return,
    };
    if part.is_some() || arrival.header.is_head() {
        return place_part(&mut rows.progress, arrival.payload, row, &mut rows.cars, part);
    }
    let car = &mut rows.cars[row as usize];
    if car.state != CarState::Receiving {
        if blocks::place(rows, arrival, row) {
            return;
        }
        return refuse_piece(&mut rows.progress, arrival.vc);
    }
    let missing = rows.large[row as usize].wanted.saturating_sub(car.done);
    if arrival.payload.len() as u64 > missing {
        return refuse_piece(&mut rows.progress, arrival.vc);
    }
    let moved = if car.chain == NIL {
        // SAFETY: as in `place`.
        unsafe { copy::copy_long(car.span.part(car.done as usize, usize::MAX), arrival.payload) as u64 }
    } else {
        fill(&mut rows.cars, row, arrival.payload)
    };
    rows.progress.moved.transfer += moved;
    let car = &mut rows.cars[row as usize];
    car.done += moved;
    let message = rows.large[row as usize];
    if car.done >= message.wanted {
        finish_car(&mut rows.progress, &mut rows.cars, row, message.length, false);
    }
}

/// Refuses a piece behind the end of its message. Match has accepted it in the same pass as pieces before it, which were not counted then.
#[cold]
fn refuse_piece(progress: &mut Progress, vc: Row) {
    progress.end_vc(vc, Ended::Corrupt("a piece behind the end of its message".into()));
}

/// Copies a payload into the data CARs under an envelope, in their order. Returns the bytes that there was room for.
#[cold]
pub(crate) fn fill(cars: &mut [Car], envelope: Row, payload: Span) -> u64 {
    let mut moved = 0;
    let mut row = cars[envelope as usize].chain;
    while moved < payload.len() && row != NIL {
        let car = &mut cars[row as usize];
        let (done, rest) = (car.done as usize, payload.part(moved, usize::MAX));
        let part = match car.stretch() {
            // SAFETY: the place of a posted receive is there until it ends; the payload is its caller's.
            None => unsafe { copy::copy_long(car.span.part(done, usize::MAX), rest) },
            Some(stretch) => unpack(stretch.part(done, usize::MAX), rest),
        };
        car.done += part as u64;
        moved += part;
        if car.done as usize == car.span.len() {
            row = car.chain;
        }
    }
    moved as u64
}

/// Unpacks bytes into a datatype's layout, as far as there is room. A long piece is in main memory. Processors prefetch what they read in
/// order, so such a piece is first copied in order, part by part, into a near buffer, and unpacked from there.
pub(crate) fn unpack(into: Stretch, from: Span) -> usize {
    if from.len() < UNPACKED_MIN {
        // SAFETY: as in `fill`.
        return unsafe { into.unpack(from) };
    }
    let mut near = [0u8; UNPACKED_BYTES];
    let mut moved = 0;
    loop {
        // SAFETY: local bytes, used in this loop only; the others as in `fill`.
        let (there, taken) = unsafe {
            let place = Span::new(near.as_mut_ptr(), UNPACKED_BYTES.min(from.len() - moved));
            let there = copy::copy_long(place, from.part(moved, UNPACKED_BYTES));
            (there, into.part(moved, usize::MAX).unpack(place))
        };
        moved += taken;
        if taken < UNPACKED_BYTES || there < UNPACKED_BYTES {
            return moved;
        }
    }
}

/// Places one part of a message that arrives in parts. The last part ends the receive. The first one, in the frame with the envelope, has
/// no `place`.
fn place_part(progress: &mut Progress, payload: Span, row: Row, cars: &mut [Car], place: Option<PartPlace>) {
    let car = &mut cars[row as usize];
    let moved = if car.chain == NIL {
        let at = place.map_or(0, |part| part.at as usize);
        // SAFETY: as in `place`.
        unsafe { copy::copy_long(car.span.part(at, usize::MAX), payload) as u64 }
    } else {
        fill(cars, row, payload)
    };
    progress.moved.transfer += moved;
    let car = &mut cars[row as usize];
    car.done += moved;
    if let Some(PartPlace { at, length }) = place
        && at + payload.len() as u64 == length
    {
        let truncated = car.done < length;
        finish_car(progress, cars, row, length, truncated);
    }
}
