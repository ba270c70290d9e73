//! The fabric's side of an endpoint: frames out of pinned slots, frames into buffers that are posted ahead.
//!
//! A send copies its frame into a slot of its own, with a context of its own, and is done with the caller's bytes; a short one
//! is injected. No free slot or no room at the provider is [`Sent::Blocked`]: the frame stays in its row. Receives are
//! posted from the start, for anybody: large buffers for many frames where the provider can do that, else one for each. A
//! buffer goes back to the provider once all frames in it have been used. Many short frames in a row go together ([`packing`]).

mod first;
mod moving;
mod opening;
mod packing;
mod receiving;
mod tagged;

use self::first::First;
use self::packing::Pack;
use super::direct::Direct;
use super::frame::{self, LINKS_MAX, Preface};
use super::matching::Matching;
use super::slab::{Contexts, Slab};
use super::tags::Protocol;
use super::{AddressVector, Completion, CompletionQueue, Endpoint, MemoryRegion, OfiError, Refused};
use crate::{Sent, Traffic};
use libfabric_sys as sys;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;
use tickwire_components::wire::Header;
use tickwire_components::{Pieces, Row, Span, context};

/// Frames that a number may be ahead of the one that is due; of short ones a quarter, which credit keeps them below.
const AHEAD_MAX: u32 = 1 << 16;
/// Failed receives in a row after which the endpoint is given up.
const FAILURES_MAX: u32 = 256;

/// One link, as the fabric sees it.
struct Lane {
    open: bool,
    /// Open, and what is sent leaves: the first frame has, and none was refused.
    ready: bool,
    first: First,
    /// What frames from the peer show.
    mine: u64,
    /// What frames to the peer show, and its number for the link.
    theirs: u64,
    slot: u32,
    to: sys::fi_addr_t,
    vc: Row,
    /// Numbers of the next frame in each direction.
    sent: u32,
    received: u32,
    traffic: Traffic,
    /// A frame was refused by the provider.
    failed: bool,
    pack: Pack,
    /// The endpoint for long messages, and whether there was one to be.
    direct: Option<Box<Direct>>,
    asked: bool,
}

impl Lane {
    /// What the next frame to the peer shows.
    #[inline]
    fn preface(&self) -> Preface {
        Preface { link: self.slot, number: self.sent, token: self.theirs }
    }

    /// Counts a frame to the peer.
    #[inline]
    fn count(&mut self, length: usize) {
        self.sent = self.sent.wrapping_add(1);
        self.traffic.sent += length as u64;
    }

    /// Counts a frame from the peer.
    #[inline]
    fn receive(&mut self, bytes: u64) {
        self.received = self.received.wrapping_add(1);
        self.traffic.received += bytes;
    }
}

/// A buffer for receives.
#[derive(Clone, Copy, Default)]
struct Buffer {
    /// Frames in it that are in use.
    held: u32,
    /// The provider has finished with it.
    done: bool,
}

/// A frame that has come.
struct Ready {
    header: Header,
    payload: Span,
    link: u32,
    buffer: u32,
    /// Its length with all that was before the payload.
    bytes: u64,
}

/// A frame whose turn has not come: an earlier one has not been completed, or its link is not open yet.
struct Early {
    frame: Ready,
    number: u32,
}

/// See the module.
pub(super) struct Port {
    // Closed in this order; what the provider may touch until then comes last.
    endpoint: Endpoint,
    addresses: AddressVector,
    queue: CompletionQueue,
    regions: Vec<MemoryRegion>,
    sending: Slab,
    /// The place behind all slots, where what is injected is put together.
    desk: Span,
    receiving: Slab,
    contexts: Contexts,
    /// In tagged mode.
    matching: Option<Box<Matching>>,
    /// Peers' numbers that are known, in tagged mode: each address is one peer.
    peers: Vec<(Vec<u8>, sys::fi_addr_t)>,
    /// VCs by peer's number.
    vcs: Vec<Row>,
    sources: Box<[sys::fi_addr_t]>,
    descriptors: [*mut c_void; 2],
    free: Vec<u32>,
    /// The link of each slot that is in use.
    links: Vec<u32>,
    buffers: Vec<Buffer>,
    /// Buffers to be posted.
    idle: Vec<u32>,
    /// Buffers of frames that were drained.
    lent: Vec<u32>,
    frames: VecDeque<Ready>,
    early: Vec<Early>,
    lanes: Vec<Lane>,
    completions: Box<[Completion]>,
    /// Those of them that a look has left to whoever takes messages, all of receives: their frames are behind all others.
    unread: Range<usize>,
    inject_max: usize,
    /// Bytes of frames that go together at most.
    pack_bytes: usize,
    /// Links that frames wait for.
    packs: Vec<u32>,
    /// Links whose first frame has not left.
    beginning: Vec<u32>,
    /// Counts looks.
    look: u32,
    /// Links with messages under way straight between the memory of both ends.
    moving: Vec<u32>,
    /// Links and rows of those that are done.
    done: Vec<(u32, Row)>,
    /// `FI_MULTI_RECV`, or nothing.
    receive_flags: u64,
    /// The last send was refused, and none has completed since.
    blocked: bool,
    /// Links that have failed, and why.
    faults: Vec<(u32, String)>,
    /// Why the whole endpoint is of no use any more.
    broken: Option<String>,
    failures: u32,
    /// A link has ended otherwise than in order.
    disturbed: bool,
    /// Frames that belonged to no link, and receives that failed.
    strays: u64,
    moved: (u64, u64),
}

