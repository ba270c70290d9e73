//! Starts the ranks of a job on this host and stands by them until all have ended: serves their bootstrap exchange,
//! passes their output on by whole lines, and tells the others when one ends. `tickwire run` is this with a command
//! line.
//!
//! One thread and one epoll do everything. Ranks are held by pidfds, so that no signal can reach a process that the
//! launcher did not start; the kernel kills them should the launcher itself be killed.

mod exchange;
mod forward;
mod output;
mod ranks;
mod signals;
mod supervise;
mod trace;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use crate::bootstrap::EXITED;
use crate::observe::trace::ENV_TRACE;
use rustix::fs::Access;
use thiserror::Error;
use tickwire_components::limits::LOCAL_RANKS_MAX;

/// What becomes of the others when a rank fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They get SIGTERM, and SIGKILL if they are still there two seconds later.
    #[default]
    End,
    /// They go on; their engines learn which rank has ended.
    Continue,
}

/// Where the ranks' stdout and stderr go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Through the launcher, by whole lines, to its own stdout and stderr.
    #[default]
    Forward,
    /// The ranks write to the launcher's stdout and stderr themselves; their lines may mix.
    Inherit,
}

/// A job to be started: `n` processes of one program.
///
/// Each gets the variables that [`Bootstrap::from_env`](crate::bootstrap::Bootstrap::from_env) reads. Rank 0 has the
/// launcher's stdin, the others an empty one.
#[derive(Clone, Debug)]
pub struct Job {
    ranks: u32,
    program: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    on_failure: OnFailure,
    output: Output,
    tag_output: bool,
    print_name: bool,
    pin: bool,
    trace: Option<PathBuf>,
}

impl Job {
    /// A job of so many ranks: 1 to [`LOCAL_RANKS_MAX`].
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks,
            program: OsString::new(),
            args: Vec::new(),
            env: Vec::new(),
            on_failure: OnFailure::default(),
            output: Output::default(),
            tag_output: false,
            print_name: false,
            pin: false,
            trace: None,
        }
    }

    /// The program of every rank: a path, or a name that is searched in PATH.
    #[must_use]
    pub fn program(mut self, program: impl Into<OsString>) -> Self {
        self.program = program.into();
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable in every rank's environment, which is otherwise the launcher's.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// What becomes of the others when a rank fails; [`OnFailure::End`] unless said otherwise.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Where the ranks' output goes; [`Output::Forward`] unless said otherwise.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Whether each forwarded line starts with `[rank] `.
    #[must_use]
    pub fn tag_output(mut self, tag: bool) -> Self {
        self.tag_output = tag;
        self
    }

    /// Whether the launcher says the job's name and its own number on stderr before it starts the ranks.
    #[must_use]
    pub fn print_name(mut self, print: bool) -> Self {
        self.print_name = print;
        self
    }

    /// Whether each rank is bound to one core: of the cores that the launcher may use, the one at rank modulo their
    /// number.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// A file for the events of all ranks, which Perfetto and `chrome://tracing` open; unless said otherwise, the one that
    /// [`ENV_TRACE`] names. Each rank writes a file beside it, and they become one when all have ended, however that was.
    #[must_use]
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace = Some(path.into());
        self
    }

    /// Starts the ranks and returns when all have ended. SIGINT and SIGTERM are caught meanwhile and end the ranks.
    /// The soft limit of open files is raised for the calling process, not for the ranks. What a rank starts itself
    /// is its own to end.
    ///
    /// # Errors
    /// The job cannot be started; ranks that had been started are ended first.
    pub fn run(mut self) -> Result<JobOutcome, LaunchError> {
        match self.ranks as usize {
            0 => return Err(LaunchError::NoRanks),
            1..=LOCAL_RANKS_MAX => {}
            _ => return Err(LaunchError::TooManyRanks { ranks: self.ranks }),
        }
        let program = resolve(&self.program, std::env::var_os("PATH"))?;
        ranks::raise_file_limit(&self)?;
        let named = std::env::var_os(ENV_TRACE).filter(|path| !path.is_empty()).map(PathBuf::from);
        self.trace = trace::prepare(self.trace.or(named), self.ranks)?;
        // What the caller has printed comes before what the ranks print.
        let _ = io::stdout().flush();
        let outcome = supervise::run(&self, &program);
        trace::merge(self.trace.as_deref(), self.ranks, outcome)
    }
}

