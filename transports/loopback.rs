//! Loopback: a proc to itself, and whole clusters of engines inside one process, over rings on the heap.
//!
//! Engines meet in a [`Hub`]. The engine that connects first makes the rings, opens its side and tells the peer. The peer opens its side
//! when it reads its news.

mod hub;
mod sharing;

pub use hub::Hub;

use crate::rings::inbox::Inbox;
use crate::rings::links::{InboxView, Links, Need, silence};
use crate::rings::memory::HeapMemory;
use crate::shared::SharedRun;
use crate::{Capabilities, CreditWindows, LinkEvent, Reach, Sent, SharedMemory, Take, Traffic, Transport};
use hub::{Connection, News, Passed};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tickwire_components::wire::{HEADER_BYTES, Header};
use tickwire_components::{Arrival, NIL, Pieces, Row};

/// One engine's membership of a [`Hub`].
pub struct Loopback {
    hub: Hub,
    me: u32,
    links: Links,
    /// Proc of each link.
    procs: Vec<u32>,
    /// The peer's number for each link.
    theirs: Vec<u32>,
    doorbell: Arc<OwnedFd>,
    capabilities: Capabilities,
    /// Links that have been opened and are not reported yet.
    connected: Vec<u32>,
    /// Links to peers that have yet to join.
    awaited: Vec<u32>,
    /// Links that their peers have closed, and why. Their last frames are still to be read.
    endings: Vec<(u32, String)>,
    /// `passing` are runs that peers may be given, by key. `passed` are runs that peers have given.
    passing: Vec<(u64, SharedRun)>,
    passed: Vec<Passed>,
    closed: bool,
}

impl Loopback {
    /// The table of connections.
    #[inline(always)]
    pub(crate) fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Joins a hub as proc `me`.
    ///
    /// # Errors
    /// If the place is taken or does not exist, or there are no more descriptors.
    pub fn join(hub: &Hub, me: u32) -> Result<Self, String> {
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| format!("no event descriptor ({e}): raise the limit of open files"))?;
        let doorbell = Arc::new(doorbell);
        let memory = Arc::new(HeapMemory::new(size_of::<Inbox>()));
        // SAFETY: zeroed memory of an inbox's size and alignment, kept by the view.
        #[expect(unsafe_code, reason = "a view of the heap")]
        let inbox = unsafe { InboxView::new(memory.base(), memory) };
        hub.join(me, inbox.clone(), doorbell.clone())?;
        let frame_max = hub.ring_bytes() / 4 - HEADER_BYTES;
        let capabilities = Capabilities {
            whole_frames: true,
            inject_max: frame_max,
            can_sleep: true,
            cheap_poll: true,
            ..Capabilities::least(Reach::Process, 100, frame_max)
        };
        let links = Links::new(inbox);
        let (hub, procs, theirs) = (hub.clone(), Vec::new(), Vec::new());
        Ok(Loopback {
            hub,
            me,
            links,
            procs,
            theirs,
            doorbell,
            capabilities,
            connected: Vec::new(),
            awaited: Vec::new(),
            endings: Vec::new(),
            passing: Vec::new(),
            passed: Vec::new(),
            closed: false,
        })
    }

    /// Notes the peer of a link, and the peer's number for the link.
    fn note(&mut self, link: u32, proc: u32, theirs: u32) {
        while self.procs.len() <= link as usize {
            self.procs.push(NIL);
            self.theirs.push(NIL);
            self.links.reserve();
        }
        self.procs[link as usize] = proc;
        self.theirs[link as usize] = theirs;
    }

    /// Closes a link and tells the peer, which would otherwise wait for frames.
    fn hang_up(&mut self, link: u32, reason: &str) {
        self.links.close(link);
        self.awaited.retain(|&awaited| awaited != link);
        self.endings.retain(|(ending, _)| *ending != link);
        self.passed.retain(|passed| passed.link != link);
        let Some(proc) = self.procs.get_mut(link as usize).map(|proc| std::mem::replace(proc, NIL)) else { return };
        if proc == NIL || proc == self.me {
            return;
        }
        self.hub.tell(proc, News::Closed { link: self.theirs[link as usize], reason: reason.to_owned() });
    }

    /// Handles what peers have done since the last call.
    fn look_at_news(&mut self, events: &mut Vec<LinkEvent>) {
        for item in self.hub.news(self.me) {
            match item {
                News::Opened { link, proc, ends } => {
                    let awaited = self.awaited.iter().position(|&link| self.procs[link as usize] == proc);
                    let awaited = awaited.map(|at| self.awaited.swap_remove(at));
                    self.note(link, proc, ends.slot);
                    self.links.open(link, NIL, *ends);
                    events.push(match awaited {
                        Some(awaited) => {
                            self.procs[awaited as usize] = NIL;
                            LinkEvent::Replaced { link: awaited, by: link }
                        }
                        None => LinkEvent::Accepted { link, proc },
                    });
                }
                News::Closed { link, reason } => {
                    // Unless it was closed here as well.
                    if self.procs.get(link as usize).is_some_and(|&proc| proc != NIL) {
                        self.links.look(link);
                        self.endings.push((link, reason));
                    }
                }
                News::Shared { link, key, run } => self.hear_shared(link, key, run),
                News::Left { proc } => {
                    for (link, _) in (0..).zip(&self.procs).filter(|&(_, &p)| p == proc) {
                        self.links.look(link);
                        self.endings.push((link, "the engine has gone without having finalized".into()));
                    }
                }
            }
        }
    }
}

