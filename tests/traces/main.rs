//! What an engine tells: events in memory against the engine's own counters, and files of real ranks.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod events;
mod files;
mod format;
mod jobs;
mod kit;
mod pictures;
