//! Ring memory: its layout, and the raw view of it that works on shared maps and on the heap alike.

use super::ring::{LINE, RingMemory};
use super::staging::{Position, StagingWords};
use super::window;
use crate::copy::{copy_bytes, copy_past, fence_streams};
use crate::hints::{For, demote, prefetch};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use tickwire_components::Span;
use tickwire_components::limits::{RING_LINES_READ, RING_LINES_SENT};

/// The control block before a ring's data. Unless noted, the reader writes it and the writer reads it. Words that are used apart have cache
/// lines of their own, so that an access to one does not wait for another.
#[repr(C, align(128))]
pub struct RingControl {
    released: AtomicU64,
    /// See [`super::window`]. The writer reads it when credit is short, and `released` when the ring is full.
    window: [AtomicU32; window::WORDS],
    /// The reader's [`Answer`] to the larger ring that it was passed last. See [`super::links`].
    answer: AtomicU32,
    _apart: [u32; 9],
    watched: AtomicU32,
    _pad: [u32; 15],
    /// Written by the writer. See [`super::staging`]. Not in the same pair of cache lines as `taken`, since processors fetch both of a pair.
    put: AtomicU64,
    _polled: [u32; 14],
    /// Written by the writer, once.
    abandoned: AtomicU32,
    _rest: [u32; 15],
    /// Written by both: the writer asks, the reader answers.
    starving: AtomicU32,
    _alone: [u32; 15],
    taken: AtomicU64,
    _end: [u32; 14],
}

/// Bytes of [`RingControl`] before the data.
pub const CONTROL_BYTES: usize = size_of::<RingControl>();
const _: () = assert!(CONTROL_BYTES == 384);

/// The reader's answer when it is passed a larger ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Answer {
    /// No answer yet.
    None = 0,
    /// The reader has mapped the larger ring.
    Taken = 1,
    /// The reader cannot map it: the ring stays as it is.
    Refused = 2,
}

/// A view of a ring. Somebody else keeps the memory alive.
#[derive(Clone, Copy, Debug)]
pub struct RawRing {
    control: NonNull<RingControl>,
    data: NonNull<u8>,
    capacity: u64,
}

// SAFETY: the memory is accessed through atomics and raw copies only; who makes a view keeps the memory alive and
// gives at most one writer and one reader to it.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Send for RawRing {}

impl RawRing {
    /// Bytes that a ring of `capacity` bytes of data takes.
    pub const fn bytes(capacity: usize) -> usize {
        CONTROL_BYTES + capacity
    }

    /// A view of the ring at `base`.
    ///
    /// # Safety
    /// `base` is aligned to 128 bytes; [`RawRing::bytes`] of `capacity` bytes are mapped for reading and writing as long
    /// as the view is used, were zero when the first view was made, and are accessed by ring ends only.
    /// `capacity` is a power of two.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub unsafe fn new(base: NonNull<u8>, capacity: usize) -> Self {
        debug_assert!(capacity.is_power_of_two() && base.as_ptr().addr().is_multiple_of(128));
        // SAFETY: the data follow the control block within the same mapping.
        let data = unsafe { base.add(CONTROL_BYTES) };
        RawRing { control: base.cast(), data, capacity: capacity as u64 }
    }

    /// Writer: says that the messages which it has offered to be read in its memory are no longer valid.
    pub fn abandon(&self) {
        self.control().abandoned.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Reader: after reading an offered message, whether the writer has said meanwhile that it is no longer valid. If not, everything was
    /// read before the writer could use the memory for anything else.
    pub fn abandoned(&self) -> bool {
        fence(Ordering::SeqCst);
        self.control().abandoned.load(Ordering::SeqCst) != 0
    }

    /// The same ring with its data elsewhere. The control block stays where it is.
    ///
    /// # Safety
    /// As [`RawRing::new`] for `capacity` bytes at `data`, which are a place for data only.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub unsafe fn grown(&self, data: NonNull<u8>, capacity: usize) -> Self {
        debug_assert!(capacity.is_power_of_two() && data.as_ptr().addr().is_multiple_of(128));
        RawRing { control: self.control, data, capacity: capacity as u64 }
    }

    /// Reader: says whether it has mapped the larger ring that it was passed. Writer: resets the answer.
    pub(super) fn say(&self, answer: Answer) {
        self.control().answer.store(answer as u32, Ordering::Release);
    }

    /// Writes any word as the answer.
    #[cfg(all(test, not(miri)))]
    pub(crate) fn say_anything(&self, word: u32) {
        self.control().answer.store(word, Ordering::Release);
    }

    /// Writer: the reader's answer about the larger ring. Every unknown word counts as a refusal.
    pub(super) fn answer(&self) -> Answer {
        match self.control().answer.load(Ordering::Acquire) {
            0 => Answer::None,
            1 => Answer::Taken,
            _ => Answer::Refused,
        }
    }

    #[expect(unsafe_code, reason = "a view of shared memory")]
    #[inline(always)]
    fn control(&self) -> &RingControl {
        // SAFETY: valid by the contract of `new`; all fields are atomics.
        unsafe { self.control.as_ref() }
    }

    /// The addresses of the cache lines of some bytes, as many as are worth prefetching.
    #[inline(always)]
    fn lines(&self, offset: u64, bytes: u64) -> impl Iterator<Item = *const u8> {
        let (data, mask) = (self.data.as_ptr().cast_const(), self.capacity - 1);
        (0..bytes.div_ceil(LINE).min(RING_LINES_SENT))
            .map(move |n| data.wrapping_add(((offset + n * LINE) & mask) as usize))
    }

    /// The address of the line at a position, a multiple of a line, for whoever polls its first word.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    #[inline]
    pub fn address(&self, position: u64) -> NonNull<AtomicU64> {
        debug_assert!(position.is_multiple_of(LINE));
        // SAFETY: within the data, whose length is a power of two; aligned as `word` says.
        unsafe { self.data.add((position & (self.capacity - 1)) as usize).cast() }
    }

    #[expect(unsafe_code, reason = "a view of shared memory")]
    #[inline(always)]
    fn word(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset + 8 <= self.capacity && offset.is_multiple_of(8));
        // SAFETY: within the data by the callers, which mask or check their offsets; aligned, since the data start
        // at a multiple of 128 and offsets are multiples of 8.
        unsafe { self.data.add(offset as usize).cast::<AtomicU64>().as_ref() }
    }
}

