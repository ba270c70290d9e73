//! The watcher that an engine shares with its executor, and the choice whether passes are watched.

use crate::run::passes::{Passes, Users};
use crate::run::watch::{Unwatched, Watcher};
use tickwire_components::Own;
use tickwire_systems::store::StoreMut;
use tickwire_systems::tick::deliver::{deliver, look_and_deliver};
use tickwire_traces::Trace;
use tickwire_traces::tracy::connected;

/// The watcher of an engine, if there is one. Everything that runs the engine's systems shares it.
pub(crate) struct Watching {
    watcher: Option<Own<Watcher>>,
    /// Whether there is a sink, which is told of every tick. Without a sink, ticks are reported while a profiler is connected.
    has_sink: bool,
    /// Whether there is a sink, or receipts are open.
    always: bool,
}

impl Watching {
    /// For an engine of a rank. There is a watcher if there is a sink, or if the build supports a profiler.
    pub(crate) fn new(trace: Option<Trace>, rank: u32) -> Self {
        let has_sink = trace.is_some();
        let may_be = has_sink || cfg!(feature = "tracy");
        Watching { watcher: may_be.then(|| Own::new(Watcher::new(trace, rank))), has_sink, always: has_sink }
    }

    /// Whether ticks are watched now: by a sink, a profiler, or open receipts.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.always || connected()
    }

    /// Whether ticks are watched by a sink, or by open receipts. Either may have to know when the last look in vain was.
    pub(crate) fn is_always_on(&self) -> bool {
        self.always
    }

    /// Whether a sink or a profiler is told of what is done now.
    #[inline(always)]
    pub(crate) fn tells(&self) -> bool {
        self.has_sink || connected()
    }

    /// Says whether receipts are open.
    pub(crate) fn look_at_receipts(&mut self, open: bool) {
        self.always = self.has_sink || open;
    }

    /// The same watcher, for the executor of the same engine.
    ///
    /// # Safety
    /// Both are used by one thread at a time, and neither within a call of the other.
    #[expect(unsafe_code, reason = "two owners of one watcher")]
    pub(crate) unsafe fn second(&self) -> Self {
        // SAFETY: by the same contract; no reference to the watcher outlives a call.
        let watcher = self.watcher.as_ref().map(|watcher| unsafe { watcher.second() });
        Watching { watcher, has_sink: self.has_sink, always: self.has_sink }
    }

    /// Tells the watcher, if there is one.
    pub(crate) fn with(&mut self, tell: impl FnOnce(&mut Watcher)) {
        if let Some(watcher) = &mut self.watcher {
            tell(watcher);
        }
    }

    /// Runs passes.
    pub(crate) fn run(&mut self, passes: &Passes<'_>, store: &mut StoreMut<'_>, users: &mut Users<'_>) {
        let tells = self.tells();
        match &mut self.watcher {
            Some(watcher) if tells => {
                watcher.begin(store);
                let count = passes.run(&mut **watcher, store, users);
                watcher.end(store, count);
            }
            _ => {
                passes.run(&mut Unwatched, store, users);
            }
        }
    }

    /// Looks at a prompt endpoint and delivers what it finds, for a watcher, if there is one. Returns how many messages it has delivered.
    #[inline(never)]
    pub(crate) fn look_and_deliver(
        &mut self,
        store: &mut StoreMut<'_>,
        endpoint: usize,
        most: u32,
        patient: bool,
    ) -> u32 {
        match &mut self.watcher {
            Some(watcher) => watcher.look_and_deliver(store, endpoint, most, patient),
            _ => store.with(|rows, wire| look_and_deliver(rows, &mut wire.endpoints[endpoint], most, patient)),
        }
    }

    /// Runs Deliver for a watcher, if there is one.
    #[inline(never)]
    pub(crate) fn deliver(&mut self, store: &mut StoreMut<'_>) {
        match &mut self.watcher {
            Some(watcher) => watcher.deliver(store),
            _ => drop(store.with(deliver)),
        }
    }
}
