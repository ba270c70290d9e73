//! Transfer: moves bytes, and only then gives space back.
//!
//! *Reads* arrivals that have a place, receives that were matched with a temporary, sends that were asked for their
//! pieces. *Writes* the application's segments and the temporaries, CARs (done, state), the finished list, the
//! transports (pieces out, space released).
//! *Bound* the arrival rows, the receives matched in this pass, [`READ_TURNS_A_PASS`](tickwire_components::limits::READ_TURNS_A_PASS) times
//! [`READ_BYTES_A_TURN`](tickwire_components::limits::READ_BYTES_A_TURN) bytes out of senders' memory (`reading`), and [`PIECES_A_PASS`] pieces
//! for each VC.
//! *Why* the only system that touches payload; the transports' space is released in one place, after the last use.

#![expect(unsafe_code, reason = "bytes that are addresses")]

mod direct;
mod reading;
mod splicing;

use crate::complete::abort;
use crate::credits::{due, owe_lines};
use crate::endpoint::Endpoint;
use crate::posting::layout;
use crate::priorities::{REFUSED, is_fair_turn, settle_head, turn};
use crate::rows::{Rows, Wire};
use crate::supply_buffers::give_buffer;
use direct::move_direct;
pub(crate) use direct::moved;
pub(crate) use reading::read_messages;
use smallvec::SmallVec;
pub(crate) use splicing::{ask_splice, splice_messages};
use std::any::Any;
use tickwire_components::limits::{PACKED_PAST_MIN, PAGE_BYTES};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Arrival, ArrivalState, Buffer, Car, CarState, Ended, NIL, Pending, Pieces, Progress, Queue, Row, Span, Stretch, Vc,
    VcState, car_flags,
};
use tickwire_transports::{Frame, Sent, copy};

/// Pieces that one pass sends for one VC at most: a ring's worth, so that neither side waits for the other.
pub const PIECES_A_PASS: usize = 8;

/// The system.
#[inline]
pub fn transfer(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    let Wire { endpoints, arrivals } = wire;
    let progress = &mut *rows.progress;
    progress.turns = progress.turns.wrapping_add(u32::from(progress.urgent));
    if !rows.progress.copies.is_empty() {
        receive_copies(rows);
    }
    if !rows.progress.reads.is_empty() {
        read_messages(rows, endpoints);
    }
    if !rows.progress.splices.is_empty() {
        splice_messages(rows, endpoints);
    }
    let count = std::mem::take(&mut rows.progress.arrivals) as usize;
    for arrival in &mut arrivals[..count] {
        if arrival.state == ArrivalState::Placed {
            place(rows, arrival);
        }
    }
    if count > 0 {
        for endpoint in endpoints.iter_mut() {
            endpoint.transport.get().release();
        }
    }
    if !rows.progress.senders.is_empty() {
        send_pieces(rows, endpoints);
    }
}

/// Moves an arrival's payload to where it was decided to go.
#[inline]
fn place(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    arrival.state = ArrivalState::Handled;
    if arrival.header.lead as u8 == Kind::Eager as u8
        && arrival.buffer == NIL
        && rows.cars[arrival.car as usize].chain == NIL
    {
        // The frequent case: a whole message into one segment.
        let length = arrival.header.length;
        // SAFETY: the place of a posted receive is there until it ends, a payload until the transport is told to release it.
        let moved = unsafe { copy::copy_long(rows.cars[arrival.car as usize].span, arrival.payload) } as u64;
        rows.progress.moved.transfer += moved;
        return finish(&mut rows.progress, &mut rows.cars, arrival.car, length, moved < length);
    }
    place_rest(rows, arrival);
}

