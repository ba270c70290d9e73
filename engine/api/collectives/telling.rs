//! How members tell each other what a call of several steps needs to know.
//!
//! The others wait for what a member tells them. So it must not fail for want of rows between two steps: whoever makes such a call sets
//! rows aside for all of its steps first ([`Engine::set_aside`]), and each step takes its own.

use super::exchange::{allgather, alltoall};
use super::{Call, Draw};
use crate::api::request::OperationError;
use crate::run::engine::Engine;
use tickwire_components::{Comm, Communicator, Element, Pieces, PostError, Row};

impl Engine {
    /// Rows of this member for a call that runs by messages.
    ///
    /// # Errors
    /// Wrong arguments, a communicator that does not exist, or a closed engine.
    pub(crate) fn rows_of<B: Pieces>(&mut self, call: Call<B, impl Draw<B>>, comm: Comm) -> Result<usize, PostError> {
        Ok(call.with(comm, |call| self.draw(call)).1?.acts.len() + 1)
    }

    /// Rows for [`Engine::tell_all`].
    ///
    /// # Errors
    /// As [`Engine::rows_of`].
    pub(crate) fn rows_to_tell_all<T: Element>(&mut self, comm: Comm) -> Result<usize, PostError> {
        let mut told = vec![T::zeroed(); self.members_of(comm)];
        self.rows_of(allgather(&[T::zeroed()][..], &mut told[..]), comm)
    }

    /// Rows for [`Engine::tell_each`].
    ///
    /// # Errors
    /// As [`Engine::rows_of`].
    pub(crate) fn rows_to_tell_each<T: Element>(&mut self, comm: Comm) -> Result<usize, PostError> {
        let (own, mut told) = (vec![T::zeroed(); self.members_of(comm)], vec![T::zeroed(); self.members_of(comm)]);
        self.rows_of(alltoall(&own[..], &mut told[..]), comm)
    }

    /// Tells all members a value, and hears theirs. Takes rows that were set `aside` first. `name` is the call that this is a step of.
    ///
    /// # Errors
    /// A member has failed, the engine is closed, or there are too few rows, counting those set aside.
    pub(crate) fn tell_all<T: Element>(
        &mut self,
        name: &'static str,
        comm: Comm,
        own: T,
        aside: &mut Vec<Row>,
    ) -> Result<Vec<T>, OperationError> {
        let needed = self.rows_to_tell_all::<T>(comm)?;
        self.free_again(aside, needed);
        let mut told = vec![own; self.members_of(comm)];
        self.run_graph(Call { name, same: None, ..allgather(&[own][..], &mut told[..]) }, comm)?;
        Ok(told)
    }

    /// Tells each member a value of its own, and hears theirs. Otherwise as [`Engine::tell_all`].
    ///
    /// # Errors
    /// As [`Engine::tell_all`].
    pub(crate) fn tell_each<T: Element>(
        &mut self,
        name: &'static str,
        comm: Comm,
        own: &[T],
        aside: &mut Vec<Row>,
    ) -> Result<Vec<T>, OperationError> {
        let needed = self.rows_to_tell_each::<T>(comm)?;
        self.free_again(aside, needed);
        let mut told = own.to_vec();
        self.run_graph(Call { name, same: None, ..alltoall(own, &mut told[..]) }, comm)?;
        Ok(told)
    }

    /// How many members a communicator has.
    pub(crate) fn members_of(&mut self, comm: Comm) -> usize {
        self.store.all().communicators.get(Communicator::row(comm.0)).map_or(0, |comm| comm.size as usize)
    }
}
