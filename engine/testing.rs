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
//! use tickwire::components::wire::{Header, Kind};
//! use tickwire::components::{Arrival, ArrivalState, Progress, Vc, VcState};
//! use tickwire::systems::views::{Column, ReadColumn};
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
mod credit;
mod inspect;
mod pair;

pub use board::{Board, BoardExchange};
pub use credit::{Account, accounts, check_credit};
pub use inspect::{check_invariants, dump, rows};
pub use pair::Pair;
pub use tickwire_systems::testing::{FakeWire, Posted, SentFrame, TestWorld, WireState, assert_rows};
pub use tickwire_transports::ofi::tags::{ProviderTags, TagMode};
pub use tickwire_transports::sim::{
    Corruption, Death, Flight, Provider, ProviderConfig, Sim, SimConfig, SimNet, SplitMix,
};

use crate::{Builder, Engine, Failed, Request, Status, Test, Work};
use tickwire_components::limits::LOOPBACK_RING_BYTES;
use tickwire_components::{Pieces, VcState};
use tickwire_transports::{Hub, Loopback};

/// How far a tick moves the time, ns: as far as an engine waits between two looks at its sockets.
pub const STEP_NS: u64 = 100_000;
/// CAR and request rows that an engine of a cluster starts with: few, so that tables grow in tests.
pub const ROWS: usize = 128;
/// Engines up to which the invariants are checked after every tick.
const CHECKED: u32 = 8;

/// Engines of one process that are ticked in turn. Rank r is engine r.
pub struct Cluster {
    /// The engines.
    pub engines: Vec<Engine>,
    /// The time, ns.
    pub now_ns: u64,
    /// Whether [`check_invariants`] is called after every tick of an engine.
    pub checked: bool,
    /// What reproduces the run, in the message of a failure.
    pub note: String,
    /// Where the engines exchanged their cards.
    pub board: Board,
    /// The network that they are on, if it is simulated: [`check_credit`] then is part of the checks.
    pub net: Option<SimNet>,
    /// Rounds so far.
    rounds: u32,
}

impl Cluster {
    /// A cluster over one [`Hub`].
    pub fn loopback(engines: u32) -> Self {
        Self::loopback_with(engines, |builder| builder)
    }

    /// The same, with builders that a test has changed.
    pub fn loopback_with(engines: u32, change: impl Fn(Builder) -> Builder + Sync) -> Self {
        let hub = Hub::new(engines, LOOPBACK_RING_BYTES);
        Self::build(engines, |_| change(Engine::builder().hub(hub.clone()).initial_rows(ROWS)))
    }

    /// A cluster over shared memory; each engine reaches itself by loopback.
    pub fn shm(engines: u32) -> Self {
        Self::shm_with(engines, |builder| builder)
    }

    /// The same, with builders that a test has changed.
    pub fn shm_with(engines: u32, change: impl Fn(Builder) -> Builder + Sync) -> Self {
        Self::build(engines, |_| change(Engine::builder().initial_rows(ROWS)))
    }

    /// A cluster over a simulated network. Its seed is printed if a test fails.
    pub fn sim(engines: u32, net: &SimNet) -> Self {
        Self::sim_with(engines, net, |builder| builder)
    }

    /// The same, with builders that a test has changed.
    pub fn sim_with(engines: u32, net: &SimNet, change: impl Fn(Builder) -> Builder + Sync) -> Self {
        Self::sim_each(engines, net, |_, builder| change(builder))
    }

    /// The same, by rank.
    pub fn sim_each(engines: u32, net: &SimNet, change: impl Fn(u32, Builder) -> Builder + Sync) -> Self {
        let hub = Hub::new(engines, LOOPBACK_RING_BYTES);
        let mut cluster = Self::build(engines, |rank| {
            let inner = Loopback::join(&hub, rank).unwrap_or_else(|error| panic!("loopback: {error}"));
            let builder = Engine::builder().exclude(["loopback", "shm"]).initial_rows(ROWS);
            change(rank, builder.transport(Sim::new(inner, rank, net)))
        });
        cluster.note = format!("{:?}", net.config());
        cluster.net = Some(net.clone());
        cluster
    }

    /// A cluster over a simulated network whose endpoints match by themselves. Procs that one does not reach are reached
    /// through a hub, where the engine matches.
    pub fn provider(engines: u32, net: &SimNet, config: impl Fn(u32) -> ProviderConfig + Sync) -> Self {
        Self::provider_with(engines, net, config, |builder| builder)
    }

    /// The same, with builders that a test has changed.
    ///
    /// # Panics
    /// If the tag mode cannot be.
    pub fn provider_with(
        engines: u32,
        net: &SimNet,
        config: impl Fn(u32) -> ProviderConfig + Sync,
        change: impl Fn(Builder) -> Builder + Sync,
    ) -> Self {
        let [near, far] = [0; 2].map(|_| Hub::new(engines, LOOPBACK_RING_BYTES));
        let mut cluster = Self::build(engines, |rank| {
            let inner = Loopback::join(&far, rank).unwrap_or_else(|error| panic!("loopback: {error}"));
            let provider = Provider::new(Sim::new(inner, rank, net), rank, config(rank));
            let provider = provider.unwrap_or_else(|error| panic!("provider: {error}"));
            change(Engine::builder().hub(near.clone()).initial_rows(ROWS).transport(provider))
        });
        cluster.note = format!("{:?}; {:?}", net.config(), config(0));
        cluster
    }