/// As [`place`]: temporaries, pieces, and receives of several segments.
#[inline(never)]
fn place_rest(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    let part = arrival.header.kind() == Some(Kind::Part);
    // Match has put it there.
    let at = if part { arrival.header.origin as usize } else { 0 };
    if arrival.buffer != NIL {
        let storage = buffer_span(&mut rows.buffers[arrival.buffer as usize]);
        // SAFETY: the row's own storage; a payload is there until the transport is told to release it.
        rows.progress.moved.transfer +=
            unsafe { copy::copy_long(storage.part(at, usize::MAX), arrival.payload) } as u64;
        return;
    }
    let row = arrival.car;
    if arrival.header.kind() == Some(Kind::Eager) {
        let length = arrival.header.length;
        let moved = fill(&mut rows.cars, row, arrival.payload);
        rows.progress.moved.transfer += moved;
        finish(&mut rows.progress, &mut rows.cars, row, length, moved < length);
        return;
    }
    if part || arrival.header.kind() == Some(Kind::Head) {
        return place_part(&mut rows.progress, arrival, &mut rows.cars, at);
    }
    let car = &mut rows.cars[row as usize];
    if car.state != CarState::Receiving {
        // Match saw it beside the one that has ended the message.
        rows.progress.ended.push((arrival.vc, Ended::Corrupt("a piece behind the end of its message".into())));
        rows.progress.pending |= Pending::WORLD;
        return;
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
        finish(&mut rows.progress, &mut rows.cars, row, message.length, false);
    }
}

