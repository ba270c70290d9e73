//! Engines in one process under virtual time: what applications may rely on, over every transport.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod calls;
mod connections;
mod credit;
mod endings;
mod failures;
mod fairness;
mod kit;
mod parts;
mod reading;
mod requests;
mod scopes;
mod slots;
mod systems;
mod testing;
mod transports;
mod world;
