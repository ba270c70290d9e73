//! Buffers that are only addresses: whoever makes one promises that the bytes exist.

use crate::{Pieces, Span, Spans, Stretch};

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
