//! The engine: a world, its schedule, and the calls that drive them.

use crate::api::builder::TicksDue;
use crate::api::request::Home;
use crate::bootstrap::{BootstrapEvent, EXITED, Exchange};
use crate::run::executor::{Passes, Users};
use crate::run::watch::Watching;
use bevy_ecs::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use tickwire_components::limits::{CLOCK_LOOKS, CLOCK_LOOKS_A_TICK, Limits};
use tickwire_components::submission::Submissions;
use tickwire_components::{Comm, NIL, Pending, PostError, Rank, RequestError, Row, Work, posting};
use tickwire_systems::procs::connections::{ask_after, contact, control, process_ended, wants_control};
use tickwire_systems::procs::ending::remind;
use tickwire_systems::procs::endpoint::OperationRows;
use tickwire_systems::steps::posted::{may_await_any, posted_to_any};
use tickwire_systems::store::{Store, Tables, words_of};
use tickwire_systems::tick::deliver::{deliver, look_and_deliver};
use tickwire_traces::{Counters, DELIVER, Trace};
use tickwire_transports::{LinkEvent, TagLimits};

/// A communication engine: one proc's membership of a world. `Send`, not `Sync`: one thread owns it at a time.
///
/// ```
/// fn may_move<T: Send>() {}
/// may_move::<tickwire::Engine>();
/// ```
///
/// ```compile_fail,E0277
/// fn may_be_shared<T: Sync>() {}
/// may_be_shared::<tickwire::Engine>();
/// ```
pub struct Engine {
    pub(crate) store: Store,
    pub(crate) schedule: Schedule,
    pub(crate) limits: Limits,
    pub(crate) home: &'static Home,
    /// The first generation of its requests: no other engine with this home has it.
    pub(crate) epoch: u64,
    pub(crate) closed: Closed,
    /// Endpoints that may hold frames back for others to go with.
    pub(crate) holders: Box<[usize]>,
    /// Endpoints whose messages are delivered by the look that finds them.
    pub(crate) prompt: Box<[usize]>,
    /// Endpoints that are expensive to look at.
    pub(crate) rare: Box<[usize]>,
    /// Frames that the tick may still deliver.
    pub(crate) budget: u32,
    /// Frames that a tick delivers at most; those that DrainCq reads come on top.
    pub(crate) delivered_max: u32,
    /// Looks since the clock was sampled.
    pub(crate) polls: u32,
    pub(crate) control_ns: u64,
    /// Empty looks of `wait` before it yields: few where there are more procs than processors.
    pub(crate) spins: u32,
    /// When sockets were looked at last, ns.
    pub(crate) controlled_ns: u64,
    /// The caller gives the time.
    pub(crate) virtual_time: bool,
    pub(crate) started: Instant,
    pub(crate) events: Vec<LinkEvent>,
    /// Whether the application has systems in the schedule.
    pub(crate) has_systems: bool,
    /// Whether Deliver may run: not where the application has systems, nor while receipts are open.
    pub(crate) delivers: bool,
    pub(crate) watching: Watching,
    /// The own proc, if messages to it go to posted receives at once.
    pub(crate) own_at_once: u32,
    /// The own proc's row.
    pub(crate) own_row: Row,
    pub(crate) exchange: Box<dyn Exchange>,
    pub(crate) counters: Arc<Counters>,
    /// Where events go, if anywhere.
    pub(crate) trace: Option<Trace>,
    /// What other threads see of it.
    pub(crate) submissions: Arc<Submissions>,
    pub(crate) waiter: crate::run::wait::Waiter,
    pub(crate) attached: crate::api::send_modes::Attached,
    pub(crate) slots: Vec<crate::api::slots::SlotInfo>,
    /// Whether peers may read the process's shared heap. Fixed when it is built.
    pub(crate) shared_heap: bool,
    /// What fits the tags of the transport that matches by itself, if one does.
    pub(crate) tags: TagLimits,
    pub(crate) comms: crate::api::communicators::Comms,
    pub(crate) ends: Ends,
    pub(crate) observer: crate::observe::Observer,
    #[cfg(feature = "dynamic-endpoints")]
    pub(crate) dynamic_slots: Vec<(String, crate::api::slots::DynamicSlot)>,
    pub(crate) not_sync: std::marker::PhantomData<std::cell::Cell<()>>,
}

/// Time between two looks after members that have failed, for receives from any source, ns.
const ASK_NS: u64 = 20_000_000;

/// How far an engine has asked after members that have failed.
#[derive(Default)]
pub(crate) struct Ends {
    /// When it did last, ns.
    asked_ns: u64,
    /// The proc that is asked after next.
    next: u32,
    /// A probe of any source waits.
    pub(crate) probed: bool,
}

