//! The hub where the engines of one process find each other: it knows who has joined, carries their news, and makes the rings between two
//! of them.

use crate::rings::fences;
use crate::rings::inbox::SLOTS;
use crate::rings::links::{Ends, InboxView, ring};
use crate::rings::memory::{HeapMemory, RawRing};
use crate::shared::SharedRun;
use rustix::fd::OwnedFd;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::NIL;

/// The hub where the engines of one process find each other. Clones are the same hub.
#[derive(Clone)]
pub struct Hub {
    shared: Arc<Mutex<Shared>>,
    /// Number of the first proc.
    base: u32,
    ring_bytes: usize,
    /// Its engines act as if they shared no memory.
    apart: bool,
}

struct Shared {
    members: Vec<Option<Member>>,
    /// Which places were joined and left again.
    left: Vec<bool>,
}

struct Member {
    inbox: InboxView,
    doorbell: Arc<OwnedFd>,
    /// News that this member has not read yet.
    news: Vec<News>,
    /// Number of its next link. Whoever connects first, this member or a peer, takes it.
    next_link: u32,
    /// Whether it waits for a peer to join.
    awaits: bool,
}

/// The news that a member gets from others.
pub(super) enum News {
    /// A peer has opened a link, with these ends for this side.
    Opened { link: u32, proc: u32, ends: Box<Ends> },
    /// A peer has closed a link, and why. The number is the member's own.
    Closed { link: u32, reason: String },
    /// A peer has passed a run of shared memory under a key, or says that it has none. The link's number is the member's own.
    Shared { link: u32, key: u64, run: Option<SharedRun> },
    /// A peer has left.
    Left { proc: u32 },
}

/// A run that a peer has passed, or the news that it has none, until the engine asks for it.
pub(super) struct Passed {
    pub(super) link: u32,
    pub(super) key: u64,
    pub(super) run: Option<SharedRun>,
}

