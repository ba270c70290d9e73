//! Connections that peers ask for.

use super::Ofi;
use super::calling::fits;
use super::control::{self, Heard, Message, Proof, Socket};
use super::ending::Line;
use super::frame::LINKS_MAX;
use super::own::random;
use super::transport::Stage;
use crate::LinkEvent;
use crate::handshake::Greeting;
use crate::watching::Token;

/// Peers that have connected and not said anything yet, at most; others wait in the listener's queue.
const VISITORS_MAX: usize = 64;
/// How long a peer may stay silent, ns.
const SILENCE_NS_MAX: u64 = 2_000_000_000;
/// Connections that one look accepts at most.
const ACCEPTS: usize = 32;

/// A peer that has not said who it is.
pub(super) struct Visitor {
    pub(super) socket: Socket,
    deadline_ns: u64,
}

impl Ofi {
    /// Accepts peers that wait.
    pub(super) fn accept(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        for _ in 0..ACCEPTS {
            if self.visitors.iter().flatten().count() >= VISITORS_MAX {
                self.crowd(true);
                return;
            }
            let Some(listener) = &self.listener else { return };
            let Ok(descriptor) = control::accept(listener) else { return };
            let socket = Socket::new(descriptor, self.own.config.dead_link_ms_max);
            let place = self.visitors.iter().position(Option::is_none).unwrap_or_else(|| {
                self.visitors.push(None);
                self.visitors.len() - 1
            });
            if self.own.watched.add(&socket, Token::Visitor(place as u32)).is_ok() {
                let deadline_ns = now_ns.saturating_add(SILENCE_NS_MAX);
                self.visitors[place] = Some(Visitor { socket, deadline_ns });
                self.hear_visitor(place as u32, events);
            }
        }
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
        let heard = visitor.socket.hear();
        if heard == Heard::Nothing {
            return;
        }
        let Some(Visitor { mut socket, .. }) = seat.take() else { return };
        self.own.watched.forget(&socket);
        let answer = match heard {
            Heard::Message(Ok(Message::Hello(theirs, proof))) => match self.judge(&theirs, &proof) {
                None => return self.grant(socket, &theirs, &proof, events),
                Some(answer) => answer,
            },
            Heard::Message(Ok(_)) => Message::Refused("the peer did not start with a greeting".into()),
            Heard::Message(Err(mismatch)) => Message::Refused(mismatch.to_string()),
            Heard::Ended(_) | Heard::Nothing => return,
        };
        socket.tell(&answer);
        socket.hang_up();
    }

    /// Sends silent visitors away.
    pub(super) fn dismiss_visitors(&mut self, now_ns: u64) {
        for seat in &mut self.visitors {
            if let Some(visitor) = seat.take_if(|visitor| visitor.deadline_ns < now_ns) {
                self.own.hang_up(&visitor.socket);
            }
        }
        if self.crowded && self.visitors.iter().flatten().count() < VISITORS_MAX {
            self.crowd(false);
        }
    }

    /// Checks everything about a peer that asks for a connection; gives the answer if it is a refusal.
    fn judge(&self, theirs: &Greeting, proof: &Proof) -> Option<Message> {
        if proof.secret != self.own.secret {
            let words = "the peer does not know this proc's card: start all procs by one launcher";
            return Some(Message::Refused(words.into()));
        }
        if let Err(words) = fits(&self.own, theirs, proof) {
            return Some(Message::Refused(words));
        }
        let (me, proc) = (self.own.config.me, theirs.proc);
        let Some(&link) = self.procs.get(&proc) else {
            let words = || format!("proc {me} has {LINKS_MAX} connections and can have no more");
            return (!self.has_number()).then(|| Message::Refused(words()));
        };
        match self.table.get(link as usize).map(|peer| &peer.stage) {
            // The lower number's attempt wins, and the peer will find this side's call.
            Some(Stage::Calling(_)) if me < proc => Some(Message::Later(format!("proc {me} calls proc {proc}"))),
            Some(Stage::Open(line)) if !line.has_news() => {
                Some(Message::Refused(format!("proc {proc} is connected to proc {me} already")))
            }
            Some(Stage::Open(_) | Stage::Ending(_)) => {
                Some(Message::Later(format!("proc {me} still reads what an earlier proc {proc} has sent")))
            }
            _ => None,
        }
    }

    /// Answers a peer that has passed every check, and opens the link.
    fn grant(&mut self, mut socket: Socket, theirs: &Greeting, proof: &Proof, events: &mut Vec<LinkEvent>) {
        let numbered = random().ok().and_then(|token| Some((self.number(theirs.proc, token)?, token)));
        let Some((link, token)) = numbered else {
            socket.tell(&Message::Later("no number is free".into()));
            return socket.hang_up();
        };
        if let Err(reason) = self.port.get_mut().open_lane(link, theirs.slot, proof.token, &proof.address) {
            socket.tell(&Message::Refused(reason));
            socket.hang_up();
            self.port.get_mut().close_lane(link);
            self.free.push(link);
            return;
        }
        socket.tell(&self.own.welcome(link, token));
        let event = match self.procs.get(&theirs.proc).copied() {
            Some(mine) => {
                self.take_down(mine);
                LinkEvent::Replaced { link: mine, by: link }
            }
            None => LinkEvent::Accepted { link, proc: theirs.proc },
        };
        self.open_link(link, Line::new(socket, theirs, &self.own), event, events);
    }
}
