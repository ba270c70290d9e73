//! The executor of the engine's schedule: bevy's systems, run only when they have something to do.

use bevy_ecs::error::{BevyError, ErrorContext};
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{FixedBitSet, SystemExecutor, SystemSchedule, SystemWithAccess};
use bevy_ecs::system::{RunSystemError, System};
use std::any::TypeId;
use std::sync::Arc;
use tickwire_components::Pending;
use tickwire_systems::ProgressSystems;
use tickwire_systems::complete::complete;
use tickwire_systems::connections::maintain;
use tickwire_systems::drain_cq::drain_cq;
use tickwire_systems::match_cars::match_cars;
use tickwire_systems::receipts::note;
use tickwire_systems::supply_buffers::supply_buffers;
use tickwire_systems::tables::Tables;
use tickwire_systems::transfer::transfer;
use tickwire_traces::Counters;

/// Runs the systems of a tick in passes.
///
/// One of the engine's systems runs if its bit in `Progress::pending` is set, one of the application's once per pass in
/// which the set before or after it has run. Deferred commands are applied right after the system that made them. A
/// pass that follows an arrival starts at DrainCq; passes go on until nothing is pending or the pass budget is spent.
pub(crate) struct TickExecutor {
    tables: Tables,
    own: [(TypeId, ProgressSystems); 6],
    steps: Vec<Step>,
    drain: usize,
    passes_max: u32,
    counters: Arc<Counters>,
    /// Whether the application has systems.
    users: bool,
    /// Where the system of each set is.
    place: [usize; 8],
}

/// A system as the executor sees it.
#[derive(Clone, Copy)]
enum Step {
    Own(ProgressSystems, Pending),
    /// Of the application: the bits of the sets around it.
    User {
        before: Pending,
        after: Pending,
    },
}

impl TickExecutor {
    pub(crate) fn new(
        tables: Tables,
        own: [(TypeId, ProgressSystems); 6],
        passes_max: u32,
        counters: Arc<Counters>,
    ) -> Self {
        TickExecutor { tables, own, steps: Vec::new(), drain: 0, passes_max, counters, users: false, place: [0; 8] }
    }

    /// Which systems are whose: done on the first run after each `init`, since `init` cannot look at systems.
    #[cold]
    fn map(&mut self, schedule: &mut SystemSchedule) {
        // SAFETY: systems are looked at, not replaced.
        #[expect(unsafe_code, reason = "bevy's access for executors")]
        let systems = unsafe { schedule.systems_mut() };
        let set_of = |id| self.own.iter().find(|(own, _)| *own == id).map(|(_, set)| *set);
        let sets: Vec<Option<ProgressSystems>> = systems.iter().map(|s| set_of(s.system_type())).collect();
        self.steps = (0..systems.len())
            .map(|index| match sets[index] {
                Some(set) => Step::Own(set, set.pending()),
                None => Step::User {
                    before: sets[..index].iter().rev().flatten().next().map_or(Pending::NONE, |s| s.pending()),
                    after: sets[index..].iter().flatten().next().map_or(Pending::NONE, |s| s.pending()),
                },
            })
            .collect();
        self.users = sets.iter().any(Option::is_none);
        for (index, set) in sets.iter().enumerate() {
            if let Some(set) = set {
                self.place[*set as usize] = index;
            }
        }
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
        if self.steps.is_empty() {
            self.map(schedule);
        }
        // SAFETY: systems are run, not replaced.
        #[expect(unsafe_code, reason = "bevy's access for executors")]
        let systems = unsafe { schedule.systems_mut() };
        let receipts = self.tables.progress(world).receipts.unfinished > 0;
        if !self.users && !receipts {
            return self.run_own(systems, world);
        }
        let mut first = match self.tables.progress(world).pending {
            Pending::DRAIN => self.drain,
            _ => 0,
        };
        for _ in 0..self.passes_max {
            let mut ran = Pending::NONE;
            for (index, step) in self.steps.iter().enumerate().skip(first) {
                match *step {
                    Step::Own(set, bit) => {
                        let progress = self.tables.progress(world);
                        if !progress.pending.has(bit) {
                            continue;
                        }
                        progress.pending.clear(bit);
                        ran |= bit;
                        self.counters.ran(set as usize);
                        let cell = world.as_unsafe_world_cell();
                        // SAFETY: systems run one after another and this one has the world to itself.
                        #[expect(unsafe_code, reason = "how an executor runs a system")]
                        let done = unsafe { systems[index].run_unsafe((), cell) };
                        debug_assert!(done.is_ok());
                        if receipts {
                            note(world, &self.tables);
                        }
                    }
                    Step::User { before, after } => {
                        if ran.has(before) || self.tables.progress(world).pending.has(after) {
                            let rows = self.tables.row_counts(world);
                            run_user(&mut systems[index], world, error_handler);
                            self.tables.refresh(world);
                            guard(rows, self.tables.row_counts(world));
                        }
                    }
                }
            }
            let pending = &mut self.tables.progress(world).pending;
            if pending.has(Pending::WORLD) {
                maintain(world, &self.tables);
            }
            if self.tables.progress(world).pending == Pending::NONE {
                break;
            }
            first = 0;
        }
    }

