//! The basic types, and buffers of them.

use super::Datatype;
use crate::{Ownership, Pieces, Span};
use std::cell::Cell;
use std::sync::Arc;

mod sealed {
    pub trait Sealed {}
}

/// A number of Rust's own, of which all other types are made. Every pattern of its bits is a value.
pub trait Basic: sealed::Sealed + Copy + Send + Sync + 'static {
    /// Its type: size and alignment are those of Rust.
    fn datatype() -> Datatype {
        Datatype::of::<Self>()
    }
}

/// A buffer of numbers that stands still while the value is moved about: `Vec<f64>`, `&mut [i32]`, `&[Cell<u8>]` and so on.
///
/// # Safety
/// [`Numbers::span`] must keep giving the same address while the value is moved about, and it must stay valid as long as
/// the value lives: for reads, and if the type is also [`NumbersMut`] for writes of any bytes.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
pub unsafe trait Numbers {
    /// What it holds.
    type Number: Basic;

    /// Its bytes.
    fn span(&self) -> Span;
}

/// A buffer of numbers that may be written.
///
/// # Safety
/// As [`Numbers`]; nobody else uses the bytes while the value lives.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
pub unsafe trait NumbersMut: Numbers {
    /// Its bytes, to be written.
    fn span_mut(&mut self) -> Span {
        self.span()
    }
}

macro_rules! basic {
    ($($type:ty)*) => {$(
        impl sealed::Sealed for $type {}
        impl Basic for $type {}
    )*};
}

basic!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

macro_rules! buffers {
    ($($type:ty $(, $write:ident)?;)*) => {$(
        // SAFETY: the numbers are on the heap or borrowed, so moving the value does not move them.
        #[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
        unsafe impl<T: Basic> Numbers for $type {
            type Number = T;

            fn span(&self) -> Span {
                // SAFETY: valid while `self` lives; whoever uses the span holds the value.
                unsafe { Span::new(self.as_ptr().cast::<u8>().cast_mut(), size_of_val(&self[..])) }
            }
        }
        $(buffers!(@$write $type);)?
    )*};
    (@write $type:ty) => {
        // SAFETY: the value owns or mutably borrows its numbers, and any bytes are numbers.
        #[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
        unsafe impl<T: Basic> NumbersMut for $type {
            fn span_mut(&mut self) -> Span {
                // SAFETY: as above, and from a unique borrow.
                unsafe { Span::new(self.as_mut_ptr().cast(), size_of_val(&self[..])) }
            }
        }
    };
    (@cells $type:ty) => {
        // SAFETY: cells of this thread may be written through a shared borrow.
        #[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
        unsafe impl<T: Basic> NumbersMut for $type {}
    };
}

buffers! {
    Vec<T>, write;
    Box<[T]>, write;
    Arc<[T]>;
    &[T];
    &mut [T], write;
    &[Cell<T>], cells;
}

// SAFETY: the caller of `Ownership::new` promised it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Numbers for Ownership<'_> {
    type Number = u8;

    fn span(&self) -> Span {
        self.piece(0)
    }
}
// SAFETY: the caller of `Ownership::new` promised it.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl NumbersMut for Ownership<'_> {}
