//! The one place where bytes of messages are copied, except for those that a datatype scatters ([`tickwire_components::Stretch`]).

#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::hints::{For, prefetch};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use tickwire_components::limits::CACHE_LINE;
use tickwire_components::{Pieces, Span};

/// Runs longer than this, in bytes, are copied by the loop below.
///
/// glibc copies more than 2112 bytes by `rep movsb` on AMD's processors. Zen 4 does that with a half to a tenth of the speed
/// where source and target start at nearly the same place of their pages, as a payload behind a header does. Its loop for
/// shorter ones takes twice as long as this one for what comes out of memory.
const LOOP_MIN: usize = 2048;
/// How far ahead a line is prefetched, in bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AHEAD: usize = 1024;
/// Longest run that is copied by words of 32 bytes: of what is in the nearest cache a third more goes in the same time. What comes from
/// another processor that is far, as longer runs do, takes a tenth longer so. Of what this processor has written itself, longer runs
/// gain an eighth, too ([`copy_own`]).
const WIDE_MAX: usize = 8 << 10;
/// The longest run that the loop copies, in bytes. Longer ones do not fit into the nearest caches, where `rep movsb` is less slow than the
/// loop.
const LOOP_MAX: usize = 256 << 10;

/// Copies as much of `from` as fits into `to`. Returns how many bytes that was.
///
/// Short copies use overlapping loads and stores without a call, since most messages are small.
///
/// ```compile_fail,E0133
/// # use tickwire_components::Pieces;
/// # use tickwire_transports::copy::copy;
/// let (to, from) = (vec![0u8; 8].piece(0), vec![1u8; 8].piece(0));
/// copy(to, from);
/// ```
///
/// # Safety
/// `to` is valid for writes and `from` for reads, as far as bytes are copied.
#[expect(unsafe_code, reason = "raw copies")]
#[inline]
pub unsafe fn copy(to: Span, from: Span) -> usize {
    let length = to.len().min(from.len());
    // SAFETY: by this function's contract.
    unsafe { copy_bytes(to.start(), from.start(), length) };
    length
}

/// As [`copy`], for what may be long.
///
/// # Safety
/// As [`copy`].
#[expect(unsafe_code, reason = "raw copies")]
#[inline]
pub unsafe fn copy_long(to: Span, from: Span) -> usize {
    let length = to.len().min(from.len());
    // SAFETY: by this function's contract.
    unsafe { copy_run::<WIDE_MAX>(to.start(), from.start(), length) };
    length
}

/// As [`copy_long`], for bytes that this processor has written itself.
///
/// # Safety
/// As [`copy`].
#[expect(unsafe_code, reason = "raw copies")]
#[inline]
pub unsafe fn copy_own(to: Span, from: Span) -> usize {
    let length = to.len().min(from.len());
    // SAFETY: by this function's contract.
    unsafe { copy_run::<{ usize::MAX }>(to.start(), from.start(), length) };
    length
}

/// Copies all of `from`, which may be long. One or two words are moved without a call, since many messages are no longer.
///
/// # Safety
/// As [`copy`], and `to` is no shorter than `from`.
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
pub unsafe fn copy_whole(to: Span, from: Span) {
    debug_assert!(to.len() >= from.len());
    let (to, from, length) = (to.start(), from.start(), from.len());
    // SAFETY: by this function's contract.
    unsafe {
        match length {
            8..=16 => move_words::<u64, 2>(to, from, [0, length - 8]),
            _ => copy_run::<WIDE_MAX>(to, from, length),
        }
    }
}

/// Copies `length` bytes; runs of up to `WIDE` bytes by words of 32 bytes.
///
/// # Safety
/// As [`copy_bytes`].
#[expect(unsafe_code, reason = "raw copies")]
#[inline(never)]
unsafe fn copy_run<const WIDE: usize>(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        if length <= LOOP_MIN || length > LOOP_MAX {
            copy_bytes(to, from, length);
        } else {
            copy_by_lines::<WIDE>(to, from, length);
        }
    }
}

/// Copies `length` bytes line by line.
///
/// # Safety
/// As [`copy_bytes`].
#[expect(unsafe_code, reason = "raw copies")]
#[inline(never)]
unsafe fn copy_by_lines<const WIDE: usize>(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        // If the target starts within the source, a line would overwrite one that is still to be read.
        if (to as usize).wrapping_sub(from as usize) < length {
            return to.copy_from(from, length);
        }
        let lines = copy_lines::<WIDE>(to, from, length);
        copy_bytes(to.add(lines), from.add(lines), length - lines);
    }
}

