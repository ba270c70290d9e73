//! Byte rings between pairs: what loopback and shared memory have in common.

mod atomics;
pub mod fences;
pub mod inbox;
pub mod links;
#[cfg(all(test, not(miri), not(tickwire_loom)))]
mod links_tests;
#[cfg(all(test, tickwire_loom))]
mod loom_tests;
pub mod memory;
pub mod ring;
#[cfg(test)]
mod ring_tests;
pub mod window;
