//! The parts of a simulated network's state: what is on its way besides frames, and how a frame is corrupted.

use std::collections::VecDeque;
use tickwire_components::credit::Credit;
use tickwire_components::{Row, Span};

/// How a frame is corrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Corruption {
    /// Its header becomes one that no engine accepts, so its VC ends.
    Refused,
    /// One bit of its header is flipped, whatever results. If the payload no longer has the length that the header says, the link ends.
    Header,
    /// One bit of its payload is flipped. Only a receiver that knows what was sent can notice. The address in an offer is not changed.
    Payload,
}

/// Grants from one proc to another that have not been collected, in their order: when each is due, ns.
pub(super) type Grants = VecDeque<(u64, Credit)>;

/// A message that a receiver expects from one sender.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) number: u32,
    /// The receiver's CAR.
    pub(super) row: Row,
    pub(super) into: Span,
}

/// The end of a message that was moved, as one side is to hear of it.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) due_ns: u64,
    /// The proc at the other side.
    pub(super) other: u32,
    /// The CAR of this side.
    pub(super) row: Row,
}
