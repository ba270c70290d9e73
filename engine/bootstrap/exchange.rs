//! What an engine asks of whatever connects the ranks of its job.

use super::error::BootstrapError;
use super::wire::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use std::os::fd::BorrowedFd;

/// What is said of a rank whose process has ended in order.
pub const EXITED: &str = "exited";

/// What a rank uses to tell the others its addresses. All calls block for a bounded time, except
/// [`poll_event`](Self::poll_event), which never blocks.
pub trait Exchange: Send {
    /// The number of this rank, from 0 and below [`size`](Self::size).
    fn rank(&self) -> u32;
    /// Ranks in the job.
    fn size(&self) -> u32;
    /// The job's name, the same at every rank and unique on this host: 1 to [`JOB_BYTES_MAX`](super::JOB_BYTES_MAX) of `[a-z0-9-]`.
    fn job(&self) -> &str;
    /// Publishes `value` under this rank and `key`; an earlier value of the key is replaced.
    ///
    /// # Errors
    /// Key or value longer than [`KEY_BYTES_MAX`] and [`VALUE_BYTES_MAX`], or the connection fails.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError>;
    /// Returns when every live rank has called it as often as this one; what they put before is visible after it.
    /// A rank that has ended or finished is not waited for.
    ///
    /// # Errors
    /// [`BootstrapError::Timeout`] when a live rank does not come, or the connection fails.
    fn fence(&mut self) -> Result<(), BootstrapError>;
    /// The value that `rank` has put under `key`, if it has.
    ///
    /// # Errors
    /// No such rank, or the connection fails.
    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError>;
    /// The values of every rank under `key`, in rank order.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn get_all(&mut self, key: &str) -> Result<Vec<Option<Vec<u8>>>, BootstrapError> {
        (0..self.size()).map(|rank| self.get(rank, key)).collect()
    }
    /// Readable when [`poll_event`](Self::poll_event) has something. None: there will never be an event.
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The next event, if one has come. Never blocks.
    fn poll_event(&mut self) -> Option<BootstrapEvent> {
        None
    }
    /// Whether [`poll_event`](Self::poll_event) tells of the ranks that end. Where it does not, receives from any source learn of
    /// ranks that were never contacted by asking the system, which knows those of this host only.
    fn tells_ends(&self) -> bool {
        false
    }
    /// Whether all ranks run on this host, so that no network is needed between them.
    fn one_host(&self) -> bool {
        true
    }
    /// On how many hosts the ranks run, if that is known.
    fn hosts(&self) -> Option<u32> {
        self.one_host().then_some(1)
    }
    /// The number of the host on which a rank runs, from 0, if that is known.
    fn host_of(&self, rank: u32) -> Option<u32> {
        (self.one_host() && rank < self.size()).then_some(0)
    }
    /// What connects the ranks, for people.
    fn describe(&self) -> String {
        "an exchange of the application's own".to_owned()
    }
    /// Asks for the end of the whole job with this exit status, without waiting for it. The caller then ends its own process
    /// with the same.
    fn abort(&self, _code: i32) {}
    /// Announces that this rank takes no further part: fences do not wait for it, its exit is no failure, and it may
    /// no longer be told of events.
    fn finish(&mut self) {}
    /// Ends this rank's part without [`finish`](Self::finish): its engine was dropped half way, or by a panic. What comes of the
    /// process is a failure.
    fn abandon(&mut self) {}
}

/// News about the rest of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BootstrapEvent {
    /// The process of a rank is gone; each rank is reported once.
    RankEnded {
        /// Which one.
        rank: u32,
        /// [`EXITED`] for a clean end; otherwise the cause, such as "killed by signal 9 (SIGKILL)".
        reason: String,
    },
    /// The launcher is gone: no further events will come and requests fail. Reported once.
    LauncherEnded,
}

pub(crate) fn check_key(key: &str) -> Result<(), BootstrapError> {
    match key.len() {
        1..=KEY_BYTES_MAX => Ok(()),
        bytes => Err(BootstrapError::Key { bytes }),
    }
}

pub(crate) fn check_value(value: &[u8]) -> Result<(), BootstrapError> {
    match value.len() {
        0..=VALUE_BYTES_MAX => Ok(()),
        bytes => Err(BootstrapError::Value { bytes }),
    }
}
