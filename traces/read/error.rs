//! Why a file of events is not read.

use std::path::PathBuf;
use std::{fmt, io};

/// Why a file is not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The system refuses it.
    Io(io::Error),
    /// A line is no event.
    Line {
        /// Which, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// Something is no record of an event.
    Record {
        /// Where, in bytes from the beginning of the file.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no event that has a time.
    Empty,
    /// One of several files.
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<ReadError>,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => error.fmt(f),
            ReadError::Line { line, reason } => {
                write!(f, "line {line} is no event of a trace ({reason}); name a file that `--trace` has written")
            }
            ReadError::Record { offset, reason } => write!(f, "byte {offset}: {reason}"),
            ReadError::File { path, error } => write!(f, "{}: {error}", path.display()),
            ReadError::Empty => f.write_str("there is no event in it; trace a program that builds an engine"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        ReadError::Io(error)
    }
}
