//! One link as the fabric sees it, and frames that have arrived.

use super::ring::Ring;
use crate::Traffic;
use crate::ofi::direct::Direct;
use crate::ofi::frame::Preface;
use crate::remote::RemoteKey;
use libfabric_sys as sys;
use tickwire_components::wire::Header;
use tickwire_components::{NIL, Row, Span};

/// One link, as the fabric sees it.
pub(super) struct Lane {
    /// The link is open: frames from the peer are accepted.
    pub(super) open: bool,
    /// Frames may be sent: the link is open, its first frame has left, and the provider has failed no send on it.
    pub(super) ready: bool,
    pub(super) first: First,
    /// The token that frames from the peer must carry.
    pub(super) mine: u64,
    /// The token that frames to the peer carry, and the peer's number for the link.
    pub(super) theirs: u64,
    pub(super) slot: u32,
    /// The peer's fabric address.
    pub(super) to: sys::fi_addr_t,
    pub(super) vc: Row,
    /// Number of the next frame in each direction.
    pub(super) sent: u32,
    pub(super) received: u32,
    pub(super) traffic: Traffic,
    /// The provider has failed a send on this link.
    pub(super) failed: bool,
    pub(super) pack: Pack,
    /// The endpoint for long messages, once it is open.
    pub(super) direct: Option<Box<Direct>>,
    /// Whether opening that endpoint has been tried.
    pub(super) asked: bool,
    /// The rings shared with the peer, if the link has rings.
    pub(super) ring: Option<Box<Ring>>,
    /// The peer's ring, as soon as the peer has announced it. This may be before `ring` exists.
    pub(super) their_ring: Option<RemoteKey>,
}

/// State of the first frame of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// The provider has not accepted it.
    Due,
    /// The provider sends it from this slot.
    Sending(u32),
    /// It has left.
    Sent,
}

/// Frames sent to a peer since the last poll. See [`super::packing`].
#[derive(Clone, Copy)]
pub(super) struct Pack {
    /// Number of that poll, and how many frames were sent since.
    pub(super) look: u32,
    pub(super) frames: u32,
    /// The slot with packed frames, [`NIL`] if none wait, and how many bytes they have.
    pub(super) slot: u32,
    pub(super) bytes: u32,
}

impl Pack {
    /// No frames.
    pub(super) const EMPTY: Pack = Pack { look: 0, frames: 0, slot: NIL, bytes: 0 };
}

impl Lane {
    /// A lane for a link that is not open yet. Frames from the peer will carry the token `mine`.
    pub(super) fn new(mine: u64) -> Self {
        Lane {
            open: false,
            ready: false,
            first: First::Due,
            mine,
            theirs: 0,
            slot: NIL,
            to: sys::FI_ADDR_NOTAVAIL,
            vc: NIL,
            sent: 0,
            received: 0,
            traffic: Traffic::default(),
            failed: false,
            pack: Pack::EMPTY,
            direct: None,
            asked: false,
            ring: None,
            their_ring: None,
        }
    }

    /// The preface of the next frame to the peer.
    #[inline]
    pub(super) fn preface(&self) -> Preface {
        Preface { link: self.slot, number: self.sent, token: self.theirs }
    }

    /// Counts a frame to the peer.
    #[inline]
    pub(super) fn count(&mut self, length: usize) {
        self.sent = self.sent.wrapping_add(1);
        self.traffic.sent += length as u64;
    }

    /// Counts a frame from the peer.
    #[inline]
    pub(super) fn receive(&mut self, bytes: u64) {
        self.received = self.received.wrapping_add(1);
        self.traffic.received += bytes;
    }
}

/// A buffer for receives.
#[derive(Clone, Copy, Default)]
pub(super) struct Buffer {
    /// How many frames in it are in use.
    pub(super) held: u32,
    /// The provider does not use it any more.
    pub(super) done: bool,
}

/// A frame that has arrived.
pub(super) struct Ready {
    pub(super) header: Header,
    pub(super) payload: Span,
    pub(super) link: u32,
    pub(super) buffer: u32,
    /// Length of the frame in bytes, including what precedes the payload.
    pub(super) bytes: u64,
}

/// A frame that arrived too early: an earlier frame of its link is missing, or the link is not open yet.
pub(super) struct Early {
    pub(super) frame: Ready,
    pub(super) number: u32,
}
