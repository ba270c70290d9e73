//! Where ranks come from: processes that a job starts, or threads of this process.

use std::process::ExitCode;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::internals::transports::Hub;
use tickwire::launch::{Job, Output};
use tickwire::{Bootstrap, Engine, OperationError, Rank, Tag};

use super::PerfArgs;
use crate::fault::Fault;
use crate::worlds::OneHost;

/// Starts the ranks of a suite: this program again, with the same arguments.
pub(super) fn start(args: &PerfArgs) -> Result<ExitCode, Fault> {
    let job = Job::new(args.suite.ranks()).program(std::env::current_exe()?).args(std::env::args_os().skip(1));
    // Ranks share the terminal, so that rank 0 sees whether there is one.
    let outcome = job.pin(true).output(Output::Inherit).run()?;
    if let (None, Some(error)) = (outcome.first_failure, &outcome.trace_error) {
        return Err(Fault::failure(error));
    }
    Ok(ExitCode::from(outcome.code().clamp(0, 255) as u8))
}

/// Runs the ranks of a suite as threads, each bound to one core. Loopback only connects engines of one process.
pub(super) fn threads(args: &PerfArgs) -> Result<(), Fault> {
    let ranks = args.suite.ranks();
    let hub = Hub::new(ranks, LOOPBACK_RING_BYTES);
    // All engines are built before any of them runs.
    let build = |rank: u32| {
        let bootstrap = Bootstrap::custom(OneHost::new("perf", rank, ranks));
        args.builder().hub(hub.clone()).build(bootstrap).map_err(|error| Fault::from(error).at(&format!("rank {rank}")))
    };
    let mut engines = (0..ranks).map(build).collect::<Result<Vec<Engine>, Fault>>()?.into_iter();
    let run = |rank: u32, engine: Engine| {
        pin(rank);
        super::measure_ranks(args, engine)
    };
    let Some(first) = engines.next() else { return Ok(()) };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..).zip(engines).map(|(rank, engine)| scope.spawn(move || run(rank, engine))).collect();
        let mut done = run(0, first).map_err(|fault| fault.at("rank 0"));
        for (rank, other) in (1..).zip(others) {
            let ended = other.join().unwrap_or_else(|_| Err(Fault::failure("its thread has panicked")));
            done = done.and(ended.map_err(|fault| fault.at(&format!("rank {rank}"))));
        }
        done
    })
}

/// Binds this thread to one of the cores that the process may use. Where that is refused, figures are less steady.
fn pin(rank: u32) {
    let Ok(all) = sched_getaffinity(None) else { return };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core)).collect();
    if let Some(core) = cores.get(rank as usize % cores.len().max(1)) {
        let mut one = CpuSet::new();
        one.set(*core);
        let _ = sched_setaffinity(None, &one);
    }
}

/// Connects ranks 0 and 1 with all others.
pub(super) fn greet(engine: &mut Engine) -> Result<(), OperationError> {
    let (world, rank, size, tag) = (engine.comm_world(), engine.rank().0, engine.size(), Tag(997));
    for other in 2..size {
        for first in 0..2 {
            if rank == other {
                engine.send(b"", Rank(first), tag, world)?;
            } else if rank == first {
                engine.recv(&mut [0u8; 0], Rank(other), tag, world)?;
            }
        }
    }
    Ok(())
}

/// Returns on every rank once ranks 0 and 1 have called it. The other ranks sleep in it until then.
pub(super) fn leave_together(engine: &mut Engine) -> Result<(), OperationError> {
    let (world, rank, size, tag) = (engine.comm_world(), engine.rank().0, engine.size(), Tag(998));
    if rank == 0 {
        engine.recv(&mut [0u8; 0], Rank(1), tag, world)?;
        for other in 1..size {
            engine.send(b"", Rank(other), tag, world)?;
        }
    } else {
        if rank == 1 {
            engine.send(b"", Rank(0), tag, world)?;
        }
        engine.recv(&mut [0u8; 0], Rank(0), tag, world)?;
    }
    Ok(())
}
