//! Slots for short puts (`mail.rs`). Each member has one. While the slot is free, it is the origin's. While a put is posted in it, the
//! origin or the target may take it. Whoever has taken the put has the slot until it is free again.

use crate::rings::atomics::{AtomicU32, AtomicU64, Ordering};
use tickwire_components::limits::{MAIL_BYTES, MAIL_MEMBERS};

/// The slot is the origin's.
const FREE: u32 = 0;
/// A put is in it.
const POSTED: u32 = 1;
/// Somebody writes the put to where it belongs.
const TAKEN: u32 = 2;

/// Whether the slot is the origin's. Then what was last put is where it belongs.
#[inline(always)]
pub(super) fn is_free(state: &AtomicU32) -> bool {
    state.load(Ordering::Acquire) == FREE
}

/// Leaves what the origin has written into its slot.
#[inline(always)]
pub(super) fn post(state: &AtomicU32) {
    state.store(POSTED, Ordering::Release);
}

/// Whether there may be a put for the target. To be asked before [`take`], since it costs no exclusive cache line.
#[inline(always)]
pub(super) fn is_posted(state: &AtomicU32) -> bool {
    state.load(Ordering::Relaxed) == POSTED
}

/// Takes the put, for the target or for the origin. `false` if there is none, or the other one has taken it.
#[inline(always)]
pub(super) fn take(state: &AtomicU32) -> bool {
    state.compare_exchange(POSTED, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Frees the slot, once the put that was taken is where it belongs.
#[inline(always)]
pub(super) fn free(state: &AtomicU32) {
    state.store(FREE, Ordering::Release);
}

/// A slot: the last put of a member.
#[repr(C, align(128))]
pub(super) struct Slot {
    /// Whose the slot is.
    pub(super) state: AtomicU32,
    /// Bytes of the put.
    pub(super) length: AtomicU32,
    /// Where it belongs, bytes from the start of the part.
    pub(super) at: AtomicU64,
    _pad: [u64; 14],
    pub(super) bytes: [u8; MAIL_BYTES],
}

/// Bytes of the slots of so many members. 0 if there are more than [`MAIL_MEMBERS`], since the target looks at all slots.
pub(super) const fn slot_bytes(members: u32) -> usize {
    if members <= MAIL_MEMBERS { members as usize * size_of::<Slot>() } else { 0 }
}

#[cfg(all(test, tickwire_loom))]
mod loom_tests;
