//! What a ring has between frames, for itself: it is never handed on.

use tickwire_components::wire::{KINDS_END, TRANSPORTS_OWN};

/// First bytes of what is a ring's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Mark {
    /// The rest of the ring up to its end is unused.
    Wrap = TRANSPORTS_OWN,
    /// The ring goes on in a larger one, at the same position. The second byte is the binary logarithm of the larger one's bytes.
    Moved,
    /// The receiver of an offer that may be read asks that a part of the message be spliced to it. A frame: bytes 8–15 are the address of
    /// the part, the tag field is the number of its first piece, and the length is that of the part.
    Question,
}

impl Mark {
    /// Whether a first word, not 0, is of one of these, or of no known kind.
    #[inline(always)]
    pub(crate) fn is_in(lead: u64) -> bool {
        (lead as u8).wrapping_sub(1) >= KINDS_END - 1
    }
}
