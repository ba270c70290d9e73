//! Bevy systems without bevy's change ticks: for systems whose parameters are column views.
//!
//! An ordinary function system advances the world's change tick each time it runs, by an atomic addition that costs
//! more than fetching two columns. Views never look at change ticks, so the engine's own systems run without; and
//! since ticks then advance only for systems of the application, bevy's periodic scan of all ticks stays rare.

use crate::tables::{Tables, initialize_own};
use bevy_ecs::change_detection::{CheckChangeTicks, Tick};
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::InternedSystemSet;
use bevy_ecs::system::{
    RunSystemError, SystemAccess, SystemMeta, SystemParam, SystemParamFunction, SystemState, SystemStateFlags,
};
use bevy_ecs::world::DeferredWorld;
use bevy_ecs::world::unsafe_world_cell::UnsafeWorldCell;
use bevy_utils::prelude::DebugName;
use std::marker::PhantomData;

/// A function of column views as a system.
pub(crate) struct RowSystem<Marker: 'static, F: SystemParamFunction<Marker>> {
    function: F,
    tables: Tables,
    ready: Option<(<F::Param as SystemParam>::State, SystemMeta)>,
    marker: PhantomData<fn() -> Marker>,
}

/// Makes a system of the engine of a function whose parameters are views of its [tables](super::tables).
pub(crate) fn row_system<Marker, F>(function: F, tables: &Tables) -> RowSystem<Marker, F>
where
    F: SystemParamFunction<Marker, In = (), Out = ()>,
{
    RowSystem { function, tables: tables.clone(), ready: None, marker: PhantomData }
}

impl<Marker, F> System for RowSystem<Marker, F>
where
    Marker: 'static,
    F: SystemParamFunction<Marker, In = (), Out = ()>,
{
    type In = ();
    type Out = ();

    fn name(&self) -> DebugName {
        DebugName::type_name::<F>()
    }

    fn flags(&self) -> SystemStateFlags {
        SystemStateFlags::empty()
    }

    #[expect(unsafe_code, reason = "an unsafe method of bevy's trait")]
    #[inline]
    unsafe fn run_unsafe(&mut self, _: (), world: UnsafeWorldCell<'_>) -> Result<(), RunSystemError> {
        let name = std::any::type_name::<F>();
        let Some((state, meta)) = self.ready.as_mut() else { panic!("{name} was not initialized") };
        assert!(self.tables.are_in(world.id()), "{name} is of the engine of another world");
        // SAFETY: the state is of this world, and the caller grants the access that `initialize` returned.
        let parameters = unsafe { F::Param::get_param(state, meta, world, Tick::new(0)) }?;
        self.function.run((), parameters);
        Ok(())
    }

    fn apply_deferred(&mut self, _: &mut World) {}

    fn queue_deferred(&mut self, _: DeferredWorld<'_>) {}

    fn initialize(&mut self, world: &mut World) -> SystemAccess {
        let mut meta = SystemState::<()>::new(world).meta().clone();
        meta.set_name(std::any::type_name::<F>());
        let mut access = SystemAccess::None;
        let state = initialize_own(&self.tables, || F::Param::init_state(world));
        F::Param::init_access(&state, &mut meta, &mut access, world);
        self.ready = Some((state, meta));
        access
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
