//! Addresses of memory that is lent to the engine.

use smallvec::SmallVec;

/// A contiguous run of bytes that is lent to the engine: its address and its length.
///
/// It holds only an address and a length. So the functions that use the bytes are unsafe: their caller promises that the bytes exist.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: *mut u8,
    length: usize,
}

/// The runs of one message, in order. Most messages have one run.
pub type Spans = SmallVec<[Span; 1]>;

// SAFETY: a span is an address and a length. Whoever made it promised (`Span::new`) that the bytes may be accessed
// from the thread that owns the engine until the request they were lent to is done.
#[expect(unsafe_code, reason = "a raw address in a column; the promise is made where a span is made")]
unsafe impl Send for Span {}
// SAFETY: as above; a shared `Span` gives no access by itself.
#[expect(unsafe_code, reason = "a raw address in a column; the promise is made where a span is made")]
unsafe impl Sync for Span {}

impl Span {
    /// No bytes.
    pub const EMPTY: Span = Span { start: std::ptr::dangling_mut(), length: 0 };

    /// A run of `length` bytes at `start`.
    ///
    /// # Safety
    /// Until the request that the span is given to has completed, the bytes must stay valid for reads, and for a receive also for
    /// writes. Nobody else may write them, and for a receive nobody else may read them.
    #[expect(unsafe_code, reason = "the caller lends memory")]
    #[inline]
    pub const unsafe fn new(start: *mut u8, length: usize) -> Self {
        Span { start, length }
    }

    /// The first byte.
    #[inline]
    pub const fn start(&self) -> *mut u8 {
        self.start
    }

    /// Number of bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies bytes from another run, which may overlap with this one; the shorter of the two lengths counts.
    ///
    /// # Safety
    /// The bytes of both are valid.
    #[expect(unsafe_code, reason = "addresses of bytes")]
    pub unsafe fn copy_from(&self, from: &Span) {
        // SAFETY: by this function's contract.
        unsafe { self.start.copy_from(from.start, self.length.min(from.length)) }
    }

    /// The part from `first` on, at most `most` bytes; empty past the end.
    #[inline]
    pub fn part(&self, first: usize, most: usize) -> Span {
        let first = first.min(self.length);
        Span { start: self.start.wrapping_add(first), length: most.min(self.length - first) }
    }
}
