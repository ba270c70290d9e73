//! One-sided operations on windows: the handle of a window, the requests to a target's engine, and the errors.

mod regions;

use crate::errors::{CommError, PostError, RequestError};
use crate::handles::Rank;
use crate::update::{NumberType, UpdateCode};
use crate::{DatatypeError, ProcId};
pub use regions::{RegionAccess, RegionKey};
use std::fmt;
use std::marker::PhantomData;
use thiserror::Error;

/// A window (`MPI_Win`): each member of a communicator exposes a part of memory, and all members may read, write and update all parts.
/// The elements are of type `T`, and displacements count elements.
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

    /// The same window with elements of another type. Displacements then count elements of type `U`.
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
    /// Shared with other holders (`MPI_LOCK_SHARED`).
    Shared,
    /// By one holder alone (`MPI_LOCK_EXCLUSIVE`).
    Exclusive,
}

/// What makes updates of a window atomic. Each window has one domain, and all updates use it, also those by the owner of a part.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicsDomain {
    /// Atomic operations of the processor: all members are on one host, and update memory that they share.
    Processor,
    /// A lock in shared memory: all members are on one host, and update the memory through the kernel, which reads and writes it.
    Lock,
    /// The target's engine does the updates. Members on the target's host do them by themselves, in the same way as the engine does.
    Engine,
    /// The fabric: all updates go through it, also those by members on the target's host and by the target itself.
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

/// What a request to a target's engine asks for. The tag of its frame says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteKind {
    /// Write the payload.
    Put,
    /// Answer with bytes of the part.
    Get,
    /// Update elements with the elements of the payload.
    Update(UpdateCode),
    /// The same, and answer with the old values.
    FetchUpdate(UpdateCode),
    /// Compare an element with the first word of the payload. If they are equal, replace it by the second word. Answer with the old
    /// value.
    CompareSwap(NumberType),
    /// Take the lock of the part. Answer once the lock is taken.
    Lock(LockKind),
    /// Release the lock.
    Unlock(LockKind),
    /// Do several short operations in order, and answer once for all of them.
    Batch,
    /// Never lend the part any more: puts of the origin have failed, and a fabric may still write their bytes.
    LostPuts,
}

impl RemoteKind {
    /// The word for it in a frame.
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
            RemoteKind::LostPuts => 11,
        }
    }

    /// Whether it opens or ends an epoch: it takes or releases a lock, or tells what an epoch leaves behind. It moves no bytes.
    pub const fn is_of_epoch(self) -> bool {
        matches!(self, RemoteKind::Lock(_) | RemoteKind::Unlock(_) | RemoteKind::LostPuts)
    }

    /// Whether it can be one of several operations in a frame ([`RemoteKind::Batch`]).
    pub const fn is_batched(self) -> bool {
        !self.is_of_epoch() && !matches!(self, RemoteKind::Batch)
    }

    /// Bytes of operands in the payload of a request, for an operation on `length` bytes of the target's memory.
    pub const fn operands(self, length: u64) -> u64 {
        match self {
            RemoteKind::Put | RemoteKind::Update(_) | RemoteKind::FetchUpdate(_) => length,
            RemoteKind::CompareSwap(_) => 16,
            RemoteKind::Get
            | RemoteKind::Lock(_)
            | RemoteKind::Unlock(_)
            | RemoteKind::Batch
            | RemoteKind::LostPuts => 0,
        }
    }

    /// Whether the answer to a successful request has a payload.
    pub const fn is_answered_by_bytes(self) -> bool {
        matches!(self, RemoteKind::Get | RemoteKind::FetchUpdate(_) | RemoteKind::CompareSwap(_))
    }

    /// Decodes the word of a frame; `None` if it is invalid.
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
            11 => RemoteKind::LostPuts,
            _ => return None,
        })
    }
}

/// Tags of the messages about epochs that members of a window exchange in the window's own communicator. Nobody else sends there.
pub mod epoch {
    use crate::Tag;

    /// An exposure epoch is posted (`MPI_Win_post`).
    pub const POSTED: Tag = Tag(1);
    /// An access epoch is completed (`MPI_Win_complete`).
    pub const COMPLETED: Tag = Tag(2);
}

