//! A rank computes while a long sum is in progress, and ticks rarely. It holds the sum up for a few of its ticks only, however long it
//! computes between them. Time is virtual: in a round, which stands for a microsecond, each other rank ticks once.

use tickwire::internals::components::limits::BOARDS_WIDE;
use tickwire::testing::{Board, Cluster, SimConfig, SimNet};
use tickwire::{Engine, Limits, Test, op};

/// Elements of the sum: 1 MiB.
const COUNT: usize = (1 << 20) / size_of::<u64>();
/// Most rounds until the sum is done.
const BOUND: u32 = 1_000_000;
/// A round, ns.
const ROUND_NS: u64 = 1_000;
/// Ticks more than those of a rank that waits: at the beginning and at the end of the sum.
const MORE: u32 = 4;
/// Most ticks where messages are read: a few for each of the four rounds of messages that a sum among four ranks has.
const READ_TICKS: u32 = 12;

/// How long a sum has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Taken {
    /// Rounds until all ranks have the sum.
    rounds: u32,
    /// Ticks of the rank that computes, until then.
    ticks: u32,
}

/// Runs a sum. The last rank computes: it ticks only in the last one of `pace` rounds.
fn sum<E: AsMut<[Engine]>>(ranks: &mut E, pace: u32, tick: impl Fn(&mut E, usize), pass: impl Fn(&mut E)) -> Taken {
    let last = ranks.as_mut().len() - 1;
    let start = |engine: &mut Engine| {
        let (own, world) = (u64::from(engine.rank().0), engine.comm_world());
        engine.iallreduce(vec![own; COUNT], vec![0; COUNT], op::Sum, world).unwrap()
    };
    let requests: Vec<_> = ranks.as_mut().iter_mut().map(start).collect();
    let mut taken = Taken { rounds: 0, ticks: 0 };
    let is_pending = |ranks: &mut E| {
        let mut each = ranks.as_mut().iter_mut().zip(&requests);
        each.any(|(engine, request)| engine.test(request).unwrap() == Test::Pending)
    };
    while is_pending(ranks) {
        assert!(taken.rounds < BOUND, "not done after {taken:?}");
        (0..last).for_each(|rank| tick(ranks, rank));
        taken.rounds += 1;
        if taken.rounds.is_multiple_of(pace) {
            tick(ranks, last);
            taken.ticks += 1;
        }
        pass(ranks);
    }
    let expected = (0..=last as u64).sum::<u64>();
    for (engine, request) in ranks.as_mut().iter_mut().zip(requests) {
        assert!(engine.take(request).unwrap().0.1.iter().all(|of| *of == expected));
    }
    taken
}

/// Engines whose world has boards. Boards are opened by a blocking call, so for that each engine is in its own thread.
fn on_boards(size: u32, is_narrow: bool, limits: &Limits) -> Vec<Engine> {
    let board = Board::new(size);
    std::thread::scope(|threads| {
        let build = |rank: u32| {
            let bootstrap = board.bootstrap(rank);
            threads.spawn(move || {
                let mut engine = Engine::builder().limits(limits.clone()).build(bootstrap).unwrap();
                let world = engine.comm_world();
                for _ in 0..if is_narrow { BOARDS_WIDE } else { 0 } {
                    let other = engine.comm_dup(world).unwrap();
                    engine.barrier(other).unwrap();
                }
                engine.barrier(world).unwrap();
                engine
            })
        };
        let threads: Vec<_> = (0..size).map(build).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Rounds between two ticks of the rank that computes.
const PACES: [u32; 3] = [5, 50, 1000];

/// Checks the sums of a rank that computes, against the sum of ranks that tick in each round: it takes as many ticks, or a few more.
/// `ticks_max` is the most that it may take where they are a constant number.
fn check(words: &str, ticks_max: Option<u32>, mut taken: impl FnMut(u32) -> Taken) {
    // The first sum connects the ranks.
    let [_, blocking] = [1, 1].map(&mut taken);
    for pace in PACES {
        let computing = taken(pace);
        let most = ticks_max.unwrap_or(blocking.ticks + MORE);
        assert!(computing.ticks <= most, "{words}, a tick in {pace} rounds: {computing:?}, not {blocking:?}");
        // Nor do the others take long once it has done its part.
        let bound = (computing.ticks + 1) * pace + blocking.rounds;
        assert!(computing.rounds <= bound, "{words}, a tick in {pace} rounds: {computing:?}, not {blocking:?}");
    }
}

/// A tick does all that is left of the sum, since the others have done their part meanwhile.
#[test]
fn on_boards_a_rank_that_computes_has_the_sum_in_its_first_tick() {
    for size in [2, 4] {
        for spins in [0, Limits::default().spins] {
            for is_narrow in [false, true] {
                let limits = Limits { spins, ..Limits::default() };
                let mut engines = on_boards(size, is_narrow, &limits);
                let tick = |engines: &mut Vec<Engine>, rank: usize| {
                    engines[rank].tick();
                };
                // If the kernel copies nothing, operands pass through the cells of narrow boards, which are too short for all chunks.
                let ticks_max = (!is_narrow).then_some(1);
                let words = format!("{size} ranks, spins {spins}, narrow boards {is_narrow}");
                check(&words, ticks_max, |pace| sum(&mut engines, pace, tick, |_| {}));
            }
        }
    }
}

/// Where messages are read out of their senders' memory, few ticks are enough. Where they come in pieces, each tick moves a bounded number
/// of them: then the sum takes as many ticks as it takes ranks that wait, however far apart the ticks are.
#[test]
fn by_messages_a_rank_that_computes_needs_no_more_ticks_than_one_that_waits() {
    for size in [2, 4] {
        let delayed = |delay: u64| SimConfig { delay_ns: delay..delay + 1, ..SimConfig::calm(1) };
        let reading = SimConfig { remote_read: true, ..delayed(5 * ROUND_NS) };
        let sim = |config: SimConfig| Cluster::sim(size, &SimNet::new(size, config));
        let clusters = [
            ("loopback", None, Cluster::loopback(size)),
            ("shared memory", Some(READ_TICKS), Cluster::shm(size)),
            ("a prompt network", None, sim(delayed(0))),
            ("a network", None, sim(delayed(5 * ROUND_NS))),
            ("a network with remote reads", Some(READ_TICKS), sim(reading)),
        ];
        for (name, ticks_max, mut cluster) in clusters {
            cluster.checked = false;
            let mut ranks = Ranks(cluster);
            let tick = |ranks: &mut Ranks, rank: usize| {
                ranks.0.tick(rank);
            };
            let pass = |ranks: &mut Ranks| ranks.0.now_ns += ROUND_NS;
            check(&format!("{size} ranks, {name}"), ticks_max, |pace| sum(&mut ranks, pace, tick, pass));
        }
    }
}

/// The engines of a cluster.
struct Ranks(Cluster);

impl AsMut<[Engine]> for Ranks {
    fn as_mut(&mut self) -> &mut [Engine] {
        &mut self.0.engines
    }
}
