//! The errors of reading a file of events.

use std::path::PathBuf;
use std::{fmt, io};

/// Why a file cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// An error of the operating system.
    Io(io::Error),
    /// A line is not a valid event.
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A record is invalid.
    Record {
        /// Its offset from the beginning of the file, bytes.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The file has no event with a time.
    Empty,
    /// One of several files cannot be read.
    File {
        /// The path of the file.
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
