//! Engines that go on in the middle of each other's calls, in one thread and from seeds.
//!
//! A cluster of the test kit ticks one engine after another, so whatever a peer does comes between two ticks. In a job it may come at any
//! moment. Here each rank is a coroutine ([`stage`]), and each transport may end its turn before and after its own calls
//! ([`interleaved`]). So a peer begins, connects, sends or goes where only threads on several processors would let it, and a seed that
//! fails does so each time.

mod counters;
mod exchange;
mod interleaved;
mod stage;

use exchange::{Plan, Shared};
use interleaved::Interleaved;
use proptest::strategy::{Strategy, ValueTree};
use stage::Rank;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tickwire::bootstrap::{BootstrapError, Exchange};
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::internals::transports::{Hub, Loopback, Shm, ShmConfig};
use tickwire::testing::{Board, BoardExchange, ROWS, SplitMix};
use tickwire::{Bootstrap, Builder, Engine, Limits};
use tickwire_tests::faults::runner::seeds;
use tickwire_tests::model::program::runner;
use tickwire_tests::random_calls::play::play;
use tickwire_tests::random_calls::program::programs_of;

/// An engine without the transports that it brings along.
fn bare() -> Builder {
    Engine::builder().exclude(["loopback", "shm"]).initial_rows(ROWS)
}

fn loopback(hub: &Hub, rank: u32) -> Loopback {
    Loopback::join(hub, rank).expect("a place")
}

/// What a rank publishes and learns when its engine is built. It waits for nobody: of a rank that has not begun, it takes the card to be as
/// its own, which is right for engines of one process.
struct Unhurried(BoardExchange);

impl Exchange for Unhurried {
    tickwire_tests::exchanged!(rank size job put);

    fn fence(&mut self) -> Result<(), BootstrapError> {
        Ok(())
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        let (theirs, own) = (self.0.get(rank, key)?, self.0.rank());
        if theirs.is_some() { Ok(theirs) } else { self.0.get(own, key) }
    }
}

/// Runs the first seeds, or those that the environment asks for. `make` is the builder of a rank in the job of a seed.
fn exchange<J: Send + Sync + 'static>(
    seeds_unless_asked: u64,
    job: impl Fn(&Plan) -> J,
    make: impl Fn(&J, &Plan, u32) -> Builder + Copy + Send + 'static,
) {
    let (first, end) = seeds(seeds_unless_asked);
    for seed in first..end {
        let plan = Arc::new(Plan::of(seed));
        let (job, board, shared) = (Arc::new(job(&plan)), Board::new(plan.ranks), Arc::new(Shared::new(&plan)));
        let ranks = (0..plan.ranks).map(|rank| {
            let (job, plan, shared, exchange) =
                (job.clone(), plan.clone(), shared.clone(), Unhurried(board.exchange(rank)));
            let rank = move || {
                let engine = make(&job, &plan, rank).build(Bootstrap::custom(exchange)).expect("an engine");
                exchange::play(&plan, rank, engine, &shared);
            };
            Box::new(rank) as Rank
        });
        stage::run(seed, plan.of_256, ranks.collect());
    }
}

/// What a rank of a program does, with its engine and its number.
type Program = Arc<dyn Fn(&mut Engine, u32) + Send + Sync>;

/// Runs programs. `draw` draws one by a seed: the number of its ranks, and what each of them does.
fn programs<J: Send + Sync + 'static>(
    seeds_unless_asked: u64,
    draw: impl Fn(u64) -> (u32, Program),
    job: impl Fn(u32) -> J,
    make: impl Fn(&J, u32) -> Builder + Copy + Send + 'static,
) {
    let (first, end) = seeds(seeds_unless_asked);
    for seed in first..end {
        let (ranks, program) = draw(seed);
        let (job, board) = (Arc::new(job(ranks)), Board::new(ranks));
        let ranks = (0..ranks).map(|rank| {
            let (job, program, exchange) = (job.clone(), program.clone(), Unhurried(board.exchange(rank)));
            let rank = move || {
                // Waits look at sockets soon, since other ranks have no processor of their own.
                let limits = Limits { spins: 8, yields: 0, ..Limits::default() };
                let builder = make(&job, rank).limits(limits);
                let mut engine = builder.build(Bootstrap::custom(exchange)).expect("an engine");
                program(&mut engine, rank);
                engine.finalize(Duration::from_secs(60)).expect("it ends in order");
            };
            Box::new(rank) as Rank
        });
        println!("seed {seed}");
        stage::run(seed, [16, 64, 128][seed as usize % 3], ranks.collect());
    }
}

