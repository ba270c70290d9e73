//! Collective operations, as MPI benchmarks time them: rank 0's time of a call, over many calls one after another.

use super::loops::Say;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};
use tickwire::{Comm, Engine, HeapBuffer, HeapError, LeasedBytes, Rank, Sequence, Tag, op};

/// Lengths of the buffers, bytes.
const SIZES: [usize; 5] = [8, 1 << 10, 16 << 10, 64 << 10, 1 << 20];
/// Longest buffer, bytes.
const MAX: usize = 1 << 20;
/// Number of calls of a short operation: with two ranks, and with more ranks, which may share processors.
const CALLS: [usize; 2] = [20_000, 400];
/// In short operations a rank may run ahead of the others. After this many calls of such an operation a barrier follows.
const AHEAD: usize = 16;

/// The tag of blocks.
const TAG: Tag = Tag(1);
/// How long a rank computes between two ticks, in the measurements in which it computes.
const COMPUTES: Duration = Duration::from_micros(50);

type Done = Result<(), tickwire::Error>;

/// Figures that [`Collectives::measure`] gives with so many ranks.
pub(crate) fn figures(ranks: u32) -> usize {
    let parts = SIZES.iter().filter(|&&bytes| part(bytes, ranks as usize) > 0).count();
    1 + 7 * SIZES.len() + 3 * parts + 2
}

/// Bytes of one rank's part of a buffer: whole doubles, and as many for each rank.
fn part(bytes: usize, ranks: usize) -> usize {
    bytes / ranks / 8 * 8
}

/// A buffer of doubles: a vector, or memory of the shared heap.
enum Doubles {
    Plain(Vec<f64>),
    Shared(HeapBuffer<f64>),
}

impl Doubles {
    fn new(engine: &Engine, shared: bool) -> Result<Self, HeapError> {
        let mut made = match shared {
            true => Doubles::Shared(engine.alloc_elements(MAX / 8)?),
            false => Doubles::Plain(vec![0.0; MAX / 8]),
        };
        write(&mut made);
        Ok(made)
    }
}

impl Deref for Doubles {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        match self {
            Doubles::Plain(doubles) => doubles,
            Doubles::Shared(doubles) => doubles,
        }
    }
}

impl DerefMut for Doubles {
    fn deref_mut(&mut self) -> &mut [f64] {
        match self {
            Doubles::Plain(doubles) => doubles,
            Doubles::Shared(doubles) => doubles,
        }
    }
}

/// Changes one number in each cache line. An unchanged line may still be in the reader's cache.
fn touch(doubles: &mut [f64], round: usize) {
    doubles.iter_mut().step_by(8).for_each(|number| *number = (round % 128) as f64);
}

/// Writes a buffer before it is used. Otherwise its page faults would fall into the timed calls.
fn write(doubles: &mut [f64]) {
    touch(doubles, 1);
}

/// Keeps the processor busy, as an application's own work does.
fn compute() {
    let start = Instant::now();
    while start.elapsed() < COMPUTES {
        std::hint::spin_loop();
    }
}

/// The suite.
pub(crate) struct Collectives<'a> {
    engine: &'a mut Engine,
    say: Say<'a>,
    quick: bool,
    shared: bool,
    world: Comm,
    send: Doubles,
    receive: Doubles,
}

impl<'a> Collectives<'a> {
    /// With plain buffers, or with buffers in the shared heap.
    pub(crate) fn new(engine: &'a mut Engine, say: Say<'a>, shared: bool, quick: bool) -> Result<Self, HeapError> {
        let (send, receive) = (Doubles::new(engine, shared)?, Doubles::new(engine, shared)?);
        Ok(Collectives { world: engine.comm_world(), engine, say, quick, shared, send, receive })
    }

    /// Times calls, and says how long one of them takes.
    fn time(
        &mut self,
        metric: &str,
        parameter: usize,
        calls: usize,
        mut call: impl FnMut(&mut Self, usize) -> Done,
    ) -> Done {
        let calls = if self.quick { calls.div_ceil(100) } else { calls };
        self.engine.barrier(self.world)?;
        let start = Instant::now();
        (0..calls).try_for_each(|round| call(self, round))?;
        let time = start.elapsed().as_secs_f64() / calls as f64 * 1e6;
        if self.engine.rank() == Rank(0) {
            (self.say)(metric, parameter, time, "us");
        }
        Ok(self.engine.barrier(self.world)?)
    }

    /// Measures all operations.
    pub(crate) fn measure(&mut self) -> Done {
        let ranks = self.engine.size() as usize;
        let many = CALLS[usize::from(ranks > 2)];
        self.time("barrier", ranks, many, |all, _| Ok(all.engine.barrier(all.world)?))?;
        for bytes in SIZES {
            let calls = match bytes {
                0..=1024 => many,
                1025..=65536 => many / 20,
                _ => many / 200,
            };
            self.sized(bytes, calls.max(10))?;
        }
        self.overlapping(MAX, (many / 200).max(10))
    }

    /// A rank that may run ahead waits for the others now and then.
    fn keep_up(&mut self, bytes: usize, round: usize) -> Done {
        match bytes <= 1024 && round.is_multiple_of(AHEAD) {
            true => Ok(self.engine.barrier(self.world)?),
            false => Ok(()),
        }
    }

