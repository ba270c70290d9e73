//! Runs of bytes: from a test's buffers, and back.

use tickwire_components::{Pieces, Span};

/// The bytes of a run.
#[expect(unsafe_code, reason = "the bytes of a frame that is being sent")]
pub(super) fn bytes(span: &Span) -> &[u8] {
    // SAFETY: whoever made the span promised it until the request is done, which it is not while its frame is sent.
    unsafe { std::slice::from_raw_parts(span.start(), span.len()) }
}

/// A run over bytes that the caller keeps.
#[expect(unsafe_code, reason = "spans over storage that a test world or wire keeps")]
pub(super) fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: the storage is on the heap and kept until the payloads are released or the world ends.
    unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
}

/// The runs of one operation's buffer.
pub(super) struct Spans(pub(super) Vec<Span>);

// SAFETY: a span's address does not depend on where the span is.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Spans {
    fn pieces(&self) -> usize {
        self.0.len()
    }

    fn piece(&self, index: usize) -> Span {
        self.0[index]
    }
}
