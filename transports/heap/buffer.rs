//! Buffers in the heap.

use super::{HEAP, HeapError, HeapReport, State};
use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use tickwire_components::limits::HEAP_ALIGN;
use tickwire_components::{Described, Element, Elements, ElementsMut, LeasedBytes, OneRun, Pieces, Sequence, Span};

/// A buffer of elements in this process's shared heap; bytes by default. A receiver on this host copies a message that is sent from it
/// directly out of it, unless the message is short. All peers on this host can read it at any time.
///
/// It is used like a `Vec<T>` of fixed length: for sends and receives of all kinds, in collective operations, in scopes as a slice, under a
/// datatype. It may outlive its engine.
pub struct HeapBuffer<T: Element = u8> {
    start: NonNull<u8>,
    count: usize,
    elements: PhantomData<T>,
}

// SAFETY: it owns its elements as a vector does, and they are plain data.
#[expect(unsafe_code, reason = "owns a block of memory")]
unsafe impl<T: Element> Send for HeapBuffer<T> {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "owns a block of memory")]
unsafe impl<T: Element> Sync for HeapBuffer<T> {}

impl HeapBuffer {
    /// A buffer of `length` zeros, aligned to a cache line. The heap must be [open](super::open).
    ///
    /// # Errors
    /// The heap is off, full, or cannot be had here.
    pub fn new(length: usize) -> Result<Self, HeapError> {
        HeapBuffer::elements(length)
    }
}

impl<T: Element> HeapBuffer<T> {
    /// A buffer of `count` elements, all bytes 0, aligned to a cache line. The heap must be [open](super::open).
    ///
    /// # Errors
    /// The heap is off, full, or cannot be had here.
    pub fn elements(count: usize) -> Result<Self, HeapError> {
        const { assert!(align_of::<T>() <= HEAP_ALIGN, "elements are aligned to a cache line at most") };
        match HEAP.state() {
            State::On => {}
            State::Missing => return Err(HEAP.why_missing()),
            State::Forked => return Err(HeapError::Forked),
            State::Untried | State::Opening => return Err(HeapError::Off),
        }
        let buffer = |start| HeapBuffer { start, count, elements: PhantomData };
        let layout = Self::layout(count);
        if layout.is_some_and(|layout| layout.size() == 0) {
            return Ok(buffer(NonNull::<Line>::dangling().cast()));
        }
        let block = layout.map_or(std::ptr::null_mut(), |layout| HEAP.alloc_zeroed(layout));
        match NonNull::new(block) {
            Some(start) => Ok(buffer(start)),
            None => {
                let HeapReport { reserved, used, .. } =
                    super::report().unwrap_or(HeapReport { reserved: 0, used: 0, overflowed: 0 });
                Err(HeapError::Full { asked: count.saturating_mul(size_of::<T>()), used, reserved })
            }
        }
    }

    fn layout(count: usize) -> Option<Layout> {
        Layout::from_size_align(count.checked_mul(size_of::<T>())?, HEAP_ALIGN).ok()
    }
}

/// The address of a buffer without bytes.
#[repr(align(64))]
struct Line;
const _: () = assert!(align_of::<Line>() == HEAP_ALIGN);

impl<T: Element> Drop for HeapBuffer<T> {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.count).filter(|layout| layout.size() > 0) {
            // SAFETY: the block was made with this layout by `new`, and nobody else has it.
            #[expect(unsafe_code, reason = "an allocator")]
            unsafe {
                HEAP.dealloc(self.start.as_ptr(), layout);
            }
        }
    }
}

impl<T: Element> Deref for HeapBuffer<T> {
    type Target = [T];

    #[inline]
    #[expect(unsafe_code, reason = "owns a block of memory")]
    fn deref(&self) -> &[T] {
        // SAFETY: so many elements of its own, of which any bytes are values; peers map them for reading only.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.count) }
    }
}

impl<T: Element> DerefMut for HeapBuffer<T> {
    #[inline]
    #[expect(unsafe_code, reason = "owns a block of memory")]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed uniquely. What a peer reads meanwhile it takes for no message.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.count) }
    }
}

impl<T: Element> AsRef<[T]> for HeapBuffer<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Element> AsMut<[T]> for HeapBuffer<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: Element> fmt::Debug for HeapBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapBuffer").field("length", &self.count).finish_non_exhaustive()
    }
}

// SAFETY: the bytes are in the heap, so moving the value does not move them.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<T: Element> Pieces for HeapBuffer<T> {
    #[inline]
    fn piece(&self, _index: usize) -> Span {
        // SAFETY: valid while `self` lives; the engine holds it until the request is done.
        unsafe { Span::new(self.start.as_ptr(), size_of_val(&self[..])) }
    }

    fn type_name(&self) -> Option<&'static str> {
        Some(std::any::type_name::<T>())
    }
}
// SAFETY: the value owns its bytes.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<T: Element> LeasedBytes for HeapBuffer<T> {}
// SAFETY: as `Pieces` says where nothing else is said.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<T: Element> OneRun for HeapBuffer<T> {}
// SAFETY: it has elements of the type, at a cache line.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<T: Element> Sequence for HeapBuffer<T> {
    type Item = T;
}

// SAFETY: as for `Pieces`.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<T: Element + Described> Elements for HeapBuffer<T> {
    type Element = T;

    fn span(&self) -> Span {
        self.piece(0)
    }
}
// SAFETY: as for `LeasedBytes`; any bytes are numbers.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<T: Element + Described> ElementsMut for HeapBuffer<T> {}
