//! The forms of each operation: those of an engine, and those of a scope, which may borrow the buffers.

use super::{exchange, neighbors, prefix, reduction, spread};
use crate::api::persistent::Persistent;
use crate::api::request::{OperationError, Posted, Rejected};
use crate::api::scope::{Scope, Takes};
use crate::run::engine::Engine;
use std::ops::Range;
use tickwire_components::{Comm, LeasedBytes, List, NoBytes, OneRun, Operation, Rank, Sequence};

/// Generates the forms of each call. The three names are those of the blocking form, the non-blocking form and the persistent form.
macro_rules! forms {
    ($(
        $(#[$doc:meta])*
        $name:ident, $iname:ident, $init:ident = $call:path;
        [$($generic:ident: ($($bound:path),*)),*] ($($arg:ident: $type:ty),*) -> $buffer:ty;
    )*) => {
        impl Engine {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// A wrong argument, lengths that differ, or a member that has failed.
            pub fn $name<$($generic),*>(&mut self, $($arg: $type,)* comm: Comm) -> Result<(), OperationError>
            where $($generic: Sized $(+ $bound)*),*
            {
                self.run_collective($call($($arg),*), comm)
            }

            #[doc = concat!("Starts [`Engine::", stringify!($name), "`]: the request is done when this rank's part is.")]
            ///
            /// # Errors
            /// A wrong argument or no free row. The error gives the buffers back.
            pub fn $iname<$($generic),*>(&mut self, $($arg: $type,)* comm: Comm) -> Posted<$buffer>
            where $($generic: Send + 'static $(+ $bound)*),*
            {
                self.post_collective($call($($arg),*), comm, false)
            }

            #[doc = concat!("A persistent [`Engine::", stringify!($name), "`], made by all members in the same order; ")]
            /// [`Engine::start`] starts it, and allocates nothing.
            ///
            /// # Errors
            /// A wrong argument or no free row. The error gives the buffers back.
            pub fn $init<$($generic),*>(&mut self, $($arg: $type,)* comm: Comm)
                -> Result<Persistent<$buffer>, Rejected<$buffer>>
            where $($generic: Send + 'static $(+ $bound)*),*
            {
                self.init_collective($call($($arg),*), comm, false)
            }
        )*}

        impl<'env, L> Scope<'_, 'env, L> {$(
            #[doc = concat!("See [`Engine::", stringify!($name), "`].")]
            ///
            /// # Errors
            #[doc = concat!("As [`Engine::", stringify!($name), "`].")]
            pub fn $name<$($generic),*>(&mut self, $($arg: $type,)* comm: Comm) -> Result<(), OperationError>
            where $($generic: Sized $(+ $bound)*),*
            {
                // A panic inside the engine ends all loans; a panic in the scope's own closure does not.
                self.engine.lending(|engine| engine.$name($($arg,)* comm))
            }

            #[doc = concat!("As [`Engine::", stringify!($iname), "`], with borrowed buffers.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Engine::", stringify!($iname), "`].")]
            pub fn $iname<$($generic),*>(&mut self, $($arg: $type,)* comm: Comm) -> Posted<$buffer>
            where $($generic: 'env $(+ $bound)*, L: Takes<$generic>),*
            {
                self.engine.post_collective($call($($arg),*), comm, self.lends)
            }

            #[doc = concat!("As [`Engine::", stringify!($init), "`], with borrowed buffers.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Engine::", stringify!($init), "`].")]
            pub fn $init<$($generic),*>(&mut self, $($arg: $type,)* comm: Comm)
                -> Result<Persistent<$buffer>, Rejected<$buffer>>
            where $($generic: 'env $(+ $bound)*, L: Takes<$generic>),*
            {
                self.engine.init_collective($call($($arg),*), comm, self.lends)
            }
        )*}
    };
}

forms! {
    /// Waits until all members of a communicator have called this (`MPI_Barrier`).
    barrier, ibarrier, barrier_init = spread::barrier;
    []() -> NoBytes;

    /// Copies the elements of the root to all members (`MPI_Bcast`). All members pass the same number of elements.
    bcast, ibcast, bcast_init = spread::bcast;
    [B: (LeasedBytes, Sequence)](buffer: B, root: Rank) -> B;

    /// Collects the elements of all members at the root, in the order of ranks (`MPI_Gather`). All members send the same number of
    /// elements, and the root's `receive` has room for all of them. On other ranks `receive` is ignored, and may be empty. The root's own
    /// elements may be [in place](crate::in_place).
    gather, igather, gather_init = spread::gather;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R, root: Rank) -> (S, R);

    /// Collects the elements of all members at the root (`MPI_Gatherv`). Those of rank r go to `places[r]` of the root's `receive`, in
    /// element numbers. On other ranks `receive` and `places` are ignored, and may be empty. The root's own elements may be [in
    /// place](crate::in_place). See [`consecutive`](crate::consecutive).
    gatherv, igatherv, gatherv_init = spread::gatherv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, places: &[Range<usize>], root: Rank) -> (S, R);

    /// Distributes the elements of the root to all members, the same number to each, in the order of ranks (`MPI_Scatter`). On other ranks
    /// `send` is ignored, and may be empty. The root's own elements may stay [in place](crate::in_place): then the root passes that for
    /// `receive`.
    scatter, iscatter, scatter_init = spread::scatter;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R, root: Rank) -> (S, R);

    /// Distributes the elements of the root to all members (`MPI_Scatterv`). Rank r gets those at `places[r]` of the root's `send`, in
    /// element numbers. On other ranks `send` and `places` are ignored, and may be empty. The root's own elements may stay [in
    /// place](crate::in_place): then the root passes that for `receive`.
    scatterv, iscatterv, scatterv_init = spread::scatterv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, places: &[Range<usize>], root: Rank) -> (S, R);

    /// Collects the elements of all members at all members, in the order of ranks (`MPI_Allgather`). All send the same number of elements.
    /// With `send` [in place](crate::in_place) a member's own elements are at their place in `receive` already.
    allgather, iallgather, allgather_init = exchange::allgather;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R) -> (S, R);

    /// Collects the elements of all members at all members (`MPI_Allgatherv`). Those of rank r go to `places[r]` of `receive`, in element
    /// numbers. The length of each place must be the same on all members; its position may differ.
    allgatherv, iallgatherv, allgatherv_init = exchange::allgatherv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R, places: &[Range<usize>]) -> (S, R);

    /// Every member sends elements to each member, the same number to all; those from rank r go to place r of `receive` (`MPI_Alltoall`).
    /// With `send` [in place](crate::in_place) the elements are taken from `receive`, of which a copy is made.
    alltoall, ialltoall, alltoall_init = exchange::alltoall;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R) -> (S, R);

    /// Every member sends elements to each member (`MPI_Alltoallv`). Those for rank r are at `from[r]` of `send`, those from rank r go to
    /// `to[r]` of `receive`, in element numbers. Sender and receiver must give the same number. With `send` [in place](crate::in_place) the
    /// elements for rank r are taken from `to[r]` of `receive`, of which a copy is made. Then `from` is ignored, and may be empty.
    alltoallv, ialltoallv, alltoallv_init = exchange::alltoallv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, from: &[Range<usize>], receive: R, to: &[Range<usize>]) -> (S, R);

    /// Every member has one buffer to send to each member, and one to receive from each, of any types and lengths (`MPI_Alltoallw`). Entry
    /// r of a list is for rank r. Sender and receiver must give the same number of bytes. If all entries of `send` are [in
    /// place](crate::in_place), the bytes for a rank are taken from the buffer that receives from that rank. Otherwise no buffer that
    /// receives may have a byte of another one: [`Cells`](crate::Cells) that do are [`PostError::Overlap`](crate::PostError::Overlap).
    alltoallw, ialltoallw, alltoallw_init = exchange::alltoallw;
    [S: (OneRun), R: (OneRun, LeasedBytes)](send: List<S>, receive: List<R>) -> (List<S>, List<R>);

    /// Combines the elements of all members, element by element. The root gets the result (`MPI_Reduce`). On other ranks `receive` is
    /// ignored, and may be empty. The root's own operand may be [in place](crate::in_place).
    reduce, ireduce, reduce_init = reduction::reduce;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, operation: impl Operation<S::Item>, root: Rank) -> (S, R);

    /// Combines the elements of all members, element by element. All members get the result (`MPI_Allreduce`).
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, in_place, op};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// # let world = engine.comm_world();
    /// let mut sums = [0.0; 2];
    /// engine.allreduce(&[1.5, 2.5], &mut sums, op::Sum, world)?;
    /// assert_eq!(sums, [1.5, 2.5], "of one rank");
    /// engine.allreduce(in_place(), &mut sums, op::Max, world)?;
    /// # Ok::<(), tickwire::Error>(())
    /// ```
    allreduce, iallreduce, allreduce_init = reduction::allreduce;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, operation: impl Operation<S::Item>) -> (S, R);

    /// Combines the elements of all members, element by element. Each member gets a part of the result, all parts of the same length
    /// (`MPI_Reduce_scatter_block`). With `send` [in place](crate::in_place) the operands are in `receive`, and the part goes to its
    /// beginning.
    reduce_scatter_block, ireduce_scatter_block, reduce_scatter_block_init = reduction::reduce_scatter_block;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, operation: impl Operation<S::Item>) -> (S, R);

    /// Combines the elements of all members, element by element. Rank r gets `counts[r]` elements of the result (`MPI_Reduce_scatter`). In
    /// place as [`Engine::reduce_scatter_block`].
    reduce_scatter, ireduce_scatter, reduce_scatter_init = reduction::reduce_scatter;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, counts: &[usize], operation: impl Operation<S::Item>) -> (S, R);

    /// Combines, element by element, the elements of all ranks up to and including this one (`MPI_Scan`). The operand may be [in
    /// place](crate::in_place).
    scan, iscan, scan_init = prefix::scan;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, operation: impl Operation<S::Item>) -> (S, R);

    /// Combines, element by element, the elements of all ranks before this one (`MPI_Exscan`). On rank 0 `receive` stays as it is. The
    /// operand may be [in place](crate::in_place).
    exscan, iexscan, exscan_init = prefix::exscan;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, operation: impl Operation<S::Item>) -> (S, R);

    /// Sends this rank's elements to all of its destinations, and receives those of its sources (`MPI_Neighbor_allgather`). All send the
    /// same number of elements. Those from source k go to place k of `receive`. Beyond the edge of a grid there is no source, and that
    /// place stays as it is.
    neighbor_allgather, ineighbor_allgather, neighbor_allgather_init = neighbors::neighbor_allgather;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R) -> (S, R);

    /// As [`Engine::neighbor_allgather`], but the elements from source k go to `places[k]`, in element numbers (`MPI_Neighbor_allgatherv`).
    neighbor_allgatherv, ineighbor_allgatherv, neighbor_allgatherv_init = neighbors::neighbor_allgatherv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R, places: &[Range<usize>]) -> (S, R);

    /// Sends elements to each destination of this rank, the same number to all, and receives as many from each source
    /// (`MPI_Neighbor_alltoall`).
    neighbor_alltoall, ineighbor_alltoall, neighbor_alltoall_init = neighbors::neighbor_alltoall;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R) -> (S, R);

    /// As [`Engine::neighbor_alltoall`], with a place for each neighbour (`MPI_Neighbor_alltoallv`). The elements for destination k are at
    /// `from[k]`, those from source k go to `to[k]`, in element numbers.
    neighbor_alltoallv, ineighbor_alltoallv, neighbor_alltoallv_init = neighbors::neighbor_alltoallv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, from: &[Range<usize>], receive: R, to: &[Range<usize>]) -> (S, R);

    /// As [`Engine::neighbor_alltoall`], with a buffer for each neighbour, of any types and lengths
    /// (`MPI_Neighbor_alltoallw`). No buffer that receives may have a byte of another one.
    neighbor_alltoallw, ineighbor_alltoallw, neighbor_alltoallw_init = neighbors::neighbor_alltoallw;
    [S: (OneRun), R: (OneRun, LeasedBytes)](send: List<S>, receive: List<R>) -> (List<S>, List<R>);
}
