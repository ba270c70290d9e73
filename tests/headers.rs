//! Sends arbitrary frames to an engine that has operations in every state. The engine must not panic, and its
//! invariants must hold between two ticks. The fuzz target `headers` calls this, and so do tests that need no fuzzer.
//!
//! The input is a list of commands. Each is one byte, with its arguments behind it. Two bare transports play the peers.
//! They send frames with any header, and also fitting answers, so that exchanges get far.

mod window;

use crate::input::Input;
use std::time::Duration;
use tickwire::internals::components::limits::{LOOPBACK_RING_BYTES, Limits, Matching};
use tickwire::internals::components::wire::{Header, Kind, TRANSPORTS_OWN};
use tickwire::internals::components::{Arrival, CarState, TagFilter, VcState};
use tickwire::internals::transports::{Hub, Loopback, Transport};
use tickwire::testing::{Board, STEP_NS, check_invariants, dump, rows};
use tickwire::{Agreed, Agreement, Comm, Engine, Message, Rank, Request, Source, Tag};

/// Most commands of one input.
const COMMANDS_MAX: usize = 400;
/// Longest payload of a frame, bytes. A ring takes no longer one.
const PAYLOAD_MAX: usize = 4000;
/// The engine, and two peers.
const PROCS: u32 = 3;

/// What an input has reached.
#[derive(Clone, Copy, Default, Debug)]
pub struct Reached {
    /// Bits of the states in which a CAR was seen between two ticks.
    pub states: u32,
    /// Links that ended because of a frame that came on them.
    pub failed: usize,
    /// Most messages that waited for a receive at once.
    pub unexpected: u32,
    /// One-sided operations of the engine that have ended, and answers that the engine has sent.
    pub one_sided: [u64; 2],
    /// By frame kind: bits of the flags that were sent. Bit 7 stands for a frame without flags.
    pub sent: [u8; 16],
}

impl Reached {
    /// Whether a CAR was seen in a state.
    pub fn has(&self, state: CarState) -> bool {
        self.states & 1 << state as u32 != 0
    }
}

/// Runs an input.
///
/// # Panics
/// If the engine panics, or an invariant does not hold.
pub fn headers(data: &[u8]) -> Reached {
    let mut run = Run::new(Input(data));
    for _ in 0..COMMANDS_MAX {
        if run.input.0.is_empty() {
            break;
        }
        run.command();
    }
    run.tick();
    run.drain();
    run.tick();
    // Operations that are still open end in an error. Without this the engine would wait for them.
    let _ = run.engine.finalize(Duration::ZERO);
    run.reached
}

/// A peer: the other end of a link.
struct Peer {
    transport: Loopback,
    link: u32,
    /// Rendezvous offers and requests for data that the engine has sent.
    asked: Vec<Header>,
}

struct Run<'a> {
    input: Input<'a>,
    engine: Engine,
    peers: Vec<Peer>,
    /// Communicators that the engine has made so far. Handles of freed ones stay in the list.
    comms: Vec<Comm>,
    agreements: Vec<Agreement>,
    requests: Vec<Request<Vec<u8>>>,
    messages: Vec<Message>,
    one_sided: [window::Asked; 2],
    now_ns: u64,
    reached: Reached,
}

