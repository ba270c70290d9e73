//! Read: the receiver reads an offered message out of the sender's memory, and then tells the sender.

use crate::procs::communicators::known;
use crate::procs::endpoint::Endpoint;
use crate::procs::priorities::{insert, is_fair_turn, reinsert_head, turn};
use crate::rows::Rows;
use crate::steps::answer::answer;
use crate::steps::chain::is_passage;
use crate::steps::check::{NotTaken, was_offered};
use crate::steps::finish::{abort, finish_at_once, finish_car, is_one_run};
use crate::steps::send::send_now;
use smallvec::SmallVec;
use tickwire_components::limits::{PAGE_BYTES, PIECES_A_PASS, READ_BYTES_A_TURN, READ_TURNS_A_PASS, READS_A_CALL};
use tickwire_components::wire::Header;
use tickwire_components::{Body, Car, Large, NIL, NoBytes, Pending, Row, Span, Vc, VcState, car_flags};
use tickwire_transports::{MemoryRead, Sent};

/// Reads messages out of their senders' memory, in turn. Messages that cannot be read are asked for in pieces instead.
#[inline(never)]
pub(crate) fn read_messages(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    let is_alone = rows.cars.get(rows.progress.reads.head as usize).is_some_and(|car| car.next == NIL);
    let (mut turns, share) = if is_alone { (1, READ_TURNS_A_PASS) } else { (READ_TURNS_A_PASS, 1) };
    let mut left = (share * READ_BYTES_A_TURN) as u64;
    let mut most = u64::MAX;
    if is_fair_turn(&rows.progress) {
        turn(&mut rows.progress.reads, &mut rows.cars);
        most = left / PIECES_A_PASS as u64;
    }
    while !rows.progress.reads.is_empty() {
        if left == 0 {
            turns -= 1;
            // Frames that have arrived meanwhile may be more urgent.
            if turns == 0
                || endpoints.iter_mut().any(|endpoint| (endpoint.cheap_poll || endpoint.prompt) && endpoint.ready())
            {
                break;
            }
            left = READ_BYTES_A_TURN as u64;
        }
        let mut batch = next_reads(rows, left.min(most));
        let Vc { endpoint, link, .. } = rows.vcs[batch.vc as usize];
        let transport = endpoints[endpoint as usize].transport.get();
        // SAFETY: the places of posted receives are there until these end.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let is_read = batch.bytes > 0
            && transport.memory().is_some_and(|memory| unsafe { memory.read(link, &batch.reads) }.is_ok());
        if is_read {
            left = left.saturating_sub(in_pages(batch.bytes));
            rows.progress.moved.transfer += batch.bytes;
            rows.progress.work.received += batch.begun;
            if batch.open != NIL && left == 0 {
                // Other messages have their turn before a long one goes on.
                rows.progress.reads.pop(&mut rows.cars);
                insert(&mut rows.progress.reads, &mut rows.cars, batch.open);
            } else if most != u64::MAX {
                reinsert_head(&mut rows.progress.reads, &mut rows.cars);
            }
            most = u64::MAX;
        } else {
            if batch.open != NIL {
                rows.progress.reads.pop(&mut rows.cars);
                batch.whole.push(batch.open);
            }
            batch.whole.iter().for_each(|&row| restart(&mut rows.cars, &mut rows.large, row));
        }
        for &row in &batch.whole {
            // SAFETY: it is a receive: what is said has no bytes of the row.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let sent = unsafe { send_now(rows, &mut endpoints[endpoint as usize], batch.vc, row) };
            if !sent {
                answer(rows, row);
            }
        }
    }
    if !rows.progress.reads.is_empty() {
        rows.progress.pending |= Pending::TRANSFER;
    }
}

/// What one call reads: bytes of the first messages in the queue, all from one VC.
pub(crate) struct Batch {
    vc: Row,
    reads: SmallVec<[MemoryRead; READS_A_CALL]>,
    /// The receives that this call completes. They are no longer in the queue.
    whole: SmallVec<[Row; READS_A_CALL]>,
    /// The receive at the queue's head, if more of it is left; else [`NIL`].
    open: Row,
    bytes: u64,
    /// Number of receives that this call begins.
    begun: u32,
}

