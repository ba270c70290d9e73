//! The control socket of an open connection.

use super::parts::Parts;
use super::sockets::Socket;
use crate::processes::Process;
use crate::watching::{Token, Watched};
use rustix::io::Errno;

/// The control socket of a connection, and the peer's process.
pub(crate) struct Line<M: Parts> {
    /// The socket for everything besides frames.
    pub(crate) socket: M::Socket,
    /// The peer's process, if this host's kernel knows it. Its end counts even if a child of it still holds the socket.
    process: Option<Process>,
    /// The peer's process id, as the peer reports it.
    pid: u32,
    /// What this medium keeps besides.
    pub(crate) more: M::Line,
}

impl<M: Parts> Line<M> {
    /// A connection whose sides have agreed.
    pub(super) fn new(socket: M::Socket, process: Option<Process>, pid: u32, more: M::Line) -> Self {
        Line { socket, process, pid, more }
    }

    /// The peer's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The peer's process, if this host's kernel knows it, and what this medium keeps.
    pub(crate) fn process_and_more(&mut self) -> (Option<&Process>, &mut M::Line) {
        (self.process.as_ref(), &mut self.more)
    }

    /// The peer's process, if this host's kernel knows it.
    pub(super) fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Stops watching for the end of the process.
    pub(super) fn forget_process(&self, watched: &Watched) {
        if let Some(descriptor) = self.process().and_then(Process::descriptor) {
            watched.forget(descriptor);
        }
    }

    /// Behaves as if the kernel had no descriptor for the process.
    #[cfg(all(test, not(miri)))]
    pub(super) fn lose_process(&mut self, watched: &Watched) {
        if let Some(descriptor) = self.process.as_mut().and_then(Process::forget) {
            watched.forget(&descriptor);
        }
    }

    /// Hangs up, and stops watching socket and process.
    pub(super) fn cut(self, watched: &Watched) {
        hang_up(watched, &self.socket);
        self.forget_process(watched);
    }

    /// Starts to watch the socket and the peer's process.
    pub(super) fn watch(&self, watched: &Watched, link: u32) -> Result<(), Errno> {
        watched.add(&self.socket, Token::Line(link))?;
        match self.process().and_then(Process::descriptor) {
            Some(descriptor) => watched.add(descriptor, Token::Process(link)),
            None => Ok(()),
        }
    }
}

/// Closes a control connection for its peer, even if a child process holds it too.
pub(super) fn hang_up(watched: &Watched, socket: &impl Socket) {
    watched.forget(socket);
    socket.hang_up();
}
