//! One-sided operations on windows, as MPI benchmarks time them: an operation and its flush, many times one after another.

use super::loops::{Say, WINDOW};
use std::time::{Duration, Instant};
use tickwire::{Comm, Engine, HeapError, LockKind, Rank, Tag, Window, WindowError, op};

/// Lengths of puts and gets, bytes.
const SIZES: [usize; 5] = [8, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
/// Lengths of accumulates, bytes.
const UPDATED: [usize; 2] = [8, 64 << 10];
/// Lengths of puts into a buffer of the program, bytes.
const CREATED: [usize; 3] = [8, 4 << 10, 1 << 20];
/// Bytes of a part of a window.
const MAX: usize = 4 << 20;
/// Figures of the suite.
pub(crate) const FIGURES: usize = 2 * SIZES.len() + UPDATED.len() + CREATED.len() + 8;
/// How long the target computes at a time, without a call of the engine, while the origin updates.
const COMPUTED: Duration = Duration::from_millis(1);
/// How long this measurement takes.
const PASSIVE: Duration = Duration::from_millis(500);
/// Tag of the message that ends this measurement.
const ENDED: Tag = Tag(9);

/// Why the suite ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error(transparent)]
    Window(#[from] WindowError),
    #[error(transparent)]
    Heap(#[from] HeapError),
}

type Done = Result<(), WindowError>;

/// Changes one byte in each cache line. An unchanged line may still be in the reader's cache.
fn touch(bytes: &mut [u8], round: usize) {
    bytes.iter_mut().step_by(64).for_each(|byte| *byte = round as u8);
}

/// The suite. Most operations are those of rank 0 on rank 1's part.
pub(crate) struct OneSided<'a> {
    engine: &'a mut Engine,
    say: Say<'a>,
    quick: bool,
    /// Whether the buffer that becomes a window is in the shared heap.
    shared: bool,
    world: Comm,
    /// The own rank, and the rank that it operates on.
    ranks: [Rank; 2],
    send: Vec<u8>,
    receive: Vec<u8>,
}

impl<'a> OneSided<'a> {
    /// With plain buffers. If `shared`, the buffer that becomes a window is in the shared heap.
    pub(crate) fn new(engine: &'a mut Engine, say: Say<'a>, shared: bool, quick: bool) -> Self {
        let (world, rank) = (engine.comm_world(), engine.rank());
        let ranks = [rank, Rank(1 - rank.0.min(1))];
        // Written, so that their page faults do not fall into the timed calls.
        let (send, receive) = (vec![1; MAX], vec![1; MAX]);
        OneSided { engine, say, quick, shared, world, ranks, send, receive }
    }

    /// Times an operation of rank 0, or of every rank if `both`, and says how long one takes.
    fn time(
        &mut self,
        (metric, parameter): (&str, usize),
        calls: usize,
        both: bool,
        mut call: impl FnMut(&mut Self, usize) -> Done,
    ) -> Done {
        let calls = if self.quick { calls.div_ceil(100) } else { calls };
        let first = self.ranks[0] == Rank(0);
        self.engine.barrier(self.world)?;
        let start = Instant::now();
        if first || both {
            (0..calls).try_for_each(|round| call(self, round))?;
        }
        let time = start.elapsed().as_secs_f64() / calls as f64 * 1e6;
        if first {
            (self.say)(metric, parameter, time, "us");
        }
        Ok(self.engine.barrier(self.world)?)
    }

    /// Measures all operations.
    pub(crate) fn measure(&mut self) -> Result<(), Ended> {
        let window = self.engine.win_allocate::<u8>(MAX, self.world)?;
        self.engine.win_lock_all(window)?;
        // Connects before anything is timed: a fabric connects with the first operation, but MPI when a window is made.
        self.engine.put(&self.send[..8], Rank(1), 0, window)?;
        self.engine.win_flush(Rank(1), window)?;
        for bytes in SIZES {
            self.moved(bytes, if bytes <= 4096 { 20_000 } else { 500 }, window)?;
        }
        self.updated(window)?;
        self.engine.win_unlock_all(window)?;
        self.epochs(window)?;
        self.engine.win_free(window)?;
        let window = match self.shared {
            true => self.engine.win_create(self.engine.alloc(MAX)?, self.world).map_err(WindowError::from)?,
            false => self.engine.win_create(vec![0u8; MAX], self.world).map_err(WindowError::from)?,
        };
        Ok(self.created(window)?)
    }

    fn moved(&mut self, bytes: usize, calls: usize, window: Window<u8>) -> Done {
        let target = Rank(1);
        self.time(("put", bytes), calls, false, |all, round| {
            touch(&mut all.send[..bytes], round);
            all.engine.put(&all.send[..bytes], target, 0, window)?;
            all.engine.win_flush(target, window)
        })?;
        self.time(("get", bytes), calls, false, |all, _| {
            all.engine.get(&mut all.receive[..bytes], target, 0, window)?;
            all.engine.win_flush(target, window)
        })
    }

    fn updated(&mut self, window: Window<u8>) -> Done {
        let (target, words) = (Rank(1), window.cast::<i64>());
        self.time(("put_64", 8), 2_000, false, |all, _| {
            for index in 0..WINDOW {
                all.engine.put(&all.send[..8], target, 64 * index, window)?;
            }
            all.engine.win_flush(target, window)
        })?;
        self.time(("fetch_add", 8), 20_000, false, |all, _| {
            all.engine.fetch_and_op(1, op::Sum, target, 0, words)?;
            all.engine.win_flush(target, words)
        })?;
        self.time(("cas", 8), 20_000, false, |all, _| {
            all.engine.compare_and_swap(0, 1, target, 1, words)?;
            all.engine.win_flush(target, words)
        })?;
        self.time(("fetch_add_all", 8), 20_000, true, |all, _| {
            all.engine.fetch_and_op(1, op::Sum, Rank(0), 8, words)?;
            all.engine.win_flush(Rank(0), words)
        })?;
        self.time(("accumulate_64", 8), 2_000, false, |all, _| {
            for index in 0..WINDOW {
                all.engine.accumulate(&[1i64], op::Sum, target, index, words)?;
            }
            all.engine.win_flush(target, words)
        })?;
        let (numbers, doubles) = (vec![0.0; UPDATED[1] / 8], window.cast::<f64>());
        for (bytes, calls) in UPDATED.into_iter().zip([20_000, 300]) {
            self.time(("accumulate", bytes), calls, false, |all, _| {
                all.engine.accumulate(&numbers[..bytes / 8], op::Sum, target, 16, doubles)?;
                all.engine.win_flush(target, doubles)
            })?;
        }
        Ok(())
    }

    fn epochs(&mut self, window: Window<u8>) -> Done {
        let target = Rank(1);
        self.time(("lock_put", 8), 5_000, false, |all, _| {
            all.engine.win_lock(LockKind::Exclusive, target, window)?;
            all.engine.put(&all.send[..8], target, 0, window)?;
            all.engine.win_unlock(target, window)
        })?;
        self.engine.win_fence(window)?;
        self.time(("fence_put", 8), 5_000, true, |all, _| {
            all.engine.put(&all.send[..8], all.ranks[1], 0, window)?;
            all.engine.win_fence(window)
        })
    }

    /// Operations on a window made of the program's own memory, also while the target computes.
    fn created(&mut self, window: Window<u8>) -> Done {
        let target = Rank(1);
        self.engine.win_lock_all(window)?;
        for bytes in CREATED {
            self.time(("created_put", bytes), if bytes <= 4096 { 5_000 } else { 200 }, false, |all, round| {
                touch(&mut all.send[..bytes], round);
                all.engine.put(&all.send[..bytes], target, 0, window)?;
                all.engine.win_flush(target, window)
            })?;
        }
        self.engine.barrier(self.world)?;
        let passive = if self.quick { PASSIVE / 100 } else { PASSIVE };
        if self.ranks[0] == Rank(0) {
            let (start, mut count) = (Instant::now(), 0u32);
            // At least one call, so that there is a figure however late this rank gets the processor.
            while count == 0 || start.elapsed() < passive {
                self.engine.accumulate(&[1.0], op::Sum, target, 0, window.cast::<f64>())?;
                self.engine.win_flush(target, window)?;
                count += 1;
            }
            let time = start.elapsed().as_secs_f64() / f64::from(count) * 1e6;
            (self.say)("passive_accumulate", 8, time, "us");
            for rank in 1..self.engine.size() {
                self.engine.send(&[0u8; 0], Rank(rank), ENDED, self.world)?;
            }
        } else {
            // The target calls the engine once after each computation.
            let mut ended = false;
            while !ended {
                let computed = Instant::now() + COMPUTED;
                while Instant::now() < computed {
                    std::hint::spin_loop();
                }
                ended = self.engine.iprobe(Rank(0), ENDED, self.world)?.is_some();
            }
            self.engine.recv(&mut [0u8; 0], Rank(0), ENDED, self.world)?;
        }
        self.engine.win_unlock_all(window)?;
        self.engine.win_free(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worlds::OneHost;
    use tickwire::Bootstrap;
    use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
    use tickwire::internals::transports::Hub;

    /// The figures that each of so many ranks says.
    fn figures(size: u32) -> Vec<Vec<(String, f64)>> {
        let hub = Hub::new(size, LOOPBACK_RING_BYTES);
        let build = |rank| {
            let bootstrap = Bootstrap::custom(OneHost::new("rma", rank, size));
            Engine::builder().include(["loopback"]).hub(hub.clone()).build(bootstrap).unwrap()
        };
        let engines: Vec<Engine> = (0..size).map(build).collect();
        let run = |mut engine: Engine| {
            let mut figures = Vec::new();
            let mut say = |metric: &str, _: usize, value: f64, _: &str| figures.push((metric.to_owned(), value));
            OneSided::new(&mut engine, &mut say, false, true).measure().unwrap();
            engine.finalize(Duration::from_secs(5)).unwrap();
            figures
        };
        std::thread::scope(|scope| {
            let ranks: Vec<_> = engines.into_iter().map(|engine| scope.spawn(move || run(engine))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn any_number_of_ranks_has_as_many_figures_as_the_progress_bar_expects() {
        for size in [2, 3] {
            let said = figures(size);
            assert!(said[0].iter().all(|(_, value)| value.is_finite() && *value > 0.0), "{said:?}");
            let counts: Vec<usize> = said.iter().map(Vec::len).collect();
            assert_eq!((counts[0], counts[1..].iter().sum::<usize>()), (FIGURES, 0), "of {size}");
        }
    }
}
