//! Connections that this side asks for. Nothing here waits: what does not go now is tried again by `control`.

use super::ending::Line;
use super::identity::HostCard;
use super::segment::{self, Map};
use super::socket::{self, Read, Received};
use super::{LINKS_MAX, Own, Peer, Shm, Stage, Token};
use crate::LinkEvent;
use crate::handshake::{Greeting, Mismatch, ONE_SIDED, Packet};
use crate::processes::{self, Process};
use crate::rings::inbox::{Inbox, SLOTS};
use crate::rings::links::{Ends, InboxView};
use crate::rings::memory::RawRing;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use tickwire_components::NIL;

/// Between two attempts, ns.
const RETRY_NS: u64 = 1_000_000;
/// How long a peer that does not listen is taken for one that does not yet, ns.
const REFUSED_NS_MAX: u64 = 250_000_000;

/// The segment of a pair: the ring from the caller to the called, then the one back.
pub(super) struct Pair {
    file: OwnedFd,
    map: Arc<Map>,
}

/// Bytes of a pair's segment.
pub(super) fn pair_bytes(ring_bytes: usize) -> usize {
    2 * RawRing::bytes(ring_bytes)
}

/// A connection that this side asks for. It is asked for as long as the process at the other end lives: one that computes, or is
/// stopped, answers when it goes on.
pub(super) struct Call {
    /// Who is to answer.
    process: Process,
    /// Is connected once `greeted`.
    socket: Option<OwnedFd>,
    greeted: bool,
    pair: Option<Pair>,
    started_ns: u64,
    refused_ns: Option<u64>,
    next_ns: u64,
}

impl Call {
    /// Gives the attempt up.
    pub(super) fn hang_up(mut self, own: &Own) {
        self.drop_socket(own);
        if let Some(descriptor) = self.process.descriptor() {
            own.watched.forget(descriptor);
        }
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// That nobody will answer, in words.
    pub(super) fn process_ended(&self) -> String {
        format!("{} before it answered", processes::ended(self.process.pid()))
    }

    fn drop_socket(&mut self, own: &Own) {
        if let Some(socket) = self.socket.take() {
            own.hang_up(&socket);
        }
        self.greeted = false;
    }

    /// The next step towards an open connection, if it is time for one.
    fn advance(&mut self, own: &Own, link: u32, proc: u32, now_ns: u64) -> Result<(), String> {
        let waited_ms = now_ns.saturating_sub(self.started_ns) / 1_000_000;
        if own.config.connect_ms_max.is_some_and(|most| waited_ms > most.into()) {
            return Err(format!(
                "proc {proc} did not answer within {waited_ms} ms: have it call tick, or raise connect_ms_max"
            ));
        }
        if self.greeted || now_ns < self.next_ns {
            return Ok(());
        }
        self.next_ns = now_ns.saturating_add(RETRY_NS);
        let no_socket = |e: Errno| format!("no socket to proc {proc} ({e}): raise the limit of open files");
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => socket::socket().map_err(no_socket)?,
        };
        let address = socket::address(&own.config.job, proc).map_err(no_socket)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::ISCONN) => self.refused_ns = None,
            Err(Errno::AGAIN | Errno::INTR) => {
                self.socket = Some(socket);
                return Ok(());
            }
            Err(Errno::CONNREFUSED) => return self.refused(proc, now_ns),
            Err(error) => return Err(format!("proc {proc} cannot be called: {error}")),
        }
        same_user(&socket, own)?;
        self.greet(own, link, proc, socket, now_ns)
    }

    fn greet(&mut self, own: &Own, link: u32, proc: u32, socket: OwnedFd, now_ns: u64) -> Result<(), String> {
        let pair = match self.pair.take() {
            Some(pair) => pair,
            None => {
                let bytes = pair_bytes(own.config.first_bytes());
                let (file, map) = segment::create(own.place(), bytes).map_err(|e| e.to_string())?;
                Pair { file, map: Arc::new(map) }
            }
        };
        let hello = Packet::Hello(own.greeting(link));
        let sent = socket::send(&socket, &hello, &own.passed(Some(pair.file.as_fd())));
        self.pair = Some(pair);
        match sent {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::TOOMANYREFS) => {
                self.socket = Some(socket);
                return Ok(());
            }
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                // It may have said why.
                return match socket::read(&socket) {
                    Read::Packet(Received { packet: Ok(Packet::Refused(reason)), .. }) => Err(refused(proc, &reason)),
                    _ => self.refused(proc, now_ns),
                };
            }
            Err(error) => return Err(format!("proc {proc} cannot be greeted: {error}")),
        }
        own.watched
            .add(&socket, Token::Call(link))
            .map_err(|e| format!("proc {proc} cannot be listened to ({e}): raise fs.epoll.max_user_watches"))?;
        self.socket = Some(socket);
        self.greeted = true;
        Ok(())
    }

    /// Nobody listens there: perhaps not yet.
    fn refused(&mut self, proc: u32, now_ns: u64) -> Result<(), String> {
        let since = *self.refused_ns.get_or_insert(now_ns);
        if self.process.has_ended() {
            return Err(self.process_ended());
        }
        if now_ns.saturating_sub(since) > REFUSED_NS_MAX {
            return Err(format!("proc {proc} has closed its endpoint, or has finalized"));
        }
        Ok(())
    }

    /// The peer has hung up before it answered, or asks to be called again.
    fn call_again(&mut self, own: &Own, now_ns: u64, keep_pair: bool) {
        self.drop_socket(own);
        self.next_ns = now_ns.saturating_add(RETRY_NS);
        if !keep_pair {
            // It may have been written to.
            self.pair = None;
        }
    }
}

