//! What an engine tells of itself: a dump of what is pending, its accounts, the statistics page that `tickwire top` reads,
//! and the answer to `tickwire dump`.

#[cfg(feature = "dump")]
mod answer;
mod dump;
mod statistics;
pub(crate) mod trace;

#[cfg(feature = "dump")]
pub use answer::ENV_DUMP_SIGNAL;
#[cfg(feature = "dump")]
pub(crate) use answer::address;
pub(crate) use statistics::Observer;
