//! Endpoint slots: a transport's, a library's or an application's own data about each contacted proc
//! (reference: RFC "Change ompi_proc_t endpoint data lookup").
//!
//! A slot is identified by its Rust type: all code that names the type accesses the same column.

use bevy_ecs::component::{Component, Mutable, StorageType};

/// A static slot: a table component of every contacted proc. It is registered before the first proc is contacted.
///
/// Inside a system, `Column<T>` gives the values of all procs as a slice, indexed by proc row. So a look-up costs as much as
/// `array[row]`.
pub trait EndpointSlot: Component<Mutability = Mutable> + Default {
    /// The name of the slot in reports.
    const NAME: &'static str;
}

/// Fails to compile for a slot that is not a table component.
pub const fn assert_table<T: EndpointSlot>() {
    assert!(matches!(T::STORAGE_TYPE, StorageType::Table), "an endpoint slot is a table component");
}
