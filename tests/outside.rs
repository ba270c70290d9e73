//! A transport from outside the repository, added as applications add their own. It has streams between the engines
//! of one process. A stream takes only part of a frame when its buffer is full.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod lending;
mod loans;
mod polling;
mod priorities;
mod registering;

use lending::Pool;
use loans::{Place, Trap};
use registering::Known;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tickwire::internals::components::wire::{HEADER_BYTES, Header, Kind};
use tickwire::internals::components::{Arrival, ArrivalState, Pieces, Row, Span};
use tickwire::internals::transports::{Capabilities, Lending, LinkEvent, Memory, Reach, Registering, Sent, Transport};
use tickwire::testing::{Cluster, ROWS};
use tickwire::{Bootstrap, Builder, Engine, Rank, Tag};
use tickwire_tests::cases::{self, BOUND, content};

/// Largest payload of a frame.
const FRAME_MAX: usize = 16 << 10;

/// A stream to one peer. Its link number is the peer's proc number.
struct Line {
    stream: OwnedFd,
    vc: Option<Row>,
    /// Whether part of a frame was taken. Its rest goes before any other frame.
    busy: bool,
    input: Vec<u8>,
    told: bool,
    ended: bool,
}

/// The state of a CAR whose frame was taken in part: the number of bytes written.
#[derive(Default)]
struct Progress {
    written: usize,
}

struct Streams {
    me: u32,
    lines: Vec<Option<Line>>,
    asked: Vec<u32>,
    lent: Vec<Vec<u8>>,
    /// The registered memory, if this transport needs registration.
    known: Option<Known>,
    /// Memory that it lends, if it lends any.
    pool: Option<Pool>,
    /// The place at which it panics, if a test wants it to.
    trap: Trap,
    name: &'static str,
    /// Bytes of its card beyond the first one.
    padding: usize,
    /// How often the engine has polled it.
    looks: Arc<AtomicU32>,
    capabilities: Capabilities,
}

/// The streams of a cluster, with one stream for each pair of procs.
fn streams(procs: u32) -> Vec<Streams> {
    let mut all: Vec<Streams> = (0..procs).map(Streams::new).collect();
    for low in 0..procs as usize {
        for high in low + 1..procs as usize {
            let (a, b) = UnixStream::pair().unwrap();
            all[low].lines[high] = Some(Line::new(a, procs));
            all[high].lines[low] = Some(Line::new(b, procs));
        }
    }
    all
}

impl Line {
    fn new(stream: UnixStream, _procs: u32) -> Self {
        stream.set_nonblocking(true).unwrap();
        // The buffer is so small that most frames of large messages are taken in part.
        set_socket_send_buffer_size(&stream, 4096).unwrap();
        Line { stream: stream.into(), vc: None, busy: false, input: Vec::new(), told: false, ended: false }
    }

    /// Reads all bytes that are there.
    fn read(&mut self) {
        let mut buffer = [0; 8192];
        while !self.ended {
            match rustix::io::read(&self.stream, &mut buffer) {
                Ok(0) => self.ended = true,
                Ok(bytes) => self.input.extend_from_slice(&buffer[..bytes]),
                Err(Errno::AGAIN) => return,
                Err(_) => self.ended = true,
            }
        }
    }

    /// Takes the next whole frame, if there is one.
    fn frame(&mut self) -> Option<(Header, Vec<u8>)> {
        let word = |at: usize| Some(u64::from_ne_bytes(self.input.get(at..at + 8)?.try_into().ok()?));
        let header = Header { lead: word(0)?, origin: word(8)?, name: word(16)?, length: word(24)? };
        let payload = header.payload() as usize;
        if self.input.len() < HEADER_BYTES + payload {
            return None;
        }
        let bytes = self.input[HEADER_BYTES..HEADER_BYTES + payload].to_vec();
        self.input.drain(..HEADER_BYTES + payload);
        Some((header, bytes))
    }
}

