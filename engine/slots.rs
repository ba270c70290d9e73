//! Endpoint slots: data per proc that applications, libraries and transports share.

use crate::core::Engine;
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
        Some(self.world.get_mut::<T>(entity)?.into_inner())
    }

    fn proc_entity(&mut self, proc: ProcId) -> Option<Entity> {
        let row = self.tables.send(&mut self.world).procs.known.get(proc.0 as usize)?.row;
        if row == NIL {
            return None;
        }
        let table = self.tables.vc_table();
        self.world.storages().tables.get(table)?.entities().get(row as usize).copied()
    }
}

#[cfg(feature = "dynamic-endpoints")]
mod dynamic {
    use super::*;
    use bevy_ecs::component::{ComponentCloneBehavior, ComponentDescriptor, StorageType};
    use bevy_ecs::ptr::OwningPtr;
    use std::alloc::Layout;
    use std::ptr::NonNull;
    use tickwire_components::slots::DynamicSlot;

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
                if (slot.bytes, slot.align) != (layout.size(), layout.align()) {
                    return Err(format!(
                        "slot '{name}' is registered with {} bytes aligned to {}, not {} aligned to {}",
                        slot.bytes,
                        slot.align,
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
            let component = self.world.register_component_with_descriptor(descriptor);
            let slot = DynamicSlot { component, bytes: layout.size(), align: layout.align() };
            self.dynamic_slots.push((name.to_owned(), slot));
            self.slots.push(SlotInfo { name: name.to_owned(), bytes: layout.size(), dynamic: true });
            Ok(slot)
        }

        /// A proc's bytes in a dynamic slot: zeros at first use. `None` if the proc was never contacted.
        pub fn dynamic_slot(&mut self, proc: ProcId, slot: DynamicSlot) -> Option<&mut [u8]> {
            let entity = self.proc_entity(proc)?;
            let mut entity = self.world.get_entity_mut(entity).ok()?;
            if entity.get_by_id(slot.component).is_err() {
                let mut zeros = vec![0u128; slot.bytes.div_ceil(16).max(1)];
                let start = NonNull::new(zeros.as_mut_ptr().cast::<u8>())?;
                if slot.align > 16 {
                    return None;
                }
                // SAFETY: the component is `bytes` plain bytes aligned to at most 16, and these are as many zeros.
                #[expect(unsafe_code, reason = "a component known by its layout")]
                unsafe {
                    entity.insert_by_id(slot.component, OwningPtr::new(start));
                }
            }
            let value = entity.get_mut_by_id(slot.component).ok()?;
            // SAFETY: the component is `bytes` plain, initialized bytes.
            #[expect(unsafe_code, reason = "a component known by its layout")]
            Some(unsafe { std::slice::from_raw_parts_mut(value.into_inner().as_ptr(), slot.bytes) })
        }

        /// How many procs have a value in a dynamic slot.
        pub fn dynamic_slot_uses(&self, slot: DynamicSlot) -> usize {
            self.world.storages().sparse_sets.get(slot.component).map_or(0, |set| set.len())
        }
    }
}
