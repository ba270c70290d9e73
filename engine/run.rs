//! How an engine runs: its ticks, its schedule and its passes, how it waits and how it ends.

pub(crate) mod core;
pub(crate) mod executor;
pub(crate) mod finalize;
pub(crate) mod wait;
pub(crate) mod watch;
