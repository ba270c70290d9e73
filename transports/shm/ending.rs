//! Open connections' control sockets, and how connections end.

use super::calling::out_of_turn;
use super::deaths::Watched;
use super::socket::{self, Read};
use super::splicing::Pipes;
use super::{Own, Shm, Stage, Token, reading};
use crate::LinkEvent;
use crate::handshake::Packet;
use crate::heap::PeerHeap;
use crate::processes::{self, Process};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;

/// How long the last frames of a peer that has gone may stay unread before they are given up, ns.
const UNREAD_NS_MAX: u64 = 1_000_000_000;

/// The control socket of a connection, and the process at its other end.
pub(super) struct Line {
    socket: OwnedFd,
    /// Its end counts even if a child of it holds the socket.
    process: Process,
    /// Under which number its end is watched for, once its memory was read.
    watched: Watched,
    /// Whether the kernel lets this process read its memory.
    readable: bool,
    /// Its shared heap, as this process maps it.
    heap: Option<Arc<PeerHeap>>,
    /// What its messages are spliced through, and own ones to it.
    pub(super) pipes: Pipes,
}

/// A connection whose peer has gone.
pub(super) struct Ending {
    reason: String,
    /// How much had been read at the last look, and when that last changed.
    heard: u64,
    since_ns: u64,
    /// How much can have been written at most.
    heard_max: u64,
}

impl Line {
    /// A line to process `pid`, which was started at `start_time` by its own word; `attach` if its memory is to be read.
    pub(super) fn new(socket: OwnedFd, pid: u32, start_time: u64, attach: bool) -> Result<Self, (OwnedFd, String)> {
        if let Some(found) = processes::start_time(pid).filter(|&found| found != start_time) {
            let words = format!("peer says process {pid} was started at {start_time}, the kernel says {found}");
            return Err((socket, words));
        }
        match Process::find(pid, start_time) {
            Ok(process) => {
                let readable = attach && process.descriptor().is_some() && reading::allowed(pid);
                Ok(Line { socket, process, watched: 0, readable, heap: None, pipes: Pipes::default() })
            }
            Err(reason) => Err((socket, reason)),
        }
    }

    /// The same with the peer's shared heap.
    pub(super) fn with_heap(self, heap: Option<Arc<PeerHeap>>) -> Self {
        Line { heap, ..self }
    }

    /// The peer's shared heap.
    pub(super) fn heap(&self) -> Option<&Arc<PeerHeap>> {
        self.heap.as_ref()
    }

    /// Whether the memory of the process may be read.
    pub(super) fn readable(&self) -> bool {
        self.readable
    }

    /// The process, if its memory may be read: its number, the descriptor that says that the number is still its own, and
    /// under which number its end is watched for.
    pub(super) fn readable_process(&mut self) -> Option<(u32, &OwnedFd, &mut Watched)> {
        let Line { process, readable, watched, .. } = self;
        let pid = process.pid();
        process.descriptor().filter(|_| *readable).map(|descriptor| (pid, descriptor, watched))
    }

    /// Sends a packet, if that goes.
    pub(super) fn tell(&self, packet: &Packet) {
        let _ = socket::send(&self.socket, packet, &[]);
    }

    /// Sends a packet with descriptors.
    pub(super) fn pass(&self, packet: &Packet, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        socket::send(&self.socket, packet, descriptors)
    }

    pub(super) fn watch(&self, own: &Own, link: u32) -> Result<(), Errno> {
        own.watched.add(&self.socket, Token::Line(link))?;
        match self.process.descriptor() {
            Some(process) => own.watched.add(process, Token::Process(link)),
            None => Ok(()),
        }
    }

    /// Whether the other end has said something, or is closed.
    pub(super) fn has_news(&self) -> bool {
        socket::has_news(&self.socket)
    }

    /// The socket alone, to say why nothing comes of it.
    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// As if the kernel had no descriptor of the process to give.
    #[cfg(test)]
    pub(super) fn forget_process(&mut self, own: &Own) {
        if let Some(descriptor) = self.process.forget() {
            own.watched.forget(&descriptor);
        }
    }

