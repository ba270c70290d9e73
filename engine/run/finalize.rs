//! The end of an engine: it sends pending messages, then closes everything in order, within a bounded time.

use crate::run::engine::{Closed, Engine};
use std::time::{Duration, Instant};
use tickwire_components::limits::{DROP_TIME_MAX, WAIT_TIME_MAX};
use tickwire_components::wire::{Header, Kind, UNFINISHED};
use tickwire_components::{
    CallStage, Car, CarKind, CarState, Control, ControlFrame, FinalizeError, Pending, RequestState, Row, VcState,
    car_flags, posting,
};
use tickwire_systems::procs::ending::may_use;
use tickwire_systems::procs::receipts::uses;
use tickwire_systems::procs::windows::{Reach, RemoteOperation};
use tickwire_systems::protocols::board::leave;
use tickwire_systems::protocols::graph::kept::free_idle;
use tickwire_systems::protocols::one_sided::close_windows;
use tickwire_systems::steps::finish::abort;
use tickwire_systems::tick::boards::close_boards;
use tickwire_transports::{OneSided, Sent};

impl Engine {
    /// Sends pending messages, tells the peers, and closes the engine. Idempotent. Receives without a message are given up.
    ///
    /// Dropping an engine does the same, for at most half a second. If an operation is still pending then, or if the drop comes from a
    /// panic, peers are told that this proc ended without finalizing. Peers treat that as a failure of this proc, also in receives from any
    /// source.
    ///
    /// # Errors
    /// If sends were still pending after `timeout`, which peers treat as a failure too, or if the engine was poisoned. The engine is closed
    /// all the same.
    pub fn finalize(&mut self, timeout: Duration) -> Result<(), FinalizeError> {
        self.leave(timeout, false)
    }

    /// Ends the engine. If it was `dropped`, nobody reads the error returned here; its peers are told instead.
    fn leave(&mut self, timeout: Duration, dropped: bool) -> Result<(), FinalizeError> {
        if matches!(self.closed, Closed::Finalized) {
            return Ok(());
        }
        let start = Instant::now();
        let end = Some(start + timeout.min(WAIT_TIME_MAX));
        let (mut pending, mut orderly) = (0, false);
        if self.poisoned_by().is_none() {
            self.free_dropped();
            let _ = self.flush(end);
        }
        // A callback may have panicked meanwhile.
        if self.poisoned_by().is_none() {
            pending = self.sends_pending();
            orderly = pending == 0 && !(dropped && self.store.progress().active > 0);
            self.say_goodbye(end, orderly);
        }
        // Peers must stop reading before any buffer is given back to the application.
        self.close_transports();
        if self.poisoned_by().is_none() {
            self.give_up();
        }
        let poisoned = self.poisoned_by();
        self.close();
        match dropped && !orderly {
            true => self.exchange.abandon(),
            false => self.exchange.finish(),
        }
        match poisoned {
            Some(words) => Err(FinalizeError::Poisoned(words)),
            None if pending > 0 => Err(FinalizeError::Pending { pending, ms: start.elapsed().as_millis() as u64 }),
            None => Ok(()),
        }
    }

    /// The words of the panic that has poisoned the engine, if one has.
    fn poisoned_by(&self) -> Option<String> {
        match &self.closed {
            Closed::Poisoned(words) => Some(words.clone()),
            Closed::No | Closed::Finalized => None,
        }
    }

    /// Ends the engine while the application panics. It waits for nothing, and calls code of the application only where it must.
    fn abandon(&mut self) {
        match self.closed {
            Closed::Finalized => return,
            Closed::Poisoned(_) => {}
            Closed::No => {
                // What boards show of an operation goes with the engine.
                let all = self.store.all();
                all.boards.open_ones().for_each(|members| leave(&members.seats, all.endpoints));
                self.say_goodbye(None, false);
            }
        }
        self.close_transports();
        self.close();
        self.exchange.abandon();
    }

    /// Closes all transports. From here on they send nothing, and touch no buffer of the application.
    fn close_transports(&mut self) {
        for endpoint in self.store.endpoints() {
            let transport = endpoint.transport.get();
            transport.give_memory_back();
            transport.close();
        }
    }

    /// Closes the engine. From here on every call fails with an error that says so.
    fn close(&mut self) {
        (self.closed, self.quick) = (Closed::Finalized, false);
        // Only an engine that was poisoned or abandoned still has windows here. Their memory is leaked, since peers may still write to it.
        let windows = self.store.all().windows.list.drain(..).flatten();
        windows.for_each(|window| std::mem::forget(window.own));
        self.store.progress().posting |= posting::CLOSED;
        self.refuse_submissions();
        self.say_closed();
        self.flush_trace();
    }

    /// Makes progress until no send is pending.
    fn flush(&mut self, end: Option<Instant>) -> Result<(), tickwire_components::RequestError> {
        self.wait_deadline(end, |engine| {
            engine.closed.check_request()?;
            Ok(engine.sends_pending() == 0)
        })
    }

    fn sends_pending(&mut self) -> usize {
        let all = self.store.all();
        // Puts and updates of calls must leave before the goodbye does.
        let targets = all.windows.list.iter().flatten().flat_map(|window| &window.targets);
        let unsent = |operation: &&RemoteOperation| !operation.all_sent && operation.is_of_call();
        let one_sided = targets.flat_map(|target| &target.operations).filter(unsent).count() + self.fabric_pending();
        let all = self.store.all();
        if all.progress.active == 0 && all.progress.senders.is_empty() {
            return one_sided;
        }
        let pending = |car: &&Car| match car.kind {
            CarKind::Send => !matches!(car.state, CarState::Free | CarState::Done) && !is_at_rest(car),
            CarKind::Receive => car.state == CarState::Queued,
            _ => false,
        };
        // No peer waits for a credit grant or for an inquiry.
        let is_awaited = |frame: &&ControlFrame| !frame.what.is_grant() && !matches!(frame.what, Control::Inquiry(_));
        let owed = all.progress.control.frames.iter().filter(is_awaited).count();
        one_sided + owed + all.cars.iter().filter(pending).count()
    }

