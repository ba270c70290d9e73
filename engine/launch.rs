//! Starts the ranks of a job on this host and stands by them until all have ended: serves their bootstrap exchange,
//! passes their output on by whole lines, and tells the others when one ends. `tickwire run` is this with a command
//! line.
//!
//! One thread and one epoll do everything. Ranks are held by pidfds, so that no signal can reach a process that the
//! launcher did not start; the kernel kills them should the launcher itself be killed.

mod error;
mod events;
mod exchange;
mod forward;
mod job;
mod outcome;
mod output;
mod processors;
mod programs;
mod ranks;
mod signals;
mod start;
mod supervise;
mod trace;

pub use error::LaunchError;
pub use job::{Job, OnFailure, Output};
pub use outcome::{JobOutcome, RankStatus};
