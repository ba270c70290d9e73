//! Unexpected messages, which arrive before their receive: how they are kept, and how a receive takes one.

use crate::procs::communicators::{Unclaimed, unclaimed};
use crate::protocols::graph::blocks;
use crate::rows::Rows;
use crate::steps::chain::is_passage;
use crate::steps::check::refuse;
use crate::steps::credit::{owe_lines, release_offer};
use crate::steps::dismiss::dismiss;
use crate::steps::finish::{abort, finish_car};
use crate::steps::offer::{Offered, body_of, offer};
use crate::steps::place::put;
use crate::steps::posted::{first_match, key};
use crate::steps::signatures::compare;
use crate::steps::streams::{begin, take_over};
use crate::steps::supply::pool::{self, give_buffer};
use tickwire_components::credit::cost;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::wire::Header;
use tickwire_components::{
    Arrival, ArrivalState, Body, Car, CarState, Communicator, Destination, Kept, Large, NIL, Pending, Progress, Row,
    Span, Unexpected, Vc, car_flags, context,
};

/// Pairs a receive with the oldest unexpected message that it matches. `false` if there is none.
pub fn take_unexpected(rows: &mut Rows<'_>, row: Row) -> bool {
    let Some(entry) = rows.progress.unexpected.find(&key(&rows.cars[row as usize])) else { return false };
    let found = rows.progress.unexpected.remove(entry);
    receive_unexpected(rows, row, entry, &found);
    true
}

/// Pairs a receive with a message that was already removed from the unexpected queue. `entry` is the message's former place there.
pub fn receive_unexpected(rows: &mut Rows<'_>, row: Row, entry: Row, found: &Unexpected) {
    if let Some(types) = &mut rows.progress.signatures {
        let number = *types.unexpected(entry);
        compare(types, &mut rows.cars[row as usize], row, found.vc, number, found.length);
    }
    let car = &mut rows.cars[row as usize];
    car.source = found.source;
    car.tag = found.tag;
    car.done = found.length;
    car.vc = found.vc;
    rows.progress.work.matched += 1;
    if found.message() == NIL {
        let arriving = !matches!(found.kept, Kept::Whole { .. });
        car.state = if arriving { CarState::Receiving } else { CarState::Matched };
        rows.large[row as usize] = Large::of(found.length);
        if arriving {
            take_over(rows, found, row);
        }
        rows.large[row as usize].body = Body::Kept { buffer: found.buffer() };
        rows.progress.copies.push(&mut rows.cars, row);
        rows.progress.pending |= Pending::TRANSFER;
    } else {
        car.priority = rows.progress.offered.remove(&(found.vc, found.message())).unwrap_or(0);
        let Rows { progress, cars, large, vcs, .. } = rows;
        release_offer(progress, vcs, found.vc);
        let offered = Offered { message: found.message(), length: found.length, body: found.body() };
        offer(progress, cars, large, row, offered);
    }
}

/// Finds a place among the unexpected messages for an envelope that matches no posted receive. Returns the entry, or `None` if the message
/// is dropped or refused.
#[cold]
pub(crate) fn find_place(
    progress: &mut Progress,
    arrival: &mut Arrival,
    header: &Header,
    vcs: &mut [Vc],
    (communicators, cars): (&[Communicator], &[Car]),
) -> Option<Row> {
    let (rts, head) = (header.is_offer(), header.is_head());
    match unclaimed(communicators, header.context()) {
        Unclaimed::Keep => {}
        Unclaimed::Drop if is_awaited(progress, cars, header) => {}
        Unclaimed::Drop => {
            drop_message(progress, arrival, header, vcs);
            return None;
        }
        Unclaimed::Impossible => {
            refuse(progress, arrival, "an envelope of an unknown context");
            return None;
        }
    }
    if rts && (header.priority() > 0 || !progress.offered.is_empty()) {
        // An entry with the same key may be left from an offer that was withdrawn.
        progress.offered.insert((arrival.vc, header.message()), header.priority());
    }
    if rts {
        vcs[arrival.vc as usize].offers_kept += 1;
    } else if overdrawn(progress, vcs, arrival.vc, header.length) {
        refuse(progress, arrival, "more messages before their receives than it was granted");
        return None;
    }
    let entry = progress.unexpected.push(Unexpected {
        context: header.context(),
        source: header.source(),
        tag: header.tag(),
        vc: arrival.vc,
        length: header.length,
        kept: match (head, rts) {
            (true, _) => Kept::Arriving { buffer: NIL },
            (_, true) => Kept::offered(header.message(), body_of(header, arrival.payload)),
            _ => Kept::Whole { buffer: NIL },
        },
        next: NIL,
        previous: NIL,
    });
    if context::is_collective(header.context()) {
        progress.graphs.has_unexpected = true;
    }
    let stamp = progress.stamp();
    progress.unexpected.stamp(entry, stamp);
    if let Some(types) = &mut progress.signatures {
        *types.unexpected(entry) = header.type_number();
    }
    progress.pending |= Pending::TRANSFER;
    if rts || header.length == 0 {
        arrival.state = ArrivalState::Handled;
    } else {
        if head {
            begin(progress, arrival, Destination::Unexpected(entry));
        }
        (arrival.to, arrival.state) = (Destination::Unexpected(entry), ArrivalState::Unexpected);
        progress.pending |= Pending::SUPPLY;
    }
    Some(entry)
}

