//! A transport that records what it is given, and does what it is told to.

mod matching;

use super::memory::{bytes, span};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::wire::Header;
use tickwire_components::{Access, Arrival, ArrivalState, Pieces, Registration, Row, Span};
use tickwire_transports::{
    Capabilities, Direct, Lending, LinkEvent, Matching, Memory, MemoryRead, Reach, ReceiveEnvelope, Registering, Sent,
    Transport, copy,
};

/// Largest payload of a frame of a [`FakeWire`], bytes.
pub const FRAME_MAX: usize = 1 << 20;

/// A frame that was given to a [`FakeWire`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SentFrame {
    /// On which link.
    pub link: u32,
    /// Its header.
    pub header: Header,
    /// Its payload, gathered.
    pub payload: Vec<u8>,
    /// How often it was refused before, as its CAR's row state tells.
    pub refusals: u32,
}

/// What a [`FakeWire`] has seen, and what it will do.
#[derive(Debug, Default)]
pub struct WireState {
    /// Frames, as they were sent.
    pub sent: Vec<SentFrame>,
    /// Frames it takes before it says that there is no room; `None` takes all.
    pub room: Option<usize>,
    /// Links that have no room.
    pub full: Vec<u32>,
    /// Bytes of payload that a frame takes for certain, where that is less than a frame may have.
    pub fits: Option<u64>,
    /// Links that fail.
    pub broken: Vec<u32>,
    /// Frames to be drained: (VC row, header, payload).
    pub incoming: VecDeque<(Row, Header, Vec<u8>)>,
    /// What the next look at the links tells.
    pub events: Vec<LinkEvent>,
    /// Calls of release.
    pub releases: u32,
    /// Links that the engine has closed, those of [`WireState::given_up`] too.
    pub closed_links: Vec<u32>,
    /// Links that the engine has given up, and why.
    pub given_up: Vec<(u32, String)>,
    /// Procs whose processes have ended.
    pub ended: Vec<u32>,
    /// Procs that it cannot reach.
    pub unreachable: Vec<u32>,
    /// Memory of peers that can be read: where it starts, and the bytes. Empty if none can.
    pub memory: Vec<(u64, Vec<u8>)>,
    /// Reads of each call that has read some.
    pub reads: Vec<usize>,
    /// What is exposed: link, address, bytes.
    pub exposed: Vec<(u32, usize, usize)>,
    /// Turn of the next message that it takes straight into its place; `None` takes none.
    pub next_turn: Option<u32>,
    /// Messages that it takes so: link, row, bytes.
    pub expected: Vec<(u32, Row, usize)>,
    /// Messages that it was given to move: link, row, turn, bytes.
    pub moved: Vec<(u32, Row, u32, Vec<u8>)>,
    /// The engine's process has mapped that memory.
    pub is_mapped: bool,
    /// What is alone to be read is read at once.
    pub reads_alone: bool,
    /// How much was read at once, bytes.
    pub read_at_once: usize,
    /// Which VC each link was attached to.
    pub attached: Vec<(u32, Row)>,
    /// Buffers that it can lend.
    pub lendable: Vec<Vec<u8>>,
    /// Buffers that are lent, in the order in which they were.
    pub lent: Vec<Vec<u8>>,
    /// Receives that it was given to match, in order.
    pub posted_receives: Vec<(Row, ReceiveEnvelope)>,
    /// Receives that it was asked back, in order.
    pub recalled: Vec<Row>,
    /// Receives that it takes before it says that there is no room; `None` takes all.
    pub room_for_receives: Option<usize>,
}

/// A transport that records. Link numbers are proc numbers.
pub struct FakeWire {
    state: Arc<Mutex<WireState>>,
    capabilities: Capabilities,
    /// It pairs receives with messages.
    matches: bool,
    /// It lends memory, and uses only what it knows.
    lends: bool,
    lent: Vec<Vec<u8>>,
}

