//! Segments: elements of a type in a buffer, and stretches of their bytes.

use super::moving::Moving;
use super::node::{Node, Shape};
use super::overlap::has_twice;
use super::walk::{Visit, walk};
use super::{Datatype, DatatypeError};
use crate::{Pieces, Span};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// Runs that are found at a time.
const RUNS_FOUND: usize = 16;

/// `count` elements of a type, checked against a buffer: which bytes, in which order.
///
/// Written once, by `Typed`. A data CAR of kind [`crate::CarKind::Layout`] has its address.
#[derive(Debug)]
pub struct Segment {
    pub(super) node: Node,
    /// Where displacement 0 is.
    base: *mut u8,
    /// The type, where one element says whether a byte is there twice.
    of: Option<Datatype>,
    twice: OnceLock<bool>,
}

// SAFETY: an address as that of a `Span`, with the same promise by whoever lends the buffer.
#[expect(unsafe_code, reason = "a raw address; the promise is made where a buffer is lent")]
unsafe impl Send for Segment {}
// SAFETY: as above; a shared `Segment` gives no access by itself.
#[expect(unsafe_code, reason = "a raw address; the promise is made where a buffer is lent")]
unsafe impl Sync for Segment {}

impl Segment {
    /// Elements in a buffer, displacement 0 at byte `origin`.
    pub(super) fn new(buffer: Span, origin: usize, of: &Datatype, count: usize) -> Result<Self, DatatypeError> {
        let form = of.0.repeated(count, of.0.extent(), 0)?;
        let (lower, upper) = form.bounds.truth();
        let (first, end, length) = (lower as i128 + origin as i128, upper as i128 + origin as i128, buffer.len());
        if form.node.size > 0 && (first < 0 || end > length as i128) {
            return Err(DatatypeError::Bounds { first, end, length });
        }
        // Elements that lie apart need one look for all of them, and for all buffers.
        let apart = count < 2 || of.extent().unsigned_abs() >= of.true_extent();
        let (of, twice) = (apart.then(|| of.clone()), OnceLock::new());
        Ok(Segment { node: form.node, base: buffer.start().wrapping_add(origin), of, twice })
    }

    /// The runs of a buffer that has many.
    ///
    /// # Safety
    /// The buffer outlives the value.
    #[expect(unsafe_code, reason = "addresses apart from their buffer")]
    pub unsafe fn of_runs<P: Pieces + ?Sized>(buffer: &P) -> Self {
        let runs = (0..buffer.pieces()).map(|index| buffer.piece(index));
        // From one address to all others, which may be of other allocations.
        let node = Node::runs(runs.map(|run| (run.start().expose_provenance() as isize, run.len())));
        Segment { node, base: std::ptr::with_exposed_provenance_mut(0), of: None, twice: OnceLock::from(false) }
    }

    /// All its bytes, as a posted CAR has them.
    ///
    /// # Safety
    /// The segment and its buffer outlive the value.
    #[expect(unsafe_code, reason = "addresses apart from their buffer")]
    pub unsafe fn stretch(&self) -> Stretch {
        // SAFETY: by this function's contract.
        unsafe { Stretch::new(self) }
    }

    /// Whether a byte of the buffer is in it twice.
    pub(super) fn has_twice(&self) -> bool {
        match &self.of {
            Some(of) => self.size() > 0 && of.has_overlap(),
            None => *self.twice.get_or_init(|| has_twice(&self.node)),
        }
    }

    /// Bytes of the message.
    pub(super) fn size(&self) -> usize {
        self.node.size
    }

    /// Where its only run is, from displacement 0 on; `None` if it has several.
    pub(super) fn only_run(&self) -> Option<isize> {
        (self.node.shape == Shape::Run).then_some(self.node.offset)
    }

