//! Which transport goes to a proc: the next one if the best cannot connect, the same one for both sides, and one for each class of
//! traffic.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod atomics;
mod classes;
mod fallback;
mod kit;
mod pair;
mod processes;
