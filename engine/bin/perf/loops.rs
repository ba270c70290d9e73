//! The loops of `perf p2p`, `perf depth` and `perf self`. Sizes, warm-up, windows and buffers are those of MPI benchmarks.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::time::Instant;
use tickwire::{Cells, Comm, Engine, HeapBuffer, HeapError, OperationError, Rank, Request, Source, Tag};

/// Longest message, bytes.
pub(super) const MAX: usize = 4 << 20;
/// Messages in a window.
pub(super) const WINDOW: usize = 64;
/// Lengths of messages whose latency is measured, bytes.
pub(super) const LATENCIES: [usize; 12] = [0, 8, 64, 128, 256, 512, 1024, 4096, 16384, 65536, 1 << 20, MAX];
/// Lengths of messages whose rate is measured, bytes. Above [`APART_MAX`] the bandwidth is reported instead.
pub(super) const RATES: [usize; 9] = [0, 8, 64, 256, 1024, 8192, 65536, 1 << 20, MAX];
/// Longest message that has a receive buffer of its own within a window, bytes. Longer messages of a window share one.
pub(super) const APART_MAX: usize = 8192;

/// Figures that [`Bench::p2p`] gives.
pub(crate) const P2P_FIGURES: usize = LATENCIES.len() + RATES.len();
/// Figures that [`Bench::depth`] gives.
pub(crate) const DEPTH_FIGURES: usize = 15;
/// Figures that [`Bench::copies`] gives.
pub(crate) const COPY_FIGURES: usize = COPIED.len();
/// Lengths of the copies, bytes.
const COPIED: [usize; 4] = [16384, 65536, 1 << 20, 4 << 20];

/// One figure: metric, parameter, value, unit.
pub(crate) type Say<'a> = &'a mut dyn FnMut(&str, usize, f64, &str);

/// A buffer for the longest message.
enum Bytes {
    Plain(Vec<u8>),
    Shared(HeapBuffer),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Plain(bytes) => bytes,
            Bytes::Shared(bytes) => bytes,
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Plain(bytes) => bytes,
            Bytes::Shared(bytes) => bytes,
        }
    }
}

/// The buffer that messages are sent from, and the one that they are received into.
pub(crate) struct Buffers {
    send: Bytes,
    receive: Bytes,
}

impl Buffers {
    /// Plain buffers, or buffers in the shared heap. With `written`, they are filled with ones.
    pub(crate) fn new(engine: &Engine, shared: bool, written: bool) -> Result<Self, HeapError> {
        let one = || {
            let mut bytes = if shared { engine.alloc(MAX).map(Bytes::Shared)? } else { Bytes::Plain(vec![0; MAX]) };
            if written {
                bytes.fill(1);
            }
            Ok(bytes)
        };
        Ok(Buffers { send: one()?, receive: one()? })
    }
}

/// One rank of a measurement.
pub(crate) struct Bench<'a> {
    engine: &'a mut Engine,
    say: Say<'a>,
    /// Whether only a hundredth of the rounds is run.
    quick: bool,
    rank: u32,
    peer: Rank,
    world: Comm,
    send: Bytes,
    receive: Bytes,
}

type Done = Result<(), OperationError>;

/// Round trips that measure the latency of messages of this length.
pub(super) fn turns(bytes: usize) -> usize {
    match bytes {
        0..=4096 => 40000,
        4097..=65536 => 5000,
        _ => 100,
    }
}

/// Windows that measure the rate of messages of this length.
pub(super) fn windows(bytes: usize) -> usize {
    match bytes {
        0..=1024 => 8000,
        1025..=65536 => 600,
        _ => 10,
    }
}

/// Where in the receive buffer a message of a window is received.
pub(super) fn place(index: usize, bytes: usize) -> usize {
    if bytes <= APART_MAX { index * bytes } else { 0 }
}

/// Metric, value and unit of so many windows in so many seconds.
pub(super) fn rate(rounds: usize, bytes: usize, time: f64) -> (&'static str, f64, &'static str) {
    let messages = (WINDOW * rounds) as f64 / time;
    if bytes <= APART_MAX { ("rate", messages / 1e6, "Mmsg/s") } else { ("bw", messages * bytes as f64 / 1e9, "GB/s") }
}

