//! Storms of collective operations: many at once, of all kinds, on several communicators, against a serial model. All ranks draw
//! the same operations from a seed, and take their results in orders of their own.

use tickwire::{Comm, Engine, Rank, consecutive, in_place, op};

/// Lengths of buffers, elements.
const COUNTS: [usize; 5] = [0, 1, 5, 300, 3000];
/// Operations at once, at most.
const BATCH_MAX: u64 = 8;

/// Numbers that look random, the same from the same seed.
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

/// A communicator, and its members by rank, ranks of the world.
struct Members {
    comm: Comm,
    world: Vec<u32>,
}

/// An operation of a storm.
#[derive(Clone, Copy)]
struct Planned {
    kind: u64,
    number: u64,
    count: usize,
    root: u32,
}

/// What a rank of the world has for an operation.
fn values(planned: Planned, rank: u32, count: usize) -> Vec<i64> {
    let mut random = Random(planned.number << 32 | u64::from(rank));
    (0..count).map(|_| random.below(2_000_001) as i64 - 1_000_000).collect()
}

type Check = Box<dyn FnOnce(&mut Engine)>;

/// So many batches of operations.
///
/// # Panics
/// If one of them fails, or gives something else than the model.
pub fn storm(engine: &mut Engine, seed: u64, batches: u32) {
    let world = engine.comm_world();
    let (rank, size) = (engine.rank().0, engine.size());
    let odd = engine.comm_split(world, Some(rank % 2), 0).expect("all take part").expect("all have a color");
    let reversed = engine.comm_split(world, Some(0), -(rank as i32)).expect("all take part").expect("one color");
    let communicators = [
        Members { comm: world, world: (0..size).collect() },
        Members { comm: odd, world: (rank % 2..size).step_by(2).collect() },
        Members { comm: reversed, world: (0..size).rev().collect() },
    ];
    let mut random = Random(seed);
    let mut own = Random(seed ^ u64::from(rank) << 40);
    let mut number = 0;
    for _ in 0..batches {
        let count = 1 + random.below(BATCH_MAX);
        let mut checks: Vec<Check> = Vec::new();
        for _ in 0..count {
            number += 1;
            let members = &communicators[random.below(3) as usize];
            let count = COUNTS[random.below(COUNTS.len() as u64) as usize];
            let planned = Planned { kind: random.below(12), number, count, root: random.below(1 << 20) as u32 };
            checks.push(post(engine, members, rank, planned));
        }
        while !checks.is_empty() {
            let next = own.below(checks.len() as u64) as usize;
            checks.swap_remove(next)(engine);
        }
        let mut total = [1u32];
        engine.allreduce(in_place(), &mut total, op::Sum, world).expect("all take part");
        assert_eq!(total, [size]);
    }
    engine.comm_free(odd).expect("it is there");
    engine.comm_free(reversed).expect("it is there");
}

/// Starts an operation; the check waits for it.
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
    let words = format!("operation {number} of kind {kind}, {count} elements, {ranks} ranks, root {root}, rank {own}");
    /// Waits for buffers, and compares the one that has the result.
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
        _ => {
            // Every rank has one more than the rank before it.
            let places = consecutive(&(0..ranks).map(|of| count + of).collect::<Vec<_>>());
            let expected: Vec<i64> = (0..).zip(world).flat_map(|(place, &rank)| of(rank, count + place)).collect();
            let send = of(rank, count + own as usize);
            check!(engine.iallgatherv(send, vec![0i64; expected.len()], &places, comm), expected)
        }
    }
}
