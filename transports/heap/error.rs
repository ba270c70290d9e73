//! Why the shared heap gives no block, and the variable that sets its size.

use thiserror::Error;
use tickwire_components::limits::{HEAP_BYTES_MAX, HEAP_BYTES_MIN};

/// The variable with the size of the shared heap, bytes.
pub const ENV_SHARED_HEAP_BYTES: &str = "TICKWIRE_SHARED_HEAP_BYTES";

/// Why there is no block of the shared heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The program has not asked for the heap.
    #[error(
        "the shared heap is off: build the engine with Builder::shared_heap(true), set TICKWIRE_SHARED_HEAP=1, or make \
         tickwire::SharedHeap the global allocator; it lets all peers on this host read it"
    )]
    Off,
    /// The system cannot provide one.
    #[error("there is no shared heap, since the system refuses a sealed memfd or its map ({0}): use plain buffers")]
    System(rustix::io::Errno),
    /// The kernel commits memory before it is used.
    #[error("there is no shared heap where vm.overcommit_memory is 2: set it to 0 or 1, or use plain buffers")]
    Overcommit,
    /// Files of this process may not be that long.
    #[error(
        "there is no shared heap where files may have {most} bytes at most (RLIMIT_FSIZE): raise the limit, as `ulimit -f` \
         does, to {HEAP_BYTES_MIN} and to TICKWIRE_SHARED_HEAP_BYTES if that is set, or use plain buffers"
    )]
    FileSize {
        /// What they may have, bytes.
        most: u64,
    },
    /// The variable with its size is not one.
    #[error(
        "there is no shared heap: TICKWIRE_SHARED_HEAP_BYTES must be a number of bytes from {HEAP_BYTES_MIN} to \
         {HEAP_BYTES_MAX}"
    )]
    Bytes,
    /// A child of `fork` cannot use its parent's heap.
    #[error("a child of fork has no shared heap: start the process by exec")]
    Forked,
    /// No room.
    #[error(
        "{asked} bytes do not fit the shared heap, of which {used} of {reserved} bytes are used: free some, or set \
         TICKWIRE_SHARED_HEAP_BYTES higher"
    )]
    Full {
        /// What was asked for, bytes.
        asked: usize,
        /// What is taken, bytes.
        used: usize,
        /// What there is, bytes.
        reserved: usize,
    },
}
