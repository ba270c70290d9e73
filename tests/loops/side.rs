//! One of the two clusters. It makes the calls, ticks until it is quiet, and logs how each operation ended.

use crate::again::Sums;
use crate::calls::{Call, How, Shape, What};
use crate::case::Dies;
use crate::columns::columns;
use crate::ends::{Open, Parts, Tally, open};
use crate::joint::{self, Joint, Site};
use crate::one_sided::{Memory, OneSided, Place, WORDS};
use crate::threads::open_boards_and_window;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;
use tickwire::internals::components::LeasedBytes;
use tickwire::internals::components::limits::POLL_INTERVAL_MAX;
use tickwire::testing::{Cluster, Death};
use tickwire::{Comm, Datatype, Engine, List, Rank, SendOptions, Source, Tag, TagFilter, Typed, Work};
use tickwire_tests::cases::{BOUND, content};

/// Idle rounds after which a cluster counts as quiet. That is longer than a frame is delayed, a link refuses sends, or
/// a death stays unnoticed.
const QUIET: u32 = 14;
/// The same for a transport that is expensive to poll: engines that wait for nothing poll it seldom.
const QUIET_EXPENSIVE: u32 = QUIET + POLL_INTERVAL_MAX;
/// The same where several sends in a row are refused. Where ranks fail too, [`REMINDED_NS`] is added instead.
const QUIET_HINDERED: u32 = 3 * QUIET;
/// Longer than it takes until a receive from any source is told of a failure, ns.
const REMINDED_NS: u64 = 25_000_000;

/// From this length on, bytes, a call starts the longer one of the two persistent operations.
const LONG: usize = 1000;

/// Longest put where ranks may die, words.
const SHORT_PUT: usize = 100;

/// Properties of a cluster.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Traits {
    /// Whether its ranks first wait for each other. Then they have a window, and boards where the transport allows
    /// them.
    pub(crate) waits: bool,
    /// Whether its transport is expensive to poll.
    pub(crate) expensive: bool,
    /// Whether its transport refuses several sends in a row.
    pub(crate) hinders: bool,
    /// Whether ranks may die or lose each other.
    pub(crate) fails: bool,
    /// Whether the ends of operations of all ranks are kept apart from the log.
    pub(crate) apart: bool,
}

/// One of the two clusters.
pub(crate) struct Side {
    pub(crate) cluster: Cluster,
    open: Vec<Open>,
    /// Idle rounds after which the cluster is quiet.
    quiet: u32,
    pub(crate) log: Vec<String>,
    pub(crate) work: Vec<[u64; 4]>,
    /// For each call: how the parts of an operation of all ranks have ended, unless the log has them.
    pub(crate) parts: Option<BTreeMap<usize, Parts>>,
    /// Begun and ended operations of the counted kinds.
    pub(crate) tally: Tally,
    /// Operations begun on other ranks' memory that the target's engine has to do.
    pub(crate) served: u32,
    /// By rank: a second communicator of all ranks.
    pub(crate) others: Vec<Comm>,
    /// By rank: the persistent operations.
    sums: Vec<Sums>,
    /// The memory that ranks expose to each other.
    memory: Memory,
    /// See [`Traits::fails`].
    fails: bool,
}

/// A datatype that takes two of every four bytes, `bytes` in all (one less if `bytes` is odd), and the length of the
/// buffer for it.
fn strided(bytes: usize) -> (Datatype, usize) {
    (Datatype::vector(bytes / 2, 2, 4, &Datatype::of::<u8>()).unwrap(), 2 * bytes + 4)
}

fn cut(bytes: &[u8]) -> List<Vec<u8>> {
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    List(vec![first.to_vec(), rest.to_vec()])
}

impl Side {
    /// A cluster whose ranks are connected and have memory that others may use.
    pub(crate) fn new(mut cluster: Cluster, Traits { waits, expensive, hinders, fails, apart }: Traits) -> Self {
        let parts = apart.then(BTreeMap::new);
        let quiet = match (expensive, hinders) {
            (true, _) => QUIET_EXPENSIVE,
            (_, true) => QUIET_HINDERED,
            _ => QUIET,
        };
        cluster.engines.iter_mut().for_each(|engine| engine.attach_buffer(1 << 20));
        let window = waits.then(|| open_boards_and_window(&mut cluster.engines, WORDS));
        let (open, log, work) = (Vec::new(), Vec::new(), vec![[0; 4]; cluster.engines.len()]);
        let memory = Memory::none(window);
        let (others, sums) = (Vec::new(), cluster.engines.iter().map(|_| Sums::default()).collect());
        let tally = Tally::default();
        let mut side = Side { cluster, open, log, work, tally, served: 0, others, sums, memory, quiet, fails, parts };
        side.settle();
        // The start is not compared: which rank is early or late there may differ.
        side.work.fill([0; 4]);
        side.meet();
        // Without operations of all ranks, no second communicator is needed.
        if !fails || side.parts.is_some() {
            side.agree();
        }
        side.memory.expose(&mut side.cluster.engines);
        side
    }

