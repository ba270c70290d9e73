//! Endpoint slots: data per proc that applications, libraries and transports share.

#[cfg(feature = "dynamic-endpoints")]
mod dynamic;
pub(crate) mod info;

use crate::run::engine::Engine;
use bevy_ecs::prelude::Entity;
use info::SlotInfo;
use tickwire_components::slots::EndpointSlot;
use tickwire_components::{NIL, PostError, ProcId};

impl Engine {
    /// The slots that are registered.
    pub fn slots(&self) -> &[SlotInfo] {
        &self.slots
    }

    /// The row of a proc in the columns of endpoint slots. Contacts the proc if it was not contacted before.
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

    pub(super) fn proc_entity(&mut self, proc: ProcId) -> Option<Entity> {
        let row = self.store.all().procs.known.get(proc.0 as usize)?.row;
        if row == NIL {
            return None;
        }
        let table = self.store.as_mut().vc_table();
        self.store.world().storages().tables.get(table)?.entities().get(row as usize).copied()
    }
}
