//! Two endpoints of one process, and peers that are none.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

mod addresses;
mod calling;
mod claiming;
mod delivering;
mod direct;
mod ending;
mod frames;
mod kit;
mod one_sided;
mod registry;
mod rings;
mod watching;
