//! A transport for tests: wraps another one and adds what networks do to it, from a seed.
//!
//! Frames are delayed in the caller's time (order is kept per link, not between links), sends are refused now and
//! then, and procs die at a given frame or moment. Everything follows from the seed and from the calls that are made:
//! there is no clock and no other randomness, so a seed reproduces a run of a cluster that is ticked in a fixed order.

use crate::{Capabilities, LinkEvent, Sent, Traffic, Transport};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::wire::Header;
use tickwire_components::{Access, Arrival, ArrivalState, NIL, Pieces, Registration, Row, Span, Spans};

/// Frames that are taken from the wrapped transport at once.
const CHUNK: usize = 64;

/// What the simulated network does.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Decides everything below.
    pub seed: u64,
    /// How long a frame takes, ns of the caller's time.
    pub delay_ns: Range<u64>,
    /// Sends that are refused although there is room, of 256.
    pub blocked_of_256: u8,
    /// Time from a death until the others are told, ns.
    pub notice_ns: u64,
}

impl SimConfig {
    /// Delays of up to 2 ms, one send of eight refused, deaths noticed after 100 ms.
    pub fn new(seed: u64) -> Self {
        SimConfig { seed, delay_ns: 0..2_000_000, blocked_of_256: 32, notice_ns: 100_000_000 }
    }
}

/// When a proc dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// Instead of sending its frame with this number, from 0.
    Frame(u64),
    /// At this moment of the caller's time, ns.
    At(u64),
}

/// The network that the [`Sim`]s of a cluster share. Clones are the same network.
#[derive(Clone, Debug)]
pub struct SimNet {
    config: SimConfig,
    procs: Arc<Mutex<Vec<Fate>>>,
}

/// What is known of a proc.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    frames: u64,
    death: Option<Death>,
    /// When it has died, ns.
    died_ns: Option<u64>,
}

impl SimNet {
    /// A network of so many procs, all in good health.
    pub fn new(procs: u32, config: SimConfig) -> Self {
        SimNet { config, procs: Arc::new(Mutex::new(vec![Fate::default(); procs as usize])) }
    }

    /// What it was made with.
    pub fn config(&self) -> &SimConfig {
        &self.config
    }

    /// Says when a proc dies.
    pub fn kill(&self, proc: u32, death: Death) {
        if let Some(fate) = self.lock().get_mut(proc as usize) {
            fate.death = Some(death);
        }
    }

    /// Frames that a proc has sent so far.
    pub fn frames(&self, proc: u32) -> u64 {
        self.lock().get(proc as usize).map_or(0, |fate| fate.frames)
    }

