//! Several engines in one process, which are ticked in turn.

use super::board::Board;
use super::credit::check_credit;
use super::inspect;
use super::inspect::{check_invariants, dump, rows};
use crate::bootstrap::Exchange;
use crate::{Builder, Engine, Failed, Request, Status, Test, Work};
use tickwire_components::limits::LOOPBACK_RING_BYTES;
use tickwire_components::{Pieces, VcState};
use tickwire_transports::sim::{Provider, ProviderConfig, Sim, SimNet};
use tickwire_transports::{Hub, Loopback};

/// How far each round moves the time, ns: the time between two looks of an engine at its sockets.
pub const STEP_NS: u64 = 100_000;

/// CAR and request rows that an engine of a cluster starts with: few, so that tables grow in tests.
pub const ROWS: usize = 128;

/// Largest number of engines for which the invariants are checked after every tick.
const CHECKED: u32 = 8;

/// An engine that is being built. If that fails, or panics, the others do not wait for it.
struct Absent<'a> {
    board: &'a Board,
    rank: u32,
}

impl Drop for Absent<'_> {
    fn drop(&mut self) {
        self.board.exchange(self.rank).finish();
    }
}

/// Several engines in one process, which are ticked in turn. Rank r is engine r.
pub struct Cluster {
    /// The engines.
    pub engines: Vec<Engine>,
    /// The time, ns.
    pub now_ns: u64,
    /// Whether [`check_invariants`] is called after every tick of an engine.
    pub checked: bool,
    /// Text that helps to reproduce the run. It is part of the message of a failure.
    pub note: String,
    /// The board over which the engines exchanged their cards.
    pub board: Board,
    /// The simulated network, if the engines are on one. Then [`check_credit`] is part of the checks.
    pub net: Option<SimNet>,
    /// In how many rounds each engine is ticked once.
    paces: Vec<u32>,
    /// The number of rounds so far.
    rounds: u32,
}

impl Cluster {
    /// A cluster over one [`Hub`], so by loopback.
    pub fn loopback(engines: u32) -> Self {
        Self::loopback_with(engines, |builder| builder)
    }

    /// The same, with builders that the test changes.
    pub fn loopback_with(engines: u32, change: impl Fn(Builder) -> Builder + Sync) -> Self {
        let hub = Hub::new(engines, LOOPBACK_RING_BYTES);
        Self::build(engines, |_| change(Engine::builder().hub(hub.clone()).initial_rows(ROWS)))
    }

    /// A cluster over shared memory. Each engine reaches itself by loopback.
    pub fn shm(engines: u32) -> Self {
        Self::shm_with(engines, |builder| builder)
    }

    /// The same, with builders that the test changes.
    pub fn shm_with(engines: u32, change: impl Fn(Builder) -> Builder + Sync) -> Self {
        Self::build(engines, |_| change(Engine::builder().initial_rows(ROWS)))
    }

    /// A cluster over a simulated network. Its seed is printed if a test fails.
    pub fn sim(engines: u32, net: &SimNet) -> Self {
        Self::sim_with(engines, net, |builder| builder)
    }

    /// The same, with builders that the test changes.
    pub fn sim_with(engines: u32, net: &SimNet, change: impl Fn(Builder) -> Builder + Sync) -> Self {
        Self::sim_each(engines, net, |_, builder| change(builder))
    }

    /// The same, with builders that the test changes by rank.
    pub fn sim_each(engines: u32, net: &SimNet, change: impl Fn(u32, Builder) -> Builder + Sync) -> Self {
        Self::sim_on(Board::new(engines), net, change)
    }

    /// The same, of engines that exchange their cards over this board.
    pub fn sim_on(board: Board, net: &SimNet, change: impl Fn(u32, Builder) -> Builder + Sync) -> Self {
        let engines = board.size();
        let hub = Hub::new(engines, LOOPBACK_RING_BYTES);
        let mut cluster = Self::build_on(board, |rank| {
            let inner = Loopback::join(&hub, rank).unwrap_or_else(|error| panic!("loopback: {error}"));
            let builder = Engine::builder().exclude(["loopback", "shm"]).initial_rows(ROWS);
            change(rank, builder.transport(Sim::new(inner, rank, net)))
        });
        cluster.note = format!("{:?}", net.config());
        cluster.net = Some(net.clone());
        cluster.slow_down(net);
        cluster
    }

    /// A cluster over a simulated network whose endpoints match messages themselves. Procs that such an endpoint does not reach are reached
    /// through a hub, where the engine does the matching.
    pub fn provider(engines: u32, net: &SimNet, config: impl Fn(u32) -> ProviderConfig + Sync) -> Self {
        Self::provider_with(engines, net, config, |builder| builder)
    }