    /// Fills `out` with the bytes of the message from `first` on; returns how many there were.
    ///
    /// # Safety
    /// `base` is where displacement 0 is; the buffer that the segment was made for is valid for reads, `out` for writes.
    #[expect(unsafe_code, reason = "raw copies")]
    pub(super) unsafe fn pack_from(&self, base: *mut u8, first: usize, out: Span) -> usize {
        let length = self.rest(first).min(out.len());
        // SAFETY: all bytes of the node are within the buffer, as `new` has checked, and `out` has `length` bytes.
        walk(&self.node, 0, first, length, &mut unsafe { Moving::<true>::new(base, out.start()) });
        length
    }

    /// Takes the bytes of the message from `first` on out of `from`; returns how many found a place.
    ///
    /// # Safety
    /// As [`Segment::pack_from`], with reads and writes exchanged.
    #[expect(unsafe_code, reason = "raw copies")]
    pub(super) unsafe fn unpack_to(&self, base: *mut u8, first: usize, from: Span) -> usize {
        let length = self.rest(first).min(from.len());
        // SAFETY: as in `pack_from`.
        walk(&self.node, 0, first, length, &mut unsafe { Moving::<false>::new(base, from.start()) });
        length
    }

    /// Bytes of the message from `first` on.
    fn rest(&self, first: usize) -> usize {
        self.size().saturating_sub(first)
    }
}

/// Bytes of a segment, from any one of its message on to any other: what a [`Span`] is to a plain buffer.
///
/// An address and a range, no more: what uses the bytes is unsafe, and says that segment and buffer are there.
///
/// ```compile_fail,E0133
/// # use tickwire_components::{Datatype, Pieces, Span, Typed};
/// # let of = Datatype::vector(2, 1, 2, &Datatype::of::<u8>()).unwrap();
/// let stretch = Typed::new(vec![1u8, 2, 3], &of, 1).unwrap().layout().unwrap();
/// stretch.pack(Span::EMPTY);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    segment: *const Segment,
    first: usize,
    length: usize,
}

// SAFETY: as `Span`.
#[expect(unsafe_code, reason = "a raw address in a column; the promise is made where a buffer is lent")]
unsafe impl Send for Stretch {}
// SAFETY: as `Span`.
#[expect(unsafe_code, reason = "a raw address in a column; the promise is made where a buffer is lent")]
unsafe impl Sync for Stretch {}

impl Stretch {
    /// All bytes of a segment.
    ///
    /// # Safety
    /// Until the request that the stretch is given to has completed, the segment stays where it is, and its buffer is as
    /// [`Span::new`] asks.
    #[expect(unsafe_code, reason = "the caller lends memory")]
    pub(super) unsafe fn new(segment: &Segment) -> Self {
        Stretch { segment, first: 0, length: segment.size() }
    }

    /// As a data CAR has it: the segment's address and the bytes of its message.
    pub fn as_span(&self) -> Span {
        debug_assert!(self.first == 0);
        // SAFETY: nobody reads bytes there: a CAR of kind `Layout` is asked for its stretch.
        #[expect(unsafe_code, reason = "an address in a column")]
        unsafe {
            Span::new(self.segment.cast_mut().cast(), self.length)
        }
    }

    /// What [`Stretch::as_span`] was made of; `None` if the bytes were taken away.
    ///
    /// # Safety
    /// The span is of [`Stretch::as_span`] or empty.
    #[expect(unsafe_code, reason = "an address in a column")]
    pub(crate) unsafe fn of_span(span: Span) -> Option<Self> {
        (!span.is_empty()).then(|| Stretch { segment: span.start().cast_const().cast(), first: 0, length: span.len() })
    }

    /// Bytes of the message.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The part from `first` on, at most `most` bytes; empty past the end.
    pub fn part(&self, first: usize, most: usize) -> Stretch {
        let first = first.min(self.length);
        Stretch { segment: self.segment, first: self.first + first, length: most.min(self.length - first) }
    }

