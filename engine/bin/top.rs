//! `tickwire top`: what a running job does, as a live table.

mod figures;
mod picture;
mod screen;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use tickwire::internals::traces::hosts::What;
use tickwire::internals::traces::page::Snapshot;
use tickwire::jobs::{Hosts, Process, Told, now_ns};

use crate::fault::Fault;
use crate::info::table;
use crate::jobs::select;
use figures::{PEERS, Peer, RANKS, Rank, Row, TRANSPORTS, Transport, ranks};

/// Shows what a running job does: ticks, idle share, messages, bytes and queues, by rank, by transport and by peer.
///
/// It reads the page of statistics that every engine keeps in memory: the job is not slowed down, nor asked anything. Where a job runs
/// on several hosts, a rank of each other one is asked for the pages there. Figures a second are those of the time since the last look;
/// queues are those of the moment. Only jobs of the same user can be watched.
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

/// How long the other hosts may take at each look.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is known of a rank at one moment.
pub(crate) enum Seen {
    /// It has a process, and a page if it has an engine.
    Process {
        /// The process, as it is called on its host.
        pid: u32,
        /// Its page, and the time on the clock of the page, ns.
        page: Option<(Box<Snapshot>, u64)>,
    },
    /// Its host has not answered, or it is not known where it runs.
    Unknown,
}

/// What the pages of a job said at one moment.
pub(crate) struct Sample {
    /// When.
    pub(crate) at: Instant,
    /// The job.
    pub(crate) job: String,
    /// Ranks of the job.
    pub(crate) size: u32,
    /// What is known of each rank; nothing of those that have no process.
    pub(crate) ranks: BTreeMap<u32, Seen>,
}

/// A job that is looked at again and again.
pub(crate) struct Watch {
    /// Its name, or what the user has called it.
    word: Option<String>,
    /// The other hosts, once they are known.
    hosts: Option<Hosts>,
}

impl Watch {
    fn new(word: Option<String>) -> Self {
        Watch { word, hosts: None }
    }

    /// Looks at all ranks.
    ///
    /// # Errors
    /// There is no such job.
    pub(crate) fn look(&mut self) -> Result<Sample, Fault> {
        let processes = select(self.word.as_deref())?;
        let (job, size) = processes.first().map(|p| (p.job.clone(), p.size)).unwrap_or_default();
        self.word = Some(job.clone());
        let (at, now_ns) = (Instant::now(), now_ns());
        let mut ranks: BTreeMap<u32, Seen> = BTreeMap::new();
        for process in &processes {
            let page = process.pages.iter().find_map(|page| Snapshot::read(page).ok());
            // Of several processes of one rank, such as a shell and its program, the one with an engine counts.
            if page.is_some() || !ranks.contains_key(&process.rank) {
                let page = page.map(|page| (Box::new(page), now_ns));
                ranks.insert(process.rank, Seen::Process { pid: process.pid, page });
            }
        }
        let others: Vec<u32> = (0..size).filter(|rank| !ranks.contains_key(rank)).collect();
        if !others.is_empty() {
            ranks.extend(self.look_elsewhere(&processes, &others));
        }
        Ok(Sample { at, job, size, ranks })
    }

    /// Looks at ranks that have no process here.
    fn look_elsewhere(&mut self, processes: &[Process], ranks: &[u32]) -> Vec<(u32, Seen)> {
        if self.hosts.is_none() {
            self.hosts = Hosts::of(processes, PATIENCE).ok();
        }
        let Some(hosts) = &mut self.hosts else { return ranks.iter().map(|&rank| (rank, Seen::Unknown)).collect() };
        let told = hosts.ask(What::Pages, ranks, PATIENCE);
        told.into_iter().filter_map(|(rank, told)| Some((rank, seen(told)?))).collect()
    }
}

/// What another host has said of a rank; `None` if it has no process there.
fn seen(told: Told) -> Option<Seen> {
    match told {
        Told::Answer { of, now_ns } => {
            Some(Seen::Process { pid: of.pid, page: of.page.map(|page| (Box::new(page), now_ns)) })
        }
        Told::Absent => None,
        Told::Unknown(_) => Some(Seen::Unknown),
    }
}

/// Watches until the user ends it or the job has ended.
///
/// # Errors
/// There is no such job, or the terminal cannot be used.
pub(crate) fn top(args: TopArgs) -> Result<ExitCode, Fault> {
    let mut job = Watch::new(args.job);
    let first = job.look()?;
    let interval = Duration::from_millis(args.interval);
    if args.once || args.png.is_some() || !std::io::stdout().is_terminal() {
        std::thread::sleep(interval);
        let second = job.look()?;
        if let Some(path) = &args.png {
            picture::draw(first, second)?.write(path)?;
            return Ok(ExitCode::SUCCESS);
        }
        // A closed stdout is no reason to panic.
        let _ = std::io::stdout().write_all(text(&first, &second).as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    let name = first.job.clone();
    let ended = screen::watch(job, first, interval)?;
    if ended {
        let _ = writeln!(std::io::stdout(), "job {name} has ended");
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
        <[String; 12]>::try_from(cells).unwrap_or_default()
    };
    let mut header = ["RANK"; 12];
    header[1..].copy_from_slice(&PEERS);
    let numbers = std::array::from_fn(|column| !(2..=4).contains(&column));
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
    let there = now.ranks.values().filter(|seen| matches!(seen, Seen::Process { page: Some(_), .. })).count();
    format!("job {}: {} ranks, {there} with an engine", now.job, now.size)
}
