//! Buffers of packed elements. Each element lies between two others that the datatype leaves out.

use super::items::Item;
use tickwire::{Datatype, Packed};

/// Elements at every second place, between others that nobody may change.
pub(crate) fn block<T: Item>(values: &[T]) -> Packed<Vec<T>> {
    let mut all = T::run(7, 2 * values.len() + 1);
    for (place, value) in all.iter_mut().skip(1).step_by(2).zip(values) {
        *place = *value;
    }
    let element = Datatype::of::<T>().resized(0, 2 * size_of::<T>() as isize).expect("a longer extent");
    Packed::at(all, size_of::<T>(), &element, values.len()).expect("all elements are in the buffer")
}

/// Writes other values into the buffer, and packs them.
pub(crate) fn fill<T: Item>(block: &mut Packed<Vec<T>>, values: &[T]) {
    let places = block.elements_mut().iter_mut().skip(1).step_by(2);
    assert_eq!(places.len(), values.len(), "a value for each place");
    places.zip(values).for_each(|(place, value)| *place = *value);
    block.pack();
}

/// The elements that are packed now.
pub(crate) fn values<T: Item>(block: &mut Packed<Vec<T>>) -> Vec<T> {
    let all = block.unpack();
    let between = T::run(7, all.len());
    assert!(all.iter().step_by(2).eq(between.iter().step_by(2)), "what the datatype leaves out has changed");
    all.iter().skip(1).step_by(2).copied().collect()
}
