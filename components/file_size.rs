//! The bound that the system sets to the length of this process's files, those in memory included (`RLIMIT_FSIZE`, `ulimit
//! -f`). Who makes a longer one is ended by a signal (SIGXFSZ), so it is looked at before.

use rustix::process::{Resource, getrlimit};
use thiserror::Error;

/// A file would be longer than this process may make one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "files of this process may have {most} bytes at most, not {bytes} (RLIMIT_FSIZE): raise the limit, as `ulimit -f` does"
)]
pub struct FileTooLong {
    /// How long it would be, bytes.
    pub bytes: u64,
    /// How long it may be, bytes.
    pub most: u64,
}

/// How long a file may be, bytes; [`u64::MAX`] if there is no bound. Allocates nothing.
pub fn file_bytes_max() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Whether a file may be so long, bytes. Allocates nothing.
///
/// # Errors
/// If it may not.
pub fn check_file_bytes(bytes: u64) -> Result<(), FileTooLong> {
    let most = file_bytes_max();
    if bytes <= most { Ok(()) } else { Err(FileTooLong { bytes, most }) }
}
