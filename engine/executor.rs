//! The executor of the engine's schedule: bevy's systems, run only when they have something to do.

use crate::watch::Watch;
use bevy_ecs::error::{BevyError, ErrorContext};
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{FixedBitSet, SystemExecutor, SystemSchedule, SystemWithAccess};
use bevy_ecs::system::{RunSystemError, System};
use std::any::TypeId;
use std::sync::Arc;
use tickwire_components::Pending;
use tickwire_components::limits::Limits;
use tickwire_systems::ProgressSystems;
use tickwire_systems::complete::complete;
use tickwire_systems::connections::maintain;
use tickwire_systems::deliver::deliver;
use tickwire_systems::drain_cq::drain_cq;
use tickwire_systems::match_cars::match_cars;
use tickwire_systems::receipts::note;
use tickwire_systems::supply_buffers::supply_buffers;
use tickwire_systems::tables::Tables;
use tickwire_systems::transfer::transfer;
use tickwire_traces::{Counters, DELIVER};

/// Runs the systems of a tick in passes.
///
/// One of the engine's systems runs if its bit in `Progress::pending` is set, one of the application's once per pass in
/// which the set before or after it has run. Deferred commands are applied right after the system that made them. A
/// pass that follows an arrival starts at DrainCq; passes go on until nothing is pending or the pass budget is spent.
pub(crate) struct TickExecutor<W> {
    watch: W,
    tables: Tables,
    own: [(TypeId, ProgressSystems); 6],
    steps: Vec<Step>,
    drain: usize,
    passes_max: u32,
    /// See [`Limits::deliver`].
    deliver: bool,
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
    /// Of the application: its number, and the bits of the sets around it.
    User {
        number: usize,
        before: Pending,
        after: Pending,
    },
}

impl<W: Watch> TickExecutor<W> {
    pub(crate) fn new(
        watch: W,
        tables: Tables,
        own: [(TypeId, ProgressSystems); 6],
        limits: &Limits,
        counters: Arc<Counters>,
    ) -> Self {
        TickExecutor {
            watch,
            tables,
            own,
            steps: Vec::new(),
            drain: 0,
            passes_max: limits.passes_max,
            deliver: limits.deliver,
            counters,
            users: false,
            place: [0; 8],
        }
    }

    /// Which systems are whose: done on the first run after each `init`, since `init` cannot look at systems.
    #[cold]
    fn map(&mut self, schedule: &mut SystemSchedule) {
        // SAFETY: systems are looked at, not replaced.
        #[expect(unsafe_code, reason = "bevy's access for executors")]
        let systems = unsafe { schedule.systems_mut() };
        let set_of = |id| self.own.iter().find(|(own, _)| *own == id).map(|(_, set)| *set);
        let sets: Vec<Option<ProgressSystems>> = systems.iter().map(|s| set_of(s.system_type())).collect();
        let mut users = DELIVER;
        self.steps = (0..systems.len())
            .map(|index| match sets[index] {
                Some(set) => Step::Own(set, set.pending()),
                None => Step::User {
                    number: {
                        users += 1;
                        users
                    },
                    before: sets[..index].iter().rev().flatten().next().map_or(Pending::NONE, |s| s.pending()),
                    after: sets[index..].iter().flatten().next().map_or(Pending::NONE, |s| s.pending()),
                },
            })
            .collect();
        ProgressSystems::ORDER.iter().for_each(|set| self.watch.name(*set as usize, set.name()));
        self.watch.name(DELIVER, "deliver");
        for (step, system) in self.steps.iter().zip(systems.iter()) {
            if let Step::User { number, .. } = step {
                self.watch.name(*number, &system.name().to_string());
            }
        }
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

impl<W: Watch> SystemExecutor for TickExecutor<W> {
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
        self.watch.begin(&self.tables, world);
        let receipts = self.tables.progress(world).receipts.unfinished > 0;
        let passes = match self.users || receipts {
            true => self.run_all(systems, world, error_handler, receipts),
            false => self.run_own(systems, world),
        };
        self.watch.end(&self.tables, world, passes);
    }

    fn set_apply_final_deferred(&mut self, _: bool) {}
}

impl<W: Watch> TickExecutor<W> {
    /// The passes when the application has systems, or when operations with receipts are looked at after each; returns how
    /// many there were.
    fn run_all(
        &mut self,
        systems: &mut [SystemWithAccess],
        world: &mut World,
        error_handler: fn(BevyError, ErrorContext),
        receipts: bool,
    ) -> u32 {
        let TickExecutor { watch, tables, counters, steps, .. } = self;
        let mut first = match tables.progress(world).pending {
            Pending::DRAIN => self.drain,
            _ => 0,
        };
        for pass in 1..=self.passes_max {
            let mut ran = Pending::NONE;
            for (index, step) in steps.iter().enumerate().skip(first) {
                match *step {
                    Step::Own(set, bit) => {
                        let progress = tables.progress(world);
                        if !progress.pending.has(bit) {
                            continue;
                        }
                        progress.pending.clear(bit);
                        ran |= bit;
                        counters.ran(set as usize);
                        watch.run(set as usize, tables, world, |world| run_system(&mut systems[index], world));
                        if receipts {
                            note(world, tables);
                        }
                    }
                    Step::User { number, before, after } => {
                        if ran.has(before) || tables.progress(world).pending.has(after) {
                            // Looked at before anybody else reads a row, also those who watch.
                            watch.run(number, tables, world, |world| {
                                run_user(&mut systems[index], world, error_handler);
                                tables.verify(world).unwrap_or_else(|words| panic!("{words}"));
                            });
                        }
                    }
                }
            }
            let pending = &mut tables.progress(world).pending;
            if pending.has(Pending::WORLD) {
                maintain_tables(world, tables);
            }
            if tables.progress(world).pending == Pending::NONE {
                return pass;
            }
            first = 0;
        }
        self.passes_max
    }

