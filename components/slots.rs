//! Endpoint slots: a transport's, a library's or an application's own data about each contacted proc
//! (reference: RFC "Change ompi_proc_t endpoint data lookup").
//!
//! A slot belongs to a tag, not to a framework: whoever names the type reads the same column.

use bevy_ecs::component::{Component, Mutable, StorageType};

/// A static slot: a table component of every contacted proc, registered before the first one exists.
///
/// Inside a system, `Column<T>` gives all procs' values as a slice by proc row, so a lookup costs what `array[row]` costs.
pub trait EndpointSlot: Component<Mutability = Mutable> + Default {
    /// The name it is reported under.
    const NAME: &'static str;
}

/// Fails to compile for a slot that is not a table component.
pub const fn assert_table<T: EndpointSlot>() {
    assert!(matches!(T::STORAGE_TYPE, StorageType::Table), "an endpoint slot is a table component");
}