    fn sized(&mut self, bytes: usize, calls: usize) -> Done {
        let (count, root) = (bytes / 8, Rank(0));
        let first = self.engine.rank() == root;
        self.time("allreduce", bytes, calls, |all, round| {
            let Collectives { engine, world, send, receive, .. } = all;
            touch(&mut send[..count], round);
            Ok(engine.allreduce(&send[..count], &mut receive[..count], op::Sum, *world)?)
        })?;
        self.time("iallreduce", bytes, calls, |all, round| {
            let Collectives { engine, world, send, receive, .. } = all;
            touch(&mut send[..count], round);
            engine.scope(|scope| {
                let sum = scope.iallreduce(&send[..count], &mut receive[..count], op::Sum, *world)?;
                scope.wait_take(sum)?;
                Ok(())
            })
        })?;
        self.persistent(bytes, calls)?;
        self.time("bcast", bytes, calls, |all, round| {
            if first {
                touch(&mut all.receive[..count], round);
            }
            all.engine.bcast(&mut all.receive[..count], root, all.world)?;
            all.keep_up(bytes, round)
        })?;
        self.time("reduce", bytes, calls, |all, round| {
            let Collectives { engine, world, send, receive, .. } = all;
            touch(&mut send[..count], round);
            engine.reduce(&send[..count], &mut receive[..count], op::Sum, root, *world)?;
            all.keep_up(bytes, round)
        })?;
        self.parts(bytes, calls)?;
        self.time("scan", bytes, calls, |all, round| {
            let Collectives { engine, world, send, receive, .. } = all;
            touch(&mut send[..count], round);
            engine.scan(&send[..count], &mut receive[..count], op::Sum, *world)?;
            all.keep_up(bytes, round)
        })?;
        self.chain(bytes, calls)
    }

    /// A sum that blocks pass on from rank to rank, and back to the first.
    fn chain(&mut self, bytes: usize, calls: usize) -> Done {
        let (count, rank, ranks) = (bytes / 8, self.engine.rank().0, self.engine.size());
        let (before, behind) = (Rank((rank + ranks - 1) % ranks), Rank((rank + 1) % ranks));
        self.time("recv_op_forward", bytes, calls, |all, round| {
            let Collectives { engine, world, send, receive, .. } = all;
            touch(&mut send[..count], round);
            engine.scope(|scope| {
                if rank > 0 {
                    let block = scope.scatter_block(before, TAG, *world);
                    let request = block.recv_op_forward(&mut receive[..count], op::Sum, behind).start()?;
                    scope.wait_take(request)?;
                    return Ok(());
                }
                let last = scope.scatter_block(before, TAG, *world).recv(&mut receive[..count]).start()?;
                let first = scope.gather_block(behind, TAG, *world).send(&send[..count]).start()?;
                scope.wait_take(first)?;
                scope.wait_take(last)?;
                Ok(())
            })
        })
    }

    /// A persistent sum; its operand changes between starts.
    fn persistent(&mut self, bytes: usize, calls: usize) -> Done {
        let count = bytes / 8;
        match self.shared {
            true => {
                let buffers = (self.engine.alloc_elements(count)?, self.engine.alloc_elements(count)?);
                self.persistent_of(bytes, calls, buffers)
            }
            false => self.persistent_of(bytes, calls, (vec![0.0; count], vec![0.0; count])),
        }
    }

    fn persistent_of<B>(&mut self, bytes: usize, calls: usize, (send, receive): (B, B)) -> Done
    where
        B: LeasedBytes + Sequence<Item = f64> + DerefMut<Target: AsMut<[f64]>> + Send + 'static,
    {
        let mut sum = self.engine.allreduce_init(send, receive, op::Sum, self.world)?;
        let (send, receive) = self.engine.buffer(&mut sum)?;
        [send.as_mut(), receive.as_mut()].into_iter().for_each(write);
        self.time("allreduce_init", bytes, calls, |all, round| {
            touch(all.engine.buffer(&mut sum)?.0.as_mut(), round);
            all.engine.start(&sum)?;
            all.engine.wait(&sum)?;
            Ok(())
        })
    }

    /// A sum during which ranks compute between their ticks: all ranks, or rank 0 alone.
    fn overlapping(&mut self, bytes: usize, calls: usize) -> Done {
        let (count, first) = (bytes / 8, self.engine.rank() == Rank(0));
        for (metric, computes) in [("iallreduce_all_compute", true), ("iallreduce_one_computes", first)] {
            self.time(metric, bytes, calls, |all, round| {
                let Collectives { engine, world, send, receive, .. } = all;
                touch(&mut send[..count], round);
                engine.scope(|scope| {
                    let sum = scope.iallreduce(&send[..count], &mut receive[..count], op::Sum, *world)?;
                    while computes && !scope.test(&sum)?.is_done() {
                        compute();
                        scope.tick();
                    }
                    scope.wait_take(sum)?;
                    Ok(())
                })
            })?;
        }
        Ok(())
    }

    /// Operations in which each rank has a part of the buffer.
    fn parts(&mut self, bytes: usize, calls: usize) -> Done {
        let ranks = self.engine.size() as usize;
        let (count, part) = (part(bytes, ranks) / 8 * ranks, part(bytes, ranks) / 8);
        if part == 0 {
            return Ok(());
        }
        self.time("allgather", bytes, calls, |all, round| {
            let Collectives { engine, world, send, receive, .. } = all;
            touch(&mut send[..part], round);
            Ok(engine.allgather(&send[..part], &mut receive[..count], *world)?)
        })?;
        self.time("alltoall", bytes, calls, |all, round| {
            let Collectives { engine, world, send, receive, .. } = all;
            touch(&mut send[..count], round);
            Ok(engine.alltoall(&send[..count], &mut receive[..count], *world)?)
        })?;
        self.time("reduce_scatter", bytes, calls, |all, round| {
            let Collectives { engine, world, send, receive, .. } = all;
            touch(&mut send[..count], round);
            Ok(engine.reduce_scatter_block(&send[..count], &mut receive[..part], op::Sum, *world)?)
        })
    }
}
