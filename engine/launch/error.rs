//! Why a job was not started.

use std::io::{self};
use thiserror::Error;
use tickwire_components::limits::LOCAL_RANKS_MAX;

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
    /// A variable that cannot be set in any environment.
    #[error("`{name}` is no name of a variable, or its value has a zero byte: give NAME=VALUE")]
    Variable {
        /// The variable's name.
        name: String,
    },
    /// Ranks cannot start in this directory.
    #[error("directory {path}: {source}; name one that is there and that you may enter")]
    Directory {
        /// As it was given.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The file for events cannot be written.
    #[error("trace file {path}: {source}; name a file in a directory where you may write")]
    Trace {
        /// The file's path.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A rank would write its events to a file that somebody else has written.
    #[error("{path} is there and is no trace, and a rank would replace it: move it, or name another trace file")]
    TraceTaken {
        /// The file's path.
        path: String,
    },
    /// The programs of the job name several files for events.
    #[error("TICKWIRE_TRACE is `{first}` and `{other}`: a job has one trace; name it by --trace")]
    TwoTraces {
        /// The file that one program names.
        first: String,
        /// The file that another program names.
        other: String,
    },
    /// The limit of open files is too low.
    #[error("{ranks} ranks need {needed} open files of {limit}: use `ulimit -n {needed}`, or start fewer ranks")]
    Files {
        /// The number of ranks asked for.
        ranks: u32,
        /// The number of descriptors needed.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// A rank could not be started.
    #[error("rank {rank} could not be started: {source}; {}", hint(source))]
    Spawn {
        /// The rank.
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
    /// Whether the caller has asked for something impossible. If not, the system has refused or lacks something.
    #[must_use]
    pub fn is_wrong_use(&self) -> bool {
        use LaunchError::{
            Directory, NoProgram, NoRanks, NotExecutable, ProgramNotFound, TooManyRanks, Trace, TraceTaken, TwoTraces,
            Variable,
        };
        match self {
            NoRanks | TooManyRanks { .. } | NoProgram | ProgramNotFound { .. } | NotExecutable { .. } => true,
            Variable { .. } | Directory { .. } | Trace { .. } | TraceTaken { .. } | TwoTraces { .. } => true,
            LaunchError::Files { .. } | LaunchError::Spawn { .. } | LaunchError::System { .. } => false,
        }
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
