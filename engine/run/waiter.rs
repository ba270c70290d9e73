//! The descriptors that an engine sleeps on.

use rustix::event::epoll;
use rustix::fd::{BorrowedFd, OwnedFd};

/// The descriptors that an engine sleeps on.
pub(crate) struct Waiter {
    pub(super) epoll: OwnedFd,
    /// Whether some transport has no descriptor, so that a sleep must be short.
    pub(super) polls: bool,
    /// Whether a call waits for a word in shared memory. Its writer rings no doorbell, so that a sleep must be short.
    pub(crate) on_memory: bool,
    /// Whether a sleep is prepared and has not ended. Until it ends, whoever has something for the engine rings a doorbell.
    pub(super) armed: bool,
}

impl Waiter {
    /// An epoll set of these descriptors. `None` stands for a transport that has no descriptor.
    ///
    /// # Errors
    /// If the process may open no more descriptors.
    pub(crate) fn new<'a>(descriptors: impl Iterator<Item = Option<BorrowedFd<'a>>>) -> Result<Self, String> {
        let error = |e| format!("cannot watch descriptors ({e}): raise the limit of open files");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(error)?;
        let mut polls = false;
        for (index, descriptor) in descriptors.enumerate() {
            match descriptor {
                Some(fd) => {
                    let data = epoll::EventData::new_u64(index as u64);
                    epoll::add(&epoll, fd, data, epoll::EventFlags::IN).map_err(error)?;
                }
                None => polls = true,
            }
        }
        Ok(Waiter { epoll, polls, on_memory: false, armed: false })
    }
}
