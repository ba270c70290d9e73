//! Connections that peers ask for.

use super::calling::{ends, hello, identify, pair_bytes, same_user};
use super::ending::Line;
use super::segment;
use super::socket::{self, NoRoom, Read, Received};
use super::{LINKS_MAX, Own, Shm, Stage, Token};
use crate::LinkEvent;
use crate::handshake::{Greeting, Packet};
use crate::rings::links::Ends;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// Peers that have connected and not said anything yet, at most; others wait in the listener's queue.
pub(super) const VISITORS_MAX: usize = 64;
/// How long a peer may stay silent, ns.
pub(super) const SILENCE_NS_MAX: u64 = 2_000_000_000;
/// Connections that one look accepts at most.
const ACCEPTS: usize = 32;

/// A descriptor that is of no other use than to be given up.
pub(super) fn spare(of: &OwnedFd) -> Option<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(of, 0).ok()
}

/// A peer that has not said who it is.
pub(super) struct Visitor {
    socket: OwnedFd,
    deadline_ns: u64,
}

impl Visitor {
    /// Sends the visitor away.
    pub(super) fn dismiss(self, own: &Own) {
        own.hang_up(&self.socket);
    }
}

impl Shm {
    /// Accepts peers that wait; most have sent their greeting by now.
    pub(super) fn accept(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        for _ in 0..ACCEPTS {
            if self.visitors.iter().flatten().count() >= VISITORS_MAX {
                self.crowd(true);
                return;
            }
            let Some(listener) = &self.listener else { return };
            let socket = match socket::accept(listener) {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE) if self.refuse_one() => continue,
                Err(_) => return,
            };
            if let Err(reason) = same_user(&socket, &self.own) {
                let _ = socket::send(&socket, &Packet::Refused(reason), &[]);
                continue;
            }
            match socket::read(&socket) {
                Read::Packet(received) => self.answer(socket, received, events),
                Read::Ended => {}
                Read::Nothing => {
                    let place = self.visitors.iter().position(Option::is_none).unwrap_or_else(|| {
                        self.visitors.push(None);
                        self.visitors.len() - 1
                    });
                    if self.own.watched.add(&socket, Token::Visitor(place as u32)).is_ok() {
                        let deadline_ns = now_ns.saturating_add(SILENCE_NS_MAX);
                        self.visitors[place] = Some(Visitor { socket, deadline_ns });
                    }
                }
            }
        }
    }

    /// Sends a peer away that there is no descriptor for, which would wait for ever otherwise. Whether there was one.
    fn refuse_one(&mut self) -> bool {
        // Its number is what the peer gets.
        if self.spare.take().is_none() {
            return false;
        }
        let Some(listener) = &self.listener else { return false };
        let refused = socket::accept(listener).is_ok_and(|socket| {
            let reason = NoRoom.words(self.own.config.me);
            let _ = socket::send(&socket, &Packet::Refused(reason), &[]);
            socket::hang_up(&socket);
            true
        });
        self.spare = spare(&self.own.doorbell);
        refused
    }

    /// Stops or starts to listen.
    fn crowd(&mut self, crowded: bool) {
        let Some(listener) = &self.listener else { return };
        if self.crowded != crowded {
            self.own.watched.pause(listener, crowded);
            self.crowded = crowded;
        }
    }

    /// A visitor has said something, or left.
    pub(super) fn hear_visitor(&mut self, place: u32, events: &mut Vec<LinkEvent>) {
        let Some(seat) = self.visitors.get_mut(place as usize) else { return };
        let Some(visitor) = seat else { return };
        let read = socket::read(&visitor.socket);
        if matches!(read, Read::Nothing) {
            return;
        }
        if let Some(visitor) = seat.take() {
            self.own.watched.forget(&visitor.socket);
            if let Read::Packet(received) = read {
                self.answer(visitor.socket, received, events);
            }
        }
    }

    /// Sends silent visitors away.
    pub(super) fn dismiss_visitors(&mut self, now_ns: u64) {
        for seat in &mut self.visitors {
            if let Some(visitor) = seat.take_if(|visitor| visitor.deadline_ns < now_ns) {
                visitor.dismiss(&self.own);
            }
        }
        if self.crowded && self.visitors.iter().flatten().count() < VISITORS_MAX {
            self.crowd(false);
        }
    }

    /// Grants or refuses a connection.
    fn answer(&mut self, socket: OwnedFd, received: Received, events: &mut Vec<LinkEvent>) {
        match self.judge(socket, received) {
            Ok((theirs, line, ends)) => self.grant(&theirs, line, ends, events),
            Err(refusal) => {
                let (socket, answer) = *refusal;
                let _ = socket::send(&socket, &answer, &[]);
                socket::hang_up(&socket);
            }
        }
    }

    /// Checks everything about a peer that asks for a connection.
    fn judge(&self, socket: OwnedFd, received: Received) -> Result<(Greeting, Line, Ends), Box<(OwnedFd, Packet)>> {
        let (theirs, mut descriptors) = match hello(received, self.own.config.me) {
            Ok(greeting) => greeting,
            Err(reason) => return Err(Box::new((socket, Packet::Refused(reason)))),
        };
        let line =
            identify(&self.own, socket, &theirs).map_err(|(socket, reason)| (socket, Packet::Refused(reason)))?;
        if let Err(answer) = self.has_place(theirs.proc) {
            return Err(Box::new((line.into_socket(), answer)));
        }
        let heap = self.take_heap(&theirs, &mut descriptors);
        let ends = match <[OwnedFd; 3]>::try_from(descriptors) {
            Ok([pair, inbox, doorbell]) => {
                segment::receive(pair, pair_bytes(self.own.config.first_bytes()), self.own.files)
                    .and_then(|pair| ends(&self.own, &theirs, Arc::new(pair), inbox, doorbell, false))
            }
            Err(_) => Err("the peer did not greet with three descriptors".into()),
        };
        match ends.and_then(|ends| Ok((ends, heap?))) {
            Ok((ends, heap)) => Ok((theirs, line.with_heap(heap), ends)),
            Err(reason) => Err(Box::new((line.into_socket(), Packet::Refused(reason)))),
        }
    }

    /// Whether a connection with this proc may be opened now.
    fn has_place(&self, proc: u32) -> Result<(), Packet> {
        let me = self.own.config.me;
        let Some(&link) = self.procs.get(&proc) else {
            return if self.has_number() {
                Ok(())
            } else {
                Err(Packet::Refused(format!("proc {me} has {LINKS_MAX} connections and can have no more")))
            };
        };
        match self.table.get(link as usize).map(|peer| &peer.stage) {
            // The lower number's attempt wins, and the peer will find this side's call.
            Some(Stage::Calling(_)) if me < proc => Err(Packet::Later(format!("proc {me} calls proc {proc}"))),
            Some(Stage::Open(line)) if !line.has_news() => {
                Err(Packet::Refused(format!("proc {proc} is connected to proc {me} already")))
            }
            Some(Stage::Open(_) | Stage::Ending(_)) => {
                Err(Packet::Later(format!("proc {me} still reads what an earlier proc {proc} has sent")))
            }
            _ => Ok(()),
        }
    }

    /// Answers a peer that has passed every check, and opens the link.
    fn grant(&mut self, theirs: &Greeting, line: Line, ends: Ends, events: &mut Vec<LinkEvent>) {
        let Some(link) = self.number(theirs.proc) else {
            line.tell(&Packet::Later("no number is free".into()));
            return;
        };
        let welcome = Packet::Welcome(self.own.greeting(link));
        if line.pass(&welcome, &self.own.passed(None)).is_err() {
            // It has gone meanwhile. Its own attempt, if there is one, is still to be answered.
            self.free.push(link);
            return;
        }
        let event = match self.procs.get(&theirs.proc).copied() {
            Some(mine) => {
                self.take_down(mine);
                LinkEvent::Replaced { link: mine, by: link }
            }
            None => LinkEvent::Accepted { link, proc: theirs.proc },
        };
        self.open_link(link, line, ends, event, events);
    }
}
