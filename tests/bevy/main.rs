//! Apps of bevy with engines in them, several in one process.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod failures;
mod frames;
mod kit;
mod messages;
mod sleeping;
