//! A tick: a look at the endpoints, and passes over the systems if there is something to do.

mod watched;

use crate::run::engine::{Engine, Looks};
use crate::run::passes::{Passes, Users};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwire_components::limits::{CLOCK_POLLS, CLOCK_POLLS_A_TICK};
use tickwire_components::{Pending, Progress, Work};
use tickwire_systems::procs::connections::{control, wants_control};
use tickwire_systems::procs::endpoint::OperationRows;
use tickwire_systems::procs::receipts::look_again;
use tickwire_systems::protocols::one_sided::fabric::advance_by_fabric;
use tickwire_systems::store::Tables;
use tickwire_systems::tick::boards::advance_boards;
use tickwire_systems::tick::deliver::{deliver, look_and_deliver};
use tickwire_traces::DELIVER;

impl Engine {
    /// Does a bounded amount of work. Returns what was done since the last tick, including the work of calls in between.
    ///
    /// Returns at once if there is nothing to do. The next tick does the work that is left over. After a panic in a system of the
    /// application the engine is poisoned, and ticks do nothing.
    #[inline]
    pub fn tick(&mut self) -> Work {
        self.polls += CLOCK_POLLS_A_TICK - 1;
        self.tick_now()
    }

    /// As [`Engine::tick`], with the time given by the caller: ns since any fixed moment, never less than before.
    ///
    /// From then on, this time moves only by such ticks. A call that waits does not move it. So in such a call everything rests that is
    /// due after some time: deadlines of connections and failures, and asking after messages of collective operations that do not come.
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

    /// Looks for work, and does at most a tick's part of it. Returns whether there was any. Makes no system call, except once every
    /// `control_us`. `patient` says that the caller has nothing else to do.
    // Each call in it is a tail call, so that a look saves no registers on the stack.
    #[inline]
    pub(crate) fn advance(&mut self, patient: bool) -> bool {
        self.polls += 1;
        if self.polls >= CLOCK_POLLS {
            return self.advance_with_clock(patient);
        }
        self.look(patient)
    }

    /// Counts a call that does all by itself as a poll. Returns whether the engine is to look around, as every so many polls. Otherwise a
    /// program that makes no other calls would never learn that a peer has failed.
    #[inline(always)]
    pub(crate) fn is_look_due(&mut self) -> bool {
        self.polls += 1;
        self.polls >= CLOCK_POLLS
    }

    /// Looks around if [`Engine::is_look_due`] says so, and does at most a tick's part of what it finds.
    #[inline]
    pub(crate) fn look_now_and_then(&mut self) {
        if self.is_look_due() {
            self.look_around_and_tick();
        }
    }

    /// As [`Engine::look_now_and_then`], for a call that is counted already.
    #[inline]
    pub(crate) fn look_if_due(&mut self) {
        if self.polls >= CLOCK_POLLS {
            self.look_around_and_tick();
        }
    }

    #[cold]
    fn look_around_and_tick(&mut self) {
        self.advance(false);
        self.let_go();
    }

    #[cold]
    #[inline(never)]
    fn advance_with_clock(&mut self, patient: bool) -> bool {
        self.look_at_clock();
        self.look(patient)
    }

    #[inline(always)]
    fn look(&mut self, patient: bool) -> bool {
        let (progress, inbound, endpoints) = self.store.look();
        progress.ticks += 1;
        self.observer.ticked(progress.ticks);
        if inbound.ready() {
            progress.pending |= Pending::POST;
        }
        for endpoint in endpoints {
            // Other endpoints are polled by `look_apart`.
            if endpoint.transport.get().rings_ready() {
                endpoint.found = true;
                progress.pending |= Pending::DRAIN;
            }
        }
        let pending = progress.pending != Pending::NONE || !progress.senders.is_empty();
        match self.looks {
            Looks::Rings => pending && self.run(),
            Looks::Noted => self.look_noted(patient, pending),
            Looks::Apart => self.look_apart(patient),
        }
    }

