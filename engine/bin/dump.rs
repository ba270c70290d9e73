//! `tickwire dump` and `tickwire whowaits`: what is pending, and who waits for whom.

mod hosts;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tickwire::internals::traces::dump::Dump;
use tickwire::internals::traces::whowaits::who_waits;
use tickwire::jobs::{ask, process};

use crate::fault::Fault;
use crate::jobs::{report, select};

/// Says what is pending in a process: every operation and message that has not come to its end, oldest first.
///
/// The process is asked and answers between two ticks, also while it sleeps in a call that waits. If it does not tick, the
/// command says for how long, with status 1. Only processes of the same user can be asked.
#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// The process
    pid: u32,
    #[command(flatten)]
    asking: Asking,
}

/// Says who waits for whom in a job, and why: circles, messages that do not fit, ranks that are not there.
///
/// All ranks of the job on this host are asked what is pending; with --hosts those of all hosts on which a launcher has started
/// this command. A wait is only the fault of a program if it lasts: ask
/// again if in doubt. Only jobs of the same user can be asked.
#[derive(Args, Debug)]
pub(crate) struct WhoWaitsArgs {
    /// The job: its name, or the number of its launcher or of one of its processes; the only one if there is one
    job: Option<String>,
    /// A launcher has started this command once on each host of the job: rank 0 prints what all have found
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

/// Asks one process and prints.
///
/// # Errors
/// It gives no dump.
pub(crate) fn dump(args: DumpArgs) -> Result<ExitCode, Fault> {
    let pid = args.pid;
    let process = process(pid).ok_or_else(|| {
        let words = "is no process with an engine that this user may see";
        Fault::failure(format!("{pid} {words}: see `tickwire top` for those that there are"))
    })?;
    let dumps = ask(&process, args.asking.patience())?;
    print(&match args.asking.json {
        true => serde_json::to_string(&dumps)? + "\n",
        false => dumps.iter().map(Dump::to_string).collect(),
    });
    Ok(ExitCode::SUCCESS)
}

/// Asks all ranks of a job and prints what follows.
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
        report(&select(args.job.as_deref())?, args.asking.patience())
    };
    let findings = who_waits(&reports);
    if args.asking.json {
        print(&(serde_json::to_string(&findings)? + "\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut words = String::new();
    for (rank, report) in reports.iter().enumerate() {
        words += &format!("rank {rank} {}\n", report.does());
    }
    print(&(words + "\n" + &findings.to_string()));
    Ok(ExitCode::SUCCESS)
}

fn print(text: &str) {
    // A closed stdout is no reason to panic.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
