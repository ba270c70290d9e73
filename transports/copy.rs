//! The one place where bytes of messages are moved, but for those that a datatype scatters ([`tickwire_components::Stretch`]).

use tickwire_components::{Pieces, Span};

/// Copies as much of `from` as `to` takes; returns how much that was, bytes.
///
/// Short copies go by overlapping loads and stores without a call: small messages are most messages.
#[expect(unsafe_code, reason = "spans are addresses; their makers promised that they are valid")]
#[inline]
pub fn copy(to: Span, from: Span) -> usize {
    let length = to.len().min(from.len());
    // SAFETY: both spans are valid for `length` bytes by the promise of `Span::new`. They do not overlap: one is the
    // transport's or the pool's memory, the other one a buffer of the application.
    unsafe { copy_bytes(to.start(), from.start(), length) };
    length
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

/// Copies `length` bytes between places that do not overlap.
///
/// # Safety
/// `from` is valid for reads and `to` for writes of `length` bytes, and they do not overlap.
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
pub(crate) unsafe fn copy_bytes(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: every access is within `length` bytes of either pointer; unaligned ones are declared so.
    unsafe {
        match length {
            0 => {}
            8 => move_word::<u64>(to, from, 0),
            1..=3 => {
                move_word::<u8>(to, from, 0);
                move_word::<u8>(to, from, length / 2);
                move_word::<u8>(to, from, length - 1);
            }
            4..=7 => {
                move_word::<u32>(to, from, 0);
                move_word::<u32>(to, from, length - 4);
            }
            9..=16 => {
                move_word::<u64>(to, from, 0);
                move_word::<u64>(to, from, length - 8);
            }
            17..=32 => {
                move_word::<u128>(to, from, 0);
                move_word::<u128>(to, from, length - 16);
            }
            33..=64 => {
                move_word::<u128>(to, from, 0);
                move_word::<u128>(to, from, 16);
                move_word::<u128>(to, from, length - 32);
                move_word::<u128>(to, from, length - 16);
            }
            _ => to.copy_from_nonoverlapping(from, length),
        }
    }
}

/// # Safety
/// `offset + size_of::<T>()` bytes are valid at both pointers.
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
unsafe fn move_word<T>(to: *mut u8, from: *const u8, offset: usize) {
    // SAFETY: by this function's contract.
    unsafe { to.add(offset).cast::<T>().write_unaligned(from.add(offset).cast::<T>().read_unaligned()) }
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
        for length in (0..400).chain([1024, 4096]) {
            let mut from: Vec<u8> = (0..length).map(|i| (i * 7 + 1) as u8).collect();
            let mut to = vec![0xEEu8; length + 9];
            // SAFETY: both vectors outlive the copy.
            let (source, target) =
                unsafe { (Span::new(from.as_mut_ptr(), length), Span::new(to.as_mut_ptr(), length + 1)) };
            assert_eq!(copy(target, source), length);
            assert_eq!(to[..length], from[..]);
            assert!(to[length..].iter().all(|&b| b == 0xEE));
        }
    }
}
