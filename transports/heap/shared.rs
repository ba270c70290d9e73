//! The heap as a program's allocator.

use super::{HEAP, State};
use std::alloc::{GlobalAlloc, Layout, System};
use tickwire_components::limits::HEAP_BLOCK_MIN;

/// The shared heap as a program's `#[global_allocator]`: large messages out of any buffer of the program are read by their
/// receivers on this host without a system call.
///
/// ```
/// #[global_allocator]
/// static HEAP: tickwire_transports::SharedHeap = tickwire_transports::SharedHeap;
/// # let bytes = vec![7u8; 100_000];
/// # assert!(bytes.iter().all(|&byte| byte == 7));
/// ```
///
/// **All peers on the host can read nearly all of the program's memory**; see [the module](super) for this, and for what happens without
/// such a heap, when it is full, and in children. The heap has one lock: threads that allocate many blocks of [`HEAP_BLOCK_MIN`] bytes and
/// more at the same time wait for each other. Such programs better [allocate](super::HeapBuffer) buffers in the heap once.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedHeap;

impl SharedHeap {
    /// Whether the heap is open. The first call opens it.
    #[inline(always)]
    fn on() -> bool {
        match HEAP.state() {
            State::On => true,
            State::Untried => Self::open(),
            _ => false,
        }
    }

    #[cold]
    fn open() -> bool {
        HEAP.try_open();
        HEAP.state() == State::On
    }

    /// A block that `alloc` takes from the heap. Null if the heap has none, or if the system is to give it.
    #[inline(always)]
    fn block(layout: Layout, alloc: impl FnOnce() -> *mut u8) -> *mut u8 {
        if Self::on() && layout.size() >= HEAP_BLOCK_MIN { alloc() } else { std::ptr::null_mut() }
    }
}

// SAFETY: blocks are the heap's or the system's, told apart by their address, and each goes back to whose it is.
#[expect(unsafe_code, reason = "an allocator")]
unsafe impl GlobalAlloc for SharedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = Self::block(layout, || HEAP.alloc(layout));
        // SAFETY: by the caller's contract.
        if block.is_null() { unsafe { System.alloc(layout) } } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = Self::block(layout, || HEAP.alloc_zeroed(layout));
        // SAFETY: by the caller's contract.
        if block.is_null() { unsafe { System.alloc_zeroed(layout) } } else { block }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract, and each block goes back to whose it is.
        unsafe {
            match HEAP.owns(block) {
                true => HEAP.dealloc(block, layout),
                false => System.dealloc(block, layout),
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let owned = HEAP.owns(block);
        if !owned && (bytes < HEAP_BLOCK_MIN || !Self::on()) {
            // SAFETY: by the caller's contract.
            return unsafe { System.realloc(block, layout, bytes) };
        }
        // SAFETY: by the caller's contract.
        if owned && let Some(resized) = unsafe { HEAP.resize(block, layout, bytes) } {
            return resized;
        }
        // SAFETY: the caller promised that the new size is one for this alignment. Both blocks are as long as what is copied.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, bytes.min(layout.size()));
                self.dealloc(block, layout);
            }
            new
        }
    }
}
