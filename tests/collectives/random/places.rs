//! The places where a program runs: in threads or in a cluster, and over which transports.

use crate::kit::on_threads_told;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tickwire::internals::components::limits::{BOARDS_WIDE, LOOPBACK_RING_BYTES};
use tickwire::internals::transports::sim::ProviderConfig;
use tickwire::testing::{Cluster, Provider, ROWS, Sim, SimConfig, SimNet};
use tickwire::transport::{Hub, Loopback};
use tickwire::{Builder, Engine, Limits};
use tickwire_tests::random_calls::play::{play, play_in_turn};
use tickwire_tests::random_calls::program::Program;

/// The fabric of ranks that share no memory.
const FABRIC: &str = "ofi:tcp;ofi_rxm";

/// The step number of a rank that has not made its communicators yet.
const BEFORE: usize = usize::MAX - 1;

/// Where the ranks run, and how they reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In threads, over shared memory with boards.
    Boards,
    /// As `Boards`, but other communicators hold the wide boards, so that only narrow ones are left.
    NarrowBoards,
    /// As `Boards` and `NarrowBoards`, with operands in a shared heap that all ranks map.
    Heap,
    NarrowHeap,
    /// In threads, by messages over shared memory. With `ShmHeap`, operands are in a shared heap.
    Shm,
    ShmHeap,
    /// As `Shm`, with short rings and without Deliver. All but the shortest messages go by rendezvous.
    ShortShm,
    /// In threads, over the hub of loopback.
    Hub,
    /// In threads. The first half of the ranks share memory. All others are reached over a fabric.
    Mixed,
    /// In threads. All ranks are reached over a fabric.
    Fabric,
    /// Engines ticked in turn, over a hub.
    TurnsHub,
    /// As `TurnsHub`, without Deliver. All but the shortest messages go by rendezvous.
    TurnsShort,
    /// Engines ticked in turn, over shared memory.
    TurnsShm,
    /// Engines ticked in turn, over a simulated network. It is prompt, or it delays frames, refuses them and takes
    /// them in parts.
    TurnsCalm,
    TurnsSim,
    /// Engines ticked in turn, over a simulated network whose endpoints match messages themselves.
    TurnsProvider,
    /// As `TurnsProvider` within each half of the ranks, and over a hub between the halves, where the engines match.
    TurnsMixed,
    /// As `TurnsProvider` within each half of the ranks, and over shared memory between the halves.
    TurnsMixedShm,
}

impl Place {
    /// Places where each rank has its own thread.
    pub(crate) const THREADS: [Place; 10] = [
        Place::Boards,
        Place::NarrowBoards,
        Place::Heap,
        Place::NarrowHeap,
        Place::Shm,
        Place::ShmHeap,
        Place::ShortShm,
        Place::Hub,
        Place::Mixed,
        Place::Fabric,
    ];
    /// Places where engines are ticked in turn.
    pub(crate) const CLUSTERS: [Place; 8] = [
        Place::TurnsHub,
        Place::TurnsShort,
        Place::TurnsShm,
        Place::TurnsCalm,
        Place::TurnsSim,
        Place::TurnsProvider,
        Place::TurnsMixed,
        Place::TurnsMixedShm,
    ];
}

impl Place {
    /// Only one of this many seeds runs here, since some places are slow. If the environment asks for this place, all
    /// seeds run.
    pub(crate) fn one_of(self) -> u64 {
        match self {
            Place::Mixed | Place::Fabric => 8,
            Place::NarrowBoards | Place::NarrowHeap => 3,
            _ => 1,
        }
    }
}