// SAFETY: its bytes are within the data.
#[expect(unsafe_code, reason = "memory that another process may write")]
unsafe impl RingMemory for RawRing {
    #[inline(always)]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline(always)]
    fn load(&self, offset: u64, order: Ordering) -> u64 {
        self.word(offset).load(order)
    }

    #[inline(always)]
    fn store(&self, offset: u64, word: u64, order: Ordering) {
        self.word(offset).store(word, order);
    }

    #[inline(always)]
    unsafe fn fill(&self, offset: u64, from: Span) {
        assert!(offset + from.len() as u64 <= self.capacity);
        // SAFETY: within the data as just checked; the reader does not look at it before the frame's first word is
        // stored, and the application's buffer is no part of a ring.
        unsafe { copy_bytes(self.data.as_ptr().add(offset as usize), from.start(), from.len()) }
    }

    #[inline]
    unsafe fn fill_past(&self, offset: u64, from: Span) {
        assert!(offset + from.len() as u64 <= self.capacity);
        // SAFETY: as in `fill`.
        unsafe { copy_past(self.data.as_ptr().add(offset as usize), from.start(), from.len()) }
    }

    #[inline]
    fn fence_streams(&self) {
        fence_streams();
    }

    #[inline(always)]
    fn bytes(&self, offset: u64, length: usize) -> Span {
        // SAFETY: the reader has checked that the frame lies within the data; only read, by raw copies, before the
        // space is released. A hostile writer can change the bytes meanwhile, never their place.
        unsafe { Span::new(self.data.as_ptr().wrapping_add(offset as usize), length) }
    }

    #[inline]
    fn released(&self) -> u64 {
        self.control().released.load(Ordering::Acquire)
    }

    #[inline]
    fn release(&self, position: u64) {
        self.control().released.store(position, Ordering::Release);
    }

    #[inline]
    fn load_window(&self, word: usize, order: Ordering) -> u32 {
        self.control().window[word].load(order)
    }

    #[inline]
    fn store_window(&self, word: usize, value: u32, order: Ordering) {
        self.control().window[word].store(value, order);
    }

    #[inline]
    fn starving(&self) -> bool {
        self.control().starving.load(Ordering::SeqCst) != 0
    }

    #[inline]
    fn starve(&self, starving: bool) {
        self.control().starving.store(starving.into(), Ordering::SeqCst);
    }

    #[inline(always)]
    fn watched(&self) -> bool {
        self.control().watched.load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn watch(&self, watched: bool) {
        self.control().watched.store(watched.into(), Ordering::Relaxed);
    }

    #[inline(always)]
    fn expect_write(&self, offset: u64, bytes: u64) {
        self.lines(offset, bytes).for_each(|line| prefetch(line, For::Write));
    }

    #[inline(always)]
    fn hand_over(&self, offset: u64, bytes: u64) {
        self.lines(offset, bytes).for_each(demote);
    }

    #[inline(always)]
    fn expect_read(&self, offset: u64, bytes: u64) {
        for line in 0..bytes.div_ceil(LINE).min(RING_LINES_READ) {
            // A frame does not wrap, so the mask of `lines` is not needed.
            prefetch(self.data.as_ptr().wrapping_add((offset + line * LINE) as usize), For::Read);
        }
    }
}

impl StagingWords for RawRing {
    #[inline]
    fn load_put(&self, order: Ordering) -> Position {
        self.control().put.load(order)
    }

    #[inline]
    fn store_put(&self, put: Position, order: Ordering) {
        self.control().put.store(put, order);
    }

    #[inline]
    fn load_taken(&self, order: Ordering) -> Position {
        self.control().taken.load(order)
    }

    #[inline]
    fn store_taken(&self, taken: Position, order: Ordering) {
        self.control().taken.store(taken, order);
    }
}

/// Zeroed memory on the heap for rings and inboxes, aligned to 128 bytes and freed with the last clone's owner.
pub struct HeapMemory {
    base: NonNull<u8>,
    layout: std::alloc::Layout,
}

// SAFETY: plain memory, accessed through atomics and raw copies only.
#[expect(unsafe_code, reason = "owns raw memory")]
unsafe impl Send for HeapMemory {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "owns raw memory")]
unsafe impl Sync for HeapMemory {}

impl HeapMemory {
    /// `bytes` zero bytes.
    #[expect(unsafe_code, reason = "owns raw memory")]
    pub fn new(bytes: usize) -> Self {
        let layout =
            std::alloc::Layout::from_size_align(bytes.max(128), 128).expect("ring sizes are bounded by limits");
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) });
        HeapMemory { base: base.unwrap_or_else(|| std::alloc::handle_alloc_error(layout)), layout }
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for HeapMemory {
    #[expect(unsafe_code, reason = "owns raw memory")]
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) }
    }
}
