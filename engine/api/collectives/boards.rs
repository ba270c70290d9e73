//! Collective operations on boards: how they are posted, and how they are waited for.

mod calls;
mod opening;

use super::persistent::BufferCheck;
use super::request::own_request;
use crate::run::engine::Engine;
use std::collections::VecDeque;
use std::panic::resume_unwind;
use tickwire_components::{
    CarState, Collective, Comm, Communicator, NIL, PostError, Reduction, RequestId, RequestState, Row, Span, context,
};
use tickwire_systems::procs::boards::{Boards, Members, PersistentCall, Standing};
use tickwire_systems::procs::communicators::live;
use tickwire_systems::protocols::board::{
    Around, Meeting, NumberedCall, Operation, Step, advance_apart, cancel, end_short, look, order_of_call,
    order_of_start, refuse,
};
use tickwire_systems::protocols::graph::kept::dissolve;
use tickwire_systems::rows::Rows;
use tickwire_systems::tick::boards::{cancel_boards, end};

impl Engine {
    /// The row of a communicator, and its context word.
    #[inline(always)]
    pub(crate) fn context_of(&mut self, comm: Comm) -> (usize, u32) {
        let row = Communicator::row(comm.0);
        (row, self.store.all().communicators[row].context)
    }

    /// Takes a row for the request of an operation on boards. The request is inactive.
    pub(crate) fn request_row(&mut self, comm: Comm) -> Result<Row, PostError> {
        self.need_rows(1)?;
        let (_, word) = self.context_of(comm);
        let all = self.store.all();
        let Some(row) = all.progress.free_cars.pop(all.cars) else { return Err(self.full()) };
        own_request(all.cars, all.requests, row, word | context::COLLECTIVE);
        Ok(row)
    }

    /// Starts an operation. `request` is the row of its request, which is inactive. An operation that need not wait for others ends at
    /// once.
    pub(super) fn post_on_boards(&mut self, comm: Comm, call: Collective, posting: &Posting, request: Row) {
        let (row, _) = self.context_of(comm);
        let waits = self.store.with(|rows, wire| {
            activate(rows, request);
            let boards = &mut *rows.boards;
            let Boards { comms, busy, scratch, persistent, patience, .. } = boards;
            let Some(Standing::Open(members)) = comms.get_mut(row).map(|comm| &mut comm.standing) else { return false };
            let Members { seats, queue, .. } = &mut **members;
            let reduction = match posting {
                Posting::Once(reduction) => reduction.as_ref(),
                Posting::Persistent(number) => {
                    persistent.get(*number as usize).and_then(Option::as_ref).and_then(|kept| kept.reduction.as_ref())
                }
            };
            let (before, order) = match posting {
                Posting::Once(_) => {
                    let before = count_call(&mut rows.communicators[row]);
                    (Some(before), order_of_call(before))
                }
                Posting::Persistent(number) => {
                    let kept = persistent.get(*number as usize).and_then(Option::as_ref);
                    (None, order_of_start(kept.map_or(0, |kept| kept.made)))
                }
            };
            let numbered = NumberedCall::new(call, order, seats);
            let mut meeting = Meeting::of(&numbered);
            let mut around = Around { endpoints: wire.endpoints, vcs: &rows.vcs, scratch, patience: *patience };
            let is_first = queue.is_empty();
            if is_first && numbered.is_short() {
                let met = look(&numbered, &mut meeting, seats, &mut around);
                if met != Ok(false) {
                    let ended = end_short(&numbered, reduction, met, seats, &mut around);
                    end(rows, row as Row, request, ended);
                    return false;
                }
            }
            let is_long = !numbered.is_short();
            let mut operation = Operation::new(numbered, reduction.cloned(), meeting, seats, request);
            operation.before = before;
            if let Posting::Persistent(number) = posting {
                operation.copy = persistent.get_mut(*number as usize).and_then(|kept| kept.as_mut()?.copy.take());
            }
            if is_first && is_long {
                match advance_apart(&mut operation, seats, &mut around).unwrap_or_else(|panic| resume_unwind(panic)) {
                    Step::Done => {
                        rows.boards.keep_copy(&mut operation);
                        end(rows, row as Row, request, Ok(()));
                        return false;
                    }
                    Step::Failed(failure) => {
                        keep_failed(operation, queue, busy, row as Row);
                        end(rows, row as Row, request, Err(failure));
                        return true;
                    }
                    Step::Waits | Step::Moved => {}
                }
            }
            enqueue(operation, queue, busy, row as Row);
            true
        });
        if waits {
            self.mind_boards();
        }
    }
}

