//! Transports that match by themselves: the same cases as over the others, and what is special about them. Under virtual
//! time, over a provider that is simulated from a seed.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod cases;
mod credit;
mod kit;
mod matching;
mod modes;
mod probes;