pub(super) fn lock(state: &Mutex<WireState>) -> MutexGuard<'_, WireState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeWire {
    /// A wire with a state that a test keeps.
    pub fn new(state: Arc<Mutex<WireState>>) -> Self {
        let capabilities = Capabilities {
            whole_frames: true,
            inject_max: FRAME_MAX,
            cheap_poll: true,
            ..Capabilities::least(Reach::Process, 1, FRAME_MAX)
        };
        FakeWire { state, capabilities, matches: false, lends: false, lent: Vec::new() }
    }

    /// A wire that pairs receives with messages.
    pub fn that_matches(state: Arc<Mutex<WireState>>, capabilities: Capabilities) -> Self {
        FakeWire { matches: true, ..FakeWire::with(state, capabilities) }
    }

    /// A wire that lends memory, and uses only what it knows.
    pub fn that_lends(state: Arc<Mutex<WireState>>, capabilities: Capabilities) -> Self {
        FakeWire { lends: true, ..FakeWire::with(state, capabilities) }
    }

    /// The same with other capabilities.
    pub fn with(state: Arc<Mutex<WireState>>, capabilities: Capabilities) -> Self {
        FakeWire { state, capabilities, matches: false, lends: false, lent: Vec::new() }
    }
}

impl FakeWire {
    /// Hands out frames of some VCs, in order.
    fn hand_out(&mut self, arrivals: &mut [Arrival], of: impl Fn(Row) -> bool) -> usize {
        let mut state = lock(&self.state);
        let mut count = 0;
        while count < arrivals.len()
            && let Some(at) = state.incoming.iter().position(|(vc, ..)| of(*vc))
            && let Some((vc, header, mut payload)) = state.incoming.remove(at)
        {
            let span = span(&mut payload);
            self.lent.push(payload);
            arrivals[count] = Arrival { header, payload: span, vc, state: ArrivalState::New, ..Arrival::default() };
            count += 1;
        }
        count
    }
}

// SAFETY: what it gives out is its own, and stays as long as is said.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Transport for FakeWire {
    type RowState = u32;

    fn name(&self) -> &str {
        "fake"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn card(&self) -> Vec<u8> {
        Vec::new()
    }

    fn reaches(&self, proc: u32, _: &[u8]) -> Result<(), String> {
        match lock(&self.state).unreachable.contains(&proc) {
            true => Err("not on this wire".into()),
            false => Ok(()),
        }
    }

    fn connect(&mut self, proc: u32, _: &[u8], _: u64) -> Result<u32, String> {
        Ok(proc)
    }

    fn attach(&mut self, link: u32, vc: Row) {
        lock(&self.state).attached.push((link, vc));
    }

    fn memory(&mut self) -> Option<&mut dyn Memory> {
        Some(self)
    }

    fn direct(&mut self) -> Option<&mut dyn Direct> {
        Some(self)
    }

    fn matching(&mut self) -> Option<&mut dyn Matching> {
        self.matches.then_some(self)
    }

    fn lending(&mut self) -> Option<&mut dyn Lending> {
        self.lends.then_some(self)
    }

    fn registering(&mut self) -> Option<&mut dyn Registering> {
        self.lends.then_some(self)
    }

    fn fits(&mut self, _: u32, payload: u64) -> u64 {
        payload.min(lock(&self.state).fits.unwrap_or(u64::MAX))
    }

    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, refusals: &mut u32) -> Sent {
        let mut state = lock(&self.state);
        if state.broken.contains(&link) {
            return Sent::Failed;
        }
        if state.room == Some(0) || state.full.contains(&link) {
            *refusals += 1;
            return Sent::Blocked;
        }
        state.room = state.room.map(|room| room - 1);
        let mut payload = Vec::new();
        if header.payload() > 0 {
            (0..pieces.pieces()).for_each(|index| payload.extend_from_slice(bytes(&pieces.piece(index))));
        }
        state.sent.push(SentFrame { link, header: *header, payload, refusals: std::mem::take(refusals) });
        Sent::Done
    }

    fn ready(&self) -> bool {
        !lock(&self.state).incoming.is_empty()
    }

    fn drain(&mut self, _: u64, arrivals: &mut [Arrival]) -> usize {
        self.hand_out(arrivals, |_| true)
    }

    fn drain_link(&mut self, link: u32, _: u64, arrivals: &mut [Arrival]) -> usize {
        let attached = lock(&self.state).attached.clone();
        self.hand_out(arrivals, |vc| attached.contains(&(link, vc)))
    }

    fn release(&mut self) {
        self.lent.clear();
        lock(&self.state).releases += 1;
    }

    fn wants_control(&self) -> bool {
        !lock(&self.state).events.is_empty()
    }

    fn control(&mut self, _: u64, events: &mut Vec<LinkEvent>) {
        events.append(&mut lock(&self.state).events);
    }

    fn close_link(&mut self, link: u32) {
        lock(&self.state).closed_links.push(link);
    }

    fn give_up(&mut self, link: u32, reason: &str) {
        lock(&self.state).given_up.push((link, reason.into()));
        self.close_link(link);
    }

    fn has_ended(&self, proc: u32, _: &[u8]) -> Option<String> {
        lock(&self.state).ended.contains(&proc).then(|| format!("the process of proc {proc} has ended"))
    }

    fn close(&mut self) {}
}

