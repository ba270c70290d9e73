//! The rare part of progress: the clock, sockets, the launcher, dropped tokens, members that have failed.

use crate::bootstrap::{BootstrapEvent, EXITED};
use crate::run::engine::{Closed, Engine};
use tickwire_components::Pending;
use tickwire_components::limits::MEMBERS_CHECK_NS;
use tickwire_systems::procs::connections::{ask_after, ask_after_holders, control, process_ended};
use tickwire_systems::procs::ending::remind;
use tickwire_systems::protocols::graph::inquiry::inquire;
use tickwire_systems::protocols::graph::remains::drop_strays;
use tickwire_systems::steps::posted::{may_await_any, posted_to_any};

impl Engine {
    #[cold]
    #[inline(never)]
    pub(super) fn look_at_clock(&mut self) {
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

    /// The rare part of progress: sockets, the launcher, dropped tokens. It also ends a prepared sleep.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_around(&mut self) {
        if self.closed != Closed::No {
            return;
        }
        // The caller makes progress again, so a sleep that it has prepared is over.
        self.end_wait();
        self.controlled_ns = self.store.progress().now_ns;
        control(&mut self.store.as_mut(), &mut self.events);
        if self.is_lost() {
            return;
        }
        // Frames that a transport has refused are sent again, even if there is nothing else to send.
        let progress = self.store.progress();
        if !progress.control.is_empty() {
            progress.pending |= Pending::POST;
        }
        while let Some(event) = self.exchange.poll_event() {
            if let BootstrapEvent::RankEnded { rank, reason } = event {
                let failed = reason != EXITED;
                let reason = format!("process of rank {rank} has ended: {reason}");
                process_ended(&mut self.store.as_mut(), rank, reason, failed);
            }
        }
        if self.controlled_ns.wrapping_sub(self.ends.asked_ns) >= MEMBERS_CHECK_NS {
            self.ask_after_ends();
            let now_ns = self.controlled_ns;
            self.store.with(|rows, _| inquire(rows, now_ns));
            drop_strays(&mut self.store.all());
        }
        self.free_dropped();
        if self.store.progress().has_provider() {
            self.look_after_matching();
        }
        self.look_after_communicators();
        self.give_directory();
        ask_after_holders(&mut self.store.as_mut());
        if self.is_lost() {
            return;
        }
        self.check_change_ticks();
        if self.is_lost() {
            return;
        }
        self.observe();
    }

    /// Makes sure that receives from any source learn of failed members. It repeats failures that nobody has acknowledged. Where no
    /// launcher reports the ends of processes, it also asks about procs that were never contacted.
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
}
