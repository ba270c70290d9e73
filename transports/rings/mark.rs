//! Marks: entries between frames that a ring uses for itself. They are never handed to the engine.

use tickwire_components::wire::{KINDS_END, TRANSPORTS_OWN};

/// The first byte of each mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Mark {
    /// The rest of the ring up to its end is unused.
    Wrap = TRANSPORTS_OWN,
    /// The ring goes on in a larger one, at the same position. The second byte is the binary logarithm of the larger one's bytes.
    Moved,
    /// The receiver of an offer that may be read asks that a part of the message be staged to it. A frame: bytes 8–15 are the address of
    /// the part, the tag field is the position of its first byte in the staging buffer, and the length is that of the part.
    Question,
}

impl Mark {
    /// Whether the first word of an entry, which is not 0, belongs to a mark or to an unknown kind.
    #[inline(always)]
    pub(crate) fn is_in(lead: u64) -> bool {
        (lead as u8).wrapping_sub(1) >= KINDS_END - 1
    }
}
