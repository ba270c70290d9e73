//! The shared heap: memory of this process that peers on the same host map and read. So a message of 1 KiB or more is received by one copy
//! out of the sender's buffer, without a system call. Peers that the kernel allows to write this process's memory map the heap for writing
//! too: exposed buffers and windows in it are then accessed by loads, stores and atomic operations.
//!
//! # Using it
//!
//! It is off unless the program asks for it, in one of two ways:
//!
//! - The engine's builder (or `TICKWIRE_SHARED_HEAP=1`) opens it, and buffers are [allocated](HeapBuffer) in it one by one.
//!   It must be open when a connection is made: peers map it then.
//! - [`SharedHeap`] as the program's `#[global_allocator]` opens it at the first allocation, and takes all blocks of
//!   [`HEAP_BLOCK_MIN`](tickwire_components::limits::HEAP_BLOCK_MIN) bytes and more from it. So any buffer can be sent this way. Shorter
//!   blocks come from the system allocator.
//!
//! A process that does neither makes no file, maps nothing of its own and offers nothing. It can still read from peers that do.
//!
//! # What it exposes
//!
//! *Every process that connects over shared memory can read the whole shared heap at any time*: not only messages, and not only those for
//! it, but everything that the program keeps there or has kept there and freed. With [`SharedHeap`] as allocator, that is nearly all data
//! of the program, including keys and passwords. Peers are processes of the same user, as the kernel reports, and of the same job. Where
//! the kernel lets processes of one user read each other's memory (ptrace scope 0), they could do so anyway. If peers are trusted less than
//! the program, keep secrets out of the shared heap, or do not use it.
//!
//! Peers are passed a read-only descriptor of a file whose mode lets nobody open it for writing. A peer takes a writable descriptor from
//! this process when it first writes to memory that was offered for that, if the kernel lets it write this process's memory anyway
//! (ptrace access). This keeps peers from writing here by mistake, not by intent: a process of the same user owns the file too, so it can
//! change the mode and open its descriptor again. Who cannot trust the other ranks of a job with the heap's content does not use it.
//!
//! # The file
//!
//! The file is a sealed `memfd`, as long as the heap may become, which uses no memory until it is written. It is sealed against shrinking
//! and growing, so it cannot shrink under processes that map it. It is closed by `exec`. Its memory counts as shared memory. When large
//! blocks are freed, their memory returns to the system, except for [`HEAP_KEPT_BYTES`] kept for reuse. Where the kernel commits memory
//! before it is used (`vm.overcommit_memory` is 2), a file without memory could end the process by a signal, so there is no heap. The same
//! could happen if the file size limit is lower (`RLIMIT_FSIZE`, `ulimit -f`): then the heap is made shorter, unless its size was set
//! explicitly.
//!
//! # Without it
//!
//! Where there is no `memfd`, or once the heap is full, [`SharedHeap`] falls back to the system's allocator: messages travel as they would
//! without the heap, and the program continues. A [`HeapBuffer`] is refused with a reason.
//!
//! # Children
//!
//! A child of `fork` does not share the heap, since it would read and write its parent's memory. It gets a private view at the same
//! address, so that it can run up to its `exec` (as [`std::process::Command`] does). Bytes there that the child has not written itself
//! still change as its parent continues. So a child that continues without `exec` must not rely on blocks of the heap. Its own allocations
//! come from the system allocator. A child made by `clone` alone, without the C library, has no view at all.

mod blocks;
mod buffer;
mod error;
mod peer;
mod shared;
mod space;

pub use buffer::HeapBuffer;
pub use error::{ENV_SHARED_HEAP_BYTES, HeapError};
pub use peer::PeerHeap;
pub(crate) use peer::TMPFS_MAGIC;
pub use shared::SharedHeap;

use blocks::Blocks;
use rustix::fd::BorrowedFd;
use std::alloc::Layout;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tickwire_components::limits::{HEAP_KEPT_BYTES, HEAP_LARGE_MIN, HEAP_ZEROED_MIN};

/// The use of this process's shared heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapReport {
    /// Bytes of its address space.
    pub reserved: usize,
    /// Bytes taken by blocks.
    pub used: usize,
    /// Blocks that found no room and came from the system's allocator instead.
    pub overflowed: u64,
}