/// Chooses up to `most` bytes to read, and counts them as received. No bytes if the first receive has no room for what it wants.
#[inline(always)]
pub(crate) fn next_reads(rows: &mut Rows<'_>, most: u64) -> Batch {
    let (reads, whole) = (SmallVec::new(), SmallVec::new());
    let vc = rows.cars[rows.progress.reads.head as usize].vc;
    let mut batch = Batch { vc, reads, whole, open: NIL, bytes: 0, begun: 0 };
    while batch.reads.len() < READS_A_CALL && in_pages(batch.bytes) < most {
        let row = rows.progress.reads.head;
        let Some(&Car { done, .. }) = rows.cars.get(row as usize).filter(|car| car.vc == vc) else { break };
        let Large { wanted, body, .. } = rows.large[row as usize];
        // Receives in this queue always have an address.
        let Body::Readable { address } = body else { break };
        let (data, into) = place_at(&rows.cars, row, (most - batch.bytes).min(wanted - done));
        if into.is_empty() {
            if batch.reads.is_empty() {
                batch.open = row;
            }
            break;
        }
        let read = into.len() as u64;
        batch.reads.push(MemoryRead { address: address.wrapping_add(done), into });
        batch.bytes += read;
        batch.begun += u32::from(done == 0);
        rows.cars[row as usize].done += read;
        if data != row {
            rows.cars[data as usize].done += read;
        }
        batch.open = if done + read < wanted { row } else { NIL };
        if batch.open == NIL {
            rows.progress.reads.pop(&mut rows.cars);
            batch.whole.push(row);
        }
    }
    batch
}

/// Bytes, rounded up to whole pages: so if a message ends just before its turn does, the next message does not begin with the few bytes
/// that are left.
pub(crate) fn in_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES as u64)
}

/// The place of the next bytes of a message, at most `most`, and the CAR whose place it is.
pub(crate) fn place_at(cars: &[Car], row: Row, most: u64) -> (Row, Span) {
    let car = &cars[row as usize];
    if car.chain == NIL {
        return (row, car.span.part(car.done as usize, most as usize));
    }
    let mut data = car.chain;
    while cars[data as usize].done as usize == cars[data as usize].span.len() && cars[data as usize].chain != NIL {
        data = cars[data as usize].chain;
    }
    let car = &cars[data as usize];
    (data, car.span.part(car.done as usize, most as usize))
}

/// Prepares a message that cannot be read to be received in pieces, from its first byte on.
#[cold]
pub(crate) fn restart(cars: &mut [Car], large: &mut [Large], row: Row) {
    large[row as usize].body = Body::AtSender;
    cars[row as usize].done = 0;
    let mut data = cars[row as usize].chain;
    while data != NIL {
        cars[data as usize].done = 0;
        data = cars[data as usize].chain;
    }
}

/// Reads a message at once, and tells its sender. `false` if the message must go the usual way: it has several runs, has too little room,
/// has other messages before it, or is longer than the `left` bytes that may still be read in this way.
#[inline(always)]
pub(crate) fn read_at_once(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], left: &mut u64, row: Row) -> bool {
    let Rows { progress, cars, large, requests, vcs, .. } = rows;
    let urgent = cars.get(progress.reads.head as usize).is_some_and(|first| first.priority > 0);
    let car = &mut cars[row as usize];
    let message = large[row as usize];
    let vc = &mut vcs[car.vc as usize];
    let endpoint = &mut endpoints[vc.endpoint as usize];
    let is_plain = !urgent && is_one_run(car, row) && car.priority == 0 && message.length <= car.span.len() as u64;
    let is_here = vc.state == VcState::Connected && endpoint.plain;
    let Body::Readable { address } = message.body else { return false };
    if !is_plain || !is_here || message.wanted > *left {
        return false;
    }
    let transport = endpoint.transport.get();
    let alone = progress.offers.is_empty() && progress.reads.is_empty();
    // SAFETY: the place of a posted receive is there until it ends.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let is_read = unsafe { transport.read_at_once(vc.link, address, car.span.part(0, message.wanted as usize), alone) };
    if !is_read {
        return false;
    }
    *left -= message.wanted;
    progress.moved.transfer += message.wanted;
    progress.work.received += 1;
    car.done = message.length;
    let done = Header::done(car.context, row, message.peer);
    if !progress.replies.is_empty() || transport.send_inline(vc.link, done, &NoBytes) != Sent::Done {
        answer(rows, row);
        return true;
    }
    progress.work.sent += 1;
    finish_at_once(progress, cars, requests, row, message.length);
    true
}

/// Ends a send whose message the receiver has read. With `at_once` the request may end without Complete.
///
/// # Errors
/// If the message was not offered to that peer.
pub(crate) fn end(rows: &mut Rows<'_>, row: Row, vc_row: Row, at_once: bool) -> Result<(), NotTaken> {
    let Rows { progress, cars, large, requests, vcs, communicators, .. } = rows;
    if !cars.get(row as usize).is_some_and(|car| was_offered(car, vc_row)) {
        return Err(NotTaken::Wrong("the end of a message that was not offered"));
    }
    let length = large[row as usize].length;
    if length > 0 && is_passage(cars, row) {
        // A message that is passed on goes in pieces, so nobody has received it: its communicator is no more there.
        let peer =
            known(communicators, cars[row as usize].context).and_then(|of| of.rank_of(vcs[vc_row as usize].proc));
        cars[row as usize].source = peer.unwrap_or(NIL);
        abort(progress, cars, row, car_flags::ABANDONED);
        return Ok(());
    }
    match at_once {
        true => finish_at_once(progress, cars, requests, row, length),
        false => finish_car(progress, cars, row, length, false),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
