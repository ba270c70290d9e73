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
mod target;

use crate::procs::endpoint::Endpoint;
use crate::procs::windows::{BatchPart, Failure, RemoteOperation, WindowRow, Windows};
use crate::rows::Rows;
use crate::steps::check::NotTaken;
use crate::steps::finish::{abort, finish_at_once};
use batch::take_batch_answer;
use ending::fail_operation;
pub(crate) use ending::fail_windows;
pub use ending::{close_windows, cut_loans, cut_operation, remove_window};
use frames::{Body, LEAD, send, span_of};
use smallvec::SmallVec;
pub(super) use target::take_request;
use target::{send_answer, serve_waiting};
use tickwire_components::limits::{REMOTE_BYTES, REMOTE_FRAMES};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{
    Arrival, Car, NIL, Pending, Pieces, Progress, Refusal, RemoteKind, RemoteOutcome, Request, Row, Vc, VcState,
    car_flags, context,
};
use tickwire_transports::{Sent, copy};

/// Bytes of an operation in one request.
fn fragment(endpoint: &Endpoint) -> u64 {
    let frame = match endpoint.abilities.registers {
        true => endpoint.abilities.copies.min(endpoint.sure_bytes),
        false => endpoint.sure_bytes,
    };
    // Requests contain whole elements.
    (frame.saturating_sub(LEAD as u64).min(REMOTE_BYTES) / 16 * 16).max(16)
}

/// Posts an operation; [`move_windows`] sends it. An operation to a proc that has failed ends at once, since nothing would end it later.
pub fn post_remote(rows: &mut Rows<'_>, handle: u32, target: u32, operation: RemoteOperation) {
    let Rows { windows, vcs, progress, cars, .. } = rows;
    let Some(window) = windows.get(handle) else { return };
    let is_dead = window.is_dead(vcs, target);
    let to = &mut window.targets[target as usize];
    to.issued += u64::from(!operation.kind.is_of_lock());
    if is_dead {
        to.completed = to.issued;
        if !operation.awaited && operation.request == NIL {
            to.failure = Some(Failure::TargetFailed);
        }
        let vc = to.vc;
        return fail_operation(&mut windows.ended, progress, cars, &Waiter::of(&operation), vc);
    }
    to.operations.push_back(operation);
    windows.stir(handle);
    progress.pending |= Pending::TRANSFER;
}

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
    let Rows { windows, vcs, progress, .. } = rows;
    let Some(Some(window)) = windows.list.get_mut(row as usize) else { return false };
    let mut left = serve_waiting(window, vcs);
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

/// Who is to be told of the end of an operation.
struct Waiter {
    number: u64,
    /// Its request, or [`NIL`].
    request: Row,
    /// It is the last operation of its request.
    is_last: bool,
    /// A call waits for its end, without a request.
    awaited: bool,
    /// Bytes that the operation moves.
    length: u64,
    /// Whether flushes wait for it.
    is_counted: bool,
}

impl Waiter {
    fn of(operation: &RemoteOperation) -> Self {
        let &RemoteOperation { number, request, is_last, awaited, length, kind, .. } = operation;
        Waiter { number, request, is_last, awaited, length, is_counted: !kind.is_of_lock() }
    }

    fn of_part(part: &BatchPart) -> Self {
        let &BatchPart { number, request, is_last, awaited, length, .. } = part;
        Waiter { number, request, is_last, awaited, length, is_counted: true }
    }
}

/// Tells whoever waits for an operation that it is done, or has failed at its target.
fn tell(rows: &mut Rows<'_>, handle: u32, rank: usize, waiter: &Waiter, failure: Option<Failure>) {
    let Rows { windows, progress, cars, requests, .. } = rows;
    let &Waiter { number, request, is_last, awaited, length, is_counted } = waiter;
    let Some(target) = windows.answered(handle, rank) else { return };
    target.completed += u64::from(is_counted);
    match (request, failure) {
        (NIL, _) if awaited => windows.ended.push((number, failure.map_or(Ok(()), Err))),
        (NIL, _) => target.failure = target.failure.or(failure),
        (row, failure) => {
            let failed = if failure.is_some() { car_flags::FAILED_AT_TARGET } else { 0 };
            if let Some(failure) = failure {
                progress.refuse(row, refusal(windows, handle, failure));
            }
            end_part(progress, cars, requests, row, (length, failed), is_last);
        }
    }
}

/// What the request of an operation says of a failure that its target has told.
#[cold]
fn refusal(windows: &mut Windows, handle: u32, failure: Failure) -> Refusal {
    match failure {
        Failure::HolderFailed(holder) => {
            Refusal::HolderFailed(windows.answered(handle, holder as usize).map_or(NIL, |holder| holder.vc))
        }
        // The other failures are found by this process.
        Failure::OutOfBounds | Failure::TargetFailed | Failure::Fabric => Refusal::OutOfBounds,
    }
}

/// Ends a part of a request: `length` bytes are done, or the part has failed as the flag says. The last part ends the request.
fn end_part(
    progress: &mut Progress,
    cars: &mut [Car],
    requests: &mut [Request],
    row: Row,
    (length, failed): (u64, u16),
    is_last: bool,
) {
    let car = &mut cars[row as usize];
    car.flags |= failed;
    car.done += length;
    let (done, flags) = (car.done, car.flags & car_flags::ERRORS);
    match (is_last, flags) {
        (false, _) => {}
        (true, 0) => finish_at_once(progress, cars, requests, row, done),
        (true, flags) => abort(progress, cars, row, flags),
    }
}

#[cfg(test)]
mod tests;