    /// How many operations by fabrics are not complete. Until they are, a peer may not give its memory away.
    fn fabric_pending(&mut self) -> usize {
        let all = self.store.all();
        let mut pending = all.windows.by_fabric.len();
        let targets = all.windows.list.iter().flatten().flat_map(|window| &window.targets);
        for target in targets.filter(|target| target.by_fabric > 0) {
            let Reach::Fabric { endpoint, channel, .. } = target.reach else { continue };
            let Some(fabric) = all.endpoints[usize::from(endpoint)].transport.get().one_sided() else { continue };
            // After a link has ended, another one may have got its number, with counts that begin anew.
            let is_open = |fabric: &dyn OneSided| {
                fabric.completed(channel) < target.fabric_turn && fabric.issued(channel) >= target.fabric_turn
            };
            if is_open(fabric) {
                fabric.progress();
                pending += usize::from(is_open(fabric));
            }
        }
        pending
    }

    /// Tells every connected peer that nothing follows, and whether this is an orderly end. Tries again until `end`; without one, tries
    /// once.
    fn say_goodbye(&mut self, end: Option<Instant>, orderly: bool) {
        let me = self.exchange.rank();
        for row in 0..self.store.all().vcs.len() {
            let is_orderly = orderly && !may_use(&mut self.store.all(), row as Row);
            let goodbye = Header::new(Kind::Bye, 0, 0, if is_orderly { 0 } else { UNFINISHED }, 0, 0);
            loop {
                let all = self.store.all();
                let vc = all.vcs[row];
                // While this side still waits for the answer to its call, the peer may already use the link.
                let attempt = all.procs.routes.attempts.get(&(row as Row));
                let is_called = attempt.is_some_and(|attempt| attempt.stage != CallStage::Calling);
                let may_be_used = vc.state == VcState::Connecting && is_called;
                if !(vc.state == VcState::Connected || may_be_used) || vc.proc == me {
                    break;
                }
                let transport = all.endpoints[vc.endpoint as usize].transport.get();
                let sent = transport.send(vc.link, &goodbye, &tickwire_components::NoBytes, None);
                // A transport that splits frames may have sent a part of this one, and a second try would send it from the start. The
                // transport is closed next anyway.
                let whole = transport.capabilities().whole_frames;
                if sent != Sent::Blocked || !whole || end.is_none_or(|end| Instant::now() >= end) {
                    break;
                }
                self.advance(false);
                rustix::thread::sched_yield();
            }
        }
    }

    /// Ends every request that is not done. Those requests are marked as finalized.
    fn give_up(&mut self) {
        let all = self.store.all();
        for row in 0..all.cars.len() {
            let car = &all.cars[row];
            let idle = matches!(car.state, CarState::Free | CarState::Finished | CarState::Chained | CarState::Done);
            if !idle && !is_at_rest(car) && !matches!(car.kind, CarKind::Data | CarKind::Graph) {
                abort(all.progress, all.cars, row as u32, car_flags::FINALIZED);
            }
        }
        self.store.with(|rows, _| close_boards(rows));
        self.store.with(|rows, wire| close_windows(rows, wire.endpoints));
        self.mind_boards();
        let all = self.store.all();
        for vc in all.vcs.iter_mut() {
            vc.state = VcState::Failed;
            vc.posted = tickwire_components::Queue::EMPTY;
            vc.sends = tickwire_components::Queue::EMPTY;
            vc.data = tickwire_components::Queue::EMPTY;
            vc.listed = false;
        }
        let progress = all.progress;
        progress.wildcard = tickwire_components::Queue::EMPTY;
        progress.posted.clear();
        progress.new_receives = tickwire_components::Queue::EMPTY;
        *progress.provider = Default::default();
        progress.posting &= !tickwire_components::posting::PROVIDER;
        progress.replies = tickwire_components::Queue::EMPTY;
        progress.graphs.startable = tickwire_components::Queue::EMPTY;
        progress.control.clear();
        progress.offers = tickwire_components::Queue::EMPTY;
        progress.copies = tickwire_components::Queue::EMPTY;
        progress.reads = tickwire_components::Queue::EMPTY;
        progress.senders = tickwire_components::Queue::EMPTY;
        progress.pending = Pending::COMPLETE;
        self.run();
        self.take_work();
        debug_assert!(
            self.closed != Closed::No || self.store.all().requests.iter().all(|r| r.state != RequestState::Active),
            "every request has ended"
        );
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        match std::thread::panicking() {
            true => self.abandon(),
            false => drop(self.leave(DROP_TIME_MAX, true)),
        }
        if self.store.lost().is_some() {
            // Nobody knows which generations were used, so no later engine may use this home.
            return;
        }
        let all = self.store.all();
        let generations = all.requests.iter().map(|r| r.generation).max().unwrap_or(0).wrapping_add(1);
        // Receipts without a row count their uses from the epoch on.
        self.home.leave(generations.max(self.epoch.wrapping_add(uses(all.progress))));
        self.store.with(|rows, _| free_idle(rows));
        self.store.as_mut().free_buffers();
    }
}

/// Whether a CAR is a node of a graph with nothing in progress: it has ended, or its graph has not started, or the graph is kept for the
/// next call like the last one.
fn is_at_rest(car: &Car) -> bool {
    car.state == CarState::Resting
}
