//! Events of an engine: in memory, compared with the engine's own counters, and in trace files of real ranks.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod events;
mod files;
mod format;
mod jobs;
mod kit;
mod one_sided;
mod operations;
mod pictures;
