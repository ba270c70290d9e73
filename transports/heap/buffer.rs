//! Buffers in the heap.

use super::{HEAP, HeapError, HeapReport, State};
use std::alloc::Layout;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use tickwire_components::limits::HEAP_ALIGN;
use tickwire_components::{Elements, ElementsMut, LeasedBytes, OneRun, Pieces, Span};

/// Bytes in the shared heap of this process. A message that is sent from them is copied by its receiver straight out of
/// them, if it is on this host and the message is not short; all peers on this host can read them at any time.
///
/// It is used as a `Vec<u8>` of fixed length: for sends and receives of all kinds, in scopes as a slice, under a datatype.
/// It may outlive its engine.
pub struct HeapBuffer {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it owns its bytes as a vector does.
#[expect(unsafe_code, reason = "owns a block of memory")]
unsafe impl Send for HeapBuffer {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "owns a block of memory")]
unsafe impl Sync for HeapBuffer {}

impl HeapBuffer {
    /// A buffer of `length` zeros, aligned to a cache line. The heap must be [open](super::open).
    ///
    /// # Errors
    /// The heap is off, full, or cannot be had here.
    pub fn new(length: usize) -> Result<Self, HeapError> {
        match HEAP.state() {
            State::On => {}
            State::Missing => return Err(HEAP.why_missing()),
            State::Forked => return Err(HeapError::Forked),
            State::Untried | State::Opening => return Err(HeapError::Off),
        }
        if length == 0 {
            return Ok(HeapBuffer { start: NonNull::<Line>::dangling().cast(), length });
        }
        let block = Self::layout(length).map_or(std::ptr::null_mut(), |layout| HEAP.alloc_zeroed(layout));
        match NonNull::new(block) {
            Some(start) => Ok(HeapBuffer { start, length }),
            None => {
                let HeapReport { reserved, used, .. } =
                    super::report().unwrap_or(HeapReport { reserved: 0, used: 0, overflowed: 0 });
                Err(HeapError::Full { asked: length, used, reserved })
            }
        }
    }

    fn layout(length: usize) -> Option<Layout> {
        Layout::from_size_align(length, HEAP_ALIGN).ok()
    }
}

/// Where a buffer without bytes is.
#[repr(align(64))]
struct Line;
const _: () = assert!(align_of::<Line>() == HEAP_ALIGN);

impl Drop for HeapBuffer {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.length).filter(|layout| layout.size() > 0) {
            // SAFETY: the block was made with this layout by `new`, and nobody else has it.
            #[expect(unsafe_code, reason = "an allocator")]
            unsafe {
                HEAP.dealloc(self.start.as_ptr(), layout);
            }
        }
    }
}

impl Deref for HeapBuffer {
    type Target = [u8];

    #[inline]
    #[expect(unsafe_code, reason = "owns a block of memory")]
    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes of its own, which were cleared; peers map them for reading only.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for HeapBuffer {
    #[inline]
    #[expect(unsafe_code, reason = "owns a block of memory")]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed uniquely. What a peer reads meanwhile it takes for no message.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl AsRef<[u8]> for HeapBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for HeapBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for HeapBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapBuffer").field("length", &self.length).finish_non_exhaustive()
    }
}

// SAFETY: the bytes are in the heap, so moving the value does not move them.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for HeapBuffer {
    #[inline]
    fn piece(&self, _index: usize) -> Span {
        // SAFETY: valid while `self` lives; the engine holds it until the request is done.
        unsafe { Span::new(self.start.as_ptr(), self.length) }
    }

    fn type_name(&self) -> Option<&'static str> {
        Some(std::any::type_name::<u8>())
    }
}
// SAFETY: the value owns its bytes.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl LeasedBytes for HeapBuffer {}
// SAFETY: as `Pieces` says where nothing else is said.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl OneRun for HeapBuffer {}

// SAFETY: as for `Pieces`.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Elements for HeapBuffer {
    type Element = u8;

    fn span(&self) -> Span {
        self.piece(0)
    }
}
// SAFETY: as for `LeasedBytes`; any bytes are numbers.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl ElementsMut for HeapBuffer {}
