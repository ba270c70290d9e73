//! Transports whose connections succeed or fail as a test says, and clusters with two such transports.

use rustix::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tickwire::internals::components::wire::{Header, Kind};
use tickwire::internals::components::{Arrival, Pieces, Row};
use tickwire::internals::transports::{Capabilities, CreditWindows, Hub, LinkEvent, Loopback, Sent, Transport};
use tickwire::testing::{Cluster, ROWS};
use tickwire::{Builder, Engine};

/// The first link number of connections that never succeed.
const NOTHING: u32 = 1 << 20;
/// Bytes of a ring.
const RING_BYTES: usize = 64 << 10;

/// The outcome of a connection attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Calls {
    /// It succeeds.
    Open,
    /// It cannot even start.
    Refused,
    /// It fails when it has been polled this many times.
    Lost(u32),
    /// Nobody ever answers it.
    Silent,
}

/// A loopback transport under another name. Its connections have the outcome that the test chose.
pub(crate) struct Gate {
    name: &'static str,
    inner: Loopback,
    calls: Calls,
    capabilities: Capabilities,
    /// Links that will fail, and the number of polls until then.
    lost: Vec<(u32, u32)>,
    next: u32,
    /// Number of frames of messages that it has sent.
    sent: Arc<AtomicU64>,
}

impl Gate {
    fn new(name: &'static str, inner: Loopback, priority: u8, calls: Calls, sent: Arc<AtomicU64>) -> Self {
        let capabilities = Capabilities { priority, ..inner.capabilities().clone() };
        Gate { name, inner, calls, capabilities, lost: Vec::new(), next: NOTHING, sent }
    }
}

// SAFETY: everything that it lends comes from the transport within.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Transport for Gate {
    type RowState = ();

    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn card(&self) -> Vec<u8> {
        Vec::new()
    }

    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        self.inner.reaches(proc, card)
    }

    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        match self.calls {
            Calls::Open => self.inner.connect(proc, card, now_ns),
            Calls::Refused => Err(format!("{} cannot call proc {proc}", self.name)),
            Calls::Lost(_) | Calls::Silent => {
                self.next += 1;
                if let Calls::Lost(looks) = self.calls {
                    self.lost.push((self.next, looks));
                }
                Ok(self.next)
            }
        }
    }

    fn attach(&mut self, link: u32, vc: Row) {
        assert!(link < NOTHING, "it was never connected");
        self.inner.attach(link, vc);
    }

    fn credit_windows(&mut self) -> Option<&mut dyn CreditWindows> {
        self.inner.credit_windows()
    }

    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, state: &mut ()) -> Sent {
        assert!(link < NOTHING, "it was never connected");
        let sent = self.inner.send(link, header, pieces, state);
        let counts = !matches!(header.kind(), Some(Kind::Call | Kind::Accept | Kind::Bye));
        self.sent.fetch_add(u64::from(counts && sent == Sent::Done), Ordering::Relaxed);
        sent
    }

    fn ready(&self) -> bool {
        self.inner.ready()
    }

    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.inner.drain(now_ns, arrivals)
    }

    fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        if link < NOTHING { self.inner.drain_link(link, now_ns, arrivals) } else { 0 }
    }

    fn release(&mut self) {
        self.inner.release();
    }

    fn wants_control(&self) -> bool {
        !self.lost.is_empty() || self.inner.wants_control()
    }

    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        self.inner.control(now_ns, events);
        for (_, looks) in &mut self.lost {
            *looks = looks.saturating_sub(1);
        }
        for (link, _) in self.lost.extract_if(.., |(_, looks)| *looks == 0) {
            events.push(LinkEvent::Failed { link, reason: format!("{} was not answered", self.name) });
        }
    }

    fn close_link(&mut self, link: u32) {
        self.lost.retain(|(lost, _)| *lost != link);
        if link < NOTHING {
            self.inner.close_link(link);
        }
    }

    fn give_up(&mut self, link: u32, reason: &str) {
        self.lost.retain(|(lost, _)| *lost != link);
        if link < NOTHING {
            self.inner.give_up(link, reason);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.lost.is_empty() && self.inner.arm()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn close(&mut self) {
        self.inner.close();
    }
}

/// A gate of a rank over a hub.
pub(crate) fn gate(name: &'static str, hub: &Hub, rank: u32, priority: u8, calls: Calls, sent: Arc<AtomicU64>) -> Gate {
    Gate::new(name, Loopback::join(hub, rank).unwrap(), priority, calls, sent)
}

/// The settings of an engine: the priorities of its two transports, and the outcome of connections over each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) priorities: [u8; 2],
    pub(crate) calls: [Calls; 2],
}

/// A cluster with two transports, "upper" and "lower". Both reach all procs.
pub(crate) struct TwoWays {
    pub(crate) cluster: Cluster,
    /// By rank: number of frames of messages that were sent over each transport.
    sent: Vec<[Arc<AtomicU64>; 2]>,
}

impl TwoWays {
    pub(crate) fn new(sides: &[Side]) -> Self {
        Self::with(sides, |builder| builder)
    }

    pub(crate) fn with(sides: &[Side], change: impl Fn(Builder) -> Builder + Sync) -> Self {
        let procs = sides.len() as u32;
        let hubs = [0; 2].map(|_| Hub::new(procs, RING_BYTES));
        let sent = Mutex::new(vec![[(); 2].map(|()| Arc::default()); sides.len()]);
        let cluster = Cluster::build(procs, |rank| {
            let Side { priorities, calls } = sides[rank as usize];
            let counts: [Arc<AtomicU64>; 2] = [(); 2].map(|()| Arc::default());
            sent.lock().unwrap()[rank as usize] = counts.clone();
            let gate = |way: usize| {
                let name = ["upper", "lower"][way];
                gate(name, &hubs[way], rank, priorities[way], calls[way], counts[way].clone())
            };
            let builder = Engine::builder().exclude(["shm"]).initial_rows(ROWS);
            change(builder.transport(gate(0)).transport(gate(1)))
        });
        TwoWays { cluster, sent: sent.into_inner().unwrap() }
    }

    /// How many frames of messages a rank has sent over each transport.
    pub(crate) fn sent(&self, rank: usize) -> [u64; 2] {
        [0, 1].map(|way| self.sent[rank][way].load(Ordering::Relaxed))
    }
}
