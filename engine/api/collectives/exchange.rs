//! Allgather and alltoall.

use super::check_count;
use crate::api::request::{OperationError, Posted};
use crate::run::engine::Engine;
use tickwire_components::{Comm, LeasedBytes, Sequence};
use tickwire_systems::collectives::exchange::{allgather, alltoall};

impl Engine {
    /// The elements of all members come to all, in the order of ranks (`MPI_Allgather`). All send as many.
    ///
    /// # Errors
    /// A wrong argument, lengths that differ, or a member that has failed.
    pub fn allgather<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let request = self.post_allgather(send, receive, comm, true)?;
        self.settle(request).map(drop)
    }

    /// Starts an allgather (`MPI_Iallgather`). See [`Engine::allgather`].
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffers come back.
    pub fn iallgather<S: Sequence + Send + 'static, R: LeasedBytes + Sequence<Item = S::Item> + Send + 'static>(
        &mut self,
        send: S,
        receive: R,
        comm: Comm,
    ) -> Posted<(S, R)> {
        self.post_allgather(send, receive, comm, false)
    }

    fn post_allgather<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        comm: Comm,
        scoped: bool,
    ) -> Posted<(S, R)> {
        self.post_collective("allgather", comm, (send, receive), scoped, |draft, (send, receive)| {
            check_count("receive buffer", receive.count(), send.count() * draft.size as usize)?;
            let (all, block) = (receive.piece(0), send.total());
            let place = |first: u32, end: u32| all.part(first as usize * block, (end - first) as usize * block);
            let own = draft.copy(send.piece(0), place(draft.rank, draft.rank + 1), &[]);
            allgather(draft, place, own);
            Ok(())
        })
    }

    /// Every member has elements for each, as many for all: those from rank r come to place r (`MPI_Alltoall`).
    ///
    /// # Errors
    /// A wrong argument, lengths that differ, or a member that has failed.
    pub fn alltoall<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let request = self.post_alltoall(send, receive, comm, true)?;
        self.settle(request).map(drop)
    }

    /// Starts an alltoall (`MPI_Ialltoall`). See [`Engine::alltoall`].
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffers come back.
    pub fn ialltoall<S: Sequence + Send + 'static, R: LeasedBytes + Sequence<Item = S::Item> + Send + 'static>(
        &mut self,
        send: S,
        receive: R,
        comm: Comm,
    ) -> Posted<(S, R)> {
        self.post_alltoall(send, receive, comm, false)
    }

    fn post_alltoall<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        comm: Comm,
        scoped: bool,
    ) -> Posted<(S, R)> {
        self.post_collective("alltoall", comm, (send, receive), scoped, |draft, (send, receive)| {
            let ranks = draft.size as usize;
            check_count("send buffer", send.count(), send.count() / ranks * ranks)?;
            check_count("receive buffer", receive.count(), send.count())?;
            let (from, to, block) = (send.piece(0), receive.piece(0), send.total() / ranks);
            let part = |rank: u32| (rank as usize * block, block);
            alltoall(draft, |rank| from.part(part(rank).0, part(rank).1), |rank| to.part(part(rank).0, part(rank).1));
            Ok(())
        })
    }
}