// SAFETY: what it is given is used within the call.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Memory for FakeWire {
    fn reads(&self, _: u32, _: u64, _: u64) -> bool {
        !lock(&self.state).memory.is_empty()
    }

    unsafe fn read(&mut self, _: u32, reads: &[MemoryRead]) -> Result<(), String> {
        let mut state = lock(&self.state);
        state.reads.push(reads.len());
        for MemoryRead { address, into } in reads {
            let mut bytes = find(&state.memory, *address, into.len()).ok_or("no such memory")?;
            // SAFETY: as the contract says.
            unsafe { copy::copy(*into, span(&mut bytes)) };
        }
        Ok(())
    }

    unsafe fn read_at_once(&mut self, _: u32, address: u64, into: Span, alone: bool) -> bool {
        let mut state = lock(&self.state);
        let may = state.is_mapped || alone && state.reads_alone;
        let Some(mut bytes) = find(&state.memory, address, into.len()).filter(|_| may) else {
            return false;
        };
        // SAFETY: as the contract says.
        unsafe { copy::copy(into, span(&mut bytes)) };
        state.read_at_once += into.len();
        true
    }

    unsafe fn expose(&mut self, link: u32, run: Span) {
        lock(&self.state).exposed.push((link, run.start().addr(), run.len()));
    }

    fn withdraw(&mut self, link: u32, run: Span) {
        let mut state = lock(&self.state);
        let at = state.exposed.iter().position(|exposed| *exposed == (link, run.start().addr(), run.len()));
        if let Some(at) = at {
            state.exposed.remove(at);
        }
    }

    fn withdraw_all(&mut self) {
        lock(&self.state).exposed.clear();
    }
}

// SAFETY: what it is given is used within the call.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Direct for FakeWire {
    unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32> {
        let mut state = lock(&self.state);
        let turn = state.next_turn?;
        state.next_turn = Some(turn + 1);
        state.expected.push((link, row, into.len()));
        Some(turn)
    }

    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        let mut state = lock(&self.state);
        let mut bytes = vec![0; from.len()];
        // SAFETY: as the contract says.
        unsafe { copy::copy(span(&mut bytes), from) };
        state.moved.push((link, row, number, bytes));
        state.next_turn.is_some()
    }

    fn end(&mut self) {}
}

// SAFETY: what it lends is its own, and stays until it is taken back.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Lending for FakeWire {
    fn lend(&mut self, _: u32, least: u64, most: u64, into: &mut tickwire_components::Spans) -> u64 {
        let mut state = lock(&self.state);
        let mut bytes = 0;
        let there: u64 = state.lendable.iter().map(|buffer| buffer.len() as u64).sum();
        while there >= least && bytes < most && !state.lendable.is_empty() {
            let mut buffer = state.lendable.remove(0);
            let run = span(&mut buffer).part(0, (most - bytes) as usize);
            bytes += run.len() as u64;
            into.push(run);
            state.lent.push(buffer);
        }
        bytes
    }

    fn take_back(&mut self, run: Span) {
        let mut state = lock(&self.state);
        let found = state.lent.iter().position(|buffer| buffer.as_ptr() == run.start());
        let Some(index) = found else { panic!("a run that was not lent comes back") };
        let buffer = state.lent.remove(index);
        state.lendable.push(buffer);
    }
}

impl Registering for FakeWire {
    fn register(&mut self, _: Span, _: Access) -> Result<Registration, String> {
        Ok(Registration(0))
    }

    fn deregister(&mut self, _: Registration) {}
}

/// Bytes of a peer's memory, runs and their addresses.
fn find(memory: &[(u64, Vec<u8>)], address: u64, length: usize) -> Option<Vec<u8>> {
    memory.iter().find_map(|(start, bytes)| {
        bytes.get(address.checked_sub(*start)? as usize..)?.get(..length).map(<[u8]>::to_vec)
    })
}
