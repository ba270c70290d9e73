//! Reductions. Results have the same bits on all members and in all runs, wherever the ranks are: see
//! [`tickwire_systems::collectives`].

use super::check_count;
use super::graph::Collective;
use super::spread::check_root;
use crate::api::request::{OperationError, Posted};
use crate::run::engine::Engine;
use tickwire_components::{Comm, Element, LeasedBytes, Operation, Rank, Sequence, reduce as reducer};
use tickwire_systems::collectives::reduce::{allreduce, reduce, reduce_scatter};

/// A reduction by this operation.
pub(super) fn reduction<T: Element>(name: &'static str, operation: impl Operation<T>) -> Collective {
    Collective { name, reduce: Some(reducer::<T>(operation)) }
}

impl Engine {
    /// Element by element, those of all members are combined, and the result comes to the root (`MPI_Reduce`). `receive` does
    /// not matter elsewhere, and may be empty.
    ///
    /// # Errors
    /// A wrong argument, lengths that differ, or a member that has failed.
    pub fn reduce<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        root: Rank,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let request = self.post_reduce(send, receive, operation, root, comm, true)?;
        self.settle(request).map(drop)
    }

    /// Starts a reduction (`MPI_Ireduce`). See [`Engine::reduce`].
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffers come back.
    pub fn ireduce<S: Sequence + Send + 'static, R: LeasedBytes + Sequence<Item = S::Item> + Send + 'static>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        root: Rank,
        comm: Comm,
    ) -> Posted<(S, R)> {
        self.post_reduce(send, receive, operation, root, comm, false)
    }

    fn post_reduce<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        root: Rank,
        comm: Comm,
        scoped: bool,
    ) -> Posted<(S, R)> {
        let collective = reduction("reduce", operation);
        self.post_collective(collective, comm, (send, receive), scoped, |draft, (send, receive)| {
            let root = check_root(draft, root)?;
            let mut output = None;
            if draft.rank == root {
                check_count("receive buffer", receive.count(), send.count())?;
                output = Some(receive.piece(0));
            }
            reduce(draft, send.piece(0), output, root);
            Ok(())
        })
    }

    /// Element by element, those of all members are combined, and the result comes to all (`MPI_Allreduce`).
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, op};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// # let world = engine.comm_world();
    /// let mut sums = [0.0; 2];
    /// engine.allreduce(&[1.5, 2.5], &mut sums, op::Sum, world)?;
    /// assert_eq!(sums, [1.5, 2.5], "of one rank");
    /// # Ok::<(), tickwire::Error>(())
    /// ```
    ///
    /// # Errors
    /// A wrong argument, lengths that differ, or a member that has failed.
    pub fn allreduce<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let request = self.post_allreduce(send, receive, operation, comm, true)?;
        self.settle(request).map(drop)
    }

    /// Starts a reduction whose result comes to all (`MPI_Iallreduce`). See [`Engine::allreduce`].
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffers come back.
    pub fn iallreduce<S: Sequence + Send + 'static, R: LeasedBytes + Sequence<Item = S::Item> + Send + 'static>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        comm: Comm,
    ) -> Posted<(S, R)> {
        self.post_allreduce(send, receive, operation, comm, false)
    }

    fn post_allreduce<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        comm: Comm,
        scoped: bool,
    ) -> Posted<(S, R)> {
        let collective = reduction("allreduce", operation);
        self.post_collective(collective, comm, (send, receive), scoped, |draft, (send, receive)| {
            check_count("receive buffer", receive.count(), send.count())?;
            allreduce(draft, send.piece(0), receive.piece(0), size_of::<S::Item>());
            Ok(())
        })
    }

    /// [`Engine::allreduce`] of what is in the buffer that takes the result (`MPI_IN_PLACE`).
    ///
    /// # Errors
    /// A wrong argument, lengths that differ, or a member that has failed.
    pub fn allreduce_in_place<R: LeasedBytes + Sequence>(
        &mut self,
        buffer: R,
        operation: impl Operation<R::Item>,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let request = self.post_allreduce_in_place(buffer, operation, comm, true)?;
        self.settle(request).map(drop)
    }

    /// Starts [`Engine::allreduce_in_place`].
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffer comes back.
    pub fn iallreduce_in_place<R: LeasedBytes + Sequence + Send + 'static>(
        &mut self,
        buffer: R,
        operation: impl Operation<R::Item>,
        comm: Comm,
    ) -> Posted<R> {
        self.post_allreduce_in_place(buffer, operation, comm, false)
    }

    fn post_allreduce_in_place<R: LeasedBytes + Sequence>(
        &mut self,
        buffer: R,
        operation: impl Operation<R::Item>,
        comm: Comm,
        scoped: bool,
    ) -> Posted<R> {
        let collective = reduction("allreduce", operation);
        self.post_collective(collective, comm, buffer, scoped, |draft, buffer| {
            let bytes = buffer.piece(0);
            allreduce(draft, bytes, bytes, size_of::<R::Item>());
            Ok(())
        })
    }

    /// Element by element, those of all members are combined, and each member gets a part of the result, all as many
    /// (`MPI_Reduce_scatter_block`).
    ///
    /// # Errors
    /// A wrong argument, lengths that differ, or a member that has failed.
    pub fn reduce_scatter_block<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let request = self.post_reduce_scatter_block(send, receive, operation, comm, true)?;
        self.settle(request).map(drop)
    }

    /// Starts a reduction of which each member gets a part (`MPI_Ireduce_scatter_block`). See
    /// [`Engine::reduce_scatter_block`].
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffers come back.
    pub fn ireduce_scatter_block<
        S: Sequence + Send + 'static,
        R: LeasedBytes + Sequence<Item = S::Item> + Send + 'static,
    >(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        comm: Comm,
    ) -> Posted<(S, R)> {
        self.post_reduce_scatter_block(send, receive, operation, comm, false)
    }

    fn post_reduce_scatter_block<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        comm: Comm,
        scoped: bool,
    ) -> Posted<(S, R)> {
        let name = "reduce_scatter_block";
        let collective = reduction(name, operation);
        self.post_collective(collective, comm, (send, receive), scoped, |draft, (send, receive)| {
            check_count("send buffer", send.count(), receive.count() * draft.size as usize)?;
            let (input, block) = (send.piece(0), receive.total());
            reduce_scatter(draft, |rank| input.part(rank as usize * block, block), receive.piece(0));
            Ok(())
        })
    }
}