impl Streams {
    fn new(me: u32) -> Self {
        let capabilities = Capabilities::least(Reach::Network, 50, FRAME_MAX);
        let lines = (0..16).map(|_| None).collect();
        let (asked, lent) = (Vec::new(), Vec::new());
        let (name, padding, looks, trap) = ("streams", 0, Arc::default(), Trap::default());
        Streams { me, lines, asked, lent, known: None, pool: None, trap, name, padding, looks, capabilities }
    }
}

// SAFETY: the payloads that it lends are its own, and stay until they are released.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Transport for Streams {
    type RowState = Progress;

    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn card(&self) -> Vec<u8> {
        let mut card = vec![0u8; 1 + self.padding];
        card[0] = self.me as u8;
        card
    }

    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        match self.lines.get(proc as usize) {
            Some(Some(_)) if card.first() == Some(&(proc as u8)) => Ok(()),
            _ => Err(format!("there is no stream to proc {proc} with card {card:?}")),
        }
    }

    fn connect(&mut self, proc: u32, _: &[u8], _: u64) -> Result<u32, String> {
        self.asked.push(proc);
        Ok(proc)
    }

    fn attach(&mut self, link: u32, vc: Row) {
        if let Some(line) = &mut self.lines[link as usize] {
            line.vc = Some(vc);
        }
    }

    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, state: &mut Progress) -> Sent {
        if !self.knows(header, pieces) {
            return Sent::Failed;
        }
        let Some(line) = &mut self.lines[link as usize] else { return Sent::Failed };
        if line.busy && state.written == 0 {
            return Sent::Blocked;
        }
        let mut frame: Vec<u8> = Vec::new();
        frame.extend([header.lead, header.origin, header.name, header.length].iter().flat_map(|w| w.to_ne_bytes()));
        if header.payload() > 0 {
            (0..pieces.pieces()).for_each(|index| frame.extend_from_slice(bytes(&pieces.piece(index))));
        }
        while state.written < frame.len() {
            match rustix::io::write(&line.stream, &frame[state.written..]) {
                Ok(bytes) => state.written += bytes,
                Err(Errno::AGAIN) => {
                    line.busy = state.written > 0;
                    return Sent::Blocked;
                }
                Err(_) => return Sent::Failed,
            }
        }
        (line.busy, state.written) = (false, 0);
        Sent::Done
    }

    fn memory(&mut self) -> Option<&mut dyn Memory> {
        self.known.as_mut().filter(|_| self.capabilities.remote_read).map(|known| known as &mut dyn Memory)
    }

    fn registering(&mut self) -> Option<&mut dyn Registering> {
        self.known.as_mut().map(|known| known as &mut dyn Registering)
    }

    fn lending(&mut self) -> Option<&mut dyn Lending> {
        self.pool.as_mut().map(|pool| pool as &mut dyn Lending)
    }

    fn ready(&self) -> bool {
        self.trap.spring(Place::Ready);
        self.looks.fetch_add(1, Ordering::Relaxed);
        let readable = |line: &Line| {
            let mut fds = [rustix::event::PollFd::new(&line.stream, rustix::event::PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            !line.ended && rustix::event::poll(&mut fds, Some(&now)) == Ok(1)
        };
        self.lines.iter().flatten().any(|line| !line.input.is_empty() || readable(line))
    }

    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        let mut count = 0;
        for link in 0..self.lines.len() as u32 {
            count += self.drain_link(link, now_ns, &mut arrivals[count..]);
        }
        count
    }

    fn drain_link(&mut self, link: u32, _: u64, arrivals: &mut [Arrival]) -> usize {
        let Some(Some(line)) = self.lines.get_mut(link as usize) else { return 0 };
        line.read();
        let Some(vc) = line.vc else { return 0 };
        let mut count = 0;
        while count < arrivals.len() {
            let Some((header, mut payload)) = line.frame() else { break };
            let span = span(&mut payload);
            self.lent.push(payload);
            arrivals[count] = Arrival { header, payload: span, vc, state: ArrivalState::New, ..Arrival::default() };
            count += 1;
        }
        count
    }

    fn release(&mut self) {
        self.lent.clear();
    }

    fn wants_control(&self) -> bool {
        !self.asked.is_empty() || self.lines.iter().flatten().any(|l| l.vc.is_none() && !l.input.is_empty())
    }

    fn control(&mut self, _: u64, events: &mut Vec<LinkEvent>) {
        self.trap.spring(Place::Control);
        events.extend(self.asked.drain(..).map(|link| LinkEvent::Connected { link }));
        for (proc, line) in (0u32..).zip(&mut self.lines) {
            let Some(line) = line else { continue };
            line.read();
            if line.vc.is_none() && !line.input.is_empty() && !line.told {
                line.told = true;
                events.push(LinkEvent::Accepted { link: proc, proc });
            }
            if line.ended && line.input.is_empty() && line.vc.take().is_some() {
                events.push(LinkEvent::Failed { link: proc, reason: "the stream has ended".into() });
            }
        }
    }

    fn close_link(&mut self, link: u32) {
        self.lines[link as usize] = None;
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn close(&mut self) {
        self.lines.iter_mut().for_each(|line| *line = None);
    }
}

#[expect(unsafe_code, reason = "the bytes of a frame that is being sent")]
fn bytes(span: &Span) -> &[u8] {
    // SAFETY: the engine keeps the bytes of a frame until it is told that the frame is sent.
    unsafe { std::slice::from_raw_parts(span.start(), span.len()) }
}

#[expect(unsafe_code, reason = "a payload that is lent to the engine")]
fn span(bytes: &mut [u8]) -> Span {
    // SAFETY: the storage is kept until the engine releases it.
    unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) }
}

