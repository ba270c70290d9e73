//! Buffers of cells.

use crate::{LeasedBytes, OneRun, Pieces, Span};
use bytemuck::{AnyBitPattern, NoUninit};
use std::cell::Cell;

/// A borrowed slice of cells. A receive may write them while this thread shares them.
#[derive(Clone, Copy)]
pub struct Cells<'a, T>(pub &'a [Cell<T>]);

// SAFETY: the cells are borrowed, so moving the value does not move them, and have no padding.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<T: NoUninit> Pieces for Cells<'_, T> {
    #[inline]
    fn piece(&self, _index: usize) -> Span {
        // SAFETY: valid while the cells are borrowed.
        unsafe { Span::new(self.0.as_ptr().cast::<u8>().cast_mut(), size_of_val(self.0)) }
    }

    fn type_name(&self) -> Option<&'static str> {
        Some(std::any::type_name::<T>())
    }
}

// SAFETY: as `Pieces` says where nothing else is said.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<T: NoUninit> OneRun for Cells<'_, T> {
    fn may_alias(&self) -> bool {
        true
    }
}

// SAFETY: the elements are cells of this thread, and any bytes are elements.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<T: NoUninit + AnyBitPattern> LeasedBytes for Cells<'_, T> {}
