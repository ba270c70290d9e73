//! The parts of making and ending connections that are specific to shared memory.

use super::answering::identify;
use super::calling::Request;
use super::identity::HostCard;
use super::lines::{PeerMemory, Unread};
use super::socket::{self, Read, Received};
use super::{Call, LINKS_MAX, Shm, Staging};
use crate::connections::{self, Accepted, Heard, Medium, Message, NoRoom, Parts, Socket};
use crate::handshake::{Greeting, Packet};
use crate::processes::{self, Process};
use crate::rings::links::Ends;
use rustix::fd::OwnedFd;
use tickwire_components::NIL;

/// A Unix socket for packets, which pass descriptors.
impl Socket for OwnedFd {
    /// The passed descriptors, or that this process had no room for them.
    type Extra = Result<Vec<OwnedFd>, NoRoom>;
    type Goodbye = ();
    type Word = (Packet, Result<Vec<OwnedFd>, NoRoom>);

    fn receive(&mut self) -> Heard<Self> {
        let Received { packet, descriptors } = match socket::read(self) {
            Read::Packet(received) => received,
            Read::Nothing => return Heard::Nothing,
            Read::Ended => return Heard::Ended(None),
        };
        match packet {
            Ok(Packet::Hello(theirs)) => Heard::Message(Message::Hello(theirs, descriptors)),
            Ok(Packet::Welcome(theirs)) => Heard::Message(Message::Welcome(theirs, descriptors)),
            Ok(Packet::Refused(reason)) => Heard::Message(Message::Refused(reason)),
            Ok(Packet::Later(_)) => Heard::Message(Message::Later),
            Ok(Packet::Closed) => Heard::Message(Message::Closed(())),
            Ok(word) => Heard::Message(Message::Other((word, descriptors))),
            Err(mismatch) => Heard::Wrong(mismatch),
        }
    }

    fn send_packet(&mut self, packet: &Packet) {
        let _ = socket::send(self, packet, &[]);
    }

    fn say_goodbye(&mut self, (): &()) {
        self.send_packet(&Packet::Closed);
    }

    fn has_news(&self) -> bool {
        connections::has_news(self)
    }

    fn hang_up(&self) {
        socket::hang_up(self);
    }
}

impl Parts for Shm {
    const LINKS_MAX: usize = LINKS_MAX;
    const ANSWERS_GOODBYES: bool = false;

    type Socket = OwnedFd;
    type Card = HostCard;
    type Request = Request;
    type Line = PeerMemory;
    type Ends = Ends;
    type Ending = Unread;
}

impl Medium for Shm {
    connections::medium_fields!();

    fn reserve(&mut self, link: u32, is_new: bool) -> Result<(), String> {
        if is_new {
            let reserved = self.links.reserve();
            debug_assert_eq!(reserved, link, "numbers are given out in order");
        }
        Ok(())
    }

    fn open_link(&mut self, link: u32, ends: Ends) -> Result<(), String> {
        self.links.open(link, NIL, ends);
        if self.own.config.staging != Staging::Never && self.capabilities.remote_read {
            self.links.give_outlet(link);
        }
        Ok(())
    }

    fn shut_link(&mut self, link: u32) {
        self.links.close(link);
    }

    fn find_process(&self, card: &HostCard) -> Result<Option<Process>, String> {
        Process::find(card.pid, card.start_time).map(Some)
    }

    fn prepare_call(&mut self, _link: u32, _card: HostCard) -> Result<Request, String> {
        Ok(Request::default())
    }

    fn greet(&mut self, link: u32, proc: u32, call: &mut Call, now_ns: u64) -> Result<bool, String> {
        self.greet_listener(link, proc, call, now_ns)
    }

    fn has_hung_up(&self, request: &mut Request) {
        // The peer may have written to the segment, so the next attempt makes a new one.
        request.pair = None;
    }

    fn silent(&self, proc: u32, waited_ms: u64, _request: &Request) -> String {
        format!("proc {proc} did not answer within {waited_ms} ms: have it call tick, or raise connect_ms_max")
    }

    fn accept(&mut self) -> Option<Accepted<OwnedFd>> {
        self.accept_peer()
    }

    fn identify(
        &self,
        socket: &OwnedFd,
        theirs: &Greeting,
        called: Option<Process>,
    ) -> Result<Option<Process>, String> {
        identify(&self.own, socket, theirs, called).map(Some)
    }

    fn meet(
        &mut self,
        theirs: &Greeting,
        passed: Result<Vec<OwnedFd>, NoRoom>,
        process: Option<&Process>,
        request: Option<Request>,
    ) -> Result<(PeerMemory, Ends), String> {
        self.meet_peer(theirs, passed, process, request)
    }

    fn welcome(&mut self, link: u32, socket: &mut OwnedFd) -> bool {
        let welcome = Packet::Welcome(self.introduction(link));
        socket::send(socket, &welcome, &self.own.passed(None)).is_ok()
    }

    fn hear_word(&mut self, link: u32, (word, passed): (Packet, Result<Vec<OwnedFd>, NoRoom>)) -> Result<(), String> {
        let proc = self.connections.proc(link);
        // What there was no descriptor number for is missing, and the connection works without it.
        let passed = passed.unwrap_or_default();
        match word {
            Packet::AskStaging => self.pass_staging(link),
            Packet::Staging => self.take_staging(link, passed),
            Packet::NoStaging => self.drop_staging(link),
            Packet::Ring(bytes) => {
                let followed = self.follow(link, bytes, passed);
                followed.map_err(|reason| format!("corrupt ring of proc {proc}: {reason}"))?;
            }
            Packet::Shared(key) => {
                let heard = self.hear_shared(link, key, passed);
                heard.map_err(|reason| format!("proc {proc} passed shared memory that cannot be: {reason}"))?;
            }
            _ => return Err(connections::out_of_turn(proc)),
        }
        Ok(())
    }

    fn gone(&self, _proc: u32, pid: u32, _why: Option<String>) -> String {
        processes::ended(pid)
    }

    fn start_ending(&mut self, link: u32, _goodbye: Option<()>, now_ns: u64) -> Unread {
        self.unread(link, now_ns)
    }

    fn is_over(&mut self, link: u32, unread: &mut Unread, now_ns: u64) -> bool {
        self.is_read(link, unread, now_ns)
    }

    fn goodbye(&mut self, _link: u32) {}
}
