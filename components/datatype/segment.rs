//! Segments: elements of a type in a buffer, and ranges of their bytes.

use super::moving::Moving;
use super::node::{Node, Shape};
use super::overlap::has_twice;
use super::walk::{Visit, walk};
use super::{Datatype, DatatypeError};
use crate::Span;
use smallvec::SmallVec;
use std::sync::OnceLock;

/// How many runs [`Runs`] finds at a time.
const RUNS_FOUND: usize = 16;

/// `count` elements of a type, checked against a buffer: which bytes of the buffer a message consists of, in which order.
///
/// Written once, by `Typed`. A data CAR of kind [`crate::CarKind::Layout`] holds the segment's address.
#[derive(Debug)]
pub struct Segment {
    pub(super) node: Node,
    /// The address of displacement 0.
    base: *mut u8,
    /// The type, if its elements are disjoint. Then one element decides whether a byte is there twice.
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
    /// `count` elements in a buffer, with displacement 0 at byte `origin`.
    pub(super) fn new(buffer: Span, origin: usize, of: &Datatype, count: usize) -> Result<Self, DatatypeError> {
        let form = of.0.repeated(count, of.0.extent(), 0)?;
        let (lower, upper) = form.bounds.truth();
        let (first, end, length) = (lower as i128 + origin as i128, upper as i128 + origin as i128, buffer.len());
        if form.node.size > 0 && (first < 0 || end > length as i128) {
            return Err(DatatypeError::Bounds { first, end, length });
        }
        // If elements are disjoint, one check of the type is valid for all elements, and for all buffers.
        let apart = count < 2 || of.extent().unsigned_abs() >= of.true_extent();
        let (of, twice) = (apart.then(|| of.clone()), OnceLock::new());
        Ok(Segment { node: form.node, base: buffer.start().wrapping_add(origin), of, twice })
    }

    /// The segment of a buffer that consists of many runs, which are given in the order of the message.
    ///
    /// # Safety
    /// The buffer outlives the value.
    #[expect(unsafe_code, reason = "addresses apart from their buffer")]
    pub unsafe fn of_runs(runs: impl Iterator<Item = Span>) -> Self {
        // The runs may be in several allocations, so their absolute addresses are the offsets.
        let node = Node::runs(runs.map(|run| (run.start().expose_provenance() as isize, run.len())));
        Segment { node, base: std::ptr::with_exposed_provenance_mut(0), of: None, twice: OnceLock::from(false) }
    }

    /// All bytes of the segment, in the form in which a posted CAR holds them.
    ///
    /// # Safety
    /// The segment and its buffer outlive the value.
    #[expect(unsafe_code, reason = "addresses apart from their buffer")]
    pub unsafe fn stretch(&self) -> Stretch {
        // SAFETY: by this function's contract.
        unsafe { Stretch::new(self) }
    }

    /// Whether the segment contains a byte of the buffer twice.
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

    /// Offset of its only run from displacement 0, bytes; `None` if it has several runs.
    pub(super) fn only_run(&self) -> Option<isize> {
        (self.node.shape == Shape::Run).then_some(self.node.offset)
    }

    /// Copies the bytes of the message from byte `first` on into `out`. Returns how many bytes were copied.
    ///
    /// # Safety
    /// `base` is the address of displacement 0. The buffer that the segment was made for is valid for reads, and `out` for writes.
    #[expect(unsafe_code, reason = "raw copies")]
    pub(super) unsafe fn pack_from(&self, base: *mut u8, first: usize, out: Span) -> usize {
        let length = self.rest(first).min(out.len());
        // SAFETY: all bytes of the node are within the buffer, as `new` has checked, and `out` has `length` bytes.
        walk(&self.node, 0, first, length, &mut unsafe { Moving::<true>::new(base, out.start()) });
        length
    }

    /// Copies bytes from `from` to the places of the message from byte `first` on. Returns how many bytes were copied.
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

    /// How many bytes the message has from byte `first` on.
    fn rest(&self, first: usize) -> usize {
        self.size().saturating_sub(first)
    }
}

impl Datatype {
    /// Copies the bytes of one value to the beginning of `out`, or as many as fit.
    ///
    /// # Safety
    /// This is the layout of the value's type.
    #[expect(unsafe_code, reason = "raw copies")]
    pub(crate) unsafe fn pack_value<T>(&self, value: &mut T, out: &mut [u8]) {
        let length = self.size().min(out.len());
        // SAFETY: all bytes of a layout are within the value, and `out` has `length` bytes.
        let mut moving = unsafe { Moving::<true>::new(std::ptr::from_mut(value).cast(), out.as_mut_ptr()) };
        walk(&self.0.node, 0, 0, length, &mut moving);
    }

