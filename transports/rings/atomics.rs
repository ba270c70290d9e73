//! The atomics that rings and inboxes are made of: the processor's, or loom's when it drives them.

#[cfg(all(test, tickwire_loom))]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(all(test, tickwire_loom)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
