//! The room for messages in buffered mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tickwire_components::limits::BUFFERED_OVERHEAD;
use tickwire_components::{Pieces, Span};

/// The room attached for sends in buffered mode (`MPI_Buffer_attach`), bytes.
#[derive(Default)]
pub(crate) struct Attached {
    pub(crate) bytes: usize,
    pub(crate) used: Arc<AtomicUsize>,
}

/// The engine's own copy of a message in buffered mode. Dropping it frees its room.
pub(crate) struct Copied {
    pub(crate) bytes: Box<[u8]>,
    /// The type name of the original message.
    pub(crate) type_name: Option<&'static str>,
    pub(crate) used: Arc<AtomicUsize>,
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes.len() + BUFFERED_OVERHEAD, Ordering::Relaxed);
    }
}

// SAFETY: the bytes are on the heap, so moving the value does not move them.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Copied {
    fn piece(&self, index: usize) -> Span {
        self.bytes.piece(index)
    }

    fn type_name(&self) -> Option<&'static str> {
        self.type_name
    }
}
