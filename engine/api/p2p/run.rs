//! A buffer that is one run of bytes, as most are.

use tickwire_components::{Pieces, Span};

/// One run of bytes, while the caller keeps the buffer that it belongs to. A plain span is not a buffer: anybody can copy a span, and post
/// it after the buffer is gone.
pub(super) struct Run(pub(super) Span);

// SAFETY: whoever makes one keeps the buffer, whose address does not depend on where this is.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Run {
    #[inline(always)]
    fn piece(&self, _index: usize) -> Span {
        self.0
    }
}

/// The bytes of a buffer, if it is one run. Most buffers are.
#[inline(always)]
pub(super) fn only_run(buffer: &impl Pieces) -> Option<Span> {
    (buffer.pieces() == 1).then(|| buffer.piece(0))
}
