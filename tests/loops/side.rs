//! One of the two clusters: it makes the calls, ticks until it is quiet, and keeps a log of what ended how.

use crate::calls::{Call, How, Shape, What};
use crate::columns::columns;
use std::fmt::Debug;
use tickwire::internals::components::{LeasedBytes, Pieces};
use tickwire::testing::Cluster;
use tickwire::{Comm, Datatype, Engine, List, Rank, Request, SendOptions, Source, Tag, TagFilter, Test, Typed, Work};
use tickwire_tests::cases::{BOUND, content};

/// Rounds without work after which a cluster is quiet: more than a frame is delayed or a link takes nothing.
const QUIET: u32 = 14;

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
pub(crate) struct Side {
    pub(crate) cluster: Cluster,
    open: Vec<Open>,
    pub(crate) log: Vec<String>,
    pub(crate) work: Vec<[u64; 4]>,
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

fn cut(bytes: &[u8]) -> List<Vec<u8>> {
    let (first, rest) = bytes.split_at(bytes.len() / 3);
    List(vec![first.to_vec(), rest.to_vec()])
}

impl Side {
    pub(crate) fn new(cluster: Cluster) -> Self {
        let work = vec![[0; 4]; cluster.engines.len()];
        let mut side = Side { cluster, open: Vec::new(), log: Vec::new(), work };
        side.cluster.engines.iter_mut().for_each(|engine| engine.attach_buffer(1 << 20));
        side
    }

    /// Everybody meets everybody, so that what follows does not depend on who connects when.
    pub(crate) fn meet(&mut self) {
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
            Shape::OneRun => post(engine, at, vec![0u8; room], envelope, Vec::clone),
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
    pub(crate) fn settle(&mut self) {
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

    pub(crate) fn collect(&mut self) {
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
    pub(crate) fn columns(&mut self, credit: bool) -> Vec<String> {
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
