//! The handles that an application sees, and the row numbers behind them.

use std::fmt;

/// The number of a row in one of the engine's tables.
pub type Row = u32;

/// No row: the end of a list, an empty queue, nothing linked.
pub const NIL: Row = u32::MAX;

/// The rank of a proc within a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Rank(pub u32);

impl Rank {
    /// No proc (`MPI_PROC_NULL`): sends to it and receives from it are done at once and move nothing.
    pub const NULL: Rank = Rank(u32::MAX - 1);
}

/// A message tag, from 0 to [`Tag::MAX`] for applications; the upper half is reserved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tag(pub u32);

impl Tag {
    /// The largest tag an application may use: 2³¹ − 1.
    pub const MAX: Tag = Tag(crate::limits::TAG_MAX);
    /// The tag in the status of a receive from [`Rank::NULL`] (`MPI_ANY_TAG`).
    pub const ANY: Tag = Tag(crate::limits::ANY);
}

/// Whom a receive takes messages from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// One rank of the communicator.
    Rank(u32),
    /// Whoever sends first (`MPI_ANY_SOURCE`).
    Any,
}

impl From<Rank> for Source {
    fn from(rank: Rank) -> Self {
        Source::Rank(rank.0)
    }
}

/// Which tags a receive takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TagFilter {
    /// One tag.
    Tag(u32),
    /// Any tag (`MPI_ANY_TAG`).
    Any,
}

impl From<Tag> for TagFilter {
    fn from(tag: Tag) -> Self {
        TagFilter::Tag(tag.0)
    }
}

/// A communicator of one engine: the number of its row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Comm(pub u32);

/// The number of a proc in the world that the launcher started: its rank in the world's communicator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProcId(pub u32);

/// What a finished operation tells: MPI 4.1 §3.2.5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The rank of the sender in the communicator of the operation.
    pub source: Rank,
    /// The tag of the message.
    pub tag: Tag,
    /// The bytes of the message that were moved.
    pub length: usize,
}

/// An untyped name of a request, good for asking after it; it does not keep the request alive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId {
    /// Its row, or [`NIL`] for an operation that was complete when it was started.
    pub row: Row,
    /// The row's generation while the request lives.
    pub generation: u64,
}

impl Status {
    /// What an operation with [`Rank::NULL`] tells.
    pub const NULL: Status = Status { source: Rank::NULL, tag: Tag::ANY, length: 0 };
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ProcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
