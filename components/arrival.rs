//! What a transport has brought and nobody has handled yet.

use crate::wire::Header;
use crate::{NIL, Row, Span};
use bevy_ecs::component::Component;

/// Where an arrival stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum ArrivalState {
    /// Nothing to do for it (any more).
    #[default]
    Handled,
    /// Read by DrainCq; Match decides.
    New,
    /// Belongs to no posted receive: SupplyBuffers finds it a temporary.
    Unexpected,
    /// It is known where its bytes go: Transfer moves them.
    Placed,
    /// The transport has moved all of the message of the CAR in `to` ([`CarState::Direct`](crate::CarState::Direct)).
    Moved,
    /// A message that its transport has paired with the receive in `to`: Match looks whether that may be.
    Matched,
    /// The receive in `to` comes back from its transport, unpaired.
    Recalled,
    /// A message that a probe has taken out of its transport.
    Claimed,
}

/// Where the bytes of an arrival go, or of a message that arrives in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Destination {
    /// Nowhere: it is not decided, or nobody receives them.
    #[default]
    Nobody,
    /// Into the segments of a receive: its CAR.
    Receive(Row),
    /// Into the temporary that an entry among the unexpected has or gets, until a receive takes the message over.
    Unexpected(Row),
    /// Into a temporary: its row.
    Temporary(Row),
}

/// A row for a frame or completion, valid within one pass; one cache line.
///
/// Written by DrainCq (header, payload, vc; `to` of what a transport has paired), Match and SupplyBuffers (to, state), Transfer
/// (state).
#[derive(Component, Clone, Copy, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
#[repr(C, align(64))]
pub struct Arrival {
    /// The frame's header, copied once; Match checks it ([`Header::check`]) before anything is done with it.
    pub header: Header,
    /// Its payload, where the transport has it until it is told to release.
    pub payload: Span,
    /// The VC it came on: row of the proc.
    pub vc: Row,
    /// See [`Destination`].
    pub to: Destination,
    /// See [`ArrivalState`].
    pub state: ArrivalState,
}

const _: () = assert!(size_of::<Arrival>() == 64);

impl Default for Arrival {
    fn default() -> Self {
        Arrival {
            header: Header::default(),
            payload: Span::EMPTY,
            vc: NIL,
            to: Destination::Nobody,
            state: ArrivalState::Handled,
        }
    }
}

impl Arrival {
    /// The CAR that its bytes go to; [`NIL`] if they go elsewhere.
    #[inline(always)]
    pub const fn receive(&self) -> Row {
        match self.to {
            Destination::Receive(row) => row,
            _ => NIL,
        }
    }
}
