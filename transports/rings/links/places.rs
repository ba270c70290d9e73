//! Larger places for the data of a connection's rings, beside the memory that the connection was opened with.

use crate::rings::memory::RawRing;
use smallvec::SmallVec;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// Keeps memory alive.
type Keep = Arc<dyn Any + Send + Sync>;

/// A larger place for the data of a ring, which one side has passed to the other. Its bytes are zero.
pub struct Passed {
    data: NonNull<u8>,
    pub(super) bytes: usize,
    _keep: Keep,
}

impl Passed {
    /// A place of `bytes` zero bytes, a power of two, at `data`.
    ///
    /// # Safety
    /// `data` is aligned to 128 bytes; `bytes` from there on are mapped for reading and writing as long as `keep` lives, and
    /// are accessed by the ends of one ring only.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub unsafe fn new(data: NonNull<u8>, bytes: usize, keep: Keep) -> Self {
        Passed { data, bytes, _keep: keep }
    }

    /// The ring `of` with its data here.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub(super) fn ring(&self, of: &RawRing) -> RawRing {
        // SAFETY: by the contract of `new`; the row keeps the memory with the ring.
        unsafe { of.grown(self.data, self.bytes) }
    }
}

// SAFETY: an address of memory that is kept with it, and accessed through atomics and raw copies only.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Send for Passed {}

/// The larger places of both rings of a connection.
pub(super) struct Grown {
    /// Bytes that either ring may grow to; 0 if they stay as they are.
    pub(super) ring_max: usize,
    pub(super) outgoing: Places,
    pub(super) incoming: Places,
}

/// The grown memory of a ring: what it uses now, unless that is its first memory; then what it is about to move to, if it is about to
/// grow.
#[derive(Default)]
pub(super) struct Places(SmallVec<[Passed; 1]>);

impl Grown {
    /// Both rings use the memory that the connection was opened with.
    pub(super) fn none(ring_max: usize) -> Self {
        Grown { ring_max, outgoing: Places::default(), incoming: Places::default() }
    }
}

impl Places {
    /// One more place was passed.
    pub(super) fn push(&mut self, place: Passed) {
        self.0.push(place);
    }

    /// The place that was passed last will not be used.
    pub(super) fn pop(&mut self) {
        self.0.pop();
    }

    /// The place in which a ring of `capacity` bytes will continue.
    pub(super) fn next(&self, capacity: u64) -> Option<&Passed> {
        self.0.iter().find(|place| place.bytes as u64 > capacity)
    }

    /// Frees all places that are smaller than the ring, which has `capacity` bytes.
    pub(super) fn forget_before(&mut self, capacity: u64) {
        self.0.retain(|place| place.bytes as u64 >= capacity);
    }
}
