//! Collective operations on boards: how they are posted, and how they are waited for.

mod calls;
mod opening;

use super::graph::own_request;
use crate::run::engine::Engine;
use std::collections::VecDeque;
use tickwire_components::{
    CarState, Collective, Comm, Communicator, NIL, Pieces, PostError, ProcId, Reduction, RequestId, RequestState, Row,
    Span, context,
};
use tickwire_systems::procs::boards::{Boards, Members, PersistentCall, Standing};
use tickwire_systems::procs::communicators::live;
use tickwire_systems::protocols::board::{Around, Meeting, NumberedCall, Operation, Step, advance, cancel};
use tickwire_systems::rows::Rows;
use tickwire_systems::tick::boards::{cancel_boards, end};

impl Engine {
    /// The row of a communicator, and its context word.
    #[inline(always)]
    pub(crate) fn context_of(&mut self, comm: Comm) -> (usize, u32) {
        let row = Communicator::row(comm.0);
        (row, self.store.all().communicators[row].context)
    }

    /// Why no operation runs on a communicator whose boards could not be opened.
    #[cold]
    pub(super) fn broken(&mut self, comm: Comm) -> PostError {
        let vc = self.failed_member_of(comm).unwrap_or(NIL);
        let all = self.store.all();
        let proc = ProcId(all.vcs.get(vc as usize).map_or(NIL, |vc| vc.proc));
        PostError::PeerFailed { proc, reason: all.procs.reason(vc).to_owned() }
    }

    /// A row for the request of an operation on boards: it is inactive.
    pub(crate) fn request_row(&mut self, comm: Comm) -> Result<Row, PostError> {
        self.need_rows(1)?;
        let (_, word) = self.context_of(comm);
        let all = self.store.all();
        let Some(row) = all.progress.free_cars.pop(all.cars) else { return Err(self.full()) };
        own_request(all.cars, all.requests, row, word | context::COLLECTIVE);
        Ok(row)
    }

    /// Starts an operation with a request, whose row this is: it is inactive. A persistent one is not among those that are counted.
    pub(super) fn post_on_boards(
        &mut self,
        comm: Comm,
        call: Collective,
        reduction: Option<Reduction>,
        (request, counts): (Row, bool),
    ) {
        let (row, _) = self.context_of(comm);
        self.store.with(|rows, wire| {
            activate(rows, request);
            let &mut Boards { ref mut comms, ref mut busy, ref mut scratch, patience, .. } = &mut *rows.boards;
            let Some(Standing::Open(members)) = comms.get_mut(row).map(|comm| &mut comm.standing) else { return };
            let Members { seats, queue, .. } = &mut **members;
            let numbered = NumberedCall::new(call, seats);
            let meeting = Meeting::of(&numbered);
            let mut operation = Operation::new(numbered, reduction, meeting, seats, request);
            operation.before = counts.then(|| count_call(&mut rows.communicators[row]));
            if queue.is_empty() {
                let mut around = Around { endpoints: wire.endpoints, vcs: &rows.vcs, scratch, patience };
                match advance(&mut operation, seats, &mut around) {
                    Step::Done => return end(rows, row as Row, request, Ok(())),
                    Step::Failed(failure) => {
                        keep_failed(operation, queue, busy, row as Row);
                        return end(rows, row as Row, request, Err(failure));
                    }
                    Step::Waits | Step::Moved => {}
                }
            }
            enqueue(operation, queue, busy, row as Row);
        });
        self.mind_boards();
    }
}

/// Counts an operation of a communicator; how many there were before.
#[inline(always)]
fn count_call(communicator: &mut Communicator) -> u32 {
    let number = communicator.collectives;
    communicator.collectives = number.wrapping_add(1);
    number
}

/// An operation waits for its turn, or for others.
fn enqueue(operation: Operation, queue: &mut VecDeque<Operation>, busy: &mut Vec<Row>, row: Row) {
    queue.push_back(operation);
    if !busy.contains(&row) {
        busy.push(row);
    }
}

/// An operation has failed: if others do not know yet, they are to be told.
#[cold]
fn keep_failed(mut operation: Operation, queue: &mut VecDeque<Operation>, busy: &mut Vec<Row>, row: Row) {
    if !operation.has_begun() {
        cancel(&mut operation);
        enqueue(operation, queue, busy, row);
    }
}

/// A request of an operation on boards is active.
pub(crate) fn activate(rows: &mut Rows<'_>, row: Row) {
    let Rows { progress, cars, requests, .. } = rows;
    let request = &mut requests[row as usize];
    (request.state, request.counter) = (RequestState::Active, 1);
    let owner = &mut cars[row as usize];
    (owner.state, owner.flags) = (CarState::Waiting, 0);
    progress.active += 1;
    progress.work.posted += 1;
    let stamp = progress.stamp();
    progress.stamps.set(row, stamp);
}

impl Engine {
    /// Makes a persistent operation on boards; its number.
    pub(super) fn keep_on_boards(
        &mut self,
        request: Row,
        (call, reduction): (Collective, Option<Reduction>),
        buffers: Box<[Span]>,
    ) -> u32 {
        let persistent = &mut self.store.all().boards.persistent;
        let kept = Some(PersistentCall { request, call, reduction, buffers });
        match persistent.iter().position(Option::is_none) {
            Some(free) => {
                persistent[free] = kept;
                free as u32
            }
            None => {
                persistent.push(kept);
                persistent.len() as u32 - 1
            }
        }
    }

    /// Starts a persistent operation on boards that is not active: its row and its number.
    ///
    /// # Safety
    /// The row holds a buffer of this type.
    #[expect(unsafe_code, reason = "type-erased ownership")]
    pub(crate) unsafe fn start_kept<B: Pieces>(&mut self, comm: Comm, row: Row, number: u32) -> Result<(), PostError> {
        let (place, context) = self.context_of(comm);
        let tables = self.store.all();
        live(tables.communicators, comm.0)?;
        // SAFETY: by the same contract.
        let buffer = unsafe { tables.held[row as usize].0.get::<B>() }.ok_or(PostError::Stale)?;
        let kept = tables.boards.persistent.get(number as usize).and_then(Option::as_ref).ok_or(PostError::Stale)?;
        let is_there = |(index, run): (usize, &Span)| {
            let now = buffer.piece(index);
            std::ptr::eq(now.start(), run.start()) && now.len() == run.len()
        };
        if buffer.pieces() != kept.buffers.len() || !kept.buffers.iter().enumerate().all(is_there) {
            return Err(PostError::Moved);
        }
        let (call, reduction) = (kept.call, kept.reduction.clone());
        if tables.boards.open(place, context).is_none() {
            return Err(PostError::Stale);
        }
        // A function of the application may panic in it.
        self.lending(|engine| engine.post_on_boards(comm, call, reduction, (row, false)));
        Ok(())
    }

    /// Cancels operations on boards whose requests have borrowed buffers: of one request, or all.
    #[cold]
    pub(crate) fn cancel_on_boards(&mut self, only: Option<RequestId>) {
        self.store.with(|rows, wire| {
            let open: Vec<Row> = rows
                .requests
                .iter()
                .zip(0u32..)
                .filter_map(|(request, row)| {
                    let meant = only.is_none_or(|only| only.row == row && only.generation == request.generation);
                    let is_open = matches!(request.state, RequestState::Active | RequestState::Detached);
                    (meant && is_open && request.scoped).then_some(row)
                })
                .collect();
            cancel_boards(rows, wire, |row| open.binary_search(&row).is_ok());
        });
        self.mind_boards();
    }
}
