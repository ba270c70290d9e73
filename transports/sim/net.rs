//! The settings of a simulated network, and its state as seen from outside: which procs have died, which frames are in flight, which were
//! corrupted.

use super::random::SplitMix;
use super::state::{Corruption, Expected, Grants, Told};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::Span;
use tickwire_components::credit::{Credit, cost};
use tickwire_components::wire::{Header, Kind};

/// The faults of the simulated network. Each has its own setting and is off by default.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Decides everything below.
    pub seed: u64,
    /// How long a frame takes, in ns of the caller's time.
    pub delay_ns: Range<u64>,
    /// Whether due frames of different VCs are handed out in random order instead of in turn. Frames of one VC keep their order.
    pub shuffled: bool,
    /// How many of 256 sends are refused although there is room.
    pub blocked_of_256: u8,
    /// After how many of 256 sends the link refuses sends for a time.
    pub storm_of_256: u8,
    /// How long that time is, in ns.
    pub storm_ns: Range<u64>,
    /// How many of 256 frames are taken in parts. If not 0, [`crate::Capabilities::whole_frames`] is off.
    pub partial_of_256: u8,
    /// The most lines, and envelopes, of credit that one frame carries, or that are collected of one grant at a time. Further credit is
    /// held back and follows later. 0 for no bound.
    pub credit_portion: u16,
    /// Whether credit is written into the peer's memory, as over shared memory. If not, it goes with frames.
    pub credit_windows: bool,
    /// How many of 65536 frames are corrupted.
    pub corrupt_of_65536: u16,
    /// How they are corrupted.
    pub corruption: Corruption,
    /// Whether procs may read each other's memory. If not, long messages go in pieces.
    pub remote_read: bool,
    /// Whether the network moves long messages directly from buffer to buffer, where procs do not read each other's memory.
    pub moves: bool,
    /// How many of 256 reads of memory are refused, some after a part was read, and how many of 256 messages are not moved directly.
    pub unread_of_256: u8,
    /// How many of 256 engines are slow. A cluster ticks these only in one of [`SimConfig::slow_rounds`] rounds.
    pub slow_of_256: u8,
    /// See [`SimConfig::slow_of_256`].
    pub slow_rounds: u32,
    /// Time from a death until the others are told, in ns.
    pub notice_ns: u64,
}

impl SimConfig {
    /// Delays of up to 2 ms, one send of eight refused, deaths noticed after 100 ms.
    pub fn new(seed: u64) -> Self {
        SimConfig { blocked_of_256: 32, delay_ns: 0..2_000_000, ..SimConfig::calm(seed) }
    }

    /// No faults: frames take no time. Deaths are noticed after 100 ms. Nobody reads memory.
    pub fn calm(seed: u64) -> Self {
        SimConfig {
            seed,
            delay_ns: 0..1,
            shuffled: false,
            blocked_of_256: 0,
            storm_of_256: 0,
            storm_ns: 0..1,
            partial_of_256: 0,
            credit_portion: 0,
            credit_windows: false,
            corrupt_of_65536: 0,
            corruption: Corruption::Refused,
            remote_read: false,
            moves: false,
            unread_of_256: 0,
            slow_of_256: 0,
            slow_rounds: 1,
            notice_ns: 100_000_000,
        }
    }

    /// The number of rounds in which an engine is ticked once.
    pub fn pace(&self, proc: u32) -> u32 {
        let slow = SplitMix::new(self.seed ^ 0x51_0E ^ (u64::from(proc) << 32)).happens(self.slow_of_256);
        if slow { self.slow_rounds.max(1) } else { 1 }
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

/// The credit in flight from one proc to another: frames that were sent and not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flight {
    /// Credit that the messages and offers have used.
    pub spent: Credit,
    /// Credit that the frames grant, or that was written and not collected.
    pub granted: Credit,
}

/// The network that the [`Sim`](super::Sim)s of a cluster share. Clones are the same network.
#[derive(Clone, Debug)]
pub struct SimNet {
    config: SimConfig,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    procs: Vec<Fate>,
    /// By sender and receiver.
    pub(super) pairs: BTreeMap<(u32, u32), Pair>,
    /// Messages that were moved, by the proc that is to hear of their end.
    pub(super) told: BTreeMap<u32, Vec<Told>>,
}

/// State of a proc.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    frames: u64,
    death: Option<Death>,
    /// When it has died, ns.
    died_ns: Option<u64>,
}

/// State of the frames from one proc to another.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) flight: Flight,
    pub(super) grants: Grants,
    /// Frames that were changed.
    corrupted: u64,
    /// The sender has closed its link.
    closed: bool,
    /// Memory of the sender that the receiver may read, oldest first.
    pub(super) exposed: Vec<Span>,
    /// Bytes of it that the receiver has read.
    pub(super) read: u64,
    /// Messages that the receiver expects to be moved into its buffers, and how many it has expected so far.
    pub(super) expected: Vec<Expected>,
    pub(super) expected_before: u32,
}

