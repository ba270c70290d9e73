//! The schedule of a tick, and the regular check of change ticks that bevy's world needs.

use crate::run::engine::Engine;
use crate::run::executor::TickExecutor;
use crate::run::watching::Watching;
use bevy_ecs::change_detection::CheckChangeTicks;
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{LogLevel, ScheduleBuildSettings, ScheduleLabel};
use std::sync::Arc;
use tickwire_components::BuildError;
use tickwire_systems::configure;
use tickwire_systems::store::Store;
use tickwire_traces::Counters;

/// The label of the engine's schedule.
#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tick;

/// The schedule of a tick: the systems of the engine and of the application, in order. Bevy adds no steps of its own. `add` adds the
/// systems of the application. Each run makes at most `most` passes.
///
/// # Errors
/// What is wrong with the application's systems.
pub(crate) fn schedule(
    store: &mut Store,
    add: impl IntoIterator<Item = Box<dyn FnOnce(&mut Schedule) + Send>>,
    watching: Watching,
    most: u32,
    counters: Arc<Counters>,
) -> Result<Schedule, BuildError> {
    let mut schedule = Schedule::new(Tick);
    schedule.set_build_settings(ScheduleBuildSettings {
        ambiguity_detection: LogLevel::Error,
        auto_insert_apply_deferred: false,
        ..Default::default()
    });
    let key = store.key();
    let own = configure(&mut schedule, &key);
    for add in add {
        add(&mut schedule);
    }
    schedule.set_executor(TickExecutor::new(watching, key, own, most, counters));
    refuse_conditions(&schedule)?;
    let initialized = store.change(|world| {
        schedule.initialize(world).map_err(|e| BuildError::Schedule(e.to_string(schedule.graph(), world)))?;
        watch_change_ticks(world);
        Ok(())
    });
    initialized.map_err(|error| BuildError::World(error.to_string()))??;
    Ok(schedule)
}

/// The executor does not evaluate run conditions, so there must be none.
fn refuse_conditions(schedule: &Schedule) -> Result<(), BuildError> {
    let graph = schedule.graph();
    let words = |name: String| {
        BuildError::Schedule(format!(
            "{name} has a run condition, which a tick does not evaluate: test the condition inside the system"
        ))
    };
    for (_, system, conditions) in graph.systems.iter() {
        if !conditions.is_empty() {
            return Err(words(system.name().to_string()));
        }
    }
    for (_, set, conditions) in graph.system_sets.iter() {
        if !conditions.is_empty() {
            return Err(words(format!("{set:?}")));
        }
    }
    Ok(())
}

/// A check of change ticks that the world has made, and that the schedule has yet to make.
#[derive(Resource, Default)]
struct TicksDue(Option<CheckChangeTicks>);

/// The world's periodic check of change ticks must reach the systems of the engine's schedule too.
fn watch_change_ticks(world: &mut World) {
    world.init_resource::<TicksDue>();
    world.add_observer(|check: On<CheckChangeTicks>, due: Option<ResMut<TicksDue>>| {
        // The application may have cleared the resources.
        if let Some(mut due) = due {
            due.0 = Some(*check);
        }
    });
}

impl Engine {
    /// Forwards the world's check of change ticks, if one is due, to the systems of the schedule.
    pub(super) fn check_change_ticks(&mut self) {
        match self.store.world().get_resource::<TicksDue>() {
            Some(TicksDue(None)) => return,
            Some(TicksDue(Some(check))) => self.schedule.check_change_ticks(*check),
            // The application has cleared the world's resources.
            None => {}
        }
        let _ = self.store.change(|world| world.insert_resource(TicksDue(None)));
    }
}
