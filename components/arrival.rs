//! Frames and completions that a transport has delivered and that the engine has not handled yet.

use crate::wire::Header;
use crate::{NIL, Row, Span};
use bevy_ecs::component::Component;

/// Where an arrival stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum ArrivalState {
    /// Nothing is left to do for this arrival.
    #[default]
    Handled,
    /// DrainCq has read the arrival. Match has yet to decide what happens to it.
    New,
    /// No posted receive matches the message. SupplyBuffers finds a temporary buffer for its payload.
    Unexpected,
    /// The destination is decided. Transfer moves the payload there.
    Placed,
    /// The transport has moved the whole message of the CAR in `to` ([`CarState::Direct`](crate::CarState::Direct)).
    Moved,
    /// The transport has matched a message to the receive in `to`. Match checks whether this match is valid.
    Matched,
    /// The transport gives back the receive in `to`. It has matched no message to it.
    Recalled,
    /// A message that a matched probe has taken out of its transport.
    Claimed,
}

/// Where the bytes of an arrival go, or those of a message that arrives in several pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Destination {
    /// Nowhere: the destination is not decided yet, or no receive takes the bytes.
    #[default]
    Nobody,
    /// Into the buffer of a receive. Holds the row of its CAR.
    Receive(Row),
    /// Into the temporary buffer of an unexpected message, until a receive takes the message over. Holds the row of the unexpected
    /// entry.
    Unexpected(Row),
    /// Into a temporary buffer. Holds its row.
    Temporary(Row),
}

/// A row for a frame or a completion. It is valid within one pass and takes one cache line.
///
/// Written by DrainCq (`header`, `payload`, `vc`, and `to` if the transport has matched the message), by Match and SupplyBuffers (`to`,
/// `state`), and by Transfer (`state`).
#[derive(Component, Clone, Copy, Debug)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
#[repr(C, align(64))]
pub struct Arrival {
    /// The frame's header, copied once. Match checks it ([`Header::check`]) before the engine uses it.
    pub header: Header,
    /// The payload, in the transport's memory. It is valid until the engine tells the transport to release it.
    pub payload: Span,
    /// The VC that the frame came over: the row of the proc.
    pub vc: Row,
    /// Where the bytes go. See [`Destination`].
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

/// Where a part lies in its message ([`Kind::Part`](crate::wire::Kind::Part)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartPlace {
    /// Bytes of the message before the part.
    pub at: u64,
    /// Bytes of the message.
    pub length: u64,
}

impl Arrival {
    /// Notes where a part lies in its message. The frame of a part has no envelope, so the words of the envelope hold this.
    #[inline]
    pub const fn set_part_place(&mut self, place: PartPlace) {
        (self.header.origin, self.header.name) = (place.at, place.length);
    }

    /// Where a part lies in its message, once Match has [noted](Arrival::set_part_place) it; `None` for all other frames.
    #[inline]
    pub const fn part_place(&self) -> Option<PartPlace> {
        match self.header.is_part() {
            true => Some(PartPlace { at: self.header.origin, length: self.header.name }),
            false => None,
        }
    }

    /// The row of the receive's CAR that the bytes go to; [`NIL`] if they go elsewhere.
    #[inline(always)]
    pub const fn receive(&self) -> Row {
        match self.to {
            Destination::Receive(row) => row,
            _ => NIL,
        }
    }
}
