//! Addresses of memory that is lent to the engine.

use crate::{Pieces, Stretch};
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

/// The addresses of the bytes of one message, separate from the buffer that owns them.
///
/// ```compile_fail,E0133
/// # use tickwire_components::Lent;
/// let lent = Lent::of(&vec![1u8]);
/// ```
#[derive(Clone, Debug)]
pub struct Lent {
    spans: Spans,
    layout: Option<Stretch>,
    type_name: Option<&'static str>,
}

impl Lent {
    /// The addresses of a buffer's bytes.
    ///
    /// # Safety
    /// The buffer outlives the value, and the operation that it is posted for.
    #[expect(unsafe_code, reason = "addresses apart from their buffer")]
    pub unsafe fn of<P: Pieces + ?Sized>(buffer: &P) -> Self {
        let spans = (0..buffer.pieces()).map(|index| buffer.piece(index)).collect();
        Lent { spans, layout: buffer.layout(), type_name: buffer.type_name() }
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

    fn type_name(&self) -> Option<&'static str> {
        self.type_name
    }
}

/// The payload of a frame without a payload.
#[derive(Clone, Copy, Debug)]
pub struct NoBytes;

// SAFETY: there are none.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for NoBytes {
    #[inline(always)]
    fn piece(&self, _index: usize) -> Span {
        Span::EMPTY
    }
}

/// Runs of bytes as the payload of a frame, for the duration of a call.
///
/// ```compile_fail,E0133
/// # use tickwire_components::{Payload, Pieces};
/// let span = vec![1u8].piece(0);
/// let payload = Payload::new(&[span]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a>(&'a [Span]);

impl<'a> Payload<'a> {
    /// The payload that consists of these runs, one after another.
    ///
    /// # Safety
    /// Their bytes are valid for reads as long as the value is used.
    #[expect(unsafe_code, reason = "addresses apart from their buffer")]
    #[inline(always)]
    pub const unsafe fn new(runs: &'a [Span]) -> Self {
        Payload(runs)
    }
}

// SAFETY: a span's address does not depend on where the span is; the caller of `Payload::new` promised that it is valid.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Payload<'_> {
    #[inline]
    fn pieces(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn piece(&self, index: usize) -> Span {
        self.0[index]
    }
}

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

    /// Copies bytes from another run; the shorter of the two lengths counts.
    ///
    /// # Safety
    /// The bytes of both are valid, and they do not overlap.
    #[expect(unsafe_code, reason = "addresses of bytes")]
    pub unsafe fn copy_from(&self, from: &Span) {
        // SAFETY: by this function's contract.
        unsafe { self.start.copy_from_nonoverlapping(from.start, self.length.min(from.length)) }
    }

    /// The part from `first` on, at most `most` bytes; empty past the end.
    #[inline]
    pub fn part(&self, first: usize, most: usize) -> Span {
        let first = first.min(self.length);
        Span { start: self.start.wrapping_add(first), length: most.min(self.length - first) }
    }
}
