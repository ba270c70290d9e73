//! Transports that match messages themselves. The cases of other transports must hold, and further cases are specific
//! to them. The provider is simulated from a seed, under virtual time.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod cases;
mod credit;
mod kit;
mod matching;
mod modes;
mod probes;
