//! A long message in flight, cut into pieces.

use crate::ofi::registry::Local;
use std::ffi::c_void;
use std::ptr::null_mut;
use tickwire_components::{Row, Span};

/// Bytes of a lead.
pub(super) const LEAD_BYTES: usize = 16;
/// Bytes of a piece. With its lead and the provider's headers it fills 16 whole segments of loopback TCP. Half as many segments take a
/// fifth longer for 1 MiB; one byte more, which needs a further segment, takes two thirds longer.
pub(super) const PIECE_BYTES: usize = 16 * SEGMENT - 2 * LEAD_BYTES;
const SEGMENT: usize = 65_483;
/// The least bytes of a message, and of the last piece of a longer one. `net` keeps a short message in a buffer if its socket has no room
/// for it, reports it as complete, and sends it with the next poll, which may never happen. See `KEPT_BYTES` in the parent.
pub(super) const LAST_MIN: usize = SEGMENT;

/// A message in flight.
pub(super) struct Moving {
    pub(super) row: Row,
    /// Its place in the order of messages.
    pub(super) number: u32,
    pub(super) place: Span,
    /// Bytes posted to the provider, and bytes that it has completed.
    pub(super) given: usize,
    pub(super) done: usize,
    /// Pieces posted to the provider.
    pub(super) pieces: u32,
    /// The memory region of the buffer, if one is needed.
    pub(super) region: Option<Local>,
}

/// A piece that the provider has.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) row: Row,
    pub(super) bytes: usize,
    pub(super) lead: Lead,
}

/// The lead of a piece, which identifies it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lead {
    pub(super) token: u64,
    pub(super) number: u32,
    pub(super) piece: u32,
}

impl Lead {
    pub(super) fn write(self, place: Span) {
        debug_assert!(place.len() == LEAD_BYTES);
        let words = [self.token, u64::from(self.number) | u64::from(self.piece) << 32];
        // SAFETY: an own place of so many bytes, which no operation uses.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        unsafe {
            place.start().cast::<[u64; 2]>().write_unaligned(words);
        }
    }

    pub(super) fn read(place: Span) -> Self {
        debug_assert!(place.len() == LEAD_BYTES);
        // SAFETY: an own place of so many bytes, which the provider has finished writing.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        let [token, numbers] = unsafe { place.start().cast::<[u64; 2]>().read_unaligned() };
        Lead { token, number: numbers as u32, piece: (numbers >> 32) as u32 }
    }
}

impl Moving {
    pub(super) fn new(row: Row, number: u32, place: Span, region: Option<Local>) -> Self {
        Moving { row, number, place, given: 0, done: 0, pieces: 0, region }
    }

    /// The descriptors of a lead and of the buffer.
    pub(super) fn descriptors(&self, lead: *mut c_void) -> [*mut c_void; 2] {
        [lead, self.region.as_ref().map_or(null_mut(), Local::descriptor)]
    }

    pub(super) fn is_given(&self) -> bool {
        self.given == self.place.len()
    }

    /// The next piece, where it is, and what it shows: on both sides the same.
    pub(super) fn next(&self, token: u64) -> (Span, Piece) {
        let left = self.place.len() - self.given;
        let short = left > PIECE_BYTES && left < PIECE_BYTES + LAST_MIN;
        let place = self.place.part(self.given, if short { PIECE_BYTES - SEGMENT } else { PIECE_BYTES });
        let lead = Lead { token, number: self.number, piece: self.pieces };
        (place, Piece { row: self.row, bytes: place.len(), lead })
    }

    /// The provider has taken it.
    pub(super) fn give(&mut self, piece: &Piece) {
        self.given += piece.bytes;
        self.pieces += 1;
    }
}
