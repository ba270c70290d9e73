//! Boards: shared memory in which the members of a communicator on one host show each other the operands of collective
//! operations.
//!
//! Every member has a *board* for each communicator. It alone writes it, and the others map it and read it. Operations on a
//! communicator are numbered from 1 on; all members count them alike. A board consists of:
//!
//! | part | bytes | what |
//! |---|---|---|
//! | head | 256 | how many operations its owner has finished, whether it takes part in no more, and whom it has left behind |
//! | 8 slots | 2048 each | one for each operation in progress: number modulo 8 |
//! | cells | 64 KiB, or 2 MiB of a *wide* board | long operands, a chunk at a time |
//!
//! A slot begins with the cache line that its owner writes last: the operation's number, the length and kind of the call, and the
//! operand, if that has at most 32 bytes. So such an operand reaches a reader with one cache line. Behind that line stand three counts of
//! chunks, and room for an operand of up to [`SHORT_MAX`] bytes.
//!
//! *Reuse.* A member begins operation n once all others have finished operation n − 8, which had the same slot. It writes a cell once
//! its readers have consumed what was there before. So a reader always finds what belongs to its own operation, or an older number.
//!
//! *Failed members.* A member waits no more for one to which its connection has failed, so that it can go on. The other one may live, and
//! read yet. So its owner notes on its board whom it leaves behind before it uses a place again, and a reader looks there after it has
//! read.
//!
//! *Trust.* Everything that is read here was written by a peer. Numbers are compared and never used as an index or a length.

mod words;

use crate::heap::PeerHeap;
use crate::hints::{For, prefetch};
use crate::rings::atomics::{AtomicU64, Ordering};
#[cfg(not(all(test, tickwire_loom)))]
use crate::shared::SHARED_ALIGN;
use crate::shared::SharedRun;
use std::ptr::NonNull;
use std::sync::Arc;
use tickwire_components::Span;
use tickwire_components::limits::{BOARD_CELL_BYTES, BOARD_CELL_BYTES_WIDE, BOARD_SLOTS, CACHE_LINE};
#[cfg(not(all(test, tickwire_loom)))]
use words::SLOT_BYTES;
use words::SlotWords;
pub use words::{CHUNKS_MAX, Called, Count, SHORT_MAX, Stage};

/// Bytes of an operand that stands in a slot's first line.
const INLINE_MAX: usize = 32;
/// Bytes of a board.
pub const BOARD_BYTES: usize = size_of::<Layout>() + BOARD_CELL_BYTES;
/// Bytes of a wide board.
pub const BOARD_BYTES_WIDE: usize = size_of::<Layout>() + BOARD_CELL_BYTES_WIDE;

/// What stands before the cells.
#[repr(C, align(128))]
struct Layout {
    finished: AtomicU64,
    closed: AtomicU64,
    _pad: [u64; 14],
    /// Every reader of an operand looks at this, and it is hardly ever written. So it has two lines of its own: processors fetch such a
    /// pair together, and each write of `finished` would take it out of the readers' caches otherwise.
    left_behind: AtomicU64,
    _pad_behind: [u64; 15],
    slots: [Slot; BOARD_SLOTS],
}

#[repr(C, align(128))]
struct Slot {
    begun: AtomicU64,
    what: AtomicU64,
    length: AtomicU64,
    address: AtomicU64,
    inline: [u8; INLINE_MAX],
    counts: [AtomicU64; 3],
    result: AtomicU64,
    _pad: [u64; 4],
    short: [u8; SHORT_MAX],
}

#[cfg(not(all(test, tickwire_loom)))]
const _: () = assert!(std::mem::offset_of!(Slot, counts) == CACHE_LINE);
#[cfg(not(all(test, tickwire_loom)))]
const _: () = assert!(size_of::<Slot>() == SLOT_BYTES && align_of::<Layout>() <= SHARED_ALIGN);
#[cfg(not(all(test, tickwire_loom)))]
const _: () = assert!(size_of::<Layout>() == 256 + BOARD_SLOTS * SLOT_BYTES);

/// Where a board is, and what keeps its memory.
#[derive(Clone)]
struct View {
    layout: NonNull<Layout>,
    cell_bytes: usize,
    _run: SharedRun,
}

// SAFETY: an address in shared memory that is kept. Words are atomics, and everything else is touched by raw copies only.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Send for View {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Sync for View {}

