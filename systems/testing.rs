//! Worlds built by hand: rows in, one run of one system or of one set, rows out.
//!
//! A [`TestWorld`] has all tables, as many contacted procs as a test wants, and one transport, the [`FakeWire`], which
//! keeps what it is given and gives what it is told to. [`assert_rows`] compares what comes out, and shows what differs.
//! Misuse panics: it is made for tests.

mod diff;

pub use diff::assert_rows;

use crate::ProgressSystems;
use crate::procs::endpoint::{Endpoint, RowStates};
use crate::rows::{Rows, Wire};
use crate::steps::activate::take_rows;
use crate::steps::arguments::{check_receive, check_send};
use crate::steps::posting::{queue_receive, queue_send, receive_car, send_car};
use crate::store::{Plan, Store, Tables};
use bevy_ecs::prelude::*;
use bevy_ecs::system::RunSystemOnce;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::limits::{CREDIT_INITIAL, Limits};
use tickwire_components::submission::{Operation, Submission, Submissions};
use tickwire_components::wire::Header;
use tickwire_components::{
    Arrival, ArrivalState, Car, CarState, Ended, Lease, Lent, Link, NIL, Pieces, Queue, Request, RequestState, Row,
    Source, Span, TagFilter, Vc, VcState, posting,
};
use tickwire_transports::{
    AnyTransport, Capabilities, LinkEvent, MemoryRead, Reach, ReceiveEnvelope, Sent, Transport, copy,
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
    lent: Vec<Vec<u8>>,
}

