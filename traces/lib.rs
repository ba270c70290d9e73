//! Observation of tickwire: counters by system, events and their sinks, the Tracy profiler, dumps of pending work, the analysis of who
//! waits for whom, and a page of statistics.
//!
//! An engine that is not observed only counts the runs of its systems ([`Counters`]). An engine with a [`Sink`] passes it every
//! [`Event`]: ticks, runs of systems, messages, calls, connections, errors. [`Ring`] keeps the last events in memory. [`TraceFile`] writes
//! them to a file that <https://ui.perfetto.dev> and `chrome://tracing` open. With the feature `tracy`, an engine also sends data to a
//! Tracy profiler while one is connected ([`tracy`]).
//!
//! A [`Dump`](dump::Dump) is a snapshot of pending work; [`who_waits`](whowaits::who_waits) finds out from dumps why a job hangs. A
//! [`Page`](page::Page) has figures that can be read from outside. [`hosts`] is the protocol to ask for both from another host.

mod counters;
pub mod dump;
mod event;
mod file;
pub mod hosts;
mod json;
mod merge;
mod messages;
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
pub use event::{About, Access, Depths, Event, Message, Sink};
pub use file::TraceFile;
pub use merge::{Merged, join, merge, part, remove_parts, taken_part};
pub use messages::Messages;
pub use ring::Ring;
pub use tickwire_components::now_ns;
pub use trace::Trace;
