//! One-sided operations on windows: the handle of a window, what a request to a target's engine says, and how operations fail.

mod regions;

use crate::errors::{CommError, PostError, RequestError};
use crate::handles::Rank;
use crate::update::{NumberType, UpdateCode};
use crate::{DatatypeError, ProcId};
pub use regions::{RegionAccess, RegionKey};
use std::fmt;
use std::marker::PhantomData;
use thiserror::Error;

/// A window (`MPI_Win`): memory of all members of a communicator that each of them may read, write and update. Its elements are of type
/// `T`, and displacements count elements.
pub struct Window<T> {
    /// The handle of the window's own communicator.
    pub handle: u32,
    marker: PhantomData<fn(T) -> T>,
}

impl<T> Window<T> {
    /// The window with this handle.
    pub const fn new(handle: u32) -> Self {
        Window { handle, marker: PhantomData }
    }

    /// The same window with elements of another type: displacements count these from now on.
    pub const fn cast<U>(self) -> Window<U> {
        Window::new(self.handle)
    }
}

impl<T> Clone for Window<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Window<T> {}

impl<T> PartialEq for Window<T> {
    fn eq(&self, other: &Self) -> bool {
        self.handle == other.handle
    }
}

impl<T> Eq for Window<T> {}

impl<T> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({})", self.handle)
    }
}

/// How a lock on a member's part of a window is held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockKind {
    /// With others (`MPI_LOCK_SHARED`).
    Shared,
    /// Alone (`MPI_LOCK_EXCLUSIVE`).
    Exclusive,
}

/// Who makes updates of a window atomic. There is one domain for each window, and all updates take it, those of a part's owner too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicsDomain {
    /// The processor: all members are on one host, and update the memory that they share.
    Processor,
    /// A lock in shared memory: all members are on one host, and the kernel reads and writes the memory that is updated.
    Lock,
    /// The target's engine, beside members on the target's host, which do it as its engine does.
    Engine,
    /// A fabric: all updates go through it, those on the target's host and the target's own, too.
    Fabric,
}

impl fmt::Display for AtomicsDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AtomicsDomain::Processor => "the processor",
            AtomicsDomain::Lock => "a lock in shared memory",
            AtomicsDomain::Engine => "the target's engine",
            AtomicsDomain::Fabric => "the fabric",
        })
    }
}

/// What a request asks of a target's engine, as the tag of its frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteKind {
    /// Write the payload.
    Put,
    /// Answer with so many bytes.
    Get,
    /// Update elements by those of the payload.
    Update(UpdateCode),
    /// The same, and answer with the old values.
    FetchUpdate(UpdateCode),
    /// Compare an element with the first word of the payload, swap it for the second one, and answer with what was there.
    CompareSwap(NumberType),
    /// Take the access lock; answer once it is taken.
    Lock(LockKind),
    /// Give it back.
    Unlock(LockKind),
    /// Do several short operations, in their order, and answer once for all of them.
    Batch,
}

impl RemoteKind {
    /// The word that a frame has for it.
    pub const fn word(self) -> u32 {
        match self {
            RemoteKind::Put => 1,
            RemoteKind::Get => 2,
            RemoteKind::Update(code) => 3 | code.word() << 8,
            RemoteKind::FetchUpdate(code) => 4 | code.word() << 8,
            RemoteKind::CompareSwap(number) => 5 | (number as u32) << 8,
            RemoteKind::Lock(LockKind::Shared) => 6,
            RemoteKind::Lock(LockKind::Exclusive) => 7,
            RemoteKind::Unlock(LockKind::Shared) => 8,
            RemoteKind::Unlock(LockKind::Exclusive) => 9,
            RemoteKind::Batch => 10,
        }
    }

    /// Whether it is about a lock, and no operation on memory.
    pub const fn is_of_lock(self) -> bool {
        matches!(self, RemoteKind::Lock(_) | RemoteKind::Unlock(_))
    }

