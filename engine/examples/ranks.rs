//! The common part of examples that start their own ranks.

#[path = "program.rs"]
mod program;

pub(crate) use program::{Fault, run};
use std::process::ExitCode;
use tickwire::launch::{Job, Output};

/// Starts the ranks: this program again, with the same arguments.
pub(crate) fn start_ranks(ranks: u32) -> Result<ExitCode, Fault> {
    let job = Job::new(ranks).program(std::env::current_exe()?).args(std::env::args_os().skip(1));
    let outcome = job.output(Output::Inherit).run()?;
    Ok(ExitCode::from(outcome.code().clamp(0, 255) as u8))
}
