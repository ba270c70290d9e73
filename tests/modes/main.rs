//! Sends in all modes, probes, persistent requests, callbacks: over loopback, shared memory and a simulated network.

mod callbacks;
mod kit;
mod persistent;
mod probes;
mod sends;
