//! Endpoint slots that are registered at run time, by name and layout.

use super::info::{DynamicSlot, SlotInfo};
use crate::run::engine::Engine;
use bevy_ecs::component::{ComponentCloneBehavior, ComponentDescriptor, StorageType};
use bevy_ecs::prelude::{Entity, World};
use bevy_ecs::ptr::OwningPtr;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use tickwire_components::ProcId;

impl Engine {
    /// Registers a slot of plain bytes by name and layout, at any time. Nothing is allocated for a proc until it is used.
    ///
    /// Registering a name again gives the same slot, so that independent users can share it.
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

    /// A proc's bytes in a dynamic slot. They are zeros at first use. `None` if the proc was never contacted, or if the slot belongs to
    /// another engine.
    pub fn dynamic_slot(&mut self, proc: ProcId, slot: DynamicSlot) -> Option<&mut [u8]> {
        if slot.world != self.store.world().id() {
            return None;
        }
        let entity = self.proc_entity(proc)?;
        if self.store.world().get_by_id(entity, slot.component).is_none() {
            // Inserting may run observers of the application.
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

/// Gives an entity a value of zero bytes with the slot's layout.
fn insert_zeros(world: &mut World, entity: Entity, slot: DynamicSlot) {
    let DynamicSlot { component, layout, .. } = slot;
    #[expect(unsafe_code, reason = "a component known by its layout")]
    let start = match layout.size() {
        // A value without bytes needs no memory, only an aligned address.
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