    /// Copies packed bytes to their places in one value.
    ///
    /// # Safety
    /// As [`Datatype::pack_value`].
    #[expect(unsafe_code, reason = "raw copies")]
    pub(crate) unsafe fn unpack_value<T>(&self, packed: &[u8], value: &mut T) {
        let length = self.size().min(packed.len());
        // SAFETY: as in `pack_value`; `packed` is only read. The value stays valid, whatever its bytes are.
        let mut moving = unsafe { Moving::<false>::new(std::ptr::from_mut(value).cast(), packed.as_ptr().cast_mut()) };
        walk(&self.0.node, 0, 0, length, &mut moving);
    }
}

/// A range of the message bytes of a segment: what a [`Span`] is to a plain buffer.
///
/// It holds only an address and a range. So the functions that use the bytes are unsafe: their caller promises that the segment and its
/// buffer still exist.
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
    /// Until the request that the stretch is given to has completed, the segment stays at its address, and its buffer fulfils what
    /// [`Span::new`] demands.
    #[expect(unsafe_code, reason = "the caller lends memory")]
    pub(super) unsafe fn new(segment: &Segment) -> Self {
        Stretch { segment, first: 0, length: segment.size() }
    }

    /// The form in which a data CAR holds it: the segment's address, and the number of message bytes.
    pub fn as_span(&self) -> Span {
        debug_assert!(self.first == 0);
        // SAFETY: nobody reads bytes there: a CAR of kind `Layout` is asked for its stretch.
        #[expect(unsafe_code, reason = "an address in a column")]
        unsafe {
            Span::new(self.segment.cast_mut().cast(), self.length)
        }
    }

    /// The reverse of [`Stretch::as_span`]; `None` if the bytes were taken away.
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

    /// Copies as many bytes as fit into `out`, contiguously. Returns how many bytes were copied.
    ///
    /// # Safety
    /// The segment is still at its address. Its buffer is valid for reads and `out` for writes, and these do not overlap.
    #[expect(unsafe_code, reason = "raw copies")]
    pub unsafe fn pack(&self, out: Span) -> usize {
        // SAFETY: by this function's contract.
        unsafe {
            let segment = self.segment();
            segment.pack_from(segment.base, self.first, out.part(0, self.length))
        }
    }

    /// Copies as many bytes as `from` has to the places of the stretch. Returns how many bytes were copied.
    ///
    /// # Safety
    /// As [`Stretch::pack`], with reads and writes exchanged.
    #[expect(unsafe_code, reason = "raw copies")]
    pub unsafe fn unpack(&self, from: Span) -> usize {
        // SAFETY: by this function's contract.
        unsafe {
            let segment = self.segment();
            segment.unpack_to(segment.base, self.first, from.part(0, self.length))
        }
    }

    /// Its contiguous runs, for callers that gather or scatter themselves.
    ///
    /// # Safety
    /// The segment stays at its address as long as the iterator is used.
    #[expect(unsafe_code, reason = "the address of a segment")]
    pub unsafe fn runs(&self) -> Runs<'_> {
        // SAFETY: by this function's contract.
        let segment = unsafe { self.segment() };
        Runs::new(segment, segment.base, self.first, self.length)
    }

    /// The segment. An empty stretch may outlive its segment, so it has one without bytes.
    ///
    /// # Safety
    /// The segment stays at its address as long as the reference is used.
    #[expect(unsafe_code, reason = "the address of a segment")]
    unsafe fn segment(&self) -> &Segment {
        // SAFETY: by this function's contract.
        if self.length == 0 { &NO_SEGMENT } else { unsafe { &*self.segment } }
    }
}

static NO_SEGMENT: Segment =
    Segment { node: Node::EMPTY, base: std::ptr::dangling_mut(), of: None, twice: OnceLock::new() };

/// Iterator over the contiguous runs of a range of message bytes. Adjacent bytes in memory are one run. It finds a few runs at a time.
pub struct Runs<'a> {
    segment: &'a Segment,
    base: *mut u8,
    /// The next byte of the message to look for, and the end of the range.
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

    /// Looks for more runs. It keeps the last run that was found, since the next bytes may extend it.
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
