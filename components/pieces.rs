//! Buffers of messages, as runs of bytes.

mod list;

pub use list::List;

use crate::{Span, Stretch};
use bytemuck::{AnyBitPattern, NoUninit};
use std::marker::PhantomData;
use std::sync::Arc;

/// A buffer of a message: the runs of bytes that it consists of, in message order.
///
/// Addresses alone ([`Span`], [`Stretch`]) are not buffers, since they may outlive the memory that they point to.
///
/// ```compile_fail,E0277
/// # use tickwire_components::{Pieces, Span};
/// fn post<B: Pieces>() {}
/// post::<Span>();
/// ```
///
/// ```compile_fail,E0277
/// # use tickwire_components::{Pieces, Stretch};
/// fn post<B: Pieces>() {}
/// post::<Stretch>();
/// ```
///
/// ```compile_fail,E0277
/// # use tickwire_components::{Pieces, Span};
/// fn post<B: Pieces + ?Sized>() {}
/// post::<[Span]>();
/// ```
///
/// # Safety
/// [`Pieces::piece`] must return the same addresses when the value is moved, and these must stay valid as long as the value lives: for
/// reads, and if the type is also [`LeasedBytes`], for writes. The same holds for the segment behind [`Pieces::layout`], if there is
/// one. Then [`Pieces::pieces`] is 0, and [`Pieces::total`] is the size of the segment.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no buffer of a message",
    note = "buffers are vectors, slices, boxes, arrays in a box and `Arc`s of plain data (`bytemuck::NoUninit`), `List`s of them, and `Typed`"
)]
pub unsafe trait Pieces {
    /// Number of runs; most buffers have one.
    #[inline]
    fn pieces(&self) -> usize {
        1
    }

    /// Run `index`, below [`Pieces::pieces`].
    fn piece(&self, index: usize) -> Span;

    /// Length of the message, bytes.
    #[inline]
    fn total(&self) -> usize {
        (0..self.pieces()).map(|i| self.piece(i).len()).sum()
    }

    /// Whether the message contains a byte of the buffer twice. Such a buffer can be sent, but not received into.
    fn has_overlap(&self) -> bool {
        false
    }

    /// The bytes of a buffer with a datatype of many runs; then [`Pieces::pieces`] is 0. `None` for all other buffers.
    #[inline(always)]
    fn layout(&self) -> Option<Stretch> {
        None
    }

    /// The name of the element type ([`std::any::type_name`]), for engines that check types. `None` matches every type.
    fn type_name(&self) -> Option<&'static str> {
        None
    }
}

/// A buffer that is one run of bytes. A [`List`] of such buffers is a buffer, too.
///
/// # Safety
/// [`Pieces::pieces`] is always 1 and [`Pieces::layout`] always `None`.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
pub unsafe trait OneRun: Pieces {
    /// Whether it is [`InPlace`](crate::InPlace).
    fn is_in_place(&self) -> bool {
        false
    }

    /// Whether another buffer may have some of its bytes, too.
    fn may_alias(&self) -> bool {
        false
    }
}

/// A buffer that a receive may write: `Vec<T>` (up to its length), `Box<[T]>`, `Box<[T; N]>`, a [`List`] of these, and the borrowed
/// buffers `&mut [T]`, `&mut [T; N]`, `&mut Vec<T>` and [`Cells`](crate::Cells). All byte patterns must be valid values of `T`:
///
/// ```compile_fail,E0277
/// # use tickwire_components::LeasedBytes;
/// fn receive<B: LeasedBytes>(_: B) {}
/// receive(vec![true; 8]);
/// ```
///
/// A shared buffer can only be sent:
///
/// ```compile_fail,E0277
/// # use std::sync::Arc;
/// # use tickwire_components::LeasedBytes;
/// fn receive<B: LeasedBytes>(_: B) {}
/// receive(Arc::<[u32]>::from([0; 8]));
/// ```
///
/// # Safety
/// The runs that [`Pieces`] reports must be valid for writes while the value lives and nobody else uses it. Whatever bytes are written
/// to them, the value must stay valid.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no buffer that a message can be received into",
    note = "it must be written (not `&[T]` or `Arc`), and any bytes must be values (`bytemuck::AnyBitPattern`)"
)]
pub unsafe trait LeasedBytes: Pieces {}

/// The argument of calls that take over a buffer: a buffer whose bytes keep their address when it is moved, or an array, which is put
/// into a box.
pub trait IntoBuffer {
    /// The buffer that the engine owns until the request is taken.
    type Buffer: Pieces;

    /// Makes a buffer of it.
    fn into_buffer(self) -> Self::Buffer;
}

impl<B: Pieces> IntoBuffer for B {
    type Buffer = B;

    #[inline(always)]
    fn into_buffer(self) -> B {
        self
    }
}

impl<T: NoUninit, const N: usize> IntoBuffer for [T; N] {
    type Buffer = Box<[T; N]>;

    #[inline]
    fn into_buffer(self) -> Box<[T; N]> {
        Box::new(self)
    }
}

/// Buffers of plain data, which are sent without a copy.
macro_rules! read {
    ($(($($generic:tt)*) $type:ty, $self:ident => $start:expr, $count:expr;)*) => {$(
        // SAFETY: the elements are on the heap or borrowed, so moving the value does not move them, and have no padding.
        #[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
        unsafe impl<$($generic)*> Pieces for $type {
            #[inline]
            fn piece(&$self, _index: usize) -> Span {
                // SAFETY: valid while `self` lives; the engine holds it until the request is done.
                unsafe { Span::new($start.cast::<u8>().cast_mut(), $count * size_of::<T>()) }
            }

            fn type_name(&self) -> Option<&'static str> {
                Some(std::any::type_name::<T>())
            }
        }
        // SAFETY: as `Pieces` says where nothing else is said.
        #[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
        unsafe impl<$($generic)*> OneRun for $type {}
    )*};
}