    /// Goes on with [`Engine::advance`] where a sink or open receipts may have to be told that a look has found nothing.
    #[inline(never)]
    fn look_noted(&mut self, patient: bool, pending: bool) -> bool {
        if pending {
            return self.run();
        }
        if patient && self.watching.is_on() {
            look_again(self.store.progress());
        }
        false
    }

    /// Goes on with [`Engine::advance`] over everything that is polled separately. Returns whether there was work.
    #[inline(never)]
    fn look_apart(&mut self, patient: bool) -> bool {
        let mut moved = self.boards_busy && self.look_at_boards();
        if self.has_mail {
            moved |= self.serve_mail();
        }
        if self.fabric_busy {
            moved |= self.look_at_fabric();
        }
        if !self.others.is_empty() {
            self.look_at_others();
        }
        if !self.prompt.is_empty() {
            moved |= self.look_promptly(patient);
        }
        let progress = self.store.progress();
        let pending = progress.pending != Pending::NONE || !progress.senders.is_empty();
        moved | self.look_noted(patient, pending)
    }

    /// Advances the operations on boards. Returns whether one of them has made progress.
    #[inline(never)]
    pub(crate) fn look_at_boards(&mut self) -> bool {
        let store = &mut self.store;
        if store.progress().closed() {
            return false;
        }
        // A function of the application may panic in it.
        let moved = match catch_unwind(AssertUnwindSafe(|| store.with(advance_boards))) {
            Ok(moved) => moved,
            Err(panic) => {
                self.poison(&*panic);
                return true;
            }
        };
        self.mind_boards();
        if moved {
            self.note_ended();
        }
        moved
    }

    /// Notes what each look has to poll from now on: boards while operations on them are in progress, windows in which others leave short
    /// puts, and fabrics while they have operations with requests.
    pub(crate) fn mind_boards(&mut self) {
        let all = self.store.all();
        (self.boards_busy, self.has_mail) = (!all.boards.busy.is_empty(), !all.windows.mailed.is_empty());
        self.fabric_busy = !all.windows.by_fabric.is_empty();
        self.choose_looks();
    }

    /// Chooses what follows the rings in each look.
    pub(crate) fn choose_looks(&mut self) {
        let busy = self.boards_busy || self.has_mail || self.fabric_busy;
        self.looks = match busy || !self.prompt.is_empty() || !self.others.is_empty() {
            true => Looks::Apart,
            false if self.watching.is_always_on() => Looks::Noted,
            false => Looks::Rings,
        };
    }

    /// Advances the operations with requests that a fabric performs. Returns whether one of them has ended.
    #[inline(never)]
    fn look_at_fabric(&mut self) -> bool {
        let store = &mut self.store;
        let moved = !store.progress().closed() && store.with(advance_by_fabric);
        self.mind_boards();
        if moved {
            self.note_ended();
        }
        moved
    }

    /// Performs the short puts that others have left in this rank's windows. Returns whether there were any.
    #[inline(never)]
    fn serve_mail(&mut self) -> bool {
        let all = self.store.all();
        let served = !all.progress.closed() && all.windows.serve_mail();
        all.progress.work.received += u32::from(served);
        served
    }

    /// Polls the endpoints that are neither rings nor prompt. Those that are expensive to poll are polled only as often as is worth it.
    #[inline(never)]
    fn look_at_others(&mut self) {
        let Tables { progress, cars, requests, vcs, endpoints, .. } = self.store.all();
        let rows = OperationRows { active: progress.active, cars, requests, vcs };
        for &number in &self.others {
            let endpoint = &mut endpoints[number];
            if !endpoint.cheap_poll {
                endpoint.find_operations(number as u8, self.observer.awaited.row, &rows);
            }
            if endpoint.matches && !progress.provider.queue.is_empty() {
                progress.pending |= Pending::POST;
            }
            if endpoint.ready() {
                endpoint.found = true;
                progress.pending |= Pending::DRAIN;
            }
        }
    }