impl<'a> Run<'a> {
    fn new(mut input: Input<'a>) -> Self {
        let matching = [Matching::Auto, Matching::Lists, Matching::Index][usize::from(input.byte()) % 3];
        let limits = Limits { matching, wildcard_bits: 2, cars_max: 512, buffers_max: 512, ..Limits::default() };
        let (hub, board) = (Hub::new(PROCS, LOOPBACK_RING_BYTES), Board::new(PROCS));
        // The peers have no engine, so nobody may wait for their part of the bootstrap exchange.
        (1..PROCS).for_each(|rank| tickwire::bootstrap::Exchange::finish(&mut board.exchange(rank)));
        let join = |rank| Loopback::join(&hub, rank).unwrap();
        let transports: Vec<Loopback> = (1..PROCS).map(join).collect();
        let builder = Engine::builder().include(["loopback"]).hub(hub.clone()).initial_rows(16).limits(limits);
        let engine = builder.build(board.bootstrap(0)).unwrap();
        let comms = vec![engine.comm_world(), engine.comm_self()];
        let connect = |mut transport: Loopback| {
            let link = transport.connect(0, &[], 0).unwrap();
            transport.attach(link, 0);
            Peer { transport, link, asked: Vec::new() }
        };
        let peers = transports.into_iter().map(connect).collect();
        let (agreements, requests, messages, one_sided, reached) = Default::default();
        let mut run =
            Run { input, engine, peers, comms, agreements, requests, messages, one_sided, now_ns: 0, reached };
        run.tick();
        assert_eq!(rows(&mut run.engine).vcs.len(), PROCS as usize, "both peers are connected");
        let exposes = run.input.0.len() % 2 == 1;
        window::add(&mut run.engine, PROCS, exposes);
        run
    }

    fn command(&mut self) {
        let command = self.input.byte();
        match command % 16 {
            0 => self.frame_of_words(),
            4 if command >= 128 => self.one_sided(),
            1..=3 => self.frame(),
            4 => self.any_frame(),
            5 | 6 => self.answer(),
            7 | 8 => self.receive(),
            9 => self.send(),
            10 => self.cancel_or_drop(),
            11 => self.probe(),
            12 => self.claimed(),
            13 => self.communicators(),
            14 => self.drain(),
            _ => self.tick(),
        }
    }

    /// Sends a header of arbitrary words.
    fn frame_of_words(&mut self) {
        let (lead, origin) = (self.input.word(), self.input.word());
        let (name, length) = (self.input.word(), self.input.word());
        self.put(Header { lead, origin, name, length });
    }

    /// Sends a plausible header.
    fn frame(&mut self) {
        const KINDS: [Kind; 6] = [Kind::Eager, Kind::Rts, Kind::Cts, Kind::Piece, Kind::Bye, Kind::Nack];
        let shape = self.input.byte();
        // A farewell ends the link, so it is rare.
        let kind = match shape {
            255 => Kind::Bye,
            240..=254 => Kind::Done,
            _ => KINDS[[0, 1, 2, 3, 5][usize::from(shape) % 5]],
        };
        let contexts: Vec<u32> = rows(&mut self.engine).communicators.iter().map(|comm| comm.context).collect();
        let choice = self.input.byte();
        let mut context = contexts[usize::from(choice) % contexts.len()];
        if choice >= 224 {
            context ^= 1 << (choice & 31);
        }
        let source = [0, 1, 2, 3][usize::from(self.input.byte()) % 4];
        let tag = [0, 1, 2, u32::MAX, 1 << 31][usize::from(self.input.byte()) % 5];
        let message = match self.input.byte() {
            255 => u32::MAX,
            row => u32::from(row) % 64,
        };
        let length = match self.input.byte() {
            255 => self.input.word(),
            byte => [0, 1, 8, 100, 4000, 20_000][usize::from(byte) % 6],
        };
        let flags = if shape & 128 == 0 { 0 } else { self.input.byte() };
        self.put(Header::new(kind, context, source, tag, message, length).with_flags(flags));
    }

    /// Sends a header with any kind, flags, priority and reserved byte, and plausible other fields.
    fn any_frame(&mut self) {
        let kind = match self.input.byte() {
            byte @ 254.. => Kind::from_byte(byte - 238),
            253 => Some(Kind::Stop),
            byte => Kind::from_byte(1 + byte % 15),
        };
        let kind = kind.unwrap_or(Kind::Eager);
        let (flags, priority, reserved) = (self.input.byte(), self.input.byte(), self.input.byte());
        let (source, tag) = (u32::from(self.input.byte()) % 4, u32::from(self.input.byte()) % 4);
        let message = match self.input.byte() {
            255 => u32::MAX,
            row => row.into(),
        };
        let length = match self.input.byte() {
            255 => self.input.word(),
            byte => [0, 1, 8, 100, 4000, 20_000][usize::from(byte) % 6],
        };
        let header = Header::new(kind, 0, source, tag, message, length);
        self.put(header.with_flags(flags).with_priority(priority).with_type(reserved));
    }