fn lock(state: &Mutex<WireState>) -> MutexGuard<'_, WireState> {
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
        FakeWire { state, capabilities, lent: Vec::new() }
    }

    /// The same with other capabilities.
    pub fn with(state: Arc<Mutex<WireState>>, capabilities: Capabilities) -> Self {
        FakeWire { state, capabilities, lent: Vec::new() }
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

    fn fits(&mut self, _: u32, payload: u64) -> u64 {
        payload.min(lock(&self.state).fits.unwrap_or(u64::MAX))
    }

    fn reads(&self, _: u32, _: u64, _: u64) -> bool {
        !lock(&self.state).memory.is_empty()
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

    fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent {
        let mut state = lock(&self.state);
        if state.room_for_receives == Some(0) {
            return Sent::Blocked;
        }
        state.room_for_receives = state.room_for_receives.map(|room_for_receives| room_for_receives - 1);
        state.posted_receives.push((row, *wanted));
        Sent::Done
    }

    fn recall(&mut self, row: Row, _unless_message: bool) {
        lock(&self.state).recalled.push(row);
    }

    fn take_back(&mut self, run: Span) {
        let mut state = lock(&self.state);
        let found = state.lent.iter().position(|buffer| buffer.as_ptr() == run.start());
        let Some(index) = found else { panic!("a run that was not lent comes back") };
        let buffer = state.lent.remove(index);
        state.lendable.push(buffer);
    }

    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, refusals: &mut u32) -> Sent {
        let mut state = lock(&self.state);
        if state.broken.contains(&link) {
            return Sent::Failed;
        }
        if state.room == Some(0) {
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

/// Bytes of a peer's memory, runs and their addresses.
fn find(memory: &[(u64, Vec<u8>)], address: u64, length: usize) -> Option<Vec<u8>> {
    memory.iter().find_map(|(start, bytes)| {
        bytes.get(address.checked_sub(*start)? as usize..)?.get(..length).map(<[u8]>::to_vec)
    })
}

#[expect(unsafe_code, reason = "the bytes of a frame that is being sent")]
fn bytes(span: &Span) -> &[u8] {
    // SAFETY: whoever made the span promised it until the request is done, which it is not while its frame is sent.
    unsafe { std::slice::from_raw_parts(span.start(), span.len()) }
}

#[expect(unsafe_code, reason = "spans over storage that a test world or wire keeps")]
fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: the storage is on the heap and kept until the payloads are released or the world ends.
    unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
}

/// An operation that was posted by hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Posted {
    /// The row of its request and envelope CAR.
    pub car: Row,
    /// Where its buffer is kept.
    buffer: usize,
}

/// A world of tables, one fake transport, and helpers to fill and read rows.
pub struct TestWorld {
    /// The world and its tables.
    pub store: Store,
    /// What the wire has seen and will do.
    pub wire: Arc<Mutex<WireState>>,
    buffers: Vec<Vec<Vec<u8>>>,
    payloads: Vec<Vec<u8>>,
}

impl TestWorld {
    /// A world of so many procs with default limits, in which proc 0 is the own one and the only one contacted.
    pub fn new(procs: u32) -> Self {
        Self::with(procs, Limits::default(), 64)
    }

    /// The same with other limits, and with so many CAR rows.
    ///
    /// # Panics
    /// If there are no more descriptors.
    pub fn with(procs: u32, limits: Limits, rows: usize) -> Self {
        Self::build(procs, limits, rows, |_| ())
    }

    /// A world of so many procs that is prepared before there are tables: with slots of the application
    /// (`world.register_required_components::<Vc, MySlot>()`), resources and entities.
    ///
    /// # Panics
    /// As [`TestWorld::with`].
    pub fn prepared(procs: u32, prepare: impl FnOnce(&mut World)) -> Self {
        Self::build(procs, Limits::default(), 64, prepare)
    }

    fn build(procs: u32, limits: Limits, rows: usize, prepare: impl FnOnce(&mut World)) -> Self {
        let mut world = World::new();
        prepare(&mut world);
        let wire = Arc::new(Mutex::new(WireState::default()));
        let row_states = RowStates::register::<FakeWire>(&mut world);
        let endpoint = Endpoint::new(AnyTransport::outside(FakeWire::new(wire.clone())), &limits, Some(row_states));
        let plan = Plan { limits, procs, me: 0, cards: Vec::new(), card_bytes: 0, rows, generation: 0 };
        let submissions = match Submissions::new(4) {
            Ok(submissions) => submissions,
            Err(error) => panic!("{error}"),
        };
        let store = Store::new(world, plan, submissions, vec![endpoint]).unwrap_or_else(|error| panic!("{error}"));
        let mut world = TestWorld { store, wire, buffers: Vec::new(), payloads: Vec::new() };
        // As if both sides had been granted all there is.
        world.all().progress.window = CREDIT_INITIAL;
        world.set_state(0, VcState::Connected);
        world
    }

    /// Opens another transport; its endpoint's row.
    pub fn add_wire(&mut self, wire: FakeWire) -> u8 {
        let rows = self.all().endpoints[0].rows;
        let limits = self.all().limits.0.clone();
        let endpoint = Endpoint::new(AnyTransport::outside(wire), &limits, rows);
        match self.store.as_mut().spawn_endpoint(endpoint) {
            Ok(row) => row as u8,
            Err(error) => panic!("{error}"),
        }
    }

    /// Opens a wire that matches by itself; its endpoint's row.
    pub fn add_matching_wire(&mut self, state: Arc<Mutex<WireState>>) -> u8 {
        let capabilities = Capabilities {
            matches_tags: true,
            matched_max: FRAME_MAX,
            whole_frames: true,
            ..Capabilities::least(Reach::Network, 2, FRAME_MAX)
        };
        let endpoint = self.add_wire(FakeWire::with(state, capabilities));
        let progress = self.all().progress;
        progress.provider.endpoint = endpoint.into();
        progress.provider.window = progress.window;
        progress.posting |= posting::PROVIDER;
        endpoint
    }

    /// A contacted proc whose VC is in a state; its row.
    pub fn contact(&mut self, proc: u32, state: VcState) -> Row {
        let row = match self.store.as_mut().spawn_proc(proc, 0) {
            Ok(row) => row,
            Err(error) => panic!("{error}"),
        };
        self.all().procs.known[proc as usize].row = row;
        self.set_state(row, state);
        row
    }

    fn set_state(&mut self, row: Row, state: VcState) {
        let vc = &mut self.all().vcs[row as usize];
        vc.state = state;
        vc.link = if state == VcState::Unconnected { NIL } else { vc.proc };
    }

    /// All tables.
    pub fn all(&mut self) -> Tables<'_> {
        self.store.all()
    }

    /// The wire's state.
    pub fn wire(&self) -> MutexGuard<'_, WireState> {
        lock(&self.wire)
    }

    /// Runs one system of an application once, with the world as it is.
    ///
    /// # Panics
    /// If the system does, or leaves the rows of the engine in another place.
    pub fn run<M>(&mut self, system: impl IntoSystem<(), (), M>) {
        if let Err(error) = self.with_world(|world| world.run_system_once(system)) {
            panic!("the system did not run: {error}");
        }
    }

    /// Runs one of the engine's systems once.
    pub fn step(&mut self, system: impl for<'store> FnOnce(&mut Rows<'store>, &mut Wire<'_>)) {
        self.store.with(system);
    }

    /// Gives the world to a test: to read components and resources of the application's, and to change them.
    ///
    /// # Panics
    /// If the rows of the engine are not where they were afterwards.
    pub fn with_world<R>(&mut self, run: impl FnOnce(&mut World) -> R) -> R {
        self.store.change(run).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs one set of the tick's schedule once, with the world as it is: the engine's system, and what `add` puts into the
    /// set. What it puts into no set runs, too, in the order that it asks for.
    ///
    /// # Panics
    /// If a system does, or their order is impossible.
    pub fn run_set(&mut self, set: ProgressSystems, add: impl FnOnce(&mut Schedule)) {
        let mut schedule = Schedule::default();
        crate::configure(&mut schedule, &self.store.key());
        add(&mut schedule);
        for other in ProgressSystems::ORDER.into_iter().filter(|other| *other != set) {
            schedule.configure_sets(other.run_if(|| false));
        }
        if let Err(panic) = self.store.run(&mut schedule) {
            std::panic::resume_unwind(panic);
        }
    }

    /// Posts a receive of a message into runs of these lengths; `None` stands for any.
    ///
    /// # Panics
    /// If its arguments are wrong or rows are short.
    pub fn receive(&mut self, source: Option<u32>, tag: Option<u32>, lengths: &[usize]) -> Posted {
        let mut pieces: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![0xEE; length]).collect();
        let spans = Spans(pieces.iter_mut().map(|piece| span(piece)).collect());
        let all = self.store.all();
        let (source, tag) = (source.map_or(Source::Any, Source::Rank), tag.map_or(TagFilter::Any, TagFilter::Tag));
        let checked = check_receive(all.communicators, 0, source, tag);
        let Ok(envelope) = checked else { panic!("{checked:?}") };
        let vc_row = if envelope.proc == NIL { NIL } else { all.procs.known[envelope.proc as usize].row };
        let car = receive_car(all.progress, &envelope, vc_row);
        // SAFETY: the world keeps the bytes.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let taken = unsafe { take_rows(all.progress, all.cars, all.requests, &spans, car) };
        let Some(car) = taken else { panic!("no rows") };
        queue_receive(all.progress, all.cars, all.vcs, car);
        self.keep(car, pieces)
    }

    /// Posts a send of a message from these runs to a contacted proc.
    ///
    /// # Panics
    /// If its arguments are wrong or rows are short.
    pub fn send(&mut self, to: u32, tag: u32, pieces: &[&[u8]]) -> Posted {
        let mut pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let spans = Spans(pieces.iter_mut().map(|piece| span(piece)).collect());
        let all = self.store.all();
        let checked = check_send(all.communicators, 0, to, tag, spans.total());
        let Ok(envelope) = checked else { panic!("{checked:?}") };
        let vc_row = all.procs.known[envelope.proc as usize].row;
        let car = send_car(&envelope, vc_row, 0);
        // SAFETY: the world keeps the bytes.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let taken = unsafe { take_rows(all.progress, all.cars, all.requests, &spans, car) };
        let Some(car) = taken else { panic!("no rows") };
        queue_send(all.progress, all.cars, all.large, all.vcs, car, envelope.length);
        self.keep(car, pieces)
    }

    fn keep(&mut self, car: Row, pieces: Vec<Vec<u8>>) -> Posted {
        self.buffers.push(pieces);
        Posted { car, buffer: self.buffers.len() - 1 }
    }

    /// Submits an operation as another thread does; its answer comes to `slot`.
    ///
    /// # Panics
    /// If the queue is full.
    pub fn submit(&mut self, operation: Operation, bytes: Vec<u8>, slot: u32) {
        // SAFETY: the buffer goes with its addresses.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let lent = unsafe { Lent::of(&bytes) };
        let mut lease = Lease::default();
        lease.put(bytes);
        let submission = Submission { operation, comm: 0, lent, lease, slot };
        let pushed = self.all().inbound.shared().queue.push(submission);
        assert!(pushed.is_ok(), "the queue of submissions is full");
    }

    /// Puts a frame into the arrival table as DrainCq would; its row.
    pub fn arrive(&mut self, vc: Row, header: Header, payload: &[u8]) -> Row {
        let mut payload = payload.to_vec();
        let span = span(&mut payload);
        self.payloads.push(payload);
        let all = self.all();
        let row = all.progress.arrivals;
        let state = ArrivalState::New;
        all.arrivals[row as usize] = Arrival { header, payload: span, vc, state, ..Arrival::default() };
        all.progress.arrivals += 1;
        row
    }

    /// The runs of an operation's buffer, one after another.
    pub fn bytes(&self, posted: Posted) -> Vec<u8> {
        self.buffers[posted.buffer].concat()
    }

    /// An operation's envelope CAR.
    pub fn car(&mut self, posted: Posted) -> Car {
        self.all().cars[posted.car as usize]
    }

    /// An operation's request.
    pub fn request(&mut self, posted: Posted) -> Request {
        self.all().requests[posted.car as usize]
    }

    /// An arrival.
    pub fn arrival(&mut self, row: Row) -> Arrival {
        self.all().arrivals[row as usize]
    }

    /// A VC.
    pub fn vc(&mut self, row: Row) -> Vc {
        self.all().vcs[row as usize]
    }

    /// The CARs of a queue, in order.
    pub fn cars_in(&mut self, queue: Queue) -> Vec<Row> {
        rows(self.all().cars, queue)
    }

    /// The CARs that wait for Complete, in order.
    pub fn finished(&mut self) -> Vec<Row> {
        let queue = self.all().progress.finished;
        self.cars_in(queue)
    }

    /// Takes the ends of VCs that systems have asked for: (VC row, why).
    pub fn take_ended(&mut self) -> Vec<(Row, Ended)> {
        std::mem::take(&mut self.all().progress.ended)
    }

    /// Whether every row is free and nothing is pending: what a world looks like when all is done.
    ///
    /// # Panics
    /// If it is not so.
    pub fn assert_at_rest(&mut self) {
        let all = self.all();
        let cars: Vec<&Car> = all.cars.iter().filter(|car| car.state != CarState::Free).collect();
        assert!(cars.is_empty(), "CARs in use: {cars:#?}");
        let requests = all.requests.iter().filter(|r| r.state == RequestState::Active).count();
        assert_eq!((requests, all.progress.active), (0, 0), "requests that are not done");
        let (cars, buffers, unexpected) = (all.cars.len(), all.buffers.len(), all.progress.unexpected.count);
        let free = [all.progress.free_cars.count as usize, self.free_buffers() as usize];
        assert_eq!((free, unexpected), ([cars, buffers], 0), "free CAR and buffer rows, unexpected messages");
    }

    /// Free buffer rows.
    pub fn free_buffers(&mut self) -> u32 {
        self.all().progress.free_buffers.iter().map(|list| list.count).sum()
    }
}

