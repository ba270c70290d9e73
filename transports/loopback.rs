//! Loopback: a proc to itself, and whole clusters of engines inside one process, over rings on the heap.

use crate::rings::fences;
use crate::rings::inbox::Inbox;
use crate::rings::links::{Ends, InboxView, Links, Need, ring};
use crate::rings::memory::{HeapMemory, RawRing};
use crate::{Capabilities, LinkEvent, Reach, Sent, Take, Traffic, Transport};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::credit::Credit;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, NIL, Pieces, Row};

/// Where the engines of one process find each other. Clones are the same hub.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Mutex<Shared>>,
    /// Number of the first proc.
    base: u32,
    ring_bytes: usize,
}

struct Shared {
    members: Vec<Option<Member>>,
    left: Vec<bool>,
}

struct Member {
    inbox: InboxView,
    doorbell: Arc<OwnedFd>,
    /// What peers have done and this member has not looked at yet.
    news: Vec<News>,
    /// Link number for each peer, reserved by whoever connects first.
    next_link: u32,
    /// Whether it waits for a peer to join.
    awaits: bool,
}

impl Member {
    /// Tells it, and wakes it if it sleeps.
    fn tell(&mut self, news: News) {
        self.news.push(news);
        if self.inbox.call() {
            ring(&self.doorbell);
        }
    }

    /// The link that a peer has opened, if that has not been looked at yet.
    fn opened_by(&self, peer: u32) -> Option<u32> {
        self.news.iter().find_map(|item| match item {
            News::Opened { link, proc, .. } if *proc == peer => Some(*link),
            _ => None,
        })
    }
}

enum News {
    /// A link to a peer, with this side's ends.
    Opened { link: u32, proc: u32, ends: Box<Ends> },
    /// A peer has closed a link, and why; the number is this side's.
    Closed { link: u32, reason: String },
    /// A peer has left.
    Left { proc: u32 },
}

impl Hub {
    /// A hub for `procs` engines with rings of `ring_bytes` (a power of two) each way.
    pub fn new(procs: u32, ring_bytes: usize) -> Self {
        Self::from_proc(0, procs, ring_bytes)
    }

    /// A hub for one proc alone, which reaches itself.
    pub fn alone(me: u32, ring_bytes: usize) -> Self {
        Self::from_proc(me, 1, ring_bytes.min(64 << 10))
    }

    fn from_proc(base: u32, procs: u32, ring_bytes: usize) -> Self {
        let members = (0..procs).map(|_| None).collect();
        Hub { shared: Arc::new(Mutex::new(Shared { members, left: vec![false; procs as usize] })), base, ring_bytes }
    }

