//! Receives whose answer is known but not yet handed out, and receives that are being cancelled.

use libfabric_sys as sys;
use tickwire_components::wire::Header;
use tickwire_components::{ArrivalState, Row, Span};

/// A receive that is over and was not handed out yet.
pub(super) struct Done {
    pub(super) state: ArrivalState,
    pub(super) row: Row,
    pub(super) place: u32,
    pub(super) header: Header,
    pub(super) payload: Span,
    pub(super) from: sys::fi_addr_t,
}

/// A receive that is cancelled unless a message is there for it.
#[derive(Clone, Copy)]
pub(super) struct EndingReceive {
    pub(super) row: Row,
    pub(super) place: u32,
    /// How many more probes may find a message before it is cancelled nevertheless.
    pub(super) looks_left: u32,
}
