//! The engine's systems as systems of bevy: what each one reads and writes, and how it gets at the rows.
//!
//! An ordinary function system advances the world's change tick each time it runs, by an atomic addition that costs more than fetching two
//! columns. The engine's systems never use change ticks, so they skip this. Since only systems of the application then advance the tick,
//! bevy's periodic scan of all ticks stays rare.

use super::StoreKey;
use super::addresses::ColumnName;
use super::guard::Shared;
use crate::sets::ProgressSystems;
use bevy_ecs::change_detection::{CheckChangeTicks, Tick};
use bevy_ecs::component::ComponentId;
use bevy_ecs::prelude::*;
use bevy_ecs::query::FilteredAccess;
use bevy_ecs::schedule::InternedSystemSet;
use bevy_ecs::system::{RunSystemError, SystemAccess, SystemStateFlags};
use bevy_ecs::world::DeferredWorld;
use bevy_ecs::world::unsafe_world_cell::UnsafeWorldCell;
use bevy_utils::prelude::DebugName;
use std::sync::Arc;

/// Makes a bevy system from the engine's system of a set. Each `SET` gives a type of its own, by which an executor recognizes the system.
pub fn row_system<const SET: u8>(key: StoreKey, set: ProgressSystems) -> impl System<In = (), Out = ()> {
    RowSystem::<SET> { shared: key.shared, set }
}

struct RowSystem<const SET: u8> {
    shared: Arc<Shared>,
    set: ProgressSystems,
}

impl<const SET: u8> RowSystem<SET> {
    fn declare(&self) -> SystemAccess {
        let mut access = SystemAccess::None;
        let (columns, row_states) = (self.shared.guard.columns(), self.shared.guard.row_states());
        let mut add = |component: ComponentId, write: bool| {
            let mut filter = FilteredAccess::default();
            match write {
                true => filter.add_write(component),
                false => filter.add_read(component),
            }
            access.ensure_filtered_access(filter);
        };
        self.set.access().reads.iter().for_each(|name| add(columns.component(*name), false));
        self.set.access().writes.iter().for_each(|name| add(columns.component(*name), true));
        [ColumnName::Endpoint, ColumnName::Arrival].into_iter().for_each(|name| add(columns.component(name), true));
        row_states.into_iter().for_each(|component| add(component, true));
        access
    }
}

impl<const SET: u8> System for RowSystem<SET> {
    type In = ();
    type Out = ();

    fn name(&self) -> DebugName {
        DebugName::borrowed(self.set.name())
    }

    fn flags(&self) -> SystemStateFlags {
        SystemStateFlags::empty()
    }

    #[expect(unsafe_code, reason = "an unsafe method of bevy's trait")]
    #[inline]
    unsafe fn run_unsafe(&mut self, _: (), world: UnsafeWorldCell<'_>) -> Result<(), RunSystemError> {
        assert!(self.shared.guard.is_of(world.id()), "{} is of the engine of another world", self.set.name());
        // SAFETY: the addresses are those of this world, and the caller grants the access that `initialize` returned: to
        // the columns that the system uses.
        let (rows, mut wire) = unsafe { self.shared.addresses.rows() };
        self.set.run(rows, &mut wire);
        Ok(())
    }

    fn apply_deferred(&mut self, _: &mut World) {}

    fn queue_deferred(&mut self, _: DeferredWorld<'_>) {}

    fn initialize(&mut self, _: &mut World) -> SystemAccess {
        self.declare()
    }

    fn check_change_tick(&mut self, _: CheckChangeTicks) {}

    fn default_system_sets(&self) -> Vec<InternedSystemSet> {
        Vec::new()
    }

    fn get_last_run(&self) -> Tick {
        Tick::new(0)
    }

    fn set_last_run(&mut self, _: Tick) {}
}