    /// Writes as much of it as `out` takes, one after another; returns how much that was, bytes.
    ///
    /// # Safety
    /// The segment is where it was, its buffer is valid for reads and `out` for writes, and these do not overlap.
    #[expect(unsafe_code, reason = "raw copies")]
    pub unsafe fn pack(&self, out: Span) -> usize {
        if self.length == 0 {
            return 0;
        }
        // SAFETY: by this function's contract.
        unsafe {
            let segment = &*self.segment;
            segment.pack_from(segment.base, self.first, out.part(0, self.length))
        }
    }

    /// Fills as much of it as there is in `from`; returns how much that was, bytes.
    ///
    /// # Safety
    /// As [`Stretch::pack`], with reads and writes exchanged.
    #[expect(unsafe_code, reason = "raw copies")]
    pub unsafe fn unpack(&self, from: Span) -> usize {
        if self.length == 0 {
            return 0;
        }
        // SAFETY: by this function's contract.
        unsafe {
            let segment = &*self.segment;
            segment.unpack_to(segment.base, self.first, from.part(0, self.length))
        }
    }

    /// Its runs, for whoever gathers and scatters by itself.
    ///
    /// # Safety
    /// The segment is where it was as long as the iterator is used.
    #[expect(unsafe_code, reason = "the address of a segment")]
    pub unsafe fn runs(&self) -> Runs<'_> {
        if self.length == 0 {
            return Runs::new(&NO_SEGMENT, NO_SEGMENT.base, 0, 0);
        }
        // SAFETY: by this function's contract.
        let segment = unsafe { &*self.segment };
        Runs::new(segment, segment.base, self.first, self.length)
    }
}

static NO_SEGMENT: Segment =
    Segment { node: Node::EMPTY, base: std::ptr::dangling_mut(), of: None, twice: OnceLock::new() };

/// Some bytes of a message, run by run: neighbours in memory are one run. Found a few at a time.
pub struct Runs<'a> {
    segment: &'a Segment,
    base: *mut u8,
    /// The next byte of the message to look for, and the one behind the last.
    next: usize,
    end: usize,
    found: SmallVec<[Span; RUNS_FOUND]>,
    given: usize,
}

impl<'a> Runs<'a> {
    pub(super) fn new(segment: &'a Segment, base: *mut u8, first: usize, length: usize) -> Self {
        let next = first.min(segment.size());
        let end = next + length.min(segment.size() - next);
        Runs { segment, base, next, end, found: SmallVec::new(), given: 0 }
    }

    /// Looks for more, after the last one that was found, which may go on.
    fn refill(&mut self) {
        let last = self.found.pop();
        self.found.clear();
        self.found.extend(last);
        self.given = 0;
        let mut find = Find { base: self.base, found: &mut self.found, bytes: 0 };
        walk(&self.segment.node, 0, self.next, self.end - self.next, &mut find);
        self.next += find.bytes;
    }
}

impl Iterator for Runs<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        if self.given + 1 >= self.found.len() && self.next < self.end {
            self.refill();
        }
        let run = self.found.get(self.given).copied()?;
        self.given += 1;
        Some(run)
    }
}

struct Find<'a> {
    base: *mut u8,
    found: &'a mut SmallVec<[Span; RUNS_FOUND]>,
    bytes: usize,
}

impl Visit for Find<'_> {
    fn run(&mut self, offset: isize, length: usize) -> bool {
        let start = self.base.wrapping_offset(offset);
        // SAFETY: within the buffer that the segment was made for; the iterator's maker promised that it is valid.
        #[expect(unsafe_code, reason = "spans over a lent buffer")]
        let run = unsafe { Span::new(start, length) };
        let room = self.found.len() < RUNS_FOUND;
        match self.found.last_mut() {
            // SAFETY: both runs are within one buffer.
            #[expect(unsafe_code, reason = "spans over a lent buffer")]
            Some(last) if last.start().wrapping_add(last.len()) == start => unsafe {
                *last = Span::new(last.start(), last.len() + length);
            },
            _ if room => self.found.push(run),
            _ => return false,
        }
        self.bytes += length;
        true
    }
}
