//! Collective operations on boards: how boards are opened, and how operations are posted on them and waited for.
//!
//! The first operation of a communicator that waits opens its boards: all members call it, so all take part. Until then, operations
//! that do not wait run by messages. They tell each other whether they can, pass their boards, and tell each other whether they have those of all. All that is
//! said goes by an operation of messages, so all members come to the same answer.

use super::exchange;
use crate::api::request::OperationError;
use crate::run::engine::Engine;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwire_components::limits::{BOARD_MEMBERS, BOARD_SLOTS, BOARDS_MAX};
use tickwire_components::{
    Car, CarState, Collective, Comm, Communicator, NIL, Pieces, PostError, ProcId, Rank, RequestError, RequestId,
    RequestState, Row, Span, Vc, VcState,
};
use tickwire_systems::procs::boards::{Boards, Members, PersistentCall, Seat, Seats, Standing};
use tickwire_systems::procs::communicators::live;
use tickwire_systems::procs::connections::endpoint_of;
use tickwire_systems::procs::ending::failed_member;
use tickwire_systems::protocols::board::{Around, Failure, Operation, SCRATCH_BYTES, Step, advance, cancel};
use tickwire_systems::rows::Rows;
use tickwire_systems::steps::finish::outcome;
use tickwire_systems::tick::boards::{as_row, cancel_boards, end, vc_of};
use tickwire_transports::boards::OwnBoard;

/// Looks at boards that a call makes by itself before it waits as others do: about a microsecond, a few lines' way.
const LOOKS: u32 = 200;
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

/// A member can take part.
const CAN: u8 = 1;
/// It maps the shared heaps of all others.
const MAPS: u8 = 2;
/// It may read the memory of all others.
const READS: u8 = 4;

impl Engine {
    /// The row of a communicator, and its context word.
    #[inline(always)]
    pub(super) fn context_of(&mut self, comm: Comm) -> (usize, u32) {
        let row = Communicator::row(comm.0);
        (row, self.store.all().communicators[row].context)
    }

    /// Opens the boards of a communicator, unless that was tried.
    ///
    /// # Errors
    /// A member has failed, or messages cannot be posted.
    #[inline(always)]
    pub(super) fn ready_boards(&mut self, comm: Comm) -> Result<(), OperationError> {
        let (row, context) = self.context_of(comm);
        if self.store.all().boards.is_untried(row, context) { self.open_boards(comm) } else { Ok(()) }
    }

    #[cold]
    fn open_boards(&mut self, comm: Comm) -> Result<(), OperationError> {
        let (row, context) = self.context_of(comm);
        let size = self.store.all().communicators[row].size;
        if !(2..=BOARD_MEMBERS).contains(&size) {
            self.store.all().boards.set(row, context, Standing::None);
            return Ok(());
        }
        let own = self.make_board(comm);
        let told = self.tell_all(comm, if own.is_some() { CAN } else { 0 });
        let all_can = told.as_ref().is_ok_and(|told| told.iter().all(|told| told & CAN != 0));
        let seats = self.pass_boards(comm, own.filter(|_| all_can));
        let can = seats.as_ref().map_or(0, |seats| CAN | self.reach_of(seats));
        // Also after a failure: others may wait for what this member says.
        let said = self.tell_all(comm, can);
        let standing = match (told.and(said), seats) {
            (Ok(said), Some(seats)) if said.iter().all(|said| said & CAN != 0) => {
                let all = |what| said.iter().all(|said| said & what != 0);
                let seats = Seats { mapped: all(MAPS), reads: all(READS), ..seats };
                let queue = VecDeque::with_capacity(BOARD_SLOTS);
                Standing::Open(Box::new(Members { seats, queue, ended: Vec::with_capacity(1) }))
            }
            (Ok(_), _) => Standing::None,
            (Err(error), seats) => {
                // Others may have opened theirs.
                seats.iter().for_each(|seats| seats.own.close());
                let standing = if self.failed_member_of(comm).is_some() { Standing::Broken } else { Standing::Untried };
                self.store.all().boards.set(row, context, standing);
                return Err(error);
            }
        };
        let all = self.store.all();
        all.boards.set(row, context, standing);
        if all.boards.scratch.is_empty() {
            all.boards.scratch = vec![0; SCRATCH_BYTES / size_of::<u128>()].into();
            all.boards.busy.reserve(BOARDS_MAX);
        }
        Ok(())
    }