    /// Whether it can be one of several in a frame ([`RemoteKind::Batch`]).
    pub const fn is_batched(self) -> bool {
        !matches!(self, RemoteKind::Lock(_) | RemoteKind::Unlock(_) | RemoteKind::Batch)
    }

    /// Bytes that a request brings for an operation on so many bytes of the target's memory.
    pub const fn operands(self, length: u64) -> u64 {
        match self {
            RemoteKind::Put | RemoteKind::Update(_) | RemoteKind::FetchUpdate(_) => length,
            RemoteKind::CompareSwap(_) => 16,
            RemoteKind::Get | RemoteKind::Lock(_) | RemoteKind::Unlock(_) | RemoteKind::Batch => 0,
        }
    }

    /// Whether its answer has bytes, if it is done.
    pub const fn is_answered_by_bytes(self) -> bool {
        matches!(self, RemoteKind::Get | RemoteKind::FetchUpdate(_) | RemoteKind::CompareSwap(_))
    }

    /// Reads a word; `None` if it is none.
    pub fn from_word(word: u32) -> Option<Self> {
        let rest = word >> 8;
        Some(match word & 0xFF {
            3 => RemoteKind::Update(UpdateCode::from_word(rest)?),
            4 => RemoteKind::FetchUpdate(UpdateCode::from_word(rest)?),
            5 => RemoteKind::CompareSwap(NumberType::ALL.into_iter().find(|&number| number as u32 == rest)?),
            _ if rest != 0 => return None,
            1 => RemoteKind::Put,
            2 => RemoteKind::Get,
            6 => RemoteKind::Lock(LockKind::Shared),
            7 => RemoteKind::Lock(LockKind::Exclusive),
            8 => RemoteKind::Unlock(LockKind::Shared),
            9 => RemoteKind::Unlock(LockKind::Exclusive),
            10 => RemoteKind::Batch,
            _ => return None,
        })
    }
}

/// How a target's engine has dealt with a request, as the tag of its answer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteOutcome {
    /// It is done.
    Done,
    /// It is not within the target's part, or not aligned there.
    OutOfBounds,
    /// A member that holds the lock has failed: its rank.
    HolderFailed(u32),
}

/// Ranks that an answer can name.
const RANKS: u32 = 1 << 24;

impl RemoteOutcome {
    /// The word that a frame has for it.
    pub const fn word(self) -> u32 {
        match self {
            RemoteOutcome::Done => 0,
            RemoteOutcome::OutOfBounds => 1,
            RemoteOutcome::HolderFailed(rank) => 2 | (rank % RANKS) << 8,
        }
    }

    /// Reads a word; `None` if it is none.
    pub const fn from_word(word: u32) -> Option<Self> {
        match (word & 0xFF, word >> 8) {
            (0, 0) => Some(RemoteOutcome::Done),
            (1, 0) => Some(RemoteOutcome::OutOfBounds),
            (2, rank) => Some(RemoteOutcome::HolderFailed(rank)),
            _ => None,
        }
    }
}

