//! A box that may have a second owner.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value on the heap, like a box. Unlike a box it may have a [second](Own::second) owner, which is another part of the same engine.
/// Only one thread at a time may use them; no lock is taken.
pub struct Own<T: ?Sized>(Arc<UnsafeCell<T>>);

// SAFETY: it is used as the only owner of its value, by the promise of [`Own::second`].
#[expect(unsafe_code, reason = "as a box")]
unsafe impl<T: ?Sized + Send> Send for Own<T> {}

impl<T> Own<T> {
    /// The first owner of a value.
    pub fn new(value: T) -> Self {
        Own(Arc::new(UnsafeCell::new(value)))
    }
}

impl<T: ?Sized> Own<T> {
    /// A second owner of the same value. The value is dropped with the last of its owners.
    ///
    /// # Safety
    /// The caller uses both owners as if they were one: from one thread at a time, and neither while a reference from the other one
    /// lives.
    #[expect(unsafe_code, reason = "two owners of one value")]
    pub unsafe fn second(&self) -> Self {
        Own(self.0.clone())
    }
}

impl<T: ?Sized> From<Box<T>> for Own<T> {
    fn from(value: Box<T>) -> Self {
        // SAFETY: a cell has the layout of its value, and the box was the only owner.
        #[expect(unsafe_code, reason = "a box of a value as a box of its cell")]
        let cell = unsafe { Box::from_raw(Box::into_raw(value) as *mut UnsafeCell<T>) };
        Own(Arc::from(cell))
    }
}

impl<T: ?Sized> Deref for Own<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: nobody else uses the value meanwhile, by the promise of [`Own::second`].
        #[expect(unsafe_code, reason = "as a box")]
        unsafe {
            &*self.0.get()
        }
    }
}

impl<T: ?Sized> DerefMut for Own<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else uses the value meanwhile, by the promise of [`Own::second`].
        #[expect(unsafe_code, reason = "as a box")]
        unsafe {
            &mut *self.0.get()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_with_the_last_of_its_owners() {
        let value = Arc::new(5);
        let boxed: Box<dyn Fn() -> i32 + Send> = Box::new({
            let value = value.clone();
            move || *value
        });
        let first = Own::from(boxed);
        // SAFETY: they are used one after the other.
        #[expect(unsafe_code, reason = "two owners of one value")]
        let second = unsafe { first.second() };
        drop(first);
        assert_eq!((second(), Arc::strong_count(&value)), (5, 2));
        drop(second);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn what_one_owner_writes_the_other_reads() {
        let mut first = Own::new(1);
        // SAFETY: they are used one after the other.
        #[expect(unsafe_code, reason = "two owners of one value")]
        let mut second = unsafe { first.second() };
        *first += 1;
        *second += 1;
        assert_eq!((*first, *second), (3, 3));
    }
}
