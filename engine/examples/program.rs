//! The common part of examples: reading the arguments, and reporting errors.

use clap::Parser;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use tickwire::bootstrap::is_launched;

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
        // A single write, so that lines of several ranks do not mix. A closed stderr is no reason to panic.
        let _ = std::io::stderr().write_all(format!("{name}: {words}\n").as_bytes());
        ExitCode::from(code)
    })
}
