//! What an engine keeps for its statistics page and its dumps.

#[cfg(feature = "dump")]
use rustix::fd::AsFd;
use rustix::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use tickwire_components::{Car, CarKind, CarState, NIL, RequestId, Work};
use tickwire_traces::page::{Identity, Page};

/// Peers for which a new engine has room to count rows: 32 KiB for both counts. Later counts make more room if there are more peers.
const ROOM_PEERS: u32 = 1024;

/// What an engine keeps for its statistics page and its dumps.
pub(crate) struct Observer {
    /// The statistics page, which other processes read.
    pub(crate) page: Page,
    /// Ticks that found something to do.
    pub(crate) busy: u64,
    /// The work of all ticks so far. The counters wrap.
    pub(crate) work: Work,
    /// The request that a call waits for; row [`NIL`] if there is none or the call waits for several.
    pub(crate) awaited: RequestId,
    /// A call waits for an agreement on a communicator.
    pub(crate) agrees: bool,
    /// Whether the owner is in a waiting call that has found nothing to do for long.
    pub(crate) waiting: bool,
    /// Whether operations with receipts are in progress.
    pub(crate) receipts: bool,
    /// Time asleep, ns.
    pub(crate) slept_ns: u64,
    /// When the page was written last, ns of the engine's clock.
    pub(super) written_ns: u64,
    /// `work` when the page was written last, and the same sums without wrapping.
    pub(super) last: [u32; 5],
    pub(super) sums: [u64; 5],
    /// The sweep over the rows: the next row, and what the sweep has counted so far.
    pub(super) row: usize,
    pub(super) counted: Counts,
    /// What the last whole sweep has counted.
    pub(super) counts: Counts,
    /// The peer whose figures are written next.
    pub(super) peer: usize,
    #[cfg(feature = "dump")]
    engine: u64,
    #[cfg(feature = "dump")]
    pub(crate) door: Option<super::door::Door>,
}

/// Numbers of operations, by their state.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) posted: u64,
    pub(super) queued: u64,
    pub(super) offered: u64,
    pub(super) moving: u64,
    /// By VC: posted receives, and sends that wait or are in transfer.
    pub(super) peers: Vec<[u64; 2]>,
}

impl Counts {
    /// With room for the peers of most jobs, so that a sweep does not have to make it at a time when nothing else is allocated.
    fn for_peers(size: u32) -> Self {
        Counts { peers: Vec::with_capacity(size.min(ROOM_PEERS) as usize), ..Counts::default() }
    }

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
            CarState::Sending | CarState::Parked => (&mut self.moving, 1),
            CarState::Direct if car.kind == CarKind::Send => (&mut self.moving, 1),
            CarState::Matched | CarState::Receiving | CarState::Passing | CarState::Reading | CarState::Direct => {
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

    /// Starts a new count, for this many peers.
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
            agrees: false,
            waiting: false,
            receipts: false,
            slept_ns: 0,
            written_ns: 0,
            last: [0; 5],
            sums: [0; 5],
            row: 0,
            counted: Counts::for_peers(size),
            counts: Counts::for_peers(size),
            peer: 0,
            #[cfg(feature = "dump")]
            engine,
            #[cfg(feature = "dump")]
            door: super::door::Door::open(engine),
        }
    }

    /// Also answers a signal with a dump, if a signal is named.
    ///
    /// # Errors
    /// If there is no such signal or it cannot be caught. The text says which signals are possible.
    #[cfg(feature = "dump")]
    pub(crate) fn listen_to(mut self, signal: Option<&str>) -> Result<Self, String> {
        if let (Some(door), Some(name)) = (&mut self.door, signal) {
            door.listen_to(name)?;
        }
        Ok(self)
    }

    /// From now on says how to ask ranks on other hosts.
    pub(crate) fn tell_of_hosts(&mut self) {
        #[cfg(feature = "dump")]
        if let Some(door) = &mut self.door {
            door.open_hosts(self.engine);
        }
    }

    /// Descriptors that are readable when somebody asks for a dump, or how to ask other hosts.
    pub(crate) fn doors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        #[cfg(feature = "dump")]
        let doors = self
            .door
            .as_ref()
            .map_or([None; 2], |door| [Some(door.listener.as_fd()), door.hosts.as_ref().map(|hosts| hosts.as_fd())]);
        #[cfg(not(feature = "dump"))]
        let doors = [None; 2];
        doors
    }

    /// Whether somebody has not read all of an answer yet. The engine must look after that from time to time.
    pub(crate) fn has_visitors(&self) -> bool {
        #[cfg(feature = "dump")]
        return self.door.as_ref().is_some_and(|door| !door.visitors.is_empty());
        #[cfg(not(feature = "dump"))]
        false
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

    /// Writes to the page how often the engine has ticked. Without the feature, only `publish` does.
    #[inline(always)]
    pub(crate) fn ticked(&self, ticks: u64) {
        if cfg!(feature = "statistics") {
            self.page.ticked(ticks);
        }
    }

    /// The work done so far, in the order of [`Work`]'s fields. `open` is work that has not been added yet.
    pub(super) fn sum(&mut self, open: Work) -> [u64; 5] {
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

    /// Counts the next rows. At the end of the table, `counts` gets the counts of all rows.
    pub(super) fn sweep(&mut self, cars: &[Car], vcs: usize, rows: usize) {
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

fn words(work: Work) -> [u32; 5] {
    [work.posted, work.matched, work.sent, work.received, work.completed]
}