/// Whether an engine still takes calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    No,
    Finalized,
    Poisoned(String),
}

impl Closed {
    #[cold]
    pub(crate) fn post_error(&self) -> PostError {
        match self {
            Closed::Poisoned(words) => PostError::Poisoned(words.clone()),
            _ => PostError::Finalized,
        }
    }

    #[cold]
    pub(crate) fn request_error(&self) -> RequestError {
        match self {
            Closed::Poisoned(words) => RequestError::Poisoned(words.clone()),
            _ => RequestError::Finalized,
        }
    }
}

impl Engine {
    /// The communicator of all procs.
    pub fn comm_world(&self) -> Comm {
        Comm(0)
    }

    /// The communicator of this proc alone.
    pub fn comm_self(&self) -> Comm {
        Comm(1)
    }

    /// The own rank in the world's communicator.
    pub fn rank(&self) -> Rank {
        Rank(self.exchange.rank())
    }

    /// The number of procs in the world.
    pub fn size(&self) -> u32 {
        self.exchange.size()
    }

    /// The limits it was built with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What fits the tags of the transport that matches messages by itself, if one does: the highest tag, and how many
    /// communicators and ranks there may be.
    pub fn tag_limits(&self) -> TagLimits {
        self.tags
    }

    /// How often each system has run; shared, and readable from other threads.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The world. Rows of the engine's tables are its own: systems of the application read them, and may neither spawn nor
    /// remove nor write any. Who gets at the world as a whole and moves, clears or replaces what is there poisons the engine.
    pub fn world(&self) -> &World {
        self.store.world()
    }

    /// Does a bounded amount of work and says what it was, including calls made since the tick before.
    ///
    /// Returns at once if there is nothing to do. Work left over is done by the next tick. After a panic in a system
    /// of the application the engine is poisoned, and ticks do nothing.
    #[inline]
    pub fn tick(&mut self) -> Work {
        self.polls += CLOCK_LOOKS_A_TICK - 1;
        self.tick_now()
    }

    /// As [`Engine::tick`], with the time given by the caller: ns since any fixed moment, never less than before.
    pub fn tick_at(&mut self, now_ns: u64) -> Work {
        self.virtual_time = true;
        self.store.progress().now_ns = now_ns;
        if now_ns.wrapping_sub(self.controlled_ns) >= self.control_ns {
            self.look_around();
        }
        self.tick_now()
    }

    #[inline]
    fn tick_now(&mut self) -> Work {
        self.advance(false);
        self.let_go();
        self.take_work()
    }

    #[cold]
    #[inline(never)]
    fn look_at_clock(&mut self) {
        self.polls = 0;
        self.sample_clock();
        let now_ns = self.store.progress().now_ns;
        if now_ns.wrapping_sub(self.controlled_ns) >= self.control_ns {
            self.look_around();
        }
    }

    #[cold]
    pub(crate) fn sample_clock(&mut self) {
        if self.virtual_time {
            return;
        }
        let now_ns = self.started.elapsed().as_nanos() as u64;
        self.store.progress().now_ns = now_ns;
    }

    /// Looks whether there is something to do, and does a tick's part of it; whether there was. No system call, except once
    /// every `control_us`. `patient` is who has nothing else to do.
    #[inline]
    pub(crate) fn advance(&mut self, patient: bool) -> bool {
        self.polls += 1;
        if self.polls >= CLOCK_LOOKS {
            self.look_at_clock();
        }
        let (progress, inbound, endpoints) = self.store.look();
        progress.ticks += 1;
        self.observer.ticked(progress.ticks);
        if inbound.ready() {
            progress.pending |= Pending::POST;
        }
        for endpoint in endpoints {
            // The others have looks of their own.
            if endpoint.cheap_poll && endpoint.ready() {
                endpoint.found = true;
                progress.pending |= Pending::DRAIN;
            }
        }
        if !self.rare.is_empty() {
            self.look_rarely();
        }
        let progress = self.store.progress();
        let mut delivered = false;
        let mut pending = progress.pending != Pending::NONE || !progress.senders.is_empty();
        if !self.prompt.is_empty() {
            (delivered, pending) = self.look_promptly(patient);
        }
        if pending {
            self.run();
        }
        delivered | pending
    }

