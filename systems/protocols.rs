//! Protocols: one file is one protocol, both ends of it, made of [steps](crate::steps). This file has the only match over a
//! frame's kind.

pub mod board;
pub mod credit;
pub(crate) mod deferred;
pub(crate) mod direct;
pub mod eager;
pub mod graph;
pub mod one_sided;
pub(crate) mod parts;
pub(crate) mod pieces;
pub mod provider_matched;
pub(crate) mod read;
pub(crate) mod rendezvous;

use crate::protocols::graph::blocks::take_piece;
use crate::protocols::graph::failure::{abandon, is_abandonment};
use crate::protocols::graph::inquiry::{take_denial, take_inquiry};
use crate::rows::Rows;
use crate::steps::check::{NotTaken, answered, refuse};
use crate::steps::credit::{add, take_envelope};
use crate::steps::signatures::learn;
use crate::steps::unexpected::find_place;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Arrival, ArrivalState, CallWord, Ended, Pending, Progress, Row, wire};
use tickwire_transports::Other;

/// Does what a frame asks for. An envelope is paired with its receive, or kept; an answer of a peer changes its send; bytes are
/// given a place, to which Transfer moves them.
///
/// `AT_ONCE` is for the loop that finishes a frame before it takes the next one. It leaves a frame where it is if that cannot
/// be finished at once: [`Other::Left`], and nothing has changed.
///
/// Bytes of a send that its receiver may have read, and does not any more, are to be withdrawn from the transport
/// ([`Other::Ended`]).
#[inline]
pub(crate) fn take<const AT_ONCE: bool>(rows: &mut Rows<'_>, arrival: &mut Arrival) -> Other {
    let (header, vc_row) = (arrival.header, arrival.vc);
    if !AT_ONCE {
        if let Err(wrong) = header.check(arrival.payload.len(), rows.progress.signatures.is_some()) {
            refuse(&mut rows.progress, arrival, wrong);
            return Other::Taken;
        }
        if header.lead >> 32 != 0
            && let Some(vc) = rows.vcs.get_mut(vc_row as usize)
        {
            add(vc, header.credit());
        }
        arrival.state = ArrivalState::Handled;
        rows.progress.pending |= Pending::TRANSFER;
    }
    let mut over = Other::Taken;
    let taken = match header.kind() {
        Some(Kind::Eager) if AT_ONCE => match eager::receive(rows, &header, arrival.payload, vc_row) {
            true => Ok(()),
            false => return Other::Left,
        },
        Some(Kind::Eager) => eager::take(rows, arrival),
        Some(Kind::Rts) => rendezvous::take_offer(rows, &header, arrival.payload, vc_row),
        Some(Kind::Done) => {
            over = answered(&rows.cars, &header, vc_row);
            read::end(rows, header.message(), vc_row, AT_ONCE)
        }
        _ if AT_ONCE => return Other::Left,
        Some(Kind::Head) => parts::take_head(rows, arrival),
        Some(Kind::Part) => parts::take_part(&mut rows.progress, arrival),
        Some(Kind::Cts) => {
            over = answered(&rows.cars, &header, vc_row);
            rendezvous::clear_to_send(rows, &header, vc_row)
        }
        Some(Kind::Nack) => {
            over = answered(&rows.cars, &header, vc_row);
            rendezvous::end_refused(rows, &header, vc_row)
        }
        Some(Kind::Piece) => pieces::take(rows, arrival),
        Some(Kind::Stop) => take_piece(rows, arrival),
        Some(Kind::Credit) => Ok(()),
        Some(Kind::Type) => learn(&mut rows.progress, &header, arrival.payload, vc_row),
        Some(Kind::Offers) => provider_matched::take_count(&mut rows.progress, &mut rows.vcs, &header, vc_row),
        Some(Kind::Remote) => one_sided::take_request(rows, arrival),
        Some(Kind::Answer) => one_sided::take_answer(rows, arrival),
        Some(Kind::Call | Kind::Accept) => note_call(&mut rows.progress, &header, vc_row),
        Some(Kind::Inquiry) => take_inquiry(rows, &header, vc_row),
        Some(Kind::Denial) => take_denial(rows, &header, vc_row).map(|ended| over = ended),
        Some(Kind::Bye) => end_vc(&mut rows.progress, &header, vc_row),
        _ => Err(NotTaken::Wrong("a message past the matching of its transport")),
    };
    match taken {
        Ok(()) => return over,
        Err(_) if AT_ONCE => return Other::Left,
        Err(NotTaken::Unexpected) => keep(rows, arrival),
        Err(NotTaken::Wrong(wrong)) => refuse(&mut rows.progress, arrival, wrong),
    }
    Other::Taken
}

/// A peer has said something of the link that it has called over.
#[cold]
fn note_call(progress: &mut Progress, header: &Header, vc: Row) -> Result<(), NotTaken> {
    let word = CallWord { vc, transport: header.tag(), accepts: header.kind() == Some(Kind::Accept) };
    // Saying it again changes nothing.
    if !progress.calls.contains(&word) {
        progress.calls.push(word);
    }
    progress.pending |= Pending::WORLD;
    Ok(())
}

/// A peer has said how it ends.
#[cold]
fn end_vc(progress: &mut Progress, header: &Header, vc_row: Row) -> Result<(), NotTaken> {
    let ended = match header.tag() {
        0 => Ended::Finalized,
        wire::UNFINISHED => Ended::Unfinished,
        _ => return Err(NotTaken::Wrong("a farewell that cannot be")),
    };
    progress.end_vc(vc_row, ended);
    Ok(())
}

/// An envelope that no posted receive takes is kept, or its sender is told.
#[cold]
fn keep(rows: &mut Rows<'_>, arrival: &mut Arrival) {
    let header = arrival.header;
    if is_abandonment(&header) && abandon(rows, arrival) {
        return;
    }
    if header.is_offer() {
        take_envelope(&mut rows.progress, &mut rows.vcs, arrival.vc);
    }
    if rows.progress.has_provider() && deferred::defer(rows, arrival) {
        return;
    }
    if header.flags() & wire::READY != 0 && rendezvous::refuse_ready(rows, arrival) {
        return;
    }
    find_place(&mut rows.progress, arrival, &header, &mut rows.vcs, (&rows.communicators, &rows.cars));
}
