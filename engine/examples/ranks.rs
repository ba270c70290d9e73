//! The common part of examples that start their own ranks: reading the arguments, starting the ranks, and reporting errors.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use tickwire::bootstrap::is_launched;
use tickwire::launch::{Job, Output};

/// Why the program failed: the exit status, and words.
pub(crate) struct Fault(pub(crate) u8, pub(crate) String);

impl<E: Error> From<E> for Fault {
    fn from(error: E) -> Self {
        Fault(1, error.to_string())
    }
}

/// Runs a program: `rank` if a launcher has started it, else `start`. An error is one line on stderr.
pub(crate) fn run<A: Parser>(
    name: &str,
    start: fn(&A) -> Result<ExitCode, Fault>,
    rank: fn(&A) -> Result<ExitCode, Fault>,
) -> ExitCode {
    let result = match A::try_parse() {
        Ok(args) if !is_launched() => start(&args),
        Ok(args) => rank(&args),
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let text = error.render().to_string();
            let words: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            Err(Fault(2, words.join(" ").replacen("error: ", "", 1)))
        }
    };
    result.unwrap_or_else(|Fault(code, words)| {
        // A closed stderr is no reason to panic.
        let _ = writeln!(std::io::stderr(), "{name}: {words}");
        ExitCode::from(code)
    })
}

/// Starts the ranks: this program again, with the same arguments.
pub(crate) fn start_ranks(ranks: u32) -> Result<ExitCode, Fault> {
    let job = Job::new(ranks).program(std::env::current_exe()?).args(std::env::args_os().skip(1));
    let outcome = job.output(Output::Inherit).run()?;
    Ok(ExitCode::from(outcome.code().clamp(0, 255) as u8))
}
