//! Which transport reaches a proc. If the best one cannot connect, it is the next one. Both sides use the same one.
//! Each class of traffic has its own.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod atomics;
mod barred;
mod classes;
mod fallback;
mod flushes;
mod kit;
mod late;
mod one_sided;
mod pair;
mod processes;
mod updates;
