//! A job as it is asked for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::programs::Program;

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

/// A job to be started: processes of one program, or of [several](Self::and).
///
/// Each gets the variables that [`Bootstrap::from_env`](crate::bootstrap::Bootstrap::from_env) reads, and the number of
/// its program in [`ENV_APPNUM`](crate::bootstrap::ENV_APPNUM). Rank 0 has the launcher's stdin, the others an empty one.
#[derive(Clone, Debug)]
pub struct Job {
    /// The programs before the last one.
    before: Vec<Program>,
    last: Program,
    pub(super) on_failure: OnFailure,
    pub(super) output: Output,
    pub(super) tag_output: bool,
    pub(super) print_name: bool,
    pub(super) pin: bool,
    pub(super) trace: Option<PathBuf>,
    pub(super) timeout: Option<Duration>,
}

impl Job {
    /// A job of so many ranks: 1 to [`LOCAL_RANKS_MAX`](tickwire_components::limits::LOCAL_RANKS_MAX).
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        Self {
            before: Vec::new(),
            last: Program { ranks, ..Program::default() },
            on_failure: OnFailure::default(),
            output: Output::default(),
            tag_output: false,
            print_name: false,
            pin: false,
            trace: None,
            timeout: None,
        }
    }

    /// Adds so many ranks of a program of their own, as `:` does on the command line of MPI's `mpiexec`. Their numbers
    /// follow those before. [`program`](Self::program), [`args`](Self::args), [`env`](Self::env) and
    /// [`directory`](Self::directory) are about these ranks from here on.
    ///
    /// ```
    /// # fn main() -> Result<(), tickwire::launch::LaunchError> {
    /// let job = tickwire::launch::Job::new(1).program("sh").args(["-c", "test $TICKWIRE_RANK = 0"]);
    /// let job = job.and(2).program("sh").args(["-c", "test $TICKWIRE_APPNUM = 1"]).env("LEVEL", "3");
    /// assert_eq!(job.run()?.code(), 0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn and(mut self, ranks: u32) -> Self {
        self.before.push(std::mem::replace(&mut self.last, Program { ranks, ..Program::default() }));
        self
    }

    /// In the order of their ranks.
    pub(super) fn programs(&self) -> impl Iterator<Item = &Program> {
        self.before.iter().chain([&self.last])
    }

    /// The ranks of all programs: no more than one host serves once the job has been checked.
    pub(super) fn ranks(&self) -> u32 {
        self.programs().fold(0, |sum: u32, program| sum.saturating_add(program.ranks))
    }

    /// The program of every rank: a path, or a name that is searched in PATH. A relative path is one from the
    /// [`directory`](Self::directory) where the ranks start.
    #[must_use]
    pub fn program(mut self, program: impl Into<OsString>) -> Self {
        self.last.name = program.into();
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.last.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable in every rank's environment, which is otherwise the launcher's.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.last.env.push((name.into(), value.into()));
        self
    }

    /// The directory in which the ranks start: the launcher's unless said otherwise.
    #[must_use]
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.last.directory = Some(path.into());
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

    /// Whether each rank is bound to one processor of those that the launcher may use.
    ///
    /// Processors to which nobody else of the same user is bound, and on which none of their threads runs, come first;
    /// then one thread of each core before its second, and one NUMA node's before the next one's. If there are more
    /// ranks than processors, they are given out in turn again. What is bound at the same time by two launchers of one
    /// user is not the same processor as long as there are others.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// A file for the events of all ranks, which Perfetto and `chrome://tracing` open; unless said otherwise, the one that
    /// [`ENV_TRACE`](crate::ENV_TRACE) names. Each rank writes a file beside it, and they become one when all have ended, however that was.
    #[must_use]
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace = Some(path.into());
        self
    }

    /// How long the job may take; it has no bound unless said otherwise. Then its ranks get SIGTERM, and SIGKILL two
    /// seconds later, and [`JobOutcome::timed_out`](super::JobOutcome::timed_out) says so.
    #[must_use]
    pub fn timeout(mut self, longest: Duration) -> Self {
        self.timeout = Some(longest);
        self
    }
}
