//! What is done with control sockets of every kind.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};

/// The next connection that waits. It blocks nobody and is not inherited.
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// Whether there is something to read, or the other end is closed.
pub(crate) fn has_news(socket: impl AsFd) -> bool {
    let mut byte = [0u8; 1];
    let peeked = rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
}
