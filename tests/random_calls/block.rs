//! Buffers of random programs. A buffer lies between other elements, in the program's own memory or in the shared
//! heap.

use super::items::Item;
use std::ops::{Deref, DerefMut};
use tickwire::internals::components::{OneRun, Span};
use tickwire::{Engine, HeapBuffer, LeasedBytes, Pieces, Sequence};

/// Number of elements in the margin on each side.
const MARGIN: usize = 3;

/// Elements with a margin on each side. Nobody may change the margins.
pub(crate) struct Block<T: Item>(Memory<T>);

enum Memory<T: Item> {
    Own(Vec<T>),
    Heap(HeapBuffer<T>),
}

impl<T: Item> Block<T> {
    /// A block with these values, in the shared heap of an engine or in its own memory.
    pub(crate) fn of(values: &[T], heap: Option<&Engine>) -> Self {
        let margin = T::run(7, MARGIN);
        let all = [&margin, values, &margin].concat();
        let Some(engine) = heap else { return Block(Memory::Own(all)) };
        let mut buffer = engine.alloc_elements(all.len()).unwrap();
        buffer.copy_from_slice(&all);
        Block(Memory::Heap(buffer))
    }

    fn all(&self) -> &[T] {
        match &self.0 {
            Memory::Own(own) => own,
            Memory::Heap(heap) => heap,
        }
    }

    /// Whether the margins are unchanged.
    pub(crate) fn is_intact(&self) -> bool {
        let (margin, all) = (T::run(7, MARGIN), self.all());
        all.starts_with(&margin) && all.ends_with(&margin)
    }
}

impl<T: Item> Deref for Block<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let all = self.all();
        &all[MARGIN..all.len() - MARGIN]
    }
}

impl<T: Item> DerefMut for Block<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let all = match &mut self.0 {
            Memory::Own(own) => &mut own[..],
            Memory::Heap(heap) => &mut heap[..],
        };
        let end = all.len() - MARGIN;
        &mut all[MARGIN..end]
    }
}

// SAFETY: the elements are on a heap, where they stay while the value is moved about and lives. All of them are its own, so they may be
// written.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl<T: Item> Pieces for Block<T> {
    fn piece(&self, _: usize) -> Span {
        // SAFETY: as above; whoever uses the span holds the value.
        unsafe { Span::new(self.as_ptr().cast::<u8>().cast_mut(), size_of_val(&self[..])) }
    }
}

// SAFETY: it is one run, and has no layout.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<T: Item> OneRun for Block<T> {}

// SAFETY: the run is its own, and any bytes are values of the elements.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<T: Item> LeasedBytes for Block<T> {}

// SAFETY: the run has elements of the type, at their alignment.
#[expect(unsafe_code, reason = "the engine trusts what a buffer type reports")]
unsafe impl<T: Item> Sequence for Block<T> {
    type Item = T;
}
