//! The content of a call's buffers before the call, and the check after it.

use super::block::Block;
use super::items::Item;
use super::packed;
use super::serial::Part;
use tickwire::internals::components::NoBytes;
use tickwire::{InPlace, List, Packed, Pieces, bytemuck, in_place};

/// One side of the buffers of a call.
pub(crate) trait Side<T> {
    /// Writes other values into the buffer.
    fn fill(&mut self, values: &[T]);
    /// The content. `None` if this side is in place in the other side's buffer.
    fn values(&mut self) -> Option<Vec<T>>;
}

impl<T: Item> Side<T> for Block<T> {
    fn fill(&mut self, values: &[T]) {
        self.copy_from_slice(values);
    }

    fn values(&mut self) -> Option<Vec<T>> {
        assert!(self.is_intact(), "what is beside a buffer has changed");
        Some(self.to_vec())
    }
}

impl<T: Item> Side<T> for &mut [T] {
    fn fill(&mut self, values: &[T]) {
        self.copy_from_slice(values);
    }

    fn values(&mut self) -> Option<Vec<T>> {
        Some(self.to_vec())
    }
}

impl<T: Item> Side<T> for Packed<Vec<T>> {
    fn fill(&mut self, values: &[T]) {
        packed::fill(self, values);
    }

    fn values(&mut self) -> Option<Vec<T>> {
        Some(packed::values(self))
    }
}

impl<T: Item> Side<T> for &mut Packed<Vec<T>> {
    fn fill(&mut self, values: &[T]) {
        packed::fill(self, values);
    }

    fn values(&mut self) -> Option<Vec<T>> {
        Some(packed::values(self))
    }
}

impl<T, U> Side<T> for InPlace<U> {
    fn fill(&mut self, _: &[T]) {}

    fn values(&mut self) -> Option<Vec<T>> {
        None
    }
}

impl<T, S: Side<T>> Side<T> for List<S> {
    fn fill(&mut self, values: &[T]) {
        let mut first = 0;
        for side in &mut self.0 {
            let end = first + side.values().map_or(0, |of| of.len());
            side.fill(&values[first..end]);
            first = end;
        }
    }

    fn values(&mut self) -> Option<Vec<T>> {
        let all: Option<Vec<Vec<T>>> = self.0.iter_mut().map(Side::values).collect();
        Some(all?.into_iter().flatten().collect())
    }
}

/// The buffers of a call.
pub(crate) trait Buffers<T>: Pieces {
    /// Writes the content that the buffers have before the call.
    fn fill(&mut self, part: &Part<T>);
    /// Panics if the buffers do not hold the right content.
    fn compare(&mut self, part: &Part<T>, words: &dyn Fn() -> String);
}

impl<T> Buffers<T> for NoBytes {
    fn fill(&mut self, _: &Part<T>) {}

    fn compare(&mut self, _: &Part<T>, _: &dyn Fn() -> String) {}
}

/// A buffer that is received into, and of which nothing else is sent.
macro_rules! one {
    ($($type:ty),*) => {$(
        impl<T: Item> Buffers<T> for $type {
            fn fill(&mut self, part: &Part<T>) {
                Side::fill(self, &part.receive);
            }

            fn compare(&mut self, part: &Part<T>, words: &dyn Fn() -> String) {
                compare(&mut in_place::<T>(), self, part, words);
            }
        }
    )*};
}

one!(Block<T>, Packed<Vec<T>>);

impl<T: Item, S: Side<T>, R: Side<T>> Buffers<T> for (S, R)
where
    (S, R): Pieces,
{
    fn fill(&mut self, part: &Part<T>) {
        self.0.fill(&part.send);
        self.1.fill(&part.receive);
    }

    fn compare(&mut self, part: &Part<T>, words: &dyn Fn() -> String) {
        compare(&mut self.0, &mut self.1, part, words);
    }
}

/// Panics if both sides do not hold the right content.
#[track_caller]
pub(crate) fn compare<T: Item>(
    send: &mut impl Side<T>,
    receive: &mut impl Side<T>,
    part: &Part<T>,
    words: &dyn Fn() -> String,
) {
    send.values().inspect(|sent| same(sent, &part.send, "send", words));
    receive.values().inspect(|received| same(received, &part.after, "receive", words));
}

/// Compares two slices byte by byte, because floats with different bits may be equal. The panic message shows only a
/// part of the slices.
#[track_caller]
fn same<T: Item>(found: &[T], expected: &[T], what: &str, words: &dyn Fn() -> String) {
    let differs = |(found, expected): (&T, &T)| bytemuck::bytes_of(found) != bytemuck::bytes_of(expected);
    let differs = found.iter().zip(expected).position(differs);
    if found.len() != expected.len() || differs.is_some() {
        let [found_at, expected_at] = [found, expected].map(|of| differs.and_then(|at| of.get(at)));
        let lengths = (found.len(), expected.len());
        panic!("{what} buffer, {lengths:?} elements: {differs:?} is {found_at:?}, not {expected_at:?}\n{}", words());
    }
}
