//! The shared heap: memory of this process that its peers on the host map and read, so that a message of 1 KiB or more is
//! received by one copy out of the sender's buffer, without a system call. Peers that the kernel lets write this process's memory map it for
//! writing, too: buffers of it that are exposed, or made windows, are accessed by loads, stores and atomic operations.
//!
//! # Using it
//!
//! It is off unless the program asks for it, in one of two ways:
//!
//! - The engine's builder (or `TICKWIRE_SHARED_HEAP=1`) opens it, and buffers are [allocated](HeapBuffer) in it one by one.
//!   It must be open when a connection is made: peers map it then.
//! - [`SharedHeap`] as the program's `#[global_allocator]` opens it at the first allocation, and takes all blocks of
//!   [`HEAP_BLOCK_MIN`](tickwire_components::limits::HEAP_BLOCK_MIN) bytes and more from it, so that what is sent need not
//!   be known beforehand. Shorter blocks are the system allocator's.
//!
//! A process that does neither makes no file, maps nothing of its own and offers nothing; it still reads from peers that do.
//!
//! # What it exposes
//!
//! *Every process that connects over shared memory can read the whole shared heap at any time*: not only messages, and not
//! only those for it, but whatever the program keeps there or has kept there and freed. With [`SharedHeap`] as allocator
//! that is nearly all that the program knows, keys and passwords included. Peers are processes of the same user, of the same
//! job, by the kernel's word; where the kernel lets processes of one user read each other's memory (ptrace scope 0), they
//! could do so anyway. Keep secrets out of the shared heap, or do not use it, where peers are trusted less than the program.
//!
//! Peers are passed a descriptor that can only be read, of a file that its mode lets nobody open for writing. The one for writing
//! is this process's own. The kernel gives it to a process that may write this one's memory anyhow (ptrace access), and a peer takes it when
//! it first writes to memory that was offered for that. So nobody who could not write here before can now.
//!
//! # The file
//!
//! A sealed `memfd`, as large as the heap may become and without memory until it is used. Sealed against shrinking and
//! growing, it cannot be cut under those that map it. It is closed by `exec`. Its memory counts as shared memory; it comes
//! back to the system when large blocks are freed, less [`HEAP_KEPT_BYTES`] for
//! reuse. Where the kernel promises memory before it is used (`vm.overcommit_memory` is 2) a file without memory could end
//! the process by a signal, so there is no heap. So it could where files may not be as long (`RLIMIT_FSIZE`, `ulimit -f`): the
//! heap is made shorter then, unless its size was asked for.
//!
//! # Without it
//!
//! Where there is no `memfd`, or once the heap is full, [`SharedHeap`] hands on to the system's allocator: messages go as they
//! would without it, and the program goes on. A [`HeapBuffer`] is refused with a reason.
//!
//! # Children
//!
//! A child of `fork` does not have the heap: it would read and write its parent's memory. It has a private view of it at the
//! same address, so that it can run up to its `exec` (as [`std::process::Command`] does); what it does not write itself
//! there still changes as its parent goes on. So a child that goes on without `exec` may not rely on blocks of the heap. What
//! it allocates is the system allocator's. A child that was made by `clone` alone, without the C library, has no view at all.

mod blocks;
mod buffer;
mod error;
mod peer;
mod shared;
mod space;

pub use buffer::HeapBuffer;
pub use error::{ENV_SHARED_HEAP_BYTES, HeapError};
pub use peer::PeerHeap;
pub use shared::SharedHeap;

use blocks::Blocks;
use rustix::fd::BorrowedFd;
use std::alloc::Layout;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tickwire_components::limits::{HEAP_KEPT_BYTES, HEAP_LARGE_MIN, HEAP_ZEROED_MIN};

/// What the shared heap of this process is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapReport {
    /// Its address space, bytes.
    pub reserved: usize,
    /// What is taken by blocks, bytes.
    pub used: usize,
    /// Blocks that found no room and went to the system's allocator instead.
    pub overflowed: u64,
}

/// What peers are told of the heap of this process.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Its file, for reading.
    pub file: BorrowedFd<'static>,
    /// Where it starts in this process.
    pub base: u64,
    /// How long it is, bytes.
    pub bytes: u64,
}

/// Opens the heap of this process, unless that has been done.
///
/// # Errors
/// Why there is none; it is not tried again.
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

/// What peers are told of the heap of this process; `None` while there is none.
pub fn offer() -> Option<Offer> {
    match HEAP.state() {
        State::On => HEAP.offer(),
        _ => None,
    }
}

/// What the heap of this process is used for; `None` while there is none.
pub fn report() -> Option<HeapReport> {
    let on = matches!(HEAP.state(), State::On);
    on.then(|| HeapReport {
        reserved: HEAP.bytes.load(Ordering::Relaxed),
        used: HEAP.lock().used(),
        overflowed: HEAP.overflowed.load(Ordering::Relaxed),
    })
}

/// How large a heap would be here, bytes. It is made and given up again.
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

/// Whether it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum State {
    Untried,
    Opening,
    On,
    Missing,
    /// In a child of `fork`: the parent's blocks are there to be read, and nothing else may be done with them.
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
    /// 0 until it is open, so that nothing is within it.
    bytes: AtomicUsize,
    file: AtomicI32,
    /// Memory of freed large blocks that was not given back, bytes; an estimate.
    kept: AtomicUsize,
    overflowed: AtomicU64,
    /// Nothing allocates, waits or panics while it is held, and a child of `fork` never takes it.
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

    /// Opens it, if nobody else does. Runs within the allocator: nothing here allocates.
    #[cold]
    fn try_open(&self) {
        // Before anybody can see that it opens: a child that is made meanwhile has no thread that would end it. Threads that
        // come here at a time ask more than once, which does no harm.
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

    /// Whether a block is the heap's.
    #[inline(always)]
    fn owns(&self, block: *mut u8) -> bool {
        // In this order: whoever sees the length sees the base.
        let bytes = self.bytes.load(Ordering::Acquire);
        block.addr().wrapping_sub(self.base.load(Ordering::Relaxed).addr()) < bytes
    }

    /// A block; null if there is no room. Called only while it is on.
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

    /// Takes a block back. Large ones give their memory back before, as far as enough is kept.
    ///
    /// # Safety
    /// The heap's own, of this layout, and nobody uses it any more.
    #[expect(unsafe_code, reason = "an allocator")]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if self.state() != State::On {
            // Its parent's.
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

    /// Gives a block another size; `None` if that cannot be done without moving much.
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

/// What a child does first: its parent's memory is not its own.
extern "C" fn in_child() {
    let state = HEAP.state();
    if !matches!(state, State::Opening | State::On) {
        return;
    }
    if state == State::On {
        let base = HEAP.base.load(Ordering::Relaxed);
        space::make_private(base, HEAP.bytes.load(Ordering::Relaxed), HEAP.file.load(Ordering::Relaxed));
    } else {
        // Nobody has a block of it yet, and the thread that opens it is not in the child.
        HEAP.bytes.store(0, Ordering::Release);
    }
    HEAP.state.store(State::Forked as u8, Ordering::Release);
}

#[cfg(all(test, not(miri)))]
mod tests;
