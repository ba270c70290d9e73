//! The fabric's side of an endpoint: frames out of pinned slots, frames into buffers that are posted ahead.
//!
//! - **Sending.** A send copies its frame into a slot, which has an operation context of its own. After that the caller's bytes are no
//!   longer needed. A short frame is injected. If no slot is free, or the provider has no room, the send returns
//!   [`Sent::Blocked`](crate::Sent::Blocked) and the frame stays in its row. Many short frames in succession are packed into one send
//!   ([`packing`]).
//! - **Receiving.** Receives are posted from the start, for any sender. Where the provider supports `FI_MULTI_RECV`, they are large buffers
//!   for many frames each; otherwise there is one buffer for each frame. A buffer is posted again once all frames in it have been used.

mod arriving;
mod delivering;
mod first;
mod lane;
mod looking;
mod moving;
mod opening;
mod packing;
mod receiving;
mod remote;
mod ring;
mod ringing;
mod sending;
mod tagged;
mod taking;

use self::lane::{Buffer, Early, Lane, Ready};
use super::frame::LINKS_MAX;
use super::matching::Matching;
use super::registry::Registry;
use super::ring::RingMemory;
use super::rma::{Rma, RmaState};
use super::slab::{Contexts, Slab};
use super::{AddressVector, Completion, CompletionQueue, Endpoint, MemoryRegion, OfiError};
use crate::Traffic;
use libfabric_sys as sys;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;
use tickwire_components::{NIL, Row, Span};

/// Stands for the link of a slot whose link has ended. No link has this number.
const ENDED: u32 = NIL - 1;

/// The fabric's side of an endpoint. See the module.
pub(super) struct Port {
    // Fields are dropped in this order: an object is closed before the memory that the provider may touch through it is freed.
    endpoint: Endpoint,
    addresses: AddressVector,
    queue: CompletionQueue,
    regions: Vec<MemoryRegion>,
    sending: Slab,
    /// The place behind all slots of `sending`, where a frame is assembled before it is injected.
    desk: Span,
    receiving: Slab,
    /// Frames taken out of rings are copied here.
    copies: Slab,
    contexts: Contexts,
    /// In tagged mode.
    matching: Option<Box<Matching>>,
    /// The endpoints for one-sided operations, once somebody has asked for them.
    rma: Option<Box<Rma>>,
    rma_state: RmaState,
    /// Rings of links that have ended, if the provider does not check withdrawn keys: the peer can still write to them. They are kept until
    /// the endpoints are closed.
    old_rings: Vec<RingMemory>,
    /// Caches the memory regions that one-sided operations and long messages use.
    pub(in crate::ofi) registry: Registry,
    /// In tagged mode, the address vector's entries: fabric address and number. Each address is one peer.
    peers: Vec<(Vec<u8>, sys::fi_addr_t)>,
    /// The VC of each peer, by the peer's number in the address vector.
    vcs: Vec<Row>,
    sources: Box<[sys::fi_addr_t]>,
    descriptors: Descriptors,
    free: Vec<u32>,
    /// The link of each slot that is in use.
    links: Vec<u32>,
    /// The buffers of `receiving`, followed by those of `copies`.
    buffers: Vec<Buffer>,
    /// How many of `buffers` belong to `receiving`.
    posted: usize,
    free_copies: Vec<u32>,
    /// `ringing` are the links that have a ring. `unrung` are the links that may still get one. `rings_max` bounds the number of rings.
    ringing: Vec<u32>,
    unrung: Vec<u32>,
    rings_max: usize,
    /// Buffers that are to be posted again.
    idle: Vec<u32>,
    /// Buffers of frames that were drained and are not released yet.
    lent: Vec<u32>,
    frames: VecDeque<Ready>,
    early: Vec<Early>,
    lanes: Vec<Lane>,
    completions: Box<[Completion]>,
    /// The completions that the last poll has left to [`Port::deliver`] and [`Port::drain`]. All are of receives, and all are later than
    /// those in `frames`.
    unread: Range<usize>,
    inject_max: usize,
    /// The most bytes of frames that are packed into one send.
    pack_bytes: usize,
    /// Links with packed frames that are not sent yet.
    packs: Vec<u32>,
    /// Links whose first frame the provider has not sent yet.
    beginning: Vec<u32>,
    /// Number of the last poll of the completion queue.
    look: u32,
    /// Number of the last poll that has found a message.
    last_found: u32,
    /// Links with long messages in flight that go directly between the memory of both processes.
    moving: Vec<u32>,
    /// Links and rows of such messages that are complete.
    done: Vec<(u32, Row)>,
    /// `FI_MULTI_RECV` if a buffer takes many frames, or 0.
    receive_flags: u64,
    /// The provider has refused the last send, and no send has completed since.
    blocked: bool,
    /// Sends in flight whose links have ended. A provider may keep those to a dead peer for ever.
    sends_ended: usize,
    /// Links that have failed, and why.
    faults: Vec<(u32, String)>,
    /// Why the whole endpoint is unusable.
    broken: Option<String>,
    /// Whether the links have been told of that.
    is_broken_told: bool,
    failures: u32,
    /// A link has failed, or a peer has disappeared without closing its connection.
    disturbed: bool,
    /// Frames that belonged to no link, plus receives that failed.
    strays: u64,
    moved: (u64, u64),
}

