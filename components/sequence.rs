//! Buffers of collective operations: contiguous elements, or the placeholder for a buffer that is in place.

use crate::pieces::{LeasedBytes, List, OneRun, Pieces};
use crate::{Element, Span};
use std::marker::PhantomData;
use std::sync::Arc;

/// A buffer of collective operations: contiguous elements that can be counted and reduced.
///
/// # Safety
/// The bytes are values of [`Sequence::Item`], at an address that is aligned for it.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no buffer of a collective operation",
    note = "it is a vector, slice, box or array of plain data (`bytemuck::NoUninit + AnyBitPattern`)"
)]
pub unsafe trait Sequence: OneRun {
    /// The type of its elements.
    type Item: Element;

    /// Number of elements.
    fn count(&self) -> usize {
        self.total().checked_div(self.element()).unwrap_or(0)
    }

    /// Bytes of an element: the size of its type, or of a packed element of a datatype ([`Packed`](crate::Packed)).
    #[inline(always)]
    fn element(&self) -> usize {
        size_of::<Self::Item>()
    }
}

/// The placeholder for a buffer whose elements are in the other buffer of the operation already (`MPI_IN_PLACE`). See [`in_place`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InPlace<T>(PhantomData<T>);

/// `MPI_IN_PLACE`: the elements that a rank sends are in its receive buffer already, at the place where the result goes.
///
/// At the root of a scatter it is given instead of the receive buffer: the root's part stays in the send buffer.
pub const fn in_place<T>() -> InPlace<T> {
    InPlace(PhantomData)
}

// SAFETY: there are no bytes.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<T> Pieces for InPlace<T> {
    fn piece(&self, _: usize) -> Span {
        /// An address of its own: buffers that are compared by their addresses differ from an empty one.
        static IN_PLACE: u8 = 0;
        // SAFETY: no bytes.
        unsafe { Span::new((&raw const IN_PLACE).cast_mut(), 0) }
    }
}

// SAFETY: it is one run, and has no layout.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<T> OneRun for InPlace<T> {
    fn is_in_place(&self) -> bool {
        true
    }
}

// SAFETY: there are no bytes.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<T> LeasedBytes for InPlace<T> {}

// SAFETY: there are no bytes.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<T: Element> Sequence for InPlace<T> {
    type Item = T;
}

macro_rules! sequence {
    ($(($($generic:tt)*) $type:ty, $item:ty;)*) => {$(
        // SAFETY: these are elements of the type in memory of Rust.
        #[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
        unsafe impl<$($generic)*> Sequence for $type {
            type Item = $item;
        }
    )*};
}

sequence! {
    (T: Element) Vec<T>, T;
    (T: Element) Box<[T]>, T;
    (T: Element, const N: usize) Box<[T; N]>, T;
    (T: Element) Arc<[T]>, T;
    (T: Element, const N: usize) Arc<[T; N]>, T;
    ('a, T: Element) &'a [T], T;
    ('a, T: Element, const N: usize) &'a [T; N], T;
    ('a, T: Element) &'a mut [T], T;
    ('a, T: Element, const N: usize) &'a mut [T; N], T;
}

/// A buffer that is borrowed.
macro_rules! borrowed {
    ($($type:ty;)*) => {$(
        // SAFETY: as of what is borrowed.
        #[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
        unsafe impl<B: Sequence> Sequence for $type {
            type Item = B::Item;

            #[inline(always)]
            fn element(&self) -> usize {
                (**self).element()
            }
        }
    )*};
}

borrowed! {
    &B;
    &mut B;
}

/// A buffer that consists of its pieces: one run, or a [`List`] of runs.
///
/// # Safety
/// [`Pieces::layout`] is always `None`.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
pub unsafe trait NoLayout: Pieces {}

// SAFETY: what is one run has no layout.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<B: OneRun> NoLayout for B {}

// SAFETY: it has a piece for each entry.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<B: OneRun> NoLayout for List<B> {}

// SAFETY: each reports its runs, which do not move with it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<A: NoLayout, B: NoLayout> Pieces for (A, B) {
    fn pieces(&self) -> usize {
        self.0.pieces() + self.1.pieces()
    }

    fn piece(&self, index: usize) -> Span {
        let first = self.0.pieces();
        if index < first { self.0.piece(index) } else { self.1.piece(index - first) }
    }
}

// SAFETY: both are their pieces, and so is the pair.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<A: NoLayout, B: NoLayout> NoLayout for (A, B) {}

// SAFETY: there are no bytes.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for () {
    fn pieces(&self) -> usize {
        0
    }

    fn piece(&self, _: usize) -> Span {
        Span::EMPTY
    }
}

// SAFETY: it has no pieces and no layout.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl NoLayout for () {}
