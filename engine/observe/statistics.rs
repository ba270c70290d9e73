//! Keeping the statistics page: a few stores at a look, everything else about once a millisecond.

use crate::run::core::{Closed, Engine};
#[cfg(feature = "dump")]
use rustix::fd::AsFd;
use rustix::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use tickwire_components::limits::{OBSERVE_NS, PEERS_A_LOOK, ROWS_A_LOOK, ROWS_A_LOOK_MAX};
use tickwire_components::{Car, CarKind, CarState, NIL, RequestId, Vc, VcState, Work};
use tickwire_systems::procs::endpoint::Endpoint;
use tickwire_systems::store::Tables;
use tickwire_traces::page::{Figures, Identity, Page, PeerFigures};

/// What an engine keeps to tell of itself.
pub(crate) struct Observer {
    /// What others read.
    pub(crate) page: Page,
    /// Ticks that found something to do.
    pub(crate) busy: u64,
    /// What was done, all ticks together; the numbers wrap.
    pub(crate) work: Work,
    /// The request that a call waits for; row [`NIL`] if there is none or the call waits for several.
    pub(crate) awaited: RequestId,
    /// The owner is in a call that waits, and has found nothing to do for long.
    pub(crate) waiting: bool,
    /// Operations with receipts are not done yet.
    pub(crate) receipts: bool,
    /// Time asleep, ns.
    pub(crate) slept_ns: u64,
    /// When the page was written last, ns of the engine's clock.
    written_ns: u64,
    /// `work` when the page was written last, and the sums without the wrapping.
    last: [u32; 5],
    sums: [u64; 5],
    /// The sweep over the rows: where it is, and what it has counted.
    row: usize,
    counted: Counts,
    /// What the last whole sweep has counted.
    counts: Counts,
    /// The peer whose figures are written next.
    peer: usize,
    #[cfg(feature = "dump")]
    pub(crate) door: Option<super::answer::Door>,
}

/// Operations by where they stand.
#[derive(Default)]
struct Counts {
    posted: u64,
    queued: u64,
    offered: u64,
    moving: u64,
    /// By VC: receives posted, and sends that wait or move.
    peers: Vec<[u64; 2]>,
}

impl Counts {
    fn add(&mut self, car: &Car) {
        if !matches!(car.kind, CarKind::Send | CarKind::Receive) {
            return;
        }
        let (count, place) = match car.state {
            CarState::Posted | CarState::New | CarState::ToProvider | CarState::AtProvider | CarState::Recalled => {
                (&mut self.posted, 0)
            }
            CarState::Queued => (&mut self.queued, 1),
            CarState::Offered => (&mut self.offered, 1),
            CarState::Sending => (&mut self.moving, 1),
            CarState::Direct if car.kind == CarKind::Send => (&mut self.moving, 1),
            CarState::Matched | CarState::Receiving | CarState::Reading | CarState::Direct => {
                self.moving += 1;
                return;
            }
            _ => return,
        };
        *count += 1;
        if let Some(peer) = self.peers.get_mut(car.vc as usize) {
            peer[place] += 1;
        }
    }

    /// Starts anew, with so many peers.
    fn clear(&mut self, peers: usize) {
        (self.posted, self.queued, self.offered, self.moving) = (0, 0, 0, 0);
        self.peers.clear();
        self.peers.resize(peers, [0; 2]);
    }
}

impl Observer {
    pub(crate) fn new(job: &str, rank: u32, size: u32, endpoints: &[&str]) -> Self {
        static ENGINES: AtomicU64 = AtomicU64::new(0);
        let engine = ENGINES.fetch_add(1, Ordering::Relaxed);
        let identity = Identity { pid: std::process::id().into(), rank: rank.into(), size: size.into(), engine };
        Observer {
            page: Page::new(identity, job, endpoints, size as usize),
            busy: 0,
            work: Work::default(),
            awaited: RequestId { row: NIL, generation: 0 },
            waiting: false,
            receipts: false,
            slept_ns: 0,
            written_ns: 0,
            last: [0; 5],
            sums: [0; 5],
            row: 0,
            counted: Counts::default(),
            counts: Counts::default(),
            peer: 0,
            #[cfg(feature = "dump")]
            door: super::answer::Door::open(engine),
        }
    }

