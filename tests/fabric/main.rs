//! The cases over libfabric's providers: with engines of one process, and with jobs of processes.

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
