//! Addresses of bytes that are lent to the engine.

use crate::{Pieces, Stretch};
use smallvec::SmallVec;

/// A run of bytes that somebody lends to the engine: where it starts and how long it is.
///
/// Making one is unsafe; reading or writing through it happens in `transports::copy` alone.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: *mut u8,
    length: usize,
}

/// The bytes of one message, in order; most messages have one run.
pub type Spans = SmallVec<[Span; 1]>;

// SAFETY: a span is an address and a length. Whoever made it promised (`Span::new`) that the bytes may be accessed
// from the thread that owns the engine until the request they were lent to is done.
#[expect(unsafe_code, reason = "a raw address in a column; the promise is made where a span is made")]
unsafe impl Send for Span {}
// SAFETY: as above; a shared `Span` gives no access by itself.
#[expect(unsafe_code, reason = "a raw address in a column; the promise is made where a span is made")]
unsafe impl Sync for Span {}

/// The bytes of one message, apart from the buffer that they are lent from.
#[derive(Clone, Debug)]
pub struct Lent {
    spans: Spans,
    layout: Option<Stretch>,
}

impl Lent {
    /// Those of a buffer; of use as long as it lives.
    pub fn of<P: Pieces + ?Sized>(buffer: &P) -> Self {
        Lent { spans: (0..buffer.pieces()).map(|index| buffer.piece(index)).collect(), layout: buffer.layout() }
    }
}

// SAFETY: an address does not depend on where it is written.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Lent {
    #[inline]
    fn pieces(&self) -> usize {
        self.spans.len()
    }

    #[inline]
    fn piece(&self, index: usize) -> Span {
        self.spans[index]
    }

    #[inline]
    fn total(&self) -> usize {
        match &self.layout {
            None => self.spans.iter().map(Span::len).sum(),
            Some(layout) => layout.len(),
        }
    }

    #[inline]
    fn layout(&self) -> Option<Stretch> {
        self.layout
    }
}

impl Span {
    /// No bytes.
    pub const EMPTY: Span = Span { start: std::ptr::dangling_mut(), length: 0 };

    /// A run of `length` bytes at `start`.
    ///
    /// # Safety
    /// Until the request that the span is given to has completed, the bytes must stay valid for reads, for writes
    /// too if it is a receive, and nobody else may write them, nor read them if it is a receive.
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

    /// How many bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The part from `first` on, at most `most` bytes; empty past the end.
    #[inline]
    pub fn part(&self, first: usize, most: usize) -> Span {
        let first = first.min(self.length);
        Span { start: self.start.wrapping_add(first), length: most.min(self.length - first) }
    }
}
