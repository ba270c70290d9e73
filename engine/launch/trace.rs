//! The events of a job: one file for each rank while the job runs, one merged file at the end.

use super::error::LaunchError;
use super::job::Job;
use super::outcome::JobOutcome;
use crate::bootstrap::ENV_RANK;
use crate::observe::trace::ENV_TRACE;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use tickwire_traces::{part, remove_parts, taken_part};

/// The variable with the port on which a client of the Tracy profiler listens.
const ENV_TRACY_PORT: &str = "TRACY_PORT";
/// The default port of a client.
const TRACY_PORT: u16 = 8086;

/// The file that the environment names. A launcher that a rank has started gets a name of its own: the rank is writing to the one that is
/// named.
pub(super) fn named() -> Option<PathBuf> {
    let mut path = std::env::var_os(ENV_TRACE).filter(|path| !path.is_empty())?;
    if std::env::var_os(ENV_RANK).is_some() {
        path.push(format!("-{}", std::process::id()));
    }
    Some(path.into())
}

/// The file that the variables of the programs name. It is the job's: ranks that all write to one file would lose each other's events.
pub(super) fn of_programs(job: &Job) -> Result<Option<PathBuf>, LaunchError> {
    let variables = job.programs().filter_map(|program| program.own_variable(ENV_TRACE));
    let mut paths = variables.filter(|path| !path.is_empty());
    let Some(first) = paths.next() else { return Ok(None) };
    match paths.find(|path| *path != first) {
        Some(other) if job.trace.is_none() => {
            let [first, other] = [first, other].map(|path| path.to_string_lossy().into_owned());
            Err(LaunchError::TwoTraces { first, other })
        }
        _ => Ok(Some(first.into())),
    }
}

/// Checks that the file and its parts can be written, before anything is started, and removes parts that an earlier job has left. Returns
/// the absolute path, since ranks may run in other directories.
pub(super) fn prepare(path: Option<PathBuf>, ranks: u32) -> Result<Option<PathBuf>, LaunchError> {
    let Some(path) = path else { return Ok(None) };
    if let Some(taken) = taken_part(&path, ranks) {
        return Err(LaunchError::TraceTaken { path: taken.display().to_string() });
    }
    let failed = |source| LaunchError::Trace { path: path.display().to_string(), source };
    // A process that still writes to an earlier file of this name has it mapped, and must not find it shortened.
    if std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
        let _ = std::fs::remove_file(&path);
    }
    File::create(&path).map_err(failed)?;
    let path = std::path::absolute(&path).map_err(failed)?;
    // A part that cannot be removed cannot be written either, and its rank reports that.
    remove_parts(&path);
    Ok(Some(path))
}

/// Merges the files of the ranks into one.
pub(super) fn merge(
    path: Option<&Path>,
    ranks: u32,
    outcome: Result<JobOutcome, LaunchError>,
) -> Result<JobOutcome, LaunchError> {
    let mut outcome = outcome?;
    if let Some(path) = path
        && let Err(error) = tickwire_traces::merge(path, ranks)
    {
        outcome.trace_error = Some(format!("trace file {error}"));
    }
    Ok(outcome)
}

/// The variables that tell a rank where its events go.
///
/// If the launcher is built as a client of the Tracy profiler, all ranks are clients too: rank 0 listens on the port after the launcher's,
/// rank 1 on the next, and so on.
pub(super) fn variables(path: Option<&Path>, rank: u32) -> impl Iterator<Item = (&'static str, OsString)> {
    let port = || {
        let own: u16 = std::env::var(ENV_TRACY_PORT).ok().and_then(|port| port.parse().ok()).unwrap_or(TRACY_PORT);
        // A port past the last one is none: the client says so.
        (ENV_TRACY_PORT, OsString::from((u32::from(own) + 1 + rank).to_string()))
    };
    let file = path.map(|path| (ENV_TRACE, part(path, rank).into()));
    file.into_iter().chain(cfg!(feature = "tracy").then(port))
}