    /// The passes when there are only the engine's systems; returns how many there were.
    fn run_own(&mut self, systems: &mut [SystemWithAccess], world: &mut World) -> u32 {
        let TickExecutor { watch, tables, counters, .. } = self;
        if self.deliver && watch.profiles() && delivers(tables, world) {
            counters.ran(DELIVER);
            watch.run(DELIVER, tables, world, |world| {
                let left = tables.progress(world).drained_min;
                tables.progress(world).budget -= left;
                let (endpoints, deliveries) = tables.deliveries(world);
                deliver(endpoints, deliveries);
                tables.progress(world).budget += left;
            });
            if tables.progress(world).pending == Pending::NONE {
                return 1;
            }
        }
        for pass in 1..=self.passes_max {
            for set in [ProgressSystems::Post, ProgressSystems::Match, ProgressSystems::SupplyBuffers] {
                if due(tables, counters, world, set) {
                    let system = &mut systems[self.place[set as usize]];
                    watch.run(set as usize, tables, world, |world| run_system(system, world));
                }
            }
            if frequent_passes(watch, tables, counters, world, 1) {
                return pass;
            }
            if tables.progress(world).pending.has(Pending::WORLD) {
                maintain_tables(world, tables);
            }
            if tables.progress(world).pending == Pending::NONE {
                return pass;
            }
        }
        self.passes_max
    }
}

/// Whether there are only arrivals, and nothing else waits: what Deliver may be called for.
#[inline(always)]
fn delivers(tables: &Tables, world: &mut World) -> bool {
    let progress = tables.progress(world);
    progress.pending == Pending::DRAIN && progress.senders.is_empty()
}

/// What only the schedule as a whole does.
const RARE: Pending = Pending(Pending::POST.0 | Pending::SUPPLY.0 | Pending::WORLD.0);

/// Passes over the systems that messages go through whose receives were posted before, as the functions that they are:
/// in the order of the schedule, without its 120 instructions a run and the 60 of a virtual call, a result and the
/// parameters of each system. For engines without systems of the application.
///
/// `true` if nothing is pending any more; `false` leaves the rest, in order, to a run of the schedule.
#[inline]
pub(crate) fn frequent_passes(
    watch: &mut impl Watch,
    tables: &Tables,
    counters: &Counters,
    world: &mut World,
    passes_max: u32,
) -> bool {
    use ProgressSystems::{Complete, DrainCq, Match, SupplyBuffers, Transfer};
    for _ in 0..passes_max {
        if tables.progress(world).pending.has(RARE) && passes_max > 1 {
            return false;
        }
        if due(tables, counters, world, Match) {
            watch.run(Match as usize, tables, world, |world| match_cars(tables.matching(world)));
        }
        // A pass is always finished: what Match has put among the unexpected is not there for a receive before its bytes are.
        if due(tables, counters, world, SupplyBuffers) {
            watch.run(SupplyBuffers as usize, tables, world, |world| supply_buffers(tables.supply(world)));
        }
        if due(tables, counters, world, Transfer) {
            watch.run(Transfer as usize, tables, world, |world| {
                let (tables, row_states) = tables.transferring(world);
                transfer(tables, row_states);
            });
        }
        if due(tables, counters, world, DrainCq) {
            watch.run(DrainCq as usize, tables, world, |world| drain_cq(tables.drain(world)));
        }
        if due(tables, counters, world, Complete) {
            watch.run(Complete as usize, tables, world, |world| complete(tables.complete(world)));
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

/// What is done between passes. It spawns rows, so that hooks and observers of the application run.
fn maintain_tables(world: &mut World, tables: &Tables) {
    maintain(world, tables);
    if let Some(words) = tables.lost() {
        panic!("{words}");
    }
}

#[cold]
fn run_user(system: &mut SystemWithAccess, world: &mut World, error_handler: fn(BevyError, ErrorContext)) {
    if let Err(RunSystemError::Failed(error)) = system.run_without_applying_deferred((), world) {
        error_handler(error, ErrorContext::System { name: system.name(), last_run: system.get_last_run() });
    }
    system.apply_deferred(world);
}
