//! Open connections' control sockets, and how connections end.
//!
//! Who closes says how many frames it has sent, and leaves once the peer says that it has them all, or after a bounded time:
//! what a provider still holds is lost when its endpoint is closed. A connection whose socket ends without a word has
//! failed; what the fabric still brings is read for a moment.

use super::Ofi;
use super::calling::out_of_turn;
use super::control::{Heard, Message, Socket};
use super::losses::Tally;
use super::own::Own;
use super::transport::Stage;
use crate::LinkEvent;
use crate::handshake::Greeting;
use crate::processes::{self, Process};
use crate::watching::Token;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// How long the last frames of a peer that has closed in order may take, ns.
const CLOSED_NS_MAX: u64 = 1_000_000_000;
/// How long the last frames of a peer that is gone may take, ns, from the last one on.
const GONE_NS_MAX: u64 = 10_000_000;
/// Time between two looks from which on it counts as time in which nobody has looked, ns.
const UNSEEN_NS_MIN: u64 = 5_000_000;
/// Messages of a peer that one look hears: more than one read gives.
const HEARD_MAX: u32 = 256;
/// How long a close waits for an engine of this process, which nobody may be ticking meanwhile.
const NEAR_TIME: Duration = Duration::from_millis(20);

/// The control socket of a connection, and who is at its other end.
pub(super) struct Line {
    socket: Socket,
    /// The process, if it is on this host: its end counts even if a child of it holds the socket.
    process: Option<Process>,
    pid: u32,
    boot_id: u128,
    pub(super) tally: Tally,
}

/// A connection whose peer has closed it or is gone.
pub(super) struct Ending {
    reason: String,
    /// Its socket, if the peer waits for a word that all has come.
    line: Option<Line>,
    /// Frames that it has sent, if it said so.
    due: Option<u32>,
    /// How many bytes had come at the last look, and when that last changed, ns.
    received: u64,
    since_ns: u64,
    /// When that was.
    looked_ns: u64,
}

impl Line {
    pub(super) fn new(socket: Socket, theirs: &Greeting, own: &Own) -> Self {
        let Greeting { pid, start_time, boot_id, .. } = *theirs;
        // One that is not found as it says has its number in another pid namespace, or has ended: the socket tells then.
        let known = boot_id == own.greeting.boot_id && processes::start_time(pid) == Some(start_time);
        let process = known.then(|| Process::find(pid, start_time).ok()).flatten();
        Line { socket, process, pid, boot_id, tally: Tally::default() }
    }

    pub(super) fn tell(&mut self, message: &Message) {
        self.socket.tell(message);
    }

    pub(super) fn watch(&self, own: &Own, link: u32) -> Result<(), Errno> {
        own.watched.add(&self.socket, Token::Line(link))?;
        match self.process.as_ref().and_then(Process::descriptor) {
            Some(descriptor) => own.watched.add(descriptor, Token::Process(link)),
            None => Ok(()),
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.socket.has_news()
    }

    pub(super) fn cut(self, own: &Own) {
        own.hang_up(&self.socket);
        self.forget_process(own);
    }

    fn forget_process(&self, own: &Own) {
        if let Some(descriptor) = self.process.as_ref().and_then(Process::descriptor) {
            own.watched.forget(descriptor);
        }
    }

    /// Whether the peer is an engine of this process, which nobody may be ticking now.
    fn is_near(&self, own: &Own) -> bool {
        self.pid == own.greeting.pid && self.boot_id == own.greeting.boot_id
    }
}

impl Ofi {
    /// A peer's process on this host has ended, though a child of it may hold its socket.
    pub(super) fn process_ended(&mut self, link: u32, now_ns: u64, events: &mut Vec<LinkEvent>) {
        // What it said last tells more.
        self.hear_line(link, now_ns);
        match self.stage(link) {
            Some(Stage::Open(line)) => {
                let pid = line.pid;
                let proc = self.table[link as usize].proc;
                self.end(link, format!("process {pid} of proc {proc} has ended"), None, now_ns);
            }
            Some(Stage::Calling(call)) => {
                if let Some(reason) = call.process_ended() {
                    self.fail(link, reason, events);
                }
            }
            _ => {}
        }
    }

