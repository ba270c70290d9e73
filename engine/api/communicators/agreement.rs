//! Operations that make a new communicator and that all members call: duplicate, split, create.
//!
//! Each operation has two forms. The one that starts it returns an [`Agreement`] (as `MPI_Comm_idup` returns a request). The
//! other waits until the communicator is there. Ticks make progress on all agreements, whatever the application waits
//! for.

use super::operation::Operation;
use super::state::{Key, Negotiation};
use crate::run::engine::Engine;
use std::fmt;
use std::sync::Arc;
use tickwire_components::{Comm, CommError, Communicator, Group, PostError, ProcId, Row, Tag, context, limits};
use tickwire_systems::procs::communicators::live;

/// An agreement in progress on a new communicator. [`Engine::start_dup`] and the other operations that start one return it.
///
/// [`Engine::agreed`] makes a future of it, and [`Engine::on_agreed`] has a function called.
///
/// Dropping it does not withdraw this member: the engine completes the agreement, and then frees the communicator.
#[must_use = "dropping an agreement frees its communicator; keep it to get the communicator"]
pub struct Agreement {
    number: u64,
    token: Arc<()>,
}

impl fmt::Debug for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agreement({})", self.number)
    }
}

/// The state of an agreement. See [`Engine::test_agreement`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Agreed {
    /// The members have not agreed yet: tick, and test again.
    Pending,
    /// All members have agreed. Holds the new communicator, or `None` if this member is not in it.
    Done(Option<Comm>),
}

impl Engine {
    /// Starts to duplicate a communicator (`MPI_Comm_idup`). The new one has the same members and a context id of its own. It
    /// keeps the topology, the error handler, the priority and the promise of [`Engine::comm_set_no_wildcard`].
    ///
    /// All members call it. They call all operations of this kind on a communicator in the same order.
    ///
    /// # Errors
    /// If there is no such communicator.
    pub fn start_dup(&mut self, comm: Comm) -> Result<Agreement, CommError> {
        let topology = self.comm_topology(comm).cloned();
        self.begin(comm, Operation::Dup(topology))
    }

    /// Starts to split a communicator (`MPI_Comm_split`). Members with the same color get a communicator together. Their ranks
    /// in it follow their keys; equal keys follow the ranks in `comm`. A member without a color (`MPI_UNDEFINED`) gets none.
    ///
    /// All members call it.
    ///
    /// # Errors
    /// If there is no such communicator.
    pub fn start_split(&mut self, comm: Comm, color: Option<u32>, key: i32) -> Result<Agreement, CommError> {
        self.begin(comm, Operation::Split { color, key })
    }

    /// Starts to create a communicator of a group of members of `comm` (`MPI_Comm_create`).
    ///
    /// All members of `comm` call it, also those outside the group. Members of one group pass the same group. Different
    /// groups have no proc in common.
    ///
    /// # Errors
    /// If there is no such communicator, or the group has a proc that is no member of it.
    pub fn start_create(&mut self, comm: Comm, group: &Group) -> Result<Agreement, CommError> {
        self.begin(comm, Operation::Create(group.clone()))
    }

    /// Starts to create a communicator of a group of members of `comm` (`MPI_Comm_create_group`).
    ///
    /// Only the members of the group call it. The tag tells agreements apart that are in progress at the same time. It is
    /// independent of the tags of messages.
    ///
    /// # Errors
    /// - There is no such communicator.
    /// - The group has a proc that is no member of it, or lacks the own proc.
    /// - The tag is above [`Tag::MAX`].
    /// - Another agreement of this proc on the same communicator uses the tag.
    pub fn start_create_group(&mut self, comm: Comm, group: &Group, tag: Tag) -> Result<Agreement, CommError> {
        if tag > Tag::MAX {
            return Err(self.raise_post(comm, "comm_create_group", PostError::Tag { tag: tag.0 }).into());
        }
        self.start_with(comm, Operation::CreateGroup(group.clone()), Some(tag.0))
    }

