//! The words of a board: how its owner says what it has done, and how others read it.
//!
//! The owner writes an operand, or the words of a call, before it releases the word beside them. A reader reads them after it has
//! acquired that word. The owner writes them again only when the words of all readers say that they have read them. The loom models at
//! the end check this under every order of accesses.

use crate::rings::atomics::{AtomicU64, Ordering, fence};

/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 2048;
/// Bytes of an operand that a slot holds.
pub const SHORT_MAX: usize = SLOT_BYTES - 128;

/// Bits of the number of chunks in a word; above them stands the operation's number.
pub(super) const COUNT_BITS: u32 = 24;
/// The count that says that the owner has given the operation up.
const ABANDONED: u64 = (1 << COUNT_BITS) - 1;
/// Chunks of an operation at most.
pub const CHUNKS_MAX: u64 = ABANDONED - 1;

/// What a member has called. `what` and `length` must be the same on all members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Called {
    /// Which operation, and its root.
    pub what: u64,
    /// Bytes of an operand.
    pub length: u64,
    /// Address of the operand in the owner's process, if others read it there: in its shared heap, or by the kernel. 0 if it stands on
    /// the board.
    pub address: u64,
    /// The same of the result.
    pub result: u64,
}

/// How far a member has come with an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It has not begun it.
    Before,
    /// It has done so many chunks.
    At(u64),
    /// It has given it up.
    Abandoned,
}

impl Stage {
    fn of(word: u64, operation: u64) -> Self {
        match word & ABANDONED {
            _ if word >> COUNT_BITS != operation & (u64::MAX >> COUNT_BITS) => Stage::Before,
            ABANDONED => Stage::Abandoned,
            count => Stage::At(count),
        }
    }
}

/// A count of chunks in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// Chunks of the operand that others can read: on the board, or in the owner's memory.
    Written,
    /// Chunks of which the owner has reduced its slice, and others can read it.
    Reduced,
    /// Chunks that the owner has taken from its sources, and needs no more.
    Consumed,
}

/// The words of a slot.
pub(super) struct SlotWords<'a> {
    /// The operation that has begun.
    pub(super) begun: &'a AtomicU64,
    /// What, length, address and result of the call.
    pub(super) called: [&'a AtomicU64; 4],
    /// Counts of chunks: see [`Count`].
    pub(super) counts: &'a [AtomicU64; 3],
}

impl SlotWords<'_> {
    /// See [`OwnBoard::begin`](super::OwnBoard::begin).
    #[inline(always)]
    pub(super) fn begin(&self, operation: u64, call: Called) {
        let [what, length, address, result] = self.called;
        what.store(call.what, Ordering::Relaxed);
        length.store(call.length, Ordering::Relaxed);
        address.store(call.address, Ordering::Relaxed);
        if call.result != 0 || call.length as usize > SHORT_MAX {
            result.store(call.result, Ordering::Relaxed);
        }
        say(self.begun, operation << COUNT_BITS);
    }

    /// See [`PeerBoard::begun`](super::PeerBoard::begun).
    #[inline(always)]
    pub(super) fn begun(&self, operation: u64) -> Stage {
        Stage::of(read(self.begun), operation)
    }

    /// See [`PeerBoard::called`](super::PeerBoard::called).
    #[inline(always)]
    pub(super) fn called(&self) -> Called {
        let [what, length, address, result] = self.called;
        let [what, length, address] = [what, length, address].map(|word| word.load(Ordering::Relaxed));
        let result = if length as usize > SHORT_MAX { result.load(Ordering::Relaxed) } else { 0 };
        Called { what, length, address, result }
    }

    /// See [`OwnBoard::set`](super::OwnBoard::set).
    #[inline(always)]
    pub(super) fn set(&self, operation: u64, count: Count, chunks: u64) {
        say(&self.counts[count as usize], operation << COUNT_BITS | chunks.min(CHUNKS_MAX));
    }

    /// See [`PeerBoard::count`](super::PeerBoard::count).
    #[inline(always)]
    pub(super) fn count(&self, operation: u64, count: Count) -> Stage {
        Stage::of(read(&self.counts[count as usize]), operation)
    }

    /// See [`OwnBoard::abandon`](super::OwnBoard::abandon).
    pub(super) fn abandon(&self, operation: u64) {
        let word = operation << COUNT_BITS | ABANDONED;
        self.counts.iter().for_each(|count| say(count, word));
        say(self.begun, word);
        // The memory that others read belongs to the program again. Whoever reads what the program writes there from now on also sees that
        // the operation was given up.
        fence(Ordering::Release);
    }
}

/// Says something, and with it all that was written before.
#[inline(always)]
pub(super) fn say(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}

/// Reads what was said: what was written before is there, too.
#[inline(always)]
pub(super) fn read(word: &AtomicU64) -> u64 {
    word.load(Ordering::Acquire)
}

/// See [`OwnBoard::leave_behind`](super::OwnBoard::leave_behind).
pub(super) fn leave_behind(word: &AtomicU64, members: u32) {
    // Its owner alone writes the word.
    word.store(word.load(Ordering::Relaxed) | u64::from(members), Ordering::Relaxed);
    // Whoever reads what the owner writes from now on also sees that it was left behind.
    fence(Ordering::Release);
}

/// See [`PeerBoard::has_left_behind`](super::PeerBoard::has_left_behind).
#[inline(always)]
pub(super) fn has_left_behind(word: &AtomicU64, rank: u32) -> bool {
    // The operand was read before.
    fence(Ordering::Acquire);
    word.load(Ordering::Relaxed) >> rank & 1 != 0
}

#[cfg(all(test, tickwire_loom))]
mod loom_tests;