/// Descriptors of registered memory, as operations take them. Null where memory is not registered.
struct Descriptors {
    /// By slot.
    slots: Box<[*mut c_void]>,
    /// Of all buffers.
    buffers: *mut c_void,
}

// SAFETY: slots, buffers and contexts are its own, the addresses lead into them; the rest is as `Domain::open` says.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for Port {}

impl Port {
    fn provider(&self) -> &str {
        self.endpoint.domain().info().provider()
    }

    /// Whether the provider requires local memory to be registered (`FI_MR_LOCAL`).
    pub(super) fn registers(&self) -> bool {
        self.endpoint.domain().info().is_told_of_local_memory()
    }

    /// Whether a receive buffer takes many frames (`FI_MULTI_RECV`).
    pub(super) fn is_multi(&self) -> bool {
        self.receive_flags != 0
    }

    /// The endpoint's own address.
    pub(super) fn name(&self) -> Result<Vec<u8>, OfiError> {
        self.endpoint.name()
    }

    /// The completion queue, to sleep on.
    pub(super) fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Makes a lane for a link. Frames from the peer will carry the token `mine`.
    pub(super) fn reserve(&mut self, link: u32, mine: u64) {
        let lane = Lane::new(mine);
        self.rma().into_iter().for_each(|rma| rma.begin_link(link));
        match self.lanes.get_mut(link as usize) {
            Some(place) => *place = lane,
            None => self.lanes.push(lane),
        }
        debug_assert!((link as usize) < self.lanes.len(), "numbers are given out in order");
    }

    /// The token that this process has given out for a link.
    pub(super) fn token(&self, link: u32) -> u64 {
        self.lanes.get(link as usize).map_or(0, |lane| lane.mine)
    }

    /// Opens a link to a peer. `slot` is the peer's number for the link, `theirs` the token that the peer expects, and `address` its fabric
    /// address.
    pub(super) fn open_lane(&mut self, link: u32, slot: u32, theirs: u64, address: &[u8]) -> Result<(), String> {
        if slot as usize >= LINKS_MAX {
            return Err(format!("the peer numbers this connection {slot}, and there are {LINKS_MAX} at most"));
        }
        if let Some(reason) = &self.broken {
            return Err(reason.clone());
        }
        let to = self.number_of(address)?;
        let Some(lane) = self.lanes.get_mut(link as usize) else { return Err("no such link".into()) };
        (lane.open, lane.slot, lane.theirs, lane.to) = (true, slot, theirs, to);
        self.begin(link);
        self.keep_due(link);
        if self.rings_max > 0 && self.matching.is_none() {
            self.unrung.push(link);
        }
        Ok(())
    }

    /// How many links are open.
    pub(super) fn open_count(&self) -> u32 {
        self.lanes.iter().filter(|lane| lane.open).count() as u32
    }

    /// Ends a link. Frames that arrive for it later count as strays.
    pub(super) fn close_lane(&mut self, link: u32) {
        self.go_through();
        let Some(lane) = self.lanes.get_mut(link as usize) else { return };
        (lane.open, lane.ready, lane.mine) = (false, false, 0);
        self.beginning.retain(|other| *other != link);
        self.end_direct(link);
        self.rma().into_iter().for_each(|rma| rma.end_link(link));
        // The number may belong to another link by the time the sends in flight complete.
        for of in self.links.iter_mut().filter(|of| **of == link) {
            *of = ENDED;
            self.sends_ended += 1;
        }
        self.drop_pack(link);
        self.drop_ring(link);
        let mut given_back = Vec::new();
        self.frames.retain(|frame| {
            let keep = frame.link != link;
            if !keep {
                given_back.push(frame.buffer);
            }
            keep
        });
        self.early.retain(|early| {
            let keep = early.frame.link != link;
            if !keep {
                given_back.push(early.frame.buffer);
            }
            keep
        });
        given_back.into_iter().for_each(|buffer| self.give_back(buffer));
        self.faults.retain(|(faulty, _)| *faulty != link);
        // A frame that the provider has refused for this link is not sent any more.
        self.blocked = self.lanes.iter().any(|lane| lane.open && lane.traffic.full);
        self.post();
    }

