//! A box that may have a second owner.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A transport on the heap, as a box. Other than a box it may have a [second](super::AnyTransport::second) owner.
pub struct Own<T: ?Sized>(pub(super) Arc<UnsafeCell<T>>);

// SAFETY: it is used as the only owner of its value, by the promise of [`super::AnyTransport::second`].
#[expect(unsafe_code, reason = "as a box")]
unsafe impl<T: ?Sized + Send> Send for Own<T> {}

impl<T: ?Sized> Deref for Own<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: nobody else uses the value meanwhile, by the promise of [`super::AnyTransport::second`].
        #[expect(unsafe_code, reason = "as a box")]
        unsafe {
            &*self.0.get()
        }
    }
}

impl<T: ?Sized> DerefMut for Own<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else uses the value meanwhile, by the promise of [`super::AnyTransport::second`].
        #[expect(unsafe_code, reason = "as a box")]
        unsafe {
            &mut *self.0.get()
        }
    }
}
