//! One-sided operations by frames, where the target's memory cannot be reached directly. The origin sends requests ([`Kind::Remote`]). Any
//! tick of the target's engine performs them and sends answers ([`Kind::Answer`]). The application at the target takes no part.
//!
//! Requests of one origin to one target are performed in their order, so updates keep their order. A long operation is several requests,
//! and short ones share a request ([`batch`]). Each request has an answer. An origin has at most [`REMOTE_FRAMES`] requests without an
//! answer, so a target keeps a bounded number of answers for each origin.
//!
//! *Trust.* A request is checked as a whole before anything is done: the window, the origin's rank against the VC that the request came
//! over, bounds and alignment. A request that no honest origin can send ends the link. A displacement out of bounds is answered with an
//! error.

#![expect(unsafe_code, reason = "bytes that are addresses")]

pub mod batch;
mod ending;
pub mod fabric;
mod frames;
mod posting;
mod target;
mod waiting;

use crate::procs::endpoint::Endpoint;
use crate::procs::windows::{Failure, RemoteOperation, WindowRow};
use crate::rows::Rows;
use crate::steps::check::NotTaken;
use batch::take_batch_answer;
pub(crate) use ending::fail_windows;
pub use ending::{close_windows, cut_loans, cut_operation, remove_window};
use frames::{Body, fragment, send, span_of};
pub use posting::post_remote;
use smallvec::SmallVec;
pub(super) use target::take_request;
use target::{send_answer, serve_waiting};
use tickwire_components::limits::REMOTE_FRAMES;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Arrival, Pending, Pieces, Progress, RemoteKind, RemoteOutcome, Row, Vc, VcState, context};
use tickwire_transports::{Sent, copy};
use waiting::{Waiter, tell};

/// Sends the requests and answers of all windows, as far as there is room.
pub fn move_windows(rows: &mut Rows<'_>, endpoints: &mut [Endpoint]) {
    let mut index = 0;
    while let Some(&row) = rows.windows.busy.get(index) {
        let left = move_window(rows, endpoints, row);
        if left {
            rows.progress.pending |= Pending::TRANSFER;
        }
        // A window that only waits for answers has nothing to send.
        match left {
            true => index += 1,
            false => _ = rows.windows.busy.swap_remove(index),
        }
    }
}

/// Sends requests and answers of one window. Returns whether something could not be sent or done yet.
fn move_window(rows: &mut Rows<'_>, endpoints: &mut [Endpoint], row: Row) -> bool {
    let Rows { windows, vcs, procs, progress, .. } = rows;
    let Some(Some(window)) = windows.list.get_mut(row as usize) else { return false };
    let mut left = serve_waiting(window, (vcs, procs));
    left |= send_answers(window, vcs, endpoints, progress);
    for rank in 0..window.targets.len() {
        left |= send_requests(window, rank, vcs, endpoints, progress);
    }
    left
}

/// Sends the answers that are ready, to each origin in their order. Returns whether one could not go for want of room. An origin that takes
/// no answer does not hold up the others.
fn send_answers(window: &mut WindowRow, vcs: &[Vc], endpoints: &mut [Endpoint], progress: &mut Progress) -> bool {
    let (mut index, mut full) = (0, SmallVec::<[u32; 4]>::new());
    while let Some(served) = window.served.get(index) {
        let origin = served.origin;
        if !served.is_done() || full.contains(&origin) {
            index += 1;
            continue;
        }
        match send_answer(window, index, vcs, endpoints) {
            Sent::Done => {
                progress.work.sent += 1;
                window.served.remove(index);
            }
            // The VC ends separately, which also drops the answers that it is owed.
            Sent::Failed => drop(window.served.remove(index)),
            _ => {
                full.push(origin);
                index += 1;
            }
        }
    }
    !full.is_empty()
}