    /// The same, with builders that the test changes.
    ///
    /// # Panics
    /// If the tag mode is impossible.
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
        cluster.slow_down(net);
        cluster
    }

    /// Ticks engines as rarely as the network says from now on.
    fn slow_down(&mut self, net: &SimNet) {
        self.paces = (0..self.engines.len() as u32).map(|rank| net.config().pace(rank)).collect();
    }

    /// The number of rounds in which each engine is ticked at least once.
    pub(super) fn slowest(&self) -> u32 {
        self.paces.iter().copied().max().unwrap_or(1)
    }

    /// A cluster of engines that the test configures, by rank. They are built at the same time, so that they can exchange cards.
    ///
    /// # Panics
    /// If an engine cannot be built.
    pub fn build(engines: u32, make: impl Fn(u32) -> Builder + Sync) -> Self {
        Self::build_on(Board::new(engines), make)
    }

    /// The same, of engines that exchange their cards over this board.
    ///
    /// # Panics
    /// If an engine cannot be built.
    pub fn build_on(board: Board, make: impl Fn(u32) -> Builder + Sync) -> Self {
        let engines = board.size();
        let engines = std::thread::scope(|scope| {
            let start = |rank| {
                let (make, board) = (&make, &board);
                scope.spawn(move || {
                    let absent = Absent { board, rank };
                    let built = make(rank).build(board.bootstrap(rank));
                    if built.is_ok() {
                        std::mem::forget(absent);
                    }
                    built
                })
            };
            let threads: Vec<_> = (0..engines).map(start).collect();
            let (mut built, mut failed) = (Vec::new(), Vec::new());
            for (rank, thread) in threads.into_iter().enumerate() {
                match thread.join() {
                    Ok(Ok(engine)) => built.push(engine),
                    Ok(Err(error)) => failed.push(format!("engine {rank}: {error}")),
                    Err(_) => failed.push(format!("building engine {rank} panicked")),
                }
            }
            assert!(failed.is_empty(), "{}", failed.join("; "));
            built
        });
        let checked = engines.len() <= CHECKED as usize;
        let (note, net, paces, rounds) = (String::new(), None, vec![1; engines.len()], 0);
        let mut cluster = Cluster { engines, now_ns: 0, checked, note, board, net, paces, rounds };
        // The first tick switches the engines to virtual time.
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

    /// Ticks every engine once, then advances the time by one step. Engines that a simulated network makes slow are ticked less often.
    /// Returns whether any engine did something.
    ///
    /// # Panics
    /// If invariants are checked and one does not hold.
    pub fn tick_all(&mut self) -> bool {
        let mut busy = false;
        for rank in 0..self.engines.len() {
            // Engines may have been added to the list.
            let pace = self.paces.get(rank).copied().unwrap_or(1);
            if (self.rounds + rank as u32).is_multiple_of(pace) {
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

    /// Checks that no credit was created or lost.
    ///
    /// # Panics
    /// If credit was created or lost.
    fn check_credit(&mut self) {
        if let Err(wrong) = check_credit(&mut self.engines, self.net.as_ref()) {
            panic!("{wrong}\n{}", self.report());
        }
    }

    /// Ticks all engines until a condition holds. Returns how many rounds that took.
    ///
    /// # Panics
    /// If the condition does not hold after `bound` rounds. The message has everything that is pending.
    pub fn tick_until(&mut self, bound: u32, what: &str, mut condition: impl FnMut(&mut Cluster) -> bool) -> u32 {
        for round in 0..bound {
            if condition(self) {
                return round;
            }
            self.tick_all();
        }
        panic!("not after {bound} ticks: {what}\n{}", self.report());
    }

    /// Ticks all engines this many times.
    pub fn tick_times(&mut self, rounds: u32) {
        for _ in 0..rounds {
            self.tick_all();
        }
    }

    /// Ticks until a request of an engine has ended, and takes the request.
    ///
    /// # Errors
    /// The error with which the request ended.
    ///
    /// # Panics
    /// If the request has not ended after `bound` rounds.
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

    /// The state of an engine's VC to a proc. `None` if the proc was never contacted.
    pub fn vc_state(&mut self, rank: usize, proc: u32) -> Option<VcState> {
        let all = rows(&mut self.engines[rank]);
        all.vcs.iter().find(|vc| vc.proc == proc).map(|vc| vc.state)
    }

    /// Checks that nothing is left: every row is free again, and all credit is back.
    ///
    /// # Panics
    /// If something is left.
    pub fn assert_at_rest(&mut self) {
        for rank in 0..self.engines.len() {
            if let Err(wrong) = inspect::at_rest(&mut self.engines[rank]) {
                panic!("engine {rank} is not at rest: {wrong}\n{}", self.report());
            }
        }
        self.check_credit();
    }

    /// Everything that is pending, as text.
    pub fn report(&mut self) -> String {
        let mut words = format!("time {} ns; {}\n", self.now_ns, self.note);
        for (rank, engine) in self.engines.iter_mut().enumerate() {
            words.push_str(&format!("engine {rank}: {}", dump(engine)));
        }
        words
    }
}
