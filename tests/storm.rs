//! Storms of collective operations: many at once, of all kinds, on several communicators, checked against a serial
//! model. All ranks draw the same operations from a seed. Operations of one communicator start in the same order on all
//! ranks. Between communicators each rank has its own order. Results are taken in each rank's own order, too.

use std::collections::VecDeque;
use tickwire::{Cartesian, Comm, Engine, Rank, consecutive, in_place, op};

/// Lengths of buffers, in elements.
const COUNTS: [usize; 5] = [0, 1, 5, 300, 3000];
/// Most operations at once.
const BATCH_MAX: u64 = 8;
/// Number of kinds of operations.
const KINDS: u64 = 20;
/// The first kind of operation among neighbours. Only the ring has neighbours.
const AMONG_NEIGHBORS: u64 = 18;
/// The index of the ring among the communicators.
const RING: usize = 3;

/// Pseudo-random numbers from a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}

/// A communicator, and its members by rank, as ranks of the world.
struct Members {
    comm: Comm,
    world: Vec<u32>,
}

/// An operation of a storm.
#[derive(Clone, Copy)]
struct Planned {
    comm: usize,
    kind: u64,
    number: u64,
    count: usize,
    root: u32,
}

/// The values that a rank of the world contributes to an operation.
fn values(planned: Planned, rank: u32, count: usize) -> Vec<i64> {
    let mut random = Random(planned.number << 32 | u64::from(rank));
    (0..count).map(|_| random.below(2_000_001) as i64 - 1_000_000).collect()
}

type Check = Box<dyn FnOnce(&mut Engine)>;

/// Runs this many batches of operations.
///
/// # Panics
/// If an operation fails, or its result differs from the model.
pub fn storm(engine: &mut Engine, seed: u64, batches: u32) {
    let world = engine.comm_world();
    let (rank, size) = (engine.rank().0, engine.size());
    let odd = engine.comm_split(world, Some(rank % 2), 0).expect("all take part").expect("all have a color");
    let reversed = engine.comm_split(world, Some(0), -(rank as i32)).expect("all take part").expect("one color");
    let ring =
        engine.cart_create(world, &Cartesian::new(&[(size, true)])).expect("all take part").expect("all are in it");
    let communicators = [
        Members { comm: world, world: (0..size).collect() },
        Members { comm: odd, world: (rank % 2..size).step_by(2).collect() },
        Members { comm: reversed, world: (0..size).rev().collect() },
        Members { comm: ring, world: (0..size).collect() },
    ];
    let mut random = Random(seed);
    let mut own = Random(seed ^ u64::from(rank) << 40);
    let mut number = 0;
    for _ in 0..batches {
        let mut planned = [const { VecDeque::new() }; 4];
        for _ in 0..1 + random.below(BATCH_MAX) {
            number += 1;
            let (kind, comm) = (random.below(KINDS), random.below(4) as usize);
            let comm = if kind >= AMONG_NEIGHBORS { RING } else { comm };
            let count = COUNTS[random.below(COUNTS.len() as u64) as usize];
            planned[comm].push_back(Planned { comm, kind, number, count, root: random.below(1 << 20) as u32 });
        }
        let mut checks: Vec<Check> = Vec::new();
        while planned.iter().any(|left| !left.is_empty()) {
            if let Some(planned) = planned[own.below(4) as usize].pop_front() {
                checks.push(post(engine, &communicators[planned.comm], rank, planned));
            }
        }
        while !checks.is_empty() {
            let next = own.below(checks.len() as u64) as usize;
            checks.swap_remove(next)(engine);
        }
        // The first blocking operation of a communicator opens its boards.
        let members = &communicators[random.below(4) as usize];
        let mut total = [1u32];
        engine.allreduce(in_place(), &mut total, op::Sum, members.comm).expect("all take part");
        assert_eq!(total, [members.world.len() as u32]);
    }
    for Members { comm, .. } in &communicators[1..] {
        engine.comm_free(*comm).expect("it is there");
    }
}

/// A square matrix with two rows. Its product is associative, but not commutative.
type Matrix = [u64; 4];

