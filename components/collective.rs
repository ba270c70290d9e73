//! A collective operation as it was called, apart from how it runs.

use crate::Span;

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

/// A call of a collective operation by one member: what, and where its bytes are.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// Which operation.
    pub kind: CollectiveKind,
    /// Its root; 0 if it has none.
    pub root: u32,
    /// What this member gives: its part, or a part for each member in the order of ranks. Empty if it gives nothing.
    pub input: Span,
    /// Where the result goes; empty if this member gets none. It is `input`, has it as a part, or does not overlap with it.
    pub output: Span,
    /// Bytes of a part: of one that is given to a member, or of all that there is if members have no parts of their own.
    pub part: usize,
    /// Bytes of an element that is reduced: they stay together. 1 of what is only copied, which may have other elements on each member.
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

    /// The member of this rank gives bytes to others.
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

    /// The members that one of this rank waits for, a bit each: those whose bytes it gets, or in a barrier all.
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

    /// The members that wait for bytes of one of this rank, a bit each.
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

    /// Whether who gives has a part for each member, and not the same for all.
    #[inline(always)]
    pub fn has_parts(&self) -> bool {
        matches!(self.kind, CollectiveKind::Scatter | CollectiveKind::Alltoall | CollectiveKind::ReduceScatter)
    }

    /// What members compare: the operation, its root, and how long its elements are.
    #[inline(always)]
    pub fn what(&self) -> u64 {
        (self.element as u64) << 40 | u64::from(self.root) << 8 | self.kind as u64
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
