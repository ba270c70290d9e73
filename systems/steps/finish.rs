//! Ends CARs and their requests, and frees the rows of both.

use crate::rows::Rows;
use crate::steps::chain::capacity;
use crate::steps::registering;
use crate::steps::signatures::mismatch;
use tickwire_components::submission::OwedToThread;
use tickwire_components::{
    Car, CarKind, CarState, Large, NIL, OtherType, Outcome, Pending, ProcId, ProcTable, Progress, Rank, Refusal,
    Request, RequestError, RequestState, Row, Status, Tag, Vc, VcState, car_flags,
};

/// Marks a CAR as finished, with the length of its message, and queues it for Complete.
#[inline(always)]
pub(crate) fn finish_car(progress: &mut Progress, cars: &mut [Car], row: Row, length: u64, truncated: bool) {
    let car = &mut cars[row as usize];
    car.done = length;
    car.state = CarState::Finished;
    if truncated {
        car.flags |= car_flags::TRUNCATED;
    }
    progress.finished.push(cars, row);
    progress.pending |= Pending::COMPLETE;
}

/// As [`finish_car`], but ends the request at once where Complete has nothing to do for it.
#[inline(always)]
pub(crate) fn finish_at_once(
    progress: &mut Progress,
    cars: &mut [Car],
    requests: &mut [Request],
    row: Row,
    length: u64,
) {
    let car = &mut cars[row as usize];
    car.done = length;
    if !end_at_once(progress, car, requests, row) {
        finish_car(progress, cars, row, length, false);
    }
}

/// Ends a CAR and its request at once, without Complete, and returns `true`. That is possible if no other CAR must end before this one, the
/// CAR is [plain](is_plain), only the owner of the request's token will ask for the result, and no system of the application is to see
/// the end in Complete. Otherwise nothing changes, and `false` leaves the CAR to Complete. No other function decides this.
#[inline(always)]
pub(crate) fn end_at_once(progress: &mut Progress, car: &mut Car, requests: &mut [Request], row: Row) -> bool {
    progress.ends_at_once && is_plain(progress, car, row) && end_plain(progress, car, requests, row)
}

/// As [`end_at_once`], for a CAR that the caller knows to be plain.
#[inline(always)]
pub(crate) fn end_plain(progress: &mut Progress, car: &mut Car, requests: &mut [Request], row: Row) -> bool {
    debug_assert!(is_plain(progress, car, row) || car.request != row, "Complete looks at the end of {car:?}");
    progress.finished.is_empty() && end_next(progress, car, requests, row)
}

/// Ends a plain CAR that is the next one to end, unless somebody has to be notified of its end.
#[inline(always)]
fn end_next(progress: &mut Progress, car: &mut Car, requests: &mut [Request], row: Row) -> bool {
    let Some(request) = requests.get_mut(row as usize) else { return false };
    if car.request != row || request.counter != 1 || !finish_awaited(progress, request) {
        return false;
    }
    request.counter = 0;
    car.state = CarState::Done;
    true
}

/// Whether Complete has nothing to do for a CAR except to end its request: the CAR is in one run and is the whole of its request, it has
/// not failed, and none of its memory is registered. A receive has this property from when it is posted until an offer is paired with it.
#[inline(always)]
fn is_plain(progress: &Progress, car: &Car, row: Row) -> bool {
    let is_registered = progress.registered != 0 && progress.registrations.serves(row);
    is_one_run(car, row) && car.flags & car_flags::ERRORS == 0 && !is_registered
}

/// Whether a receive has no chained CARs and belongs to no graph.
#[inline(always)]
pub(crate) fn is_one_run(car: &Car, row: Row) -> bool {
    car.chain == NIL && car.request == row
}

/// Ends the finished CARs at the head of the queue, in order, up to the first one that needs Complete.
pub(crate) fn end_awaited(rows: &mut Rows<'_>) {
    let Rows { progress, cars, requests, .. } = rows;
    loop {
        let row = progress.finished.head;
        let Some(car) = cars.get_mut(row as usize) else { break };
        if !is_plain(progress, car, row) || !end_next(progress, car, requests, row) {
            return;
        }
        progress.finished.pop(cars);
    }
    if !progress.late {
        progress.pending.clear(Pending::COMPLETE);
    }
}

/// Counts a finished CAR towards its request. Returns the request's row if this was the last CAR of the request.
#[inline(always)]
pub(crate) fn take_part(rows: &mut Rows<'_>, row: Row) -> Option<Row> {
    if rows.progress.registered != 0 {
        registering::release(&mut rows.progress, row);
    }
    let car = &mut rows.cars[row as usize];
    let (owner, flags) = (car.request, car.flags & car_flags::ERRORS);
    let mut parts = 1;
    if flags != 0 || car.chain != NIL || owner != row {
        parts = part(&mut rows.progress, &mut rows.cars, &mut rows.large, row);
    } else {
        car.state = CarState::Done;
    }
    let request = rows.requests.get_mut(owner as usize)?;
    request.counter -= parts;
    (request.counter == 0).then_some(owner)
}