fn cluster(procs: u32) -> Cluster {
    cluster_of(streams(procs))
}

fn cluster_of(streams: Vec<Streams>) -> Cluster {
    cluster_with(streams, |builder| builder)
}

fn cluster_with(streams: Vec<Streams>, change: impl Fn(Builder) -> Builder + Sync) -> Cluster {
    let procs = streams.len() as u32;
    let streams = std::sync::Mutex::new(streams.into_iter().map(Some).collect::<Vec<_>>());
    Cluster::build(procs, |rank| {
        let transport = streams.lock().unwrap()[rank as usize].take().unwrap();
        change(Engine::builder().exclude(["shm"]).initial_rows(ROWS).transport(transport))
    })
}

#[test]
fn all_cases_over_streams() {
    for procs in [2, 3] {
        cases::all(&mut cluster(procs));
    }
}

#[test]
fn large_messages_and_many_small_ones_share_a_stream_that_takes_parts() {
    let mut cluster = cluster(2);
    let world = cluster.engines[0].comm_world();
    let mut open = Vec::new();
    for number in 0..40u64 {
        let length = if number % 4 == 0 { 500_000 } else { (number * 333) as usize };
        for (from, to) in [(0usize, 1usize), (1, 0)] {
            let send = cluster.engines[from].isend(content(number, length), Rank(to as u32), Tag(1), world).unwrap();
            let receive = cluster.engines[to].irecv(vec![0u8; length], Rank(from as u32), Tag(1), world).unwrap();
            open.push((from, to, send, receive, content(number, length)));
        }
    }
    for (from, to, send, receive, message) in open {
        assert!(cluster.finish(BOUND, to, receive).unwrap().0 == message);
        cluster.finish(BOUND, from, send).unwrap();
    }
    cluster.assert_at_rest();
}

#[test]
fn the_end_of_a_stream_ends_the_vc() {
    let mut cluster = cluster(2);
    let world = cluster.engines[0].comm_world();
    cases::every_length(&mut cluster);
    let receive = cluster.engines[0].irecv(vec![0u8; 8], Rank(1), Tag(1), world).unwrap();
    drop(cluster.engines.pop());
    let failed = cluster.finish(BOUND, 0, receive).unwrap_err();
    assert!(failed.to_string().contains("proc 1"), "{failed}");
}

