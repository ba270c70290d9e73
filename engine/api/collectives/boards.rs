//! Collective operations on boards: how they are posted, and how they are waited for.

mod opening;

use super::graph::own_request;
use crate::api::request::OperationError;
use crate::run::engine::Engine;
use rustix::thread::sched_yield;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwire_components::limits::SPINS_SHARED;
use tickwire_components::{
    Car, CarState, Collective, Comm, Communicator, NIL, Pieces, PostError, ProcId, Rank, RequestError, RequestId,
    RequestState, Row, Span, context,
};
use tickwire_systems::procs::boards::{Boards, Members, PersistentCall, Standing};
use tickwire_systems::procs::communicators::live;
use tickwire_systems::protocols::board::{Around, Failure, Operation, Step, advance, cancel};
use tickwire_systems::rows::Rows;
use tickwire_systems::steps::finish::outcome;
use tickwire_systems::tick::boards::{as_row, cancel_boards, end, vc_of};

/// Looks at boards that a call makes by itself before it waits as others do: about a microsecond, a few lines' way.
const LOOKS: u32 = 200;
/// The same where ranks share processors: others run in between.
const LOOKS_SHARED: u32 = 32 * LOOKS_A_YIELD;
/// Looks before the processor is given to another rank, and between two times.
const LOOKS_A_YIELD: u32 = 4;
/// Calls of which one looks at everything else, too.
const CALLS_A_LOOK: u64 = 16;

/// What became of a call on boards.
pub(super) enum Called {
    /// It has ended.
    Ended(Result<(), Failure>),
    /// It has this number.
    Number(u64),
    /// A function of the application has panicked.
    Poisoned,
}

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

    /// Starts an operation that its caller waits for. It has ended if all others are there by now.
    #[inline(always)]
    pub(super) fn start_on_boards(&mut self, comm: Comm, call: Collective) -> Called {
        // A function of the application may panic in it.
        match catch_unwind(AssertUnwindSafe(|| self.try_on_boards(comm, call))) {
            Ok(called) => called,
            Err(panic) => {
                self.poison(&*panic);
                Called::Poisoned
            }
        }
    }

    #[inline(always)]
    fn try_on_boards(&mut self, comm: Comm, call: Collective) -> Called {
        let (row, _) = self.context_of(comm);
        let shares = self.spins <= SPINS_SHARED;
        let looks = if shares { LOOKS_SHARED } else { LOOKS };
        self.store.with(|rows, wire| {
            let &mut Boards { ref mut comms, ref mut busy, ref mut scratch, patience, .. } = &mut *rows.boards;
            let Some(Standing::Open(members)) = comms.get_mut(row).map(|comm| &mut comm.standing) else {
                return Called::Ended(Ok(()));
            };
            let Members { seats, queue, .. } = &mut **members;
            let mut operation = Operation::new(call, seats, NIL);
            operation.called = Some(count_call(&mut rows.communicators[row]));
            let mut around = Around { endpoints: wire.endpoints, vcs: &rows.vcs, scratch, patience };
            let looks = if queue.is_empty() { looks } else { 0 };
            for look in 1..=looks {
                if shares && look % LOOKS_A_YIELD == 0 {
                    sched_yield();
                }
                match advance(&mut operation, seats, &mut around) {
                    Step::Done => return Called::Ended(Ok(())),
                    Step::Failed(failure) => {
                        keep_failed(operation, queue, busy, row as Row);
                        return Called::Ended(Err(failure));
                    }
                    Step::Waits | Step::Moved => {}
                }
            }
            operation.awaited = true;
            let number = operation.number;
            enqueue(operation, queue, busy, row as Row);
            Called::Number(number)
        })
    }

    /// Waits for an operation on boards, and tells how it has ended.
    #[inline(always)]
    pub(super) fn finish_on_boards(&mut self, comm: Comm, called: Called) -> Result<(), OperationError> {
        let ended = match called {
            Called::Ended(ended) => {
                self.keep_up();
                ended
            }
            Called::Number(number) => self.wait_on_boards(comm, number)?,
            Called::Poisoned => return Err(self.closed.request_error().into()),
        };
        ended.map_err(|failure| {
            self.mind_boards();
            self.board_error(comm, failure).into()
        })
    }

    /// A program that only calls operations which end at once has everything else looked at now and then.
    #[inline(always)]
    fn keep_up(&mut self) {
        let progress = self.store.progress();
        progress.work.posted += 1;
        progress.work.completed += 1;
        if u64::from(progress.work.posted.get()).is_multiple_of(CALLS_A_LOOK) {
            self.advance(false);
            self.let_go();
        }
    }

    #[inline(never)]
    fn wait_on_boards(&mut self, comm: Comm, number: u64) -> Result<Result<(), Failure>, OperationError> {
        self.mind_boards();
        let (row, context) = self.context_of(comm);
        let mut found = None;
        let waited = self.wait_until(|engine| {
            let members = engine.store.all().boards.open(row, context);
            let ended = members.and_then(|members| {
                let place = members.ended.iter().position(|(of, _)| *of == number)?;
                Some(members.ended.swap_remove(place).1)
            });
            if ended.is_none() {
                engine.closed.check_request()?;
            }
            found = ended;
            Ok(found.is_some())
        });
        self.let_go();
        waited?;
        Ok(found.unwrap_or(Ok(())))
    }

    /// How an operation without a request has failed.
    #[cold]
    fn board_error(&mut self, comm: Comm, failure: Failure) -> RequestError {
        let (row, _) = self.context_of(comm);
        let all = self.store.all();
        let vc = vc_of(all.boards, row as Row, failure.rank);
        let (car, large) = as_row(&Car::default(), failure, vc);
        let outcome = outcome(all.progress, &[car], &[large], all.vcs, all.procs, 0);
        outcome.err().unwrap_or(RequestError::Abandoned(Rank(failure.rank)))
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
    pub(super) fn post_on_boards(&mut self, comm: Comm, call: Collective, request: Row, counts: bool) {
        let (row, _) = self.context_of(comm);
        self.store.with(|rows, wire| {
            activate(rows, request);
            let &mut Boards { ref mut comms, ref mut busy, ref mut scratch, patience, .. } = &mut *rows.boards;
            let Some(Standing::Open(members)) = comms.get_mut(row).map(|comm| &mut comm.standing) else { return };
            let Members { seats, queue, .. } = &mut **members;
            let mut operation = Operation::new(call, seats, request);
            operation.called = counts.then(|| count_call(&mut rows.communicators[row]));
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
    pub(super) fn keep_on_boards(&mut self, request: Row, call: Collective, buffers: Box<[Span]>) -> u32 {
        let persistent = &mut self.store.all().boards.persistent;
        let kept = Some(PersistentCall { request, call, buffers });
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
        let call = kept.call.clone();
        if tables.boards.open(place, context).is_none() {
            return Err(PostError::Stale);
        }
        // A function of the application may panic in it.
        self.lending(|engine| engine.post_on_boards(comm, call, row, false));
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
