//! Addresses of memory that is lent to the engine.

use smallvec::SmallVec;

/// A contiguous run of bytes that is lent to the engine: its address and its length.
///
/// It holds only an address and a length. So the functions that use the bytes are unsafe: their caller promises that the bytes exist.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    start: *mut u8,
    length: usize,
}

/// The runs of one message, in order. Most messages have one run.
pub type Spans = SmallVec<[Span; 1]>;

// SAFETY: a span is an address and a length. Whoever made it promised (`Span::new`) that the bytes may be accessed
// from the thread that owns the engine until the request they were lent to is done.
#[expect(unsafe_code, reason = "a raw address in a column; the promise is made where a span is made")]
unsafe impl Send for Span {}
// SAFETY: as above; a shared `Span` gives no access by itself.
#[expect(unsafe_code, reason = "a raw address in a column; the promise is made where a span is made")]
unsafe impl Sync for Span {}

impl Span {
    /// No bytes.
    pub const EMPTY: Span = Span { start: std::ptr::dangling_mut(), length: 0 };

    /// A run of `length` bytes at `start`.
    ///
    /// # Safety
    /// Until the request that the span is given to has completed, the bytes must stay valid for reads, and for a receive also for
    /// writes. Nobody else may write them, and for a receive nobody else may read them.
    #[expect(unsafe_code, reason = "the caller lends memory")]
    #[inline]
    pub const unsafe fn new(start: *mut u8, length: usize) -> Self {
        Span { start, length }
    }

    /// The first byte.
    #[inline]
    pub const fn start(&self) -> *mut u8 {
        self.start
    }

    /// Number of bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies bytes from another run, which may overlap with this one; the shorter of the two lengths counts.
    ///
    /// # Safety
    /// The bytes of both are valid.
    #[expect(unsafe_code, reason = "addresses of bytes")]
    pub unsafe fn copy_from(&self, from: &Span) {
        // SAFETY: by this function's contract.
        unsafe { self.start.copy_from(from.start, self.length.min(from.length)) }
    }

    /// The same bytes by an address that is derived from that of one of `runs`, if they are within it. A run that is lent anew may have
    /// the address of an earlier one, but addresses that were derived from the earlier one must not be used any more.
    #[inline]
    pub fn derived_from(self, runs: &[Span]) -> Span {
        let is_within = |run: &&Span| {
            let first = self.start.addr().wrapping_sub(run.start.addr());
            !self.is_empty() && first < run.length && self.length <= run.length - first
        };
        match runs.iter().find(is_within) {
            Some(run) => run.part(self.start.addr() - run.start.addr(), self.length),
            None => self,
        }
    }

    /// The part from `first` on, at most `most` bytes; empty past the end.
    #[inline]
    pub fn part(&self, first: usize, most: usize) -> Span {
        let first = first.min(self.length);
        Span { start: self.start.wrapping_add(first), length: most.min(self.length - first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_within_a_run_are_derived_from_it_and_others_stay_as_they_are() {
        let mut bytes = [0u8; 16];
        let start = bytes.as_mut_ptr();
        // SAFETY: no byte is read or written by these.
        #[expect(unsafe_code, reason = "addresses of a test")]
        let of = |first: usize, length| unsafe { Span::new(start.wrapping_add(first), length) };
        let runs = [of(0, 4), of(8, 4)];
        for (first, length) in [(0, 4), (1, 2), (8, 1), (11, 1), (4, 2), (2, 4), (12, 1), (3, 0), (15, 1)] {
            let (span, derived) = (of(first, length), of(first, length).derived_from(&runs));
            assert_eq!((derived.start(), derived.len()), (span.start(), span.len()));
        }
        // Of a run that is lent anew at the same address, what is written by the derived address is seen.
        let lent = Span { start: (&raw mut bytes).cast(), length: 16 };
        let inner = of(5, 2).derived_from(&[lent]);
        // SAFETY: the bytes are those of the array, and the address is derived from its last borrow.
        #[expect(unsafe_code, reason = "addresses of a test")]
        unsafe {
            inner.start().write(7);
        }
        assert_eq!(bytes[5], 7);
    }
}
