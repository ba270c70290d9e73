//! The two loops: the same calls and the same frames row by row (Deliver, and sends that leave within their call) and column
//! by column (the six systems), over every transport that a test can repeat, with faults.
//!
//! Two clusters are given the same calls in the same order; one has [`Limits::deliver`] off. After each call both are ticked
//! until they are quiet, and compared: what every operation got, how it ended, the columns, the credit, and the work counted.
//! `TICKWIRE_LOOPS=N` or `FIRST..END` says which seeds.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use std::fmt::Debug;
use std::ops::Range;
use tickwire::components::{Car, CarKind, CarState, LeasedBytes, NIL, Pieces, Queue, RequestState, Row, car_flags};
use tickwire::testing::{Cluster, Corruption, Death, ProviderConfig, SimConfig, SimNet, SplitMix, rows};
use tickwire::traces::DELIVER;
use tickwire::transports::shm::Splicing;
use tickwire::{
    Comm, Datatype, Engine, Limits, Matching, Rank, Request, SendOptions, Source, Tag, TagFilter, Test, Typed, Work,
};
use tickwire_tests::cases::{BOUND, content};

/// Seeds of a run that nobody asked for others, of each network.
const SEEDS: u64 = 12;
/// Calls of a seed at most.
const CALLS: u64 = 60;
/// Longest message, bytes: several pieces, and longer than what is read of others' memory at the least.
const LENGTH_MAX: u64 = 20_000;
/// Rounds without work after which a cluster is quiet: more than a frame is delayed or a link takes nothing.
const QUIET: u32 = 14;

/// How a cluster's engines reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Network {
    Loopback,
    Shm,
    /// Frames late, sends refused, frames taken in parts, credit in portions.
    Hindered,
    /// The same, and a proc dies, or frames are changed on their way.
    Failing,
    /// Endpoints match by themselves.
    Provider,
}

/// A call; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum What {
    Send {
        to: u64,
        tag: u32,
        length: u64,
        how: How,
    },
    Receive {
        source: Option<u64>,
        tag: Option<u32>,
        room: u64,
        shape: Shape,
    },
    Cancel(u64),
    Probe {
        source: Option<u64>,
        tag: Option<u32>,
    },
    /// A matched probe, and the receive of what it found.
    Claim {
        source: Option<u64>,
        tag: Option<u32>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Standard(Shape),
    Synchronous,
    Ready,
    Buffered,
    Urgent(u8),
}

/// How a buffer lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    OneRun,
    Runs,
    Strided,
}

#[derive(Clone, Debug)]
struct Call {
    rank: usize,
    what: What,
}

impl Call {
    /// Whether nothing that follows depends on whether its frame has left when the next call is made.
    fn may_precede(&self, next: &Call) -> bool {
        let is_plain = |call: &Call| match call.what {
            What::Send { how, .. } => how != How::Ready,
            What::Receive { .. } => true,
            What::Cancel(_) | What::Probe { .. } | What::Claim { .. } => false,
        };
        self.rank == next.rank && is_plain(self) && is_plain(next)
    }
}

