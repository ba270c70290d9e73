//! Pieces: the bytes of an offered message, which are sent in several frames once the receiver has asked for them (CTS).

#![expect(unsafe_code, reason = "bytes that are addresses")]

use crate::procs::endpoint::Endpoint;
use crate::procs::priorities::{is_fair_turn, put_behind, reinsert_head, turn};
use crate::protocols::direct::move_direct;
use crate::protocols::graph::blocks;
use crate::protocols::graph::passing::{Sender, Turn};
use crate::rows::Rows;
use crate::steps::chain::layout;
use crate::steps::check::{LINK_FAILED, NotTaken};
use crate::steps::credit::due;
use crate::steps::finish::finish_car;
use smallvec::SmallVec;
use std::any::Any;
use tickwire_components::limits::{PAGE_BYTES, PIECES_A_PASS};
use tickwire_components::wire::Header;
use tickwire_components::{
    Arrival, ArrivalState, Car, CarState, Destination, Ended, Large, NIL, Pending, Pieces, Progress, Queue, Row, Span,
    Stretch, Vc, VcState, car_flags,
};
use tickwire_transports::{Frame, Sent};

/// Takes a piece for the receive that has asked for it.
///
/// # Errors
/// If the receive expects no piece, or fewer bytes.
pub(crate) fn take(rows: &mut Rows<'_>, arrival: &mut Arrival) -> Result<(), NotTaken> {
    let (row, length) = (arrival.header.message(), arrival.header.length);
    match rows.cars.get(row as usize) {
        Some(car) if car.state == CarState::Receiving && car.vc == arrival.vc => {
            if length > rows.large[row as usize].wanted.saturating_sub(car.done) {
                return Err(NotTaken::Wrong("a piece longer than what is missing"));
            }
            (arrival.to, arrival.state) = (Destination::Receive(row), ArrivalState::Placed);
            Ok(())
        }
        _ => blocks::take_piece(rows, arrival),
    }
}

/// Sends pieces of the large messages that were asked for, and removes VCs that have nothing to send from the list of senders.
#[cold]
pub(crate) fn send_pieces(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    let mut senders = std::mem::replace(&mut rows.progress.senders, Queue::EMPTY);
    while let Some(vc_row) = senders.pop(&mut rows.vcs) {
        let Vc { state, data, endpoint, .. } = rows.vcs[vc_row as usize];
        if state == VcState::Connected
            && !data.is_empty()
            && send_vc_pieces(rows, &mut endpoints[endpoint as usize], vc_row).is_err()
        {
            rows.progress.end_vc(vc_row, Ended::Link(LINK_FAILED.into()));
            rows.vcs[vc_row as usize].listed = false;
            continue;
        }
        let Rows { progress, vcs, .. } = rows;
        let vc = &mut vcs[vc_row as usize];
        if vc.state == VcState::Connected
            && !(vc.data.is_empty()
                && vc.sends.is_empty()
                && progress.replies.is_empty()
                && progress.control.is_empty()
                && due(progress, vc, vc_row, false).is_none())
        {
            progress.senders.push(vcs, vc_row);
        } else {
            vc.listed = false;
        }
    }
}

/// Sends pieces of one VC; `Err` if its connection has failed.
pub(crate) fn send_vc_pieces(rows: &mut Rows<'_>, endpoint: &mut Endpoint, vc_row: Row) -> Result<(), ()> {
    let mut left = PIECES_A_PASS;
    let mut turned = is_fair_turn(&rows.progress);
    if turned {
        turn(&mut rows.vcs[vc_row as usize].data, &mut rows.cars);
    }
    while left > 0 && !rows.vcs[vc_row as usize].data.is_empty() {
        let Rows { progress, cars, large, vcs, .. } = &mut *rows;
        let vc = &mut vcs[vc_row as usize];
        // An envelope was refused while a frame had gone in part. It must go before the next frame, or it never would.
        if endpoint.rows.is_some() && envelope_waits(progress, cars, vc) {
            progress.pending |= Pending::POST;
            break;
        }
        // If the transport may have taken a part of a frame of this message, only that frame follows now.
        let begun = progress.urgent && cars[vc.data.head as usize].flags & car_flags::REFUSED != 0;
        let most = if turned || begun { 1 } else { left };
        if progress.urgent && !std::mem::take(&mut turned) {
            reinsert_head(&mut vc.data, cars);
        }
        let goes_on = match large[vc.data.head as usize].is_apart() {
            true => send_apart(rows, endpoint, vc_row, &mut left)?,
            false => send_frames(rows, endpoint, vc_row, most, &mut left)?,
        };
        if !goes_on {
            return Ok(());
        }
    }
    if !rows.vcs[vc_row as usize].data.is_empty() {
        rows.progress.pending |= Pending::TRANSFER;
    }
    Ok(())
}