    /// Answers a signal too, if one is named.
    ///
    /// # Errors
    /// If there is no such signal, or it cannot be caught.
    #[cfg(feature = "dump")]
    pub(crate) fn listen_to(mut self, signal: Option<&str>) -> Result<Self, String> {
        if let (Some(door), Some(name)) = (&mut self.door, signal) {
            door.listen_to(name)?;
        }
        Ok(self)
    }

    /// What is readable when somebody asks for a dump.
    pub(crate) fn door(&self) -> Option<BorrowedFd<'_>> {
        #[cfg(feature = "dump")]
        let door = self.door.as_ref().map(|door| door.listener.as_fd());
        #[cfg(not(feature = "dump"))]
        let door = None;
        door
    }

    /// Adds what a tick has done.
    #[inline(always)]
    pub(crate) fn add(&mut self, work: Work) {
        if !cfg!(feature = "statistics") {
            return;
        }
        let sum = &mut self.work;
        sum.posted = sum.posted.wrapping_add(work.posted);
        sum.matched = sum.matched.wrapping_add(work.matched);
        sum.sent = sum.sent.wrapping_add(work.sent);
        sum.received = sum.received.wrapping_add(work.received);
        sum.completed = sum.completed.wrapping_add(work.completed);
    }

    /// Counts a tick that has found something to do.
    #[inline(always)]
    pub(crate) fn found(&mut self) {
        self.busy += u64::from(cfg!(feature = "statistics"));
    }

    /// Says how often the engine has ticked. Without the feature, that is said when the page is written.
    #[inline(always)]
    pub(crate) fn ticked(&self, ticks: u64) {
        if cfg!(feature = "statistics") {
            self.page.ticked(ticks);
        }
    }

    /// What was done so far, in the order of [`Work`]'s fields; `open` is what has not been added yet.
    fn sum(&mut self, open: Work) -> [u64; 5] {
        let mut now = words(self.work);
        for (sum, open) in now.iter_mut().zip(words(open)) {
            *sum = sum.wrapping_add(open);
        }
        for (sum, (now, last)) in self.sums.iter_mut().zip(now.into_iter().zip(self.last)) {
            *sum += u64::from(now.wrapping_sub(last));
        }
        self.last = now;
        self.sums
    }

    /// Counts the next rows; at the end of the table the counts are those of all rows.
    fn sweep(&mut self, cars: &[Car], vcs: usize, rows: usize) {
        let end = cars.len().min(self.row + rows);
        cars[self.row.min(end)..end].iter().for_each(|car| self.counted.add(car));
        self.row = end;
        if end == cars.len() {
            std::mem::swap(&mut self.counts, &mut self.counted);
            self.counted.clear(vcs);
            self.row = 0;
        }
    }
}

impl Engine {
    /// Tells what is due, if the last time is long enough ago.
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

    /// Says that the engine takes no more calls.
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
        // Rarer looks count more rows, so that a sweep takes a bounded time.
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
        let Tables { vcs, endpoints, .. } = all;
        let counts = &observer.counts.peers;
        let peers =
            (first..last).map(|row| figures_of(&vcs[row], endpoints, counts.get(row).copied().unwrap_or_default()));
        observer.page.publish(figures, first, peers);
    }
}

fn words(work: Work) -> [u32; 5] {
    [work.posted, work.matched, work.sent, work.received, work.completed]
}

/// The figures of a peer; of its operations: receives posted, and sends that wait or move.
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
        sent: traffic.sent,
        received: traffic.received,
        read: traffic.read,
        posted_receives,
        sends,
    }
}

/// The clock that a watcher has too, ns.
#[expect(unsafe_code, reason = "rustix looks for the system's fast way itself, and does not survive it under valgrind")]
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the local value only.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