    /// Polls the endpoints whose messages are delivered at once. Returns whether any were delivered.
    #[inline(always)]
    fn look_promptly(&mut self, patient: bool) -> bool {
        self.budget = self.delivered_max;
        match *self.prompt {
            [row] => self.look_promptly_at(row, patient),
            _ => self.look_promptly_at_all(),
        }
    }

    /// Polls an endpoint and delivers what has come. Returns whether there was something. If other work has to be done first, the tick
    /// delivers it later.
    #[inline(always)]
    fn look_promptly_at(&mut self, row: usize, patient: bool) -> bool {
        let Tables { progress, endpoints, .. } = self.store.all();
        if !may_deliver(progress, self.delivers, Pending::NONE) || progress.closed() {
            let endpoint = &mut endpoints[row];
            if endpoint.ready() {
                endpoint.found = true;
                progress.pending |= Pending::DRAIN;
            }
            return false;
        }
        let budget = self.budget;
        let count = match self.watching.is_on() {
            true => self.look_promptly_watched(row, budget, patient),
            false => self.store.with(|rows, wire| look_and_deliver(rows, &mut wire.endpoints[row], budget, patient)),
        };
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
        let mut index = 0;
        // A watcher may panic, and an engine that has lost its world has no endpoints.
        while let Some(&row) = self.prompt.get(index) {
            delivered |= self.look_promptly_at(row, false);
            index += 1;
        }
        delivered
    }

    /// Takes the account of what was done since the last tick.
    #[inline(always)]
    pub(crate) fn take_work(&mut self) -> Work {
        let work = self.store.progress().work.take();
        if !work.is_idle() {
            self.observer.add(work);
            #[cfg(feature = "bevy")]
            {
                self.unclaimed = true;
            }
        }
        work
    }

    /// Runs a tick after a look that found something. Returns `false`, and does nothing, if the engine is closed.
    #[inline(never)]
    pub(crate) fn run(&mut self) -> bool {
        let progress = self.store.progress();
        if progress.closed() {
            return false;
        }
        self.observer.found();
        progress.budget = std::mem::replace(&mut self.budget, self.delivered_max);
        // The frequent case: nothing is pending but arrivals of messages that are awaited. No code of the application runs here:
        // Deliver leaves what may call its functions to the systems.
        if may_deliver(progress, self.delivers, Pending::DRAIN) {
            self.counters.ran(DELIVER);
            let is_left = match self.watching.is_on() {
                true => self.deliver_watched(),
                false => self.store.with(deliver),
            };
            if !is_left {
                return true;
            }
        }
        self.run_passes();
        true
    }

    /// Runs the passes over the systems.
    #[inline(never)]
    fn run_passes(&mut self) {
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
            // At least two passes: what one pass has read, the next one matches.
            let passes = Passes::own(counters, limits.passes_max.max(2));
            catch_unwind(AssertUnwindSafe(|| watching.run(&passes, &mut store.as_mut(), &mut Users::none())))
        };
        if let Err(panic) = ran {
            self.poison(&*panic);
            return;
        }
        if !self.store.progress().owed_to_threads.is_empty()
            && let Some(panic) = self.answer_submissions()
        {
            self.poison(&*panic);
            return;
        }
        if self.observer.receipts {
            self.note_receipts();
        }
    }

    /// Says whether Deliver may run: not where systems of the application, or those who read from one place only, are to see the
    /// rows in between. Without Deliver all requests end in Complete.
    pub(crate) fn allow_deliver(&mut self, delivers: bool) {
        self.delivers = delivers;
        self.store.progress().ends_at_once = delivers;
        self.choose_own_at_once();
    }
}

/// Whether Deliver may run: it is `allowed`, and nothing is pending but its own work. Then it keeps the order of a pass.
#[inline(always)]
fn may_deliver(progress: &Progress, allowed: bool, pending: Pending) -> bool {
    progress.pending == pending && allowed && progress.senders.is_empty()
}
