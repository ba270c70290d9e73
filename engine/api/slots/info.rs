//! What an engine keeps about endpoint slots.

/// The description of a slot.
#[derive(Clone, Debug)]
pub struct SlotInfo {
    /// The slot's name.
    pub name: String,
    /// Bytes of a value.
    pub bytes: usize,
    /// Whether it was registered at run time.
    pub dynamic: bool,
}

#[cfg(feature = "dynamic-endpoints")]
pub use dynamic::DynamicSlot;

#[cfg(feature = "dynamic-endpoints")]
mod dynamic {
    use bevy_ecs::component::ComponentId;
    use bevy_ecs::world::WorldId;
    use std::alloc::Layout;

    /// A dynamic slot: registered at run time by name and layout, allocated for a proc on first use.
    ///
    /// It belongs to the engine that registered it. Another engine has no values in it.
    ///
    /// ```compile_fail,E0451
    /// # use tickwire::DynamicSlot;
    /// fn longer(slot: DynamicSlot) -> DynamicSlot {
    ///     DynamicSlot { layout: std::alloc::Layout::new::<[u64; 100]>(), ..slot }
    /// }
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DynamicSlot {
        pub(crate) component: ComponentId,
        pub(crate) layout: Layout,
        pub(crate) world: WorldId,
    }

    impl DynamicSlot {
        /// Bytes of a value: the size that was asked for, rounded up to a multiple of the alignment.
        pub fn bytes(&self) -> usize {
            self.layout.size()
        }

        /// Alignment of a value, bytes.
        pub fn align(&self) -> usize {
            self.layout.align()
        }
    }
}