    /// What of the memory of all others this member can read.
    fn reach_of(&mut self, seats: &Seats) -> u8 {
        let all = self.store.all();
        let seen = seats.peers.iter().flatten().map(|seat| {
            let boards = all.endpoints.get_mut(seat.endpoint as usize).and_then(|of| of.transport.get().boards());
            let reads = boards.is_some_and(|boards| boards.fetches(seat.link));
            (if seat.board.has_heap() { MAPS } else { 0 }) | if reads { READS } else { 0 }
        });
        seen.fold(MAPS | READS, |all, one| all & one)
    }

    /// Tells all members a byte, and hears theirs.
    fn tell_all(&mut self, comm: Comm, byte: u8) -> Result<Vec<u8>, OperationError> {
        let size = self.store.all().communicators[Communicator::row(comm.0)].size;
        let mut told = vec![0; size as usize];
        self.run_graph(exchange::allgather(&[byte][..], &mut told[..]), comm)?;
        Ok(told)
    }

    /// Makes the own board, and connects to all members. `None` if not all of them are reached by what has boards, or there can be none.
    fn make_board(&mut self, comm: Comm) -> Option<OwnBoard> {
        let (row, context) = self.context_of(comm);
        let mut all = self.store.all();
        if !all.limits.0.boards || all.boards.count() >= BOARDS_MAX {
            return None;
        }
        let Communicator { rank: me, size, .. } = all.communicators[row];
        let procs: Vec<u32> =
            (0..size).filter(|&rank| rank != me).filter_map(|rank| all.communicators[row].proc(rank)).collect();
        let shows = all.endpoints.iter_mut().position(|endpoint| endpoint.transport.get().boards().is_some())? as u8;
        if !procs.iter().all(|&proc| endpoint_of(&mut all, proc) == Some(shows)) {
            return None;
        }
        let vcs: Vec<Row> = procs.iter().map(|&proc| self.reach(proc)).collect::<Result<_, _>>().ok()?;
        let connected = self.wait_until(|engine| {
            engine.closed.check_request()?;
            let all = engine.store.all();
            let connects = |&vc: &Row| !matches!(all.vcs[vc as usize].state, VcState::Connected | VcState::Failed);
            Ok(!vcs.iter().any(connects))
        });
        let all = self.store.all();
        let is_there = |&vc: &Row| {
            let vc = &all.vcs[vc as usize];
            vc.state == VcState::Connected && vc.endpoint == shows
        };
        if connected.is_err() || !vcs.iter().all(is_there) {
            return None;
        }
        all.endpoints[shows as usize].transport.get().boards()?.make_board(context).ok()
    }

