//! A connection that this side asks for.

use super::line;
use super::parts::Parts;
use super::sockets::Socket;
use crate::handshake::Packet;
use crate::processes::{self, Process};
use crate::watching::Watched;

/// Between two attempts, ns.
const RETRY_NS: u64 = 1_000_000;

/// A connection that this side asks for. It is asked for as long as the other end lives, which its host's kernel says: a process
/// that computes, or is stopped, answers when it goes on.
pub(crate) struct Call<M: Parts> {
    /// Who is to answer, if it is on this host.
    pub(super) process: Option<Process>,
    /// Is connected once `greeted`.
    pub(crate) socket: Option<M::Socket>,
    pub(super) greeted: bool,
    /// When it was asked for first, and before when it is not tried again, ns.
    pub(super) started_ns: u64,
    pub(super) next_ns: u64,
    /// What this medium keeps besides.
    pub(crate) request: M::Request,
}

impl<M: Parts> Call<M> {
    /// Tries again after a moment only.
    pub(crate) fn wait(&mut self, now_ns: u64) {
        self.next_ns = now_ns.saturating_add(RETRY_NS);
    }

    /// That nobody will answer, in words, if that is so.
    pub(crate) fn process_ended(&self) -> Option<String> {
        let process = self.process.as_ref().filter(|process| process.has_ended())?;
        Some(format!("{} before it answered", processes::ended(process.pid())))
    }

    /// Says why the attempt is given up, to a peer that has been greeted and may answer later.
    pub(super) fn refuse(&mut self, reason: &str) {
        if let Some(socket) = self.socket.as_mut().filter(|_| self.greeted) {
            socket.send_packet(&Packet::Refused(reason.to_owned()));
        }
    }

    /// Gives the attempt up.
    pub(super) fn hang_up(mut self, watched: &Watched) {
        self.drop_socket(watched);
        self.forget_process(watched);
    }

    /// The end of the process counts no longer.
    pub(super) fn forget_process(&self, watched: &Watched) {
        if let Some(descriptor) = self.process.as_ref().and_then(Process::descriptor) {
            watched.forget(descriptor);
        }
    }

    /// Gives one attempt up; another one may follow.
    pub(super) fn drop_socket(&mut self, watched: &Watched) {
        if let Some(socket) = self.socket.take() {
            line::hang_up(watched, &socket);
        }
        self.greeted = false;
    }
}
