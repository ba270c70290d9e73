//! Barrier, broadcast, scatter and gather.

use super::check_count;
use crate::api::request::{OperationError, Posted};
use crate::run::engine::Engine;
use tickwire_components::{Comm, LeasedBytes, NoBytes, PostError, Rank, Sequence};
use tickwire_systems::collectives::draft::Draft;
use tickwire_systems::collectives::spread::{barrier, broadcast, gather, scatter};

/// Checks that a root is a rank.
pub(super) fn check_root(draft: &Draft, root: Rank) -> Result<u32, PostError> {
    if root.0 < draft.size { Ok(root.0) } else { Err(PostError::Rank { rank: root.0, last: draft.size - 1 }) }
}

impl Engine {
    /// Waits until all members of a communicator have called it (`MPI_Barrier`).
    ///
    /// # Errors
    /// A wrong communicator, or a member that has failed.
    pub fn barrier(&mut self, comm: Comm) -> Result<(), OperationError> {
        let request = self.post_barrier(comm, true)?;
        self.settle(request).map(drop)
    }

    /// Starts a barrier (`MPI_Ibarrier`): the request is done when all members have started it.
    ///
    /// # Errors
    /// A wrong communicator, or no free row.
    pub fn ibarrier(&mut self, comm: Comm) -> Posted<NoBytes> {
        self.post_barrier(comm, false)
    }

    fn post_barrier(&mut self, comm: Comm, scoped: bool) -> Posted<NoBytes> {
        self.post_collective("barrier", comm, NoBytes, scoped, |draft, _| {
            barrier(draft);
            Ok(())
        })
    }

    /// The elements of the root come to all members (`MPI_Bcast`). All give as many.
    ///
    /// # Errors
    /// A wrong argument, lengths that differ, or a member that has failed.
    pub fn bcast<B: LeasedBytes + Sequence>(
        &mut self,
        buffer: B,
        root: Rank,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let request = self.post_bcast(buffer, root, comm, true)?;
        self.settle(request).map(drop)
    }

    /// Starts a broadcast (`MPI_Ibcast`). See [`Engine::bcast`].
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffer comes back.
    pub fn ibcast<B: LeasedBytes + Sequence + Send + 'static>(
        &mut self,
        buffer: B,
        root: Rank,
        comm: Comm,
    ) -> Posted<B> {
        self.post_bcast(buffer, root, comm, false)
    }

    fn post_bcast<B: LeasedBytes + Sequence>(&mut self, buffer: B, root: Rank, comm: Comm, scoped: bool) -> Posted<B> {
        self.post_collective("bcast", comm, buffer, scoped, |draft, buffer| {
            let root = check_root(draft, root)?;
            if draft.size > 1 {
                broadcast(draft, buffer.piece(0), root);
            }
            Ok(())
        })
    }

    /// The elements of all members come to the root, in the order of ranks (`MPI_Gather`). All send as many, and the root's
    /// `receive` has room for those of all; it does not matter elsewhere, and may be empty.
    ///
    /// # Errors
    /// A wrong argument, lengths that differ, or a member that has failed.
    pub fn gather<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        root: Rank,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let request = self.post_gather(send, receive, root, comm, true)?;
        self.settle(request).map(drop)
    }

    /// Starts a gather (`MPI_Igather`). See [`Engine::gather`].
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffers come back.
    pub fn igather<S: Sequence + Send + 'static, R: LeasedBytes + Sequence<Item = S::Item> + Send + 'static>(
        &mut self,
        send: S,
        receive: R,
        root: Rank,
        comm: Comm,
    ) -> Posted<(S, R)> {
        self.post_gather(send, receive, root, comm, false)
    }

    fn post_gather<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        root: Rank,
        comm: Comm,
        scoped: bool,
    ) -> Posted<(S, R)> {
        self.post_collective("gather", comm, (send, receive), scoped, |draft, (send, receive)| {
            let root = check_root(draft, root)?;
            if draft.rank == root {
                check_count("receive buffer", receive.count(), send.count() * draft.size as usize)?;
            }
            gather(draft, send.piece(0), receive.piece(0), send.total(), root);
            Ok(())
        })
    }

    /// The elements of the root go to all members, to each as many, in the order of ranks (`MPI_Scatter`). `send` does not
    /// matter but at the root, and may be empty.
    ///
    /// # Errors
    /// A wrong argument, lengths that differ, or a member that has failed.
    pub fn scatter<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        root: Rank,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let request = self.post_scatter(send, receive, root, comm, true)?;
        self.settle(request).map(drop)
    }

    /// Starts a scatter (`MPI_Iscatter`). See [`Engine::scatter`].
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffers come back.
    pub fn iscatter<S: Sequence + Send + 'static, R: LeasedBytes + Sequence<Item = S::Item> + Send + 'static>(
        &mut self,
        send: S,
        receive: R,
        root: Rank,
        comm: Comm,
    ) -> Posted<(S, R)> {
        self.post_scatter(send, receive, root, comm, false)
    }

    fn post_scatter<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        root: Rank,
        comm: Comm,
        scoped: bool,
    ) -> Posted<(S, R)> {
        self.post_collective("scatter", comm, (send, receive), scoped, |draft, (send, receive)| {
            let root = check_root(draft, root)?;
            if draft.rank == root {
                check_count("send buffer", send.count(), receive.count() * draft.size as usize)?;
            }
            scatter(draft, send.piece(0), receive.piece(0), receive.total(), root);
            Ok(())
        })
    }
}