/// Copies all whole lines, forward. Returns how many bytes that was.
///
/// # Safety
/// As [`copy_bytes`], and the target does not start within the source.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
unsafe fn copy_lines<const WIDE: usize>(to: *mut u8, from: *const u8, length: usize) -> usize {
    // SAFETY: by the same contract, and the processor has what the wide loop takes.
    unsafe {
        match length <= WIDE && std::arch::is_x86_feature_detected!("avx") {
            true => copy_lines_wide(to, from, length),
            false => copy_lines_by::<std::arch::x86_64::__m128i>(to, from, length),
        }
    }
}

/// [`copy_lines`] by words of 32 bytes: a processor stores one word per cycle, whatever its length.
///
/// # Safety
/// As [`copy_lines`], and the processor has AVX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(unsafe_code, reason = "raw copies")]
#[target_feature(enable = "avx")]
unsafe fn copy_lines_wide(to: *mut u8, from: *const u8, length: usize) -> usize {
    // SAFETY: by the same contract.
    unsafe { copy_lines_by::<std::arch::x86_64::__m256i>(to, from, length) }
}

/// [`copy_lines`] by words of a type that a register holds.
///
/// # Safety
/// As [`copy_lines`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
unsafe fn copy_lines_by<W: Copy>(to: *mut u8, from: *const u8, length: usize) -> usize {
    let mut at = 0;
    // SAFETY: every access is within `length` bytes of either pointer.
    unsafe {
        while length - at >= CACHE_LINE {
            prefetch(from.wrapping_add(at + AHEAD), For::Read);
            let (target, source) = (to.add(at).cast::<W>(), from.add(at).cast::<W>());
            for word in 0..CACHE_LINE / size_of::<W>() {
                target.add(word).write_unaligned(source.add(word).read_unaligned());
            }
            at += CACHE_LINE;
        }
    }
    at
}

/// As above.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[expect(unsafe_code, reason = "raw copies")]
unsafe fn copy_lines<const WIDE: usize>(to: *mut u8, from: *const u8, length: usize) -> usize {
    // SAFETY: by this function's contract.
    unsafe { to.copy_from(from, length) }
    length
}

/// The first word of a run, as its bytes are now; `None` if the run is shorter.
///
/// # Safety
/// The run is valid for reads.
#[expect(unsafe_code, reason = "raw copies")]
pub unsafe fn word(from: Span) -> Option<u64> {
    let mut bytes = [0; 8];
    // SAFETY: local bytes, used in this function only; the run by this function's contract.
    let copied = unsafe { copy(Span::new(bytes.as_mut_ptr(), bytes.len()), from) };
    (copied == bytes.len()).then(|| u64::from_ne_bytes(bytes))
}

/// A copy of all bytes of a buffer, one after another.
#[expect(unsafe_code, reason = "raw copies")]
pub fn gather<P: Pieces + ?Sized>(pieces: &P) -> Box<[u8]> {
    let mut bytes = vec![0; pieces.total()].into_boxed_slice();
    // SAFETY: the new bytes, used in this function only; a buffer's are valid while it is borrowed.
    unsafe {
        let mut rest = Span::new(bytes.as_mut_ptr(), bytes.len());
        if let Some(layout) = pieces.layout() {
            layout.pack(rest);
        }
        for index in 0..pieces.pieces() {
            rest = rest.part(copy(rest, pieces.piece(index)), usize::MAX);
        }
    }
    bytes
}

/// Copies `length` bytes. The runs may overlap: a proc that sends to itself copies between two buffers of the application, and buffers
/// borrowed as cells may share bytes.
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

