//! What an engine tells of itself: a dump of what is pending, its accounts, the statistics page that `tickwire top` reads,
//! and the answer to `tickwire dump`.

#[cfg(feature = "dump")]
pub(crate) mod answer;
#[cfg(feature = "dump")]
pub(crate) mod door;
mod dump;
pub(crate) mod observer;
pub(crate) mod one_sided;
pub(crate) mod operations;
mod statistics;
pub(crate) mod trace;
#[cfg(feature = "dump")]
mod watchers;
