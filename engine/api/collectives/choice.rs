//! Whether a collective operation runs on boards or by messages.

use super::{AnyCall, Draw, Member, Plan};
use crate::api::communicators::state::KnownHosts;
use crate::api::request::OperationError;
use crate::run::engine::Engine;
use std::sync::Arc;
use tickwire_components::{Collective, Comm, Communicator, PostError, Reduction};
use tickwire_systems::collectives::draft::Draft;
use tickwire_systems::collectives::hosts::Hosts;
use tickwire_systems::procs::communicators::live;

/// How an operation is to run.
pub(super) enum Choice {
    /// On boards. The reduction says how elements are combined, if they are.
    Boards(Collective, Option<Reduction>),
    /// By messages, with the graph as drawn.
    Drawn(Box<Draft>),
    /// By messages. The graph is not drawn yet.
    NotYet,
}

/// The result of a call that waits.
pub(super) enum Run {
    /// The operation has run on boards.
    Ended(Result<(), OperationError>),
    /// The operation must run by messages. Its graph is drawn.
    Drawn(Box<Draft>),
    /// The call had wrong arguments.
    Refused(PostError),
}

impl Engine {
    /// Runs an operation of a communicator whose boards are open, and waits for it: on boards, if possible.
    ///
    /// The code for a short operation is inlined into one function, so that nothing is passed through memory.
    #[inline(always)]
    pub(super) fn run_on_boards<B, D: Draw<B>>(
        &mut self,
        comm: Comm,
        (rank, size): (u32, u32),
        buffer: &B,
        draw: D,
    ) -> Run {
        let member = Member { rank, size, has_boards: true, comm, comms: &self.comms };
        match draw(member, buffer) {
            Ok(Plan::Boards(call, reduction)) => {
                // Without optimisation this separate function is enough, and compiles in a fraction of the time.
                if cfg!(debug_assertions) {
                    return Run::Ended(self.call_on_boards(comm, call, reduction));
                }
                let called = self.start_on_boards::<D>(comm, call, reduction.as_ref());
                Run::Ended(self.finish_on_boards(comm, called))
            }
            Ok(Plan::Drawn(draft)) => Run::Drawn(draft),
            Err(error) => Run::Refused(error),
        }
    }

    /// This rank in a communicator whose boards are open, and the number of members. `None` if the boards are not open.
    #[inline(always)]
    pub(super) fn member_on_boards(&mut self, comm: Comm) -> Result<Option<(u32, u32)>, PostError> {
        self.closed.check_post()?;
        let all = self.store.all();
        let &Communicator { context, rank, size, .. } = live(all.communicators, comm.0)?;
        Ok(all.boards.open(Communicator::row(comm.0), context).map(|_| (rank, size)))
    }

    /// As [`Engine::run_on_boards`], where the boards are not open yet, or never will be. The first operation of a communicator opens the
    /// boards, and runs by messages. Returns `None` for an operation that must run by messages and is not drawn yet.
    pub(super) fn run_without_boards(&mut self, call: &mut AnyCall<'_>) -> Option<Run> {
        let comm = call.comm;
        let (row, context) = self.context_of(comm);
        if self.store.all().boards.is_untried(row, context) {
            // Wrong arguments are refused before this member waits for the others. So the operation that opens the boards runs by messages.
            let drawn = self.draw(call).and_then(|draft| {
                // So is a call for which there are no rows: if it failed later, its repetition would not meet the others.
                let to_open = self.rows_to_open_boards(comm)?;
                Ok((self.set_aside(to_open + draft.acts.len() + 1)?, draft))
            });
            let drawn = drawn.map(|(mut aside, draft)| {
                let opened = self.open_boards(call.name, comm, &mut aside);
                self.free_again(&mut aside, usize::MAX);
                (draft, opened)
            });
            return Some(match drawn {
                Ok((draft, Ok(()))) => Run::Drawn(draft),
                Ok((_, Err(OperationError::Post(error)))) | Err(error) => Run::Refused(error),
                Ok((_, Err(error))) => Run::Ended(Err(error)),
            });
        }
        Some(match self.choose_boards(call) {
            Ok(Choice::NotYet) => return None,
            Ok(Choice::Drawn(draft)) => Run::Drawn(draft),
            Ok(Choice::Boards(call, reduction)) => Run::Ended(self.call_on_boards(comm, call, reduction)),
            Err(error) => Run::Refused(error),
        })
    }

    /// Runs any operation on boards, and waits for it.
    #[inline(never)]
    fn call_on_boards(
        &mut self,
        comm: Comm,
        call: Collective,
        reduction: Option<Reduction>,
    ) -> Result<(), OperationError> {
        let called = self.start_on_boards::<()>(comm, call, reduction.as_ref());
        self.finish_on_boards(comm, called)
    }

    /// Decides whether an operation runs on boards.
    ///
    /// # Errors
    /// Wrong arguments, or a communicator that does not exist.
    pub(super) fn choose_boards(&mut self, call: &mut AnyCall<'_>) -> Result<Choice, PostError> {
        let comm = call.comm;
        self.closed.check_post()?;
        let all = self.store.all();
        let &Communicator { context, rank, size, .. } = live(all.communicators, comm.0)?;
        let row = Communicator::row(comm.0);
        if all.boards.open(row, context).is_none() {
            return Ok(Choice::NotYet);
        }
        let member = Member { rank, size, has_boards: true, comm, comms: &self.comms };
        match (call.draw)(member)? {
            Plan::Boards(call, reduction) => Ok(Choice::Boards(call, reduction)),
            Plan::Drawn(draft) => Ok(Choice::Drawn(draft)),
        }
    }

    /// Draws this rank's part of an operation that runs by messages.
    pub(super) fn draw(&mut self, call: &mut AnyCall<'_>) -> Result<Box<Draft>, PostError> {
        let comm = call.comm;
        self.closed.check_post()?;
        let &Communicator { rank, size, .. } = live(self.store.all().communicators, comm.0)?;
        self.find_hosts(comm);
        let member = Member { rank, size, has_boards: false, comm, comms: &self.comms };
        match (call.draw)(member)? {
            Plan::Drawn(draft) => Ok(draft),
            Plan::Boards(..) => {
                debug_assert!(false, "without boards all is drawn");
                Ok(Box::default())
            }
        }
    }

    /// Finds the hosts of a communicator's members, unless that was done before. The launcher tells them alike on all ranks, so all members
    /// draw operations for the same hosts.
    fn find_hosts(&mut self, comm: Comm) {
        let row = Communicator::row(comm.0);
        if self.comms.hosts.get(row).is_some_and(|known| known.comm == Some(comm)) {
            return;
        }
        let mut hosts = None;
        if self.exchange.hosts() != Some(1) {
            let members = &self.store.all().communicators[row];
            let host = |rank| members.proc(rank).and_then(|proc| self.exchange.host_of(proc));
            hosts = Hosts::of((0..members.size).map(host)).map(Arc::new);
        }
        if self.comms.hosts.len() <= row {
            self.comms.hosts.resize(row + 1, KnownHosts::default());
        }
        self.comms.hosts[row] = KnownHosts { comm: Some(comm), hosts };
    }
}
