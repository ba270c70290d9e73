//! The test kit: worlds built by hand, pairs and clusters of engines under virtual time, and networks with faults.
//!
//! # One system
//!
//! A [`TestWorld`] has the tables of an engine and nothing else. A test puts rows into it, runs one system
//! ([`TestWorld::run`]) or one set of the tick ([`TestWorld::run_set`]), and looks at the rows; [`assert_rows`] shows those
//! that are not as expected, line by line. So an application tests a system of its own (`engine/examples/user_system.rs`
//! is this one in a program):
//!
//! ```
//! use bevy_ecs::prelude::*;
//! use tickwire::tables::{Arrival, ArrivalState, Column, Header, Kind, Progress, ReadColumn, Vc, VcState};
//! use tickwire::testing::{TestWorld, assert_rows};
//!
//! /// Messages that came whole from a proc.
//! #[derive(Component, Clone, Copy, Debug, Default)]
//! struct Traffic(u64);
//!
//! fn count_arrivals(progress: ReadColumn<Progress>, arrivals: ReadColumn<Arrival>, mut traffic: Column<Traffic>) {
//!     let used = progress.first().map_or(0, |progress| progress.arrivals as usize);
//!     let new = arrivals.iter().take(used).filter(|arrival| arrival.state == ArrivalState::New);
//!     for arrival in new.filter(|arrival| arrival.header.kind() == Some(Kind::Eager)) {
//!         traffic[arrival.vc as usize].0 += 1;
//!     }
//! }
//!
//! let mut world = TestWorld::prepared(2, |world| world.register_required_components::<Vc, Traffic>());
//! let vc = world.contact(1, VcState::Connected);
//! world.arrive(vc, Header::new(Kind::Eager, 0, 1, 5, 0, 4), b"abcd");
//! world.arrive(vc, Header::new(Kind::Credit, 0, 0, 0, 0, 0), b"");
//!
//! world.run(count_arrivals);
//!
//! let traffic: Vec<Traffic> = world.with_world(|world| world.query::<&Traffic>().iter(world).copied().collect());
//! assert_rows("traffic", &traffic, &[Traffic(0), Traffic(1)]);
//! ```
//!
//! # Engines
//!
//! A [`Pair`] or a [`Cluster`] owns its engines and ticks them in turn; time is a number that grows by a fixed step. Tests
//! tick to a condition with a bound ([`Cluster::tick_until`]), so a livelock fails with a dump of what is pending, and does
//! not hang.
//!
//! ```
//! use tickwire::testing::{Pair, SimConfig, SimNet};
//!
//! let faults = SimConfig { partial_of_256: 100, shuffled: true, ..SimConfig::new(7) };
//! let mut pair = Pair::sim(&SimNet::new(2, faults));
//! let (bytes, status) = pair.pass(0, 5, b"hello", 100);
//! assert_eq!((&bytes[..status.length], status.tag.0), (&b"hello"[..], 5));
//! pair.assert_at_rest();
//! ```
//!
//! Over loopback, and over loopback under [`Sim`], a run is a function of its calls and its seed. What [`Sim`] does to frames
//! is in [`SimConfig`]; procs die when [`SimNet::kill`] says.
//!
//! After every tick [`check_invariants`] looks at each row: every operation is in exactly one state and list, free lists and
//! links are whole, counts are what they count. After every round over a simulated network, and at rest over the others,
//! [`check_credit`] looks at each pair: what may be sent, what is on its way, what is kept and what is owed are together
//! what is allowed. Misuse and failed expectations panic.

mod board;
mod cluster;
mod credit;
mod inspect;
mod pair;

pub use board::{Board, BoardExchange};
pub use cluster::{Cluster, ROWS, STEP_NS};
pub use credit::{Account, accounts, check_credit};
pub use inspect::{check_invariants, dump, rows};
pub use pair::Pair;
pub use tickwire_systems::testing::{FakeWire, Posted, SentFrame, TestWorld, WireState, assert_rows};
pub use tickwire_transports::ofi::tags::{ProviderTags, TagMode};
pub use tickwire_transports::sim::{
    Corruption, Death, Flight, Provider, ProviderConfig, Sim, SimConfig, SimNet, SplitMix,
};
