//! The handles that an application sees, and the row numbers behind them.

use crate::limits::{ANY, PROCS_MAX};
use std::fmt;
use thiserror::Error;

/// The number of a row in one of the engine's tables.
pub type Row = u32;

/// No row: the end of a list, an empty queue, nothing linked.
pub const NIL: Row = u32::MAX;

/// Numbers from here on are not rows of any table: a table never has so many rows.
pub const ROWLESS: Row = 1 << 31;

/// The rank of a proc within a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Rank(pub u32);

impl Rank {
    /// No proc (`MPI_PROC_NULL`). Sends to it, receives from it, and one-sided operations whose target it is complete at once and move no
    /// bytes.
    // Far from all ranks, and from the values to which a negative rank wraps. So a program that steps out of the world gets an error.
    pub const NULL: Rank = Rank(u32::from_be_bytes(*b"null"));
}

const _: () = assert!(Rank::NULL.0 as usize > 2 * PROCS_MAX && (Rank::NULL.0 as usize) < (1 << 32) - 2 * PROCS_MAX);

/// A message tag, from 0 to [`Tag::MAX`] for applications; the upper half is reserved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tag(pub u32);

impl Tag {
    /// The largest tag an application may use: 2³¹ − 1.
    pub const MAX: Tag = Tag(crate::limits::TAG_MAX);
    /// The tag in the status of a receive from [`Rank::NULL`] (`MPI_ANY_TAG`).
    pub const ANY: Tag = Tag(crate::limits::ANY);
}

/// The source that a receive matches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// One rank of the communicator.
    Rank(Rank),
    /// Any rank (`MPI_ANY_SOURCE`).
    Any,
}

impl Source {
    /// The number in the tables: a rank, or [`ANY`]. A rank with the number [`ANY`] becomes the number below it, which is out of range
    /// too. So no rank is taken for a wildcard.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        match self {
            Source::Rank(Rank(ANY)) => ANY - 1,
            Source::Rank(rank) => rank.0,
            Source::Any => ANY,
        }
    }
}

impl From<Rank> for Source {
    fn from(rank: Rank) -> Self {
        Source::Rank(rank)
    }
}

/// The tags that a receive matches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TagFilter {
    /// One tag.
    Tag(Tag),
    /// Any tag (`MPI_ANY_TAG`).
    Any,
}

impl TagFilter {
    /// The number in the tables: a tag, or [`ANY`]. As in [`Source::number`], no tag is taken for a wildcard.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        match self {
            TagFilter::Tag(Tag(ANY)) => ANY - 1,
            TagFilter::Tag(tag) => tag.0,
            TagFilter::Any => ANY,
        }
    }
}

impl From<Tag> for TagFilter {
    fn from(tag: Tag) -> Self {
        TagFilter::Tag(tag)
    }
}

/// A communicator of one engine: its handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Comm(pub u32);

impl Comm {
    /// The communicator of all procs (`MPI_COMM_WORLD`), in every engine.
    pub const WORLD: Comm = Comm(0);
    /// The communicator of the own proc alone (`MPI_COMM_SELF`), in every engine.
    pub const SELF: Comm = Comm(1);
}

/// The number of a proc in the world that the launcher started: its rank in [`Comm::WORLD`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProcId(pub u32);

/// The status of a completed operation: MPI 4.1 §3.2.5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The rank of the sender in the communicator of the operation.
    pub source: Rank,
    /// The tag of the message.
    pub tag: Tag,
    /// The bytes of the message that were moved.
    pub length: usize,
}

/// The message is not a whole number of elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "the message has {bytes} bytes, no multiple of the {size} of {element}: receive it as the type that was sent, or as u8"
)]
pub struct CountError {
    /// Bytes of the message.
    pub bytes: usize,
    /// Bytes of an element.
    pub size: usize,
    /// The element's type.
    pub element: &'static str,
}

/// An untyped handle of a request, with which one can ask about its state. It does not keep the request alive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId {
    /// The row of the request. An operation that was complete when it was started has no row: then this is [`NIL`], or [`ROWLESS`] plus
    /// the index of its receipt.
    pub row: Row,
    /// The generation of the row during the life of the request.
    pub generation: u64,
}

impl RequestId {
    /// Whether the request has a row. If not, the operation was complete when it was started.
    #[inline(always)]
    pub const fn has_row(self) -> bool {
        self.row < ROWLESS
    }
}

impl Status {
    /// How many elements of a type the message had (`MPI_Get_count`).
    ///
    /// # Errors
    /// If the message's length is no multiple of the size of the type.
    pub fn count<T>(&self) -> Result<usize, CountError> {
        let (bytes, size) = (self.length, size_of::<T>());
        match bytes.checked_rem(size) {
            Some(0) => Ok(bytes / size),
            None if bytes == 0 => Ok(0),
            _ => Err(CountError { bytes, size, element: std::any::type_name::<T>() }),
        }
    }

    /// The status of an operation with [`Rank::NULL`].
    pub const NULL: Status = Status { source: Rank::NULL, tag: Tag::ANY, length: 0 };
}

/// The number, or "NULL".
impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Rank::NULL => f.pad("NULL"),
            Rank(number) => number.fmt(f),
        }
    }
}

/// The number, or "ANY".
impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Tag::ANY => f.pad("ANY"),
            Tag(number) => number.fmt(f),
        }
    }
}

impl fmt::Display for ProcId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rank_and_no_tag_has_the_number_of_a_wildcard() {
        assert_eq!((Source::Any.number(), TagFilter::Any.number()), (ANY, ANY));
        for number in [0, 1, PROCS_MAX as u32, ANY - 1, ANY] {
            let (rank, tag) = (Source::from(Rank(number)).number(), TagFilter::from(Tag(number)).number());
            assert!(rank != ANY && tag != ANY, "{number}");
            assert_eq!((rank, tag), (number.min(ANY - 1), number.min(ANY - 1)));
        }
    }

    #[test]
    fn special_values_are_shown_by_name() {
        assert_eq!(format!("{} {:>5} {:03}", Rank::NULL, Rank::NULL, Rank(7)), "NULL  NULL 007");
        assert_eq!(format!("{} {:>4} {}", Tag::ANY, Tag::ANY, Tag::MAX), "ANY  ANY 2147483647");
    }

    #[test]
    fn no_step_from_a_rank_ends_at_the_null_rank() {
        let most = PROCS_MAX as u32;
        let reached = [0..=2 * most, u32::MAX - most..=u32::MAX];
        assert!(!reached.iter().any(|reached| reached.contains(&Rank::NULL.0)));
    }
}
