//! One-sided operations in flight.

use crate::ofi::registry::Local;
use crate::remote::{AtomicOperation, AtomicWord, Channel};
use libfabric_sys as sys;
use std::ffi::c_void;
use tickwire_components::Span;

/// The caller's number for operations that no caller has issued: writes into rings.
pub(super) const OF_RING: u64 = u64::MAX;

/// What an operation does.
#[derive(Clone, Copy)]
pub(super) enum What {
    Put,
    Get,
    Fetch(AtomicOperation, AtomicWord),
    /// Compare and swap: writes the second word if the target holds the first one.
    Swap(AtomicWord, AtomicWord),
}

/// An operation that was accepted and is not complete.
pub(super) struct Operation {
    /// This entry of the table is in use.
    pub(super) is_used: bool,
    pub(super) channel: Channel,
    pub(super) epoch: u32,
    /// Its position in its channel.
    pub(super) sequence: u64,
    /// The number that its caller gave it.
    pub(super) number: u64,
    pub(super) what: What,
    pub(super) to: sys::fi_addr_t,
    pub(super) address: u64,
    pub(super) key: u64,
    pub(super) local: Span,
    /// The memory region of the local run, where one is needed.
    pub(super) region: Option<Local>,
    /// Bytes that were posted to the provider.
    pub(super) given: usize,
    /// Pieces that the provider has and has not completed.
    pub(super) under_way: u32,
    pub(super) failed: Option<String>,
    /// Its link has ended.
    pub(super) ending: bool,
}

/// A piece of an operation that the provider has.
pub(super) struct Piece {
    /// The operation that it belongs to; [`NIL`](tickwire_components::NIL) if nobody waits for it any more.
    pub(super) operation: u32,
    /// Where to copy the result from the slot, and its offset in the slot. `None` if nothing is copied.
    pub(super) into: Option<(Span, usize)>,
}

/// The memory that a piece is posted with, and its descriptor.
pub(super) struct Place {
    pub(super) run: Span,
    pub(super) descriptor: *mut c_void,
    pub(super) into: Option<(Span, usize)>,
}

impl Operation {
    /// Whether all pieces were posted, or it has failed.
    pub(super) fn is_given(&self) -> bool {
        self.given == self.local.len() || self.failed.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_given() && self.under_way == 0
    }

    #[cfg(test)]
    pub(super) fn is_registered(&self) -> bool {
        self.is_used && self.region.is_some()
    }
}
