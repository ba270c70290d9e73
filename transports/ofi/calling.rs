//! Connections that this side asks for. Nothing here waits: what does not go now is tried again by `control`.

use super::Ofi;
use super::card::Card;
use super::control::{Heard, Message, Proof, Socket};
use super::ending::Line;
use super::frame::LINKS_MAX;
use super::own::{Own, random};
use super::transport::{Peer, Stage};
use crate::LinkEvent;
use crate::handshake::{Greeting, Mismatch};
use crate::processes::{self, Process};
use crate::watching::Token;
use rustix::io::Errno;
use std::net::SocketAddr;

/// Between two attempts, ns.
const RETRY_NS: u64 = 1_000_000;

/// A connection that this side asks for. It is asked for as long as the other end lives, which its host's kernel says: a process
/// that computes, or is stopped, answers when it goes on.
pub(super) struct Call {
    card: Card,
    /// Who is to answer, if it is on this host.
    process: Option<Process>,
    /// Is connected once `greeted`.
    socket: Option<Socket>,
    greeted: bool,
    started_ns: u64,
    next_ns: u64,
}

impl Call {
    /// Says why the attempt is given up, to a peer that has been greeted and may answer later.
    pub(super) fn refuse(&mut self, reason: &str) {
        if let Some(socket) = self.socket.as_mut().filter(|_| self.greeted) {
            socket.tell(&Message::Refused(reason.to_owned()));
        }
    }

    /// Gives the attempt up.
    pub(super) fn hang_up(mut self, own: &Own) {
        self.drop_socket(own);
        self.forget_process(own);
    }

    fn forget_process(&self, own: &Own) {
        if let Some(descriptor) = self.process.as_ref().and_then(Process::descriptor) {
            own.watched.forget(descriptor);
        }
    }

    /// That nobody will answer, in words, if that is so.
    pub(super) fn process_ended(&self) -> Option<String> {
        let process = self.process.as_ref().filter(|process| process.has_ended())?;
        Some(format!("{} before it answered", processes::ended(process.pid())))
    }

    fn drop_socket(&mut self, own: &Own) {
        if let Some(socket) = self.socket.take() {
            own.hang_up(&socket);
        }
        self.greeted = false;
    }

    /// The next step towards an open connection, if it is time for one.
    fn advance(&mut self, own: &Own, link: u32, proc: u32, token: u64, now_ns: u64) -> Result<(), String> {
        let to = self.card.control;
        let waited_ms = now_ns.saturating_sub(self.started_ns) / 1_000_000;
        if own.config.connect_ms_max.is_some_and(|most| waited_ms > most.into()) {
            return Err(format!(
                "proc {proc} at {to} did not answer within {waited_ms} ms: have it call tick, let TCP through between the \
                 hosts, choose another interface (TICKWIRE_OFI_INTERFACE), or raise connect_ms_max"
            ));
        }
        if self.greeted || now_ns < self.next_ns {
            return Ok(());
        }
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                self.next_ns = now_ns.saturating_add(RETRY_NS);
                let dead_ms_max = own.config.dead_link_ms_max;
                let socket = Socket::call(to, dead_ms_max).map_err(|error| unreachable(proc, to, error))?;
                own.watched.add_connecting(&socket, Token::Call(link)).map_err(unwatched)?;
                socket
            }
        };
        let connected = socket.connected();
        let socket = self.socket.insert(socket);
        match connected {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(error) => return Err(unreachable(proc, to, error)),
        }
        own.watched.forget(socket);
        own.watched.add(socket, Token::Call(link)).map_err(unwatched)?;
        socket.tell(&own.hello(link, self.card.secret, token));
        self.greeted = true;
        Ok(())
    }

    /// The peer has hung up before it answered, or asks to be called again.
    fn call_again(&mut self, own: &Own, now_ns: u64) {
        self.drop_socket(own);
        self.next_ns = now_ns.saturating_add(RETRY_NS);
    }
}

fn unwatched(error: Errno) -> String {
    format!("a connection cannot be watched ({error}): raise the limit of open files")
}

/// A peer that cannot be called, and what to do.
fn unreachable(proc: u32, to: SocketAddr, error: Errno) -> String {
    match error {
        Errno::CONNREFUSED | Errno::CONNRESET => {
            format!("proc {proc} is not running any more, or has finalized ({to}: {error})")
        }
        Errno::MFILE | Errno::NFILE => format!("no socket to proc {proc} ({error}): raise the limit of open files"),
        _ => format!(
            "proc {proc} at {to} cannot be reached ({error}): check the network between the hosts, or choose another \
             interface (TICKWIRE_OFI_INTERFACE)"
        ),
    }
}

/// Checks what a peer says of itself against this process.
pub(super) fn fits(own: &Own, theirs: &Greeting, proof: &Proof) -> Result<(), String> {
    theirs.fits(&own.greeting).map_err(|mismatch| mismatch.to_string())?;
    if proof.token == 0 {
        return Err("the peer has no token for frames: use one build of tickwire for all procs".into());
    }
    Ok(())
}

