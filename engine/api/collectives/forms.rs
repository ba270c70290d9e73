//! The forms of each operation: those of an engine, and those of a scope, whose buffers may be borrowed.

use super::{exchange, neighbors, prefix, reduction, spread};
use crate::api::persistent::Persistent;
use crate::api::request::{OperationError, Posted, Rejected};
use crate::api::scope::Scope;
use crate::run::engine::Engine;
use std::ops::Range;
use tickwire_components::{Comm, LeasedBytes, List, NoBytes, OneRun, Operation, Rank, Sequence};

/// Gives a call its forms. The names are those of the one that waits, of the one that does not, and of the persistent one.
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
            /// A wrong argument or no free row; the buffers come back.
            pub fn $iname<$($generic),*>(&mut self, $($arg: $type,)* comm: Comm) -> Posted<$buffer>
            where $($generic: Send + 'static $(+ $bound)*),*
            {
                self.post_collective($call($($arg),*), comm, false)
            }

            #[doc = concat!("A persistent [`Engine::", stringify!($name), "`], made by all members in the same order; ")]
            /// [`Engine::start`] starts it, and allocates nothing.
            ///
            /// # Errors
            /// A wrong argument or no free row; the buffers come back.
            pub fn $init<$($generic),*>(&mut self, $($arg: $type,)* comm: Comm)
                -> Result<Persistent<$buffer>, Rejected<$buffer>>
            where $($generic: Send + 'static $(+ $bound)*),*
            {
                self.init_collective($call($($arg),*), comm, false)
            }
        )*}

        impl<'env> Scope<'_, 'env> {$(
            #[doc = concat!("See [`Engine::", stringify!($name), "`].")]
            ///
            /// # Errors
            #[doc = concat!("As [`Engine::", stringify!($name), "`].")]
            pub fn $name<$($generic),*>(&mut self, $($arg: $type,)* comm: Comm) -> Result<(), OperationError>
            where $($generic: Sized $(+ $bound)*),*
            {
                // A panic that comes out of the engine ends all loans; one of the scope's own body does not.
                self.engine.lending(|engine| engine.$name($($arg,)* comm))
            }

            #[doc = concat!("As [`Engine::", stringify!($iname), "`], with borrowed buffers.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Engine::", stringify!($iname), "`].")]
            pub fn $iname<$($generic),*>(&mut self, $($arg: $type,)* comm: Comm) -> Posted<$buffer>
            where $($generic: 'env $(+ $bound)*),*
            {
                self.engine.post_collective($call($($arg),*), comm, self.lends)
            }

            #[doc = concat!("As [`Engine::", stringify!($init), "`], with borrowed buffers.")]
            ///
            /// # Errors
            #[doc = concat!("As [`Engine::", stringify!($init), "`].")]
            pub fn $init<$($generic),*>(&mut self, $($arg: $type,)* comm: Comm)
                -> Result<Persistent<$buffer>, Rejected<$buffer>>
            where $($generic: 'env $(+ $bound)*),*
            {
                self.engine.init_collective($call($($arg),*), comm, self.lends)
            }
        )*}
    };
}

