//! A call of a collective operation. How the operation runs is described elsewhere.

use crate::Span;
use crate::limits::{BOARD_ELEMENT_MAX, BOARD_MEMBERS};

/// Which operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CollectiveKind {
    /// `MPI_Barrier`.
    Barrier,
    /// `MPI_Bcast`.
    Broadcast,
    /// `MPI_Gather`.
    Gather,
    /// `MPI_Scatter`.
    Scatter,
    /// `MPI_Allgather`.
    Allgather,
    /// `MPI_Alltoall`.
    Alltoall,
    /// `MPI_Reduce`.
    Reduce,
    /// `MPI_Allreduce`.
    Allreduce,
    /// `MPI_Reduce_scatter_block`.
    ReduceScatter,
    /// `MPI_Scan`.
    Scan,
    /// `MPI_Exscan`.
    Exscan,
}

impl CollectiveKind {
    /// Its name in calls.
    pub const fn name(self) -> &'static str {
        match self {
            CollectiveKind::Barrier => "barrier",
            CollectiveKind::Broadcast => "bcast",
            CollectiveKind::Gather => "gather",
            CollectiveKind::Scatter => "scatter",
            CollectiveKind::Allgather => "allgather",
            CollectiveKind::Alltoall => "alltoall",
            CollectiveKind::Reduce => "reduce",
            CollectiveKind::Allreduce => "allreduce",
            CollectiveKind::ReduceScatter => "reduce_scatter_block",
            CollectiveKind::Scan => "scan",
            CollectiveKind::Exscan => "exscan",
        }
    }
}

/// A call of a collective operation by one member: the operation, and the addresses of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// Which operation.
    pub kind: CollectiveKind,
    /// Its root; 0 if it has none.
    pub root: u32,
    /// This member's send buffer: its part, or one part for each member in rank order. Empty if the member sends nothing.
    pub input: Span,
    /// This member's receive buffer; empty if it gets no result. It is the same as `input`, contains `input`, or does not overlap it.
    pub output: Span,
    /// Length of a part, bytes. If members have parts of their own: of the part for one member. Otherwise: of the whole buffer.
    pub part: usize,
    /// Bytes of an element that is reduced; an element is never split. 1 for bytes that are only copied, whose element type may differ
    /// between members.
    pub element: usize,
}

impl Collective {
    /// A call without bytes.
    pub const BARRIER: Collective = Collective {
        kind: CollectiveKind::Barrier,
        root: 0,
        input: Span::EMPTY,
        output: Span::EMPTY,
        part: 0,
        element: 1,
    };

    /// Whether the member `rank` sends bytes to others.
    #[inline(always)]
    pub fn gives(&self, rank: u32, size: u32) -> bool {
        match self.kind {
            CollectiveKind::Barrier => false,
            CollectiveKind::Broadcast | CollectiveKind::Scatter => rank == self.root,
            CollectiveKind::Gather | CollectiveKind::Reduce => rank != self.root,
            CollectiveKind::Scan | CollectiveKind::Exscan => rank + 1 < size,
            CollectiveKind::Allgather
            | CollectiveKind::Alltoall
            | CollectiveKind::Allreduce
            | CollectiveKind::ReduceScatter => true,
        }
    }

    /// The members that the member `rank` waits for, one bit each: those whose bytes it gets, or in a barrier all others.
    #[inline(always)]
    pub fn sources(&self, rank: u32, size: u32) -> u32 {
        let all = ((1u64 << size) - 1) as u32 & !(1 << rank);
        match self.kind {
            CollectiveKind::Broadcast | CollectiveKind::Scatter => all & 1 << self.root,
            CollectiveKind::Gather | CollectiveKind::Reduce if rank != self.root => 0,
            CollectiveKind::Scan | CollectiveKind::Exscan => all & ((1 << rank) - 1),
            _ => all,
        }
    }

    /// The members that wait for bytes of the member `rank`, one bit each.
    #[inline(always)]
    pub fn readers(&self, rank: u32, size: u32) -> u32 {
        let all = ((1u64 << size) - 1) as u32 & !(1 << rank);
        match self.kind {
            _ if !self.gives(rank, size) => 0,
            CollectiveKind::Gather | CollectiveKind::Reduce => all & 1 << self.root,
            CollectiveKind::Scan | CollectiveKind::Exscan => all & !((1 << rank) - 1),
            _ => all,
        }
    }

    /// Whether a sending member has a separate part for each member, rather than the same bytes for all.
    #[inline(always)]
    pub fn has_parts(&self) -> bool {
        matches!(self.kind, CollectiveKind::Scatter | CollectiveKind::Alltoall | CollectiveKind::ReduceScatter)
    }

    /// What members compare with each other: the operation, its root, and the length of its elements.
    #[inline(always)]
    pub fn what(&self) -> u32 {
        const { assert!(BOARD_ELEMENT_MAX < 1 << 16 && BOARD_MEMBERS <= 1 << 8) };
        (self.element as u32) << 16 | self.root << 8 | self.kind as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [CollectiveKind; 11] = [
        CollectiveKind::Barrier,
        CollectiveKind::Broadcast,
        CollectiveKind::Gather,
        CollectiveKind::Scatter,
        CollectiveKind::Allgather,
        CollectiveKind::Alltoall,
        CollectiveKind::Reduce,
        CollectiveKind::Allreduce,
        CollectiveKind::ReduceScatter,
        CollectiveKind::Scan,
        CollectiveKind::Exscan,
    ];

    #[test]
    fn whose_bytes_one_gets_gives_them_and_knows_it() {
        for kind in KINDS {
            for size in 1..=16 {
                for root in 0..size {
                    let call = Collective { kind, root, ..Collective::BARRIER };
                    for (reader, source) in (0..size).flat_map(|reader| (0..size).map(move |source| (reader, source))) {
                        let (gets, given) =
                            (call.sources(reader, size) >> source, call.readers(source, size) >> reader);
                        assert_eq!(given & 1 != 0, gets & 1 != 0 && kind != CollectiveKind::Barrier, "{kind:?}");
                        assert!(reader != source || gets & 1 == 0, "nobody waits for himself");
                        assert!(given & 1 == 0 || call.gives(source, size));
                    }
                }
            }
        }
    }
}
