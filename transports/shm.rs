//! Shared memory: the transport between procs of one host. Each connection has two byte rings, one for each direction.
//!
//! Frames go through rings in segments that both sides map (see [`crate::rings`]). The only system call for them rings the doorbell of a
//! peer that sleeps. Everything else goes over one *control socket* per connection. It carries the handshake and the segments' descriptors,
//! and its end shows that the peer has ended. Making and ending connections works the same for all media (`connections`); `medium` has what
//! this one adds.
//!
//! - **Opening.** Each proc listens under an abstract socket name. The proc that connects makes the segment of the pair, and its greeting
//!   passes that segment, its own inbox and its doorbell. The accepting proc answers with its inbox, its doorbell, and the number under
//!   which the other announces frames. When two procs connect to each other at once, the attempt of the lower proc number wins.
//! - **Memory.** A segment is a sealed `memfd`: no directory bounds it, and no peer can shrink it. Rings begin small and grow with their
//!   traffic, within a bound for all rings that one proc writes. See `segment`, `room` and `growing`.
//! - **Trust.** Peers are processes of the same user, as the kernel reports. Everything they send is validated nevertheless: an invalid
//!   packet, descriptor or ring is refused or ends that connection, and nothing else. A proc is called for as long as its process runs: one
//!   that computes, or is stopped, answers later. Its card tells which process it is.
//! - **Ending.** A connection has ended when its control socket has ended, or when the peer's process has (a child of it may still hold the
//!   socket). Frames that the peer wrote before are read first; then the end is reported, once.
//! - **Writing.** Long frames are written past the caches. The reader, on another processor, then reads ahead from memory, instead of
//!   fetching line by line from the writer's cache.
//! - **Reading.** Large messages are read out of the sender's memory with one copy: out of its [shared heap](crate::heap), which the
//!   handshake passes, or by the kernel, if it allows that. See `reading`. A sender that has nothing else to do may help, if asked to. See
//!   `staging`.
//! - **Boards.** Members of a communicator exchange operands of collective operations in shared memory. See [`crate::boards`].
//! - **Sleeping.** The doorbell, the listener, all control sockets and processes are in one `epoll` instance: one
//!   descriptor to sleep on.

mod answering;
mod calling;
mod config;
mod deaths;
mod endpoint;
mod error;
mod growing;
pub(crate) mod identity;
mod lines;
mod medium;
mod own;
mod reading;
mod room;
mod segment;
mod sharing;
mod socket;
mod staging;
#[cfg(all(test, not(miri)))]
mod tests;

use crate::connections::{self, Connections, Medium, Spare};
use crate::handshake::{Greeting, ONE_SIDED};
use crate::heap;
use crate::rings::fences;
use crate::rings::inbox::{Inbox, SLOTS};
use crate::rings::links::{InboxView, Links, Need, silence};
use crate::rings::outlet::Outlet;
use crate::watching::{Token, Watched};
use crate::{
    Capabilities, CreditWindows, LinkEvent, Mapped, Memory, MemoryRead, Reach, Sent, SharedMemory, Take, Traffic,
    Transport,
};
pub use config::{ShmConfig, Staging};
use deaths::Deaths;
pub use endpoint::{BytesRead, Shm};
use endpoint::{Call, Line};
pub use error::ShmError;
use identity::HostCard;
pub use identity::host_identity;
use own::Own;
use room::Room;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd};
use segment::Files;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tickwire_components::limits::STAGING_MIN;
use tickwire_components::wire::{HEADER_BYTES, Header};
use tickwire_components::{Arrival, Pieces, Row, Span};

/// The most connections: as many as an inbox has bits.
const LINKS_MAX: usize = SLOTS;