    /// Sends a frame that a ring can carry: of a kind that a ring hands on, short enough, and with as much payload as
    /// its header states.
    fn put(&mut self, mut header: Header) {
        if header.lead as u8 == 0 || header.lead as u8 >= TRANSPORTS_OWN {
            header.lead = header.lead & !u64::from(TRANSPORTS_OWN) | 32;
        }
        if header.lead as u8 == Kind::Head as u8 {
            // For this kind, the message id is the length of the payload.
            let part = u64::from(header.message()) % (PAYLOAD_MAX as u64 + 1);
            header.name = u64::from(header.tag()) | part << 32;
        } else if header.payload() > 0 {
            header.length %= PAYLOAD_MAX as u64 + 1;
        }
        if let Some(sent) = self.reached.sent.get_mut(usize::from(header.lead as u8)) {
            *sent |= if header.flags() == 0 { 128 } else { header.flags() & 127 };
        }
        let count = self.peers.len();
        let peer = &mut self.peers[usize::from(self.input.byte()) % count];
        let payload = vec![0xA5u8; header.payload() as usize];
        let _ = peer.transport.send(peer.link, &header, &payload, &mut ());
    }

    /// Answers an offer or a request for data as a real peer would, sometimes with one byte less or as a refusal.
    fn answer(&mut self) {
        self.drain();
        let (number, twist) = (self.input.byte(), self.input.byte());
        let count = self.peers.len();
        let peer = &mut self.peers[usize::from(number) % count];
        let Some(asked) = peer.asked.pop() else { return };
        let less = u64::from(twist & 1 != 0);
        let header = match asked.kind() {
            Some(Kind::Rts) if twist & 128 != 0 => Header::new(Kind::Nack, asked.context(), 0, 0, asked.message(), 0),
            Some(Kind::Rts) => {
                let wanted = asked.length.saturating_sub(less);
                Header::new(Kind::Cts, asked.context(), 0, twist.into(), asked.message(), wanted)
            }
            _ => {
                let length = asked.length.min(PAYLOAD_MAX as u64).saturating_sub(less);
                if asked.length > length {
                    peer.asked.push(Header { length: asked.length - length, ..asked });
                }
                Header::new(Kind::Piece, asked.context(), 0, 0, asked.tag(), length)
            }
        };
        let payload = vec![0x5Au8; header.payload() as usize];
        let _ = peer.transport.send(peer.link, &header, &payload, &mut ());
    }

    /// A length at or near a boundary.
    fn length(&mut self) -> usize {
        const LENGTHS: [usize; 8] = [0, 1, 8, 100, 4064, 4065, 20_000, 100_000];
        LENGTHS[usize::from(self.input.byte()) % LENGTHS.len()]
    }

    fn comm(&mut self) -> Comm {
        self.comms[usize::from(self.input.byte()) % self.comms.len()]
    }

    fn filters(&mut self) -> (Source, TagFilter) {
        let (source, tag) = (u32::from(self.input.byte()) % 4, u32::from(self.input.byte()) % 4);
        let source = if source == PROCS { Source::Any } else { Source::Rank(Rank(source)) };
        (source, if tag == 3 { TagFilter::Any } else { TagFilter::Tag(Tag(tag)) })
    }

    fn receive(&mut self) {
        let (comm, (source, tag), length) = (self.comm(), self.filters(), self.length());
        self.requests.extend(self.engine.irecv(vec![0u8; length], source, tag, comm));
    }

    fn send(&mut self) {
        let (comm, (to, tag, mode)) = (self.comm(), (self.input.byte(), self.input.byte(), self.input.byte()));
        let bytes = vec![1u8; self.length()];
        let (to, tag) = (Rank(u32::from(to) % PROCS), Tag(u32::from(tag) % 3));
        let sent = match mode % 4 {
            0 => self.engine.issend(bytes, to, tag, comm),
            1 => self.engine.irsend(bytes, to, tag, comm),
            _ => self.engine.isend(bytes, to, tag, comm),
        };
        self.requests.extend(sent);
    }