fn choose<T: Copy>(random: &mut SplitMix, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

fn length(random: &mut SplitMix) -> u64 {
    match random.below(10) {
        0 => 0,
        1..=5 => random.below(200),
        6 | 7 => random.below(5000),
        _ => random.below(LENGTH_MAX),
    }
}

fn filter(random: &mut SplitMix) -> (Option<u64>, Option<u32>) {
    let source = (random.below(3) > 0).then(|| random.below(64));
    (source, (random.below(4) > 0).then(|| random.below(3) as u32))
}

fn calls(random: &mut SplitMix, ranks: usize) -> Vec<Call> {
    use Shape::{OneRun, Runs, Strided};
    (0..random.below(CALLS) + 4)
        .map(|_| {
            let (source, tag) = filter(random);
            let what = match random.below(16) {
                0..=6 => What::Send {
                    to: random.below(64),
                    tag: random.below(3) as u32,
                    length: length(random),
                    how: match random.below(12) {
                        0 => How::Synchronous,
                        1 => How::Ready,
                        2 => How::Buffered,
                        3 => How::Urgent(1 + random.below(3) as u8),
                        4 => How::Standard(Runs),
                        5 => How::Standard(Strided),
                        _ => How::Standard(OneRun),
                    },
                },
                7..=12 => What::Receive {
                    source,
                    tag,
                    room: if random.below(8) == 0 { random.below(100) } else { LENGTH_MAX },
                    shape: choose(random, &[OneRun, OneRun, OneRun, Runs, Strided]),
                },
                13 => What::Cancel(random.below(64)),
                14 => What::Probe { source, tag },
                _ => What::Claim { source, tag },
            };
            Call { rank: random.below(ranks as u64) as usize, what }
        })
        .collect()
}

/// Asks an operation how it has ended, if it has.
type Poll = Box<dyn FnMut(&mut Engine) -> Option<String>>;

/// An operation that is open.
struct Open {
    call: usize,
    rank: usize,
    id: tickwire::RequestId,
    poll: Poll,
}

/// One of the two clusters.
struct Side {
    cluster: Cluster,
    open: Vec<Open>,
    log: Vec<String>,
    work: Vec<[u64; 4]>,
}

/// Bytes that a receive has got, or `None` of a send, whose status says nothing but how long it was.
fn open<B: Pieces + 'static>(call: usize, rank: usize, request: Request<B>, bytes: Option<fn(&B) -> Vec<u8>>) -> Open {
    let (id, mut request) = (request.id(), Some(request));
    let poll = move |engine: &mut Engine| {
        let ended = request.as_ref().is_some_and(|request| engine.test(request) != Ok(Test::Pending));
        let taken = if ended { engine.take(request.take()?) } else { return None };
        Some(match taken {
            Ok((buffer, status)) => match bytes {
                Some(bytes) => format!("{status:?} {:x}", sum(&bytes(&buffer))),
                None => format!("{} B", status.length),
            },
            Err(failed) => format!("{:?} {:x?}", failed.error, failed.buffer.zip(bytes).map(|(b, of)| sum(&of(&b)))),
        })
    };
    Open { call, rank, id, poll: Box::new(poll) }
}

/// A number for some bytes (FNV-1a).
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// Two bytes of each four, so many in all (an even number less), and the bytes that they are taken from.
fn strided(bytes: usize) -> (Datatype, usize) {
    (Datatype::vector(bytes / 2, 2, 4, &Datatype::of::<u8>()).unwrap(), 2 * bytes + 4)
}

fn cut(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    vec![first.to_vec(), rest.to_vec()]
}

impl Side {
    fn new(cluster: Cluster) -> Self {
        let work = vec![[0; 4]; cluster.engines.len()];
        let mut side = Side { cluster, open: Vec::new(), log: Vec::new(), work };
        side.cluster.engines.iter_mut().for_each(|engine| engine.attach_buffer(1 << 20));
        side
    }

    /// Everybody meets everybody, so that what follows does not depend on who connects when.
    fn meet(&mut self) {
        let ranks = self.cluster.engines.len();
        for from in 0..ranks {
            for to in 0..ranks {
                let call = Call { rank: to, what: receive_one(from) };
                self.call(usize::MAX, &call);
                let what = What::Send { to: to as u64, tag: 0, length: 8, how: How::Standard(Shape::OneRun) };
                self.call(usize::MAX, &Call { rank: from, what });
                self.settle();
            }
        }
    }

