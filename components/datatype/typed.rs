//! Buffers with a datatype.

use super::segment::{Runs, Segment, Stretch};
use super::{Basic, Datatype, DatatypeError, Described, Elements, ElementsMut};
use crate::{LeasedBytes, Pieces, Span};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// A buffer with a datatype: a message consists of the bytes of `count` elements of a [`Datatype`].
///
/// The engine sends from it and receives into it as with a plain buffer, without packing: bytes move straight between their places and
/// the transport. If the elements form one contiguous run, it is as fast as a plain buffer.
pub struct Typed<B> {
    buffer: B,
    segment: Arc<Segment>,
    origin: usize,
}

/// The datatype does not fit the buffer. Gives the buffer back.
#[derive(Error)]
#[error("{error}")]
pub struct Unfit<B> {
    /// Why.
    #[source]
    pub error: DatatypeError,
    /// The buffer.
    pub buffer: B,
}

impl<B> fmt::Debug for Unfit<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unfit({:?})", self.error)
    }
}

impl<B> fmt::Debug for Typed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed").field("segment", &self.segment).finish_non_exhaustive()
    }
}

impl<B: Elements<Element: Basic>> Typed<B> {
    /// `count` elements of a type, with displacement 0 at the start of the buffer.
    ///
    /// # Errors
    /// If some bytes of the elements are outside the buffer. The error gives the buffer back.
    pub fn new(buffer: B, of: &Datatype, count: usize) -> Result<Self, Unfit<B>> {
        Self::at(buffer, 0, of, count)
    }

    /// As [`Typed::new`], with displacement 0 at byte `origin` of the buffer.
    ///
    /// # Errors
    /// As [`Typed::new`].
    pub fn at(buffer: B, origin: usize, of: &Datatype, count: usize) -> Result<Self, Unfit<B>> {
        match Segment::new(buffer.span(), origin, of, count) {
            Ok(segment) => Ok(Typed { buffer, segment: Arc::new(segment), origin }),
            Err(error) => Err(Unfit { error, buffer }),
        }
    }
}

impl<B: Elements> Typed<B> {
    /// All elements of a buffer, with the datatype of their Rust type: for example structs with `#[derive(Datatype)]`, without their
    /// padding.
    ///
    /// # Errors
    /// As [`Typed::new`].
    pub fn all(buffer: B) -> Result<Self, Unfit<B>> {
        let count = buffer.span().len().checked_div(size_of::<B::Element>()).unwrap_or(0);
        match Segment::new(buffer.span(), 0, &B::Element::layout(), count) {
            Ok(segment) => Ok(Typed { buffer, segment: Arc::new(segment), origin: 0 }),
            Err(error) => Err(Unfit { error, buffer }),
        }
    }

    /// Bytes of the message.
    pub fn size(&self) -> usize {
        self.segment.size()
    }

    /// Copies the bytes of the message from byte `first` on into `out` (`MPI_Pack`). Returns how many bytes were copied.
    #[expect(unsafe_code, reason = "raw copies")]
    pub fn pack(&self, first: usize, out: &mut [u8]) -> usize {
        // SAFETY: the buffer is the one that the segment was made for, and `out` is borrowed for writing.
        unsafe { self.segment.pack_from(self.base(), first, Span::new(out.as_mut_ptr(), out.len())) }
    }

    /// The contiguous runs of `length` bytes of the message from byte `first` on, or fewer bytes at its end. They are valid while the
    /// buffer is.
    pub fn runs(&self, first: usize, length: usize) -> Runs<'_> {
        Runs::new(&self.segment, self.base(), first, length)
    }

    fn base(&self) -> *mut u8 {
        self.buffer.span().start().wrapping_add(self.origin)
    }
}

impl<B: ElementsMut> Typed<B> {
    /// Copies `bytes` to the places of the message from byte `first` on (`MPI_Unpack`). Returns how many bytes were copied. If the
    /// message contains a byte of the buffer twice, the later value stays.
    #[expect(unsafe_code, reason = "raw copies")]
    pub fn unpack(&mut self, first: usize, bytes: &[u8]) -> usize {
        let base = self.buffer.span_mut().start().wrapping_add(self.origin);
        // SAFETY: as in `pack`; `bytes` are only read.
        unsafe { self.segment.unpack_to(base, first, Span::new(bytes.as_ptr().cast_mut(), bytes.len())) }
    }
}

impl<B: ElementsMut + AsMut<[B::Element]>> Typed<B> {
    /// All elements of the buffer, including those that are no part of the message.
    pub fn elements_mut(&mut self) -> &mut [B::Element] {
        self.buffer.as_mut()
    }
}

impl<B> Typed<B> {
    /// The buffer.
    pub fn buffer(&self) -> &B {
        &self.buffer
    }

    /// The buffer, without the type.
    pub fn into_buffer(self) -> B {
        self.buffer
    }
}

// SAFETY: the buffer stands still while it is moved about, as `Elements` says, and so does the segment, on the heap.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B: Elements> Pieces for Typed<B> {
    #[inline]
    fn pieces(&self) -> usize {
        usize::from(self.segment.only_run().is_some())
    }

    #[inline]
    fn piece(&self, _index: usize) -> Span {
        let Some(offset) = self.segment.only_run() else { return Span::EMPTY };
        // SAFETY: within the buffer, as was checked when the segment was made.
        unsafe { Span::new(self.base().wrapping_offset(offset), self.size()) }
    }

    #[inline]
    fn total(&self) -> usize {
        self.size()
    }

    fn has_overlap(&self) -> bool {
        self.segment.has_twice()
    }

    #[inline]
    fn layout(&self) -> Option<Stretch> {
        // SAFETY: the segment is on the heap and lives as long as `self`, which lends the buffer.
        self.segment.only_run().is_none().then(|| unsafe { Stretch::new(&self.segment) })
    }

    fn type_name(&self) -> Option<&'static str> {
        Some(std::any::type_name::<B::Element>())
    }
}

// SAFETY: the buffer may be written.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B: ElementsMut> LeasedBytes for Typed<B> {}

/// The two buffers of a request that updates elements at a target and fetches their previous values (`MPI_Get_accumulate`). It is not
/// sent as a message.
#[derive(Debug)]
pub struct TypedPair<B, C> {
    /// The operand that is combined with the target's elements.
    pub from: Typed<B>,
    /// The buffer for their previous values.
    pub into: Typed<C>,
}

// SAFETY: it has no bytes for a message.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B: Elements, C: ElementsMut> Pieces for TypedPair<B, C> {
    fn pieces(&self) -> usize {
        0
    }

    fn piece(&self, _: usize) -> Span {
        Span::EMPTY
    }
}
