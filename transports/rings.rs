//! Byte rings between two engines, which loopback and shared memory have in common.
//!
//! The protocol uses remote writes only. The writer of a ring writes frames, header and payload, into the reader's memory, and reads none
//! of it. The reader writes how much it has released, and the credit that it grants ([`window`]), into memory that the writer polls. Where
//! both map the same pages, a remote write is a store; a transport with RMA brings its own [`ring::RingMemory`].

pub(crate) mod atomics;
mod distance;
pub mod fences;
pub mod inbox;
pub mod links;
#[cfg(all(test, not(miri), not(tickwire_loom)))]
mod links_tests;
#[cfg(all(test, tickwire_loom))]
mod loom_tests;
pub(crate) mod mark;
pub mod memory;
pub mod outlet;
#[cfg(all(test, not(tickwire_loom)))]
mod remote_tests;
pub mod ring;
#[cfg(test)]
mod ring_tests;
mod shortage;
pub mod staging;
pub mod window;
