//! A buffer with a type over it.

use super::segment::{Runs, Segment, Stretch};
use super::{Basic, Datatype, DatatypeError, Described, Elements, ElementsMut};
use crate::{LeasedBytes, Pieces, Span};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// A buffer of which a message is only some bytes: those of `count` elements of a [`Datatype`].
///
/// The engine sends from it and receives into it as from and into a plain buffer: bytes are moved straight between their
/// places and the transport. Elements that are one run are as fast as a plain buffer.
pub struct Typed<B> {
    buffer: B,
    segment: Arc<Segment>,
    origin: usize,
}

/// A type that does not fit a buffer, which comes back.
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
    /// `count` elements of a type, displacement 0 at the start of the buffer.
    ///
    /// # Errors
    /// If bytes of them are not within the buffer, which comes back.
    pub fn new(buffer: B, of: &Datatype, count: usize) -> Result<Self, Unfit<B>> {
        Self::at(buffer, 0, of, count)
    }

    /// As [`Typed::new`], displacement 0 at byte `origin` of the buffer.
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
    /// All elements of a buffer, each by the datatype of its type: structs with `#[derive(Datatype)]`, without their padding.
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

    /// Fills `out` with the bytes of the message from byte `first` on (`MPI_Pack`); returns how many there were.
    #[expect(unsafe_code, reason = "raw copies")]
    pub fn pack(&self, first: usize, out: &mut [u8]) -> usize {
        // SAFETY: the buffer is the one that the segment was made for, and `out` is borrowed for writing.
        unsafe { self.segment.pack_from(self.base(), first, Span::new(out.as_mut_ptr(), out.len())) }
    }

    /// The runs of `length` bytes of the message from byte `first` on, fewer at its end. They are valid while the buffer is.
    pub fn runs(&self, first: usize, length: usize) -> Runs<'_> {
        Runs::new(&self.segment, self.base(), first, length)
    }

    fn base(&self) -> *mut u8 {
        self.buffer.span().start().wrapping_add(self.origin)
    }
}

impl<B: ElementsMut> Typed<B> {
    /// Takes the bytes of the message from byte `first` on out of `bytes` (`MPI_Unpack`); returns how many found a place. Of a
    /// byte that is in the message twice the later one stays.
    #[expect(unsafe_code, reason = "raw copies")]
    pub fn unpack(&mut self, first: usize, bytes: &[u8]) -> usize {
        let base = self.buffer.span_mut().start().wrapping_add(self.origin);
        // SAFETY: as in `pack`; `bytes` are only read.
        unsafe { self.segment.unpack_to(base, first, Span::new(bytes.as_ptr().cast_mut(), bytes.len())) }
    }
}

impl<B: ElementsMut + AsMut<[B::Element]>> Typed<B> {
    /// All elements of the buffer, also those that are no part of the message.
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

/// The two buffers of a request that updates elements elsewhere and brings their values from before. It is no message.
#[derive(Debug)]
pub struct TypedPair<B, C> {
    /// What the elements are combined with.
    pub from: Typed<B>,
    /// Where their values from before go.
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
