//! The state of an open connection and of an ending one: how the peer's memory is read, what is passed over the control socket, and what
//! the ring may still hold.

use super::deaths::Watched;
use super::staging::Staged;
use super::{Line, Shm, socket};
use crate::handshake::Packet;
use crate::heap::PeerHeap;
use crate::shared::SharedRun;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use tickwire_components::limits::{UNREAD_NS_MAX, UNREAD_POLL_NS_MAX};

/// How the memory of a peer is read.
pub(crate) struct PeerMemory {
    /// The number under which the end of the peer's process is watched, once its memory was read.
    watched: Watched,
    /// Whether the kernel lets this process read it.
    readable: bool,
    /// Its shared heap, as this process maps it.
    heap: Option<Arc<PeerHeap>>,
    /// How its messages are staged.
    pub(super) staged: Staged,
    /// Shared runs that it has passed, by key, until the engine asks for them.
    pub(super) shared: Vec<(u64, Option<SharedRun>)>,
}

impl PeerMemory {
    /// `readable` tells whether the kernel lets the memory be read; `heap` is the peer's shared heap.
    pub(super) fn new(readable: bool, heap: Option<Arc<PeerHeap>>) -> Self {
        PeerMemory { watched: 0, readable, heap, staged: Staged::default(), shared: Vec::new() }
    }
}

impl Line {
    /// The peer's shared heap.
    pub(super) fn heap(&self) -> Option<&Arc<PeerHeap>> {
        self.more.heap.as_ref()
    }

    /// The peer's shared heap, if this process maps it for writing too.
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

    /// The peer's process, if its memory may be read: its process id, the descriptor that shows whether the id is still its own, and the
    /// number under which its end is watched.
    pub(super) fn readable_process(&mut self) -> Option<(u32, &OwnedFd, &mut Watched)> {
        let (process, PeerMemory { readable, watched, .. }) = self.process_and_more();
        let process = process.filter(|_| *readable)?;
        Some((process.pid(), process.descriptor()?, watched))
    }

    /// Sends a packet, if possible.
    pub(super) fn tell(&self, packet: &Packet) {
        let _ = socket::send(&self.socket, packet, &[]);
    }

    /// Sends a packet with descriptors.
    pub(super) fn pass(&self, packet: &Packet, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        socket::send(&self.socket, packet, descriptors)
    }
}

/// The state that tells whether more frames may arrive from a peer that has gone.
pub(crate) struct Unread {
    /// How far the ring had been read at the last poll, and when that was.
    heard: u64,
    looked_ns: u64,
    /// How long polling has found nothing, in ns.
    unheard_ns: u64,
    /// The position beyond which there can be no frame.
    heard_max: u64,
}

impl Shm {
    /// Starts to wait until the ring of a peer that has gone is read.
    pub(super) fn unread(&mut self, link: u32, now_ns: u64) -> Unread {
        // The peer may have ended before it announced its last frames.
        self.links.look(link);
        let (heard, _) = self.links.heard(link);
        // At most one ring length was written or skipped and is not released.
        let heard_max = heard.wrapping_add(2 * self.own.config.ring_bytes as u64);
        Unread { heard, looked_ns: now_ns, unheard_ns: 0, heard_max }
    }

    /// Whether all of it has been read, or nobody reads it any more.
    pub(super) fn is_read(&self, link: u32, unread: &mut Unread, now_ns: u64) -> bool {
        let (heard, more) = self.links.heard(link);
        unread.unheard_ns = match heard == unread.heard {
            true => unread.unheard_ns + now_ns.saturating_sub(unread.looked_ns).min(UNREAD_POLL_NS_MAX),
            false => 0,
        };
        (unread.heard, unread.looked_ns) = (heard, now_ns);
        !more || heard.wrapping_sub(unread.heard_max).cast_signed() >= 0 || unread.unheard_ns > UNREAD_NS_MAX
    }
}