    /// Looks at the endpoints that are expensive to look at, as often as is worth it.
    #[inline(never)]
    fn look_rarely(&mut self) {
        let Tables { progress, cars, requests, vcs, endpoints, .. } = self.store.all();
        let rows = OperationRows { active: progress.active, cars, requests, vcs };
        for &number in &self.rare {
            let endpoint = &mut endpoints[number];
            endpoint.find_operations(number as u8, self.observer.awaited.row, &rows);
            if endpoint.matches && !progress.provider.queue.is_empty() {
                progress.pending |= Pending::POST;
            }
            if endpoint.ready() {
                endpoint.found = true;
                progress.pending |= Pending::DRAIN;
            }
        }
    }

    /// Looks at the endpoints whose messages are delivered at once; whether some were, and whether anything is pending then.
    #[inline(always)]
    fn look_promptly(&mut self, patient: bool) -> (bool, bool) {
        self.budget = self.delivered_max;
        let delivered = match *self.prompt {
            [row] => self.look_promptly_at(row, patient),
            _ => self.look_promptly_at_all(),
        };
        let progress = self.store.progress();
        (delivered, progress.pending != Pending::NONE || !progress.senders.is_empty())
    }

    /// Looks at an endpoint and delivers what has come; whether there was something. Where that is not the next thing to do, it
    /// is left to the tick.
    #[inline(always)]
    fn look_promptly_at(&mut self, row: usize, patient: bool) -> bool {
        let Tables { progress, endpoints, .. } = self.store.all();
        let next = progress.pending == Pending::NONE && progress.senders.is_empty() && self.delivers;
        if !next || progress.closed() || self.watching.is_on() {
            let endpoint = &mut endpoints[row];
            if endpoint.ready() {
                endpoint.found = true;
                progress.pending |= Pending::DRAIN;
            }
            return false;
        }
        let budget = self.budget;
        let count = self.store.with(|rows, wire| look_and_deliver(rows, &mut wire.endpoints[row], budget, patient));
        self.budget -= count;
        if count != 0 {
            self.observer.found();
            self.counters.ran(DELIVER);
        }
        count != 0
    }

    #[inline(never)]
    fn look_promptly_at_all(&mut self) -> bool {
        let mut delivered = false;
        for index in 0..self.prompt.len() {
            delivered |= self.look_promptly_at(self.prompt[index], false);
        }
        delivered
    }

