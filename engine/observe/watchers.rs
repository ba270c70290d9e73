//! The answer to a command on another host: what the job's processes on this host report.
//!
//! The engine's transport lets only those through who know the job's secret. A separate thread asks the processes, as a command on this
//! host would. So the engine goes on, and answers for itself like all others. Each answer takes a bounded time, and only a few are given at
//! once.

use crate::api::jobs::{self, Process};
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tickwire_components::limits::{WATCHER_PATIENCE_MAX, WATCHER_READING_MAX, WATCHERS_ANSWERED_MAX};
use tickwire_traces::hosts::{Answer, Question, RankAnswer, What};
use tickwire_traces::whowaits::RankReport;
use tickwire_transports::Watcher;

/// The number of watchers that are being answered.
static ANSWERS: AtomicUsize = AtomicUsize::new(0);

/// One of the [`WATCHERS_ANSWERED_MAX`] places.
struct Place;

impl Place {
    fn take() -> Option<Place> {
        let more = |answers| (answers < WATCHERS_ANSWERED_MAX).then_some(answers + 1);
        ANSWERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        ANSWERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts a thread that answers a watcher, about a job.
pub(super) fn answer(watcher: Watcher, job: &str) {
    let Some(place) = Place::take() else { return watcher.refuse("others are answered: ask again") };
    let question = match Question::of_bytes(watcher.question) {
        Ok(question) => question,
        Err(words) => return watcher.refuse(words),
    };
    let job = job.to_owned();
    let tell = move || {
        let _place = place;
        // A watcher that has gone needs no answer.
        let _ = tell(watcher, question, &job);
    };
    // If no thread can be started, the connection is closed, which tells the watcher enough.
    let _ = std::thread::Builder::new().name("tickwire-answer".to_owned()).spawn(tell);
}

fn tell(watcher: Watcher, question: Question, job: &str) -> io::Result<()> {
    let mut stream = watcher.answer(WATCHER_READING_MAX)?;
    let mut processes = jobs::processes()?;
    processes.retain(|process| process.job == job && question.rank.is_none_or(|rank| rank == process.rank));
    let patience = Duration::from_millis(question.patience_ms.into()).min(WATCHER_PATIENCE_MAX);
    let ranks = match question.what {
        What::Dumps => dumps(&processes, patience),
        What::Pages => pages(&processes),
    };
    let answer = serde_json::to_vec(&Answer { now_ns: jobs::now_ns(), ranks })?;
    let end = Instant::now() + WATCHER_READING_MAX;
    let mut written = 0;
    while written < answer.len() && Instant::now() < end {
        written += stream.write(&answer[written..])?;
    }
    Ok(())
}

/// What is pending in the ranks that have processes here.
fn dumps(processes: &[Process], patience: Duration) -> Vec<RankAnswer> {
    let reports = jobs::report(processes, patience);
    let is_here = |report: &RankReport| !matches!(report, RankReport::Missing | RankReport::Elsewhere { .. });
    let of = |(rank, report): (u32, RankReport)| RankAnswer {
        rank,
        pid: processes.iter().find(|process| process.rank == rank).map_or(0, |process| process.pid),
        report: Some(report),
        page: None,
    };
    (0..).zip(reports).filter(|(_, report)| is_here(report)).map(of).collect()
}

/// The figures of the ranks that have processes here.
fn pages(processes: &[Process]) -> Vec<RankAnswer> {
    let of = |process: &Process| {
        let page = process.snapshots().next();
        RankAnswer { rank: process.rank, pid: process.pid, report: None, page }
    };
    let mut ranks: Vec<RankAnswer> = processes.iter().map(of).collect();
    // If a rank has several processes, such as a shell and its program, the one with an engine answers.
    ranks.sort_by_key(|of| (of.rank, of.page.is_none()));
    ranks.dedup_by_key(|of| of.rank);
    ranks
}