/// How the process of a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RankStatus {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// With exit status 0, but its engine had not finished: its peers may still have been waiting for it.
    Unfinished,
    /// Its status could not be read: the launching process ignores SIGCHLD or has reaped it elsewhere.
    Lost,
}

impl RankStatus {
    fn new(status: io::Result<ExitStatus>, engaged: bool) -> Self {
        match status.map(|status| (status.code(), status.signal())) {
            Ok((Some(0), _)) if engaged => RankStatus::Unfinished,
            Ok((Some(code), _)) => RankStatus::Exited(code),
            Ok((None, Some(signal))) => RankStatus::Killed(signal),
            _ => RankStatus::Lost,
        }
    }

    /// Exit status 0, and nothing left unfinished.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == RankStatus::Exited(0)
    }

    /// As a shell says it: the exit status, or 128 + signal.
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
    /// The first rank that failed of itself, not by being ended, and how.
    pub first_failure: Option<(u32, RankStatus)>,
    /// The signal that made the launcher end the job, if one did.
    pub interrupted: Option<i32>,
    /// The end of every rank that was started, in rank order.
    pub statuses: Vec<RankStatus>,
    /// Why the events of the ranks did not become one file: those of each are still beside it.
    pub trace_error: Option<String>,
}

impl JobOutcome {
    /// The exit status for the launcher: 0, the first failing rank's, or 128 + signal if a signal ended the job.
    #[must_use]
    pub fn code(&self) -> i32 {
        match (self.interrupted, self.first_failure) {
            (Some(signal), _) => 128 + signal,
            (None, Some((_, status))) => status.code(),
            (None, None) => i32::from(self.trace_error.is_some()),
        }
    }
}