/// What a peer has said that does not want a connection.
fn refused(proc: u32, reason: &str) -> String {
    format!("proc {proc} refused the connection: {reason}")
}

/// Refuses a peer of another user.
pub(super) fn same_user(socket: &OwnedFd, own: &Own) -> Result<u32, String> {
    let found = socket::credentials(socket).map_err(|e| format!("the peer cannot be identified: {e}"))?;
    if found.uid != own.uid {
        let (theirs, ours) = (found.uid, own.uid);
        return Err(format!("peer runs as user {theirs}, this process as user {ours}: run a job as one user"));
    }
    u32::try_from(found.pid).ok().filter(|&pid| pid != 0).ok_or_else(|| "peer runs in another pid namespace".into())
}

/// Checks what a peer says of itself against this process and against the kernel's word; gives its line.
pub(super) fn identify(own: &Own, socket: OwnedFd, theirs: &Greeting) -> Result<Line, (OwnedFd, String)> {
    let checked = theirs
        .fits(&own.greeting)
        .and_then(|()| theirs.same_host(&own.greeting))
        .map_err(|mismatch: Mismatch| mismatch.to_string())
        .and_then(|()| same_user(&socket, own));
    let pid = match checked {
        Ok(pid) => pid,
        Err(reason) => return Err((socket, reason)),
    };
    if pid != theirs.pid {
        return Err((socket, format!("peer says it is process {}, the kernel says {pid}", theirs.pid)));
    }
    if theirs.slot as usize >= SLOTS {
        return Err((socket, format!("peer names slot {} of {SLOTS}", theirs.slot)));
    }
    Line::new(socket, pid, theirs.start_time, own.config.cross_memory_attach)
}

/// Maps what a peer has passed and makes the ends of the connection.
///
/// `outgoing_first`: whether this side is the caller.
pub(super) fn ends(
    own: &Own,
    theirs: &Greeting,
    pair: Arc<Map>,
    inbox: OwnedFd,
    doorbell: OwnedFd,
    outgoing_first: bool,
) -> Result<Ends, String> {
    if !socket::is_doorbell(&doorbell) {
        return Err("the peer passed something other than an event descriptor as its doorbell".into());
    }
    let inbox = segment::receive(inbox, size_of::<Inbox>(), own.files)?;
    let base = inbox.base();
    // SAFETY: a mapping of an inbox's size, aligned to a page, allocated and kept by the view.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    let inbox = unsafe { InboxView::new(base, Arc::new(inbox)) };
    let ring_bytes = own.config.first_bytes();
    // SAFETY: the segment has room for two rings (`pair_bytes`), one behind the other and both aligned to 128 bytes;
    // it is new, so its bytes are zero unless the peer is hostile, which the ends survive. Each side makes one writer
    // and one reader, of different rings, and keeps the map with them.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    let (first, second) = unsafe {
        let behind = pair.base().add(RawRing::bytes(ring_bytes));
        (RawRing::new(pair.base(), ring_bytes), RawRing::new(behind, ring_bytes))
    };
    let (outgoing, incoming) = if outgoing_first { (first, second) } else { (second, first) };
    let one_sided = theirs.capabilities & own.greeting.capabilities & ONE_SIDED != 0;
    let past_min = own.config.past_min as u64;
    let (doorbell, ring_max) = (Arc::new(doorbell), own.config.ring_bytes);
    Ok(Ends { outgoing, incoming, inbox, slot: theirs.slot, doorbell, one_sided, past_min, ring_max, keep: pair })
}

