//! Operations on communicators that each proc does alone. `agreement` has those that all members do together.

mod agreement;
mod edges;
mod error_handler;
mod message;
mod negotiation;
mod notify;
mod operation;
mod passes;
pub(crate) mod state;
mod topologies;

pub use agreement::{Agreed, Agreement};
pub use notify::Agreeing;

use crate::run::engine::{Closed, Engine};
use tickwire_components::{Comm, CommError, Communicator, Comparison, ErrorHandler, Group, Rank, Row};
use tickwire_systems::procs::communicators::{UsedIds, close, drop_unreceived, first_free, is_unused, live, reap};
use tickwire_systems::protocols::board::leave;
use tickwire_transports::TagLimits;

impl Engine {
    /// This proc's rank in a communicator (`MPI_Comm_rank`).
    ///
    /// # Errors
    /// If there is no such communicator.
    pub fn comm_rank(&self, comm: Comm) -> Result<Rank, CommError> {
        Ok(Rank(self.communicator(comm, "comm_rank")?.rank))
    }

    /// How many procs a communicator has (`MPI_Comm_size`).
    ///
    /// # Errors
    /// If there is no such communicator.
    pub fn comm_size(&self, comm: Comm) -> Result<u32, CommError> {
        Ok(self.communicator(comm, "comm_size")?.size)
    }

    /// The members of a communicator, by rank (`MPI_Comm_group`).
    ///
    /// # Errors
    /// If there is no such communicator.
    pub fn comm_group(&self, comm: Comm) -> Result<Group, CommError> {
        Ok(self.communicator(comm, "comm_group")?.group())
    }

    /// The context id of a communicator: the same on all members, the smallest that was free on all of them.
    ///
    /// # Errors
    /// If there is no such communicator.
    pub fn comm_context_id(&self, comm: Comm) -> Result<u32, CommError> {
        self.communicator(comm, "comm_context_id")?;
        Ok(Communicator::row(comm.0) as u32)
    }

    /// How two communicators are alike (`MPI_Comm_compare`).
    ///
    /// # Errors
    /// If one of them does not exist.
    pub fn comm_compare(&self, one: Comm, other: Comm) -> Result<Comparison, CommError> {
        let first = self.communicator(one, "comm_compare")?.group();
        let second = self.communicator(other, "comm_compare")?.group();
        Ok(match first.compare(&second) {
            Comparison::Identical if one != other => Comparison::Congruent,
            found => found,
        })
    }

    /// Promises that no receive from any source or with any tag will be posted on a communicator. If one is posted all the same, it is
    /// refused. `false` takes the promise back. Local; duplicates made later keep it.
    ///
    /// # Errors
    /// If there is no such communicator.
    pub fn comm_set_no_wildcard(&mut self, comm: Comm, no_wildcard: bool) -> Result<(), CommError> {
        self.communicator_mut(comm, "comm_set_no_wildcard")?.no_wildcard = no_wildcard;
        Ok(())
    }

    /// Sets the priority of messages on a communicator that are given none of their own. See
    /// [`SendOptions::priority`](crate::SendOptions::priority). Local. It holds for sends that are posted from now on. Duplicates made
    /// later have it too.
    ///
    /// # Errors
    /// If there is no such communicator.
    pub fn comm_set_priority(&mut self, comm: Comm, priority: u8) -> Result<(), CommError> {
        self.communicator_mut(comm, "comm_set_priority")?.priority = priority;
        Ok(())
    }

    /// Sets what an error of an operation on a communicator does (`MPI_Comm_set_errhandler`). Local. Communicators made from it later
    /// inherit the handler. At first all communicators return errors.
    ///
    /// The handler of [`Engine::comm_self`] also handles errors of calls with a communicator that does not exist. Once an operation that
    /// another thread submitted was posted, its errors go to the engine's handler. Before that, they go to the submitter.
    ///
    /// # Errors
    /// If there is no such communicator.
    pub fn comm_set_error_handler(&mut self, comm: Comm, handler: ErrorHandler) -> Result<(), CommError> {
        self.communicator_mut(comm, "comm_set_error_handler")?.error_handler = handler;
        Ok(())
    }

    /// What an error of an operation on a communicator does (`MPI_Comm_get_errhandler`).
    ///
    /// # Errors
    /// If there is no such communicator.
    pub fn comm_error_handler(&self, comm: Comm) -> Result<ErrorHandler, CommError> {
        Ok(self.communicator(comm, "comm_error_handler")?.error_handler)
    }

