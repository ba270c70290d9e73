//! Watching ticks: what the passes report to a trace sink and to the Tracy profiler.
//!
//! Passes run for one of two watchers. The methods of [`Unwatched`] are empty, and gone after inlining. [`Watcher`] compares the tables
//! before and after each system. Messages are not seen here but by the [steps](tickwire_systems::steps::noting) that move them, since a send
//! may leave outside of ticks.

mod delivering;
mod operations;

pub(crate) use operations::NotedStart;
use operations::Operations;
use tickwire_components::credit::LINE_BYTES;
use tickwire_components::{ArrivalState, Clock, Link, NIL, Queue, Row, VcState, Work};
use tickwire_systems::ProgressSystems;
use tickwire_systems::store::StoreMut;
use tickwire_traces::tracy::{Profile, Zone};
use tickwire_traces::{DELIVER, Depths, Event, Trace, now_ns};

/// Is told what a tick does.
pub(crate) trait Watch {
    /// Runs a system.
    fn run(&mut self, system: usize, store: &mut StoreMut<'_>, run: impl FnOnce(&mut StoreMut<'_>));
}

/// A watcher that reports nothing.
pub(crate) struct Unwatched;

impl Watch for Unwatched {
    #[inline(always)]
    fn run(&mut self, _: usize, store: &mut StoreMut<'_>, run: impl FnOnce(&mut StoreMut<'_>)) {
        run(store);
    }
}

/// A watcher that reports to a sink, a profiler, or both.
pub(crate) struct Watcher {
    trace: Option<Trace>,
    rank: u32,
    profile: Profile,
    /// Whether a profiler is connected in this tick.
    profiled: bool,
    names: Vec<String>,
    /// What [`Progress::vc_changes`](tickwire_components::Progress::vc_changes) was when the VCs were looked at last.
    vc_changes: u32,
    vcs: Vec<VcState>,
    /// Bytes that each endpoint had moved when it was looked at last.
    moved: Vec<(u64, u64)>,
    /// When `moved` was read, ns.
    moved_ns: u64,
    /// The work counters when this tick began.
    before: Work,
    /// When the last event of this tick ended, ns. The next event begins then.
    at_ns: u64,
    /// The clock of an engine that has a profiler and no sink.
    clock: Clock,
    operations: Operations,
}

impl Watcher {
    /// For an engine of a rank.
    pub(crate) fn new(trace: Option<Trace>, rank: u32) -> Self {
        let profile = Profile::new(rank);
        let mut watcher = Watcher {
            trace,
            rank,
            profile,
            profiled: false,
            names: Vec::new(),
            vc_changes: 0,
            vcs: Vec::new(),
            moved: Vec::new(),
            moved_ns: 0,
            before: Work::default(),
            at_ns: 0,
            clock: Clock::default(),
            operations: Operations::default(),
        };
        ProgressSystems::ORDER.iter().for_each(|set| watcher.name(*set as usize, set.name()));
        watcher.name(DELIVER, "deliver");
        watcher
    }

    fn watches(&self) -> bool {
        self.trace.is_some() || self.profiled
    }

    fn tell(&mut self, event: &Event<'_>) {
        if let Some(trace) = &mut self.trace {
            trace.record(event);
        }
    }

    /// Reports the VCs whose state has changed.
    #[cold]
    fn look_at_vcs(&mut self, store: &mut StoreMut<'_>) {
        let all = store.all();
        self.vc_changes = all.progress.vc_changes;
        self.vcs.resize(all.vcs.len(), VcState::Unconnected);
        for (row, vc) in all.vcs.iter().enumerate() {
            if std::mem::replace(&mut self.vcs[row], vc.state) == vc.state {
                continue;
            }
            let reason = if vc.state == VcState::Failed { all.procs.reason(row as Row) } else { "" };
            let (proc, state, at_ns) = (vc.proc, vc.state, now_ns());
            if self.profiled {
                tickwire_traces::tracy::message(self.rank, &format!("VC to rank {proc}: {state:?} {reason}"));
            }
            if let Some(trace) = &mut self.trace {
                trace.record(&Event::VcChanged { proc, state, reason: reason.into(), at_ns });
            }
        }
    }

