//! Which job a command means.

use std::collections::BTreeMap;
use std::time::Duration;

use tickwire::internals::traces::whowaits::RankReport;
use tickwire::jobs::{AskError, Process, ask, is_named, processes};

use crate::fault::Fault;

/// Processes that are asked at a time.
const ASKED_AT_ONCE: usize = 64;

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

/// What is known of each rank of a job.
pub(crate) fn report(processes: &[Process], patience: Duration) -> Vec<RankReport> {
    let size = processes.first().map_or(0, |process| process.size);
    let mut reports = vec![RankReport::Missing; size as usize];
    // Of several processes of one rank, such as a shell and its program, the one with an engine speaks.
    for process in processes.iter().filter(|process| process.pages.is_empty()) {
        if let Some(report) = reports.get_mut(process.rank as usize) {
            *report = RankReport::NoEngine;
        }
    }
    let engaged: Vec<&Process> = processes.iter().filter(|process| !process.pages.is_empty()).collect();
    for some in engaged.chunks(ASKED_AT_ONCE) {
        let answers: Vec<RankReport> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                some.iter().map(|process| scope.spawn(|| of_answer(ask(process, patience)))).collect();
            let answer = |thread: std::thread::ScopedJoinHandle<'_, RankReport>| {
                thread.join().unwrap_or_else(|_| RankReport::Unknown("asking it has failed".into()))
            };
            threads.into_iter().map(answer).collect()
        });
        for (process, answer) in some.iter().zip(answers) {
            if let Some(report) = reports.get_mut(process.rank as usize) {
                *report = answer;
            }
        }
    }
    reports
}

fn of_answer(answer: Result<Vec<tickwire::internals::traces::dump::Dump>, AskError>) -> RankReport {
    match answer {
        Ok(dumps) => RankReport::Dumped(dumps),
        Err(AskError::NoEngine { .. }) => RankReport::NoEngine,
        Err(AskError::Starting { .. }) => RankReport::Starting,
        Err(AskError::Silent { ns, .. }) => RankReport::Silent { ns },
        Err(error) => RankReport::Unknown(error.to_string()),
    }
}
