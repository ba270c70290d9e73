//! `tickwire top`: what a running job does, as a live table.

mod figures;
mod picture;
mod screen;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use tickwire::internals::traces::page::Snapshot;
use tickwire::jobs::{Process, now_ns};

use crate::fault::Fault;
use crate::info::table;
use crate::jobs::select;
use figures::{PEERS, Peer, RANKS, Rank, Row, TRANSPORTS, Transport, ranks};

/// Shows what a running job does: ticks, idle share, messages, bytes and queues, by rank, by transport and by peer.
///
/// It reads the page of statistics that every engine keeps in memory: the job is not slowed down, nor asked anything.
/// Figures a second are those of the time since the last look; queues are those of the moment. Only jobs of the same user
/// can be watched.
///
/// Keys: q ends, s sorts by the next column, r turns the order around, up and down choose the rank whose peers are
/// shown, p stops and goes on.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// The job: its name, or the number of its launcher or of one of its processes; the only one if there is one
    job: Option<String>,
    /// Print the tables once and end, as is done where stdout is no terminal
    #[arg(long)]
    once: bool,
    /// Draw the screen into a picture, once, and end
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Time between two looks, ms
    #[arg(short, long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=3_600_000))]
    interval: u64,
}

/// What the pages of a job said at one moment.
pub(crate) struct Sample {
    /// When.
    pub(crate) at: Instant,
    /// The same, on the pages' clock, ns.
    pub(crate) now_ns: u64,
    /// The job.
    pub(crate) job: String,
    /// Ranks of the job.
    pub(crate) size: u32,
    /// What each process said, by rank; `None` without an engine.
    pub(crate) processes: Vec<(Process, Option<Snapshot>)>,
}

impl Sample {
    fn take(word: Option<&str>) -> Result<Self, Fault> {
        let processes = select(word)?;
        let (job, size) = processes.first().map(|p| (p.job.clone(), p.size)).unwrap_or_default();
        let read = |process: Process| {
            let page = process.pages.iter().find_map(|page| Snapshot::read(page).ok());
            (process, page)
        };
        let mut processes: Vec<_> = processes.into_iter().map(read).collect();
        // Of several processes of one rank, such as a shell and its program, the one with an engine counts.
        processes.sort_by_key(|(process, page)| (process.rank, page.is_none()));
        processes.dedup_by_key(|(process, _)| process.rank);
        Ok(Sample { at: Instant::now(), now_ns: now_ns(), job, size, processes })
    }
}

/// Watches until the user ends it or the job has ended.
///
/// # Errors
/// There is no such job, or the terminal cannot be used.
pub(crate) fn top(args: TopArgs) -> Result<ExitCode, Fault> {
    let first = Sample::take(args.job.as_deref())?;
    let interval = Duration::from_millis(args.interval);
    if args.once || args.png.is_some() || !std::io::stdout().is_terminal() {
        std::thread::sleep(interval);
        let second = Sample::take(Some(&first.job))?;
        if let Some(path) = &args.png {
            picture::draw(first, second)?.write(path)?;
            return Ok(ExitCode::SUCCESS);
        }
        // A closed stdout is no reason to panic.
        let _ = std::io::stdout().write_all(text(&first, &second).as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    let job = first.job.clone();
    let ended = screen::watch(first, interval)?;
    if ended {
        let _ = writeln!(std::io::stdout(), "job {job} has ended");
    }
    Ok(ExitCode::SUCCESS)
}

/// All tables as text.
fn text(before: &Sample, now: &Sample) -> String {
    let ranks = ranks(before, now);
    let peers: Vec<(u32, &Peer)> = ranks.iter().flat_map(|r| r.peers.iter().map(move |p| (r.rank, p))).collect();
    let mut out = format!("{}\n\n{}\n", headline(now), table(RANKS, NUMBERS, ranks.iter().map(Rank::cells)));
    out += &format!(
        "\n{}\n",
        table(
            TRANSPORTS,
            [false, true, true, true, true, true, true],
            Transport::all(&ranks).iter().map(Transport::cells)
        )
    );
    let with_rank = |(rank, peer): &(u32, &Peer)| {
        let mut cells: Vec<String> = vec![rank.to_string()];
        cells.extend(peer.cells());
        <[String; 11]>::try_from(cells).unwrap_or_default()
    };
    let mut header = ["RANK"; 11];
    header[1..].copy_from_slice(&PEERS);
    let numbers = std::array::from_fn(|column| !(2..=3).contains(&column));
    out += &format!("\n{}\n", table(header, numbers, peers.iter().map(with_rank)));
    out
}

/// Which columns of the table of ranks are numbers.
const NUMBERS: [bool; RANKS.len()] = {
    let mut numbers = [true; RANKS.len()];
    numbers[2] = false;
    numbers
};

/// The job in a line.
fn headline(now: &Sample) -> String {
    let there = now.processes.iter().filter(|(_, page)| page.is_some()).count();
    format!("job {}: {} ranks, {there} with an engine", now.job, now.size)
}