/// The outcome of the request in a row.
///
/// # Errors
/// If it did not end well.
pub fn outcome(progress: &Progress, cars: &[Car], large: &[Large], vcs: &[Vc], procs: &ProcTable, row: Row) -> Outcome {
    let car = &cars[row as usize];
    let (status, flags) = (status(car), car.flags & car_flags::ERRORS);
    Err(if flags == 0 {
        return Ok(status);
    } else if flags & car_flags::PEER_FAILED != 0 {
        // A receive from any source has no VC here. It has ended because a peer failed that might have sent its message.
        let failed = |vc: &Vc| vc.state == VcState::Failed && !vc.acknowledged;
        let vc = if car.vc == NIL { vcs.iter().position(failed).map_or(NIL, |vc| vc as Row) } else { car.vc };
        let proc = ProcId(vcs.get(vc as usize).map_or(NIL, |vc| vc.proc));
        RequestError::PeerFailed { proc, reason: procs.reason(vc).to_owned() }
    } else if flags & car_flags::CANCELLED != 0 {
        RequestError::Cancelled
    } else if flags & car_flags::FINALIZED != 0 {
        RequestError::Finalized
    } else if flags & car_flags::FAILED_AT_TARGET != 0 {
        match progress.refusals.iter().find(|(of, _)| *of == row).map(|(_, refusal)| refusal) {
            Some(Refusal::Fabric(reason)) => RequestError::Fabric { reason: reason.clone() },
            Some(&Refusal::HolderFailed(vc)) => {
                let proc = ProcId(vcs.get(vc as usize).map_or(NIL, |vc| vc.proc));
                RequestError::HolderFailed { proc, reason: procs.reason(vc).to_owned() }
            }
            Some(Refusal::NotExposed) => RequestError::NotExposed,
            Some(Refusal::OutOfBounds) | None => RequestError::OutOfBounds,
        }
    } else if flags & car_flags::NOT_READY != 0 {
        RequestError::NotReady
    } else if flags & car_flags::ABANDONED != 0 {
        RequestError::Abandoned(status.source)
    } else if flags & car_flags::SHORT != 0 {
        let expected = large[row as usize].room as usize;
        RequestError::Short { from: status.source, sent: status.length, expected }
    } else if flags & car_flags::OTHER_TYPE != 0 {
        let (sent, expected) = mismatch(progress.signatures.as_deref(), row);
        RequestError::OtherType(OtherType::new(status, sent, expected))
    } else {
        RequestError::Truncated { status, capacity: large[row as usize].room as usize }
    })
}

/// The status of a finished operation.
#[inline(always)]
pub fn status(car: &Car) -> Status {
    Status { source: Rank(car.source), tag: Tag(car.tag), length: car.done as usize }
}

/// Ends a CAR that is part of a larger request, has chained CARs, or has failed: passes its error flags on to the request's envelope and
/// frees its rows. Returns how many parts it counts for. An envelope with data CARs counts for these, not for itself.
#[cold]
pub(crate) fn part(progress: &mut Progress, cars: &mut [Car], large: &mut [Large], row: Row) -> u32 {
    let Car { request: owner, flags, chain, .. } = cars[row as usize];
    if flags & car_flags::TRUNCATED != 0 {
        large[row as usize].room = capacity(cars, row);
    }
    let (mut data, mut count) = (chain, 0);
    while data != NIL {
        let next = cars[data as usize].chain;
        if cars[data as usize].kind == CarKind::Layout {
            progress.run_lists.retain(|(row, _)| *row != data);
        }
        free_car(progress, cars, data);
        (data, count) = (next, count + 1);
    }
    cars[row as usize].chain = NIL;
    cars[row as usize].state = CarState::Done;
    if owner != row {
        if let Some(owner) = cars.get_mut(owner as usize) {
            owner.flags |= flags & car_flags::ERRORS;
        }
        free_car(progress, cars, row);
    }
    count.max(1)
}

/// Ends a request that another thread waits for. That thread is told between passes.
#[cold]
pub(crate) fn finish_submitted(progress: &mut Progress, requests: &mut [Request], row: Row) {
    progress.active -= 1;
    progress.work.completed += 1;
    requests[row as usize].state = RequestState::Done;
    progress.owed_to_threads.push(OwedToThread::Outcome(row));
}

/// Ends a finished request if only the owner of its token will ask for the result, which is the frequent case. `false` leaves it as it is.
#[inline(always)]
pub(crate) fn finish_awaited(progress: &mut Progress, request: &mut Request) -> bool {
    if request.state != RequestState::Active || request.notified {
        return false;
    }
    request.state = RequestState::Done;
    progress.active -= 1;
    progress.work.completed += 1;
    true
}

/// Frees a request and its row. Handles to the request are stale from now on.
#[inline]
pub fn free_request(progress: &mut Progress, cars: &mut [Car], requests: &mut [Request], row: Row) {
    let request = &mut requests[row as usize];
    request.state = RequestState::Free;
    request.generation = request.generation.wrapping_add(1);
    progress.scoped -= u32::from(std::mem::take(&mut request.scoped));
    // The request and its envelope CAR share a row.
    let car = &mut cars[row as usize];
    (car.state, car.kind) = (CarState::Free, CarKind::None);
    progress.free_cars.push(cars, row);
}

/// Frees the row of a CAR.
#[inline(always)]
pub fn free_car(progress: &mut Progress, cars: &mut [Car], row: Row) {
    let car = &mut cars[row as usize];
    car.state = CarState::Free;
    car.kind = CarKind::None;
    progress.free_cars.push(cars, row);
}

/// Ends a CAR for a reason other than success, which `flags` name, and queues it for Complete.
#[inline]
pub fn abort(progress: &mut Progress, cars: &mut [Car], row: Row, flags: u16) {
    debug_assert!(flags & car_flags::ERRORS != 0);
    let car = &mut cars[row as usize];
    car.flags |= flags;
    car.state = CarState::Finished;
    progress.finished.push(cars, row);
    progress.pending |= Pending::COMPLETE;
}
