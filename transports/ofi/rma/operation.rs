//! One-sided operations that were taken and are not complete.

use crate::ofi::registry::Local;
use crate::remote::{AtomicOperation, AtomicWord, Channel};
use libfabric_sys as sys;
use std::ffi::c_void;
use tickwire_components::Span;

/// The number of operations that are none of a caller's: writes into rings.
pub(super) const OF_RING: u64 = u64::MAX;

/// What an operation does.
#[derive(Clone, Copy)]
pub(super) enum What {
    Put,
    Get,
    Fetch(AtomicOperation, AtomicWord),
    /// Puts the second one where the first one is.
    Swap(AtomicWord, AtomicWord),
}

/// An operation that was taken and is not complete.
pub(super) struct Operation {
    /// Its place is in use.
    pub(super) is_used: bool,
    pub(super) channel: Channel,
    pub(super) epoch: u32,
    /// Its number in its channel, and its caller's.
    pub(super) sequence: u64,
    pub(super) number: u64,
    pub(super) what: What,
    pub(super) to: sys::fi_addr_t,
    pub(super) address: u64,
    pub(super) key: u64,
    pub(super) local: Span,
    /// The region with the local run, where it needs one.
    pub(super) region: Option<Local>,
    /// Bytes that were given to the provider.
    pub(super) given: usize,
    /// Pieces that it has.
    pub(super) under_way: u32,
    pub(super) failed: Option<String>,
    /// Its link has ended.
    pub(super) ending: bool,
}

/// A piece of an operation that the provider has.
pub(super) struct Piece {
    /// Whose it is; [`NIL`](tickwire_components::NIL) if nobody waits for it.
    pub(super) operation: u32,
    /// Where what the slot has got goes, and where it is in the slot.
    pub(super) into: Option<(Span, usize)>,
}

/// Where the bytes of a piece are, and what operations on them take.
pub(super) struct Place {
    pub(super) run: Span,
    pub(super) descriptor: *mut c_void,
    pub(super) into: Option<(Span, usize)>,
}

impl Operation {
    /// Whether nothing more is to be posted.
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