/// The rows of a queue, in order.
fn rows<L: Link + Clone>(rows: &[L], queue: Queue) -> Vec<Row> {
    let mut copy = rows.to_vec();
    let mut queue = queue;
    std::iter::from_fn(|| queue.pop(&mut copy)).collect()
}

/// Runs of bytes of an operation.
struct Spans(Vec<Span>);

// SAFETY: a span's address does not depend on where the span is.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Spans {
    fn pieces(&self) -> usize {
        self.0.len()
    }

    fn piece(&self, index: usize) -> Span {
        self.0[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tick::match_cars::match_cars;
    use tickwire_components::wire::Kind;

    #[test]
    fn one_set_runs_with_what_was_added_to_it_and_no_other() {
        #[derive(Resource, Default)]
        struct Seen(Vec<(u32, &'static str)>);
        fn note(name: &'static str) -> impl FnMut(Query<&tickwire_components::Progress>, ResMut<Seen>) {
            move |progress, mut seen| {
                let matched = progress.iter().map(|progress| progress.work.matched.get()).sum();
                seen.0.push((matched, name));
            }
        }
        let mut world = TestWorld::new(2);
        let vc = world.contact(1, VcState::Connected);
        world.with_world(|world| world.init_resource::<Seen>());
        let posted = world.receive(Some(1), Some(5), &[4]);
        world.arrive(vc, Header::new(Kind::Eager, 0, 1, 5, 0, 4), b"abcd");
        world.run_set(ProgressSystems::Match, |schedule| {
            schedule.add_systems((
                note("before").before(ProgressSystems::Match),
                note("after").after(ProgressSystems::Match).before(ProgressSystems::SupplyBuffers),
                note("in").in_set(ProgressSystems::Match),
                note("in another").in_set(ProgressSystems::Transfer),
            ));
        });
        let mut seen = world.store.world().resource::<Seen>().0.clone();
        // Within the set nothing was said of its order.
        assert_eq!(seen.remove(1).1, "in");
        assert_eq!(seen, [(0, "before"), (1, "after")]);
        assert_eq!(world.car(posted).state, CarState::Matched, "Transfer did not run");
        let mut alone = TestWorld::new(2);
        let vc = alone.contact(1, VcState::Connected);
        let posted_alone = alone.receive(Some(1), Some(5), &[4]);
        alone.arrive(vc, Header::new(Kind::Eager, 0, 1, 5, 0, 4), b"abcd");
        alone.step(match_cars);
        let cars = [world.car(posted), alone.car(posted_alone)].map(|car| (car.state, car.source, car.tag, car.done));
        assert_rows("matched", &cars[..1], &cars[1..]);
    }
}
