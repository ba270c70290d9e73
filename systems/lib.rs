//! The transforms of tickwire. [`configure`] puts the six systems in a schedule, in the order of [`ProgressSystems::ORDER`].

pub mod collectives;
pub mod procs;
pub mod protocols;
pub mod rows;
mod sets;
pub mod steps;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tick;
pub mod views;

pub use sets::ProgressSystems;

use bevy_ecs::prelude::*;
use std::any::TypeId;
use store::{StoreKey, row_system};

/// Puts the systems of an engine with this store into a schedule, in order. Returns the type of each, by which an executor
/// knows it.
pub fn configure(schedule: &mut Schedule, key: &StoreKey) -> [(TypeId, ProgressSystems); 6] {
    let [first, second, third, fourth, fifth, sixth] = ProgressSystems::ORDER;
    schedule.configure_sets((first, second, third, fourth, fifth, sixth).chain());
    [
        add::<0>(schedule, first, key),
        add::<1>(schedule, second, key),
        add::<2>(schedule, third, key),
        add::<3>(schedule, fourth, key),
        add::<4>(schedule, fifth, key),
        add::<5>(schedule, sixth, key),
    ]
}

fn add<const SET: u8>(schedule: &mut Schedule, set: ProgressSystems, key: &StoreKey) -> (TypeId, ProgressSystems) {
    let system = row_system::<SET>(key.clone(), set);
    let id = type_of(&system);
    schedule.add_systems(system.in_set(set));
    (id, set)
}

fn type_of<T: 'static>(_: &T) -> TypeId {
    TypeId::of::<T>()
}