/// A random program of collective operations in all forms. Its results are compared with those of the serial model.
fn collectives(seed: u64) -> (u32, Program) {
    let tree = programs_of(2u32..=5).new_tree(&mut runner(seed));
    let program = tree.expect("a program").current();
    (program.ranks, Arc::new(move |engine, rank| play(engine, rank, false, &program, &AtomicUsize::new(0))))
}

/// Counters in windows and exposed memory.
fn counters(seed: u64) -> (u32, Program) {
    let ranks = 2 + (seed % 3) as u32;
    (ranks, Arc::new(move |engine, _| counters::play(engine, ranks, seed)))
}

/// Endpoints over shared memory for the ranks of a job. In a job, all have opened theirs before anybody learns of the others.
fn endpoints(ranks: u32) -> Vec<Mutex<Option<Shm>>> {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let job = format!("interleavings-{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
    let open = |rank| Shm::open(ShmConfig::new(job.clone(), rank, ranks)).expect("an endpoint");
    (0..ranks).map(|rank| Mutex::new(Some(open(rank)))).collect()
}

/// An engine over one of them. It reaches itself by the loopback that it brings along.
fn shared(endpoint: &Mutex<Option<Shm>>, shares: bool) -> Builder {
    let shm = endpoint.lock().expect("nobody panics with it").take().expect("it is taken once");
    let interleaved = Interleaved::new("only", shm, 100).sharing(shares);
    Engine::builder().exclude(["shm"]).initial_rows(ROWS).transport(interleaved)
}

fn hub(ranks: u32) -> Hub {
    Hub::new(ranks, LOOPBACK_RING_BYTES)
}

/// An engine over a hub alone.
fn looped(hub: &Hub, rank: u32, shares: bool) -> Builder {
    bare().transport(Interleaved::new("only", loopback(hub, rank), 100).sharing(shares))
}

#[test]
fn over_loopback() {
    exchange(400, |plan| hub(plan.ranks), |hub, _, rank| looped(hub, rank, false));
}

#[test]
fn over_shared_memory() {
    exchange(80, |plan| endpoints(plan.ranks), |endpoints, _, rank| shared(&endpoints[rank as usize], false));
}

#[test]
fn over_two_transports_one_of_which_may_not_call() {
    let job = |plan: &Plan| [0; 2].map(|_| Hub::new(plan.ranks, LOOPBACK_RING_BYTES));
    exchange(300, job, |[first, second], plan, rank| {
        // To its peers a rank may call over the second one only. They may call it over the first one at the same time.
        let is_barred = SplitMix::new(plan.seed ^ u64::from(rank)).below(2) == 0;
        let first = Interleaved::new("first", loopback(first, rank), 200).barred(is_barred);
        bare().transport(first).transport(Interleaved::new("second", loopback(second, rank), 100))
    });
}

#[test]
fn collectives_over_loopback() {
    programs(30, collectives, hub, |hub, rank| looped(hub, rank, false));
}

#[test]
fn collectives_over_shared_memory() {
    programs(10, collectives, endpoints, |endpoints, rank| shared(&endpoints[rank as usize], false));
}

#[test]
fn collectives_on_boards() {
    programs(10, collectives, endpoints, |endpoints, rank| shared(&endpoints[rank as usize], true));
}

#[test]
fn counters_that_engines_count_up() {
    programs(30, counters, hub, |hub, rank| looped(hub, rank, false));
}

#[test]
fn counters_in_shared_memory() {
    programs(30, counters, hub, |hub, rank| looped(hub, rank, true));
    programs(10, counters, endpoints, |endpoints, rank| shared(&endpoints[rank as usize], true));
}
