//! A job as it is asked for.

use std::ffi::OsString;
use std::path::PathBuf;

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
    pub(super) ranks: u32,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) on_failure: OnFailure,
    pub(super) output: Output,
    pub(super) tag_output: bool,
    pub(super) print_name: bool,
    pub(super) pin: bool,
    pub(super) trace: Option<PathBuf>,
}

impl Job {
    /// A job of so many ranks: 1 to [`LOCAL_RANKS_MAX`](tickwire_components::limits::LOCAL_RANKS_MAX).
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
    /// [`ENV_TRACE`](crate::ENV_TRACE) names. Each rank writes a file beside it, and they become one when all have ended, however that was.
    #[must_use]
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace = Some(path.into());
        self
    }
}