    /// When a proc has died, ns.
    pub fn died_ns(&self, proc: u32) -> Option<u64> {
        self.lock().get(proc as usize).and_then(|fate| fate.died_ns)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Fate>> {
        self.procs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a proc is dead at a moment.
    fn is_dead(&self, proc: u32, now_ns: u64) -> bool {
        let mut procs = self.lock();
        let Some(fate) = procs.get_mut(proc as usize) else { return false };
        if let (None, Some(Death::At(at))) = (fate.died_ns, fate.death)
            && now_ns >= at
        {
            fate.died_ns = Some(at);
        }
        fate.died_ns.is_some()
    }

    /// Counts a frame; `false` if its sender is dead, or dies now.
    fn sends(&self, proc: u32, now_ns: u64) -> bool {
        if self.is_dead(proc, now_ns) {
            return false;
        }
        let mut procs = self.lock();
        let Some(fate) = procs.get_mut(proc as usize) else { return true };
        if fate.death == Some(Death::Frame(fate.frames)) {
            fate.died_ns = Some(now_ns);
            return false;
        }
        fate.frames += 1;
        true
    }
}

/// A frame on its way.
struct Late {
    due_ns: u64,
    header: Header,
    payload: Box<[u8]>,
}

/// Frames of one VC on their way, in their order.
#[derive(Default)]
struct Lane {
    frames: VecDeque<Late>,
    /// When the last of them is due: none overtakes it.
    due_ns: u64,
}

/// What is kept of a link.
struct LinkState {
    proc: u32,
    vc: Row,
    /// Why it has failed; told once its lane is empty.
    failed: Option<String>,
    /// Never opened, or its end has been told, or it was closed.
    over: bool,
}

/// A transport under simulation. See the module.
pub struct Sim<T> {
    inner: T,
    capabilities: Capabilities,
    me: u32,
    net: SimNet,
    random: SplitMix,
    links: Vec<LinkState>,
    lanes: BTreeMap<Row, Lane>,
    /// Payloads of arrivals that have not been released.
    delivered: Vec<Box<[u8]>>,
    scratch: Vec<Arrival>,
    inner_events: Vec<LinkEvent>,
    now_ns: u64,
}

impl<T: Transport> Sim<T> {
    /// Puts a transport of proc `me` under simulation.
    pub fn new(inner: T, me: u32, net: &SimNet) -> Self {
        // What is not a frame cannot be delayed, so credit goes in frames.
        let capabilities = Capabilities { windows: false, ..inner.capabilities().clone() };
        Sim {
            inner,
            capabilities,
            me,
            net: net.clone(),
            random: SplitMix::new(net.config.seed ^ (u64::from(me) << 40)),
            links: Vec::new(),
            lanes: BTreeMap::new(),
            delivered: Vec::new(),
            scratch: vec![Arrival::default(); CHUNK],
            inner_events: Vec::new(),
            now_ns: 0,
        }
    }

    fn link(&mut self, link: u32) -> &mut LinkState {
        while self.links.len() <= link as usize {
            self.links.push(LinkState { proc: NIL, vc: NIL, failed: None, over: true });
        }
        &mut self.links[link as usize]
    }

    fn open(&mut self, link: u32, proc: u32) {
        *self.link(link) = LinkState { proc, vc: NIL, failed: None, over: false };
    }

    fn is_dead(&self) -> bool {
        self.net.is_dead(self.me, self.now_ns)
    }

    /// Takes what the wrapped transport has; the frames' times are decided here.
    fn take_in(&mut self, now_ns: u64) {
        loop {
            let count = self.inner.drain(now_ns, &mut self.scratch);
            let range = self.net.config.delay_ns.clone();
            for arrival in &self.scratch[..count] {
                let delay_ns = range.start + self.random.below(range.end.saturating_sub(range.start).max(1));
                let lane = self.lanes.entry(arrival.vc).or_default();
                lane.due_ns = lane.due_ns.max(now_ns + delay_ns);
                let payload = bytes(arrival.payload);
                lane.frames.push_back(Late { due_ns: lane.due_ns, header: arrival.header, payload });
            }
            self.inner.release();
            if count < self.scratch.len() {
                return;
            }
        }
    }

    /// Hands out the frames that are due.
    fn deliver(&mut self, now_ns: u64, out: &mut [Arrival], only: Option<Row>) -> usize {
        let mut count = 0;
        for (&vc, lane) in self.lanes.iter_mut().filter(|(vc, _)| only.is_none_or(|only| only == **vc)) {
            while count < out.len() && lane.frames.front().is_some_and(|late| late.due_ns <= now_ns) {
                let Some(mut late) = lane.frames.pop_front() else { break };
                let payload = span(&mut late.payload);
                self.delivered.push(late.payload);
                let state = ArrivalState::New;
                out[count] = Arrival { header: late.header, payload, vc, state, ..Arrival::default() };
                count += 1;
            }
        }
        count
    }

    /// Links whose failure is known, and whose last frames have been handed out, are over.
    fn tell_failures(&mut self, events: &mut Vec<LinkEvent>) {
        let dead = self.is_dead();
        for (link, state) in self.links.iter_mut().enumerate().filter(|(_, state)| !state.over) {
            let noticed_ns = self.now_ns.saturating_sub(self.net.config.notice_ns);
            let noticed = self.net.is_dead(state.proc, noticed_ns)
                && self.net.died_ns(state.proc).is_some_and(|died_ns| died_ns <= noticed_ns);
            if state.failed.is_none() && (dead || noticed) {
                state.failed = Some(if dead { "this proc has died".into() } else { "the proc has died".into() });
            }
            let empty = self.lanes.get(&state.vc).is_none_or(|lane| lane.frames.is_empty());
            if (empty || dead)
                && let Some(reason) = state.failed.take()
            {
                state.over = true;
                events.push(LinkEvent::Failed { link: link as u32, reason });
            }
        }
    }
}

impl<T: Transport> Transport for Sim<T> {
    type RowState = T::RowState;

    fn name(&self) -> &str {
        "sim"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn card(&self) -> Vec<u8> {
        self.inner.card()
    }

    fn moved(&self) -> (u64, u64) {
        self.inner.moved()
    }

    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        self.inner.reaches(proc, card)
    }

    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        let link = self.inner.connect(proc, card, now_ns)?;
        self.open(link, proc);
        Ok(link)
    }

    fn traffic(&self, link: u32) -> Option<Traffic> {
        self.inner.traffic(link)
    }

    fn attach(&mut self, link: u32, vc: Row) {
        self.link(link).vc = vc;
        self.inner.attach(link, vc);
    }

    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, state: &mut Self::RowState) -> Sent {
        if self.random.below(256) < self.net.config.blocked_of_256.into() {
            return Sent::Blocked;
        }
        if !self.net.sends(self.me, self.now_ns) {
            return Sent::Failed;
        }
        self.inner.send(link, header, pieces, state)
    }