/// The result of a request at the target's engine. The tag of the answer says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteOutcome {
    /// The request is done.
    Done,
    /// The bytes are not within the target's part, or its elements are not aligned there.
    OutOfBounds,
    /// A member that holds the lock has failed. Holds its rank.
    HolderFailed(u32),
    /// The target has no epoch open in which the origin may access its part.
    NotExposed,
}

/// Number of ranks that an answer can name.
const RANKS: u32 = 1 << 24;

impl RemoteOutcome {
    /// The word for it in a frame.
    pub const fn word(self) -> u32 {
        match self {
            RemoteOutcome::Done => 0,
            RemoteOutcome::OutOfBounds => 1,
            RemoteOutcome::HolderFailed(rank) => 2 | (rank % RANKS) << 8,
            RemoteOutcome::NotExposed => 3,
        }
    }

    /// Decodes the word of a frame; `None` if it is invalid.
    pub const fn from_word(word: u32) -> Option<Self> {
        match (word & 0xFF, word >> 8) {
            (0, 0) => Some(RemoteOutcome::Done),
            (1, 0) => Some(RemoteOutcome::OutOfBounds),
            (2, rank) => Some(RemoteOutcome::HolderFailed(rank)),
            (3, 0) => Some(RemoteOutcome::NotExposed),
            _ => None,
        }
    }
}

/// Why an operation on a window failed. Nothing of the operation was done, unless the error says otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The engine is closed, the rank does not exist, or no row is free.
    #[error(transparent)]
    Post(#[from] PostError),
    /// An error of the window's communicator.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A wait failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The datatype does not fit.
    #[error(transparent)]
    Datatype(#[from] DatatypeError),
    /// The window does not exist, or has been freed.
    #[error("window {0} does not exist in this engine, or has been freed: use one that is alive")]
    Freed(u32),
    /// The bytes are not within the target's part.
    #[error("bytes {first} to {end} are not within the {length} bytes of rank {target}'s part of the window")]
    OutOfBounds {
        /// Whose part.
        target: Rank,
        /// The first byte.
        first: usize,
        /// The end: one past the last byte.
        end: usize,
        /// Bytes of the part.
        length: usize,
    },
    /// An element to update is not aligned in the target's memory.
    #[error("element {displacement} is not aligned in rank {target}'s part: updates need elements that are")]
    Unaligned {
        /// Whose part.
        target: Rank,
        /// The displacement of the element.
        displacement: usize,
    },
    /// A buffer has the wrong length.
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
    /// Nothing is attached there.
    #[error("nothing is attached at {displacement}: give what win_attach has returned")]
    NotAttached {
        /// What was given.
        displacement: usize,
    },
    /// The call would end an epoch that is not open.
    #[error("{what} has nothing to end: {needed} comes first")]
    NothingOpen {
        /// The call.
        what: &'static str,
        /// What must come first.
        needed: &'static str,
    },
    /// The fabric failed to do it, or refused it.
    #[error("the fabric cannot do it: {reason}")]
    Fabric {
        /// The fabric's message.
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
    /// A member that the operation needs has failed.
    #[error("proc {proc} has failed: {reason}")]
    PeerFailed {
        /// Which proc.
        proc: ProcId,
        /// What is known.
        reason: String,
    },
    /// The memory of a part could not be allocated or mapped.
    #[error("rank {rank} has no memory for its part of the window: {reason}")]
    Memory {
        /// Whose part.
        rank: Rank,
        /// Why.
        reason: String,
    },
    /// The call cannot access the own part.
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
            RemoteKind::LostPuts,
        ];
        for kind in kinds {
            assert_eq!(RemoteKind::from_word(kind.word()), Some(kind));
        }
        for wrong in
            [0, 12, 1 | 1 << 8, 10 | 1 << 8, 11 | 1 << 8, 6 | 1 << 8, 3, 4 | 0xFF << 8, 5, 5 | 11 << 8, u32::MAX]
        {
            assert_eq!(RemoteKind::from_word(wrong), None, "{wrong:#x}");
        }
        for outcome in
            [RemoteOutcome::Done, RemoteOutcome::OutOfBounds, RemoteOutcome::HolderFailed(7), RemoteOutcome::NotExposed]
        {
            assert_eq!(RemoteOutcome::from_word(outcome.word()), Some(outcome));
        }
        for wrong in [4, 1 << 8, 1 | 1 << 8, 3 | 1 << 8, 255] {
            assert_eq!(RemoteOutcome::from_word(wrong), None);
        }
    }
}