    /// Reports how many bytes the transports have moved, if that has changed.
    fn look_at_endpoints(&mut self, store: &mut StoreMut<'_>, at_ns: u64) {
        let endpoints = store.endpoints();
        self.moved.resize(endpoints.len(), (0, 0));
        self.moved_ns = at_ns;
        for (endpoint, before) in endpoints.iter_mut().zip(&mut self.moved) {
            let transport = endpoint.transport.get();
            let moved = transport.moved();
            let (sent_bytes, received_bytes) = moved;
            if self.profiled {
                self.profile.moved(transport.name(), sent_bytes, received_bytes);
            }
            if std::mem::replace(before, moved) != moved
                && let Some(trace) = &mut self.trace
            {
                let transport = transport.name().into();
                trace.record(&Event::Moved { transport, sent_bytes, received_bytes, at_ns });
            }
        }
    }
}

impl Watcher {
    /// Names a system, before its first run.
    pub(crate) fn name(&mut self, system: usize, name: &str) {
        self.names.resize(self.names.len().max(system + 1), String::new());
        name.clone_into(&mut self.names[system]);
        self.tell(&Event::System { system: system as u16, name: name.into() });
    }

    /// Begins a tick of passes.
    pub(super) fn begin(&mut self, store: &mut StoreMut<'_>) {
        self.profiled = self.profile.begin_tick();
        if !self.watches() {
            return;
        }
        let progress = store.progress();
        self.before = progress.work.get();
        if progress.vc_changes != self.vc_changes {
            self.look_at_vcs(store);
        }
        // Only a sink needs the time: a profiler has a clock of its own.
        let Some(trace) = &mut self.trace else { return };
        self.at_ns = trace.now_ns();
        trace.record(&Event::TickBegan { at_ns: self.at_ns });
    }

    /// Ends the tick, after this many passes.
    pub(super) fn end(&mut self, store: &mut StoreMut<'_>, passes: u32) {
        if !self.watches() {
            return;
        }
        if store.progress().vc_changes != self.vc_changes {
            self.look_at_vcs(store);
        }
        let at_ns = self.at_ns;
        self.end_operations(store, at_ns);
        if self.profiled || at_ns.wrapping_sub(self.moved_ns) >= Event::MOVED_NS {
            self.look_at_endpoints(store, at_ns);
        }
        let (work, depths) = (less(store.progress().work.get(), self.before), depths(store));
        if self.profiled {
            self.profile.end_tick(&work, passes, Some(&depths));
        }
        if let Some(trace) = &mut self.trace {
            trace.record(&Event::TickEnded { at_ns, work, passes, depths });
        }
    }

    /// The time, ns.
    #[inline(always)]
    fn read_clock(&mut self) -> u64 {
        match &mut self.trace {
            Some(trace) => trace.now_ns(),
            None => self.clock.now_ns(),
        }
    }

    /// Reports the queue depths.
    fn look_at_depths(&mut self, store: &mut StoreMut<'_>, at_ns: u64) -> Depths {
        let depths = depths(store);
        self.tell(&Event::Waiting { depths, at_ns });
        depths
    }

    /// Reports what was not reported yet. The engine is about to sleep, or ends.
    pub(crate) fn rest(&mut self, store: &mut StoreMut<'_>) {
        if self.trace.is_some() {
            let at_ns = now_ns();
            self.end_operations(store, at_ns);
            self.look_at_endpoints(store, at_ns);
            self.look_at_depths(store, at_ns);
        }
    }
}

impl Watch for Watcher {
    fn run(&mut self, system: usize, store: &mut StoreMut<'_>, run: impl FnOnce(&mut StoreMut<'_>)) {
        if !self.watches() {
            return run(store);
        }
        let before = (rows_due(system, store), store.progress().work.get());
        let zone = self.profiled.then(|| Zone::begin(system as u16, self.names.get(system).map_or("", String::as_str)));
        run(store);
        let rows = before.0 + rows_done(system, before.1, store.progress().work.get());
        if let Some(zone) = zone {
            zone.end(rows);
        }
        if let Some(trace) = &mut self.trace {
            let (begin_ns, end_ns) = (self.at_ns, trace.now_ns());
            self.at_ns = end_ns;
            trace.record(&Event::SystemRan { system: system as u16, rows, begin_ns, end_ns });
        }
    }
}

