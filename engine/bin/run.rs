//! `tickwire run`: starts the ranks of a job on this host.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use tickwire::launch::{Job, OnFailure};

/// Starts N ranks of a program on this host and waits for them.
///
/// The exit status is 0, that of the first rank that failed, or 128 + signal if a signal ended that rank or the job.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Number of ranks, 1 to 4096
    #[arg(short, long = "ranks", value_name = "N")]
    n: u32,
    /// Say the job's name and the launcher's number on stderr first
    #[arg(long)]
    print_job: bool,
    /// Start each line of output with the rank that wrote it, as in `[3] text`
    #[arg(long)]
    tag_output: bool,
    /// What becomes of the other ranks when one fails
    #[arg(long, value_enum, default_value = "end")]
    on_failure: Then,
    /// Bind each rank to one core, in turn
    #[arg(long)]
    pin: bool,
    /// Write the events of all ranks to a file, which ui.perfetto.dev and chrome://tracing open when the job has ended; until
    /// then those of rank N are in FILE.N, for `tickwire trace` [default: $TICKWIRE_TRACE]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The program of every rank, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Then {
    /// End them
    End,
    /// Let them go on
    Continue,
}

/// Runs the job and makes its outcome an exit status; 2 for a job that cannot be, 1 if the system refuses it.
pub(crate) fn run(args: RunArgs) -> ExitCode {
    let mut program = args.program.into_iter();
    let on_failure = match args.on_failure {
        Then::End => OnFailure::End,
        Then::Continue => OnFailure::Continue,
    };
    let mut job = Job::new(args.n).program(program.next().unwrap_or_default()).args(program);
    if let Some(path) = args.trace {
        job = job.trace(path);
    }
    match job.print_name(args.print_job).tag_output(args.tag_output).pin(args.pin).on_failure(on_failure).run() {
        Ok(outcome) => {
            if let Some(error) = &outcome.trace_error {
                let _ = writeln!(std::io::stderr(), "tickwire run: {error}");
            }
            ExitCode::from(outcome.code().clamp(0, 255) as u8)
        }
        Err(error) => {
            // A closed stderr is no reason to panic.
            let _ = writeln!(std::io::stderr(), "tickwire run: {error}");
            ExitCode::from(if error.is_wrong_use() { 2 } else { 1 })
        }
    }
}