impl View {
    fn new(run: SharedRun) -> Option<Self> {
        let cell_bytes = match run.bytes() {
            BOARD_BYTES => BOARD_CELL_BYTES,
            BOARD_BYTES_WIDE => BOARD_CELL_BYTES_WIDE,
            _ => return None,
        };
        Some(View { layout: run.start().cast(), cell_bytes, _run: run })
    }

    #[inline(always)]
    fn finished(&self) -> &AtomicU64 {
        // SAFETY: within the memory that is kept; only the word is referred to.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            &(*self.layout.as_ptr()).finished
        }
    }

    fn closed(&self) -> &AtomicU64 {
        // SAFETY: as in `finished`.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            &(*self.layout.as_ptr()).closed
        }
    }

    #[inline(always)]
    fn left_behind(&self) -> &AtomicU64 {
        // SAFETY: as in `finished`.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            &(*self.layout.as_ptr()).left_behind
        }
    }

    /// The slot of an operation.
    #[inline(always)]
    fn slot(&self, operation: u64) -> *mut Slot {
        // SAFETY: one of the slots of the memory that is kept. Only its address is taken.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            (&raw mut (*self.layout.as_ptr()).slots).cast::<Slot>().add(operation as usize % BOARD_SLOTS)
        }
    }

    /// The words of a slot.
    #[inline(always)]
    fn words(&self, operation: u64) -> SlotWords<'_> {
        // SAFETY: as in `finished`.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            let slot = self.slot(operation);
            SlotWords {
                begun: &(*slot).begun,
                called: [&(*slot).what, &(*slot).length, &(*slot).address, &(*slot).result],
                counts: &(*slot).counts,
            }
        }
    }

    /// Where a short operand of so many bytes stands.
    #[inline(always)]
    fn short(&self, operation: u64, bytes: usize) -> Span {
        debug_assert!(bytes <= SHORT_MAX);
        let slot = self.slot(operation);
        // SAFETY: both places are as long as that; only addresses are taken.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        unsafe {
            let start =
                if bytes <= INLINE_MAX { (&raw mut (*slot).inline).cast() } else { (&raw mut (*slot).short).cast() };
            Span::new(start, bytes.min(SHORT_MAX))
        }
    }

    /// The cells from byte `first` on, at most `bytes` of them.
    #[inline(always)]
    fn cells(&self, first: usize, bytes: usize) -> Span {
        // SAFETY: the cells stand behind the layout in the memory that is kept; only their address is taken.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        let cells = unsafe { Span::new(self.layout.as_ptr().add(1).cast(), self.cell_bytes) };
        cells.part(first, bytes)
    }
}

/// The own board of a communicator.
pub struct OwnBoard {
    view: View,
    /// The last long operation that has begun here.
    long: AtomicU64,
}

impl OwnBoard {
    /// A board in a new run of memory; `None` if that has neither [`BOARD_BYTES`] nor [`BOARD_BYTES_WIDE`].
    pub fn new(run: SharedRun) -> Option<Self> {
        View::new(run).map(|view| OwnBoard { view, long: AtomicU64::new(0) })
    }

    /// Whether it has the cells of a wide board.
    pub fn is_wide(&self) -> bool {
        self.view.cell_bytes == BOARD_CELL_BYTES_WIDE
    }

    /// Shows that an operation has begun, and what it was called with. A short operand must be in the slot before.
    #[inline(always)]
    pub fn begin(&self, operation: u64, called: Called) {
        self.view.words(operation).begin(operation, called);
    }

    /// As [`OwnBoard::begin`], of a long operation, whose operand others get chunk by chunk.
    pub fn begin_long(&self, operation: u64, called: Called) {
        self.long.store(operation, Ordering::Relaxed);
        self.begin(operation, called);
    }

    /// Says how many chunks are done.
    #[inline(always)]
    pub fn set(&self, operation: u64, count: Count, chunks: u64) {
        self.view.words(operation).set(operation, count, chunks);
    }

    /// Shows that this member gives an operation up: whoever waits for any part of it stops waiting.
    #[cold]
    pub fn abandon(&self, operation: u64) {
        self.view.words(operation).abandon(operation);
    }