impl Ofi {
    /// Starts to connect, unless that has been done.
    pub(super) fn call(&mut self, proc: u32, card: Card, now_ns: u64) -> Result<u32, String> {
        if self.listener.is_none() {
            return Err("this endpoint is closed".into());
        }
        if let Some(&link) = self.procs.get(&proc) {
            return match self.stage(link) {
                Some(Stage::Open(_)) => {
                    self.queued.push(LinkEvent::Connected { link });
                    Ok(link)
                }
                Some(Stage::Calling(_)) => Ok(link),
                _ => Err(format!("the last connection to proc {proc} is ending: ask again after it has failed")),
            };
        }
        let token = random().map_err(|error| format!("no random numbers ({error})"))?;
        let (pid, start_time) = card.process;
        let near = card.host == self.own.host;
        let process = near.then(|| Process::find(pid, start_time)).transpose()?;
        let link = self.number(proc, token).ok_or_else(|| format!("there are {LINKS_MAX} connections: close some"))?;
        if let Err(reason) = self.port.get_mut().expect_peer(link, &card.address) {
            self.free.push(link);
            return Err(reason);
        }
        if let Some(descriptor) = process.as_ref().and_then(Process::descriptor) {
            // One that cannot be watched is asked after now and then.
            let _ = self.own.watched.add(descriptor, Token::Process(link));
        }
        let call = Call { card, process, socket: None, greeted: false, started_ns: now_ns, next_ns: now_ns };
        self.table[link as usize].stage = Stage::Calling(Box::new(call));
        self.procs.insert(proc, link);
        self.calls.push(link);
        if let Err(reason) = self.advance(link, now_ns) {
            self.take_down(link);
            self.free_number(link);
            return Err(reason);
        }
        Ok(link)
    }

    fn advance(&mut self, link: u32, now_ns: u64) -> Result<(), String> {
        let token = self.port.get_mut().token(link);
        let Some(peer) = self.table.get_mut(link as usize) else { return Ok(()) };
        match &mut peer.stage {
            Stage::Calling(call) => call.advance(&self.own, link, peer.proc, token, now_ns),
            _ => Ok(()),
        }
    }

    /// The next step of every call.
    pub(super) fn hurry_calls(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        for at in (0..self.calls.len()).rev() {
            let Some(&link) = self.calls.get(at) else { continue };
            if let Err(reason) = self.advance(link, now_ns) {
                self.fail(link, reason, events);
            }
        }
    }

    /// A peer has answered a call, or hung up.
    pub(super) fn hear_call(&mut self, link: u32, now_ns: u64, events: &mut Vec<LinkEvent>) {
        let Some(Peer { proc, stage: Stage::Calling(call) }) = self.table.get_mut(link as usize) else { return };
        let proc = *proc;
        let Some(socket) = call.socket.as_mut().filter(|_| call.greeted) else { return };
        match socket.hear() {
            Heard::Nothing => {}
            Heard::Ended(_) => call.call_again(&self.own, now_ns),
            Heard::Message(Ok(Message::Later(_))) => call.call_again(&self.own, now_ns),
            Heard::Message(Ok(Message::Refused(reason))) => {
                self.fail(link, format!("proc {proc} refused the connection: {reason}"), events);
            }
            Heard::Message(Ok(Message::Welcome(theirs, proof))) => {
                let checked = fits(&self.own, &theirs, &proof).and_then(|()| match theirs.proc == proc {
                    true => Ok(()),
                    false => Err(Mismatch::Other { theirs: theirs.proc, expected: proc }.to_string()),
                });
                let address = call.card.address.clone();
                let Some(socket) = call.socket.take() else { return };
                call.forget_process(&self.own);
                let opened =
                    checked.and_then(|()| self.port.get_mut().open_lane(link, theirs.slot, proof.token, &address));
                self.own.watched.forget(&socket);
                let mut line = Line::new(socket, &theirs, &self.own);
                match opened {
                    Ok(()) => self.open_link(link, line, LinkEvent::Connected { link }, events),
                    Err(reason) => {
                        line.tell(&Message::Refused(reason.clone()));
                        line.cut(&self.own);
                        self.fail(link, reason, events);
                    }
                }
            }
            Heard::Message(Ok(Message::Hello(..) | Message::Sent(_) | Message::Closed { .. } | Message::Direct(_))) => {
                self.fail(link, out_of_turn(proc), events);
            }
            Heard::Message(Err(mismatch)) => {
                socket.tell(&Message::Refused(mismatch.to_string()));
                self.fail(link, mismatch.to_string(), events);
            }
        }
    }

    /// Opens a link whose sides have agreed.
    pub(super) fn open_link(&mut self, link: u32, line: Line, event: LinkEvent, events: &mut Vec<LinkEvent>) {
        self.calls.retain(|&l| l != link);
        if let Err(error) = line.watch(&self.own, link) {
            self.table[link as usize].stage = Stage::Open(line);
            self.fail(link, unwatched(error), events);
            return;
        }
        self.procs.insert(self.table[link as usize].proc, link);
        self.table[link as usize].stage = Stage::Open(line);
        self.count_open();
        events.push(event);
    }
}

/// A message that its sender may not send at this point.
pub(super) fn out_of_turn(proc: u32) -> String {
    format!("proc {proc} sent a packet out of turn: use one build of tickwire for all procs")
}
