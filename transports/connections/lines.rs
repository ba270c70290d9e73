//! Control sockets of open connections.

use super::table::{Peer, Stage};
use super::{Heard, Medium, Message, Socket, calling, closing, ending};
use crate::LinkEvent;
use crate::processes::Process;
use crate::watching::{Token, Watched};
use rustix::io::Errno;

/// Messages of a peer that one look hears: more than one read gives.
const HEARD_MAX: u32 = 256;

/// The control socket of a connection, and who is at its other end.
pub(crate) struct Line<M: Medium> {
    /// What is said beside frames goes over it.
    pub(crate) socket: M::Socket,
    /// The process, if the kernel can tell of it: its end counts even if a child of it holds the socket.
    process: Option<Process>,
    /// Its number, by its own word.
    pid: u32,
    /// What this medium keeps besides.
    pub(crate) more: M::Line,
}

impl<M: Medium> Line<M> {
    /// A connection whose sides have agreed.
    pub(super) fn new(socket: M::Socket, process: Option<Process>, pid: u32, more: M::Line) -> Self {
        Line { socket, process, pid, more }
    }

    /// The number of the peer's process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The peer's process, if the kernel can tell of it, and what this medium keeps.
    pub(crate) fn process_and_more(&mut self) -> (Option<&Process>, &mut M::Line) {
        (self.process.as_ref(), &mut self.more)
    }

    /// The peer's process, if the kernel can tell of it.
    pub(super) fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// The end of the process counts no longer.
    pub(super) fn forget_process(&self, watched: &Watched) {
        if let Some(descriptor) = self.process().and_then(Process::descriptor) {
            watched.forget(descriptor);
        }
    }

    /// As if the kernel had no descriptor of the process to give.
    #[cfg(all(test, not(miri)))]
    pub(super) fn lose_process(&mut self, watched: &Watched) {
        if let Some(descriptor) = self.process.as_mut().and_then(Process::forget) {
            watched.forget(&descriptor);
        }
    }

    /// Closes both descriptors.
    pub(super) fn cut(self, watched: &Watched) {
        hang_up(watched, &self.socket);
        self.forget_process(watched);
    }

    /// Tells of what the peer says, and of its end.
    fn watch(&self, watched: &Watched, link: u32) -> Result<(), Errno> {
        watched.add(&self.socket, Token::Line(link))?;
        match self.process().and_then(Process::descriptor) {
            Some(descriptor) => watched.add(descriptor, Token::Process(link)),
            None => Ok(()),
        }
    }
}

/// Closes a control connection for its peer, though a child may hold it.
pub(super) fn hang_up(watched: &Watched, socket: &impl Socket) {
    watched.forget(socket);
    socket.hang_up();
}

/// Watches the connection of a link whose sides have agreed.
pub(super) fn open<M: Medium>(medium: &mut M, link: u32, line: Line<M>, event: LinkEvent, events: &mut Vec<LinkEvent>) {
    let watched = line.watch(medium.watched(), link);
    let connections = medium.connections_mut();
    connections.calls.retain(|&other| other != link);
    connections.procs.insert(connections.table[link as usize].proc, link);
    connections.put(link, Stage::Open(line));
    match watched {
        Ok(()) => events.push(event),
        Err(error) => closing::fail_telling(medium, link, calling::unwatched(error), events),
    }
}

/// A peer has said something beside its frames, or its socket has ended. Several words may come at once, and the descriptor
/// may not ring again for those that have been read.
pub(super) fn hear_line<M: Medium>(medium: &mut M, link: u32, now_ns: u64) {
    for _ in 0..HEARD_MAX {
        if !hear_one(medium, link, now_ns) {
            return;
        }
    }
}

/// Hears the next word of a peer; `false` if none follows.
fn hear_one<M: Medium>(medium: &mut M, link: u32, now_ns: u64) -> bool {
    let Some(Peer { proc, stage }) = medium.connections_mut().table.get_mut(link as usize) else { return false };
    let proc = *proc;
    let line = match stage {
        Stage::Open(line) => line,
        Stage::Ending(ending) => {
            // It waits no longer for an answer.
            let gone = |line: &mut Line<M>| !matches!(line.socket.receive(), Heard::Nothing | Heard::Message(_));
            if let Some(line) = ending.line.take_if(gone) {
                line.cut(medium.watched());
            }
            return false;
        }
        _ => return false,
    };
    let pid = line.pid;
    let (reason, goodbye) = match line.socket.receive() {
        Heard::Nothing => return false,
        Heard::Ended(why) => (medium.gone(proc, pid, why), None),
        Heard::Message(Message::Other(word)) => match medium.hear_word(link, word) {
            Ok(()) => return true,
            Err(reason) => (reason, None),
        },
        Heard::Message(Message::Closed(goodbye)) => {
            let reason = format!("proc {proc} (process {pid}) has closed the connection without having finalized");
            (reason, Some(goodbye))
        }
        Heard::Message(Message::Refused(why)) => (format!("proc {proc} gave the connection up: {why}"), None),
        Heard::Message(Message::Hello(..) | Message::Welcome(..) | Message::Later) => (out_of_turn(proc), None),
        Heard::Wrong(mismatch) => (mismatch.to_string(), None),
    };
    ending::end(medium, link, reason, goodbye, now_ns);
    false
}

/// A message that its sender may not send at this point.
pub(crate) fn out_of_turn(proc: u32) -> String {
    format!("proc {proc} sent a packet out of turn: use one build of tickwire for all procs")
}
