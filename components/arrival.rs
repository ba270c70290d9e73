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
    /// Has a destination, its CAR or its temporary buffer: Transfer moves the bytes.
    Placed,
    /// The transport has moved all of the message in `car` ([`CarState::Direct`](crate::CarState::Direct)).
    Moved,
    /// A message that its transport has paired with the receive in `car`: Match looks whether that may be.
    Matched,
    /// The receive in `car` comes back from its transport, unpaired.
    Recalled,
    /// A message that a probe has taken out of its transport.
    Claimed,
}

/// A row for a frame or completion, valid within one pass; one cache line.
///
/// Written by DrainCq (header, payload, vc), Match (car, state), SupplyBuffers (buffer, state), Transfer (state).
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
    /// The CAR it was matched with.
    pub car: Row,
    /// The temporary it goes to.
    pub buffer: Row,
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
            car: NIL,
            buffer: NIL,
            state: ArrivalState::Handled,
        }
    }
}
