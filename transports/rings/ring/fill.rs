//! Writes long payloads, and those of several runs, into a ring.

use super::access::{BESIDE_HEADER, RingMemory};
use tickwire_components::limits::RING_PACKED_BYTES;
use tickwire_components::{Pieces, Span};

/// Writes a long payload past the caches, except for the part in the cache line of its header.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[inline(never)]
pub(super) fn fill_past<M: RingMemory, P: Pieces + ?Sized>(memory: &M, at: u64, payload: u64, pieces: &P) {
    let beside = BESIDE_HEADER as usize;
    // SAFETY: a buffer that is borrowed, local bytes, and place in the ring that was found free.
    unsafe {
        if let Some(layout) = pieces.layout() {
            let mut packed = [0; RING_PACKED_BYTES];
            let mut done = beside;
            while done < payload as usize {
                let place = Span::new(packed.as_mut_ptr(), RING_PACKED_BYTES.min(payload as usize - done));
                layout.part(done, place.len()).pack(place);
                memory.fill_past(at + done as u64, place);
                done += place.len();
            }
            layout.part(0, beside).pack(memory.bytes(at, beside));
        } else if pieces.pieces() == 1 {
            let run = pieces.piece(0);
            memory.fill_past(at + BESIDE_HEADER, run.part(beside, usize::MAX));
            memory.fill(at, run.part(0, beside));
        } else {
            fill_runs(memory, at, payload, pieces);
        }
    }
    memory.fence_streams();
}

/// Writes a payload that is not one run.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[inline(never)]
pub(super) fn fill_runs<M: RingMemory, P: Pieces + ?Sized>(memory: &M, mut at: u64, payload: u64, pieces: &P) {
    // SAFETY: a buffer that is borrowed, and place in the ring that was found free.
    unsafe {
        if let Some(layout) = pieces.layout() {
            layout.pack(memory.bytes(at, payload as usize));
        }
        for index in 0..pieces.pieces() {
            let span = pieces.piece(index);
            memory.fill(at, span);
            at += span.len() as u64;
        }
    }
}
