//! Prefixes of reductions: scan and exscan.

use super::check_count;
use super::reduce::reduction;
use crate::api::request::{OperationError, Posted};
use crate::run::engine::Engine;
use tickwire_components::{Comm, LeasedBytes, Operation, Sequence};
use tickwire_systems::collectives::scan::scan;

impl Engine {
    /// Element by element, those of the ranks up to the own one are combined (`MPI_Scan`).
    ///
    /// # Errors
    /// A wrong argument, lengths that differ, or a member that has failed.
    pub fn scan<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let request = self.post_scan(send, receive, operation, comm, (false, true))?;
        self.settle(request).map(drop)
    }

    /// Starts a scan (`MPI_Iscan`). See [`Engine::scan`].
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffers come back.
    pub fn iscan<S: Sequence + Send + 'static, R: LeasedBytes + Sequence<Item = S::Item> + Send + 'static>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        comm: Comm,
    ) -> Posted<(S, R)> {
        self.post_scan(send, receive, operation, comm, (false, false))
    }

    /// Element by element, those of the ranks before the own one are combined (`MPI_Exscan`). On rank 0 `receive` stays as it is.
    ///
    /// # Errors
    /// A wrong argument, lengths that differ, or a member that has failed.
    pub fn exscan<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        comm: Comm,
    ) -> Result<(), OperationError> {
        let request = self.post_scan(send, receive, operation, comm, (true, true))?;
        self.settle(request).map(drop)
    }

    /// Starts an exclusive scan (`MPI_Iexscan`). See [`Engine::exscan`].
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffers come back.
    pub fn iexscan<S: Sequence + Send + 'static, R: LeasedBytes + Sequence<Item = S::Item> + Send + 'static>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        comm: Comm,
    ) -> Posted<(S, R)> {
        self.post_scan(send, receive, operation, comm, (true, false))
    }

    fn post_scan<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
        &mut self,
        send: S,
        receive: R,
        operation: impl Operation<S::Item>,
        comm: Comm,
        (exclusive, scoped): (bool, bool),
    ) -> Posted<(S, R)> {
        let name = if exclusive { "exscan" } else { "scan" };
        let collective = reduction(name, operation);
        self.post_collective(collective, comm, (send, receive), scoped, |draft, (send, receive)| {
            check_count("receive buffer", receive.count(), send.count())?;
            scan(draft, send.piece(0), receive.piece(0), exclusive);
            Ok(())
        })
    }
}