read! {
    (T: NoUninit) Vec<T>, self => self.as_ptr(), self.len();
    (T: NoUninit) Box<[T]>, self => unique(self), self.len();
    (T: NoUninit, const N: usize) Box<[T; N]>, self => unique(self), N;
    (T: NoUninit) Arc<[T]>, self => self.as_ptr(), self.len();
    (T: NoUninit, const N: usize) Arc<[T; N]>, self => self.as_ptr(), N;
    ('a, T: NoUninit) &'a [T], self => self.as_ptr(), self.len();
    ('a, T: NoUninit, const N: usize) &'a [T; N], self => self.as_ptr(), N;
    ('a, T: NoUninit) &'a mut [T], self => unique(self), self.len();
    ('a, T: NoUninit, const N: usize) &'a mut [T; N], self => unique(self), N;
}

/// A box or a unique borrow.
pub(crate) trait Unique {
    type Target: ?Sized;
}

impl<T: ?Sized> Unique for Box<T> {
    type Target = T;
}

impl<T: ?Sized> Unique for &mut T {
    type Target = T;
}

/// The address that a box or a unique borrow points to, with the pointer's own provenance, so that it allows writes. A pointer from a
/// new shared borrow would only allow reads.
#[expect(unsafe_code, reason = "a pointer is read as what it is")]
pub(crate) fn unique<P: Unique>(pointer: &P) -> *const u8 {
    const { assert!(size_of::<P>() == size_of::<*mut P::Target>()) }
    // SAFETY: both have the layout of a raw pointer to what they point to, and that begins with the address.
    unsafe { (&raw const *pointer).cast::<*const u8>().read() }
}

macro_rules! write {
    ($(($($generic:tt)*) $type:ty;)*) => {$(
        // SAFETY: the value owns or mutably borrows its elements, and any bytes are elements.
        #[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
        unsafe impl<$($generic)*> LeasedBytes for $type {}
    )*};
}

write! {
    (T: NoUninit + AnyBitPattern) Vec<T>;
    (T: NoUninit + AnyBitPattern) Box<[T]>;
    (T: NoUninit + AnyBitPattern, const N: usize) Box<[T; N]>;
    ('a, T: NoUninit + AnyBitPattern) &'a mut [T];
    ('a, T: NoUninit + AnyBitPattern, const N: usize) &'a mut [T; N];
}

// SAFETY: a string's bytes are on the heap.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for String {
    #[inline]
    fn piece(&self, _index: usize) -> Span {
        // SAFETY: valid while `self` lives; only read, since `String` is not `LeasedBytes`.
        unsafe { Span::new(self.as_ptr().cast_mut(), self.len()) }
    }

    fn type_name(&self) -> Option<&'static str> {
        Some(std::any::type_name::<u8>())
    }
}

// SAFETY: as `Pieces` says where nothing else is said.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl OneRun for String {}

/// Forwards to the borrowed buffer.
macro_rules! borrowed {
    ($($type:ty),*) => {$(
        // SAFETY: the buffer stays where it is while it is borrowed, and reports what it always does.
        #[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
        unsafe impl<B: Pieces> Pieces for $type {
            #[inline]
            fn pieces(&self) -> usize {
                (**self).pieces()
            }

            #[inline]
            fn piece(&self, index: usize) -> Span {
                (**self).piece(index)
            }

            #[inline]
            fn total(&self) -> usize {
                (**self).total()
            }

            fn has_overlap(&self) -> bool {
                (**self).has_overlap()
            }

            #[inline]
            fn layout(&self) -> Option<Stretch> {
                (**self).layout()
            }

            fn type_name(&self) -> Option<&'static str> {
                (**self).type_name()
            }
        }
        // SAFETY: as the buffer itself.
        #[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
        unsafe impl<B: OneRun> OneRun for $type {
            fn is_in_place(&self) -> bool {
                (**self).is_in_place()
            }

            fn may_alias(&self) -> bool {
                (**self).may_alias()
            }
        }
    )*};
}

borrowed!(&B, &mut B);

// SAFETY: the buffer may be written, and is borrowed by nobody else.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<B: LeasedBytes> LeasedBytes for &mut B {}

/// A run of memory that the application lends to the engine by an unsafe promise.
#[derive(Debug)]
pub struct Ownership<'a>(Span, PhantomData<&'a mut [u8]>);

impl Ownership<'static> {
    /// Lends the bytes of a span.
    ///
    /// # Safety
    /// The conditions of [`Span::new`] hold until the request is done.
    #[expect(unsafe_code, reason = "the caller lends memory")]
    pub const unsafe fn new(span: Span) -> Self {
        Ownership(span, PhantomData)
    }
}

// SAFETY: the caller of `Ownership::new` promised it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Ownership<'_> {
    #[inline]
    fn piece(&self, _index: usize) -> Span {
        self.0
    }
}
// SAFETY: the caller of `Ownership::new` promised it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl LeasedBytes for Ownership<'_> {}
// SAFETY: as `Pieces` says where nothing else is said.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl OneRun for Ownership<'_> {}
