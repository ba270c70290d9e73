//! What waiting costs: processor time of a blocked rank, and how soon it wakes.

use std::time::{Duration, Instant};

use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use tickwire::{Engine, Rank, Tag};

use super::{FINALIZE_TIME, PerfArgs};
use crate::fault::Fault;

/// Figures that the suite gives.
pub(super) const FIGURES: usize = 5;

/// Processor time of a blocked receive, and how soon a sleeping rank wakes when a message comes
#[derive(Args, Debug, Clone)]
pub(crate) struct BlockArgs {
    /// How long the receive blocks, ms
    #[arg(long, value_name = "MS", default_value = "2000", value_parser = clap::value_parser!(u32).range(1..))]
    block_ms: u32,
    /// Number of wake-ups
    #[arg(long, value_name = "N", default_value = "200", value_parser = clap::value_parser!(u32).range(1..))]
    wakeups: u32,
    /// Time between two wake-ups, ms; longer on a loaded machine, until the rank sleeps
    #[arg(long, value_name = "MS", default_value = "10", value_parser = clap::value_parser!(u32).range(1..))]
    sleep_ms: u32,
}

/// Rank 0 sends and reports; rank 1 waits and measures.
pub(super) fn as_rank(args: &PerfArgs, block: &BlockArgs, mut engine: Engine) -> Result<(), Fault> {
    let (block_ms, wakeups) = if args.quick {
        (block.block_ms.div_ceil(100), block.wakeups.div_ceil(100))
    } else {
        (block.block_ms, block.wakeups)
    };
    let rank = engine.rank().0;
    let mut figures = args.sink(rank, engine.size());
    if rank == 0 {
        send(&mut engine, Duration::from_millis(block_ms.into()), block.sleep_ms, wakeups)?;
        let found = results(&mut engine)?;
        figures.say("block_cpu", block_ms as usize, found[0], "ms");
        let names = ["wake_min", "wake_median", "wake_max"];
        for (name, value) in names.into_iter().zip(&found[1..]) {
            figures.say(name, wakeups as usize, *value, "us");
        }
        figures.say("wake_asleep", wakeups as usize, found[4], "switches");
    } else {
        receive(&mut engine, wakeups)?;
    }
    super::ranks::leave_together(&mut engine)?;
    engine.finalize(FINALIZE_TIME)?;
    figures.end()
}

/// The clock that all processes of a host share, ns.
fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How long rank 1 may take to fall asleep if other processes use all processors.
const ASLEEP_TIME: Duration = Duration::from_secs(10);

/// Sends one message after the time `first`, then one for each wake-up. These carry the time at which they were sent.
fn send(engine: &mut Engine, first: Duration, sleep_ms: u32, wakeups: u32) -> Result<(), Fault> {
    let world = engine.comm_world();
    // With this message the ranks are connected, and rank 1 is about to block.
    let mut thread = [0; 4];
    engine.recv(&mut thread, Rank(1), Tag(1), world)?;
    let thread = u32::from_ne_bytes(thread);
    std::thread::sleep(first);
    engine.send(b"", Rank(1), Tag(1), world)?;
    for _ in 0..wakeups {
        std::thread::sleep(Duration::from_millis(sleep_ms.into()));
        let start = Instant::now();
        while is_awake(thread) && start.elapsed() < ASLEEP_TIME {
            std::thread::sleep(Duration::from_millis(1));
        }
        engine.send(&now_ns().to_ne_bytes(), Rank(1), Tag(2), world)?;
    }
    Ok(())
}

fn receive(engine: &mut Engine, wakeups: u32) -> Result<(), Fault> {
    let world = engine.comm_world();
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    engine.send(&thread.to_ne_bytes(), Rank(0), Tag(1), world)?;
    let before = nanoseconds(ClockId::ProcessCPUTime);
    let start = Instant::now();
    engine.recv(&mut [0u8; 0], Rank(0), Tag(1), world)?;
    let cpu = nanoseconds(ClockId::ProcessCPUTime) - before;
    if start.elapsed().is_zero() {
        return Err(Fault::failure("the receive has not blocked"));
    }
    let switches = voluntary_switches();
    let mut latencies = Vec::with_capacity(wakeups as usize);
    let mut sent = [0; 8];
    for _ in 0..wakeups {
        let status = engine.recv(&mut sent, Rank(0), Tag(2), world)?;
        let latency = now_ns().saturating_sub(u64::from_ne_bytes(sent));
        assert!(status.length == sent.len());
        latencies.push(latency);
    }
    latencies.sort_unstable();
    let us = |ns: u64| ns as f64 / 1e3;
    let asleep = voluntary_switches().saturating_sub(switches);
    let (least, median, most) = (latencies[0], latencies[latencies.len() / 2], latencies[latencies.len() - 1]);
    let results = [cpu as f64 / 1e6, us(least), us(median), us(most), asleep as f64];
    let bytes: Vec<u8> = results.iter().flat_map(|value| value.to_ne_bytes()).collect();
    engine.send(&bytes, Rank(0), Tag(3), world)?;
    Ok(())
}

fn results(engine: &mut Engine) -> Result<[f64; 5], Fault> {
    let world = engine.comm_world();
    let mut bytes = [0; 40];
    engine.recv(&mut bytes, Rank(1), Tag(3), world)?;
    Ok(std::array::from_fn(|index| {
        let value = bytes.chunks_exact(8).nth(index).and_then(|value| value.try_into().ok());
        value.map_or(f64::NAN, f64::from_ne_bytes)
    }))
}

/// Whether a thread of this host runs, or waits for a processor.
fn is_awake(thread: u32) -> bool {
    // The state follows the name in parentheses. The name may contain any character, so the last `) ` is searched for.
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

/// How often this thread has gone to sleep by itself.
fn voluntary_switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}
