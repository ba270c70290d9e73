//! Keys are counted in a hash table that is spread over all ranks, by one-sided updates:
//! `cargo run --release --example histogram -- -n 4`
//!
//! Each rank draws keys. For each key it looks for a slot in the windows of all ranks: it claims a free slot by
//! `compare_and_swap`, and counts by `accumulate`. Counts of bins are added to a histogram, which is spread over the ranks, too.
//! No rank receives a message or answers one. In the end rank 0 gets all parts, compares them with a serial count, and draws
//! the histogram beside the expected curve.
//!
//! The program starts its own ranks, or is one of them under `tickwire run -n 4 -- target/release/examples/histogram`.

#[path = "histogram/canvas.rs"]
mod canvas;
#[path = "histogram/keys.rs"]
mod keys;
#[path = "histogram/picture.rs"]
mod picture;
#[path = "ranks.rs"]
mod ranks;
#[path = "histogram/table.rs"]
mod table;

use std::collections::HashMap;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use ranks::{Fault, start_ranks};
use table::{Histogram, Table};
use tickwire::{Bootstrap, Engine, Rank, WindowError, op};

/// Keys between two updates of the histogram.
const BATCH: usize = 4096;

/// Counts keys with several ranks by one-sided updates, and compares with a serial count.
///
/// The status is 0, 1 if the counts differ or a rank fails, 2 for wrong use.
#[derive(Parser)]
#[command(name = "histogram", max_term_width = 100)]
struct Args {
    /// Number of ranks; without effect under a launcher, which decides itself
    #[arg(short = 'n', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: u32,
    /// Keys that all ranks draw together
    #[arg(long, value_name = "K", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    keys: u64,
    /// Bins of the histogram
    #[arg(long, value_name = "B", default_value_t = 160, value_parser = clap::value_parser!(u32).range(1..=4096))]
    bins: u32,
    /// Seed from which the keys are drawn
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// The picture to write
    #[arg(long, value_name = "PNG", default_value = "histogram.png")]
    picture: PathBuf,
}

fn main() -> ExitCode {
    ranks::run("histogram", start, rank)
}

/// Checks the file, so that a mistake is reported once, and starts the ranks. A single rank is this process itself.
fn start(args: &Args) -> Result<ExitCode, Fault> {
    open(args)?;
    if args.ranks == 1 { rank(args) } else { start_ranks(args.ranks) }
}

/// The file for the picture.
fn open(args: &Args) -> Result<File, Fault> {
    let file = File::options().write(true).create(true).truncate(false).open(&args.picture);
    file.map_err(|e| Fault(2, format!("{} cannot be written: {e}", args.picture.display())))
}

fn rank(args: &Args) -> Result<ExitCode, Fault> {
    let mut engine = Engine::builder().build(Bootstrap::from_env()?)?;
    let done = run(args, &mut engine);
    // Also after an error: this completes the sends, and tells the peers that this rank ends.
    let finalized = engine.finalize(Duration::from_secs(10));
    let code = done?;
    finalized?;
    Ok(code)
}

