//! Calls of collective operations on boards that wait for their end.

use super::{count_call, enqueue, keep_failed};
use crate::api::request::OperationError;
use crate::run::engine::{Closed, Engine};
use rustix::thread::sched_yield;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use tickwire_components::limits::{
    BOARD_CALL_POLLS, BOARD_CALL_POLLS_SHARED, BOARD_CALLS_A_TICK, BOARD_POLLS_A_YIELD, SPINS_SHARED,
};
use tickwire_components::{Car, Collective, Comm, NIL, Rank, Reduction, RequestError, Row};
use tickwire_systems::procs::boards::{Boards, Members, Standing};
use tickwire_systems::procs::seats::Seats;
use tickwire_systems::protocols::board::{
    Around, Failure, Meeting, NumberedCall, Operation, Step, advance_apart, finish, give_up, look, order_of_call,
    take_short,
};
use tickwire_systems::steps::finish::outcome;
use tickwire_systems::tick::boards::{as_row, cancel_call, finish_first, vc_of};

/// What became of a call on boards.
pub(in super::super) enum Called {
    /// It has ended.
    Ended(Result<(), Failure>),
    /// It has this number.
    Number(u64),
    /// A function of the application has panicked.
    Panicked(Box<dyn Any + Send>),
}

/// How long a call looks at boards by itself.
#[derive(Clone, Copy)]
struct Looks {
    /// Whether ranks share processors.
    shares: bool,
}

impl Looks {
    #[inline(always)]
    fn count(self) -> u32 {
        if self.shares { BOARD_CALL_POLLS_SHARED } else { BOARD_CALL_POLLS }
    }

    /// Lets others run before a look, where ranks share processors.
    #[inline(always)]
    fn pause(self, look: u32) {
        if self.shares && look.is_multiple_of(BOARD_POLLS_A_YIELD) {
            sched_yield();
        }
    }
}

impl Engine {
    /// Starts an operation that its caller waits for. A short one ends at once if all its sources begin while this call looks.
    ///
    /// It is compiled once for each `Caller`, so that the compiler knows which operation it is. Functions that are not inlined get no
    /// reference to the call, since a reference would force the call into memory. Without these two measures a barrier took about 155
    /// instructions more.
    #[expect(clippy::extra_unused_type_parameters, reason = "it makes one of these for each operation")]
    #[inline(always)]
    pub(in super::super) fn start_on_boards<Caller>(
        &mut self,
        comm: Comm,
        call: Collective,
        reduction: Option<&Reduction>,
    ) -> Called {
        let (row, _) = self.context_of(comm);
        let looks = Looks { shares: self.spins <= SPINS_SHARED };
        self.store.with(|rows, wire| {
            let &mut Boards { ref mut comms, ref mut busy, ref mut scratch, patience, .. } = &mut *rows.boards;
            let Some(Standing::Open(members)) = comms.get_mut(row).map(|comm| &mut comm.standing) else {
                return Called::Ended(Ok(()));
            };
            let before = count_call(&mut rows.communicators[row]);
            let numbered = NumberedCall::new(call, order_of_call(before), &mut members.seats);
            let mut around = Around { endpoints: wire.endpoints, vcs: &rows.vcs, scratch, patience };
            let mut meeting = Meeting::of(&numbered);
            if numbered.is_short() && members.queue.is_empty() {
                for look_number in 1..=looks.count() {
                    looks.pause(look_number);
                    match look(&numbered, &mut meeting, &mut members.seats, &mut around) {
                        Ok(true) => return take(&numbered, reduction, &members.seats, &mut around),
                        Ok(false) => {}
                        Err(failure) => return give_up_call(numbered.number, &members.seats, &mut around, failure),
                    }
                }
            }
            let mut operation = Operation::new(numbered, reduction.cloned(), meeting, &members.seats, NIL);
            (operation.before, operation.awaited) = (Some(before), true);
            go_on(operation, members, busy, row as Row, &mut around, looks)
        })
    }

    /// Waits for an operation on boards, and tells how it has ended.
    #[inline(always)]
    pub(in super::super) fn finish_on_boards(&mut self, comm: Comm, called: Called) -> Result<(), OperationError> {
        let ended = match called {
            Called::Ended(ended) => {
                self.keep_up();
                ended
            }
            Called::Number(number) => self.wait_on_boards(comm, number)?,
            Called::Panicked(panic) => {
                self.poison(&*panic);
                return Err(self.closed.request_error().into());
            }
        };
        ended.map_err(|failure| {
            self.mind_boards();
            self.board_error(comm, failure).into()
        })
    }

