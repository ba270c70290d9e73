//! Endpoint slots: data per proc that applications, libraries and transports share.

use crate::run::core::Engine;
use bevy_ecs::prelude::*;
use tickwire_components::slots::EndpointSlot;
use tickwire_components::{NIL, PostError, ProcId};

/// What is reported about a slot.
#[derive(Clone, Debug)]
pub struct SlotInfo {
    /// Its name.
    pub name: String,
    /// Bytes of a value.
    pub bytes: usize,
    /// Whether it was registered at run time.
    pub dynamic: bool,
}

impl Engine {
    /// The slots that are registered.
    pub fn slots(&self) -> &[SlotInfo] {
        &self.slots
    }

    /// The row of a proc in the columns of endpoint slots; contacts the proc if that has not happened.
    ///
    /// # Errors
    /// If there is no such proc, or no transport reaches it.
    pub fn proc_slot_row(&mut self, proc: ProcId) -> Result<u32, PostError> {
        self.proc_row(proc.0)
    }

    /// A proc's value in a static slot. `None` if the proc was never contacted or the slot is not registered.
    ///
    /// For many procs, or inside a tick, use a system with a `Column<T>` instead: it is an array by proc row.
    pub fn slot<T: EndpointSlot>(&mut self, proc: ProcId) -> Option<&mut T> {
        let entity = self.proc_entity(proc)?;
        self.store.get_mut::<T>(entity)
    }

    fn proc_entity(&mut self, proc: ProcId) -> Option<Entity> {
        let row = self.store.all().procs.known.get(proc.0 as usize)?.row;
        if row == NIL {
            return None;
        }
        let table = self.store.as_mut().vc_table();
        self.store.world().storages().tables.get(table)?.entities().get(row as usize).copied()
    }
}

#[cfg(feature = "dynamic-endpoints")]
pub use dynamic::DynamicSlot;

#[cfg(feature = "dynamic-endpoints")]
mod dynamic {
    use super::*;
    use bevy_ecs::component::{ComponentCloneBehavior, ComponentDescriptor, ComponentId, StorageType};
    use bevy_ecs::ptr::OwningPtr;
    use bevy_ecs::world::WorldId;
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::ptr::NonNull;

    /// A dynamic slot: registered at run time by name and layout, allocated for a proc on first use.
    ///
    /// It is of the engine that registered it; another engine has nothing in it.
    ///
    /// ```compile_fail,E0451
    /// # use tickwire::DynamicSlot;
    /// fn longer(slot: DynamicSlot) -> DynamicSlot {
    ///     DynamicSlot { layout: std::alloc::Layout::new::<[u64; 100]>(), ..slot }
    /// }
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DynamicSlot {
        component: ComponentId,
        layout: Layout,
        world: WorldId,
    }

    impl DynamicSlot {
        /// Bytes of a value: those that were asked for, up to a multiple of the alignment.
        pub fn bytes(&self) -> usize {
            self.layout.size()
        }

        /// Alignment of a value, bytes.
        pub fn align(&self) -> usize {
            self.layout.align()
        }
    }

    impl Engine {
        /// Registers a slot of plain bytes by name and layout, at any time. Nothing is allocated for a proc until it is used.
        ///
        /// A name that is registered already gives the same slot, so that independent users can share it.
        ///
        /// # Errors
        /// If the name is registered with another layout.
        pub fn register_slot(&mut self, name: &str, layout: Layout) -> Result<DynamicSlot, String> {
            let layout = layout.pad_to_align();
            if let Some((_, slot)) = self.dynamic_slots.iter().find(|(known, _)| known == name) {
                if slot.layout != layout {
                    return Err(format!(
                        "slot '{name}' is registered with {} bytes aligned to {}, not {} aligned to {}",
                        slot.bytes(),
                        slot.align(),
                        layout.size(),
                        layout.align()
                    ));
                }
                return Ok(*slot);
            }
            // SAFETY: plain bytes need no drop, and are `Send` and `Sync`.
            #[expect(unsafe_code, reason = "a component known by its layout")]
            let descriptor = unsafe {
                ComponentDescriptor::new_with_layout(
                    name.to_owned(),
                    StorageType::SparseSet,
                    layout,
                    None,
                    true,
                    false,
                    ComponentCloneBehavior::Ignore,
                    None,
                )
            };
            let component = self.store.change(|world| world.register_component_with_descriptor(descriptor));
            let component = component.map_err(|error| error.to_string())?;
            let slot = DynamicSlot { component, layout, world: self.store.world().id() };
            self.dynamic_slots.push((name.to_owned(), slot));
            self.slots.push(SlotInfo { name: name.to_owned(), bytes: layout.size(), dynamic: true });
            Ok(slot)
        }

        /// A proc's bytes in a dynamic slot: zeros at first use. `None` if the proc was never contacted, or the slot is of
        /// another engine.
        pub fn dynamic_slot(&mut self, proc: ProcId, slot: DynamicSlot) -> Option<&mut [u8]> {
            if slot.world != self.store.world().id() {
                return None;
            }
            let entity = self.proc_entity(proc)?;
            if self.store.world().get_by_id(entity, slot.component).is_none() {
                // Observers of the application may run.
                let inserted = self.store.change(|world| insert_zeros(world, entity, slot));
                if inserted.is_err() {
                    self.is_lost();
                    return None;
                }
            }
            let value = self.store.get_mut_by_id(entity, slot.component)?;
            // SAFETY: the component is so many plain, initialized bytes: its world is the one that it was registered in.
            #[expect(unsafe_code, reason = "a component known by its layout")]
            Some(unsafe { std::slice::from_raw_parts_mut(value.into_inner().as_ptr(), slot.bytes()) })
        }

        /// How many procs have a value in a dynamic slot.
        pub fn dynamic_slot_uses(&self, slot: DynamicSlot) -> usize {
            match slot.world == self.store.world().id() {
                true => self.store.world().storages().sparse_sets.get(slot.component).map_or(0, |set| set.len()),
                false => 0,
            }
        }
    }

    /// Gives an entity a value of zeros, of any alignment.
    fn insert_zeros(world: &mut World, entity: Entity, slot: DynamicSlot) {
        let DynamicSlot { component, layout, .. } = slot;
        #[expect(unsafe_code, reason = "a component known by its layout")]
        let start = match layout.size() {
            // Without bytes an aligned address is enough.
            0 => std::ptr::without_provenance_mut(layout.align()),
            // SAFETY: a layout with bytes.
            _ => unsafe { alloc_zeroed(layout) },
        };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: the component is of this world, and a value of it is so many plain bytes with this alignment. They are
        // copied.
        #[expect(unsafe_code, reason = "a component known by its layout")]
        unsafe {
            world.entity_mut(entity).insert_by_id(component, OwningPtr::new(start));
        }
        #[expect(unsafe_code, reason = "a component known by its layout")]
        if layout.size() > 0 {
            // SAFETY: allocated above with this layout.
            unsafe { dealloc(start.as_ptr(), layout) }
        }
    }
}