// SAFETY: what it gives out is its own, and stays as long as is said.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Transport for Loopback {
    type RowState = ();

    fn name(&self) -> &str {
        "loopback"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn card(&self) -> Vec<u8> {
        Vec::new()
    }

    fn moved(&self) -> (u64, u64) {
        self.links.moved()
    }

    fn reaches(&self, proc: u32, _card: &[u8]) -> Result<(), String> {
        if self.hub.has_place(proc) { Ok(()) } else { Err("not an engine of this process".into()) }
    }

    fn connect(&mut self, proc: u32, _card: &[u8], _now_ns: u64) -> Result<u32, String> {
        let known = self.procs.iter().position(|&p| p == proc).map(|link| link as u32);
        if let Some(link) = known.filter(|link| !self.awaited.contains(link)) {
            self.connected.push(link);
            return Ok(link);
        }
        match self.hub.connect(self.me, proc, known)? {
            Connection::Awaited { link } => {
                self.note(link, proc, NIL);
                self.awaited.retain(|&awaited| awaited != link);
                self.awaited.push(link);
                Ok(link)
            }
            Connection::Opened { link } => Ok(link),
            Connection::Opens { link, theirs, ends } => {
                self.awaited.retain(|&awaited| awaited != link);
                self.note(link, proc, theirs);
                self.links.open(link, NIL, ends);
                self.connected.push(link);
                Ok(link)
            }
        }
    }

    fn traffic(&self, link: u32) -> Option<Traffic> {
        self.links.traffic(link)
    }

    fn attach(&mut self, link: u32, vc: Row) {
        self.links.attach(link, vc);
    }

    fn credit_windows(&mut self) -> Option<&mut dyn CreditWindows> {
        Some(&mut self.links)
    }

    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        if self.hub.is_apart() { None } else { Some(self) }
    }

    #[inline]
    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, _state: &mut ()) -> Sent {
        self.links.send(link, header, pieces)
    }

    #[inline(always)]
    fn ready(&self) -> bool {
        self.links.ready()
    }

    #[inline]
    fn drain(&mut self, _now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.links.drain(arrivals)
    }

    #[inline]
    fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        self.links.deliver(most, take)
    }

    fn drain_link(&mut self, link: u32, _now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.links.drain_link(link, arrivals)
    }

    #[inline]
    fn release(&mut self) {
        self.links.release();
    }

    #[inline]
    fn wants_control(&self) -> bool {
        !(self.connected.is_empty() && self.endings.is_empty())
            || self.links.has_need()
            || self.links.inbox().wants_control()
    }

    fn control(&mut self, _now_ns: u64, events: &mut Vec<LinkEvent>) {
        events.extend(self.connected.drain(..).map(|link| LinkEvent::Connected { link }));
        while let Some((link, need)) = self.links.take_need() {
            if let Need::Closing(corrupt) = need {
                events.push(LinkEvent::Failed { link, reason: format!("corrupt ring: {corrupt}") });
            }
        }
        if self.links.inbox().called() {
            self.look_at_news(events);
            for link in self.awaited.clone() {
                if let Err(reason) = self.connect(self.procs[link as usize], &[], 0) {
                    events.push(LinkEvent::Failed { link, reason });
                }
            }
        }
        // A peer that has left writes nothing any more. Its frames are read before its end is reported.
        let links = &self.links;
        for (link, reason) in self.endings.extract_if(.., |(link, _)| !links.heard(*link).1) {
            events.push(LinkEvent::Failed { link, reason });
        }
    }

    fn close_link(&mut self, link: u32) {
        self.hang_up(link, "the engine has closed the connection");
    }

    fn give_up(&mut self, link: u32, reason: &str) {
        self.hang_up(link, &format!("the engine gave the connection up: {reason}"));
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.doorbell.as_fd())
    }

    fn arm(&mut self) -> bool {
        // There are no boards over loopback.
        self.links.arm(false)
    }

    fn disarm(&mut self) {
        self.links.inbox().disarm();
        silence(&self.doorbell);
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.hub.leave(self.me, &self.procs);
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rings::inbox::SLOTS;
    use crate::take::Nobody;
    use tickwire_components::NoBytes;
    use tickwire_components::wire::Kind;

    #[test]
    fn links_that_wait_for_procs_are_bounded_too() {
        let hub = Hub::new(2, 4096);
        let mut caller = Loopback::join(&hub, 0).expect("a place");
        for _ in 0..SLOTS {
            let link = caller.connect(1, &[], 0).expect("there is a number");
            caller.close_link(link);
        }
        assert!(caller.connect(1, &[], 0).is_err_and(|error| error.contains("at most")));
    }

    #[test]
    fn frames_that_come_before_the_engine_knows_their_link_wait_for_its_vc() {
        let hub = Hub::new(2, 4096);
        let [mut caller, mut called] = [0, 1].map(|me| Loopback::join(&hub, me).expect("a place"));
        let (mut events, mut arrivals) = (Vec::new(), [Arrival::default(); 4]);
        let link = caller.connect(1, &[], 0).expect("it has joined");
        called.control(0, &mut events);
        let Some(LinkEvent::Accepted { link: back, proc: 0 }) = events.pop() else { panic!("nobody has called") };
        called.attach(back, 7);
        for tag in [1, 2] {
            let header = Header::new(Kind::Eager, 0, 0, tag, 0, 0);
            assert_eq!(called.send(back, &header, &NoBytes, &mut ()), Sent::Done);
        }
        for _ in 0..3 {
            assert!(caller.ready(), "the engine must go on until it has heard of the link");
            assert_eq!(caller.drain(0, &mut arrivals) + caller.drain_link(link, 0, &mut arrivals), 0);
            assert_eq!(caller.deliver(9, &mut Nobody), (0, true));
            caller.release();
        }
        assert!(caller.wants_control());
        caller.control(0, &mut events);
        assert_eq!(events, [LinkEvent::Connected { link }]);
        caller.attach(link, 3);
        assert_eq!(caller.drain(0, &mut arrivals), 2);
        assert_eq!([0, 1].map(|n: usize| (arrivals[n].vc, arrivals[n].header.tag())), [(3, 1), (3, 2)]);
        caller.release();
        assert!(!caller.ready());
    }

    #[test]
    fn who_called_and_sent_and_left_is_heard_before_it_is_said_to_have_left() {
        let hub = Hub::new(2, 4096);
        let [mut late, mut gone] = [0, 1].map(|me| Loopback::join(&hub, me).expect("a place"));
        let (mut events, mut arrivals) = (Vec::new(), [Arrival::default(); 4]);
        let theirs = gone.connect(0, &[], 0).expect("it has joined");
        assert_eq!(gone.send(theirs, &Header::new(Kind::Eager, 0, 1, 5, 0, 0), &NoBytes, &mut ()), Sent::Done);
        gone.close();
        let link = late.connect(1, &[], 0).expect("its call is there");
        late.control(0, &mut events);
        assert_eq!(std::mem::take(&mut events), [LinkEvent::Accepted { link, proc: 1 }]);
        late.attach(link, 3);
        assert_eq!((late.drain(0, &mut arrivals), arrivals[0].vc, arrivals[0].header.tag()), (1, 3, 5));
        late.release();
        late.control(0, &mut events);
        assert!(matches!(&events[..], [LinkEvent::Failed { link: l, .. }] if *l == link), "{events:?}");
        late.close_link(link);
        assert!(late.connect(1, &[], 0).is_err_and(|error| error.contains("has left")));
    }

    #[test]
    fn who_goes_before_it_has_seen_a_new_link_tells_its_peer() {
        let hub = Hub::new(2, 4096);
        let [mut caller, mut called] = [0, 1].map(|me| Loopback::join(&hub, me).expect("a place"));
        let mut events = Vec::new();
        let link = caller.connect(1, &[], 0).expect("it has joined");
        caller.control(0, &mut events);
        assert_eq!(std::mem::take(&mut events), [LinkEvent::Connected { link }]);
        called.close();
        // Its last frames would be read first, so it takes a look more.
        for _ in 0..2 {
            caller.drain(0, &mut [Arrival::default()]);
            caller.release();
            caller.control(0, &mut events);
        }
        assert!(matches!(&events[..], [LinkEvent::Failed { link: l, .. }] if *l == link), "{events:?}");
    }
}