    /// A cluster of engines that a test configures, by rank. They are built at once, so that they can exchange cards.
    ///
    /// # Panics
    /// If one cannot be built.
    pub fn build(engines: u32, make: impl Fn(u32) -> Builder + Sync) -> Self {
        let board = Board::new(engines);
        let engines = std::thread::scope(|scope| {
            let start = |rank| {
                let (make, board) = (&make, &board);
                scope.spawn(move || make(rank).build(board.bootstrap(rank)))
            };
            let threads: Vec<_> = (0..engines).map(start).collect();
            let built = threads.into_iter().enumerate().map(|(rank, thread)| match thread.join() {
                Ok(Ok(engine)) => engine,
                Ok(Err(error)) => panic!("engine {rank}: {error}"),
                Err(_) => panic!("building engine {rank} panicked"),
            });
            built.collect::<Vec<_>>()
        });
        let checked = engines.len() <= CHECKED as usize;
        let (note, net, rounds) = (String::new(), None, 0);
        let mut cluster = Cluster { engines, now_ns: 0, checked, note, board, net, rounds };
        // The first tick says that time is virtual.
        cluster.tick_all();
        cluster
    }

    /// Ticks one engine.
    pub fn tick(&mut self, rank: usize) -> Work {
        let work = self.engines[rank].tick_at(self.now_ns);
        if self.checked
            && let Err(wrong) = check_invariants(&mut self.engines[rank])
        {
            panic!("engine {rank}: {wrong}\n{}", self.report());
        }
        work
    }

    /// Ticks every engine once, but those that a simulated network makes slow less often; then lets a step of time pass.
    /// Returns whether any did something.
    ///
    /// # Panics
    /// If an invariant does not hold, where they are checked.
    pub fn tick_all(&mut self) -> bool {
        let mut busy = false;
        for rank in 0..self.engines.len() {
            let pace = self.net.as_ref().map_or(1, |net| net.config().pace(rank as u32));
            if pace == 1 || (self.rounds + rank as u32).is_multiple_of(pace) {
                busy |= !self.tick(rank).is_idle();
            }
        }
        self.now_ns += STEP_NS;
        self.rounds += 1;
        if self.checked && self.net.is_some() {
            self.check_credit();
        }
        busy
    }

    /// No credit has come of nothing, and none is lost.
    ///
    /// # Panics
    /// If it is not so.
    fn check_credit(&mut self) {
        if let Err(wrong) = check_credit(&mut self.engines, self.net.as_ref()) {
            panic!("{wrong}\n{}", self.report());
        }
    }

    /// Ticks all until a condition holds; returns how many rounds that took.
    ///
    /// # Panics
    /// If it does not hold after `bound` rounds, with all that is pending.
    pub fn tick_until(&mut self, bound: u32, what: &str, mut condition: impl FnMut(&mut Cluster) -> bool) -> u32 {
        for round in 0..bound {
            if condition(self) {
                return round;
            }
            self.tick_all();
        }
        panic!("not after {bound} ticks: {what}\n{}", self.report());
    }

    /// Ticks all so often.
    pub fn tick_times(&mut self, rounds: u32) {
        for _ in 0..rounds {
            self.tick_all();
        }
    }

    /// Ticks until a request of an engine has ended, and takes it.
    ///
    /// # Errors
    /// How it ended if not well.
    ///
    /// # Panics
    /// If it has not ended after `bound` rounds.
    pub fn finish<B: Pieces>(
        &mut self,
        bound: u32,
        rank: usize,
        request: Request<B>,
    ) -> Result<(B, Status), Failed<B>> {
        self.tick_until(bound, &format!("request {request:?} of engine {rank}"), |cluster| {
            !matches!(cluster.engines[rank].test(&request), Ok(Test::Pending))
        });
        self.engines[rank].take(request)
    }

    /// The state of an engine's VC to a proc; `None` if it was never contacted.
    pub fn vc_state(&mut self, rank: usize, proc: u32) -> Option<VcState> {
        let all = rows(&mut self.engines[rank]);
        all.vcs.iter().find(|vc| vc.proc == proc).map(|vc| vc.state)
    }

    /// Nothing is left: every row is free again, and so is all credit.
    ///
    /// # Panics
    /// If it is not so.
    pub fn assert_at_rest(&mut self) {
        for rank in 0..self.engines.len() {
            if let Err(wrong) = inspect::at_rest(&mut self.engines[rank]) {
                panic!("engine {rank} is not at rest: {wrong}\n{}", self.report());
            }
        }
        self.check_credit();
    }

    /// All that is pending.
    pub fn report(&mut self) -> String {
        let mut words = format!("time {} ns; {}\n", self.now_ns, self.note);
        for (rank, engine) in self.engines.iter_mut().enumerate() {
            words.push_str(&format!("engine {rank}: {}", dump(engine)));
        }
        words
    }
}
