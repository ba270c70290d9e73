//! The cases over libfabric's providers: engines of one process, and jobs of processes.

#![allow(clippy::unwrap_used, reason = "what cannot be prepared fails the test")]

mod devices;
mod direct;
mod hosts;
mod kit;
mod namespaces;
mod processes;
mod providers;
mod registered;
mod rings;
mod tagged;
mod waits;
