//! The element types of datatypes, and buffers of elements.

use super::bounds::Bounds;
use super::node::Node;
use super::{Datatype, Form};
use crate::pieces::unique;
use crate::{Ownership, Pieces, Span};
use bytemuck::Pod;
use std::cell::Cell;
use std::sync::Arc;

/// A basic element type of datatypes: plain data without padding, for which every bit pattern is a valid value (`bytemuck::Pod`). The
/// number types of Rust implement it. A type of the application is a basic type if it implements the trait:
///
/// ```
/// use tickwire_components::{Basic, Datatype};
///
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Complex {
///     real: f64,
///     imaginary: f64,
/// }
/// // SAFETY: two numbers, and nothing between them.
/// unsafe impl bytemuck::Zeroable for Complex {}
/// unsafe impl bytemuck::Pod for Complex {}
/// impl Basic for Complex {}
/// assert_eq!(Complex::datatype().size(), 16);
/// ```
pub trait Basic: Pod + Send + Sync {
    /// The datatype of one element. Size and alignment are those of the Rust type.
    fn datatype() -> Datatype {
        Datatype::of::<Self>()
    }
}

/// An element type with a datatype that says which of its bytes are sent and received. Basic types, arrays of such types, and structs
/// with `#[derive(Datatype)]` implement it.
///
/// # Safety
/// Whatever bytes are written at the places that [`Described::layout`] names, the value stays valid. None of these places is padding,
/// and all of them are within the value.
#[expect(unsafe_code, reason = "the engine trusts what a type says of itself")]
pub unsafe trait Described: 'static {
    /// The datatype of one element. Its extent is the size of the Rust type.
    fn layout() -> Datatype;
}

// SAFETY: of plain data each byte can be anything.
#[expect(unsafe_code, reason = "the engine trusts what a type says of itself")]
unsafe impl<T: Basic> Described for T {
    fn layout() -> Datatype {
        Datatype::of::<T>()
    }
}

// SAFETY: as its elements.
#[expect(unsafe_code, reason = "the engine trusts what a type says of itself")]
unsafe impl<T: Described, const N: usize> Described for [T; N] {
    fn layout() -> Datatype {
        let all = Datatype::contiguous(N, &T::layout());
        let all = all.and_then(|all| all.resized(0, size_of::<Self>() as isize));
        all.unwrap_or_else(|error| panic!("{} has no datatype: {error}", std::any::type_name::<Self>()))
    }
}

impl Datatype {
    /// A number.
    pub fn of<T: Basic>() -> Self {
        Self::make(Form::new(Node::run(0, size_of::<T>()), Bounds::basic(size_of::<T>(), align_of::<T>())))
    }
}

/// Makes the datatype of the type `T` from its parts and their offsets, bytes. For implementations of [`Described`].
///
/// # Panics
/// A type whose parts are nested too deep (see [`DATATYPE_DEPTH_MAX`](crate::limits::DATATYPE_DEPTH_MAX)).
pub fn layout_of<T>(parts: &[(usize, Datatype)]) -> Datatype {
    let fields: Vec<_> = parts.iter().map(|(offset, of)| (1, *offset as isize, of)).collect();
    let layout = Datatype::structure(&fields).and_then(|layout| layout.resized(0, size_of::<T>() as isize));
    layout.unwrap_or_else(|error| panic!("{} has no datatype: {error}", std::any::type_name::<T>()))
}

/// A buffer of elements whose bytes keep their address when the value is moved: `Vec<f64>`, `&mut [i32]`, `&[Cell<u8>]` and so on.
///
/// # Safety
/// [`Elements::span`] must return the same address when the value is moved. The bytes must stay valid as long as the value lives: for
/// reads, and if the type is also [`ElementsMut`], for writes of what [`Described`] allows.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
pub unsafe trait Elements {
    /// The type of the elements.
    type Element: Described;

    /// Its bytes.
    fn span(&self) -> Span;
}

/// A buffer of elements that may be written.
///
/// # Safety
/// As [`Elements`]. Also, nobody else uses the bytes while the value lives.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
pub unsafe trait ElementsMut: Elements {
    /// Its bytes, to be written.
    fn span_mut(&mut self) -> Span {
        self.span()
    }
}

macro_rules! basic {
    ($($type:ty)*) => {$(
        impl Basic for $type {}
    )*};
}

basic!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

macro_rules! buffers {
    ($($type:ty, $self:ident => $start:expr $(, $write:ident)?;)*) => {$(
        // SAFETY: the elements are on the heap or borrowed, so moving the value does not move them.
        #[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
        unsafe impl<T: Described> Elements for $type {
            type Element = T;

            fn span(&$self) -> Span {
                // SAFETY: valid while the value lives; whoever uses the span holds it.
                unsafe { Span::new($start.cast::<u8>().cast_mut(), size_of_val(&$self[..])) }
            }
        }
        $(buffers!(@$write $type);)?
    )*};
    (@write $type:ty) => {
        // SAFETY: the value owns or mutably borrows its elements, and what is written is what their type allows.
        #[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
        unsafe impl<T: Described> ElementsMut for $type {
            fn span_mut(&mut self) -> Span {
                // SAFETY: as above, and from a unique borrow.
                unsafe { Span::new(self.as_mut_ptr().cast(), size_of_val(&self[..])) }
            }
        }
    };
    (@cells $type:ty) => {
        // SAFETY: cells of this thread may be written through a shared borrow.
        #[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
        unsafe impl<T: Described> ElementsMut for $type {}
    };
}

buffers! {
    Vec<T>, self => self.as_ptr(), write;
    Box<[T]>, self => unique(self), write;
    Arc<[T]>, self => self.as_ptr();
    &[T], self => self.as_ptr();
    &mut [T], self => unique(self), write;
    &[Cell<T>], self => self.as_ptr(), cells;
}

// SAFETY: the caller of `Ownership::new` promised it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Elements for Ownership<'_> {
    type Element = u8;

    fn span(&self) -> Span {
        self.piece(0)
    }
}
// SAFETY: the caller of `Ownership::new` promised it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl ElementsMut for Ownership<'_> {}
