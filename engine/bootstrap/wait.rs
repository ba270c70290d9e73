//! Bounded waits.

use super::error::BootstrapError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The time that one request may take.
pub(super) struct Wait {
    operation: &'static str,
    ms: u64,
    since: Instant,
}

impl Wait {
    pub(super) fn new(operation: &'static str, patience: Duration) -> Self {
        Self { operation, ms: patience.as_millis() as u64, since: Instant::now() }
    }

    /// Returns when `fd` may be ready. The caller tries, and waits again if it is not.
    ///
    /// # Errors
    /// [`BootstrapError::Timeout`] if the time is over.
    pub(super) fn until(&self, fd: BorrowedFd<'_>, flags: PollFlags) -> Result<(), BootstrapError> {
        let left_ms = self.left().as_millis() as u64;
        if left_ms == 0 {
            return Err(self.over());
        }
        let timeout = Timespec { tv_sec: (left_ms / 1000) as i64, tv_nsec: (left_ms % 1000 * 1_000_000) as i64 };
        match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(source) => Err(BootstrapError::System { operation: "poll", source: source.into() }),
        }
    }

    /// The rest of the time.
    pub(super) fn left(&self) -> Duration {
        Duration::from_millis(self.ms).saturating_sub(self.since.elapsed())
    }

    pub(super) fn over(&self) -> BootstrapError {
        BootstrapError::Timeout { operation: self.operation, ms: self.ms }
    }
}
