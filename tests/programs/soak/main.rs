//! Random programs under random faults for a given time: `tests/soak`, or `tests-soak --help`.
//!
//! A *campaign* runs *jobs*, one after another and some at once. A job is a process: it has a whole cluster in itself,
//! or it launches a few *ranks*, which are processes too. Case and seed alone say what a job does ([`plan`]), so that a
//! failed job can be run again. All ranks carry out the same exchange ([`worker`]). The job decides whether their
//! reports are right ([`judge`]).

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the job")]

mod calls;
mod campaign;
mod cluster;
mod job;
mod judge;
mod leaks;
mod plan;
mod rank;
mod report;
mod surroundings;
mod watch;
mod worker;

use clap::{Args, Parser, Subcommand};
use plan::{Case, Plan};
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs random programs under random faults for a given time.
///
/// Each job is a few ranks that send each other messages while something is wrong. A seed decides the lengths and
/// contents of the messages. Every operation must end or go on, nothing may be left over, and no content may differ.
/// Cases take turns, and each runs at least once. A summary at the end says how often each case ran. The first job that
/// fails ends the campaign with status 1. Its output is shown, and the command that runs it again.
#[derive(Parser)]
#[command(name = "tests-soak", max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Command {
    #[command(flatten)]
    campaign: CampaignArgs,
    #[command(subcommand)]
    part: Option<Part>,
}

/// Options of a campaign.
#[derive(Args)]
struct CampaignArgs {
    /// After this many seconds no job is begun. But each case runs at least once.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the first job. Each further job has the next seed. By default it comes from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// Cases to run, with commas between them. By default all.
    #[arg(long, value_enum, value_delimiter = ',')]
    case: Vec<Case>,
    /// Most jobs. By default there is no limit.
    #[arg(long)]
    jobs: Option<u64>,
    /// Jobs that run at the same time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: u32,
    /// Longest time that a rank is stopped, computes or starts late, ms. By default 20000, and 1500 in campaigns below
    /// 300 s.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    away_ms: Option<u64>,
}

/// Parts that the campaign starts as processes.
#[derive(Subcommand)]
enum Part {
    /// One job.
    #[command(hide = true)]
    Job(PartArgs),
    /// One rank of a job.
    #[command(hide = true)]
    Rank(PartArgs),
}

/// The job, and the place of its files.
#[derive(Args, Clone)]
struct PartArgs {
    #[arg(long, value_enum)]
    case: Case,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    away_ms: u64,
    /// A directory for this job alone.
    #[arg(long)]
    place: PathBuf,
    /// The process that started this one. When it ends, this one ends too.
    #[arg(long)]
    parent: i32,
}

impl PartArgs {
    fn plan(&self) -> Plan {
        Plan::of(self.case, self.seed, self.away_ms)
    }

    /// The arguments for a process that this one starts.
    fn words(&self, part: &str) -> Vec<String> {
        let place = self.place.to_str().expect("a path of ours").to_owned();
        let case = clap::ValueEnum::to_possible_value(&self.case).expect("none is hidden").get_name().to_owned();
        let own = [part, "--case", &case, "--seed", &self.seed.to_string(), "--away-ms", &self.away_ms.to_string()];
        let own = own.map(str::to_owned).into_iter();
        own.chain(["--place".into(), place, "--parent".into(), std::process::id().to_string()]).collect()
    }
}

fn main() -> ExitCode {
    match Command::parse() {
        Command { part: None, campaign } => campaign::run(&campaign),
        Command { part: Some(Part::Job(args)), .. } => job::run(&args),
        Command { part: Some(Part::Rank(args)), .. } => rank::run(&args),
    }
}