    /// The place of a proc; past the end if it has none.
    fn place(&self, proc: u32) -> usize {
        proc.wrapping_sub(self.base) as usize
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One engine's membership of a [`Hub`].
pub struct Loopback {
    hub: Hub,
    me: u32,
    links: Links,
    /// Proc of each link.
    procs: Vec<u32>,
    /// The peer's number of each link.
    theirs: Vec<u32>,
    doorbell: Arc<OwnedFd>,
    capabilities: Capabilities,
    connected: Vec<u32>,
    /// Links to peers that have yet to join.
    awaited: Vec<u32>,
    /// Links whose peers have closed them, and why; their last frames are still to be read.
    endings: Vec<(u32, String)>,
    closed: bool,
}

impl Loopback {
    /// Its connections.
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
        let mut shared = hub.lock();
        match shared.members.get_mut(hub.place(me)) {
            Some(place @ None) => {
                let (inbox, doorbell) = (inbox.clone(), doorbell.clone());
                *place = Some(Member { inbox, doorbell, news: Vec::new(), next_link: 0, awaits: false });
            }
            Some(_) => return Err(format!("proc {me} has joined this hub already")),
            None => return Err(format!("this hub has no place for proc {me}")),
        }
        for member in shared.members.iter_mut().flatten().filter(|member| member.awaits) {
            if member.inbox.call() {
                ring(&member.doorbell);
            }
        }
        drop(shared);
        let capabilities = Capabilities {
            whole_frames: true,
            inject_max: hub.ring_bytes / 4 - 32,
            can_sleep: true,
            cheap_poll: true,
            windows: true,
            ..Capabilities::least(Reach::Process, 100, hub.ring_bytes / 4 - 32)
        };
        let links = Links::new(inbox);
        let (hub, procs, theirs) = (hub.clone(), Vec::new(), Vec::new());
        let (connected, awaited, endings) = (Vec::new(), Vec::new(), Vec::new());
        let closed = false;
        Ok(Loopback { hub, me, links, procs, theirs, doorbell, capabilities, connected, awaited, endings, closed })
    }

    fn note(&mut self, link: u32, proc: u32, theirs: u32) {
        while self.procs.len() <= link as usize {
            self.procs.push(NIL);
            self.theirs.push(NIL);
            self.links.reserve();
        }
        self.procs[link as usize] = proc;
        self.theirs[link as usize] = theirs;
    }

    /// Closes a link and tells the peer, which would wait for its frames otherwise.
    fn hang_up(&mut self, link: u32, reason: &str) {
        self.links.close(link);
        self.awaited.retain(|&awaited| awaited != link);
        self.endings.retain(|(ending, _)| *ending != link);
        let Some(proc) = self.procs.get_mut(link as usize).map(|proc| std::mem::replace(proc, NIL)) else { return };
        if proc == NIL || proc == self.me {
            return;
        }
        let mut shared = self.hub.lock();
        if let Some(Some(member)) = shared.members.get_mut(self.hub.place(proc)) {
            member.tell(News::Closed { link: self.theirs[link as usize], reason: reason.to_owned() });
        }
    }

    /// What peers have done since the last look.
    fn look_at_news(&mut self, events: &mut Vec<LinkEvent>) {
        let news = match self.hub.lock().members[self.hub.place(self.me)].as_mut() {
            Some(member) => std::mem::take(&mut member.news),
            None => return,
        };
        for item in news {
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

/// A ring on the heap.
fn heap_ring(bytes: usize) -> (RawRing, Arc<HeapMemory>) {
    let memory = Arc::new(HeapMemory::new(RawRing::bytes(bytes)));
    // SAFETY: zeroed memory of the ring's size; each end is used once, and the memory is kept with both.
    #[expect(unsafe_code, reason = "a view of the heap")]
    let ring = unsafe { RawRing::new(memory.base(), bytes) };
    (ring, memory)
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
        if self.hub.place(proc) < self.hub.lock().members.len() {
            Ok(())
        } else {
            Err("not an engine of this process".into())
        }
    }

    fn connect(&mut self, proc: u32, _card: &[u8], _now_ns: u64) -> Result<u32, String> {
        let known = self.procs.iter().position(|&p| p == proc).map(|link| link as u32);
        if let Some(link) = known.filter(|link| !self.awaited.contains(link)) {
            self.connected.push(link);
            return Ok(link);
        }
        let hub = self.hub.clone();
        let mut shared = hub.lock();
        if shared.left.get(hub.place(proc)).copied().unwrap_or(true) {
            return Err(format!("proc {proc} has left"));
        }
        if shared.members[hub.place(proc)].is_none() {
            // It tells who waits when it does.
            let me = shared.members[hub.place(self.me)].as_mut().ok_or("closed")?;
            me.awaits = true;
            let link = known.unwrap_or(me.next_link);
            me.next_link = me.next_link.max(link + 1);
            drop(shared);
            self.note(link, proc, NIL);
            self.awaited.retain(|&awaited| awaited != link);
            self.awaited.push(link);
            return Ok(link);
        }
        if let Some(link) = shared.members[hub.place(self.me)].as_ref().and_then(|me| me.opened_by(proc)) {
            // The peer was first: its link is told of with the next look at the news. Frames on a second one might
            // overtake those on it.
            return Ok(link);
        }
        let (out, out_memory) = heap_ring(hub.ring_bytes);
        let one_sided = fences::one_sided();
        if proc == self.me {
            let me = shared.members[hub.place(proc)].as_mut().ok_or("not joined")?;
            let link = me.next_link;
            me.next_link += 1;
            let (inbox, doorbell) = (me.inbox.clone(), me.doorbell.clone());
            drop(shared);
            let ends = Ends {
                outgoing: out,
                incoming: out,
                inbox,
                slot: link,
                doorbell,
                one_sided,
                past_min: u64::MAX,
                ring_max: 0,
                keep: out_memory,
            };
            self.note(link, proc, link);
            self.links.open(link, NIL, ends);
            self.connected.push(link);
            return Ok(link);
        }
        let (back, back_memory) = heap_ring(hub.ring_bytes);
        let keep: Arc<(Arc<HeapMemory>, Arc<HeapMemory>)> = Arc::new((out_memory, back_memory));
        let (mut theirs, mut mine) = (NIL, known.unwrap_or(NIL));
        for (place, link) in [(proc, &mut theirs), (self.me, &mut mine)] {
            if let Some(member) = shared.members[hub.place(place)].as_mut().filter(|_| *link == NIL) {
                *link = member.next_link;
                member.next_link += 1;
            }
        }
        let me = shared.members[hub.place(self.me)].as_ref().ok_or("closed")?;
        let (my_inbox, my_doorbell) = (me.inbox.clone(), me.doorbell.clone());
        let peer = shared.members[hub.place(proc)].as_mut().ok_or("left")?;
        let (inbox, doorbell) = (peer.inbox.clone(), peer.doorbell.clone());
        let ends = Ends {
            outgoing: back,
            incoming: out,
            inbox: my_inbox,
            slot: mine,
            doorbell: my_doorbell,
            one_sided,
            past_min: u64::MAX,
            ring_max: 0,
            keep: keep.clone(),
        };
        peer.tell(News::Opened { link: theirs, proc: self.me, ends: Box::new(ends) });
        drop(shared);
        self.awaited.retain(|&awaited| awaited != mine);
        self.note(mine, proc, theirs);
        let ends = Ends {
            outgoing: out,
            incoming: back,
            inbox,
            slot: theirs,
            doorbell,
            one_sided,
            past_min: u64::MAX,
            ring_max: 0,
            keep,
        };
        self.links.open(mine, NIL, ends);
        self.connected.push(mine);
        Ok(mine)
    }

    fn traffic(&self, link: u32) -> Option<Traffic> {
        self.links.traffic(link)
    }

    fn attach(&mut self, link: u32, vc: Row) {
        self.links.attach(link, vc);
    }

    fn grant(&mut self, link: u32, credit: Credit) {
        self.links.grant(link, credit);
    }

    fn granted(&mut self, link: u32) -> Credit {
        self.links.granted(link)
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
        // A peer that has left writes nothing any more; what it has written is read before its end is told.
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
        self.links.arm()
    }

    fn disarm(&mut self) {
        self.links.inbox().disarm();
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.doorbell, &mut count);
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let mut shared = self.hub.lock();
        let place = self.hub.place(self.me);
        // Who has opened a link that nobody has looked at yet is connected all the same.
        let news = shared.members[place].take().map(|member| member.news).unwrap_or_default();
        let callers = news.iter().filter_map(|item| match item {
            News::Opened { proc, .. } => Some(*proc),
            News::Closed { .. } | News::Left { .. } => None,
        });
        shared.left[place] = true;
        for peer in self.procs.iter().copied().chain(callers).filter(|&p| p != NIL && p != self.me) {
            if let Some(Some(member)) = shared.members.get_mut(self.hub.place(peer)) {
                member.tell(News::Left { proc: self.me });
            }
        }
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