    pub(crate) fn call(&mut self, number: usize, call: &Call) {
        let (rank, ranks) = (call.rank, self.cluster.engines.len() as u64);
        let engine = &mut self.cluster.engines[rank];
        let world = engine.comm_world();
        let source = |source: Option<u64>| source.map_or(Source::Any, |rank| Source::Rank(Rank((rank % ranks) as u32)));
        let filter = |tag: Option<u32>| tag.map_or(TagFilter::Any, |tag| Tag(tag).into());
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
                    let room = vec![0u8; message.status().length];
                    let posted = engine.imrecv(message, room);
                    self.note(number, posted.map(|request| open(number, rank, request, Some(Vec::clone))));
                }
            }
            What::Joint { of, root, length } => self.joint(number, of, (root % ranks) as usize, length as usize),
            What::OneSided { of, target, at, count } => {
                let (count, first) = (count as usize, at as usize % (WORDS - count as usize));
                let place = Place { target: (target % ranks) as usize, at: first, count };
                self.one_sided((number, rank), of, place);
            }
        }
    }

    /// Makes a call in which a rank dies. The rank dies when it has sent `death.frames` more frames. After an operation
    /// of all ranks it dies at the latest when all is quiet. Frames are counted from here: the two sides may have sent
    /// different numbers of frames with nothing but credit before.
    pub(crate) fn call_and_die(&mut self, number: usize, call: &Call, death: &Dies) {
        let net = self.cluster.net.clone().expect("a network that is simulated");
        net.kill(death.rank, Death::Frame(net.frames(death.rank) + death.frames));
        self.call(number, call);
        if let What::Joint { .. } = call.what {
            self.settle();
            net.kill(death.rank, Death::At(self.cluster.now_ns));
        }
    }

    /// Every rank begins its part of an operation.
    fn joint(&mut self, number: usize, of: Joint, root: usize, length: usize) {
        let ranks = self.cluster.engines.len();
        for rank in 0..ranks {
            let engine = &mut self.cluster.engines[rank];
            let comms = [engine.comm_world(), self.others[rank]];
            let site = Site { call: number, rank, ranks, root, comm: comms[number % 2] };
            let begun = match of {
                Joint::Persistent => self.sums[rank].start(engine, site, length > LONG).into_iter().collect(),
                _ => joint::post(engine, of, site, length),
            };
            for begun in begun {
                match (begun, &mut self.parts) {
                    (Err(error), Some(parts)) => {
                        parts.entry(number).or_default().push((rank, format!("{error:?}"), false));
                    }
                    (begun, _) => self.note(number, begun),
                }
            }
        }
    }

    /// A rank begins an operation on another rank's memory.
    fn one_sided(&mut self, site: (usize, usize), of: OneSided, mut place: Place) {
        if self.fails && of == OneSided::Put {
            // One request only: of several, it is not determined how many are done before a rank dies.
            place.count = place.count.min(SHORT_PUT);
        }
        let engine = &mut self.cluster.engines[site.1];
        let served = self.memory.is_served(engine, of, place.target);
        let begun = self.memory.post(engine, of, site, place);
        self.served += u32::from(served && begun.is_ok());
        self.note(site.0, begun);
    }

    #[expect(clippy::too_many_arguments, reason = "the arguments of a send, and how it is made")]
    fn send(&mut self, number: usize, rank: usize, bytes: Vec<u8>, to: Rank, tag: Tag, comm: Comm, how: How) {
        let engine = &mut self.cluster.engines[rank];
        let posted = match how {
            How::Standard(Shape::Heap) if let Ok(mut buffer) = engine.alloc(bytes.len()) => {
                buffer.copy_from_slice(&bytes);
                engine.isend(buffer, to, tag, comm).map(|r| open(number, rank, r, None)).map_err(|e| e.error)
            }
            How::Standard(Shape::OneRun | Shape::Heap) => {
                engine.isend(bytes, to, tag, comm).map(|r| open(number, rank, r, None)).map_err(|e| e.error)
            }
            How::Standard(Shape::Runs) => {
                let runs = cut(&bytes);
                engine.isend(runs, to, tag, comm).map(|r| open(number, rank, r, None)).map_err(|e| e.error)
            }
            How::Standard(Shape::Strided) => {
                let (datatype, room) = strided(bytes.len());
                let bytes = bytes.iter().copied().cycle().chain([0; 4]).take(room).collect::<Vec<u8>>();
                let bytes = if bytes.len() < room { vec![0u8; room] } else { bytes };
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
            Shape::OneRun | Shape::Heap => post(engine, at, vec![0u8; room], envelope, Vec::clone),
            Shape::Runs => post(engine, at, cut(&vec![0u8; room]), envelope, |b| b.concat()),
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
            Ok(open) => {
                if let Some(kind) = open.kind {
                    self.tally.of(kind).begun += 1;
                }
                self.open.push(open);
            }
            Err(error) => self.log.push(format!("call {number}: {error:?}")),
        }
    }

    /// Ticks every engine once. Returns whether any engine did something.
    pub(crate) fn tick(&mut self) -> bool {
        let mut busy = false;
        let ranks = self.cluster.engines.len();
        for rank in 0..ranks {
            let work = self.cluster.tick(rank);
            busy |= !work.is_idle();
            // The number of completed requests is not compared: an operation that is complete when it is posted does
            // not count there. The log has the end of every operation.
            let Work { posted, matched, sent, received, .. } = work;
            for (sum, count) in self.work[rank].iter_mut().zip([posted, matched, sent, received]) {
                *sum += u64::from(count);
            }
        }
        self.cluster.now_ns += tickwire::testing::STEP_NS;
        busy
    }

    /// Ticks until the cluster is quiet, and logs what has ended.
    pub(crate) fn settle(&mut self) {
        self.tick_until_quiet();
        if self.fails {
            self.cluster.now_ns += REMINDED_NS;
            self.tick_until_quiet();
        }
        self.collect();
    }

    /// Ticks until nothing more happens.
    fn tick_until_quiet(&mut self) {
        let mut quiet = 0;
        for round in 0.. {
            assert!(round < BOUND, "never quiet: {}", self.cluster.report());
            quiet = if self.tick() { 0 } else { quiet + 1 };
            if quiet == self.quiet {
                break;
            }
        }
    }

    pub(crate) fn collect(&mut self) {
        let mut still = Vec::new();
        for mut open in std::mem::take(&mut self.open) {
            let Some((well, ended)) = open.poll(&mut self.cluster.engines[open.rank]) else {
                still.push(open);
                continue;
            };
            if let Some(kind) = open.kind {
                let ends = self.tally.of(kind);
                *(if well { &mut ends.well } else { &mut ends.failed }) += 1;
            }
            match &mut self.parts {
                Some(parts) if open.is_of_all => parts.entry(open.call).or_default().push((open.rank, ended, well)),
                _ => self.log.push(format!("call {} of rank {} ended: {ended}", open.call, open.rank)),
            }
        }
        self.open = still;
    }

    /// Logs the content of the memory that others may use.
    pub(crate) fn note_memory(&mut self) {
        self.log.extend(self.memory.show(&mut self.cluster.engines));
    }

    /// Returns the tally of the counted kinds, and how many operations were for a target's engine to do. It gives up
    /// what is pending, since an engine waits for that when it is dropped.
    pub(crate) fn end(mut self) -> (Tally, u32) {
        for engine in &mut self.cluster.engines {
            let _ = engine.finalize(Duration::ZERO);
        }
        (self.tally, self.served)
    }

    /// The content of all tables, without the numbers of rows.
    pub(crate) fn columns(&mut self, credit: bool) -> Vec<String> {
        let graphs = self.parts.is_none();
        let each = self.cluster.engines.iter_mut().enumerate();
        each.flat_map(|(rank, engine)| {
            let mut lines = columns(engine, credit, graphs);
            lines.iter_mut().for_each(|line| line.insert_str(0, &format!("rank {rank}: ")));
            lines
        })
        .collect()
    }
}
