//! Transports under other names. Calls over them have the outcome that the test chose. Calls and frames are counted.

use crate::late::Late;
use rustix::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tickwire::internals::components::wire::{Header, Kind};
use tickwire::internals::components::{Arrival, Pieces, Row};
use tickwire::internals::transports::{
    Capabilities, CreditWindows, Hub, LinkEvent, Loopback, Memory, Ofi, OfiConfig, OneSided, Registering, Sent,
    SharedMemory, Shm, ShmConfig, Transport,
};
use tickwire::testing::Board;

/// The first link number of calls that never succeed.
const NOTHING: u32 = 1 << 20;

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

/// See the module. The peer's calls over the transport have the outcome that the peer's side chose.
pub(crate) struct Barred<T> {
    name: &'static str,
    inner: T,
    capabilities: Capabilities,
    outcome: Calls,
    /// Calls that will fail, and how many more times they are polled before.
    lost: Vec<(u32, u32)>,
    next: u32,
    /// Number of calls, also of those that did not even start.
    calls: Arc<AtomicU64>,
    /// Number of frames of messages that it has sent.
    sent: Arc<AtomicU64>,
    /// What tells late of the ends of one-sided operations, if they are told late.
    late: Option<Late>,
}

impl<T: Transport> Barred<T> {
    fn new(name: &'static str, inner: T, priority: u8, outcome: Calls) -> Self {
        let capabilities = Capabilities { priority, ..inner.capabilities().clone() };
        let (calls, sent) = Default::default();
        Barred { name, inner, capabilities, outcome, lost: Vec::new(), next: NOTHING, calls, sent, late: None }
    }

    /// The same transport, which tells late that its last one-sided operation is complete.
    pub(crate) fn late(self, late: Late) -> Self {
        Barred { late: Some(late), ..self }
    }
}

/// A loopback transport under another name, which reaches no memory. Its connections have the outcome that the test chose.
pub(crate) type Gate = Barred<Loopback>;

/// A gate of a rank over a hub, and the number of frames of messages that it sends.
pub(crate) fn gate(name: &'static str, hub: &Hub, rank: u32, priority: u8, calls: Calls, sent: Arc<AtomicU64>) -> Gate {
    let inner = Loopback::join(&hub.clone().apart(), rank).unwrap();
    Barred { sent, ..Barred::new(name, inner, priority, calls) }
}

/// Shared memory of a job of its own.
pub(crate) fn memory(
    (name, board): (&'static str, &Board),
    rank: u32,
    priority: u8,
    outcome: Calls,
    calls: Arc<AtomicU64>,
) -> Barred<Shm> {
    let bootstrap = board.bootstrap(rank);
    let job = format!("{}-{name}", bootstrap.job());
    let inner = Shm::open(ShmConfig::new(job, rank, bootstrap.size())).unwrap();
    Barred { calls, ..Barred::new(name, inner, priority, outcome) }
}

/// A fabric over a provider.
pub(crate) fn fabric(
    (name, board): (&'static str, &Board),
    provider: &str,
    rank: u32,
    priority: u8,
    outcome: Calls,
    calls: Arc<AtomicU64>,
) -> Barred<Ofi> {
    let mut config = OfiConfig::new(format!("{}-{name}", board.bootstrap(rank).job()), rank, 2);
    config.choice.include = vec![provider.to_owned()];
    Barred { calls, ..Barred::new(name, Ofi::open(&config).unwrap().remove(0), priority, outcome) }
}

// SAFETY: everything that it lends comes from the transport within.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl<T: Transport> Transport for Barred<T> {
    type RowState = T::RowState;

    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn card(&self) -> Vec<u8> {
        self.inner.card()
    }

    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        self.inner.reaches(proc, card)
    }

    fn memory(&mut self) -> Option<&mut dyn Memory> {
        self.inner.memory()
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSided> {
        let inner = self.inner.one_sided()?;
        Some(match &mut self.late {
            Some(late) => late.around(inner),
            None => inner,
        })
    }

    fn registering(&mut self) -> Option<&mut dyn Registering> {
        self.inner.registering()
    }

    fn credit_windows(&mut self) -> Option<&mut dyn CreditWindows> {
        self.inner.credit_windows()
    }

    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        self.inner.shared_memory()
    }

    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match self.outcome {
            Calls::Open => self.inner.connect(proc, card, now_ns),
            Calls::Refused => Err(format!("{} cannot call proc {proc}", self.name)),
            Calls::Lost(_) | Calls::Silent => {
                self.next += 1;
                if let Calls::Lost(looks) = self.outcome {
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

    fn fits(&mut self, link: u32, payload: u64) -> u64 {
        self.inner.fits(link, payload)
    }

    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, state: &mut T::RowState) -> Sent {
        assert!(link < NOTHING, "it was never connected");
        let sent = self.inner.send(link, header, pieces, state);
        let counts = !matches!(header.kind(), Some(Kind::Call | Kind::Accept | Kind::Bye));
        self.sent.fetch_add(u64::from(counts && sent == Sent::Done), Ordering::Relaxed);
        sent
    }

    fn flush(&mut self) {
        self.inner.flush();
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

    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        self.inner.has_ended(proc, card)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.lost.is_empty() && self.inner.arm()
    }

    fn must_poll(&self) -> bool {
        self.inner.must_poll()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn close(&mut self) {
        self.inner.close();
    }
}