impl Shm {
    /// The table of connections.
    #[inline(always)]
    pub(crate) fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Opens an endpoint. Where segments are files in a directory, removes this user's segments that nobody holds any more.
    ///
    /// # Errors
    /// What is missing and what to do.
    pub fn open(config: ShmConfig) -> Result<Self, ShmError> {
        config.check()?;
        let files = if config.files == Files::default() { Files::possible() } else { config.files };
        if files != Files::Memory {
            segment::sweep(&config.directory);
        }
        let descriptors = |source| ShmError::Descriptors { source };
        let boot_id = identity::boot_id()?;
        let card = HostCard::own(identity::host_card(boot_id, None)?);
        let frame_max = config.ring_bytes / 4 - HEADER_BYTES;
        let heap = heap::offer().filter(|_| config.shared_heap);
        let mapped = heap.map_or(Mapped::NONE, |heap| Mapped { start: heap.base as usize, bytes: heap.bytes as usize });
        let greeting = Greeting {
            capabilities: if fences::one_sided() { ONE_SIDED } else { 0 },
            ring_bytes: config.ring_bytes as u64,
            first_ring_bytes: config.first_bytes() as u32,
            heap_base: heap.map_or(0, |heap| heap.base),
            heap_bytes: heap.map_or(0, |heap| heap.bytes),
            ..connections::greeting(&config.job, config.me, config.procs, frame_max, boot_id)
        };
        let listener = socket::listen(&config)?;
        let frame_sure = config.first_bytes() / 4 - HEADER_BYTES;
        let (room, made) = (Room::default(), Arc::default());
        let (directory, job, me) = (&config.directory, &config.job, config.me);
        let place = segment::Place { files, directory, job, me, room: &room, made: &made };
        let (inbox, map) = segment::create(place, size_of::<Inbox>())?;
        let base = map.base();
        // SAFETY: a new mapping of an inbox's size, zeroed and aligned to a page, kept by the view.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        let view = unsafe { InboxView::new(base, Arc::new(map)) };
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(descriptors)?;
        let own = Own {
            uid: rustix::process::geteuid().as_raw(),
            card,
            greeting,
            inbox,
            doorbell: Arc::new(doorbell),
            watched: Watched::new().map_err(descriptors)?,
            heap: heap.map(|heap| heap.file),
            files,
            room,
            made,
            grown: Arc::default(),
            config,
        };
        // Whether its own memory can be read this way. Whether a peer's can, each connection finds out.
        let remote_read = heap.is_some() || own.config.cross_memory_attach && reading::allowed(own.greeting.pid);
        own.watched.add(&own.doorbell, Token::Messages).map_err(descriptors)?;
        own.watched.add(&listener, Token::Listener).map_err(descriptors)?;
        let spare = Spare::of(&own.doorbell).map_err(descriptors)?;
        Ok(Shm {
            spare,
            own,
            capabilities: Capabilities { mapped, frame_sure, ..capabilities(frame_max, remote_read) },
            connections: Connections::new(listener),
            links: Links::new(view),
            read: BytesRead::default(),
            kernel_calls: 0,
            timing: false,
            deaths: Deaths::default(),
            passing: Vec::new(),
        })
    }

    /// Serves the needs of connections: larger rings, and closing those with corrupt rings.
    fn serve(&mut self, events: &mut Vec<LinkEvent>) {
        while let Some((link, need)) = self.links.take_need() {
            let corrupt = match need {
                Need::Closing(corrupt) => corrupt,
                Need::Room => {
                    self.grow(link);
                    continue;
                }
            };
            let reason = format!("corrupt ring: {corrupt}");
            connections::fail_telling(self, link, reason, events);
        }
    }
}

fn capabilities(frame_max: usize, remote_read: bool) -> Capabilities {
    Capabilities {
        remote_read,
        whole_frames: true,
        inject_max: frame_max,
        can_sleep: true,
        cheap_poll: true,
        ..Capabilities::least(Reach::Host, 80, frame_max)
    }
}

