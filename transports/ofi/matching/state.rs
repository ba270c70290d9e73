//! What is kept between an answer of the provider and who waits for it.

use libfabric_sys as sys;
use tickwire_components::wire::Header;
use tickwire_components::{ArrivalState, Row, Span};

/// A receive that is over, and of which nobody has been told yet.
pub(super) struct Done {
    pub(super) state: ArrivalState,
    pub(super) row: Row,
    pub(super) place: u32,
    pub(super) header: Header,
    pub(super) payload: Span,
    pub(super) from: sys::fi_addr_t,
}

/// A receive that is asked back unless a message is there for it.
#[derive(Clone, Copy)]
pub(super) struct EndingReceive {
    pub(super) row: Row,
    pub(super) place: u32,
    /// Looks that may still find a message before it is asked back all the same.
    pub(super) looks_left: u32,
}