/// Why an operation on a window failed. Nothing of it was done, unless it says so.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum WindowError {
    /// An engine that is closed, no such rank, or no free row.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The communicator of the window.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A wait failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A datatype that does not fit.
    #[error(transparent)]
    Datatype(#[from] DatatypeError),
    /// There is no such window.
    #[error("window {0} does not exist in this engine, or has been freed: use one that is alive")]
    Freed(u32),
    /// Bytes that are not within the target's part.
    #[error("bytes {first} to {end} are not within the {length} bytes of rank {target}'s part of the window")]
    OutOfBounds {
        /// Whose part.
        target: Rank,
        /// The first byte.
        first: usize,
        /// The byte behind the last one.
        end: usize,
        /// Bytes of the part.
        length: usize,
    },
    /// Elements that are not aligned in the target's memory.
    #[error("element {displacement} is not aligned in rank {target}'s part: updates need elements that are")]
    Unaligned {
        /// Whose part.
        target: Rank,
        /// Where.
        displacement: usize,
    },
    /// Buffers of different lengths.
    #[error("the {what} has {given} elements, and {needed} are needed")]
    Elements {
        /// Which buffer.
        what: &'static str,
        /// Its elements.
        given: usize,
        /// How many it must have.
        needed: usize,
    },
    /// No epoch is open that allows the operation.
    #[error("no epoch is open towards rank {0}: lock it, lock all, fence, or start one first")]
    NoEpoch(Rank),
    /// No epoch is open towards any rank.
    #[error("no epoch is open: lock a rank, lock all, fence, or start one before {0}")]
    NoEpochs(&'static str),
    /// A key does not allow the operation.
    #[error("the key of the region does not allow to {0} it: ask its owner for one that does")]
    Forbidden(&'static str),
    /// An epoch is open that forbids the call.
    #[error("{what} is not possible while {open}: end that first")]
    EpochOpen {
        /// The call.
        what: &'static str,
        /// What is open.
        open: &'static str,
    },
    /// An epoch is to be ended that is not open.
    #[error("{what} has nothing to end: {needed} comes first")]
    NothingOpen {
        /// The call.
        what: &'static str,
        /// What must come first.
        needed: &'static str,
    },
    /// A fabric could not do it, or refuses it.
    #[error("the fabric cannot do it: {reason}")]
    Fabric {
        /// In its words.
        reason: String,
    },
    /// A member that holds a lock has failed.
    #[error("proc {proc}, which holds the lock, has failed: {reason}")]
    HolderFailed {
        /// Which proc.
        proc: ProcId,
        /// What is known.
        reason: String,
    },
    /// A member has failed that the operation needs.
    #[error("proc {proc} has failed: {reason}")]
    PeerFailed {
        /// Which proc.
        proc: ProcId,
        /// What is known.
        reason: String,
    },
    /// The memory of a part cannot be had.
    #[error("rank {rank} has no memory for its part of the window: {reason}")]
    Memory {
        /// Whose part.
        rank: Rank,
        /// Why.
        reason: String,
    },
    /// The own part is not in reach of this call.
    #[error("the own part is {what}: {instead}")]
    OwnPart {
        /// What is in the way.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update::UpdateOperation;

    #[test]
    fn words_are_read_as_they_were_written() {
        let code = UpdateCode { number: NumberType::F64, operation: UpdateOperation::Max };
        let kinds = [
            RemoteKind::Put,
            RemoteKind::Get,
            RemoteKind::Update(code),
            RemoteKind::FetchUpdate(code),
            RemoteKind::CompareSwap(NumberType::U16),
            RemoteKind::Lock(LockKind::Shared),
            RemoteKind::Lock(LockKind::Exclusive),
            RemoteKind::Unlock(LockKind::Shared),
            RemoteKind::Unlock(LockKind::Exclusive),
            RemoteKind::Batch,
        ];
        for kind in kinds {
            assert_eq!(RemoteKind::from_word(kind.word()), Some(kind));
        }
        for wrong in [0, 11, 1 | 1 << 8, 10 | 1 << 8, 6 | 1 << 8, 3, 4 | 0xFF << 8, 5, 5 | 11 << 8, u32::MAX] {
            assert_eq!(RemoteKind::from_word(wrong), None, "{wrong:#x}");
        }
        for outcome in [RemoteOutcome::Done, RemoteOutcome::OutOfBounds, RemoteOutcome::HolderFailed(7)] {
            assert_eq!(RemoteOutcome::from_word(outcome.word()), Some(outcome));
        }
        for wrong in [3, 1 << 8, 1 | 1 << 8, 255] {
            assert_eq!(RemoteOutcome::from_word(wrong), None);
        }
    }
}
