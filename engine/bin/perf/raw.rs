//! What a fabric gives to a program that calls libfabric itself: the loops of `perf p2p`, without an engine.

use std::time::{Duration, Instant};
use tickwire::bootstrap::Exchange;
use tickwire::internals::transports::ofi::{Bare, BareMemory, OfiError};

use super::PerfArgs;
use super::loops::{self, LATENCIES, MAX, RATES, Say, WINDOW, place, rate, turns, windows};
use crate::fault::Fault;

/// What is measured.
#[derive(clap::Args, Debug, Clone)]
pub(super) struct RawArgs {
    /// Measure writes and reads of 8 B in the other rank's memory instead of messages, each with the wait for its completion
    #[arg(long)]
    one_sided: bool,
}

impl RawArgs {
    /// Number of figures that the suite gives.
    pub(super) fn figures(&self) -> usize {
        if self.one_sided { ONE_SIDED_FIGURES } else { loops::P2P_FIGURES }
    }

    /// Refuses options that exclude each other.
    pub(super) fn check(&self, tagged: bool) -> Result<(), Fault> {
        match self.one_sided && tagged {
            true => Err(Fault::wrong_use("one-sided operations have no tags: leave --mode tagged out")),
            false => Ok(()),
        }
    }
}

/// Number of figures of one-sided operations, bytes of an operation, and rounds.
const ONE_SIDED_FIGURES: usize = 2;
const ONE_SIDED_BYTES: usize = 8;
const ONE_SIDED_ROUNDS: usize = 20_000;
/// The byte that rank 0 writes last. It tells rank 1 that no operation follows.
const OVER: u8 = 255;

/// The key under which a rank puts its address.
const ADDRESS: &str = "raw-address";
/// Bytes of a message that only says that its sender is ready.
const WORD: usize = 4;
/// How long a rank progresses its provider at the end.
const FLUSH_TIME: Duration = Duration::from_millis(20);

/// Runs one of the two ranks. They learn each other's addresses through the launcher.
pub(super) fn as_rank(args: &PerfArgs, raw: &RawArgs, exchange: Box<dyn Exchange>) -> Result<(), Fault> {
    if raw.one_sided { one_sided(args, exchange) } else { messages(args, exchange) }
}

/// Rank 0 writes and reads in the memory of rank 1. Rank 1 only progresses its provider.
fn one_sided(args: &PerfArgs, mut exchange: Box<dyn Exchange>) -> Result<(), Fault> {
    let rank = exchange.rank();
    let mut figures = args.sink(rank, exchange.size());
    let mut memory = BareMemory::open(&args.fabric()?, ONE_SIDED_BYTES)?;
    exchange.put(ADDRESS, &memory.card()?)?;
    exchange.fence()?;
    let peer = exchange.get(1 - rank, ADDRESS)?;
    memory.connect(&peer.ok_or_else(|| Fault::failure("the other rank has ended"))?)?;
    if rank == 0 {
        let rounds = if args.quick { ONE_SIDED_ROUNDS.div_ceil(100) } else { ONE_SIDED_ROUNDS };
        let put = each(rounds, |round| {
            memory.touch((round % usize::from(OVER)) as u8);
            memory.put(ONE_SIDED_BYTES)
        })?;
        figures.say("put", ONE_SIDED_BYTES, put, "us");
        let get = each(rounds, |_| memory.get(ONE_SIDED_BYTES))?;
        figures.say("get", ONE_SIDED_BYTES, get, "us");
        memory.touch(OVER);
        memory.put(ONE_SIDED_BYTES)?;
    } else {
        while memory.first() != OVER {
            memory.progress()?;
        }
        // The acknowledgement of the last write may still be on its way.
        let start = Instant::now();
        while start.elapsed() < FLUSH_TIME {
            memory.progress()?;
        }
    }
    exchange.fence()?;
    exchange.finish();
    figures.end()
}

/// Time of an operation, µs.
fn each(rounds: usize, mut operate: impl FnMut(usize) -> Result<(), OfiError>) -> Result<f64, OfiError> {
    for round in 0..rounds / 10 {
        operate(round)?;
    }
    let start = Instant::now();
    for round in 0..rounds {
        operate(round)?;
    }
    Ok(start.elapsed().as_secs_f64() / rounds as f64 * 1e6)
}