    fn lend(&mut self, link: u32, least: u64, most: u64, into: &mut Spans) -> u64 {
        self.inner.lend(link, least, most, into)
    }

    fn take_back(&mut self, run: Span) {
        self.inner.take_back(run);
    }

    fn register(&mut self, span: Span, access: Access) -> Result<Registration, String> {
        self.inner.register(span, access)
    }

    fn deregister(&mut self, registration: Registration) {
        self.inner.deregister(registration);
    }

    fn ready(&self) -> bool {
        !self.is_dead() && (self.inner.ready() || self.lanes.values().any(|lane| !lane.frames.is_empty()))
    }

    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.now_ns = self.now_ns.max(now_ns);
        if self.is_dead() {
            return 0;
        }
        self.take_in(now_ns);
        self.deliver(now_ns, arrivals, None)
    }

    fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.now_ns = self.now_ns.max(now_ns);
        if self.is_dead() {
            return 0;
        }
        self.take_in(now_ns);
        let vc = self.link(link).vc;
        self.deliver(now_ns, arrivals, Some(vc))
    }

    fn release(&mut self) {
        self.delivered.clear();
    }

    fn wants_control(&self) -> bool {
        self.inner.wants_control() || self.links.iter().any(|state| !state.over && state.failed.is_some())
    }

    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        self.now_ns = self.now_ns.max(now_ns);
        // What has been written is read before the end is told.
        self.take_in(now_ns);
        let mut inner = std::mem::take(&mut self.inner_events);
        self.inner.control(now_ns, &mut inner);
        for event in inner.drain(..) {
            match event {
                LinkEvent::Failed { link, reason } => {
                    self.link(link).failed = Some(reason);
                    continue;
                }
                LinkEvent::Accepted { link, proc } => self.open(link, proc),
                LinkEvent::Replaced { link, by } => {
                    let proc = self.link(link).proc;
                    self.link(link).over = true;
                    self.open(by, proc);
                }
                LinkEvent::Connected { .. } => {}
            }
            events.push(event);
        }
        self.inner_events = inner;
        self.tell_failures(events);
    }

    fn close_link(&mut self, link: u32) {
        let state = self.link(link);
        state.over = true;
        state.failed = None;
        let vc = state.vc;
        self.lanes.remove(&vc);
        self.inner.close_link(link);
    }

    fn wait_fd(&self) -> Option<rustix::fd::BorrowedFd<'_>> {
        // A frame that is late has no descriptor that tells.
        None
    }

    fn arm(&mut self) -> bool {
        !self.ready() && self.inner.arm()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn close(&mut self) {
        self.inner.close();
    }
}