    /// Asks now and then after processes of this host that no descriptor tells of.
    pub(super) fn ask_after_processes(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        if now_ns.wrapping_sub(self.asked_ns) < processes::ASK_NS {
            return;
        }
        self.asked_ns = now_ns;
        let silent = |process: &Process| process.descriptor().is_none() && process.has_ended();
        for link in 0..self.table.len() as u32 {
            let has_ended = match self.stage(link) {
                Some(Stage::Open(line)) => line.process.as_ref().is_some_and(silent),
                Some(Stage::Calling(call)) => call.process_ended().is_some(),
                _ => false,
            };
            if has_ended {
                self.process_ended(link, now_ns, events);
            }
        }
    }

    /// A peer has said something beside the fabric, or its socket has ended. Several words may come at once, and the descriptor
    /// does not ring again for those that have been read.
    pub(super) fn hear_line(&mut self, link: u32, now_ns: u64) {
        for _ in 0..HEARD_MAX {
            if !self.hear_one(link, now_ns) {
                return;
            }
        }
    }

    /// Hears the next word of a peer; `false` if none follows.
    fn hear_one(&mut self, link: u32, now_ns: u64) -> bool {
        let dead_ms_max = self.own.config.dead_link_ms_max;
        let Some(peer) = self.table.get_mut(link as usize) else { return false };
        let proc = peer.proc;
        let line = match &mut peer.stage {
            Stage::Open(line) => line,
            Stage::Ending(ending) => {
                // It waits no longer for an answer.
                let gone = |line: &mut Line| !matches!(line.socket.hear(), Heard::Nothing | Heard::Message(Ok(_)));
                if let Some(line) = ending.line.take_if(gone) {
                    line.cut(&self.own);
                }
                return false;
            }
            _ => return false,
        };
        line.socket.flush();
        let (reason, due) = match line.socket.hear() {
            Heard::Nothing => return false,
            Heard::Message(Ok(Message::Sent(count))) => {
                line.tally.due = count;
                return true;
            }
            Heard::Message(Ok(Message::Direct(address))) => match self.port.get_mut().meet_direct(link, &address) {
                Ok(own) => {
                    own.into_iter().for_each(|own| line.tell(&Message::Direct(own)));
                    return true;
                }
                Err(why) => (format!("proc {proc}: {why}"), None),
            },
            Heard::Ended(None) => (format!("process {} of proc {proc} has ended", line.pid), None),
            Heard::Ended(Some(why)) => (
                format!("proc {proc} has not answered for {dead_ms_max} ms ({why}): check the network and its host"),
                None,
            ),
            Heard::Message(Ok(Message::Closed { sent, .. })) => {
                let pid = line.pid;
                let words = format!("proc {proc} (process {pid}) has closed the connection without having finalized");
                (words, Some(sent))
            }
            Heard::Message(Ok(Message::Refused(why))) => (format!("proc {proc} gave the connection up: {why}"), None),
            Heard::Message(Ok(_)) => (out_of_turn(proc), None),
            Heard::Message(Err(mismatch)) => (mismatch.to_string(), None),
        };
        self.end(link, reason, due, now_ns);
        false
    }

    fn end(&mut self, link: u32, reason: String, due: Option<u32>, now_ns: u64) {
        let received = self.port.get_mut().traffic(link).map_or(0, |traffic| traffic.received);
        let Some(stage) = self.stage(link) else { return };
        let Stage::Open(line) = std::mem::replace(stage, Stage::Gone) else { return };
        let line = match due {
            Some(_) => {
                line.forget_process(&self.own);
                Some(line)
            }
            None => {
                line.cut(&self.own);
                self.port.get_mut().disturb();
                None
            }
        };
        self.table[link as usize].stage =
            Stage::Ending(Ending { reason, line, due, received, since_ns: now_ns, looked_ns: now_ns });
        self.endings.push(link);
        self.pace.hurry();
    }

