//! The watcher that an engine shares with its executor, and the choice whether passes are watched.

use crate::run::passes::{Passes, Users};
use crate::run::watch::{Unwatched, Watch, Watcher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::Pending;
use tickwire_systems::store::StoreMut;
use tickwire_systems::tick::deliver::deliver;
use tickwire_traces::tracy::connected;
use tickwire_traces::{DELIVER, Trace};

/// The watcher of an engine, if it has one, for all who run its systems.
#[derive(Clone)]
pub(crate) struct Watching {
    watcher: Option<Arc<Mutex<Watcher>>>,
    /// There is a sink, which is told of every tick. Without one, somebody watches while a profiler is connected.
    has_sink: bool,
}

impl Watching {
    /// Of an engine of a rank: with a sink, or in a build that can speak to a profiler.
    pub(crate) fn new(trace: Option<Trace>, rank: u32) -> Self {
        let has_sink = trace.is_some();
        let may_be = has_sink || cfg!(feature = "tracy");
        Watching { watcher: may_be.then(|| Arc::new(Mutex::new(Watcher::new(trace, rank)))), has_sink }
    }

    /// Whether somebody watches now.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.has_sink || connected()
    }

    fn lock(&self) -> Option<MutexGuard<'_, Watcher>> {
        Some(self.watcher.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells the watcher, if there is one.
    pub(crate) fn with(&self, tell: impl FnOnce(&mut Watcher)) {
        if let Some(mut watcher) = self.lock() {
            tell(&mut watcher);
        }
    }

    /// Runs passes.
    pub(crate) fn run(&self, passes: &Passes<'_>, store: &mut StoreMut<'_>, users: &mut Users<'_>) {
        match self.is_on().then(|| self.lock()).flatten() {
            Some(mut watcher) => {
                watcher.begin(store);
                let count = passes.run(&mut *watcher, store, users);
                watcher.end(store, count);
            }
            None => {
                passes.run(&mut Unwatched, store, users);
            }
        }
    }

    /// Runs Deliver, and passes if something is pending behind it, for a watcher.
    pub(crate) fn deliver(&self, passes: &Passes<'_>, store: &mut StoreMut<'_>) {
        let Some(mut watcher) = self.lock() else { return };
        watcher.begin(store);
        passes.counters.ran(DELIVER);
        watcher.run(DELIVER, store, |store| store.with(deliver));
        let mut count = 1;
        if store.progress().pending != Pending::NONE {
            count += passes.run(&mut *watcher, store, &mut Users::none());
        }
        watcher.end(store, count);
    }
}