/// Goes on with the first message of a VC's queue, if the transport moves it by itself, or if it is passed on while it arrives. Returns
/// whether the next message may follow; `Err` if the connection has failed.
#[inline(always)]
fn send_apart(rows: &mut Rows<'_>, endpoint: &mut Endpoint, vc_row: Row, left: &mut usize) -> Result<bool, ()> {
    let Rows { progress, cars, large, vcs, row_states, nodes, supplies, .. } = rows;
    let vc = &mut vcs[vc_row as usize];
    let row = vc.data.head;
    if large[row as usize].is_moving() {
        move_direct(progress, cars, vc, endpoint, row, &large[row as usize])?;
        *left -= 1;
        return Ok(true);
    }
    let Large { wanted, length, peer, .. } = large[row as usize];
    let state = endpoint.rows.and_then(|states| row_states.get(states, row));
    let (link, number) = (vc.link, vc.endpoint);
    // The message may end up in another queue.
    vc.data.pop(cars);
    let mut sender = Sender { progress, cars, nodes, supplies, endpoint, number, link, row, peer, wanted, length };
    let turn = sender.send(left, state);
    if matches!(turn, Turn::Share | Turn::Blocked | Turn::Failed) {
        put_behind(&mut vc.data, cars, NIL, row);
    }
    match turn {
        Turn::Out | Turn::Share => Ok(true),
        Turn::Blocked => Ok(false),
        Turn::Failed => Err(()),
    }
}

/// Sends up to `most` frames of the first message of a VC's queue. Returns whether more frames may follow; `Err` if the connection has
/// failed.
#[inline(always)]
fn send_frames(
    rows: &mut Rows<'_>,
    endpoint: &mut Endpoint,
    vc_row: Row,
    most: usize,
    left: &mut usize,
) -> Result<bool, ()> {
    let Rows { progress, cars, large, vcs, row_states, .. } = rows;
    let vc = &mut vcs[vc_row as usize];
    let row = vc.data.head;
    let wanted = large[row as usize].wanted;
    let state = endpoint.rows.and_then(|states| row_states.get(states, row));
    let (sent, moved, outcome) = match layout(cars, row) {
        None => {
            let piece_bytes = endpoint.fits(vc.link, endpoint.piece_bytes.min(wanted - cars[row as usize].done));
            let frames = pieces(cars, row, &large[row as usize], piece_bytes, most);
            *left -= frames.len();
            // SAFETY: the bytes of a posted send are there until it ends.
            let (sent, outcome) = unsafe { endpoint.transport.get().send_batch(vc.link, &frames, state) };
            (sent, frames[..sent].iter().map(|f| f.header.length).sum::<u64>(), outcome)
        }
        Some(stretch) => {
            *left -= 1;
            send_stretch(&cars[row as usize], stretch, &large[row as usize], vc.link, endpoint, state)
        }
    };
    progress.work.sent += sent as u32;
    progress.moved.transfer += moved;
    let car = &mut cars[row as usize];
    car.done += moved;
    if endpoint.rows.is_some() {
        car.flags &= !car_flags::REFUSED;
        if outcome == Sent::Blocked {
            car.flags |= car_flags::REFUSED;
        }
    }
    if car.done == wanted {
        vc.data.pop(cars);
        finish_car(progress, cars, row, large[row as usize].length, false);
    }
    match outcome {
        Sent::Done => Ok(true),
        Sent::Blocked => Ok(false),
        Sent::Failed => Err(()),
    }
}

/// Whether the transport has refused a VC's next envelope or a reply, and no piece has begun that must be finished first.
pub(crate) fn envelope_waits(progress: &Progress, cars: &[Car], vc: &Vc) -> bool {
    let head = &cars[vc.data.head as usize];
    if head.flags & car_flags::REFUSED != 0 {
        return false;
    }
    if progress.control.frames.iter().any(|frame| frame.vc == head.vc && frame.refused) {
        return true;
    }
    if progress.signatures.as_ref().is_some_and(|types| types.is_telling(head.vc)) {
        return true;
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

/// A part of a message that has a datatype's layout. It lives only for one call. A [`Stretch`] itself does not implement [`Pieces`], since
/// its holder could then post it after its segment is gone.
pub(crate) struct Scattered(Stretch);

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

/// Sends the next piece of a message that has a datatype's layout, packed where the transport wants it. Returns how many pieces and bytes
/// have gone, and the transport's result.
pub(crate) fn send_stretch(
    envelope: &Car,
    stretch: Stretch,
    message: &Large,
    link: u32,
    endpoint: &mut Endpoint,
    state: Option<&mut dyn Any>,
) -> (usize, u64, Sent) {
    let Large { wanted, peer, .. } = *message;
    // If a message goes through a ring in few pieces, the pieces are shorter, so that the receiver begins sooner.
    let few = endpoint.cheap_poll && wanted < 8 * endpoint.piece_bytes && endpoint.piece_bytes >= 2 * PAGE_BYTES as u64;
    let most = if few { endpoint.piece_bytes / 2 } else { endpoint.piece_bytes };
    let most = endpoint.fits(link, most.min(wanted - envelope.done));
    let piece = stretch.part(envelope.done as usize, most as usize);
    let length = piece.len() as u64;
    let header = Header::piece(envelope.context, peer, length);
    match endpoint.transport.get().send(link, &header, &Scattered(piece), state) {
        Sent::Done => (1, length, Sent::Done),
        outcome => (0, 0, outcome),
    }
}

/// The next pieces of a message, from byte `done` on. No piece spans two data CARs.
pub(crate) fn pieces(
    cars: &[Car],
    row: Row,
    message: &Large,
    piece_bytes: u64,
    most: usize,
) -> SmallVec<[Frame; PIECES_A_PASS]> {
    let envelope = &cars[row as usize];
    let Large { wanted, peer, .. } = *message;
    let mut frames = SmallVec::new();
    let (mut done, mut data) = (envelope.done, row);
    // Bytes in front of the data CAR that contains byte `done`.
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
        let header = Header::piece(envelope.context, peer, payload.len() as u64);
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
