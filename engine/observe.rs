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

/// The variable that names the signal on which an engine writes a dump to stderr, such as `USR1`. Engines without the feature `dump` do not
/// read it.
pub const ENV_DUMP_SIGNAL: &str = "TICKWIRE_DUMP_SIGNAL";