impl<'a> Bench<'a> {
    pub(crate) fn new(engine: &'a mut Engine, say: Say<'a>, buffers: Buffers, quick: bool) -> Self {
        let rank = engine.rank().0;
        let world = engine.comm_world();
        let peer = Rank(if engine.size() > 1 { 1 - rank.min(1) } else { rank });
        let Buffers { send, receive } = buffers;
        Bench { engine, say, quick, rank, peer, world, send, receive }
    }

    fn rounds(&self, rounds: usize) -> usize {
        if self.quick { rounds.div_ceil(100) } else { rounds }
    }

    /// Returns once both ranks have called it: one message each way.
    fn barrier(&mut self) -> Done {
        let tag = Tag(999);
        if self.rank == 0 {
            self.engine.recv(&mut [0u8; 0], self.peer, tag, self.world)?;
            self.engine.send(b"", self.peer, tag, self.world)
        } else {
            self.engine.send(b"", self.peer, tag, self.world)?;
            self.engine.recv(&mut [0u8; 0], self.peer, tag, self.world).map(drop)
        }
    }

    fn report(&mut self, metric: &str, parameter: usize, value: f64, unit: &str) {
        if self.rank == 0 {
            (self.say)(metric, parameter, value, unit);
        }
    }

    /// Half a round trip, µs.
    fn pingpong(&mut self, rounds: usize, bytes: usize, source: Source, tag: Tag) -> Result<f64, OperationError> {
        let (engine, peer, world) = (&mut *self.engine, self.peer, self.world);
        let (send, receive) = (&self.send[..bytes], &mut self.receive[..bytes]);
        let mut start = Instant::now();
        for round in 0..rounds + rounds / 10 {
            if round == rounds / 10 {
                start = Instant::now();
            }
            if self.rank == 0 {
                engine.send(send, peer, tag, world)?;
                let status = engine.recv(&mut *receive, source, tag, world)?;
                assert!(status.length == bytes && status.source == peer);
            } else {
                let status = engine.recv(&mut *receive, source, tag, world)?;
                assert!(status.length == bytes && status.source == peer);
                engine.send(send, peer, tag, world)?;
            }
        }
        Ok(start.elapsed().as_secs_f64() / rounds as f64 / 2.0 * 1e6)
    }

    /// Latency, message rate and bandwidth.
    pub(crate) fn p2p(&mut self) -> Done {
        for bytes in LATENCIES {
            let rounds = self.rounds(turns(bytes));
            self.barrier()?;
            let time = self.pingpong(rounds, bytes, self.peer.into(), Tag(1))?;
            self.report("lat", bytes, time, "us");
        }
        for bytes in RATES {
            let rounds = self.rounds(windows(bytes));
            let (metric, value, unit) = rate(rounds, bytes, self.window(rounds, bytes)?);
            self.report(metric, bytes, value, unit);
            self.barrier()?;
        }
        Ok(())
    }

    /// Rank 0 copies between its two buffers while rank 1 waits, µs. No receiver of such a message can be faster.
    pub(crate) fn copies(&mut self) -> Done {
        for bytes in COPIED {
            let rounds = self.rounds((1 << 30) / bytes).max(1);
            let start = Instant::now();
            if self.rank == 0 {
                for _ in 0..rounds {
                    self.receive[..bytes].copy_from_slice(std::hint::black_box(&self.send[..bytes]));
                    std::hint::black_box(&mut self.receive[..bytes]);
                }
            }
            let time = start.elapsed().as_secs_f64() / rounds as f64 * 1e6;
            self.report("copy", bytes, time, "us");
            self.barrier()?;
        }
        Ok(())
    }

