//! Temporary buffers for payloads that arrive before their receive.

use crate::{Exclusive, NIL, Row};
use bevy_ecs::component::Component;
use std::mem::ManuallyDrop;

/// A row of the buffer pool. The bytes are on the heap, so they stay where they are when the table grows. A row that is
/// dropped leaves them to whoever has their address, as [`crate::Held`] does.
///
/// Written by SupplyBuffers (taken, allocated where the pool has none of the size), Transfer (filled, emptied, given back).
#[derive(Component)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Buffer {
    /// The storage; empty in a row that has none yet. Its size is one of [`Buffer::CLASS_BYTES`], or above them. A transport
    /// may be writing it, so that a shared row gives no bytes.
    bytes: Exclusive<Box<[u8]>>,
    /// Next row of the free list it is in.
    pub next: Row,
    /// Bytes of payload in it.
    pub length: u32,
}

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
    /// Gives it other storage.
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

    /// Sizes that are kept apart in the pool, bytes. The first means: no storage; the last, which is no buffer's, any size
    /// above the others.
    pub const CLASS_BYTES: [usize; 10] =
        [0, 256, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, usize::MAX];
    /// How many classes there are.
    pub const CLASSES: usize = Self::CLASS_BYTES.len();

    /// The class whose buffers take `bytes`.
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