/// What every rank does; rank 0 also compares and draws.
fn run(args: &Args, engine: &mut Engine) -> Result<ExitCode, Fault> {
    let (world, rank) = (engine.comm_world(), engine.rank());
    let file = if rank == Rank(0) { Some(open(args)) } else { None };
    // Without a file all ranks stop, and rank 0 says why.
    let mut goes_on = [u8::from(file.as_ref().is_none_or(Result::is_ok))];
    engine.bcast(&mut goes_on, Rank(0), world)?;
    let file = file.transpose()?;
    if goes_on == [0] {
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(engine, args.keys.min(keys::KEYS), world)?;
    let histogram = Histogram::new(engine, args.bins as usize, world)?;
    engine.barrier(world)?;
    let start = Instant::now();
    count(args, engine, &mut table, &histogram)?;
    // Nobody reads before all ranks have counted.
    engine.barrier(world)?;
    let time = start.elapsed().as_secs_f64();
    let own = [table.taken(engine)?, table.probes];
    let mut sums = [0; 2];
    engine.allreduce(&own, &mut sums, op::Sum, world)?;
    let code = match file {
        Some(file) => {
            let counted = Counted { keys: table.read(engine)?, bins: histogram.read(engine)? };
            report(args, engine, &table, (time, sums), &counted, file)
        }
        None => Ok(ExitCode::SUCCESS),
    };
    engine.win_free(table.window())?;
    engine.win_free(histogram.window())?;
    code
}

/// Draws the own keys, and counts them.
fn count(args: &Args, engine: &mut Engine, table: &mut Table, histogram: &Histogram) -> Result<(), WindowError> {
    let (rank, bins) = (engine.rank(), args.bins as usize);
    let mut indexes = keys::indexes(args.keys, rank.0, engine.size());
    let bar = match rank == Rank(0) && std::io::stderr().is_terminal() {
        true => ProgressBar::new(indexes.end - indexes.start),
        false => ProgressBar::hidden(),
    };
    let style = ProgressStyle::with_template("histogram {wide_bar} {pos}/{len} keys of rank 0, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    engine.win_lock_all(table.window())?;
    engine.win_lock_all(histogram.window())?;
    let mut counts = vec![0; bins];
    while !indexes.is_empty() {
        counts.fill(0);
        let before = indexes.start;
        for index in indexes.by_ref().take(BATCH) {
            let key = keys::key(args.seed, index);
            table.count(key, engine)?;
            counts[keys::bin(key, bins)] += 1;
        }
        histogram.add(&counts, engine)?;
        bar.inc(indexes.start - before);
    }
    bar.finish_and_clear();
    // All updates are complete at the targets when the epochs have ended.
    engine.win_unlock_all(histogram.window())?;
    engine.win_unlock_all(table.window())
}

/// What rank 0 has got from all parts.
struct Counted {
    /// Keys and how often each has come, in the order of keys.
    keys: Vec<(u64, u64)>,
    /// Keys in each bin.
    bins: Vec<u64>,
}

/// The same counts on one rank, without windows.
fn serial(args: &Args) -> Counted {
    let (mut counts, mut bins) = (HashMap::new(), vec![0; args.bins as usize]);
    for key in (0..args.keys).map(|index| keys::key(args.seed, index)) {
        *counts.entry(key).or_insert(0) += 1;
        bins[keys::bin(key, args.bins as usize)] += 1;
    }
    let mut keys: Vec<_> = counts.into_iter().collect();
    keys.sort_unstable();
    Counted { keys, bins }
}

/// How many elements differ, or are in one list alone.
fn differences<T: PartialEq>(ours: &[T], theirs: &[T]) -> usize {
    let differ = ours.iter().zip(theirs).filter(|(ours, theirs)| ours != theirs).count();
    differ + ours.len().abs_diff(theirs.len())
}

/// Writes the picture, compares with the serial count and says how it went.
fn report(
    args: &Args,
    engine: &mut Engine,
    table: &Table,
    (time, [taken, probes]): (f64, [u64; 2]),
    counted: &Counted,
    file: File,
) -> Result<ExitCode, Fault> {
    let (ranks, domain) = (engine.size(), engine.win_domain(table.window())?);
    picture::write(file, args.keys, ranks, &counted.bins)
        .map_err(|e| Fault(1, format!("{} cannot be written: {e}", args.picture.display())))?;
    let start = Instant::now();
    let expected = serial(args);
    let serial_time = start.elapsed().as_secs_f64();
    let (keys, bins) = (differences(&counted.keys, &expected.keys), differences(&counted.bins, &expected.bins));
    let mut out = std::io::stdout();
    let _ = writeln!(
        out,
        "{} keys on {ranks} rank{}: counted in {time:.3} s; one rank alone {serial_time:.3} s",
        args.keys,
        if ranks == 1 { "" } else { "s" }
    );
    let _ = writeln!(
        out,
        "in the table: {taken} different keys, {:.2} probes a key; updates are atomic by {domain}",
        probes as f64 / args.keys as f64
    );
    let _ = writeln!(out, "not as in the serial count: {keys} keys, {bins} bins");
    let _ = writeln!(out, "wrote {}", args.picture.display());
    if keys + bins > 0 || taken != expected.keys.len() as u64 {
        let there = expected.keys.len();
        return Err(Fault(1, format!("{keys} keys and {bins} bins differ; {taken} slots are taken by {there} keys")));
    }
    Ok(ExitCode::SUCCESS)
}
