//! Moving bytes between a buffer and the message.

use super::walk::Visit;

/// Copies bytes of a buffer to the message, or of the message to a buffer.
pub(super) struct Moving<const PACK: bool> {
    base: *mut u8,
    stream: *mut u8,
}

impl<const PACK: bool> Moving<PACK> {
    /// Copies from the buffer to `stream` if `PACK`, else from `stream` to the buffer. The origin of the buffer is at `base`. Without
    /// `PACK`, `stream` is only read.
    ///
    /// # Safety
    /// The visited bytes are within the buffer that `base` points into, and `stream` has as many bytes. The source is valid for reads,
    /// the destination for writes, and they do not overlap.
    #[expect(unsafe_code, reason = "raw copies")]
    pub(super) unsafe fn new(base: *mut u8, stream: *mut u8) -> Self {
        Moving { base, stream }
    }

    /// Copies `count` words, which are `stride` bytes apart in the buffer.
    #[expect(unsafe_code, reason = "raw copies")]
    #[inline(always)]
    fn words<T: Copy>(&mut self, offset: isize, count: usize, stride: isize) {
        let (place, step) = (self.base.wrapping_offset(offset), size_of::<T>() as isize);
        // SAFETY: by the contract of `new`.
        unsafe {
            // A stride of two elements is the frequent case. With a constant stride the compiler can vectorize the loop.
            match (PACK, stride == 2 * step) {
                (true, true) => copy_words::<T>(self.stream, step, place, 2 * step, count),
                (true, false) => copy_words::<T>(self.stream, step, place, stride, count),
                (false, true) => copy_words::<T>(place, 2 * step, self.stream, step, count),
                (false, false) => copy_words::<T>(place, stride, self.stream, step, count),
            }
        }
        self.stream = self.stream.wrapping_add(count * size_of::<T>());
    }
}

impl<const PACK: bool> Visit for Moving<PACK> {
    #[expect(unsafe_code, reason = "raw copies")]
    #[inline]
    fn run(&mut self, offset: isize, length: usize) -> bool {
        let place = self.base.wrapping_offset(offset);
        let (to, from) = if PACK { (self.stream, place) } else { (place, self.stream) };
        // SAFETY: by the contract of `new`.
        unsafe { copy_run(to, from, length) }
        self.stream = self.stream.wrapping_add(length);
        true
    }

    #[inline]
    fn blocks(&mut self, offset: isize, block: usize, count: usize, stride: isize) -> bool {
        match block {
            1 => self.words::<u8>(offset, count, stride),
            2 => self.words::<u16>(offset, count, stride),
            4 => self.words::<u32>(offset, count, stride),
            8 => self.words::<u64>(offset, count, stride),
            16 => self.words::<u128>(offset, count, stride),
            _ => {
                for index in 0..count as isize {
                    self.run(offset + index * stride, block);
                }
            }
        }
        true
    }
}

/// # Safety
/// `count` words starting at `to` and at `from`, at the given distances, are valid for writes and for reads. They do not overlap.
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
unsafe fn copy_words<T: Copy>(to: *mut u8, to_step: isize, from: *const u8, from_step: isize, count: usize) {
    // SAFETY: by this function's contract; unaligned accesses are declared so.
    unsafe {
        for index in 0..count as isize {
            let word = from.offset(index * from_step).cast::<T>().read_unaligned();
            to.offset(index * to_step).cast::<T>().write_unaligned(word);
        }
    }
}

/// Copies a run of bytes. Short runs are copied by two overlapping words, without a call of `memcpy`.
///
/// # Safety
/// `length` bytes are valid at either pointer, and they do not overlap.
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
unsafe fn copy_run(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: every access is within `length` bytes of either pointer.
    unsafe {
        match length {
            8..=16 => ends::<u64>(to, from, length),
            4..=7 => ends::<u32>(to, from, length),
            17..=32 => ends::<u128>(to, from, length),
            2..=3 => ends::<u16>(to, from, length),
            1 => ends::<u8>(to, from, length),
            _ => to.copy_from_nonoverlapping(from, length),
        }
    }
}

/// Copies a run that is one to two words long: its first word and its last word, which may overlap.
///
/// # Safety
/// As [`copy_run`], and `length` is from one to two words.
#[expect(unsafe_code, reason = "raw copies")]
#[inline(always)]
unsafe fn ends<T: Copy>(to: *mut u8, from: *const u8, length: usize) {
    let last = length - size_of::<T>();
    // SAFETY: by this function's contract; both words are read before either is written.
    unsafe {
        let words = (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>().read_unaligned());
        to.cast::<T>().write_unaligned(words.0);
        to.add(last).cast::<T>().write_unaligned(words.1);
    }
}