    /// Makes progress on all agreements, and returns the state of this one.
    ///
    /// # Errors
    /// Why there will be no new communicator: the members have called different operations, a member has failed, or no
    /// context id is free on all members. The agreement is over then. [`CommError::Stale`] if the result was taken before.
    pub fn test_agreement(&mut self, agreement: &mut Agreement) -> Result<Agreed, CommError> {
        self.drive_negotiations();
        match self.place(agreement) {
            None => Err(CommError::Stale),
            Some(place) if !self.comms.negotiations[place].is_over() => Ok(Agreed::Pending),
            Some(place) => self.take_and_raise(place).map(Agreed::Done),
        }
    }

    /// Waits until all members have agreed. Makes progress on everything meanwhile.
    ///
    /// # Errors
    /// As [`Engine::test_agreement`], or [`CommError::Wait`] with the reason why waiting is impossible. The failure of a
    /// member ends the wait.
    pub fn wait_agreement(&mut self, agreement: &mut Agreement) -> Result<Option<Comm>, CommError> {
        if let Agreed::Done(made) = self.test_agreement(agreement)? {
            return Ok(made);
        }
        self.observer.agrees = true;
        let waited = self.wait_until(|engine| {
            engine.drive_negotiations();
            engine.closed.check_request()?;
            Ok(engine.place(agreement).is_none_or(|place| engine.comms.negotiations[place].is_over()))
        });
        self.observer.agrees = false;
        waited.map_err(CommError::Wait)?;
        match self.place(agreement) {
            None => Err(CommError::Stale),
            Some(place) => self.take_and_raise(place),
        }
    }

    /// Duplicates a communicator (`MPI_Comm_dup`). See [`Engine::start_dup`].
    ///
    /// # Errors
    /// As [`Engine::start_dup`] and [`Engine::wait_agreement`].
    pub fn comm_dup(&mut self, comm: Comm) -> Result<Comm, CommError> {
        let mut agreement = self.start_dup(comm)?;
        self.wait_agreement(&mut agreement)?.ok_or(CommError::Stale)
    }

    /// Splits a communicator (`MPI_Comm_split`). See [`Engine::start_split`].
    ///
    /// # Errors
    /// As [`Engine::start_split`] and [`Engine::wait_agreement`].
    pub fn comm_split(&mut self, comm: Comm, color: Option<u32>, key: i32) -> Result<Option<Comm>, CommError> {
        let mut agreement = self.start_split(comm, color, key)?;
        self.wait_agreement(&mut agreement)
    }

    /// Creates a communicator of a group (`MPI_Comm_create`). See [`Engine::start_create`].
    ///
    /// # Errors
    /// As [`Engine::start_create`] and [`Engine::wait_agreement`].
    pub fn comm_create(&mut self, comm: Comm, group: &Group) -> Result<Option<Comm>, CommError> {
        let mut agreement = self.start_create(comm, group)?;
        self.wait_agreement(&mut agreement)
    }

    /// Creates a communicator of a group, called by its members only (`MPI_Comm_create_group`). See
    /// [`Engine::start_create_group`].
    ///
    /// # Errors
    /// As [`Engine::start_create_group`] and [`Engine::wait_agreement`].
    pub fn comm_create_group(&mut self, comm: Comm, group: &Group, tag: Tag) -> Result<Comm, CommError> {
        let mut agreement = self.start_create_group(comm, group, tag)?;
        self.wait_agreement(&mut agreement)?.ok_or(CommError::Stale)
    }

    fn begin(&mut self, comm: Comm, operation: Operation) -> Result<Agreement, CommError> {
        self.start_with(comm, operation, None)
    }

    fn start_with(&mut self, comm: Comm, operation: Operation, tag: Option<u32>) -> Result<Agreement, CommError> {
        let (parent, everyone, key) = match self.check_start(comm, &operation, tag) {
            Ok(checked) => checked,
            Err(CommError::Post(error)) => return Err(self.raise_post(comm, operation.name(), error).into()),
            Err(error) => return Err(self.raise_comm(comm, operation.name(), error)),
        };
        self.reap_communicators();
        let mut negotiation = Negotiation::new(self, parent, &everyone, key, operation);
        self.comms.next += 1;
        negotiation.number = self.comms.next;
        let agreement = Agreement { number: negotiation.number, token: negotiation.token.clone() };
        negotiation.start(self);
        self.comms.negotiations.push(negotiation);
        self.drive_negotiations();
        Ok(agreement)
    }

