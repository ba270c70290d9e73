//! The system's limit for the length of this process's files, including files in memory (`RLIMIT_FSIZE`, `ulimit -f`). A process that
//! exceeds the limit is killed by a signal (SIGXFSZ), so the engine checks the length first.

use rustix::process::{Resource, getrlimit};
use thiserror::Error;

/// A file would be longer than this process may make one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "files of this process may have {most} bytes at most, not {bytes} (RLIMIT_FSIZE): raise the limit, as `ulimit -f` does"
)]
pub struct FileTooLong {
    /// Length that the file would have, bytes.
    pub bytes: u64,
    /// Length that is allowed, bytes.
    pub most: u64,
}

/// The largest length of a file, bytes; [`u64::MAX`] if there is no limit. Allocates nothing.
pub fn file_bytes_max() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Checks that a file may have `bytes` bytes. Allocates nothing.
///
/// # Errors
/// If the limit is lower.
pub fn check_file_bytes(bytes: u64) -> Result<(), FileTooLong> {
    let most = file_bytes_max();
    if bytes <= most { Ok(()) } else { Err(FileTooLong { bytes, most }) }
}
