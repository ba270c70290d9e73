//! A ring: memory that a peer writes short frames into. The peer also writes there how many frames this process may write into the peer's
//! ring.
//!
//! | bytes | what the peer writes |
//! |---|---|
//! | 0–31 | the *window*: a counter, frames that may be outstanding, the number of the last frame that was taken, the counter again |
//! | 64– | slots of [`SLOT_BYTES`]: the number of the frame, from 1 on; its bytes; the frame, filled up to 8 bytes; a check of all that |
//!
//! A remote write may be seen in any state: not at all, in part, or complete. So a value stands before and behind the data. A window whose
//! counters differ is read again. A frame has arrived once its number is the expected one and its checksum is right; until then it is read
//! again with each poll. The checksum covers all words, since a fabric need not write bytes in order.
//!
//! Every word may be hostile, and may change while it is read. So a frame is first copied out and then checked.

use super::slab::Slab;
use std::sync::atomic::{AtomicU64, Ordering};
use tickwire_components::Span;

/// Slots of a ring, which is also the most frames outstanding.
pub(super) const SLOTS: u64 = 64;
/// Bytes of a slot.
const SLOT_BYTES: usize = 256;
const WORD: usize = size_of::<u64>();
/// Words of a slot before the frame.
const HEAD: usize = 2;
/// Bytes of a slot before the frame.
pub(super) const HEAD_BYTES: usize = HEAD * WORD;
/// The most bytes of a frame.
pub(super) const FRAME_MAX: usize = SLOT_BYTES - HEAD_BYTES - WORD;
/// Words of a window.
const WINDOW: usize = 4;
pub(super) const WINDOW_BYTES: usize = WINDOW * WORD;
/// Where the slots begin.
const SLOTS_AT: usize = 64;
/// Bytes of a ring.
pub(super) const RING_BYTES: usize = SLOTS_AT + SLOTS as usize * SLOT_BYTES;

/// The memory of a ring.
pub(super) struct RingMemory(Slab);

/// The offset in a ring of the frame with this number.
pub(super) fn slot_at(number: u64) -> usize {
    SLOTS_AT + ((number.wrapping_sub(1)) % SLOTS) as usize * SLOT_BYTES
}

/// The checksum that stands behind a frame.
fn check(number: u64, length: usize, words: &[u64]) -> u64 {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    words.iter().fold(mix(number, length as u64), |sum, &word| mix(sum, word))
}

/// Adds the rest of a slot to a frame that stands [`HEAD_BYTES`] behind the start of `place`: number and length before it, the checksum
/// behind it. Returns the bytes of the whole slot.
pub(super) fn enclose(place: Span, number: u64, length: usize) -> Span {
    assert!(length <= FRAME_MAX && place.len() >= SLOT_BYTES, "a frame that fits into a slot");
    let words = length.div_ceil(WORD);
    let mut frame = [0u64; FRAME_MAX / WORD];
    // SAFETY: an own place of so many bytes.
    #[expect(unsafe_code, reason = "memory that a provider is given")]
    unsafe {
        let start = place.start();
        start.add(HEAD_BYTES + length).write_bytes(0, words * WORD - length);
        frame.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(start.add(HEAD_BYTES), words * WORD);
        start.cast::<[u64; HEAD]>().write_unaligned([number, length as u64]);
        let behind = start.add(HEAD_BYTES + words * WORD);
        behind.cast::<u64>().write_unaligned(check(number, length, &frame[..words]));
    }
    place.part(0, HEAD_BYTES + (words + 1) * WORD)
}

/// Writes a window to `place`. Returns its bytes.
pub(super) fn write_window(place: Span, counter: u64, taken: u64) -> Span {
    assert!(place.len() >= WINDOW_BYTES, "room for a window");
    // SAFETY: an own place of so many bytes.
    #[expect(unsafe_code, reason = "memory that a provider is given")]
    unsafe {
        place.start().cast::<[u64; WINDOW]>().write_unaligned([counter, SLOTS, taken, counter]);
    }
    place.part(0, WINDOW_BYTES)
}

impl RingMemory {
    /// An empty one.
    pub(super) fn new() -> Self {
        RingMemory(Slab::new(1, RING_BYTES))
    }

    /// All of it, for the peer.
    pub(super) fn whole(&self) -> Span {
        self.0.whole()
    }