    /// Checks the arguments, and counts the agreement as started. Returns the row of the parent communicator, the
    /// participants in the order of the tree, and the key of the agreement.
    fn check_start(
        &mut self,
        comm: Comm,
        operation: &Operation,
        tag: Option<u32>,
    ) -> Result<(Row, Group, Key), CommError> {
        self.closed.check_post()?;
        let all = self.store.all();
        live(all.communicators, comm.0)?;
        let row = Communicator::row(comm.0);
        let parent = &mut all.communicators[row];
        let mut everyone = parent.group();
        if let Operation::Create(group) | Operation::CreateGroup(group) = operation {
            if let Some(proc) = group.difference(&everyone).proc(0) {
                return Err(CommError::NotSubset { proc: ProcId(proc) });
            }
            if tag.is_some() {
                if group.rank_of(all.procs.me).is_none() {
                    return Err(CommError::NotMember);
                }
                everyone = group.clone();
            }
        }
        let key = match tag {
            Some(tag) => (parent.context, context::GROUP, tag),
            None => (parent.context, context::AGREEMENT, parent.calls & limits::TAG_MAX),
        };
        if self.comms.negotiations.iter().any(|other| other.key == key && other.result.is_none()) {
            return Err(CommError::InProgress(Tag(key.2)));
        }
        parent.calls = parent.calls.wrapping_add(u32::from(tag.is_none()));
        parent.agreements += 1;
        Ok((row as Row, everyone, key))
    }

    /// The position of an agreement among those in progress.
    pub(super) fn place(&self, agreement: &Agreement) -> Option<usize> {
        let is = |negotiation: &Negotiation| Arc::ptr_eq(&negotiation.token, &agreement.token);
        self.comms.negotiations.iter().position(is)
    }

    /// Removes an agreement that is over from those in progress.
    fn take_agreement(&mut self, place: usize) -> Negotiation {
        let negotiation = self.comms.negotiations.swap_remove(place);
        self.store.all().communicators[negotiation.parent as usize].agreements -= 1;
        negotiation
    }

    /// Removes an agreement that is over, and returns its result. An error goes to the error handler first.
    pub(super) fn take_and_raise(&mut self, place: usize) -> Result<Option<Comm>, CommError> {
        let Negotiation { parent, operation, result, .. } = self.take_agreement(place);
        match result.unwrap_or(Err(CommError::Stale)) {
            Err(error) => Err(self.raise_row(parent, operation.name(), error)),
            made => made,
        }
    }

    /// Makes all progress that is possible now on all agreements. One that ends may free an id that another waits for.
    pub(super) fn drive_negotiations(&mut self) {
        // An id gets a new owner only when every arrival has been matched. Messages that came early or late for the id are
        // looked at then.
        let idle = self.comms.negotiations.is_empty() && self.comms.owed.is_empty();
        if idle || self.store.progress().arrivals > 0 {
            return;
        }
        while let Some(owed) = self.comms.owed.pop_front() {
            if !owed.post(self) {
                self.comms.owed.push_front(owed);
                break;
            }
        }
        let mut list = std::mem::take(&mut self.comms.negotiations);
        while list.iter_mut().any(|negotiation| negotiation.drive(self)) {}
        list.append(&mut self.comms.negotiations);
        self.comms.negotiations = list;
        self.call_agreed();
        self.end_dropped();
    }

    /// Removes agreements that are over whose [`Agreement`] was dropped, and frees their communicators.
    fn end_dropped(&mut self) {
        let dropped = |n: &Negotiation| n.is_over() && Arc::strong_count(&n.token) == 1;
        while let Some(place) = self.comms.negotiations.iter().position(dropped) {
            if let Some(Ok(Some(made))) = self.take_agreement(place).result {
                let _ = self.comm_free(made);
            }
        }
    }
}
