//! The passes of a tick, and the executor that runs them where the application has systems.
//!
//! There is one loop of passes ([`Passes::run`]). An engine without systems of the application runs it over its own six; with
//! some, bevy's schedule says where they stand, and its executor runs the same loop.

use crate::run::watch::{Watch, Watching};
use bevy_ecs::error::{BevyError, ErrorContext};
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{FixedBitSet, SystemExecutor, SystemSchedule, SystemWithAccess};
use bevy_ecs::system::{RunSystemError, System};
use std::any::TypeId;
use std::sync::Arc;
use tickwire_components::Pending;
use tickwire_systems::ProgressSystems;
use tickwire_systems::procs::connections::maintain;
use tickwire_systems::procs::receipts::note;
use tickwire_systems::store::{StoreKey, StoreMut};
use tickwire_traces::{Counters, DELIVER};

/// A system as the loop sees it.
#[derive(Clone, Copy)]
enum Step {
    Own(ProgressSystems),
    /// Of the application: its place in the schedule, its number for those who watch, and the bits of the sets around it.
    User {
        index: usize,
        number: usize,
        before: Pending,
        after: Pending,
    },
}

/// The systems of the engine, in order.
const OWN: [Step; 6] = {
    let [post, matching, supply, transfer, drain, complete] = ProgressSystems::ORDER;
    [
        Step::Own(post),
        Step::Own(matching),
        Step::Own(supply),
        Step::Own(transfer),
        Step::Own(drain),
        Step::Own(complete),
    ]
};

/// Where DrainCq is among them.
const OWN_DRAIN: usize = 4;

/// Runs the systems of a tick in passes.
///
/// One of the engine's systems runs if its bit in `Progress::pending` is set, one of the application's once per pass in
/// which the set before or after it has run. Deferred commands are applied right after the system that made them. A
/// pass that follows an arrival starts at DrainCq; passes go on until nothing is pending or `most` have run.
pub(crate) struct Passes<'a> {
    steps: &'a [Step],
    drain: usize,
    pub(crate) counters: &'a Counters,
    pub(crate) most: u32,
}

impl<'a> Passes<'a> {
    /// Those of an engine without systems of the application.
    pub(crate) fn own(counters: &'a Counters, most: u32) -> Self {
        Passes { steps: &OWN, drain: OWN_DRAIN, counters, most }
    }

    /// Runs them; how many there were.
    pub(crate) fn run(&self, watch: &mut impl Watch, store: &mut StoreMut<'_>, users: &mut Users<'_>) -> u32 {
        let progress = store.progress();
        // What Deliver leaves to DrainCq.
        progress.budget += progress.drained_min;
        if !progress.senders.is_empty() {
            progress.pending |= Pending::POST | Pending::TRANSFER;
        }
        let receipts = progress.receipts.unfinished > 0;
        let mut first = if store.progress().pending == Pending::DRAIN { self.drain } else { 0 };
        for pass in 1..=self.most {
            let mut ran = Pending::NONE;
            for step in &self.steps[first..] {
                match *step {
                    Step::Own(set) => {
                        let pending = &mut store.progress().pending;
                        if !pending.has(set.pending()) {
                            continue;
                        }
                        pending.clear(set.pending());
                        ran |= set.pending();
                        self.counters.ran(set as usize);
                        watch.run(set as usize, store, |store| store.with(|rows, wire| set.run(rows, wire)));
                        if receipts {
                            note(store);
                        }
                    }
                    Step::User { index, number, before, after } => {
                        if ran.has(before) || store.progress().pending.has(after) {
                            // Looked at before anybody else reads a row, also those who watch.
                            watch.run(number, store, |store| users.run(index, store));
                        }
                    }
                }
            }
            if store.progress().pending.has(Pending::WORLD) {
                maintain_tables(store);
            }
            if store.progress().pending == Pending::NONE {
                return pass;
            }
            first = 0;
        }
        self.most
    }
}

/// The systems of an application.
pub(crate) struct Users<'a> {
    systems: &'a mut [SystemWithAccess],
    error_handler: fn(BevyError, ErrorContext),
}

impl Users<'_> {
    /// None.
    pub(crate) fn none() -> Self {
        Users { systems: &mut [], error_handler: bevy_ecs::error::panic }
    }

    /// Runs one of them.
    ///
    /// # Panics
    /// If it does, or if it leaves the rows of the engine in another place.
    #[cold]
    fn run(&mut self, index: usize, store: &mut StoreMut<'_>) {
        let (system, error_handler) = (&mut self.systems[index], self.error_handler);
        let ran = store.lend(|world| {
            if let Err(RunSystemError::Failed(error)) = system.run_without_applying_deferred((), world) {
                error_handler(error, ErrorContext::System { name: system.name(), last_run: system.get_last_run() });
            }
            system.apply_deferred(world);
        });
        ran.unwrap_or_else(|words| panic!("{words}"));
    }
}

/// What is done between passes. It spawns rows, so that hooks and observers of the application run.
#[cold]
fn maintain_tables(store: &mut StoreMut<'_>) {
    maintain(store);
    if let Some(words) = store.lost() {
        panic!("{words}");
    }
}

/// Runs the passes as the executor of a schedule with systems of the application.
pub(crate) struct TickExecutor {
    watching: Watching,
    key: StoreKey,
    own: [(TypeId, ProgressSystems); 6],
    steps: Vec<Step>,
    drain: usize,
    most: u32,
    counters: Arc<Counters>,
}

impl TickExecutor {
    /// `most` passes a run, which are watched by `watching`.
    pub(crate) fn new(
        watching: Watching,
        key: StoreKey,
        own: [(TypeId, ProgressSystems); 6],
        most: u32,
        counters: Arc<Counters>,
    ) -> Self {
        TickExecutor { watching, key, own, steps: Vec::new(), drain: 0, most, counters }
    }

    /// Which systems are whose: done on the first run after each `init`, since `init` cannot look at systems.
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
        self.watching.with(|watcher| {
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
        let passes = Passes { steps: &self.steps, drain: self.drain, counters: &self.counters, most: self.most };
        let mut users = Users { systems, error_handler };
        self.watching.run(&passes, &mut store, &mut users);
    }

    fn set_apply_final_deferred(&mut self, _: bool) {}
}
