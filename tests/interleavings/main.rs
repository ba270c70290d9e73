//! Engines that go on in the middle of each other's calls, in one thread and from seeds.
//!
//! A cluster of the test kit ticks one engine after another, so whatever a peer does comes between two ticks. In a job it may come at any
//! moment. Here each transport lets other engines make calls before and after its own call ([`interleaved`]). So a peer begins, connects,
//! sends or goes where only threads on several processors would let it, and a seed that fails does so each time.

mod exchange;
mod interleaved;
mod stage;

use exchange::Plan;
use interleaved::Interleaved;
use stage::Make;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use tickwire::bootstrap::{BootstrapError, Exchange};
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::internals::transports::{Hub, Loopback, Shm, ShmConfig};
use tickwire::testing::{Board, BoardExchange, ROWS, SplitMix};
use tickwire::{Bootstrap, Builder, Engine};
use tickwire_tests::faults::runner::seeds;

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
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn size(&self) -> u32 {
        self.0.size()
    }

    fn job(&self) -> &str {
        self.0.job()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        self.0.put(key, value)
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        Ok(())
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
        let (theirs, own) = (self.0.get(rank, key)?, self.0.rank());
        if theirs.is_some() { Ok(theirs) } else { self.0.get(own, key) }
    }
}

/// Runs the first seeds, or those that the environment asks for. `make` is the builder of a rank in the job of a seed.
fn run<J: 'static>(
    seeds_unless_asked: u64,
    job: impl Fn(&Plan) -> J,
    make: impl Fn(&J, &Plan, u32) -> Builder + Copy + 'static,
) {
    let (first, end) = seeds(seeds_unless_asked);
    for seed in first..end {
        let plan = Plan::of(seed);
        let (job, board) = (Rc::new(job(&plan)), Board::new(plan.ranks));
        let engines = (0..plan.ranks).map(|rank| {
            let (job, plan, exchange) = (job.clone(), plan.clone(), Unhurried(board.exchange(rank)));
            let engine = move || make(&job, &plan, rank).build(Bootstrap::custom(exchange)).expect("an engine");
            Box::new(engine) as Make
        });
        exchange::run(engines.collect(), &plan);
    }
}

#[test]
fn over_loopback() {
    let job = |plan: &Plan| Hub::new(plan.ranks, LOOPBACK_RING_BYTES);
    run(400, job, |hub, _, rank| bare().transport(Interleaved::new("only", loopback(hub, rank), 100)));
}

#[test]
fn over_shared_memory() {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let job = |_: &Plan| format!("interleavings-{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
    run(80, job, |job, plan, rank| {
        let shm = Shm::open(ShmConfig::new(job.clone(), rank, plan.ranks)).expect("an endpoint");
        // A rank reaches itself by the loopback that the engine brings along.
        Engine::builder().exclude(["shm"]).initial_rows(ROWS).transport(Interleaved::new("only", shm, 100))
    });
}

#[test]
fn over_two_transports_one_of_which_may_not_call() {
    let job = |plan: &Plan| [0; 2].map(|_| Hub::new(plan.ranks, LOOPBACK_RING_BYTES));
    run(300, job, |[first, second], plan, rank| {
        // To its peers a rank may call over the second one only. They may call it over the first one at the same time.
        let is_barred = SplitMix::new(plan.seed ^ u64::from(rank)).below(2) == 0;
        let first = Interleaved::new("first", loopback(first, rank), 200).barred(is_barred);
        bare().transport(first).transport(Interleaved::new("second", loopback(second, rank), 100))
    });
}
