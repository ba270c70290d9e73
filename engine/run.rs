//! How an engine runs: its ticks, its schedule and its passes, how it waits and how it ends.

mod contact;
pub(crate) mod drive;
pub(crate) mod engine;
mod executor;
mod finalize;
pub(crate) mod home;
mod look_around;
pub(crate) mod park;
mod passes;
mod poison;
pub(crate) mod promise;
pub(crate) mod schedule;
mod sleeper;
mod tick;
mod wait;
pub(crate) mod waiter;
pub(crate) mod watch;
pub(crate) mod watching;
