//! What an idle tick costs: a tick that finds nothing to do.

use std::hint::black_box;
use std::time::{Duration, Instant};

use clap::Args;
use tickwire::internals::components::limits::{LOOPBACK_RING_BYTES, PROCS_MAX};
use tickwire::internals::transports::Hub;
use tickwire::{Bootstrap, Engine, Limits, Rank, Tag};

use super::{FINALIZE_TIME, PerfArgs};
use crate::fault::Fault;
use crate::worlds::OneHost;

/// Ticks of one sample; the median of [`SAMPLES`] is reported.
const SAMPLE_TICKS: u64 = 200_000;
const SAMPLES: usize = 21;
/// How long peers may take to connect.
const CONNECT_TIME: Duration = Duration::from_secs(30);
/// Time in which peers that have nothing to do fall asleep.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// The message that connects, and the one that ends the sleep.
const HELLO: Tag = Tag(1);
const END: Tag = Tag(2);

/// Time of a tick that finds nothing, with connected peers that sleep and procs that were never contacted
///
/// To count instructions: run twice under an instruction counter such as `valgrind --tool=cachegrind`, with `--in-process`,
/// `--control-us 1000000` and two values of `--ticks`. The difference of both counts is the cost of the further ticks.
#[derive(Args, Debug, Clone)]
pub(crate) struct IdleArgs {
    /// Connected peers
    #[arg(long, value_name = "P", default_value = "64", value_parser = clap::value_parser!(u32).range(0..=4095))]
    peers: u32,
    /// Further procs of the world that are never contacted
    #[arg(long, value_name = "K", default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=PROCS_MAX as i64 - 4096))]
    pub(super) known: u32,
    /// Exactly this many ticks, instead of as many as make a steady figure
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    ticks: Option<u64>,
    /// Peers are engines of this process, on one thread; nothing else is started
    #[arg(long)]
    in_process: bool,
}

impl IdleArgs {
    /// Processes: this one and its peers.
    pub(super) fn ranks(&self) -> u32 {
        self.peers + 1
    }

    /// Whether no other process has to be started.
    pub(super) fn within_process(&self) -> bool {
        self.in_process || self.peers == 0
    }
}

/// One rank of a job: rank 0 measures, the others sleep.
pub(super) fn as_rank(args: &PerfArgs, idle: &IdleArgs, bootstrap: Bootstrap) -> Result<(), Fault> {
    if bootstrap.rank() > 0 {
        // Peers sleep at once, so that they leave the cores to rank 0. Only rank 0 is measured.
        let limits = Limits { spins: 0, yields: 0, sleep_ms_max: 10_000, ..args.limits() };
        let mut engine = args.builder().limits(limits).build(bootstrap)?;
        let world = engine.comm_world();
        engine.send(b"", Rank(0), HELLO, world)?;
        engine.recv(&mut [0u8; 0], Rank(0), END, world)?;
        engine.finalize(FINALIZE_TIME)?;
        return Ok(());
    }
    let mut engine = args.builder().build(bootstrap)?;
    let world = engine.comm_world();
    for peer in 1..=idle.peers {
        engine.recv(&mut [0u8; 0], Rank(peer), HELLO, world)?;
    }
    std::thread::sleep(SETTLE_TIME);
    measure(args, idle, &mut engine)?;
    for peer in 1..=idle.peers {
        engine.send(b"", Rank(peer), END, world)?;
    }
    engine.finalize(FINALIZE_TIME)?;
    Ok(())
}

/// All engines are in this process. Once all are connected, only the first one ticks.
pub(super) fn in_process(args: &PerfArgs) -> Result<(), Fault> {
    let super::Suite::Idle(idle) = &args.suite else { return Ok(()) };
    let hub = args.within_process().then(|| Hub::new(idle.ranks(), LOOPBACK_RING_BYTES));
    let mut engines = Vec::with_capacity(idle.ranks() as usize);
    for rank in 0..idle.ranks() {
        let mut builder = args.builder();
        if let Some(hub) = &hub {
            builder = builder.hub(hub.clone());
        }
        let exchange = OneHost::new("idle", rank, idle.ranks() + idle.known);
        engines.push(builder.build(Bootstrap::custom(exchange))?);
    }
    let (first, peers) = engines.split_at_mut(1);
    let first = &mut first[0];
    let world = first.comm_world();
    let mut requests = Vec::with_capacity(peers.len());
    for (rank, peer) in (1..).zip(peers.iter_mut()) {
        requests.push(first.irecv(Vec::<u8>::new(), Rank(rank), HELLO, world)?);
        // The request is dropped. The engine sends the message all the same, once it is connected.
        drop(peer.isend(Vec::<u8>::new(), Rank(0), HELLO, world)?);
    }
    let end = Instant::now() + CONNECT_TIME;
    for request in requests {
        while !first.test(&request)?.is_done() {
            if Instant::now() > end {
                return Err(Fault::failure(format!("the peers have not connected within {CONNECT_TIME:?}")));
            }
            first.tick();
            for peer in peers.iter_mut() {
                peer.tick();
            }
        }
        first.take(request).map_err(|failed| failed.error)?;
    }
    measure(args, idle, first)?;
    for mut engine in engines {
        engine.finalize(FINALIZE_TIME)?;
    }
    Ok(())
}

fn measure(args: &PerfArgs, idle: &IdleArgs, engine: &mut Engine) -> Result<(), Fault> {
    // Finishes what connecting has left, so that only idle ticks follow.
    while !engine.tick().is_idle() {}
    let before = engine.counters().runs();
    let ticks = idle.ticks.unwrap_or(if args.quick { SAMPLE_TICKS / 100 } else { SAMPLE_TICKS });
    let mut samples: Vec<f64> = (0..if idle.ticks.is_some() { 1 } else { SAMPLES })
        .map(|_| {
            let start = Instant::now();
            for _ in 0..ticks {
                black_box(engine.tick());
            }
            start.elapsed().as_nanos() as f64 / ticks as f64
        })
        .collect();
    if engine.counters().runs() != before {
        return Err(Fault::failure(
            "a message came meanwhile, so the ticks were not idle: nothing else may use the job",
        ));
    }
    samples.sort_by(f64::total_cmp);
    let median = samples[samples.len() / 2];
    let mut figures = args.sink(0, idle.ranks());
    match idle.known {
        0 => figures.say("idle", idle.peers as usize, median, "ns"),
        known => figures.say("idle_known", known as usize, median, "ns"),
    }
    figures.end()
}
