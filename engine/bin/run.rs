//! `tickwire run`: starts the ranks of a job on this host.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, FromArgMatches, ValueEnum, ValueHint};
use tickwire::launch::{Job, OnFailure};

use crate::fault::write_line;

/// Starts N ranks of a program on this host and waits for them.
///
/// Ranks of several programs: `tickwire run -n 1 ./one : -n 2 ./two`. Each program has its own -n, --env and --wdir. An argument
/// that is `:` alone ends the arguments of a program.
///
/// The exit status is 0 if no rank failed. Otherwise it is the status of the first rank that failed, 128 + signal if a signal
/// ended that rank or the job, or 124 if the job took longer than --timeout. It is 1 if a rank exited with 0 before its engine had
/// finished, if output was lost, or if the trace could not be written.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Say the job's name and the launcher's process number on stderr first
    #[arg(long)]
    print_job: bool,
    /// Start each line of output with the rank that wrote it, as in `[3] text`
    #[arg(long)]
    tag_output: bool,
    /// What becomes of the other ranks when one fails
    #[arg(long, value_enum, default_value = "end")]
    on_failure: Then,
    /// Bind each rank to a processor: preferably one that no other job of this user uses, on a core of its own
    #[arg(long)]
    pin: bool,
    /// End the job if it takes longer than this, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Write the events of all ranks to a file that ui.perfetto.dev and chrome://tracing open; the file is there when the job has
    /// ended; until then the events of rank N are in FILE.N, for `tickwire trace` [default: $TICKWIRE_TRACE]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,
    #[command(flatten)]
    first: ProgramArgs,
}

/// The options that each program of a job has for itself.
#[derive(Args, Debug)]
struct ProgramArgs {
    /// Number of ranks, 1 to 4096
    #[arg(short, long = "ranks", value_name = "N")]
    n: u32,
    /// Set a variable in the environment of the ranks; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// The directory in which the ranks start; a relative path of PROGRAM starts there, too
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    wdir: Option<PathBuf>,
    /// The program of every rank, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Then {
    /// End them
    End,
    /// Let them go on
    Continue,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "give a number of seconds above 0, such as 90 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(wrong)
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("give NAME=VALUE".to_owned()),
    }
}

/// Runs the job and returns its exit status. The status is 2 for a job that is not possible, and 1 if the system refuses it.
///
/// # Errors
/// The words behind a `:` have no program, or no number of ranks.
pub(crate) fn run(args: RunArgs) -> Result<ExitCode, clap::Error> {
    let on_failure = match args.on_failure {
        Then::End => OnFailure::End,
        Then::Continue => OnFailure::Continue,
    };
    let (first, others) = programs(args.first)?;
    let mut job = with(Job::new(first.n), first);
    for other in others {
        job = with(job.and(other.n), other);
    }
    if let Some(path) = args.trace {
        job = job.trace(path);
    }
    if let Some(longest) = args.timeout {
        job = job.timeout(longest);
    }
    Ok(match job.print_name(args.print_job).tag_output(args.tag_output).pin(args.pin).on_failure(on_failure).run() {
        Ok(outcome) => {
            if let Some(error) = &outcome.trace_error {
                write_line(&format!("tickwire run: {error}"));
            }
            ExitCode::from(outcome.code().clamp(0, 255) as u8)
        }
        Err(error) => {
            write_line(&format!("tickwire run: {error}"));
            ExitCode::from(if error.is_wrong_use() { 2 } else { 1 })
        }
    })
}

/// Sets the program of the ranks that were added to the job last, with its arguments, environment and directory.
fn with(job: Job, args: ProgramArgs) -> Job {
    let mut words = args.program.into_iter();
    let job = job.program(words.next().unwrap_or_default()).args(words);
    let job = args.env.into_iter().fold(job, |job, (name, value)| job.env(name, value));
    match args.wdir {
        Some(path) => job.directory(path),
        None => job,
    }
}

/// Splits the arguments into programs, at each `:`.
fn programs(mut first: ProgramArgs) -> Result<(ProgramArgs, Vec<ProgramArgs>), clap::Error> {
    let words = std::mem::take(&mut first.program);
    let mut parts = words.split(|word| word == ":");
    first.program = parts.next().unwrap_or_default().to_vec();
    let parse = |words: &[OsString]| {
        let usage =
            "tickwire run [OPTIONS] -n <N> <PROGRAM>... : -n <N> [--env <NAME=VALUE>] [--wdir <DIR>] <PROGRAM>...";
        let command =
            ProgramArgs::augment_args(clap::Command::new("tickwire run").no_binary_name(true).override_usage(usage));
        ProgramArgs::from_arg_matches(&command.try_get_matches_from(words)?)
    };
    Ok((first, parts.map(parse).collect::<Result<_, _>>()?))
}