/// Moves a part of a message that arrives in parts; with the last one the receive is done.
fn place_part(progress: &mut Progress, arrival: &Arrival, cars: &mut [Car], at: usize) {
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
        finish(progress, cars, row, length, truncated);
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

/// Bytes of a long piece that are unpacked at a time.
const UNPACKED_BYTES: usize = 4096;
/// Shortest piece that is: shorter ones are in a cache, if in another processor's.
const UNPACKED_MIN: usize = PACKED_PAST_MIN;

/// Fills as much of a layout as there is. A long piece is in memory, of which a processor reads ahead what it reads in order:
/// it is taken from there part by part.
fn unpack(into: Stretch, from: Span) -> usize {
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

/// The bytes of a temporary.
fn buffer_span(buffer: &mut Buffer) -> Span {
    // SAFETY: the storage is the row's own, used for a copy that ends before anything else touches the row.
    unsafe { Span::new(buffer.bytes().as_mut_ptr(), buffer.length as usize) }
}

/// Receives whose message was unexpected and is in a temporary.
#[cold]
fn receive_copies(rows: &mut Rows<'_>) {
    while let Some(row) = rows.progress.copies.pop(&mut rows.cars) {
        let car = &mut rows.cars[row as usize];
        // Of a message whose rest is still to come, what is there.
        let (length, buffer, taken_over) = (car.done, car.peer, car.state == CarState::Receiving);
        let vc_row = car.vc;
        car.done = 0;
        let mut moved = 0;
        if buffer != NIL {
            let payload = buffer_span(&mut rows.buffers[buffer as usize]);
            owe_lines(&mut rows.progress, &mut rows.vcs, vc_row, payload.len() as u64);
            let payload = payload.part(0, length as usize);
            rows.progress.kept_copied += payload.len() as u64;
            let car = &rows.cars[row as usize];
            moved = match car.chain {
                // SAFETY: the place of a posted receive is there until it ends; the row's own storage.
                NIL => unsafe { copy::copy_long(car.span, payload) as u64 },
                _ => fill(&mut rows.cars, row, payload),
            };
            rows.progress.moved.transfer += moved;
            give_buffer(&mut rows.progress, &mut rows.buffers, buffer);
        } else {
            owe_lines(&mut rows.progress, &mut rows.vcs, vc_row, 0);
        }
        if rows.cars[row as usize].flags & car_flags::PEER_FAILED != 0 {
            abort(&mut rows.progress, &mut rows.cars, row, car_flags::PEER_FAILED);
            continue;
        }
        if taken_over {
            rows.cars[row as usize].done = moved;
            continue;
        }
        finish(&mut rows.progress, &mut rows.cars, row, length, moved < length);
    }
}

/// Sends pieces of the large messages that were asked for, and forgets VCs that have nothing to send.
#[cold]
fn send_pieces(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    let mut senders = std::mem::replace(&mut rows.progress.senders, Queue::EMPTY);
    while let Some(vc_row) = senders.pop(&mut rows.vcs) {
        let Vc { state, data, endpoint, .. } = rows.vcs[vc_row as usize];
        if state == VcState::Connected
            && !data.is_empty()
            && send_vc_pieces(rows, &mut endpoints[endpoint as usize], vc_row).is_err()
        {
            rows.progress.ended.push((vc_row, Ended::Link("the transport reports a failed link".into())));
            rows.progress.pending |= Pending::WORLD;
            rows.vcs[vc_row as usize].listed = false;
            continue;
        }
        let Rows { progress, vcs, .. } = rows;
        let vc = &mut vcs[vc_row as usize];
        if vc.state == VcState::Connected
            && !(vc.data.is_empty()
                && vc.sends.is_empty()
                && progress.replies.is_empty()
                && due(progress, vc, vc_row, false).is_none())
        {
            progress.senders.push(vcs, vc_row);
        } else {
            vc.listed = false;
        }
    }
}

fn send_vc_pieces(rows: &mut Rows<'_>, endpoint: &mut Endpoint, vc_row: Row) -> Result<(), ()> {
    let Rows { progress, cars, large, vcs, row_states, .. } = rows;
    let vc = &mut vcs[vc_row as usize];
    let mut left = PIECES_A_PASS;
    let mut turned = is_fair_turn(progress);
    if turned {
        turn(&mut vc.data, cars);
    }
    while left > 0 && !vc.data.is_empty() {
        // An envelope that was refused while a frame had gone in part goes before the next frame, or it never would.
        if endpoint.rows.is_some() && envelope_waits(progress, cars, vc) {
            progress.pending |= Pending::POST;
            break;
        }
        // One that a transport may have had a part of goes on by one frame.
        let begun = progress.urgent && cars[vc.data.head as usize].counter == REFUSED;
        let most = if turned || begun { 1 } else { left };
        if progress.urgent && !std::mem::take(&mut turned) {
            settle_head(&mut vc.data, cars);
        }
        let row = vc.data.head;
        let wanted = large[row as usize].wanted;
        if large[row as usize].is_direct() {
            move_direct(progress, cars, vc, endpoint, row, &large[row as usize])?;
            left -= 1;
            continue;
        }
        let state = endpoint.rows.and_then(|states| row_states.get(states, row));
        let (sent, moved, outcome) = match layout(cars, row) {
            None => {
                let piece_bytes = endpoint.fits(vc.link, endpoint.piece_bytes.min(wanted - cars[row as usize].done));
                let frames = pieces(cars, row, wanted, piece_bytes, most);
                left -= frames.len();
                // SAFETY: the bytes of a posted send are there until it ends.
                let (sent, outcome) = unsafe { endpoint.transport.get().send_batch(vc.link, &frames, state) };
                (sent, frames[..sent].iter().map(|f| f.header.length).sum::<u64>(), outcome)
            }
            Some(stretch) => {
                left -= 1;
                send_stretch(&cars[row as usize], stretch, wanted, vc.link, endpoint, state)
            }
        };
        progress.work.sent += sent as u32;
        progress.moved.transfer += moved;
        let car = &mut cars[row as usize];
        car.done += moved;
        if endpoint.rows.is_some() {
            car.counter = if outcome == Sent::Blocked { REFUSED } else { 0 };
        }
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

/// Whether a VC's next envelope or a reply was refused by its transport, and no piece has begun that must be finished first.
fn envelope_waits(progress: &Progress, cars: &[Car], vc: &Vc) -> bool {
    let head = &cars[vc.data.head as usize];
    if head.counter == REFUSED {
        return false;
    }
    let refused = |car: &Car| car.flags & car_flags::STARTED != 0;
    let mut reply = progress.replies.head;
    while let Some(car) = cars.get(reply as usize) {
        if car.vc == head.vc && refused(car) {
            return true;
        }
        reply = car.next;
    }
    cars.get(vc.sends.head as usize).is_some_and(refused)
}

/// A part of a message that has a layout, for as long as a call lasts. A stretch itself is no buffer: whoever has one could
/// post it after its segment is gone.
struct Scattered(Stretch);

// SAFETY: a stretch's address does not depend on where this is, and its segment outlives the call.
unsafe impl Pieces for Scattered {
    fn pieces(&self) -> usize {
        0
    }

    fn piece(&self, _index: usize) -> Span {
        Span::EMPTY
    }

    fn total(&self) -> usize {
        self.0.len()
    }

    fn layout(&self) -> Option<Stretch> {
        Some(self.0)
    }
}

/// Sends the next piece of a message that has a layout, packed where the transport wants it. Returns how many pieces and
/// bytes have gone, and what became of it.
fn send_stretch(
    envelope: &Car,
    stretch: Stretch,
    wanted: u64,
    link: u32,
    endpoint: &mut Endpoint,
    state: Option<&mut dyn Any>,
) -> (usize, u64, Sent) {
    // Of few pieces through a ring each is shorter, so that the receiver begins sooner.
    let few = endpoint.cheap_poll && wanted < 8 * endpoint.piece_bytes && endpoint.piece_bytes >= 2 * PAGE_BYTES as u64;
    let most = if few { endpoint.piece_bytes / 2 } else { endpoint.piece_bytes };
    let most = endpoint.fits(link, most.min(wanted - envelope.done));
    let piece = stretch.part(envelope.done as usize, most as usize);
    let length = piece.len() as u64;
    let header = Header::new(Kind::Piece, envelope.context, 0, 0, envelope.peer, length);
    match endpoint.transport.get().send(link, &header, &Scattered(piece), state) {
        Sent::Done => (1, length, Sent::Done),
        outcome => (0, 0, outcome),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posting::activate;
    use crate::supply_buffers::take_buffer;
    use crate::testing::{Posted, TestWorld};
    use tickwire_components::{Datatype, Large, Typed};

    /// A world of two procs that are connected, and the VC of the other one.
    pub(super) fn world() -> (TestWorld, Row) {
        let mut world = TestWorld::new(2);
        let vc = world.contact(1, VcState::Connected);
        (world, vc)
    }

    pub(super) fn numbers(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 7 + 3) as u8).collect()
    }

    /// An eager message that Match has paired with a receive.
    fn paired(world: &mut TestWorld, vc: Row, posted: Posted, bytes: &[u8]) -> Row {
        let row = world.arrive(vc, Header::new(Kind::Eager, 0, 1, 5, 0, bytes.len() as u64), bytes);
        let all = world.all();
        let queued = all.vcs[vc as usize].posted.remove(all.cars, posted.car);
        assert!(queued, "the receive was posted");
        all.cars[posted.car as usize].state = CarState::Matched;
        (all.arrivals[row as usize].car, all.arrivals[row as usize].state) = (posted.car, ArrivalState::Placed);
        row
    }

    /// A receive that has answered an offer of so many bytes.
    pub(super) fn receiving(world: &mut TestWorld, vc: Row, lengths: &[usize], length: u64) -> Posted {
        let posted = world.receive(Some(1), Some(5), lengths);
        let all = world.all();
        all.vcs[vc as usize].posted.remove(all.cars, posted.car);
        all.cars[posted.car as usize].state = CarState::Receiving;
        let wanted = length.min(lengths.iter().sum::<usize>() as u64);
        all.large[posted.car as usize] = Large { length, wanted, address: 0 };
        posted
    }

    pub(super) fn piece(world: &mut TestWorld, vc: Row, posted: Posted, bytes: &[u8]) {
        let row = world.arrive(vc, Header::new(Kind::Piece, 0, 0, 0, posted.car, bytes.len() as u64), bytes);
        let arrival = &mut world.all().arrivals[row as usize];
        (arrival.car, arrival.state) = (posted.car, ArrivalState::Placed);
    }

    /// A send that was asked for `wanted` of its bytes by CAR 33 of the peer.
    fn sending(world: &mut TestWorld, vc: Row, pieces: &[&[u8]], wanted: u64) -> Posted {
        let posted = world.send(1, 5, pieces);
        let all = world.all();
        all.vcs[vc as usize].sends.remove(all.cars, posted.car);
        let car = &mut all.cars[posted.car as usize];
        (car.state, car.peer, car.done) = (CarState::Sending, 33, 0);
        all.large[posted.car as usize].wanted = wanted;
        all.vcs[vc as usize].data.push(all.cars, posted.car);
        posted
    }

    /// Puts every second byte of so many in the place of an operation's runs.
    fn every_second(world: &mut TestWorld, posted: Posted, bytes: Vec<u8>) -> Typed<Vec<u8>> {
        let of = Datatype::vector(bytes.len() / 2, 1, 2, &Datatype::of::<u8>()).unwrap();
        let typed = Typed::new(bytes, &of, 1).unwrap();
        let (all, row) = (world.all(), posted.car);
        let car = all.cars[row as usize];
        // SAFETY: the caller keeps the buffer.
        assert!(unsafe { activate(all.progress, all.cars, all.requests, &typed, car, row) });
        typed
    }

    #[test]
    fn layouts_are_packed_and_filled_piece_by_piece() {
        let (mut world, vc) = world();
        let all = numbers(80_000);
        let packed: Vec<u8> = all.iter().copied().step_by(2).collect();
        let outgoing = sending(&mut world, vc, &[&[0; 40_000]], 39_999);
        let typed = every_second(&mut world, outgoing, all);
        world.step(transfer);
        let sent = world.wire().sent.clone();
        let lengths: Vec<_> = sent.iter().map(|frame| frame.payload.len()).collect();
        assert_eq!(lengths, [16 << 10, 16 << 10, 39_999 - (32 << 10)], "few are short");
        assert!(sent.iter().flat_map(|frame| &frame.payload).eq(&packed[..39_999]));
        assert_eq!(world.finished(), [outgoing.car]);
        drop(typed);

        let incoming = receiving(&mut world, vc, &[40_000], 40_000);
        let typed = every_second(&mut world, incoming, vec![0xEE; 80_000]);
        for part in packed.chunks(9001) {
            piece(&mut world, vc, incoming, part);
        }
        world.step(transfer);
        assert_eq!(world.finished(), [outgoing.car, incoming.car]);
        let bytes = typed.into_buffer();
        assert!(bytes.iter().step_by(2).eq(&packed) && bytes.iter().skip(1).step_by(2).all(|&byte| byte == 0xEE));
    }

    #[test]
    fn long_layouts_go_in_long_pieces_and_these_are_unpacked_part_by_part() {
        let (mut world, vc) = world();
        let all = numbers(600_000);
        let packed: Vec<u8> = all.iter().copied().step_by(2).collect();
        let outgoing = sending(&mut world, vc, &[&[0; 300_000]], 300_000);
        let typed = every_second(&mut world, outgoing, all);
        while world.finished().is_empty() {
            world.step(transfer);
        }
        let sent = world.wire().sent.clone();
        assert!(sent[..9].iter().all(|frame| frame.payload.len() == 32 << 10) && sent.len() == 10);
        assert!(sent.iter().flat_map(|frame| &frame.payload).eq(&packed));
        drop(typed);
        for (place, pieces) in [(300_000, 32 << 10), (40_000, 40_000), (36_865, 36_864), (36_863, 36_863)] {
            let incoming = receiving(&mut world, vc, &[place], place as u64);
            let typed = every_second(&mut world, incoming, vec![0xEE; 2 * place]);
            for part in packed[..place].chunks(pieces) {
                piece(&mut world, vc, incoming, part);
                world.step(transfer);
            }
            assert_eq!(world.finished().last(), Some(&incoming.car));
            let bytes = typed.into_buffer();
            assert!(bytes.iter().step_by(2).eq(&packed[..place]), "{place} bytes in pieces of {pieces}");
            assert!(bytes.iter().skip(1).step_by(2).all(|&byte| byte == 0xEE));
        }
    }

    #[test]
    fn a_layout_that_was_taken_away_takes_nothing() {
        let (mut world, vc) = world();
        let posted = world.receive(Some(1), Some(5), &[4]);
        drop(every_second(&mut world, posted, vec![0; 8]));
        let data = world.car(posted).chain;
        world.all().cars[data as usize].span = Span::EMPTY;
        paired(&mut world, vc, posted, b"abcd");
        world.step(transfer);
        assert_eq!(world.finished(), [posted.car]);
        assert_eq!(world.car(posted).flags, car_flags::TRUNCATED);
    }

    #[test]
    fn eager_payloads_go_to_their_receives() {
        let (mut world, vc) = world();
        let exact = world.receive(Some(1), Some(5), &[100]);
        let longer = world.receive(Some(1), Some(5), &[200]);
        let short = world.receive(Some(1), Some(5), &[60]);
        for posted in [exact, longer, short] {
            paired(&mut world, vc, posted, &numbers(100));
        }
        world.step(transfer);
        assert_eq!(world.bytes(exact), numbers(100));
        assert_eq!(world.bytes(longer), [numbers(100), vec![0xEE; 100]].concat());
        assert_eq!(world.bytes(short), numbers(60));
        assert_eq!(world.finished(), [exact.car, longer.car, short.car]);
        let found = [exact, longer, short].map(|p| (world.car(p).done, world.car(p).flags));
        assert_eq!(found, [(100, 0), (100, 0), (100, car_flags::TRUNCATED)]);
        assert_eq!(world.wire().releases, 1);
        assert_eq!(world.all().progress.arrivals, 0);
    }

    #[test]
    fn an_envelope_with_three_data_cars_is_filled_in_order() {
        let (mut world, vc) = world();
        let eager = world.receive(Some(1), Some(5), &[30, 0, 70]);
        paired(&mut world, vc, eager, &numbers(80));
        let large = receiving(&mut world, vc, &[10, 0, 90], 100);
        for part in numbers(100).chunks(32) {
            piece(&mut world, vc, large, part);
        }
        let short = receiving(&mut world, vc, &[10, 20, 30], 500);
        piece(&mut world, vc, short, &numbers(60));
        world.step(transfer);
        assert_eq!(world.bytes(eager), [numbers(80), vec![0xEE; 20]].concat());
        assert_eq!(world.bytes(large), numbers(100));
        assert_eq!(world.bytes(short), numbers(60));
        assert_eq!(world.finished(), [eager.car, large.car, short.car]);
        assert_eq!([eager, large, short].map(|p| world.car(p).done), [80, 100, 500]);
    }

    #[test]
    fn a_large_receive_is_done_with_its_last_piece() {
        let (mut world, vc) = world();
        let posted = receiving(&mut world, vc, &[100], 100);
        piece(&mut world, vc, posted, &numbers(60));
        world.step(transfer);
        assert!(world.finished().is_empty() && world.car(posted).done == 60);
        piece(&mut world, vc, posted, &numbers(100)[60..]);
        world.step(transfer);
        assert_eq!((world.finished(), world.bytes(posted)), (vec![posted.car], numbers(100)));
    }

    #[test]
    fn a_piece_behind_the_end_of_its_message_ends_the_vc_and_completes_nothing_twice() {
        let (mut world, vc) = world();
        let posted = receiving(&mut world, vc, &[100], 100);
        for _ in 0..2 {
            piece(&mut world, vc, posted, &numbers(100));
        }
        world.step(transfer);
        assert_eq!(world.finished(), [posted.car]);
        assert!(matches!(world.take_ended()[..], [(row, Ended::Corrupt(_))] if row == vc));
    }

    #[test]
    fn unexpected_payloads_wait_in_temporaries_and_these_are_used_again() {
        let (mut world, vc) = world();
        let free = world.free_buffers();
        let row = world.arrive(vc, Header::new(Kind::Eager, 0, 1, 5, 0, 50), &numbers(50));
        let all = world.all();
        let buffer = take_buffer(all.progress, all.buffers, 50).unwrap();
        let arrival = &mut all.arrivals[row as usize];
        (arrival.buffer, arrival.state) = (buffer, ArrivalState::Placed);
        world.step(transfer);
        assert_eq!(world.all().buffers[buffer as usize].bytes()[..50], numbers(50));
        assert_eq!(world.wire().releases, 1);

        let posted = world.receive(Some(1), Some(5), &[20, 20]);
        let all = world.all();
        all.vcs[vc as usize].posted.remove(all.cars, posted.car);
        let car = &mut all.cars[posted.car as usize];
        (car.state, car.peer, car.done) = (CarState::Matched, buffer, 50);
        all.progress.copies.push(all.cars, posted.car);
        world.step(transfer);
        assert_eq!((world.bytes(posted), world.car(posted).flags), (numbers(40), car_flags::TRUNCATED));
        assert_eq!((world.finished(), world.car(posted).done), (vec![posted.car], 50));
        assert_eq!(world.free_buffers(), free);
        assert_eq!(world.wire().releases, 1, "nothing of the transport was used");
    }

    #[test]
    fn pieces_span_no_two_data_cars_and_end_at_what_is_wanted() {
        let (mut world, vc) = world();
        let bytes = numbers(70_000);
        let posted = sending(&mut world, vc, &[&bytes[..40_000], &[], &bytes[40_000..]], 60_000);
        world.all().progress.senders = Queue { head: vc, tail: vc };
        world.step(transfer);
        let sent = world.wire().sent.clone();
        let lengths: Vec<usize> = sent.iter().map(|frame| frame.payload.len()).collect();
        assert_eq!(lengths, [32 << 10, 40_000 - (32 << 10), 20_000]);
        assert_eq!(sent.iter().flat_map(|frame| frame.payload.clone()).collect::<Vec<u8>>(), bytes[..60_000]);
        assert!(sent.iter().all(|f| f.header.kind() == Some(Kind::Piece) && f.header.message() == 33 && f.link == 1));
        assert_eq!((world.finished(), world.car(posted).done), (vec![posted.car], 70_000));
        assert!(world.vc(vc).data.is_empty() && !world.vc(vc).listed);
    }

    #[test]
    fn a_blocked_transport_is_driven_again_from_where_it_stopped() {
        let (mut world, vc) = world();
        let bytes = numbers(100_000);
        let posted = sending(&mut world, vc, &[&bytes], 100_000);
        world.all().progress.senders = Queue { head: vc, tail: vc };
        world.wire().room = Some(2);
        for _ in 0..3 {
            world.step(transfer);
        }
        assert_eq!(world.wire().sent.len(), 2);
        assert_eq!((world.finished().len(), world.car(posted).done), (0, 64 << 10));
        assert_eq!(world.all().progress.senders.head, vc, "it stays in the list");
        world.wire().room = None;
        world.step(transfer);
        let sent: Vec<u8> = world.wire().sent.iter().flat_map(|frame| frame.payload.clone()).collect();
        assert_eq!((sent, world.finished()), (bytes, vec![posted.car]));
        let refusals: Vec<u32> = world.wire().sent.iter().map(|frame| frame.refusals).collect();
        assert_eq!(refusals, [0, 0, 3, 0], "the CAR's row state goes with its pieces");
    }

    #[test]
    fn one_pass_sends_a_bounded_number_of_pieces_for_a_vc() {
        let (mut world, vc) = world();
        let bytes = numbers((PIECES_A_PASS + 3) * (32 << 10));
        sending(&mut world, vc, &[&bytes], bytes.len() as u64);
        world.all().progress.senders = Queue { head: vc, tail: vc };
        world.step(transfer);
        assert_eq!(world.wire().sent.len(), PIECES_A_PASS);
        assert!(world.all().progress.pending.has(Pending::TRANSFER));
        world.step(transfer);
        assert_eq!(world.wire().sent.len(), PIECES_A_PASS + 3);
    }

    #[test]
    fn a_failed_link_ends_its_vc() {
        let (mut world, vc) = world();
        sending(&mut world, vc, &[&numbers(10_000)], 10_000);
        world.all().progress.senders = Queue { head: vc, tail: vc };
        world.wire().broken.push(1);
        world.step(transfer);
        assert!(matches!(world.take_ended()[..], [(row, Ended::Link(_))] if row == vc));
        assert!(world.finished().is_empty() && world.all().progress.senders.is_empty());
    }
}