// SAFETY: slots, buffers and contexts are its own, the addresses lead into them; the rest is as `Domain::open` says.
#[expect(unsafe_code, reason = "FFI")]
unsafe impl Send for Port {}

impl Port {
    fn provider(&self) -> &str {
        self.endpoint.domain().info().provider()
    }

    /// Whether its buffers take many frames.
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

    /// Makes a place for a link, whose frames will show `mine`.
    pub(super) fn reserve(&mut self, link: u32, mine: u64) {
        let lane = Lane::new(mine);
        match self.lanes.get_mut(link as usize) {
            Some(place) => *place = lane,
            None => self.lanes.push(lane),
        }
        debug_assert!((link as usize) < self.lanes.len(), "numbers are given out in order");
    }

    /// The token that was given out for a link.
    pub(super) fn token(&self, link: u32) -> u64 {
        self.lanes.get(link as usize).map_or(0, |lane| lane.mine)
    }

    /// Opens a link to a peer: its number for it, the token that it wants to see, its fabric address.
    pub(super) fn open_lane(&mut self, link: u32, slot: u32, theirs: u64, address: &[u8]) -> Result<(), String> {
        if slot as usize >= LINKS_MAX {
            return Err(format!("the peer numbers this connection {slot}, and there are {LINKS_MAX} at most"));
        }
        let to = self.number_of(address)?;
        let Some(lane) = self.lanes.get_mut(link as usize) else { return Err("no such link".into()) };
        (lane.open, lane.slot, lane.theirs, lane.to) = (true, slot, theirs, to);
        self.begin(link);
        self.settle(link);
        Ok(())
    }

    /// Links that frames may come over.
    pub(super) fn open_count(&self) -> u32 {
        self.lanes.iter().filter(|lane| lane.open).count() as u32
    }

    /// Ends a link: what comes for it later is a stray.
    pub(super) fn close_lane(&mut self, link: u32) {
        self.go_through();
        let Some(lane) = self.lanes.get_mut(link as usize) else { return };
        (lane.open, lane.ready, lane.mine) = (false, false, 0);
        self.beginning.retain(|other| *other != link);
        self.end_direct(link);
        self.drop_pack(link);
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

    /// Counts a frame as sent that never goes.
    #[cfg(test)]
    pub(super) fn lose(&mut self, link: u32) {
        let lane = &mut self.lanes[link as usize];
        lane.sent = lane.sent.wrapping_add(1);
    }

    /// Whether a frame waits for one that was sent before it.
    pub(super) fn has_gap(&self, link: u32) -> bool {
        self.early.iter().any(|early| early.frame.link == link)
    }

    /// Frames that belonged to no link.
    #[cfg(test)]
    pub(super) fn strays(&self) -> u64 {
        self.strays
    }

    pub(super) fn take_fault(&mut self) -> Option<(u32, String)> {
        self.disturbed |= !self.faults.is_empty();
        self.faults.pop()
    }

    /// A peer is gone without a word.
    pub(super) fn disturb(&mut self) {
        self.disturbed = true;
    }

    pub(super) fn has_fault(&self) -> bool {
        !self.faults.is_empty() || self.broken.is_some()
    }

    /// Why nothing goes any more.
    pub(super) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Whether something has come that may be frames, or messages are done, that nobody has taken.
    #[inline]
    pub(super) fn has_frames(&self) -> bool {
        !self.unread.is_empty() || !self.frames.is_empty() || !self.done.is_empty()
    }

    /// Whether something has come that nobody has taken.
    #[inline]
    pub(super) fn has_arrivals(&self) -> bool {
        self.has_frames() || self.matching.as_ref().is_some_and(|matching| matching.has_done())
    }

    /// Whether sends are under way, or were refused.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        self.blocked || self.free.len() < self.links.len() || !self.beginning.is_empty() || self.is_sending_direct()
    }