/// Runs a program.
///
/// # Panics
/// If a rank has a wrong result.
pub(crate) fn run(place: Place, program: &Program, seed: u64) {
    let ranks = program.ranks;
    // If ranks share processors, operations on boards use longer chunks. Half of the seeds test that even with enough processors.
    let spins = if seed.is_multiple_of(2) { Limits::default().spins } else { 0 };
    let on_boards = || Engine::builder().limits(Limits { spins, ..Limits::default() });
    let by_messages = |limits| Engine::builder().limits(Limits { boards: false, ..limits });
    let hub = Hub::new(ranks, LOOPBACK_RING_BYTES);
    let net = |config| SimNet::new(ranks, config);
    let calm = SimConfig::calm(seed);
    let near = |rank: u32| {
        let half = if rank < ranks / 2 { 0..ranks / 2 } else { ranks / 2..ranks };
        ProviderConfig { procs: Some(half.collect()), priority: u8::MAX, ..ProviderConfig::calm(seed) }
    };
    match place {
        Place::Boards | Place::NarrowBoards => in_threads(program, place, |_| on_boards()),
        Place::Heap | Place::NarrowHeap => in_threads(program, place, |_| on_boards().shared_heap(true)),
        Place::Shm => in_threads(program, place, |_| by_messages(Limits::default())),
        Place::ShmHeap => in_threads(program, place, |_| by_messages(Limits::default()).shared_heap(true)),
        Place::ShortShm => in_threads(program, place, |_| {
            by_messages(Limits { first_ring_bytes: 4096, grown_bytes_max: 40 << 10, read_min: usize::MAX, ..short() })
        }),
        Place::Hub => in_threads(program, place, |_| Engine::builder().include(["loopback"]).hub(hub.clone())),
        Place::Mixed => in_threads(program, place, |rank| match rank < ranks.div_ceil(2) {
            true => Engine::builder().include(["loopback", "shm", FABRIC]),
            false => Engine::builder().include(["loopback", FABRIC]),
        }),
        Place::Fabric => in_threads(program, place, |_| Engine::builder().include(["loopback", FABRIC])),
        Place::TurnsHub => in_turn(program, Cluster::loopback(ranks)),
        Place::TurnsShort => in_turn(program, Cluster::loopback_with(ranks, |builder| builder.limits(short()))),
        Place::TurnsShm => in_turn(program, Cluster::shm(ranks)),
        Place::TurnsCalm => in_turn(program, Cluster::sim(ranks, &net(calm))),
        Place::TurnsSim => {
            let remote_read = seed % 4 > 1;
            let config = SimConfig { partial_of_256: 60, shuffled: true, remote_read, ..SimConfig::new(seed) };
            in_turn(program, Cluster::sim(ranks, &net(config)));
        }
        Place::TurnsProvider => {
            in_turn(program, Cluster::provider(ranks, &net(calm), |_| ProviderConfig::new(seed)));
        }
        Place::TurnsMixed => in_turn(program, Cluster::provider(ranks, &net(calm), near)),
        Place::TurnsMixedShm => {
            let net = net(calm);
            let cluster = Cluster::build(ranks, |rank| {
                let sim = Sim::new(Loopback::join(&hub, rank).unwrap(), rank, &net);
                let provider = Provider::new(sim, rank, near(rank)).unwrap();
                Engine::builder().initial_rows(ROWS).transport(provider)
            });
            in_turn(program, cluster);
        }
    }
}

/// Limits without Deliver. Messages of more than 1 KiB go by rendezvous.
fn short() -> Limits {
    Limits { deliver: false, eager_max: 1024, part_bytes: 1000, ..Limits::default() }
}

/// Runs a program of ranks in threads.
fn in_threads(program: &Program, place: Place, builder: impl Fn(u32) -> Builder + Sync) {
    let steps: Vec<AtomicUsize> = (0..program.ranks).map(|_| AtomicUsize::new(BEFORE)).collect();
    let tell = || format!("at steps {steps:?} of {program:?}");
    on_threads_told(program.ranks, tell, |rank, bootstrap| {
        let mut engine = builder(rank).build(bootstrap).unwrap();
        let ended = Ended(&steps[rank as usize]);
        let world = engine.comm_world();
        let is_narrow = matches!(place, Place::NarrowBoards | Place::NarrowHeap);
        let has_heap = matches!(place, Place::Heap | Place::NarrowHeap | Place::ShmHeap);
        for _ in 0..if is_narrow { BOARDS_WIDE } else { 0 } {
            let other = engine.comm_dup(world).unwrap();
            engine.barrier(other).unwrap();
        }
        play(&mut engine, rank, has_heap, program, ended.0);
        drop(ended);
        // This engine goes on ticking until all ranks are done: a fabric does not wait long for an engine of the same
        // process to take the last frames.
        while steps.iter().any(|step| step.load(Ordering::Acquire) != usize::MAX) {
            engine.tick();
            std::thread::yield_now();
        }
        engine.finalize(Duration::from_secs(20)).unwrap();
    });
}

/// Records that a rank has ended, normally or by a panic.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(usize::MAX, Ordering::Release);
    }
}

/// Runs a program on a cluster.
fn in_turn(program: &Program, mut cluster: Cluster) {
    play_in_turn(&mut cluster, program);
    cluster.tick_times(300);
    cluster.assert_at_rest();
}