/// Whether a receive that was posted before takes a message that has no place yet. While messages are deferred, new receives wait, and a
/// message waits for its receive behind others.
fn is_awaited(progress: &Progress, cars: &[Car], header: &Header) -> bool {
    let message = EnvelopeKey { context: header.context(), source: header.source(), tag: header.tag() };
    progress.indexed() && progress.posted.find(&message).is_some()
        || first_match(&progress.new_receives, cars, &message, &mut 0).is_some()
}

/// Drops a message of a communicator that is no more: its credit goes back, and bytes that are still to come go nowhere.
fn drop_message(progress: &mut Progress, arrival: &mut Arrival, header: &Header, vcs: &mut [Vc]) {
    if !header.is_offer() {
        owe_lines(progress, vcs, arrival.vc, header.length);
    } else {
        dismiss(progress, vcs, arrival.vc, header.context(), header.message());
    }
    if header.is_head() {
        begin(progress, arrival, Destination::Nobody);
    }
    arrival.state = ArrivalState::Handled;
    progress.pending |= Pending::TRANSFER;
}

/// Whether a peer has sent more than its credit. A single peer is looked at only once the unexpected messages of all peers exceed the
/// credit of all. A peer within its credit is never refused.
pub(crate) fn overdrawn(progress: &Progress, vcs: &[Vc], vc_row: Row, length: u64) -> bool {
    let (window, cost) = (u64::from(progress.window.lines), u64::from(cost(length)));
    progress.unexpected.lines + cost > window * vcs.len() as u64 && progress.unexpected.lines_of(vc_row) + cost > window
}

/// Whether a message of a graph, which the graph passes on in parts, has come as a whole. A dishonest peer may send such a message in other
/// ways than graphs do.
fn is_whole_passage(rows: &Rows<'_>, row: Row, taken_over: bool) -> bool {
    is_passage(&rows.cars, row) && !taken_over && rows.cars[row as usize].flags & car_flags::PEER_FAILED == 0
}

/// Completes receives whose message was unexpected and is in a temporary: copies the bytes and gives the temporary back.
#[cold]
pub(crate) fn receive_copies(rows: &mut Rows<'_>) {
    while let Some(row) = rows.progress.copies.pop(&mut rows.cars) {
        let car = &mut rows.cars[row as usize];
        // While the rest of a message is still to come, `done` counts the bytes that are here.
        let (length, taken_over) = (car.done, car.state == CarState::Receiving);
        let buffer = match rows.large[row as usize].body {
            Body::Kept { buffer } => buffer,
            _ => NIL,
        };
        let vc_row = car.vc;
        car.done = 0;
        let mut moved = 0;
        if buffer != NIL {
            let payload = pool::span(&mut rows.buffers[buffer as usize]);
            owe_lines(&mut rows.progress, &mut rows.vcs, vc_row, payload.len() as u64);
            let payload = payload.part(0, length as usize);
            rows.progress.kept_copied += payload.len() as u64;
            if is_whole_passage(rows, row, taken_over) {
                blocks::receive_whole(rows, row, length, payload);
                give_buffer(&mut rows.progress, &mut rows.buffers, buffer);
                continue;
            }
            moved = put(&mut rows.cars, row, payload);
            rows.progress.moved.transfer += moved;
            give_buffer(&mut rows.progress, &mut rows.buffers, buffer);
        } else {
            owe_lines(&mut rows.progress, &mut rows.vcs, vc_row, 0);
            if is_whole_passage(rows, row, taken_over) {
                blocks::receive_whole(rows, row, length, Span::EMPTY);
                continue;
            }
        }
        if rows.cars[row as usize].flags & car_flags::PEER_FAILED != 0 {
            abort(&mut rows.progress, &mut rows.cars, row, car_flags::PEER_FAILED);
            continue;
        }
        if taken_over {
            rows.cars[row as usize].done = moved;
            rows.large[row as usize].body = Body::InParts;
            continue;
        }
        finish_car(&mut rows.progress, &mut rows.cars, row, length, moved < length);
    }
}