    /// Sends windows of messages from rank 0. Their receives are posted before. Returns the seconds for all windows.
    fn window(&mut self, rounds: usize, bytes: usize) -> Result<f64, OperationError> {
        let (peer, world, rank) = (self.peer, self.world, self.rank);
        let send = &self.send[..bytes];
        let cells = Cell::from_mut(&mut self.receive[..]).as_slice_of_cells();
        let place = |w: usize| Cells(&cells[place(w, bytes)..][..bytes]);
        self.engine.scope(|scope| {
            let mut ready = [0u8; 4];
            let mut window: Vec<Request<Cells<'_, u8>>> = Vec::with_capacity(WINDOW);
            let mut sends: Vec<Request<&[u8]>> = Vec::with_capacity(WINDOW);
            let mut start = Instant::now();
            if rank == 1 {
                for w in 0..WINDOW {
                    window.push(scope.irecv(place(w), peer, Tag(2), world)?);
                }
                scope.send(&[0u8; 4], peer, Tag(3), world)?;
            } else {
                scope.recv(&mut ready, peer, Tag(3), world)?;
            }
            for round in 0..rounds + rounds / 10 + 1 {
                if round == rounds / 10 + 1 {
                    start = Instant::now();
                }
                if rank == 0 {
                    let token = scope.irecv(vec![0u8; 4], peer, Tag(3), world)?;
                    for _ in 0..WINDOW {
                        sends.push(scope.isend(send, peer, Tag(2), world)?);
                    }
                    scope.wait_all(&sends)?;
                    for request in sends.drain(..) {
                        scope.take(request)?;
                    }
                    scope.wait(&token)?;
                    scope.take(token)?;
                } else {
                    scope.wait_all(&window)?;
                    for request in window.drain(..) {
                        let (_, status) = scope.take(request)?;
                        assert!(status.length == bytes);
                    }
                    for w in 0..WINDOW {
                        window.push(scope.irecv(place(w), peer, Tag(2), world)?);
                    }
                    scope.send(&[0u8; 4], peer, Tag(3), world)?;
                }
            }
            let time = start.elapsed().as_secs_f64();
            if rank == 0 {
                for _ in 0..WINDOW {
                    scope.send(send, peer, Tag(2), world)?;
                }
            } else {
                scope.wait_all(&window)?;
                for request in window.drain(..) {
                    scope.take(request)?;
                }
            }
            Ok(time)
        })
    }

    /// Half a round trip behind posted receives and unexpected messages that do not match.
    pub(crate) fn depth(&mut self) -> Done {
        for depth in [0u32, 8, 64, 512, 4096] {
            let rounds = self.rounds(if depth > 64 { 4000 } else { 20000 });
            let (peer, world) = (self.peer, self.world);
            let mut posted = Vec::with_capacity(depth as usize);
            for k in 0..depth {
                posted.push(self.engine.irecv(Vec::<u8>::new(), peer, Tag(1000 + k), world)?);
            }
            self.barrier()?;
            let time = self.pingpong(rounds, 0, peer.into(), Tag(1))?;
            self.report("posted", depth as usize, time, "us");
            self.barrier()?;
            let time = self.pingpong(rounds, 0, Source::Any, Tag(1))?;
            self.report("posted_any", depth as usize, time, "us");
            self.barrier()?;
            for k in 0..depth {
                self.engine.send(b"", peer, Tag(1000 + k), world)?;
            }
            self.engine.wait_all(&posted)?;
            for request in posted {
                self.engine.take(request)?;
            }
            for k in 0..depth {
                self.engine.send(b"", peer, Tag(1000 + k), world)?;
            }
            self.barrier()?;
            let time = self.pingpong(self.rounds(20000), 0, peer.into(), Tag(1))?;
            self.report("unexpected", depth as usize, time, "us");
            for k in (0..depth).rev() {
                self.engine.recv(&mut [0u8; 0], peer, Tag(1000 + k), world)?;
            }
            self.barrier()?;
        }
        Ok(())
    }

    /// Messages of 8 B to oneself.
    pub(crate) fn own(&mut self, messages: usize) -> Done {
        let (me, world) = (self.engine.rank(), self.world);
        let send = &self.send[..8];
        let receive = &self.receive[..8];
        let mut buffer = receive.to_vec();
        let cells = Cells(Cell::from_mut(&mut buffer[..]).as_slice_of_cells());
        self.engine.scope(|scope| {
            for _ in 0..messages {
                let incoming = scope.irecv(cells, me, Tag(1), world)?;
                let outgoing = scope.isend(send, me, Tag(1), world)?;
                scope.wait_all(&[outgoing.id(), incoming.id()])?;
                let (_, status) = scope.take(incoming)?;
                assert!(status.length == 8);
                scope.take(outgoing)?;
            }
            Ok::<(), OperationError>(())
        })
    }
}
