//! Storms of blocks: chains of messages through all ranks, several at once, checked against a serial model. A seed
//! decides the chains and their order, the same on all ranks.

use crate::storm::Random;
use tickwire::internals::components::limits::FORWARD_WINDOW;
use tickwire::testing::rows;
use tickwire::{Comm, Engine, Rank, Tag, op};

/// Lengths of messages in elements: short ones, some that fit in a frame, and long ones.
const COUNTS: [usize; 5] = [1, 50, 3_000, 40_000, 150_000];
/// Most chains at once.
const CHAINS_MAX: u64 = 5;
/// Elements of a message that is many forwarding windows long: 4 MiB.
const LONG: usize = 1 << 19;

/// What the ranks of a chain do with the message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// They pass it on.
    Forward,
    /// They keep it and pass it on.
    Keep,
    /// They add their own elements to it, and pass the sum on.
    Add,
    /// They add their own elements to it, keep the sum and pass it on.
    AddAndKeep,
}

/// A chain through all ranks.
struct Chain {
    number: u64,
    order: Vec<u32>,
    count: usize,
    way: Way,
    tag: Tag,
}

type Check = Box<dyn FnOnce(&mut Engine)>;

fn values(chain: &Chain, rank: u32) -> Vec<u64> {
    let mut random = Random::new(chain.number << 32 | u64::from(rank));
    (0..chain.count).map(|_| random.below(1 << 40)).collect()
}

/// The elements that leave the rank at this place of the chain.
fn left(chain: &Chain, place: usize) -> Vec<u64> {
    let adds = matches!(chain.way, Way::Add | Way::AddAndKeep);
    let mut sums = values(chain, chain.order[0]);
    for &rank in chain.order[1..=place].iter().filter(|_| adds) {
        sums.iter_mut().zip(values(chain, rank)).for_each(|(sum, own)| *sum += own);
    }
    sums
}

/// Runs this many batches of chains.
///
/// # Panics
/// If a chain fails, or its result differs from the model.
pub fn block_storm(engine: &mut Engine, seed: u64, batches: u32) {
    let (world, rank, size) = (engine.comm_world(), engine.rank().0, engine.size());
    assert!(size > 1, "a chain has two ends");
    let mut random = Random::new(seed);
    let mut own = Random::new(seed ^ u64::from(rank) << 40);
    long_chain(engine, world, (rank, size));
    let mut number = 0;
    for _ in 0..batches {
        let mut checks: Vec<Check> = Vec::new();
        for at_once in 0..=random.below(CHAINS_MAX) {
            number += 1;
            let mut order: Vec<u32> = (0..size).collect();
            for last in (1..order.len()).rev() {
                order.swap(last, random.below(last as u64 + 1) as usize);
            }
            let count = COUNTS[random.below(COUNTS.len() as u64) as usize];
            let way = [Way::Forward, Way::Keep, Way::Add, Way::AddAndKeep][random.below(4) as usize];
            let chain = Chain { number, order, count, way, tag: Tag(at_once as u32) };
            checks.push(start(engine, world, rank, chain));
        }
        while !checks.is_empty() {
            let next = own.below(checks.len() as u64) as usize;
            checks.swap_remove(next)(engine);
        }
    }
}

/// Sends a long message through all ranks. The ranks in the middle must hold no more than a window of it at a time.
fn long_chain(engine: &mut Engine, world: Comm, (rank, size): (u32, u32)) {
    let chain = Chain { number: 0, order: (0..size).collect(), count: LONG, way: Way::Forward, tag: Tag(0) };
    start(engine, world, rank, chain)(engine);
    if rank > 0 && rank + 1 < size {
        let most = rows(engine).progress.forward_bytes.most;
        assert!(most > 0 && most <= FORWARD_WINDOW as u64, "rank {rank} has held {most} of {} bytes", LONG * 8);
    }
}

/// Starts a rank's block of a chain. The check that it returns waits for it and compares the result.
fn start(engine: &mut Engine, world: Comm, rank: u32, chain: Chain) -> Check {
    let place = chain.order.iter().position(|&other| other == rank).expect("all ranks are in it");
    let (own, room) = (values(&chain, rank), vec![0; chain.count]);
    let at = |place: usize| Rank(chain.order[place]);
    let last = chain.order.len() - 1;
    let request = if place == 0 {
        engine.gather_block(at(1), chain.tag, world).send(own).start()
    } else {
        let block = engine.scatter_block(at(place - 1), chain.tag, world);
        let adds = matches!(chain.way, Way::Add | Way::AddAndKeep);
        match (place == last, chain.way) {
            (true, _) if adds => block.recv_op(own, op::Sum).start(),
            (true, _) => block.recv(room).start(),
            (false, Way::Keep) => block.recv_forward(room, at(place + 1)).start(),
            (false, Way::Add) => block.forward_op(own, op::Sum, at(place + 1)).start(),
            (false, Way::AddAndKeep) => block.recv_op_forward(own, op::Sum, at(place + 1)).start(),
            (false, Way::Forward) => {
                let request = block.forward(chain.count * 8, at(place + 1)).start().expect("the chain is right");
                return Box::new(move |engine| {
                    engine.wait_take(request).expect("all take part");
                });
            }
        }
    };
    let request = request.expect("the chain is right");
    Box::new(move |engine| {
        let ((_, kept), _) = engine.wait_take(request).expect("all take part");
        let expected = match chain.way {
            Way::Add if place < last => values(&chain, rank),
            _ => left(&chain, place),
        };
        assert!(kept == expected, "chain {} of {} elements, place {place}", chain.number, chain.count);
    })
}