    /// Passes the own board to all members, or that there is none, and takes theirs. `None` if one of them has none.
    fn pass_boards(&mut self, comm: Comm, own: Option<OwnBoard>) -> Option<Seats> {
        let (row, context) = self.context_of(comm);
        let has_own = own.is_some();
        let all = self.store.all();
        let Communicator { rank, size, .. } = all.communicators[row];
        let members = (0..size).map(|rank| {
            let known = all.communicators[row].proc(rank).and_then(|proc| all.procs.known.get(proc as usize));
            known.map_or(NIL, |known| known.row)
        });
        let vcs: Vec<Row> = members.collect();
        let mut passed = vec![false; size as usize];
        let mut taken: Vec<Option<Option<Seat>>> = (0..size).map(|other| (other == rank).then_some(None)).collect();
        let waited = self.wait_until(|engine| {
            engine.closed.check_request()?;
            let mut done = true;
            for other in (0..size as usize).filter(|&other| other != rank as usize) {
                done &= engine.pass_board(context, vcs[other], has_own, &mut passed[other], &mut taken[other]);
            }
            if !done {
                // What is passed comes over sockets.
                engine.look_around();
            }
            Ok(done)
        });
        for endpoint in self.store.endpoints() {
            endpoint.transport.get().boards().into_iter().for_each(|boards| boards.keep_board(context));
        }
        let own = own.filter(|_| waited.is_ok())?;
        let peers: Box<[Option<Seat>]> = taken.into_iter().map(Option::flatten).collect();
        let missing = (0..).zip(&peers).any(|(other, seat)| other != rank && seat.is_none());
        let seats = Seats { rank, size, own, peers, next: 1, finished: 0, cells_used: 0, mapped: false, reads: false };
        if missing { None } else { Some(seats) }
    }

    /// Passes the own board to a member, and takes that of it; whether both is done.
    fn pass_board(
        &mut self,
        context: u32,
        vc: Row,
        has_own: bool,
        passed: &mut bool,
        taken: &mut Option<Option<Seat>>,
    ) -> bool {
        let all = self.store.all();
        let boards = match all.vcs.get(vc as usize).filter(|vc| vc.state == VcState::Connected) {
            Some(vc) => all.endpoints[vc.endpoint as usize].transport.get().boards().map(|boards| (vc, boards)),
            None => None,
        };
        let Some((&Vc { endpoint, link, .. }, boards)) = boards else {
            // It has failed, or is elsewhere.
            (*passed, *taken) = (true, Some(None));
            return true;
        };
        if !*passed {
            *passed = boards.give_board(link, context).unwrap_or(true);
        }
        if !has_own {
            // Who has none takes none.
            drop(boards.take_board(link, context));
            return *passed;
        }
        if taken.is_none() {
            let seat = |board| Seat { board, endpoint, link, vc };
            *taken = boards.take_board(link, context).map(|board| board.map(seat));
        }
        *passed && taken.is_some()
    }

    /// The VC of a member of a communicator that has failed.
    fn failed_member_of(&mut self, comm: Comm) -> Option<Row> {
        let (_, context) = self.context_of(comm);
        let all = self.store.all();
        failed_member(all.communicators, all.vcs, context)
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
        self.store.with(|rows, wire| {
            let Boards { comms, busy, scratch, .. } = &mut *rows.boards;
            let Some(Standing::Open(members)) = comms.get_mut(row).map(|comm| &mut comm.standing) else {
                return Called::Ended(Ok(()));
            };
            let Members { seats, queue, .. } = &mut **members;
            let mut operation = Operation::new(call, seats, NIL);
            operation.called = Some(count_call(&mut rows.communicators[row]));
            let mut around = Around { endpoints: wire.endpoints, vcs: &rows.vcs, scratch };
            let looks = if queue.is_empty() { LOOKS } else { 0 };
            for _ in 0..looks {
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

    /// Starts an operation with a request, whose row this is: it is inactive. A persistent one is not among those that are counted.
    pub(super) fn post_on_boards(&mut self, comm: Comm, call: Collective, request: Row, counts: bool) {
        let (row, _) = self.context_of(comm);
        self.store.with(|rows, wire| {
            activate(rows, request);
            let Boards { comms, busy, scratch, .. } = &mut *rows.boards;
            let Some(Standing::Open(members)) = comms.get_mut(row).map(|comm| &mut comm.standing) else { return };
            let Members { seats, queue, .. } = &mut **members;
            let mut operation = Operation::new(call, seats, request);
            operation.called = counts.then(|| count_call(&mut rows.communicators[row]));
            if queue.is_empty() {
                let mut around = Around { endpoints: wire.endpoints, vcs: &rows.vcs, scratch };
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
fn activate(rows: &mut Rows<'_>, row: Row) {
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
