//! One link as the fabric sees it, and frames that have come.

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
    /// Frames may come over it.
    pub(super) open: bool,
    /// Frames may be sent: the link is open, its first frame has left, and none was refused.
    pub(super) ready: bool,
    pub(super) first: First,
    /// The token that frames from the peer show.
    pub(super) mine: u64,
    /// The token that frames to the peer show, and the peer's number for the link.
    pub(super) theirs: u64,
    pub(super) slot: u32,
    /// The peer's fabric address.
    pub(super) to: sys::fi_addr_t,
    pub(super) vc: Row,
    /// Numbers of the next frame in each direction.
    pub(super) sent: u32,
    pub(super) received: u32,
    pub(super) traffic: Traffic,
    /// A frame was refused by the provider.
    pub(super) failed: bool,
    pub(super) pack: Pack,
    /// The endpoint for long messages, if there is one.
    pub(super) direct: Option<Box<Direct>>,
    /// Whether the peer was asked for one.
    pub(super) asked: bool,
    /// The rings with the peer, if it may have one.
    pub(super) ring: Option<Box<Ring>>,
    /// The peer's, of which it has told before there was one here.
    pub(super) their_ring: Option<RemoteKey>,
}

/// What has become of the first frame of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// The provider has not taken it.
    Due,
    /// The provider sends it from this slot.
    Sending(u32),
    /// It has left.
    Sent,
}

/// Frames for a peer since the last look. See [`super::packing`].
#[derive(Clone, Copy)]
pub(super) struct Pack {
    /// Number of that look, and frames since then.
    pub(super) look: u32,
    pub(super) frames: u32,
    /// The slot in which frames wait, [`NIL`] if none do, and their bytes.
    pub(super) slot: u32,
    pub(super) bytes: u32,
}

impl Pack {
    /// No frames.
    pub(super) const EMPTY: Pack = Pack { look: 0, frames: 0, slot: NIL, bytes: 0 };
}

impl Lane {
    /// A place for a link that is not open yet, whose frames will show `mine`.
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

    /// What the next frame to the peer shows.
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
    /// Frames in it that are in use.
    pub(super) held: u32,
    /// The provider has finished with it.
    pub(super) done: bool,
}

/// A frame that has come.
pub(super) struct Ready {
    pub(super) header: Header,
    pub(super) payload: Span,
    pub(super) link: u32,
    pub(super) buffer: u32,
    /// Its length with all that stood before the payload.
    pub(super) bytes: u64,
}

/// A frame whose turn has not come: an earlier one has not come yet, or its link is not open yet.
pub(super) struct Early {
    pub(super) frame: Ready,
    pub(super) number: u32,
}
