//! The end of a connection, and the frames that are still to arrive.
//!
//! A proc that closes tells each peer how many frames it has sent. It leaves once the peer says that it has received them all, or after a
//! bounded time, since frames that the provider still holds are lost when the endpoint is closed. If the socket of a connection ends
//! without such a goodbye, the connection has failed. Frames that the fabric still delivers are read for a short time.

use super::Ofi;
use super::control::{Heard, Message};
use super::losses::Tally;
use super::own::Own;
use super::transport::Line;
use crate::Transport;
use crate::connections::Medium;
use std::time::{Duration, Instant};
use tickwire_components::limits::{
    FABRIC_CLOSED_NS_MAX, FABRIC_GONE_NS_MAX, FABRIC_NEAR_CLOSE_TIME, FABRIC_UNSEEN_NS_MIN,
};

/// What a proc tells its peer when it closes.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// How many frames it has sent; none follows.
    pub(super) sent: u32,
    /// How many frames it has received.
    pub(super) received: u32,
}

impl Counts {
    /// The message for the control connection.
    pub(super) fn message(self) -> Message {
        Message::Closed { sent: self.sent, received: self.received }
    }
}

/// What an endpoint keeps about the peer of an open connection.
pub(crate) struct Partner {
    /// The boot id of the machine that the peer runs on.
    boot_id: u128,
    /// Counts that reveal lost frames.
    pub(super) tally: Tally,
}

impl Partner {
    /// A peer that runs on the machine with this boot id.
    pub(super) fn new(boot_id: u128) -> Self {
        Partner { boot_id, tally: Tally::default() }
    }
}

impl Line {
    /// Sends a message to the peer, if possible.
    pub(super) fn tell(&mut self, message: &Message) {
        self.socket.tell(message);
    }

    /// Whether the peer is an engine of this process, which nobody may be ticking now.
    fn is_near(&self, own: &Own) -> bool {
        self.pid() == own.greeting.pid && self.more.boot_id == own.greeting.boot_id
    }
}

/// The state that tells whether more frames may arrive from a peer that has closed or gone.
pub(crate) struct Unread {
    /// How many frames the peer has sent, if it said so.
    due: Option<u32>,
    /// Bytes received up to the last poll, and the time since which there have been so many, in ns.
    received: u64,
    since_ns: u64,
    /// The time of the last poll, in ns.
    looked_ns: u64,
}

impl Ofi {
    /// Starts to wait for the last frames of a peer that has ended its connection.
    pub(super) fn unread(&mut self, link: u32, goodbye: Option<Counts>, now_ns: u64) -> Unread {
        self.pace.hurry();
        let port = self.port.get_mut();
        match goodbye {
            None => port.disturb(),
            Some(_) => port.rma().into_iter().for_each(|rma| rma.hear_goodbye(link)),
        }
        let received = port.traffic(link).map_or(0, |traffic| traffic.received);
        Unread { due: goodbye.map(|counts| counts.sent), received, since_ns: now_ns, looked_ns: now_ns }
    }

    /// Whether the peer's last frames have been read, or will not arrive.
    pub(super) fn is_read(&mut self, link: u32, unread: &mut Unread, now_ns: u64) -> bool {
        let port = self.port.get_mut();
        let (received, has_frames) = (port.counts(link).1, port.has_frames());
        // Long messages outside the frames were sent before the peer closed, too.
        let moving = port.is_receiving_direct(link);
        let traffic = port.traffic(link).map_or(0, |traffic| traffic.received);
        if traffic != unread.received {
            (unread.received, unread.since_ns) = (traffic, now_ns);
        }
        // Time without polls does not count as silence.
        let unseen_ns = now_ns.saturating_sub(unread.looked_ns).saturating_sub(FABRIC_UNSEEN_NS_MIN);
        (unread.looked_ns, unread.since_ns) = (now_ns, unread.since_ns + unseen_ns);
        let quiet_ns = now_ns.saturating_sub(unread.since_ns);
        let over = match unread.due {
            Some(due) => received == due && !moving || quiet_ns > FABRIC_CLOSED_NS_MAX,
            None => quiet_ns > FABRIC_GONE_NS_MAX,
        };
        over && (!has_frames || quiet_ns > FABRIC_CLOSED_NS_MAX)
    }

    /// Waits until all one-sided operations are complete, for a bounded time.
    pub(super) fn finish_operations(&mut self) {
        let start = Instant::now();
        let mut links = self.connections.links();
        let is_near = |link| self.connections.line_mut(link).is_none_or(|line| line.is_near(&self.own));
        let all_near = links.all(is_near);
        let all = Duration::from_millis(self.own.config.close_ms_max.into());
        let time = if all_near { FABRIC_NEAR_CLOSE_TIME.min(all) } else { all };
        while self.port.get_mut().is_operating() && start.elapsed() < time {
            self.port.get_mut().poll_rma();
            rustix::thread::sched_yield();
        }
    }

    /// What the peer of a link is told when it is closed: that nothing follows; or, if one-sided operations may still be under way, that
    /// this is no orderly end.
    pub(super) fn farewell(&mut self, link: u32) -> Message {
        match self.port.get_mut().rma().is_some_and(|rma| rma.may_use(link)) {
            true => Message::Refused("it has closed with one-sided operations under way".into()),
            false => self.goodbye(link).message(),
        }
    }

    /// Tells all peers that nothing follows, and waits for a bounded time until they have received everything.
    pub(super) fn see_off_all(&mut self) {
        let start = Instant::now();
        let all = Duration::from_millis(self.own.config.close_ms_max.into());
        let mut waiting = Vec::new();
        for link in self.connections.links() {
            let closed = self.farewell(link);
            if let Some(line) = self.connections.line_mut(link) {
                line.tell(&closed);
                let time = if line.is_near(&self.own) { FABRIC_NEAR_CLOSE_TIME.min(all) } else { all };
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

    /// Whether a farewell is not finished yet.
    fn awaits(&mut self, farewell: &mut Farewell) -> bool {
        let counts = self.goodbye(farewell.link);
        let Some(line) = self.connections.line_mut(farewell.link) else { return false };
        line.socket.flush();
        match line.socket.hear() {
            Heard::Nothing
            | Heard::Message(Ok(Message::Sent(_) | Message::AskSent | Message::Direct(_) | Message::OneSided(_))) => {}
            Heard::Message(Ok(Message::Closed { sent: theirs, received: taken })) => {
                farewell.theirs.get_or_insert((theirs, true));
                farewell.taken |= taken == counts.sent;
            }
            _ => return false,
        }
        if let Some((theirs, untold @ true)) = &mut farewell.theirs
            && *theirs == counts.received
        {
            *untold = false;
            line.tell(&counts.message());
        }
        !(farewell.taken && matches!(farewell.theirs, Some((_, false))))
    }
}

impl Drop for Ofi {
    fn drop(&mut self) {
        self.close();
    }
}

/// The end of one connection, at the proc that closes.
struct Farewell {
    link: u32,
    /// How long it may take.
    time: Duration,
    /// How many frames the peer has sent, and whether it is still to be told that all have arrived.
    theirs: Option<(u32, bool)>,
    /// The peer has received everything.
    taken: bool,
}