/// Sends requests to a target. Returns whether one could not go for want of room.
fn send_requests(
    window: &mut WindowRow,
    rank: usize,
    vcs: &[Vc],
    endpoints: &mut [Endpoint],
    progress: &mut Progress,
) -> bool {
    let (word, me) = (window.context | context::WINDOW, window.rank);
    let target = &mut window.targets[rank];
    let Some(vc) = vcs.get(target.vc as usize).filter(|vc| vc.state == VcState::Connected) else {
        // Not connected yet, or no longer. In that case the end of the VC ends its operations.
        return false;
    };
    let Some(endpoint) = endpoints.get_mut(vc.endpoint as usize) else { return false };
    let most = fragment(endpoint);
    for operation in target.operations.iter_mut().filter(|operation| !operation.all_sent) {
        while !operation.all_sent {
            if target.outstanding == REMOTE_FRAMES {
                return false;
            }
            let (length, body) = request(operation, most);
            let bytes = body.total() as u64;
            let header = Header::new(Kind::Remote, word, me, operation.kind.word(), target.frames, bytes);
            match send(endpoint, vc.link, &header, &body, &mut operation.state) {
                Sent::Done => {}
                Sent::Failed => return false,
                _ => {
                    // After a cut, the operation has a copy already.
                    if endpoint.by_post && operation.in_part.is_none() && operation.batch.is_none() {
                        operation.in_part = Some((length, Vec::new()));
                    }
                    return true;
                }
            }
            progress.work.sent += 1;
            (operation.state, operation.in_part) = (None, None);
            operation.fragment = most;
            operation.sent += length;
            operation.all_sent = operation.sent == operation.length;
            target.frames = target.frames.wrapping_add(1);
            target.outstanding += 1;
        }
    }
    false
}

/// The next request of an operation, and how many of its bytes the request has. A batch is closed for more operations here, since the
/// transport may take a part of it.
fn request(operation: &mut RemoteOperation, most: u64) -> (u64, Body) {
    if let Some(batch) = &mut operation.batch {
        batch.is_sealed = true;
        return (operation.length, Body::request(batch.parts.len() as u64, operation.length, span_of(&batch.packed)));
    }
    let length = (operation.length - operation.sent).min(most);
    let from = match operation.kind {
        RemoteKind::CompareSwap(_) => operation.from,
        _ => operation.from.part(operation.sent as usize, length as usize),
    };
    (length, Body::request(operation.at + operation.sent, length, from))
}

/// Takes the answer to a request.
pub(super) fn take_answer(rows: &mut Rows<'_>, arrival: &Arrival) -> Result<(), NotTaken> {
    const WRONG: NotTaken = NotTaken::Wrong("an answer to no one-sided operation");
    let header = arrival.header;
    if context::plane(header.context()) != context::WINDOW {
        return Err(WRONG);
    }
    let outcome = RemoteOutcome::from_word(header.tag()).ok_or(WRONG)?;
    let window = rows.windows.of_context(header.context()).ok_or(WRONG)?;
    let handle = window.handle;
    let rank = window.member(header.source(), arrival.vc, &rows.vcs).ok_or(WRONG)?;
    let target = &mut window.targets[rank];
    let operation = target.operations.front_mut().ok_or(WRONG)?;
    if header.message() != target.answers || target.outstanding == 0 {
        return Err(WRONG);
    }
    if operation.batch.is_some() {
        if outcome != RemoteOutcome::Done || !operation.all_sent {
            return Err(WRONG);
        }
        take_batch_answer(rows, handle, rank, arrival.payload).ok_or(WRONG)?;
        return answered(rows, handle, rank).ok_or(WRONG);
    }
    // An honest target answers with as many bytes as the request has asked for.
    let asked = (operation.sent - operation.answered).min(operation.fragment);
    let has_bytes = operation.kind.is_answered_by_bytes() && outcome == RemoteOutcome::Done;
    if arrival.payload.len() as u64 != if has_bytes { asked } else { 0 } {
        return Err(WRONG);
    }
    // SAFETY: the origin keeps the place until the operation has ended; the payload is there until it is released.
    unsafe { copy::copy_long(operation.into.part(operation.answered as usize, usize::MAX), arrival.payload) };
    operation.answered += asked;
    operation.failure = operation.failure.or(Failure::of(outcome));
    if operation.all_sent && operation.answered == operation.length {
        let (waiter, failure) = (Waiter::of(operation), operation.failure);
        target.operations.pop_front();
        tell(rows, handle, rank, &waiter, failure);
    }
    answered(rows, handle, rank).ok_or(WRONG)
}

/// Counts an answered request, so that the next one may go.
fn answered(rows: &mut Rows<'_>, handle: u32, rank: usize) -> Option<()> {
    let target = rows.windows.answered(handle, rank)?;
    target.answers = target.answers.wrapping_add(1);
    target.outstanding -= 1;
    rows.windows.stir(handle);
    rows.progress.pending |= Pending::TRANSFER;
    rows.progress.work.received += 1;
    Some(())
}

#[cfg(test)]
mod tests;
