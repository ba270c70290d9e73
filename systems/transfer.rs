//! Transfer: moves bytes, and only then gives space back.
//!
//! *Reads* arrivals that have a place, receives that were matched with a temporary, sends that were asked for their
//! pieces. *Writes* the application's segments and the temporaries, CARs (done, state), the finished list, the
//! transports (pieces out, space released).
//! *Bound* the arrival rows, the receives matched in this pass, and [`PIECES_A_PASS`] pieces for each VC.
//! *Why* the only system that touches payload; the transports' space is released in one place, after the last use.

use crate::endpoint::Endpoint;
use crate::supply_buffers::give_buffer;
use crate::tables::TransferTables;
use smallvec::SmallVec;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Arrival, ArrivalState, Buffer, Car, CarState, Ended, Large, NIL, Pending, Progress, Queue, Row, Span, Vc, VcState,
    car_flags,
};
use tickwire_transports::{Frame, Sent, copy};

/// Pieces that one pass sends for one VC at most: a ring's worth, so that neither side waits for the other.
pub const PIECES_A_PASS: usize = 8;

/// The system.
#[inline]
pub fn transfer(tables: TransferTables) {
    let TransferTables { progress, arrivals, cars, large, buffers, vcs, endpoints } = tables;
    if !progress.copies.is_empty() {
        receive_copies(progress, cars, buffers);
    }
    let count = std::mem::take(&mut progress.arrivals) as usize;
    for arrival in &mut arrivals[..count] {
        if arrival.state == ArrivalState::Placed {
            place(progress, arrival, cars, large, buffers);
        }
    }
    if count > 0 {
        for endpoint in endpoints.iter_mut() {
            endpoint.transport.get().release();
        }
    }
    if !progress.senders.is_empty() {
        send_pieces(progress, cars, large, vcs, endpoints);
    }
}

/// Moves an arrival's payload to where it was decided to go.
#[inline]
fn place(
    progress: &mut Progress,
    arrival: &mut Arrival,
    cars: &mut [Car],
    large: &mut [Large],
    buffers: &mut [Buffer],
) {
    arrival.state = ArrivalState::Handled;
    if arrival.buffer != NIL {
        copy::copy(buffer_span(&mut buffers[arrival.buffer as usize]), arrival.payload);
        return;
    }
    let row = arrival.car;
    let car = &mut cars[row as usize];
    if arrival.header.kind() == Some(Kind::Eager) {
        let length = arrival.header.length;
        let moved = if car.chain == NIL { copy::copy(car.span, arrival.payload) as u64 } else { fill(cars, row, arrival.payload) };
        finish(progress, cars, row, length, moved < length);
        return;
    }
    let moved = if car.chain == NIL {
        copy::copy(car.span.part(car.done as usize, usize::MAX), arrival.payload) as u64
    } else {
        fill(cars, row, arrival.payload)
    };
    let car = &mut cars[row as usize];
    car.done += moved;
    let large = large[row as usize];
    if car.done >= large.wanted {
        finish(progress, cars, row, large.length, false);
    }
}

/// A CAR is done: on to Complete with the length of its message.
#[inline(always)]
fn finish(progress: &mut Progress, cars: &mut [Car], row: Row, length: u64, truncated: bool) {
    let car = &mut cars[row as usize];
    car.done = length;
    car.state = CarState::Finished;
    if truncated {
        car.flags |= car_flags::TRUNCATED;
    }
    progress.finished.push(cars, row);
    progress.pending |= Pending::COMPLETE;
}

/// Fills the data CARs under an envelope in their order; returns the bytes that found a place.
fn fill(cars: &mut [Car], envelope: Row, payload: Span) -> u64 {
    let mut moved = 0;
    let mut row = cars[envelope as usize].chain;
    while moved < payload.len() && row != NIL {
        let car = &mut cars[row as usize];
        let part = copy::copy(car.span.part(car.done as usize, usize::MAX), payload.part(moved, usize::MAX));
        car.done += part as u64;
        moved += part;
        if car.done as usize == car.span.len() {
            row = car.chain;
        }
    }
    moved as u64
}

/// The bytes of a temporary.
#[expect(unsafe_code, reason = "the pool lends its own storage for one copy")]
fn buffer_span(buffer: &mut Buffer) -> Span {
    // SAFETY: the storage is the row's own, used for a copy that ends before anything else touches the row.
    unsafe { Span::new(buffer.bytes.as_mut_ptr(), buffer.length as usize) }
}