/// A copy of a payload.
#[expect(unsafe_code, reason = "a payload that the wrapped transport lends until it is told to release")]
fn bytes(payload: Span) -> Box<[u8]> {
    // SAFETY: the wrapped transport keeps the payload until its `release`, which is called after this.
    unsafe { std::slice::from_raw_parts(payload.start(), payload.len()) }.into()
}

/// A payload as a span.
#[expect(unsafe_code, reason = "a span over storage that stays until release")]
fn span(payload: &mut [u8]) -> Span {
    // SAFETY: the storage is on the heap and is kept in `delivered` until `release`.
    unsafe { Span::new(payload.as_mut_ptr(), payload.len()) }
}

/// A small generator of pseudo-random numbers (Steele, Lea, Flood: SplitMix64), for tests that a seed must reproduce.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        SplitMix(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next number below a bound, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hub, Loopback, OneRun};
    use tickwire_components::wire::Kind;

    fn pair(config: SimConfig) -> (SimNet, [Sim<Loopback>; 2]) {
        let (hub, net) = (Hub::new(2, 4096), SimNet::new(2, config));
        let mut sims = [0, 1].map(|me| Sim::new(Loopback::join(&hub, me).unwrap(), me, &net));
        let mut events = Vec::new();
        let link = sims[0].connect(1, &[], 0).unwrap();
        sims[0].control(0, &mut events);
        sims[0].attach(link, 7);
        sims[1].control(0, &mut events);
        assert!(matches!(events[1], LinkEvent::Accepted { link: 0, proc: 0 }), "{events:?}");
        sims[1].attach(0, 9);
        (net, sims)
    }

    /// Sends frames with numbers as tags; returns (number, ns) as they came.
    fn run(seed: u64, frames: u32) -> Vec<(u32, u64)> {
        let (_, [mut a, mut b]) = pair(SimConfig::new(seed));
        let (mut next, mut out, mut now_ns) = (0, Vec::new(), 0);
        let mut arrivals = [Arrival::default(); 8];
        while out.len() < frames as usize {
            let header = Header::new(Kind::Eager, 0, 0, next, 0, 0);
            if next < frames && a.send(0, &header, &OneRun(Span::EMPTY), &mut ()) == Sent::Done {
                next += 1;
            }
            let count = b.drain(now_ns, &mut arrivals);
            out.extend(arrivals[..count].iter().map(|a| (a.header.tag(), now_ns)));
            assert!(arrivals[..count].iter().all(|a| a.vc == 9));
            b.release();
            now_ns += 100_000;
            assert!(now_ns < 10_000_000_000, "{out:?}");
        }
        out
    }

    #[test]
    fn a_seed_reproduces_a_run_and_order_stays() {
        let first = run(1, 100);
        assert_eq!(first, run(1, 100));
        assert_ne!(first, run(2, 100));
        assert!(first.iter().map(|(number, _)| *number).eq(0..100));
    }

    #[test]
    fn the_dead_are_silent_and_their_end_is_told_after_what_they_said() {
        let config = SimConfig { blocked_of_256: 0, delay_ns: 5_000_000..5_000_001, ..SimConfig::new(3) };
        let (net, [mut a, mut b]) = pair(config);
        net.kill(0, Death::Frame(2));
        let header = Header::new(Kind::Eager, 0, 0, 0, 0, 0);
        let sent: Vec<Sent> = (0..4).map(|_| a.send(0, &header, &OneRun(Span::EMPTY), &mut ())).collect();
        assert_eq!(sent, [Sent::Done, Sent::Done, Sent::Failed, Sent::Failed]);
        assert_eq!((net.frames(0), net.died_ns(0)), (2, Some(0)));
        let (mut events, mut arrivals) = (Vec::new(), [Arrival::default(); 8]);
        b.control(1_000_000, &mut events);
        assert_eq!((events.len(), b.drain(1_000_000, &mut arrivals)), (0, 0));
        b.control(200_000_000, &mut events);
        assert!(events.is_empty(), "two frames are still to be read");
        assert_eq!(b.drain(200_000_000, &mut arrivals), 2);
        b.control(200_000_000, &mut events);
        assert!(matches!(events[..], [LinkEvent::Failed { link: 0, .. }]), "{events:?}");
    }
}