    /// The rare part of a look: sockets, the launcher, dropped tokens.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_around(&mut self) {
        if self.closed != Closed::No {
            return;
        }
        // Somebody ticks again who has slept.
        self.end_wait();
        self.controlled_ns = self.store.progress().now_ns;
        control(&mut self.store.as_mut(), &mut self.events);
        if self.is_lost() {
            return;
        }
        while let Some(event) = self.exchange.poll_event() {
            if let BootstrapEvent::RankEnded { rank, reason } = event {
                let failed = reason != EXITED;
                let reason = format!("process of rank {rank} has ended: {reason}");
                process_ended(&mut self.store.as_mut(), rank, reason, failed);
            }
        }
        if self.controlled_ns.wrapping_sub(self.ends.asked_ns) >= ASK_NS {
            self.ask_after_ends();
        }
        self.free_dropped();
        if self.store.progress().has_provider() {
            self.look_after_matching();
        }
        self.look_after_communicators();
        if self.is_lost() {
            return;
        }
        self.check_change_ticks();
        if self.is_lost() {
            return;
        }
        self.observe();
    }

    /// Sees to it that receives from any source hear of members that have failed: of those that nobody has acknowledged, and,
    /// where no launcher tells, of procs that were never contacted.
    #[cold]
    fn ask_after_ends(&mut self) {
        self.ends.asked_ns = self.controlled_ns;
        let mut all = self.store.all();
        remind(&mut all);
        if self.exchange.tells_ends() {
            return;
        }
        if self.ends.probed || may_await_any(all.progress) && posted_to_any(all.cars).next().is_some() {
            ask_after(&mut self.store.as_mut(), &mut self.ends.next);
        }
    }

    /// What was done since the last tick.
    #[inline(always)]
    pub(crate) fn take_work(&mut self) -> Work {
        let work = self.store.progress().work.take();
        if !work.is_idle() {
            self.observer.add(work);
        }
        work
    }

    /// Forwards the world's check of change ticks, if one is due, to the systems of the schedule.
    fn check_change_ticks(&mut self) {
        match self.store.world().get_resource::<TicksDue>() {
            Some(TicksDue(None)) => return,
            Some(TicksDue(Some(check))) => self.schedule.check_change_ticks(*check),
            // The application has cleared the world's resources.
            None => {}
        }
        let _ = self.store.change(|world| world.insert_resource(TicksDue(None)));
    }

    /// A tick after a look that found something.
    #[inline]
    pub(crate) fn run(&mut self) {
        let progress = self.store.progress();
        if progress.closed() {
            return;
        }
        self.observer.found();
        progress.budget = std::mem::replace(&mut self.budget, self.delivered_max);
        // The frequent case: nothing but arrivals, of messages that are awaited. No code of an application runs here.
        if progress.pending == Pending::DRAIN && self.delivers && progress.senders.is_empty() {
            if self.watching.is_on() {
                return self.run_passes(true);
            }
            self.counters.ran(DELIVER);
            self.store.with(deliver);
            if self.store.progress().pending == Pending::NONE {
                return;
            }
        }
        self.run_passes(false);
    }

    /// The passes over the systems; `deliver` runs Deliver before them, since somebody watches.
    #[inline(never)]
    fn run_passes(&mut self, deliver: bool) {
        let Tables { progress, endpoints, .. } = self.store.all();
        if progress.pending.has(Pending::DRAIN) && wants_control(endpoints) {
            control(&mut self.store.as_mut(), &mut self.events);
            if self.is_lost() {
                return;
            }
        }
        let Engine { schedule, store, watching, counters, limits, .. } = self;
        let ran = if self.has_systems {
            store.run(schedule)
        } else {
            // Two at least: what one pass has read, the next one matches.
            let passes = Passes::own(counters, limits.passes_max.max(2));
            catch_unwind(AssertUnwindSafe(|| match deliver {
                true => watching.deliver(&passes, &mut store.as_mut()),
                false => watching.run(&passes, &mut store.as_mut(), &mut Users::none()),
            }))
        };
        if let Err(panic) = ran {
            self.poison(&*panic);
            return;
        }
        if !self.store.progress().answers.is_empty()
            && let Some(panic) = self.answer_submissions()
        {
            self.poison(&*panic);
            return;
        }
        if self.observer.receipts {
            self.note_receipts();
        }
    }

    #[cold]
    fn poison(&mut self, panic: &(dyn std::any::Any + Send)) {
        // Whoever panicked may have moved tables before: they are looked at before a row is.
        let _ = self.store.verify();
        let words = words_of(panic);
        self.close_poisoned(words);
    }

    /// Whether the world is lost; the engine is poisoned then.
    #[cold]
    pub(crate) fn is_lost(&mut self) -> bool {
        let Some(words) = self.store.lost() else { return false };
        if self.closed == Closed::No {
            self.close_poisoned(words);
        }
        true
    }

    #[cold]
    pub(crate) fn close_poisoned(&mut self, words: String) {
        if self.store.lost().is_some() {
            // These are rows of endpoints, of which there are none any more.
            (self.holders, self.prompt) = (Box::default(), Box::default());
            self.allow_deliver(false);
        }
        // From here on no call touches memory of the application, and neither does a transport.
        self.closed = Closed::Poisoned(words.clone());
        self.store.progress().posting |= posting::CLOSED;
        for endpoint in self.store.endpoints() {
            // One that panics has told so by itself, and the others still have to be told.
            let _ = catch_unwind(AssertUnwindSafe(|| endpoint.transport.get().end_direct()));
        }
        // What is done is done, whoever else has panicked.
        let _ = self.answer_submissions();
        self.refuse_submissions();
        // The first panic is told; those of who hears of it change nothing.
        self.store.all().callbacks.tell_all(&Err(RequestError::Poisoned(words.clone())));
        self.tell_error(&format!("the engine is poisoned: {words}"));
    }

    /// Says whether Deliver may run. Without it, messages to oneself go through a tick like all others; and with a sink too,
    /// which sees what goes through a transport.
    pub(crate) fn allow_deliver(&mut self, delivers: bool) {
        self.delivers = delivers;
        let own = delivers && self.limits.own_at_once && self.trace.is_none();
        self.own_at_once = if own { self.rank().0 } else { NIL };
    }

    /// The row of a proc that has at least been contacted.
    #[inline]
    pub(crate) fn proc_row(&mut self, proc: u32) -> Result<u32, PostError> {
        let row = self.store.all().procs.known.get(proc as usize).map_or(NIL, |known| known.row);
        if row != NIL {
            return Ok(row);
        }
        self.contact(proc)
    }

    #[cold]
    pub(crate) fn contact(&mut self, proc: u32) -> Result<u32, PostError> {
        if self.closed != Closed::No {
            return Err(self.closed.post_error());
        }
        self.sample_clock();
        let row = contact(&mut self.store.as_mut(), proc);
        if !self.is_lost() {
            self.look_around();
        }
        // A look around may lose the world as well.
        if self.closed != Closed::No {
            return Err(self.closed.post_error());
        }
        row
    }
}
