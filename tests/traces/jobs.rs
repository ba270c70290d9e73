//! Jobs with a trace file.

use crate::format::lines;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use tickwire_tests::binaries::binary;
use tickwire_tests::scratch::Directory;

/// Runs the program `tickwire` to its end.
pub(crate) fn tickwire(args: &[&str]) -> Output {
    Command::new(binary("tickwire")).args(args).output().unwrap()
}

/// Runs a job of `tests-rank` programs with a trace. Returns its output and the checked lines of the trace.
pub(crate) fn traced(path: &Path, ranks: &str, test: &[&str]) -> (Output, Vec<Value>) {
    (run_traced(path, ranks, test), lines(path))
}

/// As [`traced`], but leaves the trace at `path` as it is.
pub(crate) fn run_traced(path: &Path, ranks: &str, test: &[&str]) -> Output {
    let place = Directory::new(&format!("place-{}", path.file_name().unwrap().to_str().unwrap()));
    let program = env!("CARGO_BIN_EXE_tests-rank");
    let run = ["run", "-n", ranks, "--on-failure", "continue", "--trace", path.to_str().unwrap(), "--", program];
    tickwire(&[&run, &test[..1], &[place.to_str().unwrap()], &test[1..]].concat())
}