    #[inline(always)]
    pub(super) fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Sent {
        let lane = match self.lanes.get_mut(link as usize) {
            Some(lane) if lane.ready => lane,
            // It waits for its first frame; or `control` tells why, in the provider's words.
            Some(lane) if lane.open => return Sent::Blocked,
            _ => return Sent::Failed,
        };
        if self.matching.is_some() || lane.packs(self.look) {
            return self.send_otherwise(link, header, pieces);
        }
        self.send_alone(link, header, pieces)
    }

    /// A frame that the peer's provider may match, or that may go with others.
    #[inline(never)]
    fn send_otherwise<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Sent {
        if let Some(matching) = &self.matching {
            if let Some(protocol) = Protocol::of(header.kind())
                && context::plane(header.context()) == context::USER
            {
                let label = matching.label(protocol, header);
                return self.send_matched(link, header, pieces, protocol, label);
            }
            if !self.lanes[link as usize].packs(self.look) {
                return self.send_alone(link, header, pieces);
            }
        }
        match self.pack(link, header, pieces) {
            Some(sent) => sent,
            None => self.send_alone(link, header, pieces),
        }
    }

    /// A frame that goes by itself.
    #[inline(always)]
    fn send_alone<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Sent {
        let lane = &mut self.lanes[link as usize];
        let length = frame::length(header);
        let outcome = if length <= self.inject_max {
            let frame = frame::write_alone(self.desk, lane.preface(), header, pieces);
            // SAFETY: an own place, just written.
            #[expect(unsafe_code, reason = "FFI")]
            unsafe {
                self.endpoint.inject(frame, lane.to)
            }
        } else {
            self.send_slot(link, header, pieces)
        };
        match outcome {
            Ok(()) => {
                let lane = &mut self.lanes[link as usize];
                lane.count(length);
                self.moved.0 += length as u64;
                (lane.traffic.full, self.blocked) = (false, false);
                Sent::Done
            }
            Err(refused) => self.refused(link, refused),
        }
    }

    /// A frame that the provider reads until it is sent.
    #[inline(never)]
    fn send_slot<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Result<(), Refused> {
        let lane = &self.lanes[link as usize];
        let &slot = self.free.last().ok_or(Refused::Again)?;
        let frame = frame::write_alone(self.sending.place(slot as usize), lane.preface(), header, pieces);
        let (descriptor, context) = (self.descriptors[0], self.contexts.of(slot as usize));
        // SAFETY: place and context belong to the slot, which is free again only after the completion; the
        // endpoint is closed before they are freed.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            self.endpoint.send(frame, descriptor, lane.to, context)?;
        }
        self.free.pop();
        self.links[slot as usize] = link;
        Ok(())
    }

    /// What became of something that was given to the provider for a link.
    #[inline]
    fn settled(&mut self, link: u32, outcome: Result<(), Refused>) -> Sent {
        match outcome {
            Ok(()) => {
                (self.lanes[link as usize].traffic.full, self.blocked) = (false, false);
                Sent::Done
            }
            Err(refused) => self.refused(link, refused),
        }
    }

    /// The provider has not taken something for a link.
    #[cold]
    fn refused(&mut self, link: u32, refused: Refused) -> Sent {
        let lane = &mut self.lanes[link as usize];
        let again = refused == Refused::Again;
        (lane.traffic.full, self.blocked) = (again, again);
        // `control` tells why, in the provider's words.
        if let Refused::Failed(error) = refused {
            (lane.failed, lane.ready) = (true, false);
            self.faults.push((link, error.to_string()));
        }
        Sent::Blocked
    }
}

impl Drop for Port {
    /// After a peer or a network was gone, closing the endpoint crashes `tcp;ofi_rxm` of libfabric 1.17 now and then. So it is
    /// left open, with the memory that it may still touch; so it is while sends are under way.
    fn drop(&mut self) {
        if !self.disturbed && self.free.len() == self.links.len() {
            return;
        }
        std::mem::forget((self.endpoint.clone(), self.regions.clone()));
        let sending = std::mem::replace(&mut self.sending, Slab::new(1, 1));
        let receiving = std::mem::replace(&mut self.receiving, Slab::new(1, 1));
        let contexts = std::mem::replace(&mut self.contexts, Contexts::new(1));
        std::mem::forget((sending, receiving, contexts));
    }
}
