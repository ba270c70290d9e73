//! Temporary buffers for payloads that arrive before their receive.

use crate::queue::linked;
use crate::{Exclusive, NIL, Row};
use bevy_ecs::component::Component;
use std::mem::ManuallyDrop;

/// A row of the buffer pool. The bytes are on the heap, so they do not move when the table grows. Dropping a row does not free its
/// bytes, since a transport may still have their address; [`crate::Held`] does the same.
///
/// Written by SupplyBuffers (takes a buffer from the pool, or allocates one if the pool has none of that size) and by Transfer (fills
/// it, empties it, gives it back).
#[derive(Component)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Buffer {
    /// The storage; empty in a row that has none yet. Its size is one of [`Buffer::CLASS_BYTES`], or larger than all of them. A
    /// transport may be writing into it, so a shared reference to a row gives no access to the bytes.
    bytes: Exclusive<Box<[u8]>>,
    /// The next row in the same free list.
    pub next: Row,
    /// Bytes of payload in it.
    pub length: u32,
}

linked!(Buffer);

impl Default for Buffer {
    fn default() -> Self {
        Buffer { bytes: Exclusive::default(), next: NIL, length: 0 }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let _ = ManuallyDrop::new(std::mem::take(self.bytes.get()));
    }
}

impl Buffer {
    /// Replaces the storage.
    pub fn store(&mut self, bytes: Box<[u8]>) {
        *self.bytes.get() = bytes;
    }

    /// Bytes of storage.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.bytes.length()
    }

    /// The storage.
    #[inline]
    pub fn bytes(&mut self) -> &mut [u8] {
        self.bytes.get()
    }

    /// Size classes of the pool, bytes. Class 0 holds rows without storage. The last class holds all buffers that are larger than the
    /// other classes; its entry is not the size of any buffer.
    pub const CLASS_BYTES: [usize; 10] =
        [0, 256, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, usize::MAX];
    /// How many classes there are.
    pub const CLASSES: usize = Self::CLASS_BYTES.len();

    /// The smallest class that has buffers for `bytes`. Not every buffer of the last class is large enough.
    #[inline]
    pub fn class_for(bytes: usize) -> usize {
        Self::CLASS_BYTES.iter().position(|&c| bytes <= c).unwrap_or(Self::CLASSES - 1).max(1)
    }

    /// Bytes of storage for so many bytes of payload.
    #[inline]
    pub fn storage_for(bytes: usize) -> usize {
        match Self::CLASS_BYTES[Self::class_for(bytes)] {
            usize::MAX => bytes,
            class => class,
        }
    }

    /// The class this row belongs to.
    #[inline]
    pub fn class(&self) -> usize {
        if self.capacity() == 0 { 0 } else { Self::class_for(self.capacity()) }
    }
}

/// Buffer rows that are reserved for what must go on while unexpected messages hold all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReservedBuffers {
    /// Rows that unexpected messages may not take.
    pub all: u32,
    /// The part of these rows that operations which forward bytes may not take either. It is left to control frames.
    pub control: u32,
}

/// Bytes of temporary buffers that supplies hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForwardBytes {
    /// What they hold now.
    pub used: u64,
    /// What they may hold.
    pub bound: u64,
    /// The most that they have ever held.
    pub most: u64,
}
