//! Which job a command means.

use std::collections::BTreeMap;

use tickwire::jobs::{Process, is_named, processes};

use crate::fault::Fault;

/// The processes of the job that a word names, or of the only one there is; by rank.
///
/// # Errors
/// If there is none, or there are several.
pub(crate) fn select(word: Option<&str>) -> Result<Vec<Process>, Fault> {
    let own = std::process::id();
    let mut found = processes()?;
    found.retain(|process| process.pid != own && word.is_none_or(|word| is_named(process, word)));
    // A process that was named means its whole job.
    let names: Vec<String> = found.iter().map(|process| process.job.clone()).collect();
    found = processes()?;
    found.retain(|process| process.pid != own && names.contains(&process.job));
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
