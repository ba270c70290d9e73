//! Random programs under random faults for a given time: `tests/soak`, or `tests-soak --help`.

use clap::Parser;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tickwire_tests::faults::runner::run;

/// Runs random programs under random faults for a given time, on all processors.
///
/// Each seed is a cluster of 2 to 16 engines over a simulated network. At the end it says how many there were and which
/// faults they had. The first that fails ends it with status 1, its trace, and the command that runs it again.
#[derive(Parser)]
#[command(name = "tests-soak", max_term_width = 100)]
struct Args {
    /// How long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The first seed; from the clock unless given.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64);
    let (first, start) = (args.seed.unwrap_or_else(clock), Instant::now());
    let time = Duration::from_secs(args.seconds);
    // A line that is written over on a terminal, and one now and then elsewhere.
    let terminal = std::io::stderr().is_terminal();
    let every = if terminal { 1 } else { 10 };
    let told = AtomicU64::new(0);
    // What a seed says when it fails is part of the report.
    std::panic::set_hook(Box::new(|_| ()));
    let outcome = run(first, u64::MAX, |sum| {
        let seconds = start.elapsed().as_secs();
        if told.fetch_max(seconds / every, Ordering::Relaxed) < seconds / every {
            let (before, after) = if terminal { ("\r", "") } else { ("", "\n") };
            eprint!("{before}{} seeds, {} deaths, {seconds} s of {} s{after}", sum.cases, sum.ran.deaths, args.seconds);
            let _ = std::io::stderr().flush();
        }
        start.elapsed() < time
    });
    if terminal {
        eprintln!();
    }
    match outcome {
        Ok(sum) => {
            print!("seeds from {first} on, {:.0?}: all as they must be\n{sum}", start.elapsed());
            ExitCode::SUCCESS
        }
        Err(words) => {
            println!("{words}");
            ExitCode::FAILURE
        }
    }
}
