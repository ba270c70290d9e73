//! The staging buffer of one direction of a connection: bytes of messages that their receiver has asked for, on the way from their sender.
//!
//! The sender copies bytes into the buffer while the receiver copies earlier ones out. The buffer is used as a ring. Two words next to the
//! ring of frames tell how far both are. *Put* counts the bytes that were put into the buffer; only the sender writes it. *Taken* counts
//! those that were taken out; only the receiver writes it. A [`Position`] is such a count, so the byte at a position lies that far into the
//! buffer, modulo its length.
//!
//! The receiver asks by a frame, which names the bytes and the position of the first one. If it does not want to wait any longer, it
//! *skips*: it advances *taken* to behind all that it has asked for. The sender then finds that the positions which are still to be put lie
//! before *taken*, and forgets them. What it has put meanwhile is never looked at: the next position that the receiver asks for lies behind
//! it. Positions never wrap: they have 64 bits.

use super::atomics::Ordering;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use tickwire_components::Span;
use tickwire_components::limits::{CACHE_LINE, STAGING_BYTES, STAGING_TAKEN_BYTES};

/// A count of bytes.
pub type Position = u64;

/// Access to the two words.
pub trait StagingWords {
    /// The position behind the last byte that was put.
    fn load_put(&self, order: Ordering) -> Position;
    /// Sets that position.
    fn store_put(&self, put: Position, order: Ordering);
    /// The position behind the last byte that was taken.
    fn load_taken(&self, order: Ordering) -> Position;
    /// Sets that position.
    fn store_taken(&self, taken: Position, order: Ordering);
}

/// Whether the sender may put bytes at a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// So many may be put.
    Free(usize),
    /// The buffer is full of earlier bytes.
    Full,
    /// The receiver no longer waits for these bytes.
    Over,
}

/// Sender: the position behind the last byte that was taken.
#[inline]
pub fn taken<M: StagingWords>(memory: &M) -> Position {
    // Acquire: the bytes before it were really copied out.
    memory.load_taken(Ordering::Acquire)
}

/// Sender: whether bytes may be put at a position, if so much is [`taken`].
#[inline]
pub fn room(at: Position, taken: Position) -> Room {
    match at.checked_sub(taken) {
        None => Room::Over,
        Some(ahead) if ahead >= STAGING_BYTES as u64 => Room::Full,
        Some(ahead) => Room::Free(STAGING_BYTES - ahead as usize),
    }
}

/// Sender: tells that everything before a position was put.
#[inline]
pub fn put<M: StagingWords>(memory: &M, end: Position) {
    memory.store_put(end, Ordering::Release);
}

/// Receiver: how many bytes from a position on were put and not taken.
#[inline]
pub fn there<M: StagingWords>(memory: &M, at: Position) -> usize {
    match memory.load_put(Ordering::Acquire).checked_sub(at) {
        Some(there) if there <= STAGING_BYTES as u64 => there as usize,
        // What was put last lies before `at`, or the sender says what cannot be.
        _ => 0,
    }
}

/// Receiver: tells that the `bytes` bytes from a position on were taken, once for [`STAGING_TAKEN_BYTES`]: the sender waits for the cache
/// line of this word each time. What lies between two runs is not counted, so that it may be told a little later than that.
#[inline]
pub fn take<M: StagingWords>(memory: &M, at: Position, bytes: usize) {
    let (end, step) = (at.wrapping_add(bytes as Position), STAGING_TAKEN_BYTES as Position);
    if at / step != end / step {
        memory.store_taken(end, Ordering::Release);
    }
}

/// Receiver: tells that everything before a position was taken, or is no longer waited for.
#[inline]
pub fn skip<M: StagingWords>(memory: &M, next: Position) {
    memory.store_taken(next, Ordering::Release);
}

/// The position of the bytes that are asked for after `length` bytes at a position: at the start of a cache line.
#[inline]
pub const fn after(at: Position, length: u64) -> Position {
    at.wrapping_add(length.next_multiple_of(CACHE_LINE as u64))
}

/// One side's view of a staging buffer. Both sides may see it at different addresses.
pub struct StagingBuffer {
    data: NonNull<u8>,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory is accessed by raw copies only, at places that the words give to one side at a time.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Send for StagingBuffer {}

impl StagingBuffer {
    /// A view of the [`STAGING_BYTES`] bytes at `data`, which `keep` keeps.
    ///
    /// # Safety
    /// They are mapped for reading and writing as long as `keep` is there, and accessed by both sides of this buffer only.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub unsafe fn new(data: NonNull<u8>, keep: Arc<dyn Any + Send + Sync>) -> Self {
        StagingBuffer { data, _keep: keep }
    }

