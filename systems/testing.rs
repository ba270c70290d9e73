//! Worlds built by hand: rows in, one run of one system or of one set, rows out.
//!
//! A [`TestWorld`] has all tables, as many contacted procs as a test wants, and one transport, the [`FakeWire`], which
//! keeps what it is given and gives what it is told to. [`assert_rows`] compares what comes out, and shows what differs.
//! Misuse panics: it is made for tests.

mod diff;
mod memory;
mod posting;
mod wire;
mod world;

pub use diff::assert_rows;
pub use posting::Posted;
pub use wire::{FRAME_MAX, FakeWire, SentFrame, WireState};
pub use world::TestWorld;