/// Receives whose message was unexpected and is in a temporary.
#[cold]
fn receive_copies(progress: &mut Progress, cars: &mut [Car], buffers: &mut [Buffer]) {
    while let Some(row) = progress.copies.pop(cars) {
        let car = &mut cars[row as usize];
        let (length, buffer) = (car.done, car.peer);
        car.done = 0;
        let mut moved = 0;
        if buffer != NIL {
            let payload = buffer_span(&mut buffers[buffer as usize]);
            let car = &cars[row as usize];
            moved = if car.chain == NIL { copy::copy(car.span, payload) as u64 } else { fill(cars, row, payload) };
            give_buffer(progress, buffers, buffer);
        }
        finish(progress, cars, row, length, moved < length);
    }
}

/// Sends pieces of the large messages that were asked for, and forgets VCs that have nothing to send.
#[cold]
fn send_pieces(
    progress: &mut Progress,
    cars: &mut [Car],
    large: &mut [Large],
    vcs: &mut [Vc],
    endpoints: &mut [Endpoint],
) {
    let mut senders = std::mem::replace(&mut progress.senders, Queue::EMPTY);
    while let Some(vc_row) = senders.pop(vcs) {
        let vc = &mut vcs[vc_row as usize];
        if vc.state == VcState::Connected && !vc.data.is_empty() {
            let endpoint = &mut endpoints[vc.endpoint as usize];
            if let Err(()) = send_vc_pieces(progress, cars, large, vc, endpoint) {
                progress.ended.push((vc_row, Ended::Link("the transport reports a failed link".into())));
                progress.pending |= Pending::WORLD;
                vc.listed = false;
                continue;
            }
        }
        let vc = &mut vcs[vc_row as usize];
        if vc.state == VcState::Connected && !(vc.data.is_empty() && vc.sends.is_empty()) {
            progress.senders.push(vcs, vc_row);
        } else {
            vc.listed = false;
        }
    }
}

fn send_vc_pieces(
    progress: &mut Progress,
    cars: &mut [Car],
    large: &mut [Large],
    vc: &mut Vc,
    endpoint: &mut Endpoint,
) -> Result<(), ()> {
    let mut left = PIECES_A_PASS;
    while left > 0 && !vc.data.is_empty() {
        let row = vc.data.head;
        let wanted = large[row as usize].wanted;
        let frames = pieces(cars, row, wanted, endpoint.piece_bytes, left);
        left -= frames.len();
        let (sent, outcome) = endpoint.transport.get().send_batch(vc.link, &frames, None);
        progress.work.sent += sent as u32;
        let moved: u64 = frames[..sent].iter().map(|f| f.header.length).sum();
        let car = &mut cars[row as usize];
        car.done += moved;
        if car.done == wanted {
            vc.data.pop(cars);
            finish(progress, cars, row, large[row as usize].length, false);
        }
        match outcome {
            Sent::Done => {}
            Sent::Blocked => return Ok(()),
            Sent::Failed => return Err(()),
        }
    }
    if !vc.data.is_empty() {
        progress.pending |= Pending::TRANSFER;
    }
    Ok(())
}

/// The next pieces of a message, from `done` on: none spans two data CARs.
fn pieces(cars: &[Car], row: Row, wanted: u64, piece_bytes: u64, most: usize) -> SmallVec<[Frame; PIECES_A_PASS]> {
    let envelope = &cars[row as usize];
    let mut frames = SmallVec::new();
    let (mut done, mut data) = (envelope.done, row);
    // Where `done` stands in the chain.
    let mut before = 0;
    if envelope.chain != NIL {
        data = envelope.chain;
        while data != NIL && before + cars[data as usize].span.len() as u64 <= done {
            before += cars[data as usize].span.len() as u64;
            data = cars[data as usize].chain;
        }
    }
    while frames.len() < most && done < wanted && data != NIL {
        let span = cars[data as usize].span;
        let payload = span.part((done - before) as usize, piece_bytes.min(wanted - done) as usize);
        let header = Header::new(Kind::Piece, envelope.context, 0, 0, envelope.peer, payload.len() as u64);
        if !payload.is_empty() {
            frames.push(Frame { header, payload });
        }
        done += payload.len() as u64;
        if done - before == span.len() as u64 {
            before = done;
            data = cars[data as usize].chain;
        }
    }
    frames
}
