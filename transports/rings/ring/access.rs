//! What both ends of a ring share: access to its memory, how much payload stands beside a header, and the errors in what the other end has
//! written.

use crate::rings::atomics::Ordering;
use tickwire_components::Span;
use tickwire_components::limits::CACHE_LINE;
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
    /// The span of `length` bytes of data.
    fn bytes(&self, offset: u64, length: usize) -> Span;
    /// How far the reader has released the ring: a position, which counts all bytes of frames and all skipped bytes, modulo 2^64.
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
    /// Writes bytes past the caches of this processor, without taking their lines out of the reader's caches. The bytes fit. The reader is
    /// sure to see them only after [`RingMemory::fence_streams`].
    ///
    /// # Safety
    /// As [`RingMemory::fill`].
    #[inline]
    unsafe fn fill_past(&self, offset: u64, from: Span) {
        // SAFETY: by the same contract.
        unsafe { self.fill(offset, from) }
    }
    /// Makes all bytes written by [`RingMemory::fill_past`] visible before any later write.
    fn fence_streams(&self) {}
    /// Hints that these bytes will be written soon. See `crate::hints`.
    fn expect_write(&self, _offset: u64, _bytes: u64) {}
    /// Hints that these bytes have been written and will be read by another processor next.
    fn hand_over(&self, _offset: u64, _bytes: u64) {}
    /// Hints that these bytes will be read soon.
    fn expect_read(&self, _offset: u64, _bytes: u64) {}
}

/// What the other end of a ring has written that can never be valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Corrupt {
    /// An unknown kind of frame.
    Kind(u8),
    /// A length that does not fit the ring.
    Length(u64),
    /// A released position that lies outside the last one and the writer's position.
    Released(u64),
    /// A question for bytes that were not offered: the address, and the number of bytes.
    Question(u64, u64),
    /// A mark that the ring continues in a larger one, which this process has not been passed; with the binary logarithm of its bytes.
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

/// [`CACHE_LINE`] as a difference of positions.
pub(in crate::rings) const LINE: u64 = CACHE_LINE as u64;
/// Bytes of payload that stand in the same cache line as their header.
pub(in crate::rings) const BESIDE_HEADER: u64 = LINE - HEADER_BYTES as u64;

/// The most bytes of payload that a frame in this ring can have.
pub(super) fn payload_max<M: RingMemory>(memory: &M) -> u64 {
    memory.capacity() - HEADER_BYTES as u64
}