/// The result of an attempt to connect. Links are by this engine's numbers.
pub(super) enum Connection {
    /// The peer has not joined yet. Its joining will wake this engine.
    Awaited { link: u32 },
    /// The peer has connected first: unread news announces this link.
    Opened { link: u32 },
    /// This engine opens the link with these ends. The peer has been told.
    Opens { link: u32, theirs: u32, ends: Ends },
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
        let shared = Shared { members, left: vec![false; procs as usize] };
        Hub { shared: Arc::new(Mutex::new(shared)), base, ring_bytes, apart: false }
    }

    /// This hub, changed so that its engines share no memory, as if each were on a host of its own: the target's engine does one-sided
    /// operations. All engines of a hub must agree on that.
    pub fn apart(self) -> Self {
        Hub { apart: true, ..self }
    }

    /// Whether engines share no memory.
    pub(super) fn is_apart(&self) -> bool {
        self.apart
    }

    /// Bytes of each ring.
    pub(super) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Whether there is a place for a proc.
    pub(super) fn has_place(&self, proc: u32) -> bool {
        self.place(proc) < self.lock().members.len()
    }

    /// Takes the place of proc `me`, and wakes those that wait for somebody to join.
    ///
    /// # Errors
    /// If the place is taken or does not exist.
    pub(super) fn join(&self, me: u32, inbox: InboxView, doorbell: Arc<OwnedFd>) -> Result<(), String> {
        let mut shared = self.lock();
        match shared.members.get_mut(self.place(me)) {
            Some(place @ None) => {
                *place = Some(Member { inbox, doorbell, news: Vec::new(), next_link: 0, awaits: false });
            }
            Some(_) => return Err(format!("proc {me} has joined this hub already")),
            None => return Err(format!("this hub has no place for proc {me}")),
        }
        shared.members.iter().flatten().filter(|member| member.awaits).for_each(Member::call);
        Ok(())
    }

    /// Connects `me` with `proc`, over the link `known` if one has been reserved for that.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(super) fn connect(&self, me: u32, proc: u32, known: Option<u32>) -> Result<Connection, String> {
        let mut shared = self.lock();
        let (here, there) = (self.place(me), self.place(proc));
        if let Some(link) = shared.members[here].as_ref().and_then(|own| own.opened_by(proc)) {
            // The peer may have left since: what it has sent is read first. Frames on a second link might overtake those on the first.
            return Ok(Connection::Opened { link });
        }
        if shared.left.get(there).copied().unwrap_or(true) {
            return Err(format!("proc {proc} has left"));
        }
        let has_joined = shared.members[there].is_some();
        let own = shared.members[here].as_mut().ok_or("closed")?;
        if known.is_none() && own.is_full() {
            return Err(format!("an engine has {SLOTS} links over loopback at most"));
        }
        if !has_joined {
            own.awaits = true;
            let link = known.unwrap_or(own.next_link);
            own.next_link = own.next_link.max(link + 1);
            return Ok(Connection::Awaited { link });
        }
        if here == there {
            let link = own.number();
            let (ring, memory) = heap_ring(self.ring_bytes);
            return Ok(Connection::Opens { link, theirs: link, ends: own.ends_to([ring, ring], link, memory) });
        }
        let ((out, out_memory), (back, back_memory)) = (heap_ring(self.ring_bytes), heap_ring(self.ring_bytes));
        let keep: Arc<dyn Any + Send + Sync> = Arc::new((out_memory, back_memory));
        if shared.members[there].as_ref().is_some_and(Member::is_full) {
            return Err(format!("an engine has {SLOTS} links over loopback at most"));
        }
        let own = shared.members[here].as_mut().ok_or("closed")?;
        let link = known.unwrap_or_else(|| own.number());
        let for_peer = own.ends_to([back, out], link, keep.clone());
        let peer = shared.members[there].as_mut().ok_or("left")?;
        let theirs = peer.number();
        peer.tell(News::Opened { link: theirs, proc: me, ends: Box::new(for_peer) });
        Ok(Connection::Opens { link, theirs, ends: peer.ends_to([out, back], theirs, keep) })
    }

    /// Sends news to a proc, if it has joined.
    pub(super) fn tell(&self, proc: u32, news: News) {
        if let Some(Some(member)) = self.lock().members.get_mut(self.place(proc)) {
            member.tell(news);
        }
    }

    /// Takes the news of `me`.
    pub(super) fn news(&self, me: u32) -> Vec<News> {
        self.lock().members[self.place(me)].as_mut().map(|member| std::mem::take(&mut member.news)).unwrap_or_default()
    }

    /// Gives up the place of `me`. Tells `peers` (procs or [`NIL`]), and procs that have connected meanwhile.
    pub(super) fn leave(&self, me: u32, peers: &[u32]) {
        let mut shared = self.lock();
        let place = self.place(me);
        // A proc whose link was announced in unread news is connected too.
        let news = shared.members[place].take().map(|member| member.news).unwrap_or_default();
        let callers = news.iter().filter_map(|item| match item {
            News::Opened { proc, .. } => Some(*proc),
            News::Closed { .. } | News::Shared { .. } | News::Left { .. } => None,
        });
        shared.left[place] = true;
        for peer in peers.iter().copied().chain(callers).filter(|&p| p != NIL && p != me) {
            if let Some(Some(member)) = shared.members.get_mut(self.place(peer)) {
                member.tell(News::Left { proc: me });
            }
        }
    }

    /// The place of a proc; past the end if it has none.
    fn place(&self, proc: u32) -> usize {
        proc.wrapping_sub(self.base) as usize
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Adds news for this member, and wakes it if it sleeps.
    fn tell(&mut self, news: News) {
        self.news.push(news);
        self.call();
    }

    /// Makes this member read its news, and wakes it if it sleeps.
    fn call(&self) {
        if self.inbox.call() {
            ring(&self.doorbell);
        }
    }

    /// The link that a peer has opened, if that news is still unread.
    fn opened_by(&self, peer: u32) -> Option<u32> {
        self.news.iter().find_map(|item| match item {
            News::Opened { link, proc, .. } if *proc == peer => Some(*link),
            _ => None,
        })
    }

    /// Whether there is no number for another link.
    fn is_full(&self) -> bool {
        self.next_link as usize >= SLOTS
    }

    /// A number for a link.
    fn number(&mut self) -> u32 {
        self.next_link += 1;
        self.next_link - 1
    }

    /// The ends of a link to this member: the rings to it and from it, and its number for the link.
    fn ends_to(&self, [outgoing, incoming]: [RawRing; 2], slot: u32, keep: Arc<dyn Any + Send + Sync>) -> Ends {
        Ends {
            outgoing,
            incoming,
            inbox: self.inbox.clone(),
            slot,
            doorbell: self.doorbell.clone(),
            one_sided: fences::one_sided(),
            past_min: u64::MAX,
            ring_max: 0,
            keep,
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
