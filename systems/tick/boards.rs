//! Collective operations on boards: goes on with those that are in progress.
//!
//! *Reads* the boards of all members, VCs. *Writes* the own boards, the buffers of operations, the requests and CAR rows of operations
//! that end.
//! *Bound* for each communicator its first operation, and the next ones as long as each ends at once. A long operation does
//! [`BOARD_STEPS_A_POLL`](tickwire_components::limits::BOARD_STEPS_A_POLL) steps.
//! *Why* members write to their boards and send no frame. So a look at the endpoints does not find what they have written.

use crate::procs::boards::{Boards, CommBoards, Members, Standing};
use crate::protocols::board::{Around, Failure, Operation, Step, advance, cancel, end_met, give_up, look_at};
use crate::rows::{Rows, Wire};
use crate::steps::finish::{abort, finish_at_once};
use tickwire_components::{Car, Large, NIL, RequestState, Row, Status, car_flags, context};

/// Goes on with the operations in progress; whether one of them has come further.
pub fn advance_boards(rows: &mut Rows<'_>, wire: &mut Wire<'_>) -> bool {
    let mut moved = false;
    let mut index = 0;
    while let Some(&row) = rows.boards.busy.get(index) {
        moved |= advance_comm(rows, wire, row);
        let left = rows.boards.comms.get(row as usize).is_some_and(has_operations);
        if left {
            index += 1;
        } else {
            rows.boards.busy.swap_remove(index);
        }
    }
    moved
}

/// Looks at the boards for the operation of a request, up to `looks` times, if that is short and the first one on its boards. Returns
/// whether the operation has ended. `pause` is called before each look.
#[inline(always)]
pub fn finish_first(
    rows: &mut Rows<'_>,
    wire: &mut Wire<'_>,
    request: Row,
    looks: u32,
    mut pause: impl FnMut(u32),
) -> bool {
    // A request of another engine may have any row.
    let Some(comm) = rows.cars.get(request as usize).map(|car| context::id(car.context)) else { return false };
    let &mut Boards { ref mut comms, ref mut busy, ref mut scratch, patience, .. } = &mut *rows.boards;
    let Some(CommBoards { standing: Standing::Open(members), .. }) = comms.get_mut(comm as usize) else { return false };
    let Members { seats, queue, .. } = &mut **members;
    // Long operations go on by `advance`.
    let is_meant = |first: &&mut Operation| first.request == request && first.numbered.is_short();
    let Some(first) = queue.front_mut().filter(is_meant) else { return false };
    let mut around = Around { endpoints: wire.endpoints, vcs: &rows.vcs, scratch, patience };
    let mut met = Ok(false);
    for look in 1..=looks {
        pause(look);
        met = look_at(first, seats, &mut around);
        if met != Ok(false) {
            break;
        }
    }
    if met == Ok(false) {
        return false;
    }
    let ended = end_met(first, met, seats, &mut around);
    queue.pop_front();
    if queue.is_empty()
        && let Some(place) = busy.iter().position(|of| *of == comm)
    {
        busy.swap_remove(place);
    }
    rows.progress.work.received += 1;
    end(rows, comm, request, ended);
    true
}

fn has_operations(comm: &CommBoards) -> bool {
    matches!(&comm.standing, Standing::Open(members) if !members.queue.is_empty())
}

/// Goes on with the operations of a communicator, in order, until one waits.
fn advance_comm(rows: &mut Rows<'_>, wire: &mut Wire<'_>, row: Row) -> bool {
    let mut moved = false;
    loop {
        let &mut Boards { ref mut comms, ref mut scratch, patience, .. } = &mut *rows.boards;
        let Some(CommBoards { standing: Standing::Open(members), .. }) = comms.get_mut(row as usize) else { break };
        let Members { seats, queue, ended: told } = &mut **members;
        let Some(operation) = queue.front_mut() else { break };
        let mut around = Around { endpoints: wire.endpoints, vcs: &rows.vcs, scratch, patience };
        let ended = match advance(operation, seats, &mut around) {
            Step::Waits => break,
            Step::Moved => {
                rows.progress.work.received += 1;
                return true;
            }
            Step::Done => Ok(()),
            Step::Failed(failure) => Err(failure),
        };
        moved = true;
        let request = operation.request;
        if operation.awaited {
            told.push((operation.numbered.number, ended));
        }
        // An operation that failed before its slot was free stays in the queue, without its buffers, until it can tell the others.
        let left = if ended.is_err() && !operation.has_begun() && !operation.is_cancelled() {
            cancel(operation);
            None
        } else {
            queue.pop_front()
        };
        if let Some(mut operation) = left {
            rows.boards.keep_copy(&mut operation);
        }
        rows.progress.work.received += 1;
        end(rows, row, request, ended);
    }
    moved
}

