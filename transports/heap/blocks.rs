//! The blocks of the heap: dlmalloc over one growing range.

use super::space;
use dlmalloc::{Allocator, Dlmalloc};
use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::null_mut;
use tickwire_components::limits::{HEAP_KEPT_BYTES, HEAP_MOVED_MAX};

/// All blocks.
pub(super) struct Blocks {
    blocks: Dlmalloc<Range>,
    used: usize,
}

impl Blocks {
    /// No blocks and no room.
    pub(super) const fn empty() -> Self {
        let range = Range { base: null_mut(), bytes: 0, end: Cell::new(0), touched: Cell::new(0) };
        Blocks { blocks: Dlmalloc::new_with_allocator(range), used: 0 }
    }

    /// Sets the range to allocate from, once.
    pub(super) fn begin(&mut self, base: *mut u8, bytes: usize) {
        *self.blocks.allocator_mut() = Range { base, bytes, end: Cell::new(0), touched: Cell::new(0) };
    }

    /// Bytes of all blocks.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Allocates a block; null if there is no room.
    pub(super) fn alloc(&mut self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and alignment may be asked for.
        #[expect(unsafe_code, reason = "an allocator")]
        let block = unsafe {
            match self.blocks.malloc(layout.size(), layout.align()) {
                // The allocator requests room for a whole block, although some may be free at the end.
                block if block.is_null() && self.blocks.trim(0) => self.blocks.malloc(layout.size(), layout.align()),
                block => block,
            }
        };
        if !block.is_null() {
            self.used += layout.size();
        }
        block
    }

    /// Frees a block.
    ///
    /// # Safety
    /// It is of [`Blocks::alloc`], of this layout, and nobody uses it any more.
    #[expect(unsafe_code, reason = "an allocator")]
    pub(super) unsafe fn dealloc(&mut self, block: *mut u8, layout: Layout) {
        self.used -= layout.size();
        // SAFETY: by this function's contract.
        unsafe { self.blocks.free(block, layout.size(), layout.align()) }
    }

    /// Resizes a block: in place, or, if it is short, by moving it.
    ///
    /// # Safety
    /// As [`Blocks::dealloc`].
    #[expect(unsafe_code, reason = "an allocator")]
    pub(super) unsafe fn resize(&mut self, block: *mut u8, layout: Layout, bytes: usize) -> Option<*mut u8> {
        // Shrinking moves nothing, unless the alignment is unusual.
        let moved = if layout.align() > 2 * align_of::<usize>() || bytes > layout.size() { layout.size() } else { 0 };
        if moved > HEAP_MOVED_MAX {
            return None;
        }
        // SAFETY: by this function's contract.
        let block = unsafe { self.blocks.realloc(block, layout.size(), layout.align(), bytes) };
        if block.is_null() {
            return None;
        }
        self.used = self.used - layout.size() + bytes;
        Some(block)
    }
}

/// The range of the heap. It is allocated from its start, and returned at its end.
struct Range {
    base: *mut u8,
    bytes: usize,
    /// Bytes that are allocated.
    end: Cell<usize>,
    /// Bytes that may have memory; at least `end`.
    touched: Cell<usize>,
}

// SAFETY: addresses of memory that the whole process shares; whoever holds the lock of the heap is the only user.
#[expect(unsafe_code, reason = "owns a range of memory")]
unsafe impl Send for Range {}

// SAFETY: `alloc` gives every byte of the range out once until it is given back by `free_part`.
#[expect(unsafe_code, reason = "what an allocator takes its memory from")]
unsafe impl Allocator for Range {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let end = self.end.get();
        if size > self.bytes - end {
            return (null_mut(), 0, 0);
        }
        self.end.set(end + size);
        self.touched.set(self.touched.get().max(end + size));
        (self.base.wrapping_add(end), size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }

    fn free_part(&self, part: *mut u8, old: usize, new: usize) -> bool {
        let from = part.addr() - self.base.addr();
        if from + old != self.end.get() {
            return false;
        }
        self.end.set(from + new);
        let unused = self.touched.get() - self.end.get();
        if unused > HEAP_KEPT_BYTES {
            // SAFETY: behind the end there are no blocks.
            unsafe { space::give_back(self.base.wrapping_add(self.end.get()), unused) };
            self.touched.set(self.end.get());
        }
        true
    }

    fn free(&self, part: *mut u8, size: usize) -> bool {
        self.free_part(part, size, 0)
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        false
    }

    fn page_size(&self) -> usize {
        rustix::param::page_size()
    }
}
