//! One run of bytes, as most buffers are.

use tickwire_components::{Pieces, Span};

/// One run of bytes, while the buffer that it belongs to stays with the caller. Spans themselves are no buffers: anybody can
/// copy one, and post it after the buffer is gone.
pub(super) struct Run(pub(super) Span);

// SAFETY: whoever makes one keeps the buffer, whose address does not depend on where this is.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Run {
    #[inline(always)]
    fn piece(&self, _index: usize) -> Span {
        self.0
    }
}

/// The bytes of a buffer that is one run, as most are.
#[inline(always)]
pub(super) fn only_run(buffer: &impl Pieces) -> Option<Span> {
    (buffer.pieces() == 1).then(|| buffer.piece(0))
}