/// What was done since `before`.
fn less(work: Work, before: Work) -> Work {
    Work {
        posted: work.posted.wrapping_sub(before.posted),
        matched: work.matched.wrapping_sub(before.matched),
        sent: work.sent.wrapping_sub(before.sent),
        received: work.received.wrapping_sub(before.received),
        completed: work.completed.wrapping_sub(before.completed),
    }
}

/// Rows that a system finds when it starts. It handles all of them.
fn rows_due(system: usize, store: &mut StoreMut<'_>) -> u64 {
    if !matches!(system, MATCH | SUPPLY | TRANSFER | COMPLETE) {
        return 0;
    }
    let all = store.all();
    let (progress, cars) = (all.progress, all.cars);
    let arrivals = &all.arrivals[..progress.arrivals as usize];
    let count = |state| arrivals.iter().filter(|arrival| arrival.state == state).count() as u64;
    match system {
        MATCH => length(&progress.new_receives, cars) + count(ArrivalState::New) + count(ArrivalState::Matched),
        SUPPLY => length(&progress.offers, cars) + count(ArrivalState::Unexpected),
        TRANSFER => length(&progress.copies, cars) + arrivals.len() as u64,
        COMPLETE => length(&progress.finished, cars),
        _ => 0,
    }
}

/// Rows that a system has handled beside those it found, computed from the work that it did.
fn rows_done(system: usize, before: Work, after: Work) -> u64 {
    let done = less(after, before);
    u64::from(match system {
        POST => done.posted + done.sent,
        TRANSFER => done.sent + done.received,
        DRAIN => done.received,
        _ => 0,
    })
}

const POST: usize = ProgressSystems::Post as usize;
const MATCH: usize = ProgressSystems::Match as usize;
const SUPPLY: usize = ProgressSystems::SupplyBuffers as usize;
const TRANSFER: usize = ProgressSystems::Transfer as usize;
const DRAIN: usize = ProgressSystems::DrainCq as usize;
const COMPLETE: usize = ProgressSystems::Complete as usize;

fn length<L: Link>(queue: &Queue, rows: &mut [L]) -> u64 {
    count_to(queue, rows, u64::MAX)
}

/// Rows of a list, counted up to `most`.
fn count_to<L: Link>(queue: &Queue, rows: &mut [L], most: u64) -> u64 {
    let (mut row, mut count) = (queue.head, 0);
    while row != NIL && count < most {
        count += 1;
        row = *rows[row as usize].next_mut();
    }
    count
}

/// The queue depths.
fn depths(store: &mut StoreMut<'_>) -> Depths {
    let all = store.all();
    let (progress, cars) = (all.progress, all.cars);
    let (mut posted, mut wildcard) = (0, 0);
    if progress.indexed() {
        posted = u64::from(progress.posted.count);
        wildcard = u64::from(progress.posted.any_source());
    } else {
        wildcard += count_to(&progress.wildcard, cars, Depths::COUNTED_MAX);
        posted += wildcard;
        // A VC without receives counts as a visit too.
        let mut left = Depths::COUNTED_MAX - posted;
        for vc in all.vcs.iter() {
            let here = count_to(&vc.posted, cars, left);
            posted += here;
            left = left.saturating_sub(here.max(1));
            if left == 0 {
                break;
            }
        }
    }
    let connected = all.vcs.iter().take(Depths::COUNTED_MAX as usize).filter(|vc| vc.state == VcState::Connected);
    let credit_bytes = connected.map(|vc| u64::from(vc.lines) * LINE_BYTES as u64).sum();
    Depths {
        posted,
        wildcard,
        unexpected: u64::from(progress.unexpected.count),
        unexpected_bytes: progress.unexpected.bytes,
        cars: cars.len() as u64 - u64::from(progress.free_cars.count),
        credit_bytes,
    }
}
