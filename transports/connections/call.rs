//! A call: a connection that this process asks for.

use super::line;
use super::parts::Parts;
use super::sockets::Socket;
use crate::handshake::Packet;
use crate::processes::{self, Process};
use crate::watching::Watched;
use tickwire_components::limits::CALL_RETRY_NS;

/// A connection that this process asks for. It is asked for as long as the peer's process runs, as reported by its host's kernel: a process
/// that computes, or is stopped, answers later.
pub(crate) struct Call<M: Parts> {
    /// The process that is called, if it is on this host.
    pub(super) process: Option<Process>,
    /// The socket, which is connected once `greeted` is set.
    pub(crate) socket: Option<M::Socket>,
    pub(super) greeted: bool,
    /// When the call began, and when the next attempt is due, in ns.
    pub(super) started_ns: u64,
    pub(super) next_ns: u64,
    /// What this medium keeps besides.
    pub(crate) request: M::Request,
}

impl<M: Parts> Call<M> {
    /// Postpones the next attempt.
    pub(crate) fn wait(&mut self, now_ns: u64) {
        self.next_ns = now_ns.saturating_add(CALL_RETRY_NS);
    }

    /// If the process has ended, so that nobody will answer: the text that says so.
    pub(crate) fn process_ended(&self) -> Option<String> {
        let process = self.process.as_ref().filter(|process| process.has_ended())?;
        Some(format!("{} before it answered", processes::ended(process.pid())))
    }

    /// Tells a peer that has been greeted, and may answer later, why the call is given up.
    pub(super) fn refuse(&mut self, reason: &str) {
        if let Some(socket) = self.socket.as_mut().filter(|_| self.greeted) {
            socket.send_packet(&Packet::Refused(reason.to_owned()));
        }
    }

    /// Ends the call.
    pub(super) fn hang_up(mut self, watched: &Watched) {
        self.drop_socket(watched);
        self.forget_process(watched);
    }

    /// Stops watching for the end of the process.
    pub(super) fn forget_process(&self, watched: &Watched) {
        if let Some(descriptor) = self.process.as_ref().and_then(Process::descriptor) {
            watched.forget(descriptor);
        }
    }

    /// Ends one attempt; another one may follow.
    pub(super) fn drop_socket(&mut self, watched: &Watched) {
        if let Some(socket) = self.socket.take() {
            line::hang_up(watched, &socket);
        }
        self.greeted = false;
    }
}
