//! How a job and its ranks have ended.

use crate::bootstrap::EXITED;
use std::fmt;
use std::io::{self};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The exit status of a job that took too long: the same as that of coreutils' `timeout`.
const TIMED_OUT: i32 = 124;

/// How the process of a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RankStatus {
    /// It exited with this status.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
    /// It exited with status 0, but its engine had not finished: its peers may still have been waiting for it.
    Unfinished,
    /// Its status could not be read: the launching process ignores SIGCHLD or has reaped it elsewhere.
    Lost,
}

impl RankStatus {
    pub(super) fn new(status: io::Result<ExitStatus>, engaged: bool) -> Self {
        match status.map(|status| (status.code(), status.signal())) {
            Ok((Some(0), _)) if engaged => RankStatus::Unfinished,
            Ok((Some(code), _)) => RankStatus::Exited(code),
            Ok((None, Some(signal))) => RankStatus::Killed(signal),
            _ => RankStatus::Lost,
        }
    }

    /// Whether the exit status is 0, and nothing was left unfinished.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == RankStatus::Exited(0)
    }

    /// The status as a shell shows it: the exit status, or 128 + signal.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            RankStatus::Exited(code) => code,
            RankStatus::Killed(signal) => 128 + signal,
            RankStatus::Unfinished | RankStatus::Lost => 1,
        }
    }
}

impl fmt::Display for RankStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            RankStatus::Exited(0) => f.write_str(EXITED),
            RankStatus::Exited(code) => write!(f, "exit status {code}"),
            RankStatus::Killed(signal) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("a real-time signal");
                write!(f, "killed by signal {signal} ({name})")
            }
            RankStatus::Unfinished => f.write_str("exited before its engine had finished"),
            RankStatus::Lost => f.write_str("ended with an unknown status"),
        }
    }
}

/// How a job ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobOutcome {
    /// The first rank that failed by itself, and how. A rank that the launcher has ended does not count.
    pub first_failure: Option<(u32, RankStatus)>,
    /// The signal that made the launcher end the job, if one did.
    pub interrupted: Option<i32>,
    /// Whether the job was ended because it took longer than its [timeout](super::Job::timeout).
    pub timed_out: bool,
    /// The end of every rank that was started, in rank order.
    pub statuses: Vec<RankStatus>,
    /// Why the events of the ranks could not be merged into one file. The files of the ranks are still beside it.
    pub trace_error: Option<String>,
    /// Why output of the ranks was lost: the launcher could not write it. A reader that has closed the launcher's output is no error.
    pub output_error: Option<String>,
}

impl JobOutcome {
    /// The exit status for the launcher: 128 + signal if a signal ended the job, 124, as of `timeout`, if it took too long, else that of
    /// the first rank that failed. Without a failure it is 0, or 1 if output was lost or the trace files could not be merged.
    #[must_use]
    pub fn code(&self) -> i32 {
        match (self.interrupted, self.first_failure) {
            (Some(signal), _) => 128 + signal,
            _ if self.timed_out => TIMED_OUT,
            (None, Some((_, status))) => status.code(),
            (None, None) => i32::from(self.trace_error.is_some() || self.output_error.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_read_as_a_shell_says_them() {
        assert_eq!(RankStatus::Killed(9).to_string(), "killed by signal 9 (SIGKILL)");
        assert_eq!(RankStatus::Killed(40).to_string(), "killed by signal 40 (a real-time signal)");
        assert_eq!(RankStatus::Exited(3).to_string(), "exit status 3");
        assert_eq!(RankStatus::Exited(0).to_string(), "exited");
        assert_eq!((RankStatus::Killed(9).code(), RankStatus::Exited(3).code()), (137, 3));
        let failed = Some((1, RankStatus::Exited(3)));
        let outcome = JobOutcome { first_failure: failed, interrupted: Some(2), ..JobOutcome::default() };
        assert_eq!(outcome.code(), 130);
        assert_eq!(JobOutcome { interrupted: None, ..outcome.clone() }.code(), 3);
        assert_eq!(JobOutcome::default().code(), 0);
        assert_eq!(JobOutcome { timed_out: true, interrupted: None, ..outcome.clone() }.code(), 124);
        assert_eq!(JobOutcome { timed_out: true, ..outcome }.code(), 130);
        let lost = Some("no space left".to_owned());
        assert_eq!(JobOutcome { trace_error: lost, ..JobOutcome::default() }.code(), 1);
    }
}
