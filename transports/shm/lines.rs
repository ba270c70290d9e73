//! What an endpoint keeps of an open connection and of one that ends: how it reads the peer's memory, what it passes over the
//! control socket, and what the ring may still hold.

use super::deaths::Watched;
use super::splicing::Pipes;
use super::{Line, Shm, socket};
use crate::handshake::Packet;
use crate::heap::PeerHeap;
use crate::shared::SharedRun;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;

/// How long the last frames of a peer that has gone may stay unread before they are given up, ns.
const UNREAD_NS_MAX: u64 = 1_000_000_000;
/// What a look at them counts for at most, ns: a program that computes between two looks has read nothing meanwhile.
const LOOK_NS_MAX: u64 = 20_000_000;

/// How the memory of a peer is read.
pub(crate) struct PeerMemory {
    /// Under which number the end of its process is watched for, once its memory was read.
    watched: Watched,
    /// Whether the kernel lets this process read it.
    readable: bool,
    /// Its shared heap, as this process maps it.
    heap: Option<Arc<PeerHeap>>,
    /// What its messages are spliced through.
    pub(super) pipes: Pipes,
    /// Shared runs that it has passed, by key, until they are asked for.
    pub(super) shared: Vec<(u64, Option<SharedRun>)>,
}

impl PeerMemory {
    /// Whether the kernel lets it be read, and the peer's shared heap.
    pub(super) fn new(readable: bool, heap: Option<Arc<PeerHeap>>) -> Self {
        PeerMemory { watched: 0, readable, heap, pipes: Pipes::default(), shared: Vec::new() }
    }
}

impl Line {
    /// The peer's shared heap.
    pub(super) fn heap(&self) -> Option<&Arc<PeerHeap>> {
        self.more.heap.as_ref()
    }

    /// The same, if this process maps it for writing, too.
    pub(super) fn writable_heap(&mut self) -> Option<&Arc<PeerHeap>> {
        let (process, PeerMemory { readable, heap, .. }) = self.process_and_more();
        let process = process.filter(|_| *readable)?;
        let descriptor = process.descriptor()?;
        heap.as_ref().filter(|heap| heap.may_write(process.pid(), descriptor))
    }

    /// Whether the memory of the process may be read.
    pub(super) fn readable(&self) -> bool {
        self.more.readable
    }

    /// The process, if its memory may be read: its number, the descriptor that says that the number is still its own, and
    /// under which number its end is watched for.
    pub(super) fn readable_process(&mut self) -> Option<(u32, &OwnedFd, &mut Watched)> {
        let (process, PeerMemory { readable, watched, .. }) = self.process_and_more();
        let process = process.filter(|_| *readable)?;
        Some((process.pid(), process.descriptor()?, watched))
    }

    /// Sends a packet, if that goes.
    pub(super) fn tell(&self, packet: &Packet) {
        let _ = socket::send(&self.socket, packet, &[]);
    }

    /// Sends a packet with descriptors.
    pub(super) fn pass(&self, packet: &Packet, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        socket::send(&self.socket, packet, descriptors)
    }
}

/// What tells whether more comes from a peer that has gone.
pub(crate) struct Unread {
    /// How much had been read at the last look, and when that was.
    heard: u64,
    looked_ns: u64,
    /// How long it has been looked at in vain, ns.
    unheard_ns: u64,
    /// Where the last frame ends at most.
    heard_max: u64,
}

impl Shm {
    /// What the ring of a peer that has gone may still hold.
    pub(super) fn unread(&mut self, link: u32, now_ns: u64) -> Unread {
        // Its last frames may lack their announcement.
        self.links.look(link);
        let (heard, _) = self.links.heard(link);
        // What was written or skipped and not released is no more than the ring.
        let heard_max = heard.wrapping_add(2 * self.own.config.ring_bytes as u64);
        Unread { heard, looked_ns: now_ns, unheard_ns: 0, heard_max }
    }

    /// Whether all of it has been read, or nobody does.
    pub(super) fn is_read(&self, link: u32, unread: &mut Unread, now_ns: u64) -> bool {
        let (heard, more) = self.links.heard(link);
        unread.unheard_ns = match heard == unread.heard {
            true => unread.unheard_ns + now_ns.saturating_sub(unread.looked_ns).min(LOOK_NS_MAX),
            false => 0,
        };
        (unread.heard, unread.looked_ns) = (heard, now_ns);
        !more || heard.wrapping_sub(unread.heard_max).cast_signed() >= 0 || unread.unheard_ns > UNREAD_NS_MAX
    }
}