fn product([a, b, c, d]: Matrix, [e, f, g, h]: Matrix) -> Matrix {
    let row = |a: u64, b: u64| {
        let at = |e: u64, g: u64| a.wrapping_mul(e).wrapping_add(b.wrapping_mul(g));
        [at(e, g), at(f, h)]
    };
    let ([first, second], [third, fourth]) = (row(a, b), row(c, d));
    [first, second, third, fourth]
}

/// Starts an operation. The check that it returns waits for it and compares the result.
// Each kind has one arm.
#[expect(clippy::too_many_lines, reason = "one arm for each kind")]
fn post(engine: &mut Engine, members: &Members, rank: u32, planned: Planned) -> Check {
    let Members { comm, world } = members;
    let (comm, ranks) = (*comm, world.len());
    let own = world.iter().position(|&of| of == rank).expect("a member") as u32;
    let root = planned.root % ranks as u32;
    let Planned { kind, number, count, .. } = planned;
    let of = |rank: u32, count: usize| values(planned, rank, count);
    let sum = |end: usize, count: usize| {
        let mut sums = vec![0i64; count];
        for &rank in &world[..end] {
            sums.iter_mut().zip(of(rank, count)).for_each(|(sum, value)| *sum += value);
        }
        sums
    };
    let around = [own + ranks as u32 - 1, own + 1].map(|place| world[place as usize % ranks]);
    let words = format!("operation {number} of kind {kind}, {count} elements, {ranks} ranks, root {root}, rank {own}");
    /// Makes the check: it waits for the buffers, and compares the buffer that has the result.
    macro_rules! check {
        ($request:expr, $expected:expr) => {{
            let (request, expected) = ($request.expect("it can be started"), $expected);
            Box::new(move |engine: &mut Engine| {
                let ((_, result), _) = engine.wait_take(request).unwrap_or_else(|_| panic!("{words} has failed"));
                assert!(result == expected, "{words}");
            })
        }};
    }
    let all = |count: usize| world.iter().flat_map(|&rank| of(rank, count)).collect::<Vec<_>>();
    // Each rank has one element more than the rank before it.
    let more = |place: usize| count + place;
    let places = consecutive(&(0..ranks).map(more).collect::<Vec<_>>());
    let joined = || (0..).zip(world).flat_map(|(place, &rank)| of(rank, more(place))).collect::<Vec<i64>>();
    match kind {
        0 => {
            let request = engine.ibarrier(comm).expect("it can be started");
            Box::new(move |engine| {
                engine.wait_take(request).unwrap_or_else(|_| panic!("{words} has failed"));
            })
        }
        1 => {
            let expected = of(world[root as usize], count);
            let buffer = if own == root { expected.clone() } else { vec![0; count] };
            let request = engine.ibcast(buffer, Rank(root), comm).expect("it can be started");
            Box::new(move |engine| {
                let (result, _) = engine.wait_take(request).unwrap_or_else(|_| panic!("{words} has failed"));
                assert!(result == expected, "{words}");
            })
        }
        2 => {
            let expected = if own == root { all(count) } else { vec![] };
            check!(engine.igather(of(rank, count), vec![0i64; expected.len()], Rank(root), comm), expected)
        }
        3 => {
            let part = |of: u32| of as usize * count..(of as usize + 1) * count;
            let sent = of(world[root as usize], ranks * count);
            let expected = sent[part(own)].to_vec();
            let send = if own == root { sent } else { vec![] };
            check!(engine.iscatter(send, vec![0i64; count], Rank(root), comm), expected)
        }
        4 => check!(engine.iallgather(of(rank, count), vec![0i64; ranks * count], comm), all(count)),
        5 => {
            let count = count / ranks;
            let part = |from: u32| of(from, ranks * count)[own as usize * count..(own as usize + 1) * count].to_vec();
            let expected: Vec<i64> = world.iter().flat_map(|&from| part(from)).collect();
            check!(engine.ialltoall(of(rank, ranks * count), vec![0i64; ranks * count], comm), expected)
        }
        6 => {
            let expected = if own == root { sum(ranks, count) } else { vec![] };
            check!(engine.ireduce(of(rank, count), vec![0i64; expected.len()], op::Sum, Rank(root), comm), expected)
        }
        7 => check!(engine.iallreduce(of(rank, count), vec![0i64; count], op::Sum, comm), sum(ranks, count)),
        8 => {
            let count = count / ranks;
            let expected = sum(ranks, ranks * count)[own as usize * count..(own as usize + 1) * count].to_vec();
            check!(engine.ireduce_scatter_block(of(rank, ranks * count), vec![0i64; count], op::Sum, comm), expected)
        }
        9 => check!(engine.iscan(in_place(), of(rank, count), op::Sum, comm), sum(own as usize + 1, count)),
        10 => {
            let expected = if own == 0 { vec![-1; count] } else { sum(own as usize, count) };
            check!(engine.iexscan(of(rank, count), vec![-1i64; count], op::Sum, comm), expected)
        }
        11 => {
            let expected = joined();
            check!(
                engine.iallgatherv(of(rank, more(own as usize)), vec![0i64; expected.len()], &places, comm),
                expected
            )
        }
        12 => {
            let (expected, places) = if own == root { (joined(), &places[..]) } else { (vec![], &[][..]) };
            let room = vec![0i64; expected.len()];
            check!(engine.igatherv(of(rank, more(own as usize)), room, places, Rank(root), comm), expected)
        }
        13 => {
            let sent = of(world[root as usize], places[ranks - 1].end);
            let expected = sent[places[own as usize].clone()].to_vec();
            let (sent, places) = if own == root { (sent, &places[..]) } else { (vec![], &[][..]) };
            check!(engine.iscatterv(sent, vec![0i64; expected.len()], places, Rank(root), comm), expected)
        }
        14 => {
            // A rank gives to member `place` as many elements as `places[place]` says.
            let given = places[own as usize].clone();
            let parts = |from: u32| of(from, places[ranks - 1].end)[given.clone()].to_vec();
            let expected: Vec<i64> = world.iter().flat_map(|&from| parts(from)).collect();
            let taken = consecutive(&vec![given.len(); ranks]);
            let sent = of(rank, places[ranks - 1].end);
            check!(engine.ialltoallv(sent, &places, vec![0i64; expected.len()], &taken, comm), expected)
        }
        15 => {
            let expected = sum(ranks, places[ranks - 1].end)[places[own as usize].clone()].to_vec();
            let counts: Vec<usize> = (0..ranks).map(more).collect();
            let sent = of(rank, places[ranks - 1].end);
            check!(engine.ireduce_scatter(sent, vec![0i64; expected.len()], &counts, op::Sum, comm), expected)
        }
        16 => {
            let matrices = |rank: u32| -> Vec<Matrix> {
                let numbers = of(rank, 4 * count);
                numbers.chunks_exact(4).map(|four| [0, 1, 2, 3].map(|at| four[at] as u64)).collect()
            };
            let mut expected = matrices(world[0]);
            for &rank in &world[1..] {
                expected.iter_mut().zip(matrices(rank)).for_each(|(left, right)| *left = product(*left, right));
            }
            check!(engine.iallreduce(matrices(rank), vec![[0; 4]; count], product, comm), expected)
        }
        17 => {
            let expected = sum(ranks, count);
            let total = engine.allreduce_init(of(rank, count), vec![0i64; count], op::Sum, comm);
            let mut total = total.expect("it can be made");
            engine.start(&total).expect("it can be started");
            Box::new(move |engine| {
                engine.wait(&total).unwrap_or_else(|_| panic!("{words} has failed"));
                assert!(engine.buffer(&mut total).expect("it is done").1 == expected, "{words}");
                engine.free(total).unwrap_or_else(|_| panic!("{words} is not free"));
            })
        }
        AMONG_NEIGHBORS => {
            let expected = [around[0], around[1]].map(|rank| of(rank, count)).concat();
            check!(engine.ineighbor_allgather(of(rank, count), vec![0i64; 2 * count], comm), expected)
        }
        _ => {
            // A rank sends its first half to the rank before it and its second half to the rank after it. So the
            // second half comes from the rank before, and the first half from the rank after.
            let expected = [&of(around[0], 2 * count)[count..], &of(around[1], 2 * count)[..count]].concat();
            check!(engine.ineighbor_alltoall(of(rank, 2 * count), vec![0i64; 2 * count], comm), expected)
        }
    }
}
