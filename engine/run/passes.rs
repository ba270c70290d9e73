//! The passes of a tick: one loop over the systems, for every engine.
//!
//! An engine without systems of the application runs the loop over its own six systems. With systems of the application, bevy's schedule
//! gives the order, and its executor runs the same loop.

use crate::run::watch::Watch;
use bevy_ecs::error::{BevyError, ErrorContext};
use bevy_ecs::schedule::SystemWithAccess;
use bevy_ecs::system::{RunSystemError, System};
use tickwire_components::Pending;
use tickwire_systems::ProgressSystems;
use tickwire_systems::procs::connections::maintain;
use tickwire_systems::procs::receipts::note;
use tickwire_systems::store::StoreMut;
use tickwire_traces::Counters;

/// A system as the loop sees it.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Own(ProgressSystems),
    /// A system of the application: its index in the schedule, its number for watchers, and the pending bits of the sets before and after
    /// it.
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

/// The indices of DrainCq and Complete in [`OWN`].
const OWN_DRAIN: usize = 4;
const OWN_COMPLETE: usize = 5;

/// Runs the systems of a tick in passes.
///
/// A system of the engine runs if its bit in `Progress::pending` is set. A system of the application runs once per pass in which the set
/// before it has run or the set after it is pending. Deferred commands are applied right after the system that made them. A first pass for
/// nothing but arrivals starts at DrainCq, and one for nothing but operations that have ended at Complete. Passes go on until nothing is
/// pending or `most` have run.
pub(crate) struct Passes<'a> {
    pub(super) steps: &'a [Step],
    /// Where a first pass starts if nothing but DrainCq is pending, and if nothing but Complete is.
    pub(super) starts: [usize; 2],
    pub(crate) counters: &'a Counters,
    pub(crate) most: u32,
}

impl<'a> Passes<'a> {
    /// The passes of an engine without systems of the application.
    pub(crate) fn own(counters: &'a Counters, most: u32) -> Self {
        Passes { steps: &OWN, starts: [OWN_DRAIN, OWN_COMPLETE], counters, most }
    }

    /// Runs the passes. Returns how many there were.
    pub(crate) fn run(&self, watch: &mut impl Watch, store: &mut StoreMut<'_>, users: &mut Users<'_>) -> u32 {
        let progress = store.progress();
        // DrainCq may always read this many frames, whatever Deliver has used of the budget.
        progress.budget += progress.drained_min;
        if !progress.senders.is_empty() {
            progress.pending |= Pending::POST | Pending::TRANSFER;
        }
        let receipts = !progress.receipts.open.is_empty();
        let mut first = match store.progress().pending {
            Pending::DRAIN => self.starts[0],
            Pending::COMPLETE => self.starts[1],
            _ => 0,
        };
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
                            // `run` checks the engine's tables before anybody else, even a watcher, reads a row.
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
    pub(super) systems: &'a mut [SystemWithAccess],
    pub(super) error_handler: fn(BevyError, ErrorContext),
}

impl Users<'_> {
    /// No systems.
    pub(crate) fn none() -> Self {
        Users { systems: &mut [], error_handler: bevy_ecs::error::panic }
    }

    /// Runs one system, and applies its deferred commands.
    ///
    /// # Panics
    /// If the system panics, or if it leaves the engine's rows in another place.
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

/// Maintains tables between passes. It spawns rows, so hooks and observers of the application run.
#[cold]
fn maintain_tables(store: &mut StoreMut<'_>) {
    maintain(store);
    if let Some(words) = store.lost() {
        panic!("{words}");
    }
}