    /// Reports ends whose last frames have been read, and frames that will not come.
    pub(super) fn report_endings(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        for at in (0..self.endings.len()).rev() {
            let Some(&link) = self.endings.get(at) else { continue };
            let port = self.port.get_mut();
            let (received, unread) = (port.counts(link).1, port.has_frames());
            // What goes past the frames has been sent before the peer closed.
            let moving = port.is_receiving_direct(link);
            let traffic = port.traffic(link).map_or(0, |traffic| traffic.received);
            let Some(Stage::Ending(ending)) = self.stage(link) else { continue };
            if traffic != ending.received {
                (ending.received, ending.since_ns) = (traffic, now_ns);
            }
            // Time in which nobody has looked is no silence.
            let unseen_ns = now_ns.saturating_sub(ending.looked_ns).saturating_sub(UNSEEN_NS_MIN);
            (ending.looked_ns, ending.since_ns) = (now_ns, ending.since_ns + unseen_ns);
            let quiet_ns = now_ns.saturating_sub(ending.since_ns);
            let over = match ending.due {
                Some(due) => received == due && !moving || quiet_ns > CLOSED_NS_MAX,
                None => quiet_ns > GONE_NS_MAX,
            };
            if !over || unread && quiet_ns <= CLOSED_NS_MAX {
                continue;
            }
            let reason = std::mem::take(&mut ending.reason);
            if let Some(mut line) = ending.line.take() {
                line.tell(&self.closed(link));
                line.cut(&self.own);
            }
            self.fail(link, reason, events);
        }
    }

    /// What a close says.
    pub(super) fn closed(&mut self, link: u32) -> Message {
        let port = self.port.get_mut();
        port.go_through();
        let (sent, received) = port.counts(link);
        Message::Closed { sent, received }
    }

    /// Says that nothing follows, and waits until peers have what was sent, for a bounded time.
    pub(super) fn close_all(&mut self) {
        let start = Instant::now();
        let all = Duration::from_millis(self.own.config.close_ms_max.into());
        let mut waiting = Vec::new();
        for link in 0..self.table.len() as u32 {
            let closed = self.closed(link);
            let own = &self.own;
            if let Some(Stage::Open(line)) = self.table.get_mut(link as usize).map(|peer| &mut peer.stage) {
                line.tell(&closed);
                let time = if line.is_near(own) { NEAR_TIME.min(all) } else { all };
                waiting.push(Farewell { link, time, theirs: None, taken: false });
            }
        }
        while !waiting.is_empty() && self.port.get_mut().broken().is_none() {
            let port = self.port.get_mut();
            port.forget_frames();
            port.poll(1000);
            waiting.retain_mut(|farewell| start.elapsed() < farewell.time && self.awaits(farewell));
            rustix::thread::sched_yield();
        }
    }

    /// Whether something is still to come of a farewell.
    fn awaits(&mut self, farewell: &mut Farewell) -> bool {
        let closed = self.closed(farewell.link);
        let Message::Closed { sent, received } = closed else { return false };
        let Some(Stage::Open(line)) = self.stage(farewell.link) else { return false };
        line.socket.flush();
        match line.socket.hear() {
            Heard::Nothing | Heard::Message(Ok(Message::Sent(_) | Message::Direct(_))) => {}
            Heard::Message(Ok(Message::Closed { sent: theirs, received: taken })) => {
                farewell.theirs.get_or_insert((theirs, true));
                farewell.taken |= taken == sent;
            }
            _ => return false,
        }
        if let Some((theirs, untold @ true)) = &mut farewell.theirs
            && *theirs == received
        {
            *untold = false;
            line.tell(&closed);
        }
        !(farewell.taken && matches!(farewell.theirs, Some((_, false))))
    }
}

/// The end of one connection, as the side that closes sees it.
struct Farewell {
    link: u32,
    /// How long it may take.
    time: Duration,
    /// How many frames the peer has sent, and whether it is still to be told that they are here.
    theirs: Option<(u32, bool)>,
    /// The peer has all that was sent to it.
    taken: bool,
}