    pub(super) fn attach(&mut self, link: u32, vc: Row) {
        if let Some(lane) = self.lanes.get_mut(link as usize) {
            lane.vc = vc;
            let to = lane.to;
            self.know_peer(to, vc);
        }
    }

    pub(super) fn traffic(&self, link: u32) -> Option<Traffic> {
        self.lanes.get(link as usize).filter(|lane| lane.open).map(|lane| lane.traffic)
    }

    pub(super) fn moved(&self) -> (u64, u64) {
        self.moved
    }

    /// Frames that a link has sent and received.
    pub(super) fn counts(&self, link: u32) -> (u32, u32) {
        self.lanes.get(link as usize).map_or((0, 0), |lane| (lane.sent, lane.received))
    }

    /// Counts a frame as sent and does not send it.
    #[cfg(test)]
    pub(super) fn lose(&mut self, link: u32) {
        let lane = &mut self.lanes[link as usize];
        lane.sent = lane.sent.wrapping_add(1);
    }

    /// Whether a frame of a link has arrived and an earlier frame of the link has not.
    pub(super) fn has_gap(&self, link: u32) -> bool {
        self.early.iter().any(|early| early.frame.link == link)
    }

    /// Frames that belonged to no link.
    #[cfg(test)]
    pub(super) fn strays(&self) -> u64 {
        self.strays
    }

    /// Takes a fault. What has arrived on the link before is read first: the peer may have said goodbye.
    pub(super) fn take_fault(&mut self) -> Option<(u32, String)> {
        if !self.faults.is_empty() {
            self.disturb();
        }
        let is_read = |link: u32| {
            let mut waiting = self.frames.iter().map(|frame| frame.link).chain(self.done.iter().map(|&(of, _)| of));
            self.unread.is_empty() && waiting.all(|of| of != link)
        };
        let place = self.faults.iter().rposition(|&(link, _)| is_read(link))?;
        Some(self.faults.remove(place))
    }

    /// Has a link fail, as if a send on it had.
    #[cfg(test)]
    pub(super) fn fault(&mut self, link: u32, words: &str) {
        self.faults.push((link, words.to_owned()));
    }

    /// A peer has disappeared without closing its connection.
    pub(super) fn disturb(&mut self) {
        self.disturbed = true;
        self.rma().into_iter().for_each(Rma::disturb);
    }

    pub(super) fn has_fault(&self) -> bool {
        !self.faults.is_empty() || (self.broken.is_some() && !self.is_broken_told)
    }

    /// Why the endpoint is unusable, if it is and this was not asked before.
    pub(super) fn take_broken(&mut self) -> Option<String> {
        let told = self.broken.is_some() && std::mem::replace(&mut self.is_broken_told, true);
        self.broken.clone().filter(|_| !told)
    }

    /// Why the endpoint is unusable, if it is.
    pub(super) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Whether something has arrived that was not taken yet: frames, completions that may be of frames, or long messages that are complete.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        !self.unread.is_empty() || !self.frames.is_empty() || !self.done.is_empty()
    }

    /// As [`Port::has_frames`], and also true for messages that the provider has matched.
    #[inline]
    pub(super) fn has_arrivals(&self) -> bool {
        self.has_frames() || self.matching.as_ref().is_some_and(|matching| matching.has_done())
    }

    /// Whether sends over open links are in flight, or the provider has refused one.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        self.blocked
            || self.free.len() + self.sends_ended < self.links.len()
            || !self.beginning.is_empty()
            || self.is_sending_direct()
            || self.is_operating()
    }
}

impl Drop for Port {
    /// Leaves the endpoint open, with the memory that the provider may still touch, if a peer or the network has failed: closing the
    /// endpoint then sometimes crashes `tcp;ofi_rxm` of libfabric 1.17. It is left open too while sends are in flight.
    fn drop(&mut self) {
        if !self.disturbed && self.free.len() == self.links.len() {
            return;
        }
        std::mem::forget((self.endpoint.clone(), self.regions.clone()));
        let sending = std::mem::replace(&mut self.sending, Slab::new(1, 1));
        let receiving = std::mem::replace(&mut self.receiving, Slab::new(1, 1));
        let contexts = std::mem::replace(&mut self.contexts, Contexts::new(1));
        std::mem::forget((sending, receiving, contexts, self.matching.take()));
    }
}
