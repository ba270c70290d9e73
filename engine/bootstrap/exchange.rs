//! What an engine needs from whatever connects the ranks of its job.

use super::error::BootstrapError;
use super::wire::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use std::os::fd::BorrowedFd;

/// The reason that is reported for a rank whose process has ended normally.
pub const EXITED: &str = "exited";

/// How a rank tells the others its addresses. All calls block for a bounded time, except [`poll_event`](Self::poll_event), which never
/// blocks.
pub trait Exchange: Send {
    /// The number of this rank, from 0 and below [`size`](Self::size).
    fn rank(&self) -> u32;
    /// The number of ranks in the job.
    fn size(&self) -> u32;
    /// The job's name. It is the same on every rank and unique on this host: 1 to [`JOB_BYTES_MAX`](super::JOB_BYTES_MAX) of `[a-z0-9-]`.
    fn job(&self) -> &str;
    /// Publishes `value` under this rank and `key`. It replaces an earlier value of the key.
    ///
    /// # Errors
    /// The key is longer than [`KEY_BYTES_MAX`], the value is longer than [`VALUE_BYTES_MAX`], or the connection fails.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError>;
    /// Returns when every live rank has called this as often as this rank. Values that the others put before are visible afterwards. A rank
    /// that has ended or finished is not waited for.
    ///
    /// # Errors
    /// [`BootstrapError::Timeout`] when a live rank does not come, or the connection fails.
    fn fence(&mut self) -> Result<(), BootstrapError>;
    /// The value that `rank` has put under `key`. `None` if it has put none.
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
    /// A descriptor that is readable when [`poll_event`](Self::poll_event) has an event. `None` if there will never be an event.
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The next event, if one has come. Never blocks.
    fn poll_event(&mut self) -> Option<BootstrapEvent> {
        None
    }
    /// Whether [`poll_event`](Self::poll_event) reports ranks that end. If it does not, receives from any source learn of the end of ranks
    /// that were never contacted by asking the system, which knows only those on this host.
    fn tells_ends(&self) -> bool {
        false
    }
    /// Whether all ranks run on this host, so that no network is needed between them.
    fn one_host(&self) -> bool {
        true
    }
    /// The number of hosts on which the ranks run, if known. All ranks must say the same.
    fn hosts(&self) -> Option<u32> {
        self.one_host().then_some(1)
    }
    /// The number of the host on which a rank runs, from 0, if known. All ranks must say the same of a rank: collective operations send less
    /// between hosts than within them, and all members must agree on who sends.
    fn host_of(&self, rank: u32) -> Option<u32> {
        (self.one_host() && rank < self.size()).then_some(0)
    }
    /// What connects the ranks, as text for people.
    fn describe(&self) -> String {
        "an exchange of the application's own".to_owned()
    }
    /// Asks for the end of the whole job with this exit status, without waiting for it. The caller then ends its own process with the same
    /// status.
    fn abort(&self, _code: i32) {}
    /// Announces that this rank takes no further part. From then on fences do not wait for it, its exit is no failure, and it may no longer
    /// get events.
    fn finish(&mut self) {}
    /// Ends this rank's part without [`finish`](Self::finish), because its engine was dropped half way or by a panic. The end of the
    /// process then counts as a failure.
    fn abandon(&mut self) {}
}

/// News about the rest of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BootstrapEvent {
    /// The process of a rank is gone. Each rank is reported once.
    RankEnded {
        /// The rank.
        rank: u32,
        /// [`EXITED`] for a clean end; otherwise the cause, such as "killed by signal 9 (SIGKILL)".
        reason: String,
    },
    /// The launcher is gone. No further events will come, and requests fail. Reported once.
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