impl Shm {
    /// Starts to connect, unless that has been done.
    pub(super) fn call(&mut self, proc: u32, card: &HostCard, now_ns: u64) -> Result<u32, String> {
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
        let process = Process::find(card.pid, card.start_time)?;
        let link = self.number(proc).ok_or_else(|| format!("there are {LINKS_MAX} connections: close some"))?;
        if let Some(descriptor) = process.descriptor() {
            // One that cannot be watched is asked after now and then.
            let _ = self.own.watched.add(descriptor, Token::Process(link));
        }
        let (socket, pair, refused_ns) = (None, None, None);
        let call = Call { process, socket, greeted: false, pair, started_ns: now_ns, refused_ns, next_ns: now_ns };
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
        let Some(peer) = self.table.get_mut(link as usize) else { return Ok(()) };
        match &mut peer.stage {
            Stage::Calling(call) => call.advance(&self.own, link, peer.proc, now_ns),
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
        let (proc, Some(socket)) = (*proc, &call.socket) else { return };
        let received = match socket::read(socket) {
            Read::Nothing => return,
            Read::Ended => {
                call.call_again(&self.own, now_ns, false);
                return;
            }
            Read::Packet(received) => received,
        };
        match received.packet {
            Ok(Packet::Later(_)) => call.call_again(&self.own, now_ns, true),
            Ok(Packet::Refused(reason)) => {
                self.fail(link, refused(proc, &reason), events);
            }
            Ok(Packet::Welcome(theirs)) => {
                let Some(socket) = call.socket.take() else { return };
                let pair = call.pair.take();
                self.own.watched.forget(&socket);
                if let Some(descriptor) = call.process.descriptor() {
                    self.own.watched.forget(descriptor);
                }
                let me = self.own.config.me;
                let welcomed = match received.descriptors {
                    Ok(descriptors) => self.welcome(socket, &theirs, proc, pair, descriptors),
                    Err(no_room) => Err((socket, no_room.words(me))),
                };
                match welcomed {
                    Ok((line, ends)) => self.open_link(link, line, ends, LinkEvent::Connected { link }, events),
                    Err((socket, reason)) => {
                        let _ = socket::send(&socket, &Packet::Refused(reason.clone()), &[]);
                        socket::hang_up(&socket);
                        self.fail(link, reason, events);
                    }
                }
            }
            Ok(
                Packet::Hello(_) | Packet::Closed | Packet::Splice | Packet::Pipes | Packet::Direct | Packet::Ring(_),
            ) => self.fail(link, out_of_turn(proc), events),
            Err(mismatch) => {
                let _ = socket::send(socket, &Packet::Refused(mismatch.to_string()), &[]);
                self.fail(link, mismatch.to_string(), events);
            }
        }
    }

    /// Checks an answer and makes the ends of the connection.
    fn welcome(
        &self,
        socket: OwnedFd,
        theirs: &Greeting,
        proc: u32,
        pair: Option<Pair>,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<(Line, Ends), (OwnedFd, String)> {
        let line = identify(&self.own, socket, theirs)?;
        let heap = self.take_heap(theirs, &mut descriptors);
        let ends = if theirs.proc == proc {
            match (<[OwnedFd; 2]>::try_from(descriptors), pair) {
                (Ok([inbox, doorbell]), Some(pair)) => ends(&self.own, theirs, pair.map, inbox, doorbell, true),
                _ => Err("the peer did not answer with two descriptors".into()),
            }
        } else {
            Err(Mismatch::Other { theirs: theirs.proc, expected: proc }.to_string())
        };
        match ends.and_then(|ends| Ok((ends, heap?))) {
            Ok((ends, heap)) => Ok((line.with_heap(heap), ends)),
            Err(reason) => Err((line.into_socket(), reason)),
        }
    }

    /// Opens a link whose sides have agreed.
    pub(super) fn open_link(
        &mut self,
        link: u32,
        line: Line,
        ends: Ends,
        event: LinkEvent,
        events: &mut Vec<LinkEvent>,
    ) {
        self.calls.retain(|&l| l != link);
        if let Err(error) = line.watch(&self.own, link) {
            let reason = format!("the connection cannot be watched ({error}): raise the limit of open files");
            line.tell(&Packet::Refused(reason.clone()));
            self.table[link as usize].stage = Stage::Open(line);
            self.fail(link, reason, events);
            return;
        }
        self.procs.insert(self.table[link as usize].proc, link);
        self.table[link as usize].stage = Stage::Open(line);
        self.links.open(link, NIL, ends);
        events.push(event);
    }
}

/// A packet that its sender may not send at this point.
pub(super) fn out_of_turn(proc: u32) -> String {
    format!("proc {proc} sent a packet out of turn: use one build of tickwire for all procs")
}

/// The packet and descriptors of a greeting, if it is one.
pub(super) fn hello(received: Received, me: u32) -> Result<(Greeting, Vec<OwnedFd>), String> {
    match received.packet {
        Ok(Packet::Hello(theirs)) => {
            received.descriptors.map(|passed| (theirs, passed)).map_err(|no_room| no_room.words(me))
        }
        Ok(_) => Err("the peer did not start with a greeting: use one build of tickwire for all procs".into()),
        Err(mismatch) => Err(mismatch.to_string()),
    }
}
