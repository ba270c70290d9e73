//! What is known of each rank of a job, from its processes on this host.

use super::hosts::{Hosts, Told};
use super::{AskError, Process, ask, ask_all};
use std::time::Duration;
use tickwire_traces::dump::Dump;
use tickwire_traces::hosts::What;
use tickwire_traces::whowaits::RankReport;

/// What is known of each rank of a job, wherever it runs: the other hosts are asked too.
pub fn report_all(processes: &[Process], patience: Duration) -> Vec<RankReport> {
    let mut reports = report(processes, patience);
    let open: Vec<u32> = (0..).zip(&reports).filter(|(_, of)| is_open(of)).map(|(rank, _)| rank).collect();
    ask_hosts(processes, &open, patience, &mut reports);
    reports
}

/// What is known of one rank of a job, wherever it runs. Only this rank is asked.
pub fn report_one(processes: &[Process], rank: u32, patience: Duration) -> RankReport {
    let of_rank = |process: &&Process| process.rank == rank;
    let engaged = processes.iter().filter(of_rank).find(|process| !process.pages.is_empty());
    let here = match engaged {
        Some(process) => of_answer(ask(process, patience)),
        None if processes.iter().any(|process| process.rank == rank) => RankReport::NoEngine,
        None => RankReport::Missing,
    };
    if !is_open(&here) {
        return here;
    }
    let size = processes.first().map_or(0, |process| process.size);
    let mut reports = vec![here; size.max(rank + 1) as usize];
    ask_hosts(processes, &[rank], patience, &mut reports);
    reports.swap_remove(rank as usize)
}

/// Whether another host may know more about a rank.
fn is_open(report: &RankReport) -> bool {
    matches!(report, RankReport::Missing | RankReport::Elsewhere { .. } | RankReport::Unknown(_))
}

/// Asks the other hosts about some ranks.
fn ask_hosts(processes: &[Process], open: &[u32], patience: Duration, reports: &mut [RankReport]) {
    if open.is_empty() {
        return;
    }
    let mut hosts = match Hosts::of(processes, patience) {
        Ok(hosts) => hosts,
        Err(words) => {
            let unseen = reports.iter_mut().filter(|of| **of == RankReport::Missing);
            unseen.for_each(|of| *of = RankReport::Unknown(format!("it has no process here, and {words}")));
            return;
        }
    };
    for (rank, told) in hosts.ask(What::Dumps, open, patience) {
        let Some(report) = reports.get_mut(rank as usize) else { continue };
        match told {
            Told::Answer { of, .. } => *report = of.report.unwrap_or(RankReport::NoEngine),
            Told::Absent if matches!(report, RankReport::Unknown(_)) => {}
            Told::Absent => *report = RankReport::Missing,
            Told::Unknown(words) => *report = RankReport::Unknown(words),
        }
    }
}

/// What is known of each rank of a job from its processes on this host.
pub fn report(processes: &[Process], patience: Duration) -> Vec<RankReport> {
    let size = processes.first().map_or(0, |process| process.size);
    let mut reports = vec![RankReport::Missing; size as usize];
    // If a rank has several processes, such as a shell and its program, the one with an engine answers.
    for process in processes.iter().filter(|process| process.pages.is_empty()) {
        if let Some(report) = reports.get_mut(process.rank as usize) {
            *report = RankReport::NoEngine;
        }
    }
    let engaged: Vec<&Process> = processes.iter().filter(|process| !process.pages.is_empty()).collect();
    for (process, answer) in engaged.iter().zip(ask_all(&engaged, patience)) {
        if let Some(report) = reports.get_mut(process.rank as usize) {
            *report = of_answer(answer);
        }
    }
    name_elsewhere(&mut reports);
    reports
}

/// Ranks without a process here are not gone if a dump says that they run on other hosts.
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

/// Merges the reports of several hosts. Each has all ranks. For each rank, the report of the host that has asked the rank is kept.
pub fn together(hosts: Vec<Vec<RankReport>>) -> Vec<RankReport> {
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

fn of_answer(answer: Result<Vec<Dump>, AskError>) -> RankReport {
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