/// Copies `length` bytes past the caches of this processor, whole lines of the target by streaming stores. A processor that reads them next
/// finds them in memory, where it reads ahead, and not in another processor's cache. They are visible, and ordered before later stores,
/// only after [`fence_streams`].
///
/// # Safety
/// As [`copy_bytes`], and the places do not overlap.
#[expect(unsafe_code, reason = "raw copies")]
pub(crate) unsafe fn copy_past(to: *mut u8, from: *const u8, length: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every access is within `length` bytes of either pointer; streaming stores are to multiples of 16, as they must be.
    unsafe {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let before = to.align_offset(CACHE_LINE).min(length);
        copy_bytes(to, from, before);
        let mut at = before;
        while length - at >= CACHE_LINE {
            let (target, source) = (to.add(at).cast::<__m128i>(), from.add(at).cast::<__m128i>());
            let words = [0, 1, 2, 3].map(|word| _mm_loadu_si128(source.add(word)));
            words.into_iter().enumerate().for_each(|(word, value)| _mm_stream_si128(target.add(word), value));
            at += CACHE_LINE;
        }
        copy_bytes(to.add(at), from.add(at), length - at);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: by this function's contract.
    unsafe {
        copy_bytes(to, from, length);
    }
}

/// Orders everything written by [`copy_past`] before all later writes.
#[inline]
pub(crate) fn fence_streams() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: all processors of this architecture have it.
    #[expect(unsafe_code, reason = "an intrinsic")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Copies the words at these offsets. All are read before the first one is written.
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
    use tickwire_components::List;

    #[test]
    fn runs_are_gathered_in_order() {
        assert_eq!(gather(&List(vec![vec![1u8, 2], vec![], vec![3]]))[..], [1, 2, 3]);
    }

    #[test]
    #[expect(unsafe_code, reason = "spans over local buffers")]
    fn every_length_is_copied_whole_and_no_further() {
        // An interpreter takes long for the longest ones.
        let longest = if cfg!(miri) { 9000 } else { LOOP_MAX + 1 };
        for length in (0..400).chain([1024, 2048, 2049, 4096, 4097, longest]) {
            let mut from: Vec<u8> = (0..length).map(|i| (i * 7 + 1) as u8).collect();
            let mut to = vec![0xEEu8; length + 9];
            // SAFETY: both vectors outlive the copy.
            let (source, target) =
                unsafe { (Span::new(from.as_mut_ptr(), length), Span::new(to.as_mut_ptr(), length + 1)) };
            let past: unsafe fn(Span, Span) -> usize = |to, from| {
                // SAFETY: the target is longer.
                unsafe { copy_past(to.start(), from.start(), from.len()) };
                fence_streams();
                from.len()
            };
            for copy in [copy, copy_long, copy_own, past] {
                to.fill(0xEE);
                // SAFETY: as above.
                assert_eq!(unsafe { copy(target, source) }, length);
                assert_eq!(to[..length], from[..]);
                assert!(to[length..].iter().all(|&b| b == 0xEE));
            }
        }
    }

    #[test]
    #[expect(unsafe_code, reason = "places in local buffers")]
    fn what_goes_past_the_caches_may_start_and_end_anywhere() {
        let from: Vec<u8> = (0..400).map(|i| (i * 7 + 1) as u8).collect();
        for (at, length) in (0..66).flat_map(|at| [0, 1, 63, 64, 65, 127, 128, 200, 256].map(|length| (at, length))) {
            let mut to = vec![0xEEu8; 400];
            // SAFETY: both places are within the vectors.
            unsafe { copy_past(to.as_mut_ptr().add(at), from.as_ptr().add(at / 3), length) };
            fence_streams();
            assert_eq!(to[at..at + length], from[at / 3..at / 3 + length]);
            assert!(to[..at].iter().chain(&to[at + length..]).all(|&byte| byte == 0xEE), "{length} bytes at {at}");
        }
    }

    #[test]
    #[expect(unsafe_code, reason = "spans over local buffers")]
    fn places_may_overlap_in_either_direction() {
        let short = (0..80).chain([200, 300]).flat_map(|length| [(length, 0, 5), (length, 5, 0), (length, 3, 3)]);
        let long = [(2049, 0, 5), (5000, 5, 0), (5000, 0, 2050), (5000, 2050, 0)];
        for (length, from, to) in short.chain(long) {
            for copy in [copy, copy_long, copy_own] {
                let mut bytes: Vec<u8> = (0..length + from.max(to)).map(|i| (i * 7 + 1) as u8).collect();
                let mut expected = bytes.clone();
                expected.copy_within(from..from + length, to);
                let start = bytes.as_mut_ptr();
                // SAFETY: both are within the vector, which outlives the copy.
                let [from, to] = [from, to].map(|at| unsafe { Span::new(start.add(at), length) });
                // SAFETY: as above.
                assert_eq!(unsafe { copy(to, from) }, length);
                assert_eq!(bytes, expected, "{length} B");
            }
        }
    }
}