/// What peers are told about this process's heap.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Its file, for reading.
    pub file: BorrowedFd<'static>,
    /// Its address in this process.
    pub base: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Opens the heap of this process, unless that has been done.
///
/// # Errors
/// Why there is none. Opening is not tried again.
pub fn open() -> Result<(), HeapError> {
    loop {
        match HEAP.state() {
            State::On => return Ok(()),
            State::Missing => return Err(HEAP.why_missing()),
            State::Forked => return Err(HeapError::Forked),
            State::Untried => HEAP.try_open(),
            State::Opening => rustix::thread::sched_yield(),
        }
    }
}

/// What peers are told about this process's heap; `None` if there is none.
pub fn offer() -> Option<Offer> {
    match HEAP.state() {
        State::On => HEAP.offer(),
        _ => None,
    }
}

/// The use of this process's heap; `None` if there is none.
pub fn report() -> Option<HeapReport> {
    let on = matches!(HEAP.state(), State::On);
    on.then(|| HeapReport {
        reserved: HEAP.bytes.load(Ordering::Relaxed),
        used: HEAP.lock().used(),
        overflowed: HEAP.overflowed.load(Ordering::Relaxed),
    })
}

/// How large a heap would be here, in bytes. It is made and discarded again.
///
/// # Errors
/// Why there would be none.
pub fn possible() -> Result<usize, HeapError> {
    space::make().map(|space| {
        let bytes = space.bytes;
        space.give_up();
        bytes
    })
}

/// The state of the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum State {
    Untried,
    Opening,
    On,
    Missing,
    /// In a child of `fork`: the parent's blocks can only be read.
    Forked,
}

/// The heap of a process. There is one, since a program has one allocator.
struct Heap {
    state: AtomicU8,
    /// A [`HeapError`] in two numbers.
    missing: AtomicI32,
    /// See [`HeapError::FileSize`].
    file_bytes_max: AtomicU64,
    base: AtomicPtr<u8>,
    /// Length in bytes; 0 until the heap is open, so that no address is within it.
    bytes: AtomicUsize,
    file: AtomicI32,
    /// Bytes of freed large blocks that were not returned to the system; an estimate.
    kept: AtomicUsize,
    overflowed: AtomicU64,
    /// Nothing allocates, waits or panics while this is locked, and a child of `fork` never locks it.
    blocks: Mutex<Blocks>,
}

static HEAP: Heap = Heap {
    state: AtomicU8::new(State::Untried as u8),
    missing: AtomicI32::new(0),
    file_bytes_max: AtomicU64::new(0),
    base: AtomicPtr::new(null_mut()),
    bytes: AtomicUsize::new(0),
    file: AtomicI32::new(-1),
    kept: AtomicUsize::new(0),
    overflowed: AtomicU64::new(0),
    blocks: Mutex::new(Blocks::empty()),
};

const MISSING_OVERCOMMIT: i32 = -1;
const MISSING_BYTES: i32 = -2;
const MISSING_FILE_SIZE: i32 = -3;