forms! {
    /// Waits until all members of a communicator have called it (`MPI_Barrier`).
    barrier, ibarrier, barrier_init = spread::barrier;
    []() -> NoBytes;

    /// The elements of the root come to all members (`MPI_Bcast`). All give as many.
    bcast, ibcast, bcast_init = spread::bcast;
    [B: (LeasedBytes, Sequence)](buffer: B, root: Rank) -> B;

    /// The elements of all members come to the root, in the order of ranks (`MPI_Gather`). All send as many, and the root's
    /// `receive` has room for those of all; it does not matter elsewhere, and may be empty. The root's own may be
    /// [in place](crate::in_place).
    gather, igather, gather_init = spread::gather;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R, root: Rank) -> (S, R);

    /// The elements of all members come to the root (`MPI_Gatherv`): those of rank r to `places[r]` of its `receive`, element
    /// numbers. Elsewhere `receive` and `places` do not matter, and may be empty. The root's own may be
    /// [in place](crate::in_place). See [`consecutive`](crate::consecutive).
    gatherv, igatherv, gatherv_init = spread::gatherv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, places: &[Range<usize>], root: Rank) -> (S, R);

    /// The elements of the root go to all members, to each as many, in the order of ranks (`MPI_Scatter`). `send` does not
    /// matter but at the root, and may be empty. The root's own may stay [in place](crate::in_place): it gives that for
    /// `receive`.
    scatter, iscatter, scatter_init = spread::scatter;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R, root: Rank) -> (S, R);

    /// The elements of the root go to all members (`MPI_Scatterv`): to rank r those at `places[r]` of its `send`, element
    /// numbers. Elsewhere `send` and `places` do not matter, and may be empty. The root's own may stay
    /// [in place](crate::in_place): it gives that for `receive`.
    scatterv, iscatterv, scatterv_init = spread::scatterv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, places: &[Range<usize>], root: Rank) -> (S, R);

    /// The elements of all members come to all, in the order of ranks (`MPI_Allgather`). All send as many. With `send`
    /// [in place](crate::in_place) a member's own are at their place already.
    allgather, iallgather, allgather_init = exchange::allgather;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R) -> (S, R);

    /// The elements of all members come to all (`MPI_Allgatherv`): those of rank r to `places[r]` of `receive`, element
    /// numbers. How many each rank sends, all say alike; where they go is each member's own affair.
    allgatherv, iallgatherv, allgatherv_init = exchange::allgatherv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R, places: &[Range<usize>]) -> (S, R);

    /// Every member has elements for each, as many for all: those from rank r come to place r (`MPI_Alltoall`). With `send`
    /// [in place](crate::in_place) they are taken out of `receive`, of which a copy is made.
    alltoall, ialltoall, alltoall_init = exchange::alltoall;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R) -> (S, R);

    /// Every member has elements for each (`MPI_Alltoallv`): those for rank r are at `from[r]` of `send`, those of rank r come
    /// to `to[r]` of `receive`, element numbers. What one sends the other one expects. With `send` [in place](crate::in_place) they
    /// are taken out of `receive`, of which a copy is made, from `to[r]` for rank r; `from` does not matter then, and may be empty.
    alltoallv, ialltoallv, alltoallv_init = exchange::alltoallv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, from: &[Range<usize>], receive: R, to: &[Range<usize>]) -> (S, R);

    /// Every member has a buffer for each, and one from each, of any types and lengths (`MPI_Alltoallw`): entry r of a list is
    /// for rank r. What one sends the other one expects, bytes. If all entries of `send` are [in place](crate::in_place), what goes
    /// to a rank is taken out of the buffer for what comes from it.
    alltoallw, ialltoallw, alltoallw_init = exchange::alltoallw;
    [S: (OneRun), R: (OneRun, LeasedBytes)](send: List<S>, receive: List<R>) -> (List<S>, List<R>);

    /// Element by element, those of all members are combined, and the result comes to the root (`MPI_Reduce`). `receive` does
    /// not matter elsewhere, and may be empty. The root's own operand may be [in place](crate::in_place).
    reduce, ireduce, reduce_init = reduction::reduce;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, operation: impl Operation<S::Item>, root: Rank) -> (S, R);

    /// Element by element, those of all members are combined, and the result comes to all (`MPI_Allreduce`).
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

    /// Element by element, those of all members are combined, and each member gets a part of the result, all as many
    /// (`MPI_Reduce_scatter_block`). With `send` [in place](crate::in_place) the operands are in `receive`, and the part comes
    /// to its beginning.
    reduce_scatter_block, ireduce_scatter_block, reduce_scatter_block_init = reduction::reduce_scatter_block;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, operation: impl Operation<S::Item>) -> (S, R);

    /// Element by element, those of all members are combined, and rank r gets `counts[r]` of the result
    /// (`MPI_Reduce_scatter`). In place as [`Engine::reduce_scatter_block`].
    reduce_scatter, ireduce_scatter, reduce_scatter_init = reduction::reduce_scatter;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, counts: &[usize], operation: impl Operation<S::Item>) -> (S, R);

    /// Element by element, those of the ranks up to the own one are combined (`MPI_Scan`). The operand may be
    /// [in place](crate::in_place).
    scan, iscan, scan_init = prefix::scan;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, operation: impl Operation<S::Item>) -> (S, R);

    /// Element by element, those of the ranks before the own one are combined (`MPI_Exscan`). On rank 0 `receive` stays as it
    /// is. The operand may be [in place](crate::in_place).
    exscan, iexscan, exscan_init = prefix::exscan;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, receive: R, operation: impl Operation<S::Item>) -> (S, R);

    /// The elements of each rank go to those that it sends to, and it gets those of its sources (`MPI_Neighbor_allgather`): all
    /// send as many; those of source k come to place k, and where a grid ends nothing comes.
    neighbor_allgather, ineighbor_allgather, neighbor_allgather_init = neighbors::neighbor_allgather;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R) -> (S, R);

    /// As [`Engine::neighbor_allgather`], those of source k to `places[k]`, element numbers (`MPI_Neighbor_allgatherv`).
    neighbor_allgatherv, ineighbor_allgatherv, neighbor_allgatherv_init = neighbors::neighbor_allgatherv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R, places: &[Range<usize>]) -> (S, R);

    /// Every rank has elements for each of those that it sends to, as many for all, and gets as many of each source
    /// (`MPI_Neighbor_alltoall`).
    neighbor_alltoall, ineighbor_alltoall, neighbor_alltoall_init = neighbors::neighbor_alltoall;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)](send: S, receive: R) -> (S, R);

    /// As [`Engine::neighbor_alltoall`], with a place for each neighbour (`MPI_Neighbor_alltoallv`): those for destination k are
    /// at `from[k]`, those of source k come to `to[k]`, element numbers.
    neighbor_alltoallv, ineighbor_alltoallv, neighbor_alltoallv_init = neighbors::neighbor_alltoallv;
    [S: (Sequence), R: (LeasedBytes, Sequence<Item = S::Item>)]
        (send: S, from: &[Range<usize>], receive: R, to: &[Range<usize>]) -> (S, R);

    /// As [`Engine::neighbor_alltoall`], with a buffer for each neighbour, of any types and lengths
    /// (`MPI_Neighbor_alltoallw`).
    neighbor_alltoallw, ineighbor_alltoallw, neighbor_alltoallw_init = neighbors::neighbor_alltoallw;
    [S: (OneRun), R: (OneRun, LeasedBytes)](send: List<S>, receive: List<R>) -> (List<S>, List<R>);
}