/// Why a job was not started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A job of no ranks.
    #[error("0 ranks are no job: give 1 to {LOCAL_RANKS_MAX}")]
    NoRanks,
    /// More ranks than one host serves.
    #[error("{ranks} ranks are too many for one host: give 1 to {LOCAL_RANKS_MAX}")]
    TooManyRanks {
        /// The number asked for.
        ranks: u32,
    },
    /// No program was named.
    #[error("no program to start: name one")]
    NoProgram,
    /// There is no such program.
    #[error("program `{program}` was not found{}", if program.contains('/') { ": check the path" } else {
        " in PATH: give its path, such as ./NAME"
    })]
    ProgramNotFound {
        /// As it was given.
        program: String,
    },
    /// The program is a directory, or a file without the permission to execute it.
    #[error("`{program}` is not an executable file: name a program, or allow its execution with chmod +x")]
    NotExecutable {
        /// As it was found.
        program: String,
    },
    /// The file for events cannot be written.
    #[error("trace file {path}: {source}; name a file in a directory where you may write")]
    Trace {
        /// Its path.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The limit of open files is too low.
    #[error("{ranks} ranks need {needed} open files of {limit}: use `ulimit -n {needed}`, or start fewer ranks")]
    Files {
        /// Ranks asked for.
        ranks: u32,
        /// Descriptors needed.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// A rank could not be started.
    #[error("rank {rank} could not be started: {source}; {}", hint(source))]
    Spawn {
        /// Which one.
        rank: u32,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("{operation}: {source}; this needs Linux 5.3 or later")]
    System {
        /// What was tried.
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl LaunchError {
    /// Whether the caller asked for something that cannot be, rather than the system lacking something.
    #[must_use]
    pub fn is_wrong_use(&self) -> bool {
        use LaunchError::{NoProgram, NoRanks, NotExecutable, ProgramNotFound, TooManyRanks, Trace};
        matches!(
            self,
            NoRanks | TooManyRanks { .. } | NoProgram | ProgramNotFound { .. } | NotExecutable { .. } | Trace { .. }
        )
    }
}

fn hint(error: &io::Error) -> &'static str {
    match rustix::io::Errno::from_io_error(error) {
        Some(rustix::io::Errno::AGAIN) => "raise the limit of processes with `ulimit -u`, or start fewer ranks",
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => "raise the limit of open files with `ulimit -n`",
        Some(rustix::io::Errno::NOMEM) => "start fewer ranks",
        _ => "check that the program runs by itself",
    }
}

/// The file that `execvp` would take, so that a wrong name is one message before anything is started.
fn resolve(program: &OsStr, path: Option<OsString>) -> Result<PathBuf, LaunchError> {
    if program.is_empty() {
        return Err(LaunchError::NoProgram);
    }
    let candidates: Vec<PathBuf> = if program.as_encoded_bytes().contains(&b'/') {
        vec![program.into()]
    } else {
        let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        // An empty entry means the current directory; without the dot it would be searched in PATH again.
        std::env::split_paths(&path).map(|dir| Path::new(".").join(dir).join(program)).collect()
    };
    let executable = |p: &&PathBuf| p.is_file() && rustix::fs::access(*p, Access::EXEC_OK).is_ok();
    if let Some(found) = candidates.iter().find(executable) {
        return Ok(found.clone());
    }
    match candidates.iter().find(|p| p.exists()) {
        Some(found) => Err(LaunchError::NotExecutable { program: found.display().to_string() }),
        None => Err(LaunchError::ProgramNotFound { program: program.display().to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_jobs_are_refused_with_one_line_before_anything_starts() {
        let wrong = [
            (Job::new(0).program("true"), "0 ranks are no job: give 1 to 4096"),
            (Job::new(4097).program("true"), "4097 ranks are too many for one host: give 1 to 4096"),
            (Job::new(1), "no program to start: name one"),
            (Job::new(1).program("no-such-program"), "`no-such-program` was not found in PATH"),
            (Job::new(1).program("./no/such/program"), "`./no/such/program` was not found: check the path"),
            (Job::new(1).program("/etc/passwd"), "`/etc/passwd` is not an executable file"),
            (Job::new(1).program("/tmp"), "`/tmp` is not an executable file"),
        ];
        for (job, expected) in wrong {
            let error = job.run().unwrap_err();
            assert!(error.is_wrong_use());
            let text = error.to_string();
            assert!(text.contains(expected) && text.lines().count() == 1, "{text}");
        }
    }

    #[test]
    fn a_program_is_searched_in_path_as_execvp_does() {
        let found = resolve("sh".as_ref(), Some("/nowhere:/bin".into())).unwrap();
        assert_eq!(found, Path::new("/bin/sh"));
        assert!(resolve("sh".as_ref(), Some("/nowhere".into())).is_err());
        assert!(resolve("/bin/sh".as_ref(), Some("/nowhere".into())).is_ok());
        assert!(resolve("sh".as_ref(), None).is_ok());
    }

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
        assert_eq!(JobOutcome { interrupted: None, ..outcome }.code(), 3);
        assert_eq!(JobOutcome::default().code(), 0);
        let lost = Some("no space left".to_owned());
        assert_eq!(JobOutcome { trace_error: lost, ..JobOutcome::default() }.code(), 1);
    }

    #[test]
    fn a_job_reports_the_end_of_each_rank() {
        let script = "exit $((TICKWIRE_RANK == 2 ? 7 : 0))";
        let job = Job::new(4).program("/bin/sh").args(["-c", script]);
        let outcome = job.on_failure(OnFailure::Continue).run().unwrap();
        assert_eq!(outcome.first_failure, Some((2, RankStatus::Exited(7))));
        let statuses = [0, 0, 7, 0].map(RankStatus::Exited);
        assert_eq!(outcome.statuses, statuses);
    }

    #[test]
    fn variables_of_the_job_never_replace_the_launchers_own() {
        let script = r#"test "$TICKWIRE_RANK" != 99 && test "$TICKWIRE_SIZE" = 2 && test "$OWN" = yes"#;
        let job = Job::new(2).program("sh").args(["-c", script]).env("TICKWIRE_RANK", "99").env("OWN", "yes");
        assert_eq!(job.output(Output::Inherit).pin(true).run().unwrap().code(), 0);
    }
}
