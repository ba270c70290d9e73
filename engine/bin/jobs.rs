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
    name_elsewhere(&mut reports);
    reports
}

/// Ranks without a process here are not gone if those that are here say that they run on other hosts.
fn name_elsewhere(reports: &mut [RankReport]) {
    let dumped = reports.iter().find_map(|report| match report {
        RankReport::Dumped(dumps) => dumps.first(),
        _ => None,
    });
    for (first, many, host) in dumped.map(|dump| dump.elsewhere.clone()).unwrap_or_default() {
        let ranks = reports.iter_mut().skip(first as usize).take(many as usize);
        ranks
            .filter(|report| **report == RankReport::Missing)
            .for_each(|report| *report = RankReport::Elsewhere { host });
    }
}

/// Puts the reports of several hosts together. Each is about all ranks; who has asked a rank knows most of it.
pub(crate) fn together(hosts: Vec<Vec<RankReport>>) -> Vec<RankReport> {
    let knows = |report: &RankReport| match report {
        RankReport::Missing => 0,
        RankReport::Elsewhere { .. } => 1,
        RankReport::NoEngine => 2,
        RankReport::Unknown(_) => 3,
        RankReport::Starting | RankReport::Silent { .. } => 4,
        RankReport::Dumped(_) => 5,
    };
    let mut hosts = hosts.into_iter();
    let mut all = hosts.next().unwrap_or_default();
    for host in hosts {
        all.resize(all.len().max(host.len()), RankReport::Missing);
        for (known, report) in all.iter_mut().zip(host) {
            if knows(&report) > knows(known) {
                *known = report;
            }
        }
    }
    all
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

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire::internals::traces::dump::Dump;

    #[test]
    fn reports_of_hosts_are_put_together_by_who_knows_more() {
        let dumped = |rank| RankReport::Dumped(vec![Dump { rank, ..Dump::default() }]);
        let (left, right) = (RankReport::Elsewhere { host: 0 }, RankReport::Elsewhere { host: 1 });
        let one = vec![dumped(0), RankReport::NoEngine, right.clone(), right];
        let other = vec![left.clone(), left, dumped(2), RankReport::Missing];
        let all = together(vec![one, other]);
        assert_eq!(all, [dumped(0), RankReport::NoEngine, dumped(2), RankReport::Elsewhere { host: 1 }]);
        assert_eq!(together(Vec::new()), []);
    }

    #[test]
    fn ranks_on_other_hosts_are_named_as_such() {
        let dump = Dump { elsewhere: vec![(1, 2, 7), (9, 4, 8)], ..Dump::default() };
        let mut reports = vec![RankReport::Missing; 4];
        reports[0] = RankReport::Dumped(vec![dump]);
        reports[2] = RankReport::NoEngine;
        name_elsewhere(&mut reports);
        assert_eq!(reports[1..], [RankReport::Elsewhere { host: 7 }, RankReport::NoEngine, RankReport::Missing]);
    }
}