// SAFETY: what it gives out is its own, and stays as long as is said.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Transport for Shm {
    type RowState = ();

    fn name(&self) -> &str {
        "shm"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn card(&self) -> Vec<u8> {
        self.own.card.encode()
    }

    fn moved(&self) -> (u64, u64) {
        let (sent, received) = self.links.moved();
        (sent, received + self.read.heap + self.read.attach + self.read.staged)
    }

    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        connections::is_peer(self, proc)?;
        if card.is_empty() {
            return Err(format!("proc {proc} has not opened it"));
        }
        match HostCard::decode(card) {
            Some(card) if card.host == self.own.card.host => Ok(()),
            Some(_) => Err(format!("proc {proc} runs on another host")),
            None => Err(format!("proc {proc} has a card of another kind: use one build of tickwire for all procs")),
        }
    }

    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        self.reaches(proc, card)?;
        let card = HostCard::decode(card).ok_or("its card cannot be read")?;
        connections::call(self, proc, card, now_ns)
    }

    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        self.reaches(proc, card).ok()?;
        self.find_process(&HostCard::decode(card)?).err()
    }

    fn attach(&mut self, link: u32, vc: Row) {
        self.links.attach(link, vc);
    }

    fn memory(&mut self) -> Option<&mut dyn Memory> {
        Some(self)
    }

    fn credit_windows(&mut self) -> Option<&mut dyn CreditWindows> {
        Some(&mut self.links)
    }

    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        Some(self)
    }

    fn traffic(&self, link: u32) -> Option<Traffic> {
        self.links.traffic(link)
    }

    fn fits(&mut self, link: u32, payload: u64) -> u64 {
        self.links.fits(link, payload)
    }

    fn shared_bytes(&self) -> u64 {
        self.own.made.load(Ordering::Relaxed)
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

    fn drain_link(&mut self, link: u32, _now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.links.drain_link(link, arrivals)
    }

    #[inline]
    fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        self.links.deliver(most, take)
    }

    #[inline]
    fn release(&mut self) {
        self.links.release();
    }

    #[inline]
    fn wants_control(&self) -> bool {
        self.connections.wants_control() || self.links.has_need()
    }

    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        self.connections.report_queued(events);
        // A peer can set this flag, but it has no meaning over shared memory.
        let _ = self.links.inbox().called();
        if !self.connections.is_open() {
            return;
        }
        self.serve(events);
        connections::look(self, now_ns, events);
        self.links.tend();
        connections::tend(self, now_ns, events);
    }

    fn close_link(&mut self, link: u32) {
        connections::close_link(self, link);
    }

    fn give_up(&mut self, link: u32, reason: &str) {
        connections::give_up(self, link, reason);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.connections.is_open().then(|| self.own.watched.as_fd())
    }

    fn arm(&mut self) -> bool {
        !self.connections.has_news() && !self.links.has_need() && self.links.arm(true)
    }

    fn disarm(&mut self) {
        self.links.inbox().disarm();
        silence(&self.own.doorbell);
    }

    fn close(&mut self) {
        connections::close(self);
    }
}

// SAFETY: what is exposed is read only until it is withdrawn, and places are written only within the call.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Memory for Shm {
    fn reads(&self, link: u32, address: u64, length: u64) -> bool {
        self.may_read(link, address, length)
    }

    unsafe fn read(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String> {
        self.read_memory(link, reads)
    }

    unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool {
        self.read_one_now(link, address, into, alone)
    }

    #[inline]
    unsafe fn expose(&mut self, link: u32, run: Span) {
        if run.len() >= STAGING_MIN
            && let Some(outlet) = self.links.outlet(link)
        {
            // SAFETY: by the same contract: whoever withdraws a run, closes its link or ends all goes through this endpoint,
            // which tells the outlet, and the outlet of a closed link is dropped.
            unsafe { outlet.expose(run) }
        }
    }

    #[inline]
    fn withdraw(&mut self, link: u32, run: Span) {
        if run.len() >= STAGING_MIN
            && let Some(outlet) = self.links.outlet(link)
        {
            outlet.withdraw(run);
        }
    }

    fn withdraw_all(&mut self) {
        self.links.outlets().for_each(Outlet::withdraw_all);
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        self.close();
    }
}
