//! What tickwire tells about itself: counters by system, events and where they go, the Tracy profiler, a dump of what is
//! pending, who waits for whom, and a page of statistics.
//!
//! An engine that nobody watches only counts the runs of its systems ([`Counters`]). One that is given a [`Sink`] tells it
//! every [`Event`]: ticks, runs of systems, messages, connections, errors. [`Ring`] keeps the last of them in memory,
//! [`TraceFile`] writes them to a file that <https://ui.perfetto.dev> and `chrome://tracing` open. With the feature `tracy` an engine also
//! speaks to a Tracy profiler while one is connected ([`tracy`]).
//!
//! What is pending at a moment is a [`Dump`](dump::Dump), from which [`who_waits`](whowaits::who_waits) finds out why a job
//! hangs; a [`Page`](page::Page) has the figures that are watched from outside. [`hosts`] is how both are asked for from another host.

mod counters;
pub mod dump;
mod event;
mod file;
pub mod hosts;
mod json;
mod merge;
pub mod page;
pub mod read;
mod records;
mod ring;
mod trace;
#[cfg(feature = "tracy")]
pub mod tracy;
#[cfg(not(feature = "tracy"))]
#[path = "no_tracy.rs"]
pub mod tracy;
pub mod whowaits;
mod window;
pub mod words;

pub use counters::{Counters, DELIVER};
pub use event::{Depths, Event, Message, Sink};
pub use file::TraceFile;
pub use merge::{Merged, join, merge, part};
pub use ring::Ring;
pub use tickwire_components::now_ns;
pub use trace::Trace;
