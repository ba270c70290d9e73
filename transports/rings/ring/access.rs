//! What both ends of a ring go by: its memory, how much of a frame stands beside its header, and what the other end can have
//! written that cannot be.

use crate::rings::atomics::Ordering;
use tickwire_components::Span;
use tickwire_components::wire::{HEADER_BYTES, Header};

/// Memory of a ring, as both ends see it. Offsets are bytes from the start of the data, multiples of 8.
///
/// # Safety
/// What [`RingMemory::bytes`] gives is valid for reads and writes as far as the data go, as long as the value lives.
#[expect(unsafe_code, reason = "memory that another process may write")]
pub unsafe trait RingMemory {
    /// Bytes of data, a power of two.
    fn capacity(&self) -> u64;
    /// Reads a word of data.
    fn load(&self, offset: u64, order: Ordering) -> u64;
    /// Writes a word of data.
    fn store(&self, offset: u64, word: u64, order: Ordering);
    /// Writes a header, its first word last.
    #[inline(always)]
    fn store_header(&self, offset: u64, header: &Header) {
        self.store(offset + 8, header.origin, Ordering::Relaxed);
        self.store(offset + 16, header.name, Ordering::Relaxed);
        self.store(offset + 24, header.length, Ordering::Relaxed);
        self.store(offset, header.lead, Ordering::Release);
    }
    /// Writes bytes; they fit.
    ///
    /// # Safety
    /// They are valid for reads.
    unsafe fn fill(&self, offset: u64, from: Span);
    /// Where `length` bytes of data stand.
    fn bytes(&self, offset: u64, length: usize) -> Span;
    /// How far the reader has released the ring: a position, bytes of frames and of what was skipped since its creation, modulo 2^64.
    fn released(&self) -> u64;
    /// Publishes how far the reader has released the ring.
    fn release(&self, position: u64);
    /// Whether the reader polls this ring directly.
    fn watched(&self) -> bool;
    /// Says whether the reader polls this ring directly.
    fn watch(&self, watched: bool);
    /// Whether the writer sleeps until there is room.
    fn starving(&self) -> bool;
    /// Says whether the writer sleeps until there is room.
    fn starve(&self, starving: bool);
    /// Reads a word of the window value. See [`crate::rings::window`].
    fn load_window(&self, word: usize, order: Ordering) -> u32;
    /// Writes a word of the window value.
    fn store_window(&self, word: usize, value: u32, order: Ordering);
    /// Writes bytes past the caches of this processor, without taking their lines out of the reader's. They fit. The reader sees them
    /// for certain after [`RingMemory::fence_streams`].
    ///
    /// # Safety
    /// As [`RingMemory::fill`].
    #[inline]
    unsafe fn fill_past(&self, offset: u64, from: Span) {
        // SAFETY: by the same contract.
        unsafe { self.fill(offset, from) }
    }
    /// Makes all that was written by [`RingMemory::fill_past`] visible before anything that is written later.
    fn fence_streams(&self) {}
    /// Hints that these bytes will be written soon. See `crate::hints`.
    fn expect_write(&self, _offset: u64, _bytes: u64) {}
    /// Hints that these bytes have been written and will be read by another processor next.
    fn hand_over(&self, _offset: u64, _bytes: u64) {}
    /// Hints that these bytes will be read soon.
    fn expect_read(&self, _offset: u64, _bytes: u64) {}
}

/// What the other end of a ring has written that can never be right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Corrupt {
    /// No such kind of frame.
    Kind(u8),
    /// A length that does not fit the ring.
    Length(u64),
    /// A released position that is not between the last one and the writer's.
    Released(u64),
    /// A question for so many bytes at an address which were not offered.
    Question(u64, u64),
    /// A mark that the ring goes on in a larger one, which this side has not been given. With the binary logarithm of its bytes.
    Moved(u8),
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Corrupt::Kind(byte) => write!(f, "a frame of unknown kind {byte}"),
            Corrupt::Length(length) => write!(f, "a frame of {length} bytes that cannot fit"),
            Corrupt::Released(position) => write!(f, "an impossible released position {position}"),
            Corrupt::Question(address, length) => {
                write!(f, "a question for {length} bytes at {address:#x} that were not offered")
            }
            Corrupt::Moved(log) => write!(f, "it goes on in a ring of 2^{log} bytes that was never passed"),
        }
    }
}

/// Bytes of payload that stand in the same cache line as their header.
pub(in crate::rings) const BESIDE_HEADER: u64 = 64 - HEADER_BYTES as u64;

/// Bytes of payload that a frame in this ring can have at most.
pub(super) fn payload_max<M: RingMemory>(memory: &M) -> u64 {
    memory.capacity() - HEADER_BYTES as u64
}
