//! Memory that is lent to providers. It does not move, and is freed after everything that may touch it.

use libfabric_sys as sys;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::ptr::NonNull;
use tickwire_components::Span;

/// Alignment of a slab: a page, which suits registration.
const ALIGN: usize = 4096;

/// Places of one size, one behind the other. They are zeroed, and use no memory until they are written.
pub(super) struct Slab {
    base: NonNull<u8>,
    layout: Layout,
    place_bytes: usize,
}

// SAFETY: memory of its own; who uses which place is for the owner to say.
#[expect(unsafe_code, reason = "memory that a provider is given")]
unsafe impl Send for Slab {}

impl Slab {
    /// `count` places of `place_bytes` each, both at least 1.
    pub(super) fn new(count: usize, place_bytes: usize) -> Self {
        let bytes = count.max(1) * place_bytes.max(1);
        let Ok(layout) = Layout::from_size_align(bytes, ALIGN) else { panic!("a slab of {bytes} bytes") };
        // SAFETY: at least one byte.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Slab { base, layout, place_bytes: place_bytes.max(1) }
    }

    /// One place.
    #[inline]
    pub(super) fn place(&self, index: usize) -> Span {
        let at = index * self.place_bytes;
        assert!(at + self.place_bytes <= self.layout.size(), "a place of the slab");
        // SAFETY: within the allocation, which lives as long as the slab.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        unsafe {
            Span::new(self.base.as_ptr().add(at), self.place_bytes)
        }
    }

    /// The part of a place that starts at an address and has `length` bytes, if it is within that place.
    #[inline]
    pub(super) fn part(&self, index: usize, address: *mut c_void, length: usize) -> Option<Span> {
        let place = self.place(index);
        let offset = (address as usize).checked_sub(place.start() as usize)?;
        (offset.checked_add(length)? <= place.len()).then(|| place.part(offset, length))
    }

    /// All of it.
    pub(super) fn whole(&self) -> Span {
        // SAFETY: the allocation, which lives as long as the slab.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        unsafe {
            Span::new(self.base.as_ptr(), self.layout.size())
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: from `alloc_zeroed` with the same layout.
        #[expect(unsafe_code, reason = "memory that a provider is given")]
        unsafe {
            dealloc(self.base.as_ptr(), self.layout);
        }
    }
}

/// Operation contexts, one for each operation, by which completions are identified.
pub(super) struct Contexts(Slab);

/// Bytes of a context. It is a constant, since a division turns a completion's context into an index.
const CONTEXT_BYTES: usize = size_of::<sys::fi_context2>();

impl Contexts {
    pub(super) fn new(count: usize) -> Self {
        Contexts(Slab::new(count, CONTEXT_BYTES))
    }

    /// The context to post an operation with.
    #[inline]
    pub(super) fn of(&self, index: usize) -> *mut c_void {
        self.0.place(index).start().cast()
    }

    /// The index of the operation that a context belongs to.
    #[inline]
    pub(super) fn index(&self, context: *mut c_void) -> Option<usize> {
        let offset = (context as usize).checked_sub(self.0.base.as_ptr() as usize)?;
        let whole = offset < self.0.layout.size() && offset.is_multiple_of(CONTEXT_BYTES);
        whole.then_some(offset / CONTEXT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_known_by_their_address() {
        let contexts = Contexts::new(3);
        for index in 0..3 {
            assert_eq!(contexts.index(contexts.of(index)), Some(index));
        }
        let first = contexts.of(0) as usize;
        for wrong in [0, first - 64, first + 1, first + 192] {
            assert_eq!(contexts.index(wrong as *mut c_void), None);
        }
    }

    #[test]
    fn places_are_one_behind_the_other() {
        let slab = Slab::new(2, 100);
        let (first, second) = (slab.place(0), slab.place(1));
        assert_eq!((first.len(), second.start() as usize - first.start() as usize), (100, 100));
        assert_eq!((slab.whole().start(), slab.whole().len()), (first.start(), 200));
        assert_eq!(slab.part(1, second.start().cast(), 100).map(|part| part.len()), Some(100));
        let outside = [(1, second, 101), (0, second, 1), (1, first, 1), (1, second, usize::MAX)];
        assert!(outside.iter().all(|(index, at, length)| slab.part(*index, at.start().cast(), *length).is_none()));
    }
}
