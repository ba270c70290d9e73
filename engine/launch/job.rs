//! The description of a job to start.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::programs::Program;

/// What happens to the other ranks when one rank fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// They get SIGTERM, and SIGKILL if they are still there two seconds later.
    #[default]
    End,
    /// They go on. Their engines learn which rank has ended.
    Continue,
}

/// Where the ranks' stdout and stderr go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Through the launcher, in whole lines, to its own stdout and stderr.
    #[default]
    Forward,
    /// The ranks write directly to the launcher's stdout and stderr. Their lines may mix.
    Inherit,
}

/// A job to be started: processes of one program, or of [several](Self::and).
///
/// Each process gets the variables that [`Bootstrap::from_env`](crate::bootstrap::Bootstrap::from_env) reads, and the number of its program
/// in [`ENV_APPNUM`](crate::bootstrap::ENV_APPNUM). Rank 0 has the launcher's stdin, the others an empty one.
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
    /// A job of this many ranks: 1 to [`LOCAL_RANKS_MAX`](tickwire_components::limits::LOCAL_RANKS_MAX).
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

    /// Adds ranks that run another program, as `:` does on the command line of MPI's `mpiexec`. Their numbers follow those of the ranks
    /// before. From here on, [`program`](Self::program), [`args`](Self::args), [`env`](Self::env) and [`directory`](Self::directory) set
    /// the values of these ranks.
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

    /// All programs, in the order of their ranks.
    pub(super) fn programs(&self) -> impl Iterator<Item = &Program> {
        self.before.iter().chain([&self.last])
    }

    /// The number of ranks of all programs. Once the job has been checked, it is at most what one host serves.
    pub(super) fn ranks(&self) -> u32 {
        self.programs().fold(0, |sum: u32, program| sum.saturating_add(program.ranks))
    }

    /// Sets the program of every rank: a path, or a name that is searched in PATH. A relative path starts at the
    /// [`directory`](Self::directory) in which the ranks start.
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

    /// Sets a variable in every rank's environment. All other variables are the launcher's.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.last.env.push((name.into(), value.into()));
        self
    }

    /// Sets the directory in which the ranks start. By default it is the launcher's.
    #[must_use]
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.last.directory = Some(path.into());
        self
    }

    /// Sets what happens to the other ranks when one rank fails. [`OnFailure::End`] by default.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets where the ranks' output goes. [`Output::Forward`] by default.
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

    /// Whether the launcher writes the job's name and its own process id to stderr before it starts the ranks.
    #[must_use]
    pub fn print_name(mut self, print: bool) -> Self {
        self.print_name = print;
        self
    }

    /// Whether each rank is bound to one of the processors that the launcher may use.
    ///
    /// Processors come first to which no other thread of the same user is bound, and on which none runs now. Among these, one hardware
    /// thread of each core comes before the second ones, and the processors of one NUMA node before those of the next. If there are more
    /// ranks than processors, the processors are assigned again in turn. Two launchers of one user that bind ranks at the same time use
    /// different processors as long as there are enough.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// Sets a file for the events of all ranks, which Perfetto and `chrome://tracing` can open. By default it is the file that
    /// [`ENV_TRACE`](crate::ENV_TRACE) names, in the variables of a program or else in the launcher's. Each rank writes a file beside it. When all ranks have ended, in whatever way, these files
    /// are merged into one.
    #[must_use]
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace = Some(path.into());
        self
    }

    /// Sets how long the job may take. There is no limit by default. When the time is over, the ranks get SIGTERM, and SIGKILL two seconds
    /// later, and [`JobOutcome::timed_out`](super::JobOutcome::timed_out) is `true`.
    #[must_use]
    pub fn timeout(mut self, longest: Duration) -> Self {
        self.timeout = Some(longest);
        self
    }
}
