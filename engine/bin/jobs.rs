//! Which job a command means.

use std::collections::BTreeMap;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tickwire::jobs::{Process, is_named, processes};

use crate::fault::Fault;

/// All processes that take part in a job, but this one. Many are asked at the same time, each over a descriptor, so this process raises its
/// limit of open files.
fn others() -> Result<Vec<Process>, Fault> {
    let limit = getrlimit(Resource::Nofile);
    // If the system refuses, some processes may be asked in vain, and are reported so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let own = std::process::id();
    Ok(processes()?.into_iter().filter(|process| process.pid != own).collect())
}

/// The processes of the job with this name, sorted by rank. None if it has ended.
///
/// # Errors
/// The processes of this host cannot be listed.
pub(crate) fn of_job(name: &str) -> Result<Vec<Process>, Fault> {
    Ok(others()?.into_iter().filter(|process| process.job == name).collect())
}

/// The processes of the job that `word` names, sorted by rank. Without a word, those of the only job that runs.
///
/// # Errors
/// There is no such job, or there are several.
pub(crate) fn select(word: Option<&str>) -> Result<Vec<Process>, Fault> {
    let mut found = others()?;
    // A whole name means this job, even if the names of others begin with it.
    let is_name = word.is_some_and(|word| found.iter().any(|process| process.job == word));
    let is_meant = |process: &Process| match word {
        Some(word) if is_name => process.job == word,
        Some(word) => is_named(process, word),
        None => true,
    };
    // A word that names one process means the whole job of this process.
    let names: Vec<String> =
        found.iter().filter(|process| is_meant(process)).map(|process| process.job.clone()).collect();
    found.retain(|process| names.contains(&process.job));
    let mut jobs: BTreeMap<&str, u32> = BTreeMap::new();
    for process in &found {
        jobs.insert(&process.job, process.size);
    }
    match (jobs.len(), word) {
        (1, _) => Ok(found),
        (0, None) => Err(Fault::failure(
            "no job runs here that this user may see: start one with `tickwire run`, or name a process with an engine",
        )),
        (0, Some(word)) => Err(Fault::failure(format!(
            "`{word}` is no running job: give its name, or the number of its launcher or of one of its processes"
        ))),
        _ => {
            let names: Vec<String> = jobs.iter().map(|(job, size)| format!("{job} ({size})")).collect();
            Err(Fault::wrong_use(format!("several jobs run: name one of {}", names.join(", "))))
        }
    }
}