    /// Closes both descriptors.
    pub(super) fn cut(self, own: &Own) {
        own.hang_up(&self.socket);
        if let Some(process) = self.process.descriptor() {
            own.watched.forget(process);
        }
    }
}

impl Shm {
    /// A peer has said something outside the rings, or its socket has ended.
    pub(super) fn hear_line(&mut self, link: u32, now_ns: u64) {
        let Some(peer) = self.table.get(link as usize) else { return };
        let (proc, Stage::Open(line)) = (peer.proc, &peer.stage) else { return };
        let pid = line.process.pid();
        let reason = match socket::read(&line.socket) {
            Read::Nothing => return,
            Read::Ended => processes::ended(pid),
            Read::Packet(received) => match received.packet {
                Ok(Packet::Closed) => {
                    format!("proc {proc} (process {pid}) has closed the connection without having finalized")
                }
                Ok(Packet::Refused(reason)) => format!("proc {proc} gave the connection up: {reason}"),
                Ok(Packet::Splice) => return self.pass_pipes(link),
                Ok(Packet::Pipes) => {
                    // It does without what there is no room for.
                    return self.take_pipes(link, received.descriptors.unwrap_or_default());
                }
                Ok(Packet::Ring(bytes)) => {
                    // The kernel gives out none if there is no number for it: then it goes on with the ring that it has.
                    match self.follow(link, bytes, received.descriptors.unwrap_or_default()) {
                        Ok(()) => return,
                        Err(reason) => format!("corrupt ring of proc {proc}: {reason}"),
                    }
                }
                Ok(_) => out_of_turn(proc),
                Err(mismatch) => mismatch.to_string(),
            },
        };
        self.end(link, reason, now_ns);
    }

    /// A peer's process has ended, though a child of it may hold its socket.
    pub(super) fn process_ended(&mut self, link: u32, now_ns: u64, events: &mut Vec<LinkEvent>) {
        // What it said last tells more.
        self.hear_line(link, now_ns);
        match self.stage(link) {
            Some(Stage::Open(line)) => {
                let reason = processes::ended(line.process.pid());
                self.end(link, reason, now_ns);
            }
            Some(Stage::Calling(call)) => {
                let reason = call.process_ended();
                self.fail(link, reason, events);
            }
            _ => {}
        }
    }

    /// Asks now and then after processes that no descriptor tells of.
    pub(super) fn ask_after_processes(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        if now_ns.wrapping_sub(self.asked_ns) < processes::ASK_NS {
            return;
        }
        self.asked_ns = now_ns;
        for link in 0..self.table.len() as u32 {
            let has_ended = match self.stage(link) {
                Some(Stage::Open(line)) => line.process.descriptor().is_none() && line.process.has_ended(),
                Some(Stage::Calling(call)) => call.process().has_ended(),
                _ => false,
            };
            if has_ended {
                self.process_ended(link, now_ns, events);
            }
        }
    }

    fn end(&mut self, link: u32, reason: String, now_ns: u64) {
        let (heard, _) = self.links.heard(link);
        // A ring holds no more than its size, and skips less than a quarter of it at its end.
        let heard_max = heard + 2 * self.own.config.ring_bytes as u64;
        let ending = Stage::Ending(Ending { reason, heard, since_ns: now_ns, heard_max });
        let Some(stage) = self.stage(link) else { return };
        if let Stage::Open(line) = std::mem::replace(stage, ending) {
            line.cut(&self.own);
        }
        self.endings.push(link);
        // Its last frames may lack their announcement.
        self.links.look(link);
    }

    /// Reports ends whose last frames have been read.
    pub(super) fn report_endings(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        for at in (0..self.endings.len()).rev() {
            let Some(&link) = self.endings.get(at) else { continue };
            let (heard, more) = self.links.heard(link);
            let Some(Stage::Ending(ending)) = self.stage(link) else { continue };
            if heard != ending.heard {
                ending.heard = heard;
                ending.since_ns = now_ns;
            }
            if !more || heard >= ending.heard_max || now_ns.saturating_sub(ending.since_ns) > UNREAD_NS_MAX {
                let reason = std::mem::take(&mut ending.reason);
                self.fail(link, reason, events);
            }
        }
    }
}