    /// A word that the peer may be writing.
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(WORD) && at + WORD <= RING_BYTES, "a word of the ring");
        // SAFETY: within the slab, which is aligned to pages, and whose bytes are read by this alone.
        #[expect(unsafe_code, reason = "memory that a peer writes")]
        unsafe {
            AtomicU64::from_ptr(self.0.whole().start().add(at).cast())
        }
    }

    /// The number up to which this process may write frames, after it has written `written`. `None` if the peer is writing the window right
    /// now, or the window is impossible.
    pub(super) fn limit(&self, written: u64) -> Option<u64> {
        let [first, window, taken, last] = [0, 1, 2, 3].map(|at| self.word(at * WORD).load(Ordering::Acquire));
        // A peer cannot have taken more frames than were written.
        (first == last && window <= SLOTS && taken <= written).then(|| taken + window)
    }

    /// Copies the frame with this number to `into`, which has at least [`FRAME_MAX`] bytes. Returns its length; `None` if the frame has not
    /// arrived completely.
    pub(super) fn take(&self, number: u64, into: Span) -> Option<usize> {
        let at = slot_at(number);
        if self.word(at).load(Ordering::Acquire) != number {
            return None;
        }
        let length = self.word(at + WORD).load(Ordering::Relaxed) as usize;
        if length > FRAME_MAX || into.len() < FRAME_MAX {
            return None;
        }
        let (words, mut frame) = (length.div_ceil(WORD), [0u64; FRAME_MAX / WORD]);
        for (index, word) in frame[..words].iter_mut().enumerate() {
            *word = self.word(at + HEAD_BYTES + index * WORD).load(Ordering::Relaxed);
        }
        let behind = self.word(at + HEAD_BYTES + words * WORD).load(Ordering::Acquire);
        if behind != check(number, length, &frame[..words]) {
            return None;
        }
        // SAFETY: an own place of so many bytes.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        unsafe {
            into.start().copy_from_nonoverlapping(frame.as_ptr().cast(), length);
        }
        Some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot's bytes with a frame.
    fn slot(number: u64, frame: &[u8]) -> Vec<u8> {
        let place = Slab::new(1, SLOT_BYTES);
        let whole = place.place(0);
        // SAFETY: places of so many bytes.
        #[expect(unsafe_code, reason = "bytes of a test")]
        unsafe {
            whole.start().add(HEAD_BYTES).copy_from_nonoverlapping(frame.as_ptr(), frame.len());
            let all = enclose(whole, number, frame.len());
            std::slice::from_raw_parts(all.start(), all.len()).to_vec()
        }
    }

    impl RingMemory {
        #[expect(unsafe_code, reason = "bytes of a test")]
        fn write(&self, at: usize, bytes: &[u8]) {
            assert!(at + bytes.len() <= RING_BYTES);
            // SAFETY: within the slab.
            unsafe { self.whole().start().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }

        fn taken(&self, number: u64) -> Option<Vec<u8>> {
            let place = Slab::new(1, SLOT_BYTES);
            let length = self.take(number, place.place(0))?;
            // SAFETY: so many bytes were written.
            #[expect(unsafe_code, reason = "bytes of a test")]
            Some(unsafe { std::slice::from_raw_parts(place.place(0).start(), length).to_vec() })
        }
    }

    #[test]
    fn a_frame_is_there_once_all_of_it_is_whatever_was_there_before() {
        let ring = RingMemory::new();
        for round in 0..3 {
            for length in [0, 1, 7, 8, 9, 100, FRAME_MAX] {
                let number = 5 + round * SLOTS;
                let frame: Vec<u8> = (0..length).map(|at| (at as u64 * 7 + round) as u8 | 1).collect();
                let bytes = slot(number, &frame);
                // In any order of its words, and none of its bytes may be missing.
                for order in [false, true] {
                    ring.write(slot_at(number), &[0; SLOT_BYTES]);
                    ring.write(slot_at(number), &slot(number.wrapping_sub(SLOTS), &[9; FRAME_MAX]));
                    let mut places: Vec<usize> = (0..bytes.len()).step_by(WORD).collect();
                    if order {
                        places.reverse();
                    }
                    let last = places.pop();
                    places.iter().for_each(|&at| ring.write(slot_at(number) + at, &bytes[at..at + WORD]));
                    assert_eq!(ring.taken(number), None, "{length}");
                    last.into_iter().for_each(|at| ring.write(slot_at(number) + at, &bytes[at..at + WORD]));
                    assert_eq!(ring.taken(number).as_deref(), Some(&frame[..]), "{length}");
                }
                assert_eq!(ring.taken(number + SLOTS), None);
                assert_eq!(ring.taken(number + 1), None);
            }
        }
    }

    #[test]
    fn a_window_is_read_when_it_is_whole_and_grants_no_more_than_a_ring() {
        let ring = RingMemory::new();
        assert_eq!(ring.limit(0), Some(0), "nothing before it was written");
        let window = |words: [u64; WINDOW]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            ring.write(0, &bytes);
        };
        for (words, written, limit) in [
            ([1, SLOTS, 0, 1], 0, Some(SLOTS)),
            ([2, SLOTS, 10, 2], 10, Some(SLOTS + 10)),
            ([2, SLOTS, 10, 3], 10, None),
            ([4, SLOTS, 11, 4], 10, None),
            ([5, SLOTS + 1, 3, 5], 10, None),
            ([u64::MAX; WINDOW], 10, None),
        ] {
            window(words);
            assert_eq!(ring.limit(written), limit, "{words:?}");
        }
    }

    #[test]
    fn bytes_of_any_content_are_no_frame_and_harm_nothing() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 20
        };
        for _ in 0..2000 {
            let ring = RingMemory::new();
            let number = 1 + random() % 1000;
            for _ in 0..random() % 40 {
                let bytes: Vec<u8> = (0..1 + random() % 300).map(|_| random() as u8).collect();
                ring.write(random() as usize % (RING_BYTES - 300), &bytes);
            }
            let length = if random().is_multiple_of(2) { random() % 300 } else { random() << 30 };
            ring.write(slot_at(number), &number.to_ne_bytes());
            ring.write(slot_at(number) + WORD, &length.to_ne_bytes());
            assert_eq!(ring.taken(number), None);
            assert!(ring.limit(number).is_none_or(|limit| limit <= number + SLOTS));
        }
    }
}
