//! Keeping the statistics page up to date: a few stores in each look, and everything else about once a millisecond.

use crate::run::engine::{Closed, Engine};
use tickwire_components::limits::{OBSERVE_NS, PEERS_A_LOOK, ROWS_A_LOOK, ROWS_A_LOOK_MAX};
use tickwire_components::{Row, Vc, VcState};
use tickwire_systems::procs::endpoint::Endpoint;
use tickwire_systems::store::Tables;
use tickwire_traces::page::{Figures, PeerFigures};

impl Engine {
    /// Writes the page and answers visitors, if the last time is long enough ago.
    #[inline]
    pub(crate) fn observe(&mut self) {
        let now_ns = self.store.progress().now_ns;
        let passed_ns = now_ns.wrapping_sub(self.observer.written_ns);
        if passed_ns >= OBSERVE_NS {
            self.publish(now_ns, passed_ns);
            #[cfg(feature = "dump")]
            self.answer_visitors();
        }
    }

    /// Writes to the page that the engine is closed.
    pub(crate) fn say_closed(&mut self) {
        let now_ns = self.store.progress().now_ns;
        self.publish(now_ns, 0);
    }

    /// Writes the page.
    #[cold]
    fn publish(&mut self, now_ns: u64, passed_ns: u64) {
        let closed = self.closed != Closed::No;
        let observer = &mut self.observer;
        observer.written_ns = now_ns;
        let all = self.store.all();
        // If looks are rarer, each counts more rows, so that a sweep takes a bounded time.
        let rows = (passed_ns / OBSERVE_NS) as usize * ROWS_A_LOOK;
        observer.sweep(all.cars, all.vcs.len(), rows.clamp(ROWS_A_LOOK, ROWS_A_LOOK_MAX));
        let [posted, matched, sent, received, completed] = observer.sum(all.progress.work.get());
        let progress = &all.progress;
        observer.page.ticked(progress.ticks);
        let figures = Figures {
            written_ns: monotonic_ns(),
            now_ns,
            slept_ns: observer.slept_ns,
            busy: observer.busy,
            posted,
            matched,
            sent,
            received,
            completed,
            active: progress.active.into(),
            unexpected: progress.unexpected.count.into(),
            unexpected_bytes: progress.unexpected.bytes,
            posted_receives: observer.counts.posted,
            queued_sends: observer.counts.queued,
            offered_sends: observer.counts.offered,
            moving: observer.counts.moving,
            free_rows: progress.free_cars.count.into(),
            rows: all.cars.len() as u64,
            pool_bytes: progress.pool_bytes,
            peers: all.vcs.len() as u64,
            closed: closed.into(),
        };
        let room = all.vcs.len().min(observer.page.peers());
        let first = if observer.peer < room { observer.peer } else { 0 };
        let last = room.min(first + PEERS_A_LOOK);
        observer.peer = last;
        let Tables { vcs, endpoints, procs, .. } = all;
        let counts = &observer.counts.peers;
        let peers = (first..last).map(|row| {
            let one_sided = procs.routes.one_sided(row as Row).map_or(0, |(endpoint, _)| u64::from(endpoint) + 1);
            let counted = counts.get(row).copied().unwrap_or_default();
            PeerFigures { one_sided, ..figures_of(&vcs[row], endpoints, counted) }
        });
        observer.page.publish(figures, first, peers);
    }
}

/// The figures of a peer, without its route of one-sided traffic. The array has the numbers of posted receives and of sends that wait or
/// are in transfer.
fn figures_of(vc: &Vc, endpoints: &mut [Endpoint], [posted_receives, sends]: [u64; 2]) -> PeerFigures {
    let traffic = endpoints.get_mut(vc.endpoint as usize).and_then(|e| e.transport.get().traffic(vc.link));
    let traffic = traffic.unwrap_or_default();
    PeerFigures {
        proc: vc.proc.into(),
        state: match vc.state {
            VcState::Unconnected => 0,
            VcState::Connecting => 1,
            VcState::Connected => 2,
            VcState::Failed => 3,
        },
        endpoint: vc.endpoint.into(),
        one_sided: 0,
        sent: traffic.sent,
        received: traffic.received,
        read: traffic.read,
        posted_receives,
        sends,
    }
}

/// The clock that processes reading the page have too, ns.
#[expect(unsafe_code, reason = "rustix looks for the system's fast way itself, and does not survive it under valgrind")]
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the local value only.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
