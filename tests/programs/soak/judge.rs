//! Checks whether the exit statuses and the reports of a job's ranks are allowed.

use crate::plan::Plan;
use crate::rank::UNBUILT;
use crate::report::Report;
use tickwire::launch::RankStatus;

/// An error because of an exhausted resource contains at least one of these texts.
const SHORT: [&str; 4] = ["open files", "more files", "descriptor", "is full"];
/// The status of a process that has panicked.
const PANICKED: i32 = 101;

/// Checks whether each rank has ended as it must.
///
/// # Errors
/// Names a rank that has not ended as it must.
pub(crate) fn statuses(plan: &Plan, statuses: &[RankStatus], reports: &[(u32, Report)]) -> Result<(), String> {
    for (rank, &status) in (0..).zip(statuses) {
        let report = reports.iter().find(|(of, _)| *of == rank).map(|(_, report)| report);
        let fits = match status {
            RankStatus::Exited(0) => report.is_some_and(|report| report.unbuilt.is_none()),
            RankStatus::Exited(code) if code == i32::from(UNBUILT) => {
                report.and_then(|report| report.unbuilt.as_ref()).is_some_and(|words| is_short(words))
            }
            RankStatus::Killed(9) | RankStatus::Exited(PANICKED) => plan.is_doomed(rank),
            _ => false,
        };
        if !fits {
            return Err(format!("rank {rank}: {status}, which is not what it must be; it says {report:?}"));
        }
    }
    Ok(())
}

/// Checks that only ranks that may fail are reported as failed, that both sides report it, and that the error says what to do.
///
/// # Errors
/// Names the rank whose report is wrong.
pub(crate) fn failures(plan: &Plan, reports: &[(u32, Report)]) -> Result<(), String> {
    let said = |by: u32, of: u32| {
        let (_, report) = reports.iter().find(|(rank, _)| *rank == by)?;
        report.failed.iter().find(|(rank, _)| *rank == of).map(|(_, reason)| reason)
    };
    for (rank, report) in reports {
        for (peer, reason) in &report.failed {
            let Some((_, other)) = reports.iter().find(|(of, _)| of == peer) else {
                if plan.is_doomed(*peer) {
                    continue;
                }
                return Err(format!("rank {rank} says that rank {peer} has failed ({reason}), which says nothing"));
            };
            if other.unbuilt.is_some() || plan.is_doomed(*peer) {
                continue;
            }
            let Some(back) = said(*peer, *rank) else {
                return Err(format!("rank {rank} says that rank {peer} has failed ({reason}), and not the reverse"));
            };
            if !is_short(reason) && !is_short(back) {
                return Err(format!("neither of ranks {rank} and {peer} says what to do: {reason}; {back}"));
            }
        }
    }
    Ok(())
}

fn is_short(words: &str) -> bool {
    SHORT.iter().any(|short| words.contains(short))
}
