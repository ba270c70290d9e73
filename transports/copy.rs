//! The one place where bytes of messages are moved, but for those that a datatype scatters ([`tickwire_components::Stretch`]).

use tickwire_components::{Pieces, Span};

/// Bytes of a block that longer runs are copied by.
///
/// glibc copies more than 2112 bytes by `rep movsb` on AMD's processors. Zen 4 does that with a half to a tenth of the speed
/// where source and target start at nearly the same place of their pages, as a payload behind a header does.
const BLOCK_BYTES: usize = 2048;
/// Longest run that is copied so: longer ones do not fit into the nearest caches, and suffer less than blocks cost.
const BLOCKS_BYTES_MAX: usize = 256 << 10;

/// Copies as much of `from` as `to` takes; returns how much that was, bytes.
///
/// Short copies go by overlapping loads and stores without a call: small messages are most messages.
#[expect(unsafe_code, reason = "spans are addresses; their makers promised that they are valid")]
#[inline]
pub fn copy(to: Span, from: Span) -> usize {
    let length = to.len().min(from.len());
    // SAFETY: both spans are valid for `length` bytes by the promise of `Span::new`.
    unsafe { copy_bytes(to.start(), from.start(), length) };
    length
}

/// As [`copy`], for what is probably long.
#[inline]
pub fn copy_long(to: Span, from: Span) -> usize {
    let length = to.len().min(from.len());
    if length <= BLOCK_BYTES || length > BLOCKS_BYTES_MAX { copy(to, from) } else { copy_blocks(to, from, length) }
}

/// Copies so many bytes, more than a block.
#[expect(unsafe_code, reason = "spans are addresses; their makers promised that they are valid")]
#[inline(never)]
fn copy_blocks(to: Span, from: Span, length: usize) -> usize {
    debug_assert!(length <= to.len() && length <= from.len());
    let (to, from) = (to.start(), from.start().cast_const());
    // SAFETY: both spans are valid for `length` bytes by the promise of `Span::new`.
    unsafe {
        // Where the target starts within the source, a block would write over those behind it.
        if (to as usize).wrapping_sub(from as usize) < length {
            to.copy_from(from, length);
            return length;
        }
        let mut at = 0;
        while length - at > BLOCK_BYTES {
            copy_block(to.add(at), from.add(at), BLOCK_BYTES);
            at += BLOCK_BYTES;
        }
        copy_block(to.add(at), from.add(at), length - at);
    }
    length
}

/// One block. A function of its own, or the compiler would make one copy of all again.
///
/// # Safety
/// As [`copy_bytes`].
#[expect(unsafe_code, reason = "raw copies")]
#[inline(never)]
unsafe fn copy_block(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: by this function's contract.
    unsafe { to.copy_from(from, length) }
}

/// The first word of a run, as its bytes are now; `None` if it is shorter.
#[expect(unsafe_code, reason = "spans are addresses; their makers promised that they are valid")]
pub fn word(from: Span) -> Option<u64> {
    let mut bytes = [0; 8];
    // SAFETY: local bytes, used in this function only.
    let to = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
    (copy(to, from) == bytes.len()).then(|| u64::from_ne_bytes(bytes))
}

/// A copy of all bytes of a buffer, one after another.
#[expect(unsafe_code, reason = "spans are addresses; their makers promised that they are valid")]
pub fn gather<P: Pieces + ?Sized>(pieces: &P) -> Box<[u8]> {
    let mut bytes = vec![0; pieces.total()].into_boxed_slice();
    // SAFETY: the new bytes, used in this function only.
    let mut rest = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
    if let Some(layout) = pieces.layout() {
        layout.pack(rest);
    }
    for index in 0..pieces.pieces() {
        rest = rest.part(copy(rest, pieces.piece(index)), usize::MAX);
    }
    bytes
}

/// Copies `length` bytes. The places may overlap: what a proc sends to itself goes from one buffer of the application to
/// another one, and two borrowed as cells may share bytes.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `length` bytes.
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
pub(crate) unsafe fn copy_bytes(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: every access is within `length` bytes of either pointer.
    unsafe {
        match length {
            0 => {}
            8 => move_words::<u64, 1>(to, from, [0]),
            1..=3 => move_words::<u8, 3>(to, from, [0, length / 2, length - 1]),
            4..=7 => move_words::<u32, 2>(to, from, [0, length - 4]),
            9..=16 => move_words::<u64, 2>(to, from, [0, length - 8]),
            17..=32 => move_words::<u128, 2>(to, from, [0, length - 16]),
            33..=64 => move_words::<u128, 4>(to, from, [0, 16, length - 32, length - 16]),
            _ => to.copy_from(from, length),
        }
    }
}

/// Copies the words at these offsets, all of which are read before the first one is written.
///
/// # Safety
/// `offset + size_of::<T>()` bytes are valid at both pointers, for each of the offsets.
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
unsafe fn move_words<T: Copy, const N: usize>(to: *mut u8, from: *const u8, offsets: [usize; N]) {
    // SAFETY: by this function's contract; unaligned accesses are declared so.
    unsafe {
        let words = offsets.map(|offset| from.add(offset).cast::<T>().read_unaligned());
        for (offset, word) in offsets.into_iter().zip(words) {
            to.add(offset).cast::<T>().write_unaligned(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_gathered_in_order() {
        assert_eq!(gather(&vec![vec![1u8, 2], vec![], vec![3]])[..], [1, 2, 3]);
    }

    #[test]
    #[expect(unsafe_code, reason = "spans over local buffers")]
    fn every_length_is_copied_whole_and_no_further() {
        // An interpreter takes long for the longest ones.
        let longest = if cfg!(miri) { 9000 } else { BLOCKS_BYTES_MAX + 1 };
        for length in (0..400).chain([1024, 2048, 2049, 4096, 4097, longest]) {
            let mut from: Vec<u8> = (0..length).map(|i| (i * 7 + 1) as u8).collect();
            let mut to = vec![0xEEu8; length + 9];
            // SAFETY: both vectors outlive the copy.
            let (source, target) =
                unsafe { (Span::new(from.as_mut_ptr(), length), Span::new(to.as_mut_ptr(), length + 1)) };
            for copy in [copy, copy_long] {
                to.fill(0xEE);
                assert_eq!(copy(target, source), length);
                assert_eq!(to[..length], from[..]);
                assert!(to[length..].iter().all(|&b| b == 0xEE));
            }
        }
    }

    #[test]
    #[expect(unsafe_code, reason = "spans over local buffers")]
    fn places_may_overlap_in_either_direction() {
        let short = (0..80).chain([200, 300]).flat_map(|length| [(length, 0, 5), (length, 5, 0), (length, 3, 3)]);
        let long = [(2049, 0, 5), (5000, 5, 0), (5000, 0, 2050), (5000, 2050, 0)];
        for (length, from, to) in short.chain(long) {
            for copy in [copy, copy_long] {
                let mut bytes: Vec<u8> = (0..length + from.max(to)).map(|i| (i * 7 + 1) as u8).collect();
                let mut expected = bytes.clone();
                expected.copy_within(from..from + length, to);
                let start = bytes.as_mut_ptr();
                // SAFETY: both are within the vector, which outlives the copy.
                let [from, to] = [from, to].map(|at| unsafe { Span::new(start.add(at), length) });
                assert_eq!(copy(to, from), length);
                assert_eq!(bytes, expected, "{length} B");
            }
        }
    }
}