    /// Looks at the boards for the request of a short operation that is the first one there. Returns whether it has ended. If not, the
    /// caller looks at everything else; so this returns `false` at once in every so many waits.
    #[inline(never)]
    pub(crate) fn wait_at_boards(&mut self, request: Row) -> bool {
        self.polls += 1;
        if self.polls.is_multiple_of(BOARD_CALLS_A_TICK) || self.store.progress().closed() {
            return false;
        }
        let looks = Looks { shares: self.spins <= SPINS_SHARED };
        let store = &mut self.store;
        // A function of the application may panic in it.
        let waited = catch_unwind(AssertUnwindSafe(|| {
            store.with(|rows, wire| finish_first(rows, wire, request, looks.count(), |look| looks.pause(look)))
        }));
        match waited {
            Ok(ended) => {
                self.mind_boards();
                if ended {
                    self.note_ended();
                }
                ended
            }
            Err(panic) => {
                self.poison(&*panic);
                false
            }
        }
    }

    /// Advances everything else now and then. A program that calls only operations that end at once would never do so otherwise.
    #[inline(always)]
    fn keep_up(&mut self) {
        let progress = self.store.progress();
        progress.work.posted += 1;
        progress.work.completed += 1;
        if progress.work.posted.get().is_multiple_of(BOARD_CALLS_A_TICK) {
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
        if waited.is_err() && self.closed == Closed::No {
            // The caller takes its buffers back.
            self.store.with(|rows, wire| cancel_call(rows, wire, row, number));
        }
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
        let error = outcome.err().unwrap_or(RequestError::Abandoned(Rank(failure.rank)));
        self.raise_collective(row as Row, error)
    }
}

/// Ends a short operation that has met all of its sources.
#[inline(always)]
fn take(numbered: &NumberedCall, reduction: Option<&Reduction>, seats: &Seats, around: &mut Around<'_>) -> Called {
    let taken = match reduction.filter(|reduction| reduction.may_panic()) {
        Some(reduction) => match take_with_function(*numbered, reduction.clone(), seats, around) {
            Ok(taken) => taken,
            Err(panic) => return Called::Panicked(panic),
        },
        None => take_short(numbered, reduction, seats, around),
    };
    match taken {
        Ok(()) => {
            finish(numbered, seats, around);
            Called::Ended(Ok(()))
        }
        Err(failure) => give_up_call(numbered.number, seats, around, failure),
    }
}

/// Takes operands by a function of the application, which may panic.
#[inline(never)]
fn take_with_function(
    numbered: NumberedCall,
    reduction: Reduction,
    seats: &Seats,
    around: &mut Around<'_>,
) -> thread::Result<Result<(), Failure>> {
    catch_unwind(AssertUnwindSafe(|| take_short(&numbered, Some(&reduction), seats, around)))
}

#[cold]
fn give_up_call(number: u64, seats: &Seats, around: &mut Around<'_>, failure: Failure) -> Called {
    give_up(number, seats, around.endpoints);
    Called::Ended(Err(failure))
}

/// Goes on with an operation that did not end at once. A long one is looked at for a while, if it is the first one. An operation that
/// does not end then is queued.
#[inline(never)]
fn go_on(
    mut operation: Operation,
    members: &mut Members,
    busy: &mut Vec<Row>,
    row: Row,
    around: &mut Around<'_>,
    looks: Looks,
) -> Called {
    let Members { seats, queue, .. } = members;
    // One that is short has been looked at already.
    let count = if queue.is_empty() && !operation.numbered.is_short() { looks.count() } else { 0 };
    for look in 1..=count {
        looks.pause(look);
        match advance_apart(&mut operation, seats, around) {
            Ok(Step::Done) => return Called::Ended(Ok(())),
            Ok(Step::Failed(failure)) => {
                keep_failed(operation, queue, busy, row);
                return Called::Ended(Err(failure));
            }
            Ok(Step::Waits | Step::Moved) => {}
            Err(panic) => return Called::Panicked(panic),
        }
    }
    let number = operation.numbered.number;
    enqueue(operation, queue, busy, row);
    Called::Number(number)
}