    /// Shows how many operations this member has finished. The last of them had a short operand of so many bytes, or 0.
    ///
    /// Prefetches the next slot for writing: its first line, and those of an operand of the same length. The members that read the slot's
    /// last operation still have these lines in their caches, but are likely done with them. Without this, an operand of 1 KiB is written
    /// only when each of its lines has come back from another processor.
    #[inline(always)]
    pub fn finish(&self, operations: u64, short: usize) {
        words::say(self.view.finished(), operations);
        prefetch(self.view.slot(operations + 1).cast_const().cast(), For::Write);
        if short > INLINE_MAX {
            let next = self.view.short(operations + 1, short);
            let lines = (0..next.len()).step_by(CACHE_LINE);
            lines.for_each(|line| prefetch(next.start().cast_const().wrapping_add(line), For::Write));
        }
    }

    /// Says that this member takes part in no further operation. A long operation that has begun is given up. A short one is complete in
    /// its slot, so others may still finish it.
    pub fn close(&self) {
        let next = words::read(self.view.finished()) + 1;
        if self.long.load(Ordering::Relaxed) == next
            && let Stage::At(_) = self.view.words(next).begun(next)
        {
            self.abandon(next);
        }
        words::say(self.view.closed(), 1);
    }

    /// Says for which members this one waits no more, a bit for each rank: what they still read may be overwritten from now on.
    #[cold]
    pub fn leave_behind(&self, members: u32) {
        words::leave_behind(self.view.left_behind(), members);
    }

    /// Where a short operand goes, before [`OwnBoard::begin`].
    #[inline(always)]
    pub fn short(&self, operation: u64, bytes: usize) -> Span {
        self.view.short(operation, bytes)
    }

    /// A part of the cells.
    #[inline(always)]
    pub fn cells(&self, first: usize, bytes: usize) -> Span {
        self.view.cells(first, bytes)
    }
}

/// The board of another member, for reading.
pub struct PeerBoard {
    view: View,
    heap: Option<Arc<PeerHeap>>,
}

impl PeerBoard {
    /// A board that a peer writes, and its shared heap, if this process maps that. `None` if the run has neither [`BOARD_BYTES`] nor
    /// [`BOARD_BYTES_WIDE`].
    pub fn new(run: SharedRun, heap: Option<Arc<PeerHeap>>) -> Option<Self> {
        View::new(run).map(|view| PeerBoard { view, heap })
    }

    /// Whether it has the cells of a wide board.
    pub fn is_wide(&self) -> bool {
        self.view.cell_bytes == BOARD_CELL_BYTES_WIDE
    }

    /// Whether the member has begun an operation.
    #[inline(always)]
    pub fn begun(&self, operation: u64) -> Stage {
        self.view.words(operation).begun(operation)
    }

    /// What the member called an operation with. Valid once [`PeerBoard::begun`] says that it has begun.
    #[inline(always)]
    pub fn called(&self, operation: u64) -> Called {
        self.view.words(operation).called()
    }

    /// How many chunks it has done.
    #[inline(always)]
    pub fn count(&self, operation: u64, count: Count) -> Stage {
        self.view.words(operation).count(operation, count)
    }

    /// How many operations it has finished.
    #[inline(always)]
    pub fn finished(&self) -> u64 {
        words::read(self.view.finished())
    }

    /// Whether it takes no part in any further operation.
    pub fn is_closed(&self) -> bool {
        words::read(self.view.closed()) != 0
    }

    /// Whether the member may have overwritten what the member `rank` has read from its board or memory until now.
    #[inline(always)]
    pub fn has_left_behind(&self, rank: u32) -> bool {
        words::has_left_behind(self.view.left_behind(), rank)
    }

    /// Where its short operand of so many bytes stands. For reading.
    #[inline(always)]
    pub fn short(&self, operation: u64, bytes: usize) -> Span {
        self.view.short(operation, bytes)
    }

    /// A part of its cells. For reading.
    #[inline(always)]
    pub fn cells(&self, first: usize, bytes: usize) -> Span {
        self.view.cells(first, bytes)
    }

    /// Whether this process maps its shared heap.
    pub fn has_heap(&self) -> bool {
        self.heap.is_some()
    }

    /// Where bytes of its shared heap are in this process. `address` is their address in the peer's process. For reading.
    pub fn find(&self, address: u64, bytes: usize) -> Option<Span> {
        self.heap.as_ref()?.find(address, bytes as u64)
    }
}

#[cfg(all(test, not(tickwire_loom)))]
mod tests;
