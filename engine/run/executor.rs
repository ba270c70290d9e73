//! The executor of a schedule with systems of the application: it runs the [passes](super::passes) of a tick.

use crate::run::passes::{Passes, Step, Users};
use crate::run::watching::Watching;
use bevy_ecs::error::{BevyError, ErrorContext};
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{FixedBitSet, SystemExecutor, SystemSchedule, SystemWithAccess};
use std::any::TypeId;
use std::sync::Arc;
use tickwire_components::{Exclusive, Pending};
use tickwire_systems::ProgressSystems;
use tickwire_systems::store::StoreKey;
use tickwire_traces::{Counters, DELIVER};

/// Runs the passes as the executor of a schedule with systems of the application.
pub(crate) struct TickExecutor {
    watching: Exclusive<Watching>,
    key: StoreKey,
    own: [(TypeId, ProgressSystems); 6],
    steps: Vec<Step>,
    drain: usize,
    most: u32,
    counters: Arc<Counters>,
}

impl TickExecutor {
    /// An executor that makes at most `most` passes a run, watched by `watching`.
    pub(crate) fn new(
        watching: Watching,
        key: StoreKey,
        own: [(TypeId, ProgressSystems); 6],
        most: u32,
        counters: Arc<Counters>,
    ) -> Self {
        TickExecutor { watching: Exclusive::new(watching), key, own, steps: Vec::new(), drain: 0, most, counters }
    }

    /// Finds out which systems are the engine's and which the application's. The first run after each `init` does this, since `init` cannot
    /// look at systems.
    #[cold]
    fn map(&mut self, systems: &[SystemWithAccess]) {
        let set_of = |id| self.own.iter().find(|(own, _)| *own == id).map(|(_, set)| *set);
        let sets: Vec<Option<ProgressSystems>> = systems.iter().map(|s| set_of(s.system_type())).collect();
        let mut users = DELIVER;
        let mut step = |index: usize| match sets[index] {
            Some(set) => Step::Own(set),
            None => {
                users += 1;
                Step::User {
                    index,
                    number: users,
                    before: sets[..index].iter().rev().flatten().next().map_or(Pending::NONE, |s| s.pending()),
                    after: sets[index..].iter().flatten().next().map_or(Pending::NONE, |s| s.pending()),
                }
            }
        };
        self.steps = (0..systems.len()).map(&mut step).collect();
        self.watching.get().with(|watcher| {
            for (step, system) in self.steps.iter().zip(systems) {
                if let Step::User { number, .. } = step {
                    watcher.name(*number, &system.name().to_string());
                }
            }
        });
        self.drain = sets.iter().position(|s| *s == Some(ProgressSystems::DrainCq)).unwrap_or(0);
        // Systems of the application that stand right before DrainCq belong to a pass that starts there.
        while self.drain > 0 && sets[self.drain - 1].is_none() {
            self.drain -= 1;
        }
    }
}

impl SystemExecutor for TickExecutor {
    fn init(&mut self, _: &SystemSchedule) {
        self.steps.clear();
    }

    fn run(
        &mut self,
        schedule: &mut SystemSchedule,
        world: &mut World,
        _: Option<&FixedBitSet>,
        error_handler: fn(BevyError, ErrorContext),
    ) {
        // SAFETY: systems are run, not replaced.
        #[expect(unsafe_code, reason = "bevy's access for executors")]
        let systems = unsafe { schedule.systems_mut() };
        if self.steps.is_empty() {
            self.map(systems);
        }
        let mut store = self.key.enter(world);
        let passes = Passes { steps: &self.steps, starts: [self.drain, 0], counters: &self.counters, most: self.most };
        let mut users = Users { systems, error_handler };
        self.watching.get().run(&passes, &mut store, &mut users);
    }

    fn set_apply_final_deferred(&mut self, _: bool) {}
}