/// Messages both ways.
fn messages(args: &PerfArgs, mut exchange: Box<dyn Exchange>) -> Result<(), Fault> {
    let rank = exchange.rank();
    let mut figures = args.sink(rank, exchange.size());
    let mut fabric = Bare::open(&args.fabric()?, WINDOW, MAX, args.is_tagged())?;
    exchange.put(ADDRESS, &fabric.address()?)?;
    exchange.fence()?;
    let peer = exchange.get(1 - rank, ADDRESS)?;
    fabric.connect(&peer.ok_or_else(|| Fault::failure("the other rank has ended"))?)?;
    let mut say = |metric: &str, parameter: usize, value: f64, unit: &str| {
        figures.say(metric, parameter, value, unit);
    };
    Pair { fabric, first: rank == 0, quick: args.quick }.p2p(&mut say)?;
    exchange.fence()?;
    exchange.finish();
    figures.end()
}

/// One of the two ranks, with its endpoint.
struct Pair {
    fabric: Bare,
    /// Whether it is rank 0.
    first: bool,
    /// Whether only a hundredth of the rounds is run.
    quick: bool,
}

impl Pair {
    fn rounds(&self, rounds: usize) -> usize {
        if self.quick { rounds.div_ceil(100) } else { rounds }
    }

    fn p2p(&mut self, say: Say<'_>) -> Result<(), OfiError> {
        let mut report = |first: bool, (metric, value, unit): (&str, f64, &str), bytes: usize| {
            if first {
                say(metric, bytes, value, unit);
            }
        };
        for bytes in LATENCIES {
            let rounds = self.rounds(turns(bytes));
            self.barrier()?;
            let time = self.pingpong(rounds, bytes)?;
            report(self.first, ("lat", time, "us"), bytes);
        }
        for bytes in RATES {
            let rounds = self.rounds(windows(bytes));
            self.barrier()?;
            let time = self.window(rounds, bytes)?;
            report(self.first, rate(rounds, bytes, time), bytes);
        }
        self.barrier()?;
        self.fabric.progress(FLUSH_TIME)
    }

    fn tell(&mut self) -> Result<(), OfiError> {
        self.fabric.send(WORD)?;
        self.fabric.wait_sent()
    }

    fn hear(&mut self) -> Result<(), OfiError> {
        self.fabric.wait_received(1).map(|bytes| assert!(bytes == WORD))
    }

    /// Returns once both ranks have called it: one message each way.
    fn barrier(&mut self) -> Result<(), OfiError> {
        self.fabric.post(0, WORD)?;
        if self.first {
            self.hear()?;
            self.tell()
        } else {
            self.tell()?;
            self.hear()
        }
    }

    /// Half a round trip, µs. A rank posts each receive before it sends the message that the peer answers.
    fn pingpong(&mut self, rounds: usize, bytes: usize) -> Result<f64, OfiError> {
        let (fabric, all) = (&mut self.fabric, rounds + rounds / 10);
        let mut start = Instant::now();
        fabric.post(0, bytes)?;
        for round in 0..all {
            if round == rounds / 10 {
                start = Instant::now();
            }
            if self.first {
                fabric.send(bytes)?;
            }
            let length = fabric.wait_received(1)?;
            assert!(length == bytes);
            if round + 1 < all {
                fabric.post(0, bytes)?;
            }
            if !self.first {
                fabric.send(bytes)?;
            }
            fabric.wait_sent()?;
        }
        Ok(start.elapsed().as_secs_f64() / rounds as f64 / 2.0 * 1e6)
    }

    /// Sends windows of messages from rank 0. Their receives are posted before. Returns the seconds for all windows.
    fn window(&mut self, rounds: usize, bytes: usize) -> Result<f64, OfiError> {
        let warmup = rounds / 10 + 1;
        let mut start = Instant::now();
        for round in 0..rounds + warmup {
            if round == warmup {
                start = Instant::now();
            }
            if self.first {
                self.fabric.post(0, WORD)?;
                self.hear()?;
                for _ in 0..WINDOW {
                    self.fabric.send(bytes)?;
                }
                self.fabric.wait_sent()?;
            } else {
                for index in 0..WINDOW {
                    self.fabric.post(place(index, bytes), bytes)?;
                }
                self.tell()?;
                let length = self.fabric.wait_received(WINDOW)?;
                assert!(length == WINDOW * bytes);
            }
        }
        // The time ends once the last message has come.
        self.barrier()?;
        Ok(start.elapsed().as_secs_f64())
    }
}
