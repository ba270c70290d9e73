//! What the launcher waits for: an epoll whose events say what they are about, and which rank they concern.

use super::error::LaunchError;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Most events of one wait.
const EVENTS: usize = 256;

// What an event is about: the upper half of its data. The lower half has the rank.

/// A signal has come for the launcher.
pub(super) const SIGNAL: u64 = 0;
/// The process of a rank has ended.
pub(super) const EXIT: u64 = 1;
/// The bootstrap connection of a rank.
pub(super) const SOCKET: u64 = 2;
/// A pipe of the ranks is ready. The pipes have an epoll of their own.
pub(super) const PIPES: u64 = 3;
/// stdout or stderr of the launcher.
pub(super) const SINK: u64 = 4;
/// stdout of a rank. The next number is its stderr.
pub(super) const STREAM: u64 = 5;

/// Bytes of one read, from a pipe or a socket.
pub(super) const READ_BYTES: usize = 64 << 10;

/// Most bytes that are read from a pipe or socket of a rank that has ended: what a pipe can hold. A process that the rank has left behind
/// could otherwise write for ever.
pub(super) const LEFT_BYTES_MAX: usize = 1 << 20;

/// Makes an error of a failed system call.
pub(super) fn failed(operation: &'static str) -> impl Fn(Errno) -> LaunchError {
    move |source| LaunchError::System { operation, source: source.into() }
}

/// Adds a descriptor. When it is readable, its events say `about` and `rank`.
pub(super) fn watch(poll: &OwnedFd, fd: impl AsFd, about: u64, rank: usize) -> Result<(), LaunchError> {
    let data = epoll::EventData::new_u64(about << 32 | rank as u64);
    epoll::add(poll, fd, data, epoll::EventFlags::IN).map_err(failed("epoll_ctl"))
}

/// Waits for events, each as (about, rank, flags).
pub(super) fn wait(
    poll: &OwnedFd,
    timeout: Option<&Timespec>,
) -> Result<Vec<(u64, usize, epoll::EventFlags)>, LaunchError> {
    let mut events = Vec::with_capacity(EVENTS);
    match epoll::wait(poll, rustix::buffer::spare_capacity(&mut events), timeout) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(failed("epoll_wait")(error)),
    }
    let split = |event: epoll::Event| {
        let (data, flags) = (event.data.u64(), event.flags);
        (data >> 32, (data & u64::from(u32::MAX)) as usize, flags)
    };
    Ok(events.into_iter().map(split).collect())
}