impl Heap {
    #[inline(always)]
    fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Untried,
            1 => State::Opening,
            2 => State::On,
            3 => State::Missing,
            _ => State::Forked,
        }
    }

    /// Opens the heap, unless another thread does. Runs within the allocator, so nothing here allocates.
    #[cold]
    fn try_open(&self) {
        // Register this before anybody can see that the heap is opening: in a child forked meanwhile, no thread would finish that. Several
        // threads may register it, which does no harm.
        space::after_fork(in_child);
        let (untried, opening) = (State::Untried as u8, State::Opening as u8);
        if self.state.compare_exchange(untried, opening, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        let state = match space::make() {
            Ok(space) => {
                self.lock().begin(space.base, space.bytes);
                self.file.store(space.file, Ordering::Relaxed);
                self.base.store(space.base, Ordering::Relaxed);
                self.bytes.store(space.bytes, Ordering::Release);
                State::On
            }
            Err(error) => {
                let number = match error {
                    HeapError::Overcommit => MISSING_OVERCOMMIT,
                    HeapError::System(errno) => errno.raw_os_error(),
                    HeapError::FileSize { most } => {
                        self.file_bytes_max.store(most, Ordering::Relaxed);
                        MISSING_FILE_SIZE
                    }
                    _ => MISSING_BYTES,
                };
                self.missing.store(number, Ordering::Relaxed);
                State::Missing
            }
        };
        self.state.store(state as u8, Ordering::Release);
    }

    fn why_missing(&self) -> HeapError {
        match self.missing.load(Ordering::Relaxed) {
            MISSING_OVERCOMMIT => HeapError::Overcommit,
            MISSING_BYTES => HeapError::Bytes,
            MISSING_FILE_SIZE => HeapError::FileSize { most: self.file_bytes_max.load(Ordering::Relaxed) },
            errno => HeapError::System(rustix::io::Errno::from_raw_os_error(errno)),
        }
    }

    fn offer(&self) -> Option<Offer> {
        let base = self.base.load(Ordering::Relaxed).expose_provenance() as u64;
        let (file, bytes) = (self.file.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed) as u64);
        // SAFETY: the descriptor was made when the heap was opened, and is never closed.
        #[expect(unsafe_code, reason = "a descriptor of a static")]
        let file = (file >= 0).then(|| unsafe { BorrowedFd::borrow_raw(file) })?;
        Some(Offer { file, base, bytes })
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a block belongs to the heap.
    #[inline(always)]
    fn owns(&self, block: *mut u8) -> bool {
        // Read in this order: a thread that sees the length also sees the base.
        let bytes = self.bytes.load(Ordering::Acquire);
        block.addr().wrapping_sub(self.base.load(Ordering::Relaxed).addr()) < bytes
    }

    /// Allocates a block; null if there is no room. Called only while the heap is open.
    fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = self.lock().alloc(layout);
        if block.is_null() {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
        } else if layout.size() >= HEAP_LARGE_MIN {
            self.keep(|kept| Some(kept.saturating_sub(layout.size())));
        }
        block
    }

    /// As [`Heap::alloc`], its bytes zero.
    fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = self.alloc(layout);
        if block.is_null() {
            return block;
        }
        // SAFETY: a new block of this size, of which nobody else knows.
        #[expect(unsafe_code, reason = "clears a block that was just made")]
        unsafe {
            match layout.size() >= HEAP_ZEROED_MIN && space::give_back(block, layout.size()) {
                true => space::clear_edges(block, layout.size()),
                false => block.write_bytes(0, layout.size()),
            }
        }
        block
    }

    /// Frees a block. The memory of a large one is first returned to the system, once enough is kept.
    ///
    /// # Safety
    /// The heap's own, of this layout, and nobody uses it any more.
    #[expect(unsafe_code, reason = "an allocator")]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if self.state() != State::On {
            // The block belongs to the parent.
            return;
        }
        let size = layout.size();
        let fits = |kept: usize| Some(kept + size).filter(|&kept| kept <= HEAP_KEPT_BYTES);
        if size >= HEAP_LARGE_MIN && !self.keep(fits) {
            // SAFETY: by this function's contract; the memory is the heap's own.
            unsafe { space::give_back(block, size) };
        }
        // SAFETY: by this function's contract.
        unsafe { self.lock().dealloc(block, layout) }
    }

    /// Resizes a block; `None` if that would move many bytes.
    ///
    /// # Safety
    /// As [`Heap::dealloc`].
    #[expect(unsafe_code, reason = "an allocator")]
    unsafe fn resize(&self, block: *mut u8, layout: Layout, bytes: usize) -> Option<*mut u8> {
        if self.state() != State::On {
            return None;
        }
        // SAFETY: by this function's contract.
        unsafe { self.lock().resize(block, layout, bytes) }
    }

    fn keep(&self, change: impl FnMut(usize) -> Option<usize>) -> bool {
        self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
    }
}

/// Runs first in a child, since its parent's memory is not its own.
extern "C" fn in_child() {
    let state = HEAP.state();
    if !matches!(state, State::Opening | State::On) {
        return;
    }
    if state == State::On {
        let base = HEAP.base.load(Ordering::Relaxed);
        space::make_private(base, HEAP.bytes.load(Ordering::Relaxed), HEAP.file.load(Ordering::Relaxed));
    } else {
        // There are no blocks yet, and the thread that opens the heap does not exist in the child.
        HEAP.bytes.store(0, Ordering::Release);
    }
    HEAP.state.store(State::Forked as u8, Ordering::Release);
}

#[cfg(all(test, not(miri)))]
mod tests;
