//! Deliver: DrainCq, Match, Transfer and Complete in one go, and, for an offered message that is read, SupplyBuffers. It serves whole
//! messages whose receives are posted, here or at a transport that matches.
//!
//! *Reads* frames of the transports, communicators. *Writes* the application's segments, CARs and requests (as Match, Transfer and Complete
//! do, and, for an offered message that is read, SupplyBuffers), the queues of posted receives, the finished list (what Complete must look
//! at).
//! *Bound* the tick's budget, and the endpoints at which a look has found something.
//! *Why* most messages are short and awaited. As four systems, each reads what the one before has written, and for one message that is
//! more work than the message. In one go, the four take less than half of those instructions. Deliver leaves any other frame where it is,
//! to the systems; both call the same functions where a decision is made. Deliver runs only if nothing but arrivals is pending, so
//! messages keep the order of a pass. It runs only without systems of the application, which may look at the rows in between. A message
//! of a proc to itself is delivered by the call that sends it, if the result is the same.

use crate::procs::endpoint::Endpoint;
use crate::protocols;
use crate::protocols::read::{read_at_once, read_messages};
use crate::protocols::rendezvous::reply;
use crate::protocols::{eager, provider_matched};
use crate::rows::{Rows, Wire};
use crate::steps::finish::end_awaited;
use crate::steps::noting::Noting;
use tickwire_components::limits::READ_BYTES_A_TURN;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, Pending, Row, Span};
use tickwire_transports::{Other, Take};

/// Delivers what it can, and leaves the rest pending, for the systems. Returns whether anything is pending.
#[inline(always)]
pub fn deliver(rows: &mut Rows<'_>, wire: &mut Wire<'_>) -> bool {
    take_frames::<false>(rows, wire);
    if rows.progress.pending == Pending::NONE {
        return false;
    }
    if has_offered(rows) {
        read_offered(rows, wire);
    }
    rows.progress.pending != Pending::NONE
}

/// The first part of [`deliver`]: takes frames where they are. `NOTED`: messages are noted, where there is a sink.
#[inline(always)]
pub fn take_frames<const NOTED: bool>(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    rows.progress.pending.clear(Pending::DRAIN);
    for endpoint in wire.endpoints.iter_mut() {
        if !endpoint.found {
            continue;
        }
        let most = rows.progress.budget;
        let (taken, left) = match NOTED {
            true => deliver_noted(rows, endpoint, most),
            false => endpoint.transport.get().deliver(most, rows),
        };
        endpoint.found = left;
        let progress = &mut *rows.progress;
        progress.budget -= taken;
        progress.work.received += taken;
        if left {
            progress.pending |= Pending::DRAIN;
        }
    }
}

#[inline(never)]
fn deliver_noted(rows: &mut Rows<'_>, endpoint: &mut Endpoint, most: u32) -> (u32, bool) {
    let Endpoint { transport, messages, .. } = endpoint;
    transport.get().deliver(most, &mut Noting::new(rows, messages.get().as_deref_mut(), || ()))
}

/// Whether there is a second part of [`deliver`]: messages are to be read out of memory of peers.
#[inline(always)]
pub fn has_offered(rows: &mut Rows<'_>) -> bool {
    rows.progress.pending.has(Pending::SUPPLY | Pending::TRANSFER)
}

/// Looks at an endpoint while nothing is pending, and delivers what it finds. Returns how many messages it has delivered. If there are
/// more, they are pending then.
#[inline(always)]
pub fn look_and_deliver(rows: &mut Rows<'_>, endpoint: &mut Endpoint, most: u32, patient: bool) -> u32 {
    let found = endpoint.transport.get().look_and_deliver(most, patient, rows);
    count_found(rows, endpoint, found)
}

/// As [`look_and_deliver`], for a watcher. Messages are noted, where there is a sink. `found` is called before each frame that there is.
pub fn look_and_deliver_noted(
    rows: &mut Rows<'_>,
    endpoint: &mut Endpoint,
    most: u32,
    patient: bool,
    found: impl FnMut(),
) -> u32 {
    let Endpoint { transport, messages, .. } = endpoint;
    let mut noting = Noting::new(rows, messages.get().as_deref_mut(), found);
    let found = transport.get().look_and_deliver(most, patient, &mut noting);
    count_found(rows, endpoint, found)
}

#[inline(always)]
fn count_found(rows: &mut Rows<'_>, endpoint: &mut Endpoint, (count, rest): (u32, bool)) -> u32 {
    rows.progress.work.received += count;
    if rest {
        endpoint.found = true;
        rows.progress.pending |= Pending::DRAIN;
    }
    count
}

#[expect(unsafe_code, reason = "bytes that are addresses")]
impl Take for Rows<'_> {
    fn now_ns(&mut self) -> u64 {
        self.progress.now_ns
    }

    #[inline(always)]
    unsafe fn message(&mut self, header: &Header, payload: Span, vc_row: Row) -> bool {
        eager::receive(self, header, payload, vc_row)
    }

    unsafe fn other(&mut self, header: &Header, payload: Span, vc_row: Row) -> Other {
        let mut arrival = Arrival { header: *header, payload, vc: vc_row, ..Arrival::default() };
        protocols::take::<true>(self, &mut arrival)
    }

    #[inline(never)]
    unsafe fn matched(&mut self, header: &Header, payload: Span, vc_row: Row, receive: Row) -> bool {
        provider_matched::receive(self, header, payload, vc_row, receive)
    }
}

/// The second part of [`deliver`]: reads what was offered, as SupplyBuffers and Transfer do, and ends what has been read.
#[inline(never)]
pub fn read_offered(rows: &mut Rows<'_>, wire: &mut Wire<'_>) {
    // This takes long, so that what ends here has the time of its end.
    rows.progress.looked = None;
    let endpoints = &mut *wire.endpoints;
    let mut left = READ_BYTES_A_TURN as u64;
    while let Some(row) = rows.progress.offers.pop(&mut rows.cars) {
        if !read_at_once(rows, endpoints, &mut left, row) {
            reply(rows, endpoints, row);
        }
    }
    rows.progress.pending.clear(Pending::SUPPLY | Pending::TRANSFER);
    if !rows.progress.reads.is_empty() {
        read_messages(rows, endpoints);
        end_awaited(rows);
    }
    if !rows.progress.senders.is_empty() {
        rows.progress.pending |= Pending::TRANSFER;
    }
    if !rows.progress.supplies.is_empty() {
        rows.progress.pending |= Pending::SUPPLY;
    }
}

#[cfg(test)]
mod tests;
