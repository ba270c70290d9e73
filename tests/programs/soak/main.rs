//! Random programs under random faults for a given time: `tests/soak`, or `tests-soak --help`.
//!
//! A *campaign* runs *jobs*, one after another and some at once. A job is a process of its own: a cluster in this one
//! process, or the launcher of a few *ranks*, which are processes too. Case and seed alone say what a job does ([`plan`]),
//! so that one which fails can be run again. All ranks carry out the same exchange ([`worker`]); the job decides whether
//! what they report may be ([`judge`]).

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
/// Each job is a few ranks that send each other messages whose lengths and contents follow from a seed, while something is
/// wrong. Every operation must end or go on, nothing may be left over, and no content may differ. Cases take turns, each
/// runs at least once, and a summary says at the end how often. The first job that fails ends the campaign with status 1,
/// what it said, and the command that runs it again.
#[derive(Parser)]
#[command(name = "tests-soak", max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Command {
    #[command(flatten)]
    campaign: CampaignArgs,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What a person may choose.
#[derive(Args)]
struct CampaignArgs {
    /// No job is begun after so many seconds, but those that each case has at least.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the first job, each next one's is one more; from the clock unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// Cases to run, with commas; all unless given.
    #[arg(long, value_enum, value_delimiter = ',')]
    case: Vec<Case>,
    /// Jobs at most; no bound unless given.
    #[arg(long)]
    jobs: Option<u64>,
    /// Jobs at a time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: u32,
    /// Longest time that a rank is stopped, computes or starts late, ms; 20000 unless given, 1500 in campaigns below 300 s.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    away_ms: Option<u64>,
}

/// What the campaign starts by itself.
#[derive(Subcommand)]
enum Part {
    /// One job.
    #[command(hide = true)]
    Job(PartArgs),
    /// One rank of a job.
    #[command(hide = true)]
    Rank(PartArgs),
}

/// Which job, and where its files are.
#[derive(Args, Clone)]
struct PartArgs {
    #[arg(long, value_enum)]
    case: Case,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    away_ms: u64,
    /// A directory of the job's own.
    #[arg(long)]
    place: PathBuf,
    /// The process that started it, with which it ends.
    #[arg(long)]
    parent: i32,
}

impl PartArgs {
    fn plan(&self) -> Plan {
        Plan::of(self.case, self.seed, self.away_ms)
    }

    /// The same as arguments of a process that this one starts.
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