    fn call(&mut self, number: usize, call: &Call) {
        let (rank, ranks) = (call.rank, self.cluster.engines.len() as u64);
        let engine = &mut self.cluster.engines[rank];
        let world = engine.comm_world();
        let source = |source: Option<u64>| source.map_or(Source::Any, |rank| Source::Rank((rank % ranks) as u32));
        let filter = |tag: Option<u32>| tag.map_or(TagFilter::Any, TagFilter::Tag);
        match call.what {
            What::Send { to, tag, length, how } => {
                let bytes = content((number as u64) << 8 | rank as u64, length as usize);
                let (to, tag) = (Rank((to % ranks) as u32), Tag(tag));
                self.send(number, rank, bytes, to, tag, world, how);
            }
            What::Receive { source: from, tag, room, shape } => {
                self.receive(number, rank, source(from), filter(tag), room as usize, shape, world);
            }
            What::Cancel(which) => {
                let count = self.open.len() as u64;
                if let Some(open) = self.open.get((which % count.max(1)) as usize) {
                    let done = self.cluster.engines[open.rank].cancel(&open.id);
                    self.log.push(format!("call {number}: cancel of {}: {done:?}", open.call));
                }
            }
            What::Probe { source: from, tag } => {
                let found = engine.iprobe(source(from), filter(tag), world);
                self.log.push(format!("call {number}: probe: {found:?}"));
            }
            What::Claim { source: from, tag } => {
                let found = engine.improbe(source(from), filter(tag), world);
                let status = found.as_ref().map(|found| found.as_ref().map(|message| message.status()));
                self.log.push(format!("call {number}: claim: {status:?}"));
                if let Ok(Some(message)) = found {
                    let room = vec![0; message.status().length];
                    let posted = engine.imrecv(message, room);
                    self.note(number, posted.map(|request| open(number, rank, request, Some(Vec::clone))));
                }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the arguments of a send, and how it is made")]
    fn send(&mut self, number: usize, rank: usize, bytes: Vec<u8>, to: Rank, tag: Tag, comm: Comm, how: How) {
        let engine = &mut self.cluster.engines[rank];
        let posted = match how {
            How::Standard(Shape::OneRun) => {
                engine.isend(bytes, to, tag, comm).map(|r| open(number, rank, r, None)).map_err(|e| e.error)
            }
            How::Standard(Shape::Runs) => {
                let runs = cut(&bytes);
                engine.isend(runs, to, tag, comm).map(|r| open(number, rank, r, None)).map_err(|e| e.error)
            }
            How::Standard(Shape::Strided) => {
                let (datatype, room) = strided(bytes.len());
                let bytes = bytes.iter().copied().cycle().chain([0; 4]).take(room).collect::<Vec<u8>>();
                let bytes = if bytes.len() < room { vec![0; room] } else { bytes };
                let typed = Typed::new(bytes, &datatype, 1).unwrap();
                engine.isend(typed, to, tag, comm).map(|r| open(number, rank, r, None)).map_err(|e| e.error)
            }
            How::Synchronous => {
                engine.issend(bytes, to, tag, comm).map(|r| open(number, rank, r, None)).map_err(|e| e.error)
            }
            How::Ready => engine.irsend(bytes, to, tag, comm).map(|r| open(number, rank, r, None)).map_err(|e| e.error),
            How::Buffered => {
                engine.ibsend(bytes, to, tag, comm).map(|r| open(number, rank, r, None)).map_err(|e| e.error)
            }
            How::Urgent(priority) => engine
                .isend_with(bytes, to, tag, comm, SendOptions::new().priority(priority))
                .map(|r| open(number, rank, r, None))
                .map_err(|e| e.error),
        };
        self.note(number, posted);
    }

    #[expect(clippy::too_many_arguments, reason = "the arguments of a receive, and what it fills")]
    fn receive(
        &mut self,
        number: usize,
        rank: usize,
        source: Source,
        tag: TagFilter,
        room: usize,
        shape: Shape,
        comm: Comm,
    ) {
        fn post<B: LeasedBytes + Send + 'static>(
            engine: &mut Engine,
            (number, rank): (usize, usize),
            buffer: B,
            (source, tag, comm): (Source, TagFilter, Comm),
            bytes: fn(&B) -> Vec<u8>,
        ) -> Result<Open, tickwire::PostError> {
            engine.irecv(buffer, source, tag, comm).map(|r| open(number, rank, r, Some(bytes))).map_err(|e| e.error)
        }
        let (engine, at, envelope) = (&mut self.cluster.engines[rank], (number, rank), (source, tag, comm));
        let posted = match shape {
            Shape::OneRun => post(engine, at, vec![0; room], envelope, Vec::clone),
            Shape::Runs => post(engine, at, cut(&vec![0; room]), envelope, |b| b.concat()),
            Shape::Strided => {
                let (datatype, extent) = strided(room);
                let typed = Typed::new(vec![0u8; extent], &datatype, 1).unwrap();
                post(engine, at, typed, envelope, |typed| typed.buffer().clone())
            }
        };
        self.note(number, posted);
    }

    fn note(&mut self, number: usize, posted: Result<Open, impl Debug>) {
        match posted {
            Ok(open) => self.open.push(open),
            Err(error) => self.log.push(format!("call {number}: {error:?}")),
        }
    }

    /// Ticks every engine once; whether any did something.
    fn tick(&mut self) -> bool {
        let mut busy = false;
        let ranks = self.cluster.engines.len();
        for rank in 0..ranks {
            let work = self.cluster.tick(rank);
            busy |= !work.is_idle();
            // Requests that were completed are not compared: what is complete when it is posted has none. The log has them all.
            let Work { posted, matched, sent, received, .. } = work;
            for (sum, count) in self.work[rank].iter_mut().zip([posted, matched, sent, received]) {
                *sum += u64::from(count);
            }
        }
        self.cluster.now_ns += tickwire::testing::STEP_NS;
        busy
    }

    /// Notes what has ended.
    fn settle(&mut self) {
        let mut quiet = 0;
        for round in 0.. {
            assert!(round < BOUND, "never quiet: {}", self.cluster.report());
            quiet = if self.tick() { 0 } else { quiet + 1 };
            if quiet == QUIET {
                break;
            }
        }
        self.collect();
    }

    fn collect(&mut self) {
        let mut still = Vec::new();
        for mut open in std::mem::take(&mut self.open) {
            match (open.poll)(&mut self.cluster.engines[open.rank]) {
                None => still.push(open),
                Some(ended) => self.log.push(format!("call {} ended: {ended}", open.call)),
            }
        }
        self.open = still;
    }

    /// What the tables say, but for the numbers of rows.
    fn columns(&mut self, credit: bool) -> Vec<String> {
        let each = self.cluster.engines.iter_mut().enumerate();
        each.flat_map(|(rank, engine)| {
            let mut lines = columns(engine, credit);
            lines.iter_mut().for_each(|line| line.insert_str(0, &format!("rank {rank}: ")));
            lines
        })
        .collect()
    }
}

/// A receive of the one message that a rank sends when it is met.
fn receive_one(from: usize) -> What {
    What::Receive { source: Some(from as u64), tag: Some(0), room: 8, shape: Shape::OneRun }
}

/// A CAR without the numbers of its rows. The length of a message is known to its sender.
fn show(car: &Car, length: u64) -> String {
    let length = if car.kind == CarKind::Send { length } else { 0 };
    let Car { kind, state, source, tag, done, flags, priority, .. } = *car;
    let flags = flags & !car_flags::STARTED;
    format!("{kind:?} {state:?} source {source} tag {tag} {done} of {length}, flags {flags:#x}, priority {priority}")
}

fn columns(engine: &mut Engine, credit: bool) -> Vec<String> {
    let all = rows(engine);
    let queue = |queue: Queue| {
        let mut shown = Vec::new();
        let mut row: Row = queue.head;
        while row != NIL && shown.len() <= all.cars.len() {
            shown.push(show(&all.cars[row as usize], all.large[row as usize].length));
            row = all.cars[row as usize].next;
        }
        shown
    };
    let mut lines = Vec::new();
    for vc in all.vcs.iter() {
        let queues = [vc.sends, vc.data, vc.posted].map(queue);
        lines.push(format!("vc to {} {:?}, acknowledged {}: {queues:?}", vc.proc, vc.state, vc.acknowledged));
        if credit {
            let (lines_left, envelopes) = (vc.lines, vc.envelopes);
            let (owed, kept, left) = (vc.lines_owed, vc.offers_kept, vc.envelopes_left);
            lines.push(format!("  may send {lines_left}, {envelopes}; owes {owed}, keeps {kept}, {left} may come"));
        }
    }
    let entries = &all.progress.unexpected.entries;
    let mut row = all.progress.unexpected.head;
    while let Some(entry) = entries.get(row as usize) {
        let (offered, source) = (entry.message() != NIL, entry.source);
        lines.push(format!("unexpected from {source}, tag {}: {} B, offered {offered}", entry.tag, entry.length));
        row = entry.next;
    }
    let used = all.cars.iter().zip(all.large.iter());
    let used = used.filter(|(car, _)| car.state != CarState::Free);
    let mut cars: Vec<String> = used.map(|(car, large)| show(car, large.length)).collect();
    cars.sort();
    lines.extend(cars);
    let states = [RequestState::Active, RequestState::Done, RequestState::Detached, RequestState::Inactive];
    let counts = states.map(|state| all.requests.iter().filter(|request| request.state == state).count());
    lines.push(format!("requests {counts:?}, {} active, {} scoped", all.progress.active, all.progress.scoped));
    lines
}

/// A case, from its seed.
struct Case {
    network: Network,
    seed: u64,
    ranks: u32,
    limits: Limits,
    config: SimConfig,
    death: Option<(u32, Death)>,
}

impl Case {
    fn of(network: Network, seed: u64) -> (Self, SplitMix) {
        let mut random = SplitMix::new(seed ^ 0x10_0B5);
        let ranks = 2 + random.below(2) as u32;
        let matching = choose(&mut random, &[Matching::Auto, Matching::Lists, Matching::Index]);
        let passes_max = choose(&mut random, &[1, 8]);
        // Messages to oneself that need no frame are compared in `oneself.rs`.
        let limits = Limits {
            matching,
            passes_max,
            own_at_once: false,
            piece_bytes: 4096,
            part_bytes: 2048,
            ..Limits::default()
        };
        let mut config = SimConfig::calm(seed);
        if matches!(network, Network::Hindered | Network::Failing) {
            config = SimConfig {
                delay_ns: choose(&mut random, &[0..1u64, 0..1, 0..300_000].map(Span::from)).into(),
                blocked_of_256: choose(&mut random, &[0, 32, 100]),
                storm_of_256: choose(&mut random, &[0, 8]),
                storm_ns: 0..300_000,
                partial_of_256: choose(&mut random, &[0, 0, 80]),
                credit_portion: choose(&mut random, &[0, 0, 20_000]),
                shuffled: random.below(2) == 0,
                ..config
            };
        }
        let mut death = None;
        if network == Network::Failing {
            match random.below(3) {
                0 => config.corrupt_of_65536 = 2000,
                _ => death = Some((random.below(ranks.into()) as u32, Death::Frame(random.below(40)))),
            }
            config.corruption = choose(&mut random, &[Corruption::Refused, Corruption::Payload]);
        }
        (Case { network, seed, ranks, limits, config, death }, random)
    }

    fn side(&self, deliver: bool) -> Side {
        let limits = Limits { deliver, ..self.limits.clone() };
        let net = SimNet::new(self.ranks, self.config.clone());
        let build = |builder: tickwire::Builder| builder.limits(limits.clone());
        let cluster = match self.network {
            Network::Loopback => Cluster::loopback_with(self.ranks, build),
            Network::Shm => Cluster::shm_with(self.ranks, |builder| {
                // What a message is cut into depends on the room that a growing ring has just then.
                let limits = Limits { first_ring_bytes: limits.ring_bytes, ..limits.clone() };
                builder.limits(limits).splicing(Splicing::Never)
            }),
            Network::Hindered | Network::Failing => Cluster::sim_with(self.ranks, &net, build),
            Network::Provider => Cluster::provider_with(self.ranks, &net, |_| ProviderConfig::calm(self.seed), build),
        };
        let mut side = Side::new(cluster);
        side.meet();
        if let Some((proc, Death::Frame(number))) = self.death {
            net.kill(proc, Death::Frame(net.frames(proc) + number));
        }
        side
    }

    /// Credit that goes with other frames goes with different ones, and in frames of its own at different times.
    fn is_exact(&self) -> bool {
        matches!(self.network, Network::Loopback | Network::Shm)
    }

    fn run(&self, mut random: SplitMix) {
        let calls = calls(&mut random, self.ranks as usize);
        let mut sides = [true, false].map(|deliver| self.side(deliver));
        for (number, call) in calls.iter().enumerate() {
            let together = random.below(2) == 0 && calls.get(number + 1).is_some_and(|next| call.may_precede(next));
            for side in &mut sides {
                side.call(number, call);
                if !together {
                    side.settle();
                }
            }
            if !together {
                self.compare(&mut sides, &calls[..=number]);
            }
        }
        sides.iter_mut().for_each(Side::settle);
        self.compare(&mut sides, &calls);
        let delivered: [u64; 2] =
            sides.map(|side| side.cluster.engines.iter().map(|engine| engine.counters().runs()[DELIVER]).sum());
        assert!(delivered[0] > 0 && delivered[1] == 0, "each side has its own loop: {delivered:?}");
    }

    fn compare(&self, sides: &mut [Side; 2], calls: &[Call]) {
        let words = || format!("{:?} seed {} after {calls:?}", self.network, self.seed);
        // Which of several signs of an end is seen first is not the same; that there is an end is.
        let logs = [0, 1].map(|side: usize| sides[side].log.iter().map(|line| without_reason(line)).collect());
        same(&logs, words);
        let columns = [0, 1].map(|side: usize| sides[side].columns(self.is_exact()));
        same(&columns, words);
        let work = [0, 1].map(|side: usize| {
            let of = |work: &[u64; 4]| if self.is_exact() { *work } else { [work[0], work[1], 0, 0] };
            sides[side].work.iter().map(of).collect::<Vec<_>>()
        });
        assert_eq!(work[0], work[1], "posted, matched, sent, received: {}", words());
    }
}

/// A line without the words of a failure's reason.
fn without_reason(line: &str) -> String {
    match line.split_once("reason: ") {
        Some((before, _)) => before.into(),
        None => line.into(),
    }
}

/// # Panics
/// If the lines of both sides are not the same: with the first that is not.
fn same([rows, columns]: &[Vec<String>; 2], words: impl Fn() -> String) {
    let differ = rows.iter().zip(columns).position(|(row, column)| row != column);
    if let Some(first) = differ.or_else(|| (rows.len() != columns.len()).then(|| rows.len().min(columns.len()))) {
        let [row, column] = [rows, columns].map(|lines| lines.get(first));
        panic!("by rows {row:?}\nby columns {column:?}\nof {rows:#?}\n{}", words());
    }
}

/// A range that can be chosen from a list.
#[derive(Clone, Copy)]
struct Span(u64, u64);

impl From<Range<u64>> for Span {
    fn from(range: Range<u64>) -> Self {
        Span(range.start, range.end)
    }
}

impl From<Span> for Range<u64> {
    fn from(span: Span) -> Self {
        span.0..span.1
    }
}

fn seeds() -> Range<u64> {
    let Ok(words) = std::env::var("TICKWIRE_LOOPS") else { return 0..SEEDS };
    let number = |word: &str| word.parse().expect("a number");
    match words.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&words),
    }
}

fn all(network: Network) {
    for seed in seeds() {
        let (case, random) = Case::of(network, seed);
        case.run(random);
    }
}

#[test]
fn both_loops_do_the_same_over_loopback() {
    all(Network::Loopback);
}

#[test]
fn both_loops_do_the_same_over_shared_memory() {
    all(Network::Shm);
}

#[test]
fn both_loops_do_the_same_over_a_network_that_hinders() {
    all(Network::Hindered);
}

#[test]
fn both_loops_do_the_same_where_procs_die_and_frames_are_changed() {
    all(Network::Failing);
}

#[test]
fn both_loops_do_the_same_where_a_transport_matches() {
    all(Network::Provider);
}