#[test]
fn frames_that_cannot_be_end_the_vc_they_came_on() {
    let streams = streams(2);
    let [mine, theirs] = <[Streams; 2]>::try_from(streams).ok().unwrap();
    let hostile = theirs.lines[0].as_ref().unwrap().stream.try_clone().unwrap();
    let transports = std::sync::Mutex::new(vec![Some(mine), Some(theirs)]);
    let mut cluster = Cluster::build(2, |rank| {
        let transport = transports.lock().unwrap()[rank as usize].take().unwrap();
        Engine::builder().exclude(["shm"]).initial_rows(ROWS).transport(transport)
    });
    let world = cluster.engines[0].comm_world();
    let receive = cluster.engines[0].irecv(vec![0u8; 8], Rank(1), Tag(1), world).unwrap();
    let own = cluster.engines[0].irecv(vec![0u8; 8], Rank(0), Tag(1), world).unwrap();
    let header = Header::new(Kind::Piece, 0, 1, 1, 3, 1);
    let mut frame = Vec::new();
    frame.extend([header.lead, header.origin, header.name, header.length].iter().flat_map(|w| w.to_ne_bytes()));
    frame.push(9);
    assert_eq!(rustix::io::write(&hostile, &frame), Ok(frame.len()));
    let failed = cluster.finish(BOUND, 0, receive).unwrap_err();
    assert!(failed.to_string().contains("protocol violation: a piece for a receive that expects none"), "{failed}");
    let send = cluster.engines[0].isend(vec![5u8; 8], Rank(0), Tag(1), world).unwrap();
    assert_eq!(cluster.finish(BOUND, 0, own).unwrap().0, [5; 8], "others go on");
    cluster.finish(BOUND, 0, send).unwrap();
}

#[test]
fn transports_are_chosen_by_name_and_two_may_keep_the_same_kind_of_state() {
    let [first, mut second] = <[Streams; 2]>::try_from(streams(2)).ok().unwrap();
    second.name = "others";
    let mut engine = Engine::builder().transport(first).transport(second).build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    engine.send(&[1u8], Rank(0), Tag(0), world).unwrap();
    engine.recv(&mut [0u8], Rank(0), Tag(0), world).unwrap();
    let wrong = Engine::builder().transport(Streams::new(0)).include(["tcp"]).build(Bootstrap::solo());
    let words = wrong.map(drop).unwrap_err().to_string();
    assert!(words.contains("tcp") && words.contains("no such transport"), "{words}");
}

#[test]
fn transports_that_cannot_be_told_apart_are_refused() {
    let build = |all: Vec<Streams>| {
        let builder = all.into_iter().fold(Engine::builder(), |builder, streams| builder.transport(streams));
        builder.build(Bootstrap::solo()).map(drop).map_err(|error| error.to_string())
    };
    let twins = build(vec![Streams::new(0), Streams::new(0)]).unwrap_err();
    assert!(twins.contains("transport streams: two transports have this name"), "{twins}");
    let loopback = build(vec![Streams { name: "loopback", ..Streams::new(0) }]).unwrap_err();
    assert!(loopback.contains("transport loopback: two transports have this name"), "{loopback}");
    // Names and cards have lengths of one byte.
    let name = "n".repeat(256).leak();
    let long = build(vec![Streams { name, ..Streams::new(0) }]).unwrap_err();
    assert!(long.contains("its name has 256 bytes: give 1 to 255"), "{long}");
    let nameless = build(vec![Streams { name: "", ..Streams::new(0) }]).unwrap_err();
    assert!(nameless.contains("its name has 0 bytes"), "{nameless}");
    let card = build(vec![Streams { padding: 255, ..Streams::new(0) }]).unwrap_err();
    assert!(card.contains("its card has 256 bytes: 255 is the most"), "{card}");
    assert_eq!(build(vec![Streams { name: &name[..255], padding: 254, ..Streams::new(0) }]), Ok(()));
}