    /// Frees a communicator (`MPI_Comm_free`). Its handle is stale at once. Pending operations on it end as they would have, and then its
    /// context id is free here. All members free it, each at any time.
    ///
    /// Messages that were sent to this proc on the communicator are discarded if this proc has posted no receive for them by now, even if
    /// they arrive later. A later communicator with the same id never receives them.
    ///
    /// # Errors
    /// If there is no such communicator, or it is the world's, the proc's own, or that of a window.
    pub fn comm_free(&mut self, comm: Comm) -> Result<(), CommError> {
        if self.store.all().windows.has(comm.0) {
            return Err(self.raise_comm(comm, "comm_free", CommError::Permanent));
        }
        self.free_comm(comm)
    }

    /// As [`Engine::comm_free`], also of a window's communicator.
    pub(crate) fn free_comm(&mut self, comm: Comm) -> Result<(), CommError> {
        self.communicator(comm, "comm_free")?;
        if comm == self.comm_world() || comm == self.comm_self() {
            return Err(self.raise_comm(comm, "comm_free", CommError::Permanent));
        }
        let row = Communicator::row(comm.0) as Row;
        self.forget_topology(comm);
        close(&mut self.store.all(), row);
        self.comms.closing.push((row, false));
        self.reap_communicators();
        Ok(())
    }

    /// Looks up a communicator. `what` names the call in errors.
    fn communicator(&self, comm: Comm, what: &str) -> Result<&Communicator, CommError> {
        let error = match self.closed {
            Closed::No => live(self.store.communicators(), comm.0).err(),
            _ => Some(self.closed.post_error()),
        };
        match error {
            Some(error) => Err(self.raise_post(comm, what, error).into()),
            None => Ok(&self.store.communicators()[Communicator::row(comm.0)]),
        }
    }

    /// As `communicator`, to change it.
    fn communicator_mut(&mut self, comm: Comm, what: &str) -> Result<&mut Communicator, CommError> {
        self.communicator(comm, what)?;
        Ok(&mut self.store.all().communicators[Communicator::row(comm.0)])
    }

    /// Frees the ids of closing communicators that nothing needs any more.
    fn reap_communicators(&mut self) {
        for (row, is_emptied) in std::mem::take(&mut self.comms.closing) {
            if self.reap_communicator(row) {
                self.comms.lowest = self.comms.lowest.min(row);
            } else {
                let is_emptied = is_emptied || drop_unreceived(&mut self.store.all(), row);
                self.comms.closing.push((row, is_emptied));
            }
        }
    }

    /// Frees the id of a closing communicator, if nothing needs it any more. A matching transport hands over the messages that it keeps for
    /// the communicator, and they are dropped.
    fn reap_communicator(&mut self, row: Row) -> bool {
        let mut all = self.store.all();
        // A message whose bytes have no place yet cannot be dropped. The next look around tries again.
        if all.progress.arrivals > 0 || !self.comms.owed.is_empty() || !is_unused(&mut all, row) {
            return false;
        }
        let Some(context) = all.communicators.get(row as usize).map(|comm| comm.context) else { return false };
        if all.progress.has_provider() {
            self.pull_all(context);
        }
        let mut all = self.store.all();
        let reaped = all.progress.arrivals == 0 && reap(&mut all, row);
        if reaped && let Some(members) = all.boards.forget(row as usize) {
            leave(&members.seats, all.endpoints);
        }
        reaped
    }

    /// How many context ids there may be here.
    fn context_ids(&self) -> u32 {
        self.tags.contexts.min(self.limits.contexts_max as u32)
    }

    /// The ids from `floor` on that are not free here, and how many ids there may be.
    fn used_ids(&mut self, floor: u32) -> (UsedIds, u32) {
        let (TagLimits { incarnations, .. }, most) = (self.tags, self.context_ids());
        let comms = &*self.store.all().communicators;
        self.comms.lowest = first_free(comms, self.comms.lowest, incarnations);
        let first = first_free(comms, self.comms.lowest.max(floor), incarnations);
        (UsedIds::of(comms, first, incarnations), most)
    }

    /// The part of a look around that concerns communicators.
    #[cold]
    pub(crate) fn look_after_communicators(&mut self) {
        if !self.comms.closing.is_empty() {
            self.reap_communicators();
        }
        if !(self.comms.negotiations.is_empty() && self.comms.owed.is_empty()) {
            self.drive_negotiations();
        }
    }
}