    fn cancel_or_drop(&mut self) {
        let (which, how) = (self.input.byte(), self.input.byte());
        if self.requests.is_empty() {
            return;
        }
        let which = usize::from(which) % self.requests.len();
        if how & 1 == 0 {
            let _ = self.engine.cancel(&self.requests[which]);
        } else {
            drop(self.requests.swap_remove(which));
        }
    }

    fn probe(&mut self) {
        let (comm, (source, tag)) = (self.comm(), self.filters());
        if self.input.byte() & 1 == 0 {
            let _ = self.engine.iprobe(source, tag, comm);
        } else {
            self.messages.extend(self.engine.improbe(source, tag, comm).ok().flatten());
        }
        self.check();
    }

    fn claimed(&mut self) {
        let (thrown, length) = (self.input.byte() & 1 == 0, self.length());
        if let Some(message) = self.messages.pop()
            && !thrown
        {
            self.requests.extend(self.engine.imrecv(message, vec![0u8; length]).ok());
        }
    }

    /// Starts, tests or frees communicators. Starting one of the world needs the peers, starting one of oneself does
    /// not.
    fn communicators(&mut self) {
        match self.input.byte() % 4 {
            0 if self.agreements.len() < 4 => self.agreements.extend(self.engine.start_dup(Comm(0))),
            1 if self.agreements.len() < 4 => {
                let own = self.engine.comm_self();
                self.agreements.extend(self.engine.start_dup(own));
            }
            2 => {
                let comm = self.comm();
                let _ = self.engine.comm_free(comm);
            }
            _ => {
                for index in (0..self.agreements.len()).rev() {
                    match self.engine.test_agreement(&mut self.agreements[index]) {
                        Ok(Agreed::Pending) => continue,
                        Ok(Agreed::Done(made)) => self.comms.extend(made),
                        Err(_) => {}
                    }
                    drop(self.agreements.swap_remove(index));
                }
            }
        }
        self.check();
    }

    /// The peers read the frames of the engine.
    fn drain(&mut self) {
        for (peer, asked) in self.peers.iter_mut().zip(&mut self.one_sided) {
            let mut arrivals = [Arrival::default(); 64];
            let count = peer.transport.drain(self.now_ns, &mut arrivals);
            let asks = |header: &Header| matches!(header.kind(), Some(Kind::Rts | Kind::Cts));
            let of = |kind| arrivals[..count].iter().filter(|arrival| arrival.header.kind() == Some(kind)).count();
            let answers = of(Kind::Answer) as u32;
            asked.open = asked.open.saturating_sub(answers);
            arrivals[..count].iter().for_each(|arrival| asked.see(arrival));
            self.reached.one_sided[1] += u64::from(answers);
            peer.asked.extend(arrivals[..count].iter().map(|arrival| arrival.header).filter(asks));
            peer.transport.release();
        }
    }

    fn tick(&mut self) {
        self.now_ns += STEP_NS;
        self.engine.tick_at(self.now_ns);
        self.check();
        for index in (0..self.requests.len()).rev() {
            if !matches!(self.engine.test(&self.requests[index]), Ok(tickwire::Test::Pending)) {
                let _ = self.engine.take(self.requests.swap_remove(index));
            }
        }
    }

    fn check(&mut self) {
        let world = self.engine.comm_world();
        if let Err(error) = self.engine.comm_rank(world) {
            panic!("a system has panicked: {error}");
        }
        if let Err(wrong) = check_invariants(&mut self.engine) {
            panic!("{wrong}\n{}", dump(&mut self.engine));
        }
        window::check(&mut self.engine);
        let all = rows(&mut self.engine);
        self.reached.states |= all.cars.iter().fold(0, |states, car| states | 1 << car.state as u32);
        self.reached.failed = all.vcs.iter().filter(|vc| vc.state == VcState::Failed).count();
        self.reached.unexpected = self.reached.unexpected.max(all.progress.unexpected.count);
        let windows = all.windows.list.iter().flatten();
        self.reached.one_sided[0] = windows.flat_map(|window| &window.targets).map(|target| target.completed).sum();
    }
}
