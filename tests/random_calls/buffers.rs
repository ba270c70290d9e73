//! The content of a call's buffers before the call, and the check after it.

use super::block::Block;
use super::items::Item;
use super::serial::Part;
use tickwire::internals::components::NoBytes;
use tickwire::{List, Pieces, bytemuck};

/// One side of the buffers of a call.
pub(crate) trait Side<T> {
    /// Writes other values into the buffer.
    fn fill(&mut self, values: &[T]);
    /// The content. `None` if this side is in place in the other side's buffer.
    fn values(&self) -> Option<Vec<T>>;
}

impl<T: Item> Side<T> for Block<T> {
    fn fill(&mut self, values: &[T]) {
        self.copy_from_slice(values);
    }

    fn values(&self) -> Option<Vec<T>> {
        assert!(self.is_intact(), "what is beside a buffer has changed");
        Some(self.to_vec())
    }
}

impl<T: Item> Side<T> for tickwire::InPlace<T> {
    fn fill(&mut self, _: &[T]) {}

    fn values(&self) -> Option<Vec<T>> {
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

    fn values(&self) -> Option<Vec<T>> {
        let all: Option<Vec<Vec<T>>> = self.0.iter().map(Side::values).collect();
        Some(all?.into_iter().flatten().collect())
    }
}

/// The buffers of a call.
pub(crate) trait Buffers<T>: Pieces {
    /// Writes the content that the buffers have before the call.
    fn fill(&mut self, part: &Part<T>);
    /// Panics if the buffers do not hold the right content.
    fn compare(&self, part: &Part<T>, words: &dyn Fn() -> String);
}

impl<T> Buffers<T> for NoBytes {
    fn fill(&mut self, _: &Part<T>) {}

    fn compare(&self, _: &Part<T>, _: &dyn Fn() -> String) {}
}

impl<T: Item> Buffers<T> for Block<T> {
    fn fill(&mut self, part: &Part<T>) {
        Side::fill(self, &part.receive);
    }

    fn compare(&self, part: &Part<T>, words: &dyn Fn() -> String) {
        self.values().inspect(|received| same(received, &part.after, "receive", words));
    }
}

impl<T: Item, S: Side<T>, R: Side<T>> Buffers<T> for (S, R)
where
    (S, R): Pieces,
{
    fn fill(&mut self, part: &Part<T>) {
        self.0.fill(&part.send);
        self.1.fill(&part.receive);
    }

    fn compare(&self, part: &Part<T>, words: &dyn Fn() -> String) {
        self.0.values().inspect(|sent| same(sent, &part.send, "send", words));
        self.1.values().inspect(|received| same(received, &part.after, "receive", words));
    }
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