    fn set_apply_final_deferred(&mut self, _: bool) {}
}

impl TickExecutor {
    /// The passes when there are only the engine's systems.
    fn run_own(&mut self, systems: &mut [SystemWithAccess], world: &mut World) {
        for _ in 0..self.passes_max {
            for set in [ProgressSystems::Post, ProgressSystems::Match, ProgressSystems::SupplyBuffers] {
                if due(&self.tables, &self.counters, world, set) {
                    run_system(&mut systems[self.place[set as usize]], world);
                }
            }
            if frequent_passes(&self.tables, &self.counters, world, 1) {
                return;
            }
            if self.tables.progress(world).pending.has(Pending::WORLD) {
                maintain(world, &self.tables);
            }
            if self.tables.progress(world).pending == Pending::NONE {
                return;
            }
        }
    }
}

/// What only the schedule as a whole does.
const RARE: Pending = Pending(Pending::POST.0 | Pending::SUPPLY.0 | Pending::WORLD.0);

/// Passes over the systems that messages go through whose receives were posted before, as the functions that they are:
/// in the order of the schedule, without its 120 instructions a run and the 60 of a virtual call, a result and the
/// parameters of each system. For engines without systems of the application.
///
/// `true` if nothing is pending any more; `false` leaves the rest, in order, to a run of the schedule.
#[inline]
pub(crate) fn frequent_passes(tables: &Tables, counters: &Counters, world: &mut World, passes_max: u32) -> bool {
    for _ in 0..passes_max {
        if tables.progress(world).pending.has(RARE) && passes_max > 1 {
            return false;
        }
        if due(tables, counters, world, ProgressSystems::Match) {
            match_cars(tables.matching(world));
        }
        // A pass is always finished: what Match has put among the unexpected is not there for a receive before its bytes are.
        if due(tables, counters, world, ProgressSystems::SupplyBuffers) {
            supply_buffers(tables.supply(world));
        }
        if due(tables, counters, world, ProgressSystems::Transfer) {
            let (tables, row_states) = tables.transferring(world);
            transfer(tables, row_states);
        }
        if due(tables, counters, world, ProgressSystems::DrainCq) {
            drain_cq(tables.drain(world));
        }
        if due(tables, counters, world, ProgressSystems::Complete) {
            complete(tables.complete(world));
        }
        if tables.progress(world).pending == Pending::NONE {
            return true;
        }
    }
    false
}

/// Whether a system has something to do; it is counted and its bit cleared then.
#[inline(always)]
fn due(tables: &Tables, counters: &Counters, world: &mut World, set: ProgressSystems) -> bool {
    let pending = &mut tables.progress(world).pending;
    let due = pending.has(set.pending());
    if due {
        pending.clear(set.pending());
        counters.ran(set as usize);
    }
    due
}

/// Runs one of the engine's systems that is not frequent enough to be called directly.
#[cold]
fn run_system(system: &mut SystemWithAccess, world: &mut World) {
    let cell = world.as_unsafe_world_cell();
    // SAFETY: systems run one after another and this one has the world to itself.
    #[expect(unsafe_code, reason = "how an executor runs a system")]
    let done = unsafe { system.run_unsafe((), cell) };
    debug_assert!(done.is_ok());
}

/// The rows of the engine's tables are where they were.
fn guard(before: [usize; 7], after: [usize; 7]) {
    assert!(
        before == after,
        "a system has spawned, despawned or moved rows of the engine's tables ({before:?} became {after:?}): rows are \
         the engine's own"
    );
}

#[cold]
fn run_user(system: &mut SystemWithAccess, world: &mut World, error_handler: fn(BevyError, ErrorContext)) {
    if let Err(RunSystemError::Failed(error)) = system.run_without_applying_deferred((), world) {
        error_handler(error, ErrorContext::System { name: system.name(), last_run: system.get_last_run() });
    }
    system.apply_deferred(world);
}
