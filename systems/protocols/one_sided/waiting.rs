//! Who waits for an operation, and is told of its end.

use crate::procs::windows::{BatchPart, Failure, RemoteOperation, Windows};
use crate::rows::Rows;
use crate::steps::finish::{abort, finish_at_once};
use tickwire_components::{Car, NIL, Progress, Refusal, Request, Row, car_flags};

/// Who is to be told of the end of an operation.
pub(super) struct Waiter {
    pub(super) number: u64,
    /// Its request, or [`NIL`].
    pub(super) request: Row,
    /// It is the last operation of its request.
    pub(super) is_last: bool,
    /// A call waits for its end, without a request.
    pub(super) awaited: bool,
    /// Bytes that the operation moves.
    length: u64,
    /// Whether flushes wait for it.
    is_counted: bool,
}

impl Waiter {
    pub(super) fn of(operation: &RemoteOperation) -> Self {
        let &RemoteOperation { number, request, is_last, awaited, length, kind, .. } = operation;
        Waiter { number, request, is_last, awaited, length, is_counted: !kind.is_of_epoch() }
    }

    pub(super) fn of_part(part: &BatchPart) -> Self {
        let &BatchPart { number, request, is_last, awaited, length, .. } = part;
        Waiter { number, request, is_last, awaited, length, is_counted: true }
    }
}

/// Tells whoever waits for an operation that it is done, or has failed at its target.
pub(super) fn tell(rows: &mut Rows<'_>, handle: u32, rank: usize, waiter: &Waiter, failure: Option<Failure>) {
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
        Failure::NotExposed => Refusal::NotExposed,
        // The other failures are found by this process.
        Failure::OutOfBounds | Failure::TargetFailed | Failure::Fabric => Refusal::OutOfBounds,
    }
}

/// Ends a part of a request: `length` bytes are done, or the part has failed as the flag says. The last part ends the request.
pub(super) fn end_part(
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