/// Ends the request of an operation of a communicator, if it has one.
pub fn end(rows: &mut Rows<'_>, comm: Row, request: Row, ended: Result<(), Failure>) {
    if request == NIL {
        return;
    }
    let vc = ended.err().map_or(NIL, |failure| vc_of(&rows.boards, comm, failure.rank));
    let Rows { progress, cars, large, requests, .. } = rows;
    match ended {
        Ok(()) => finish_at_once(progress, cars, requests, request, 0),
        Err(failure) => {
            (cars[request as usize], large[request as usize]) = as_row(&cars[request as usize], failure, vc);
            abort(progress, cars, request, failure.flags);
            note_failed(rows, request);
        }
    }
}

/// Notes that a persistent operation has failed, if the request is that of one.
#[cold]
fn note_failed(rows: &mut Rows<'_>, request: Row) {
    let kept = rows.boards.persistent.iter_mut().flatten().find(|kept| kept.request == request);
    kept.into_iter().for_each(|kept| kept.failed = true);
}

/// The VC of a member.
pub fn vc_of(boards: &Boards, comm: Row, rank: u32) -> Row {
    match boards.comms.get(comm as usize).map(|comm| &comm.standing) {
        Some(Standing::Open(members)) => match members.seats.peers.get(rank as usize) {
            Some(Some(seat)) => seat.vc,
            _ => NIL,
        },
        _ => NIL,
    }
}

/// Rows from which the error of an operation that has failed is made.
pub fn as_row(car: &Car, failure: Failure, vc: Row) -> (Car, Large) {
    let tag = Status::NULL.tag.0;
    let flags = car.flags & !car_flags::ERRORS | failure.flags;
    let large = Large { room: failure.expected, ..Large::of(failure.sent) };
    (Car { source: failure.rank, tag, vc, done: failure.sent, flags, ..*car }, large)
}

/// Cancels the operations whose requests `whose` picks. Nobody uses their buffers any more.
pub fn cancel_boards(rows: &mut Rows<'_>, wire: &mut Wire<'_>, whose: impl Fn(Row) -> bool) {
    for comm in 0..rows.boards.comms.len() {
        let is_meant = |operation: &Operation| operation.request != NIL && whose(operation.request);
        for request in cancel_those(rows, wire, comm, is_meant) {
            abort(&mut rows.progress, &mut rows.cars, request, car_flags::CANCELLED);
            note_failed(rows, request);
        }
    }
}

/// Cancels operation `number` of a communicator, whose caller stops waiting for it. Its buffers are not used any more.
#[cold]
pub fn cancel_call(rows: &mut Rows<'_>, wire: &mut Wire<'_>, comm: usize, number: u64) {
    cancel_those(rows, wire, comm, |operation| operation.numbered.number == number);
    if let Some(CommBoards { standing: Standing::Open(members), .. }) = rows.boards.comms.get_mut(comm) {
        members.ended.retain(|(of, _)| *of != number);
    }
}

/// Cancels operations of a communicator; their requests.
fn cancel_those(
    rows: &mut Rows<'_>,
    wire: &mut Wire<'_>,
    comm: usize,
    is_meant: impl Fn(&Operation) -> bool,
) -> Vec<Row> {
    let Some(CommBoards { standing: Standing::Open(members), .. }) = rows.boards.comms.get_mut(comm) else {
        return Vec::new();
    };
    let Members { seats, queue, .. } = &mut **members;
    let mut cancelled = Vec::new();
    for operation in queue.iter_mut().filter(|operation| is_meant(operation)) {
        cancelled.push(operation.request);
        cancel(operation);
    }
    // The first one may be at work: others hear of its end at once.
    if let Some(first) = queue.front().filter(|first| first.is_cancelled() && first.has_begun()) {
        give_up(first.numbered.number, seats, wire.endpoints);
        queue.pop_front();
    }
    cancelled
}

/// Ends all operations: the engine takes part in nothing any more.
pub fn close_boards(rows: &mut Rows<'_>) {
    let boards = &mut *rows.boards;
    for comm in &mut boards.comms {
        if let Standing::Open(members) = &mut comm.standing {
            members.seats.own.close();
        }
    }
    let requests: Vec<Row> = boards.comms.drain(..).flat_map(requests_of).collect();
    boards.busy.clear();
    let Rows { progress, cars, requests: states, .. } = rows;
    for row in requests {
        if matches!(states[row as usize].state, RequestState::Active | RequestState::Detached) {
            abort(progress, cars, row, car_flags::FINALIZED);
        }
    }
}

fn requests_of(comm: CommBoards) -> Vec<Row> {
    match comm.standing {
        Standing::Open(members) => {
            members.queue.iter().map(|operation| operation.request).filter(|&row| row != NIL).collect()
        }
        _ => Vec::new(),
    }
}