    /// The place of at most `most` bytes from a position on: as many as lie before the end of the buffer.
    #[expect(unsafe_code, reason = "an address in shared memory")]
    pub fn place(&self, at: Position, most: usize) -> Span {
        let offset = (at % STAGING_BYTES as Position) as usize;
        // SAFETY: both lie within the buffer, which is kept as long as the view. It is shared memory, whose bytes a peer can change at any
        // time: nobody makes a reference to it.
        unsafe { Span::new(self.data.as_ptr().add(offset), most.min(STAGING_BYTES - offset)) }
    }
}

#[cfg(all(test, not(tickwire_loom)))]
pub(super) mod tests {
    use super::*;
    use std::cell::Cell;

    /// The two words of one thread.
    #[derive(Default)]
    pub(crate) struct Words {
        pub(crate) put: Cell<Position>,
        pub(crate) taken: Cell<Position>,
    }

    impl StagingWords for Words {
        fn load_put(&self, _: Ordering) -> Position {
            self.put.get()
        }
        fn store_put(&self, put: Position, _: Ordering) {
            self.put.set(put);
        }
        fn load_taken(&self, _: Ordering) -> Position {
            self.taken.get()
        }
        fn store_taken(&self, taken: Position, _: Ordering) {
            self.taken.set(taken);
        }
    }

    /// All bytes of the buffer, as a position.
    const ALL: Position = STAGING_BYTES as Position;

    fn room_in(words: &Words, at: Position) -> Room {
        room(at, taken(words))
    }

    #[test]
    fn bytes_are_put_as_far_as_there_is_room_and_taken_as_far_as_they_are_there() {
        for start in [0, 64, u64::from(u32::MAX) - 63, 5 << 40] {
            let words = Words { put: Cell::new(start), taken: Cell::new(start) };
            assert_eq!((room_in(&words, start), there(&words, start)), (Room::Free(STAGING_BYTES), 0));
            put(&words, start + 1000);
            let found = [0, 999, 1000, 1001].map(|bytes| there(&words, start + bytes));
            assert_eq!(found, [1000, 1, 0, 0]);
            assert_eq!(room_in(&words, start + 1000), Room::Free(STAGING_BYTES - 1000));
            put(&words, start + ALL);
            assert_eq!((room_in(&words, start + ALL), there(&words, start)), (Room::Full, STAGING_BYTES));
            // Taken bytes are told now and then only, and all in the end.
            take(&words, start, STAGING_TAKEN_BYTES);
            assert_eq!(words.taken.get(), start + STAGING_TAKEN_BYTES as Position);
            assert_eq!(room_in(&words, start + ALL), Room::Free(STAGING_TAKEN_BYTES));
            // The receiver has lost its patience: nothing of what it asked for is put any more, and its next question is behind it.
            let next = after(start + ALL, 700);
            assert_eq!(next, start + ALL + 704);
            skip(&words, next);
            assert_eq!(room_in(&words, start + ALL), Room::Over);
            assert_eq!((room_in(&words, next), there(&words, next)), (Room::Free(STAGING_BYTES), 0));
        }
    }

    #[test]
    fn what_is_taken_is_told_once_for_many_bytes() {
        let words = Words::default();
        let (mut at, mut told) = (0, 0);
        for _ in 0..STAGING_BYTES / 1024 {
            let before = words.taken.get();
            take(&words, at, 1024);
            at += 1024;
            told += usize::from(words.taken.get() != before);
        }
        assert_eq!(told, STAGING_BYTES / STAGING_TAKEN_BYTES);
    }

    #[test]
    fn words_that_cannot_be_are_no_bytes() {
        // A sender that has not put for long: all that was asked for since was skipped.
        for (put, at) in
            [(ALL + 1, 0), (0, 1), (5, 9), (u64::MAX, 0), (0, ALL), (0, u64::MAX), (7, 1 << 32), (7, 7 << 40)]
        {
            let words = Words { put: Cell::new(put), taken: Cell::new(0) };
            assert_eq!(there(&words, at), 0, "{put} {at}");
        }
        for taken in [1, 1 << 31, 1 << 32, 1 << 33, u64::MAX] {
            assert_eq!(room(0, taken), Room::Over, "{taken}");
        }
    }

    #[test]
    #[expect(unsafe_code, reason = "a buffer of a test")]
    fn places_end_with_the_buffer() {
        let data: Arc<[u8]> = vec![0; STAGING_BYTES].into();
        let start = NonNull::from_ref(&*data).cast::<u8>();
        // SAFETY: the bytes are kept by their owner, and nobody accesses them.
        let buffer = unsafe { StagingBuffer::new(start, Arc::new(data)) };
        for (at, most, offset, length) in [
            (0, 100, 0, 100),
            (ALL - 64, 100, STAGING_BYTES - 64, 64),
            (ALL, 5, 0, 5),
            ((5 << 40) - 64, 1000, STAGING_BYTES - 64, 64),
        ] {
            let place = buffer.place(at, most);
            assert_eq!((place.start().addr() - start.as_ptr().addr(), place.len()), (offset, length));
        }
    }
}