impl SimNet {
    /// A network of `procs` procs, none of which dies yet.
    pub fn new(procs: u32, config: SimConfig) -> Self {
        let state = State { procs: vec![Fate::default(); procs as usize], ..State::default() };
        SimNet { config, state: Arc::new(Mutex::new(state)) }
    }

    /// The settings of the network.
    pub fn config(&self) -> &SimConfig {
        &self.config
    }

    /// Sets when a proc dies.
    pub fn kill(&self, proc: u32, death: Death) {
        if let Some(fate) = self.lock().procs.get_mut(proc as usize) {
            fate.death = Some(death);
        }
    }

    /// Frames that a proc has sent so far.
    pub fn frames(&self, proc: u32) -> u64 {
        self.lock().procs.get(proc as usize).map_or(0, |fate| fate.frames)
    }

    /// When a proc has died, ns.
    pub fn died_ns(&self, proc: u32) -> Option<u64> {
        self.lock().procs.get(proc as usize).and_then(|fate| fate.died_ns)
    }

    /// The credit in flight from one proc to another.
    pub fn flight(&self, from: u32, to: u32) -> Flight {
        self.lock().pairs.get(&(from, to)).map_or(Flight::default(), |pair| pair.flight)
    }

    /// Frames from one proc to another that were changed on their way.
    pub fn corrupted(&self, from: u32, to: u32) -> u64 {
        self.lock().pairs.get(&(from, to)).map_or(0, |pair| pair.corrupted)
    }

    /// Bytes of one proc's memory that another one has read.
    pub fn read_bytes(&self, from: u32, to: u32) -> u64 {
        self.lock().pairs.get(&(from, to)).map_or(0, |pair| pair.read)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a proc is dead at a moment.
    pub(super) fn is_dead(&self, proc: u32, now_ns: u64) -> bool {
        let mut state = self.lock();
        let Some(fate) = state.procs.get_mut(proc as usize) else { return false };
        if let (None, Some(Death::At(at))) = (fate.died_ns, fate.death)
            && now_ns >= at
        {
            fate.died_ns = Some(at);
        }
        fate.died_ns.is_some()
    }

    /// Whether a proc may send its next frame, or go on with it; `false` if it is dead, or dies now.
    pub(super) fn may_send(&self, proc: u32, now_ns: u64) -> bool {
        if self.is_dead(proc, now_ns) {
            return false;
        }
        let mut state = self.lock();
        let Some(fate) = state.procs.get_mut(proc as usize) else { return true };
        if fate.death == Some(Death::Frame(fate.frames)) {
            fate.died_ns = Some(now_ns);
            return false;
        }
        true
    }

    /// Notes that a frame has left one proc for another.
    pub(super) fn leaves(&self, from: u32, to: u32, header: &Header) {
        let mut state = self.lock();
        state.procs.get_mut(from as usize).into_iter().for_each(|fate| fate.frames += 1);
        let flight = &mut state.pairs.entry((from, to)).or_default().flight;
        flight.spent = combine(flight.spent, spent(header), u32::wrapping_add);
        flight.granted = combine(flight.granted, header.credit(), u32::wrapping_add);
    }

    /// Notes that a frame from one proc was handed to another.
    pub(super) fn lands(&self, from: u32, to: u32, header: &Header) {
        let mut state = self.lock();
        let flight = &mut state.pairs.entry((from, to)).or_default().flight;
        // A corrupted frame may carry more than has left, so the sums wrap.
        flight.spent = combine(flight.spent, spent(header), u32::wrapping_sub);
        flight.granted = combine(flight.granted, header.credit(), u32::wrapping_sub);
    }

    /// A frame was changed on its way.
    pub(super) fn corrupts(&self, from: u32, to: u32) {
        self.lock().pairs.entry((from, to)).or_default().corrupted += 1;
    }

    /// A proc has closed its link to another.
    pub(super) fn closes(&self, from: u32, to: u32) {
        self.lock().pairs.entry((from, to)).or_default().closed = true;
    }

    /// Whether a proc has closed its link to another.
    pub(super) fn is_closed(&self, from: u32, to: u32) -> bool {
        self.lock().pairs.get(&(from, to)).is_some_and(|pair| pair.closed)
    }
}

/// The credit that a frame has cost its sender.
fn spent(header: &Header) -> Credit {
    match header.kind() {
        Some(Kind::Eager | Kind::Head) => Credit { lines: cost(header.length), envelopes: 0 },
        Some(Kind::Rts) => Credit { lines: 0, envelopes: 1 },
        _ => Credit::NONE,
    }
}

pub(super) fn combine(a: Credit, b: Credit, with: fn(u32, u32) -> u32) -> Credit {
    Credit { lines: with(a.lines, b.lines), envelopes: with(a.envelopes, b.envelopes) }
}
