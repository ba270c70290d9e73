//! `tickwire top`: what a running job does, as a live table.

mod figures;
mod picture;
mod screen;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use tickwire::internals::traces::hosts::What;
use tickwire::internals::traces::page::Snapshot;
use tickwire::jobs::{Hosts, Process, Told, now_ns};

use crate::fault::{Fault, print};
use crate::info::table;
use crate::jobs::{of_job, select};
use figures::{PEERS, Peer, RANKS, Rank, Row, TRANSPORTS, Transport, ranks};

/// Shows what a running job does: ticks, idle share, messages, bytes and queues, by rank, by transport and by peer.
///
/// The command reads the page of statistics that every engine keeps in memory. So it neither asks the job nor slows it down. If a job
/// runs on several hosts, one rank of each other host is asked for the pages there. Rates are averages since the last look; queues are
/// as they are now. Jobs of other users can be watched by root only.
///
/// Keys: q ends, s sorts by the next column, r reverses the order, up and down choose the rank whose peers are shown, p stops
/// and goes on.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// The job: its name, or the number of its launcher or of one of its processes; the only one if there is one
    job: Option<String>,
    /// Print the tables once and end; the default if stdout is no terminal
    #[arg(long)]
    once: bool,
    /// Draw the screen once, as a picture in this file, and end
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Time between two looks, ms
    #[arg(short, long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=3_600_000))]
    interval: u64,
}

/// How long the other hosts may take to answer at each look.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is known of a rank at one moment.
pub(crate) enum Seen {
    /// The rank has a process, and a page if this process has an engine.
    Process {
        /// The number of the process on its host.
        pid: u32,
        /// The page, and the time of the look by the clock of the page, ns.
        page: Option<(Box<Snapshot>, u64)>,
    },
    /// The rank's host has not answered, or is not known.
    Unknown,
}

/// What the pages of a job said at one moment.
pub(crate) struct Sample {
    /// The time of the look.
    pub(crate) at: Instant,
    /// The name of the job.
    pub(crate) job: String,
    /// Ranks of the job.
    pub(crate) size: u32,
    /// What is known of each rank. A rank without a process has no entry.
    pub(crate) ranks: BTreeMap<u32, Seen>,
}

/// A job that is looked at again and again.
pub(crate) struct Watch {
    /// The word by which the user has named the job.
    word: Option<String>,
    /// The job's name, once it is known.
    job: Option<String>,
    /// The other hosts, once they are known.
    hosts: Option<Hosts>,
}

impl Watch {
    fn new(word: Option<String>) -> Self {
        Watch { word, job: None, hosts: None }
    }

    /// Looks at all ranks. `None` if the job has ended since the first look.
    ///
    /// # Errors
    /// There is no such job, or the processes of this host cannot be listed.
    pub(crate) fn look(&mut self) -> Result<Option<Sample>, Fault> {
        let processes = match &self.job {
            Some(job) => of_job(job)?,
            None => select(self.word.as_deref())?,
        };
        let Some((job, size)) = processes.first().map(|p| (p.job.clone(), p.size)) else { return Ok(None) };
        self.job = Some(job.clone());
        let (at, now_ns) = (Instant::now(), now_ns());
        let mut ranks: BTreeMap<u32, Seen> = BTreeMap::new();
        for process in &processes {
            let page = process.snapshots().next();
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
        Ok(Some(Sample { at, job, size, ranks }))
    }

    /// Looks at ranks that have no process here.
    fn look_elsewhere(&mut self, processes: &[Process], ranks: &[u32]) -> Vec<(u32, Seen)> {
        if self.hosts.is_none() {
            self.hosts = Hosts::of(processes, PATIENCE).ok();
        }
        let Some(hosts) = &mut self.hosts else { return ranks.iter().map(|&rank| (rank, Seen::Unknown)).collect() };
        // On the only host of a job, a rank that is not seen has no process.
        if hosts.is_empty() {
            return Vec::new();
        }
        known(ranks, hosts.ask(What::Pages, ranks, PATIENCE))
    }
}

/// What is known of ranks after the other hosts were asked about them.
fn known(ranks: &[u32], mut told: BTreeMap<u32, Told>) -> Vec<(u32, Seen)> {
    ranks.iter().filter_map(|rank| Some((*rank, seen(told.remove(rank))?))).collect()
}

/// What another host has said of a rank; `told` is `None` if nobody can be asked about the rank. `None` if the rank has no process.
fn seen(told: Option<Told>) -> Option<Seen> {
    match told {
        Some(Told::Answer { of, now_ns }) => {
            Some(Seen::Process { pid: of.pid, page: of.page.map(|page| (Box::new(page), now_ns)) })
        }
        Some(Told::Absent) => None,
        Some(Told::Unknown(_)) | None => Some(Seen::Unknown),
    }
}

/// Watches the job until the user ends the command, or the job has ended.
///
/// # Errors
/// There is no such job, or the terminal cannot be used.
pub(crate) fn top(args: TopArgs) -> Result<ExitCode, Fault> {
    let mut job = Watch::new(args.job);
    let ended = |name: &str| print(&format!("job {name} has ended\n")).map(|()| ExitCode::SUCCESS);
    let Some(first) = job.look()? else { return Ok(ExitCode::SUCCESS) };
    let interval = Duration::from_millis(args.interval);
    if args.once || args.png.is_some() || !std::io::stdout().is_terminal() {
        std::thread::sleep(interval);
        let Some(second) = job.look()? else { return ended(&first.job) };
        if let Some(path) = &args.png {
            picture::draw(first, second)?.write(path)?;
            return Ok(ExitCode::SUCCESS);
        }
        print(&text(&first, &second))?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = first.job.clone();
    match screen::watch(job, first, interval)? {
        true => ended(&name),
        false => Ok(ExitCode::SUCCESS),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire::internals::traces::hosts::RankAnswer;

    #[test]
    fn a_rank_that_nobody_can_be_asked_about_has_not_ended() {
        let of = Box::new(RankAnswer { rank: 1, pid: 7, ..RankAnswer::default() });
        let told = [
            (1, Told::Answer { of, now_ns: 5 }),
            (2, Told::Absent),
            (3, Told::Unknown("its host does not answer".into())),
        ];
        let now = Sample {
            at: Instant::now(),
            job: "job-1".into(),
            size: 5,
            ranks: known(&[1, 2, 3, 4], told.into()).into_iter().collect(),
        };
        let states: Vec<String> = ranks(&now, &now).into_iter().map(|rank| rank.state).collect();
        assert_eq!(states[1..], ["no engine", "no process", "no answer", "no answer"]);
        // On the only host of a job, nothing else than this host can know of a process.
        let hosts = Hosts::of(&[], PATIENCE).ok();
        let mut alone = Watch { hosts, ..Watch::new(None) };
        assert!(alone.look_elsewhere(&[], &[1]).is_empty());
    }
}