/// How an operation with a request is posted.
pub(super) enum Posting {
    /// By a call of its own, with the reduction if elements are reduced.
    Once(Option<Reduction>),
    /// By a start of the persistent operation of this number. Starts are not counted among the communicator's operations.
    Persistent(u32),
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

/// Keeps an operation that has failed before it began in the queue: the others can be told of it only once its slot is free.
#[cold]
fn keep_failed(mut operation: Operation, queue: &mut VecDeque<Operation>, busy: &mut Vec<Row>, row: Row) {
    if !operation.has_begun() {
        cancel(&mut operation);
        enqueue(operation, queue, busy, row);
    }
}

/// Activates the request of an operation on boards.
pub(crate) fn activate(rows: &mut Rows<'_>, row: Row) {
    let Rows { progress, cars, requests, .. } = rows;
    let request = &mut requests[row as usize];
    (request.state, request.counter) = (RequestState::Active, 1);
    let owner = &mut cars[row as usize];
    (owner.state, owner.flags, owner.done) = (CarState::Waiting, 0, 0);
    progress.refusals.retain(|(of, _)| *of != row);
    progress.active += 1;
    progress.work.posted += 1;
    let stamp = progress.stamp();
    progress.stamps.set(row, stamp);
}

impl Engine {
    /// Keeps a persistent operation. It runs on boards, or as a graph until there are some. Returns its number.
    pub(super) fn keep_on_boards(
        &mut self,
        (request, graph, made): (Row, u32, u32),
        (call, reduction): (Collective, Option<Reduction>),
        buffers: Box<[Span]>,
    ) -> u32 {
        let persistent = &mut self.store.all().boards.persistent;
        let (starts, copy, failed) = (0, None, false);
        let kept = Some(PersistentCall { request, made, starts, graph, call, reduction, buffers, copy, failed });
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
    /// `check` is for the type of the buffer that the row holds.
    #[expect(unsafe_code, reason = "type-erased ownership")]
    pub(crate) unsafe fn start_kept(
        &mut self,
        comm: Comm,
        row: Row,
        number: u32,
        check: BufferCheck,
    ) -> Result<(), PostError> {
        let (place, context) = self.context_of(comm);
        let tables = self.store.all();
        live(tables.communicators, comm.0)?;
        let kept =
            tables.boards.persistent.get_mut(number as usize).and_then(Option::as_mut).ok_or(PostError::Stale)?;
        // SAFETY: by the same contract.
        unsafe { check(&tables.held[row as usize].0, &kept.buffers) }?;
        kept.starts = kept.starts.wrapping_add(1);
        let (call, graph) = (kept.call, kept.graph);
        if tables.boards.open(place, context).is_none() {
            return match graph {
                NIL => Err(PostError::Stale),
                // SAFETY: by the same contract.
                graph => unsafe { self.start_graph(row, graph, check) },
            };
        }
        if graph != NIL {
            self.leave_graph(number, graph);
        }
        if self.store.all().boards.persistent[number as usize].as_ref().is_some_and(|kept| kept.failed) {
            self.refuse_on_boards(comm);
            return Err(PostError::HasFailed);
        }
        // A function of the application may panic in it.
        self.lending(|engine| engine.post_on_boards(comm, call, &Posting::Persistent(number), row));
        Ok(())
    }

    /// Moves a persistent operation from its graph to the boards, which were opened since it was made. All members do so at the same
    /// start: an operation has opened the boards, and operations start in the same order everywhere.
    #[cold]
    fn leave_graph(&mut self, number: u32, graph: u32) {
        let tables = self.store.all();
        let failed = tables.progress.graphs.get(graph).is_some_and(|graph| graph.failed);
        if let Some(Some(kept)) = tables.boards.persistent.get_mut(number as usize) {
            (kept.graph, kept.failed) = (NIL, kept.failed || failed);
        }
        self.store.with(|rows, _| dissolve(rows, graph));
    }

    /// Gives up an operation that this member does not run on boards, if they are open. Others may run it there, so it takes its number
    /// here too, and they are told.
    pub(super) fn refuse_on_boards(&mut self, comm: Comm) {
        let (row, context) = self.context_of(comm);
        let waits = self.store.with(|rows, wire| {
            let boards = &mut *rows.boards;
            if boards.open(row, context).is_none() {
                return false;
            }
            let Boards { comms, busy, scratch, patience, .. } = boards;
            let Standing::Open(members) = &mut comms[row].standing else { return false };
            let Members { seats, queue, .. } = &mut **members;
            let numbered = NumberedCall::new(Collective::BARRIER, 0, seats);
            let mut around = Around { endpoints: wire.endpoints, vcs: &rows.vcs, scratch, patience: *patience };
            if queue.is_empty() && refuse(&numbered, seats, &mut around) {
                return false;
            }
            let mut operation = Operation::new(numbered, None, Meeting::of(&numbered), seats, NIL);
            cancel(&mut operation);
            enqueue(operation, queue, busy, row as Row);
            true
        });
        if waits {
            self.mind_boards();
        }
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
