//! `tickwire dump` and `tickwire whowaits`: what is pending, and who waits for whom.

mod hosts;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tickwire::internals::traces::dump::Dump;
use tickwire::internals::traces::whowaits::RankReport;
use tickwire::internals::traces::whowaits::who_waits;
use tickwire::jobs::{Process, ask, process, report_all, report_one};

use crate::fault::{Fault, print};
use crate::jobs::select;

/// Says what is pending in a process, or in ranks of a job: every operation and message that is not complete, oldest first.
///
/// A process answers between two ticks, also while it sleeps in a call that waits. If the process does not tick, the command
/// says for how long, and ends with status 1. Ranks are asked on whatever host they run. Processes of other users can
/// be asked by root only.
#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// Number of the process; with --rank or --all, the job: its name, or the number of its launcher or of one of its processes;
    /// may be left out then if only one job runs
    #[arg(value_name = "PID", required_unless_present_any = ["rank", "all"])]
    of: Option<String>,
    /// This rank of the job, on whatever host it runs
    #[arg(long, value_name = "RANK", conflicts_with = "all")]
    rank: Option<u32>,
    /// All ranks of the job, on whatever hosts they run
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    asking: Asking,
}

/// Says who waits for whom in a job, and why: cycles, messages that do not match, ranks that are missing.
///
/// All ranks of the job are asked what is pending. A rank of this host tells how to reach the ranks of other hosts. Ranks that
/// cannot be asked are named. A wait is a fault of the program only if it lasts: ask again if in doubt. Jobs of other users can be
/// asked by root only.
#[derive(Args, Debug)]
pub(crate) struct WhoWaitsArgs {
    /// The job: its name, or the number of its launcher or of one of its processes; may be left out if only one job runs
    job: Option<String>,
    /// A launcher has started this command once on each host of the job. Rank 0 collects the answers of all hosts through the launcher,
    /// and prints the result. For hosts that accept no other connections
    #[arg(long)]
    hosts: bool,
    #[command(flatten)]
    asking: Asking,
}

#[derive(Args, Debug)]
struct Asking {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// How long to wait for an answer, ms
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    timeout: u64,
}

impl Asking {
    fn patience(&self) -> Duration {
        Duration::from_millis(self.timeout)
    }
}

/// Asks one process, or ranks of a job, and prints the answers.
///
/// # Errors
/// A process that was named gives no dump.
pub(crate) fn dump(args: DumpArgs) -> Result<ExitCode, Fault> {
    if args.all || args.rank.is_some() {
        return ranks(&args, &select(args.of.as_deref())?);
    }
    let word = args.of.as_deref().unwrap_or_default();
    let wrong =
        || Fault::wrong_use(format!("`{word}` is no process: give its number, or --rank or --all for ranks of a job"));
    let pid: u32 = word.parse().map_err(|_| wrong())?;
    let process = process(pid).ok_or_else(|| {
        let words = "is no process with an engine that this user may see";
        Fault::failure(format!("{pid} {words}: see `tickwire top` for those that there are"))
    })?;
    let dumps = ask(&process, args.asking.patience())?;
    show(&match args.asking.json {
        true => serde_json::to_string(&dumps)? + "\n",
        false => dumps.iter().map(Dump::to_string).collect(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Asks ranks of a job and prints the answers. The command fails if a rank that was named does not answer.
fn ranks(args: &DumpArgs, processes: &[Process]) -> Result<ExitCode, Fault> {
    let size = processes.first().map_or(0, |process| process.size);
    let reports = match args.rank {
        Some(rank) if rank >= size => return Err(Fault::wrong_use(format!("rank {rank} of a job of {size}"))),
        Some(rank) => vec![(rank, report_one(processes, rank, args.asking.patience()))],
        None => (0..).zip(report_all(processes, args.asking.patience())).collect::<Vec<_>>(),
    };
    if args.asking.json {
        show(&(serde_json::to_string(&reports)? + "\n"))?;
    }
    let mut code = ExitCode::SUCCESS;
    for (rank, report) in &reports {
        match report {
            RankReport::Dumped(_) if args.asking.json => {}
            RankReport::Dumped(dumps) => show(&dumps.iter().map(Dump::to_string).collect::<String>())?,
            other if args.rank.is_some() => return Err(Fault::failure(format!("rank {rank} {}", other.does()))),
            other => {
                code = ExitCode::FAILURE;
                if !args.asking.json {
                    show(&format!("rank {rank} {}\n", other.does()))?;
                }
            }
        }
    }
    Ok(code)
}

/// Asks all ranks of a job and prints who waits for whom.
///
/// # Errors
/// There is no such job.
pub(crate) fn who(args: WhoWaitsArgs) -> Result<ExitCode, Fault> {
    let reports = if args.hosts {
        match hosts::reports(&args)? {
            Some(reports) => reports,
            None => return Ok(ExitCode::SUCCESS),
        }
    } else {
        report_all(&select(args.job.as_deref())?, args.asking.patience())
    };
    let findings = who_waits(&reports);
    if args.asking.json {
        show(&(serde_json::to_string(&findings)? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut words = String::new();
    for (rank, report) in reports.iter().enumerate() {
        words += &format!("rank {rank} {}\n", report.does());
    }
    show(&(words + "\n" + &findings.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

fn show(text: &str) -> Result<(), Fault> {
    // Some of the text comes from other hosts. Without control characters it cannot move the terminal's cursor.
    let text = text.replace(|c: char| c.is_control() && c != '\n', " ");
    print(&text)
}
