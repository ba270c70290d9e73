//! How the cost of operations grows with the number of ranks. The cost is counted from the graphs of up to a million
//! ranks, and is compared with bounds and with the tables of the book. Simulated clusters of up to 256 engines must
//! send exactly as much, under virtual time, and long operands in as many bytes.

mod bytes;
mod count;
mod operations;
mod table;

use crate::kit::take_all;
use count::{Draw, Part, Parts};
use operations::OPERATIONS;
use tickwire::testing::{Cluster, SimConfig, SimNet};
use tickwire::{Comm, Engine, List, Pieces, Rank, Rejected, Request, Test, consecutive, op};

/// Time of a round of ticks, ns.
const STEP_NS: u64 = 1_000;
/// Rounds of ticks for each message of a chain: it is in flight, is taken, and is answered.
const ROUNDS_A_MESSAGE: u32 = 8;
/// The least number of messages that a rank takes in a round of ticks.
const MESSAGES_A_ROUND: u32 = 4;

/// Up to this number of messages, a rank needs no further credit.
const FEW: u32 = 40;

/// Runs requests of all engines. Returns the number of frames that each engine has sent.
fn run<B: Pieces>(cluster: &mut Cluster, requests: &[Request<B>], bound: u32, words: &str) -> Vec<u32> {
    let mut sent = vec![0; requests.len()];
    for _ in 0..bound {
        for (rank, sent) in sent.iter_mut().enumerate() {
            *sent += cluster.tick(rank).sent;
        }
        cluster.now_ns += STEP_NS;
        let mut engines = cluster.engines.iter_mut().zip(requests);
        if engines.all(|(engine, request)| !matches!(engine.test(request), Ok(Test::Pending))) {
            return sent;
        }
    }
    panic!("{words}: not done after {bound} rounds of ticks");
}

/// Runs an operation of 8 bytes twice. The first time, the engines connect. The second time, they must send as many
/// messages as the graphs have, in a bounded number of rounds.
fn compare<B: Pieces>(
    cluster: &mut Cluster,
    name: &str,
    mut start: impl FnMut(&mut Engine, u32, Comm) -> Result<Request<B>, Rejected<B>>,
    check: impl Fn(u32, B) -> bool,
) {
    let size = cluster.engines.len() as u32;
    let of = OPERATIONS.iter().find(|of| of.name == name && of.operand.starts_with("8 B") | of.operand.is_empty());
    let draw: Draw = of.unwrap().draw;
    let messages = (0..size).map(|rank| Part::of(rank, size, draw).messages().map(|of| of.len() as u32));
    let (expected, received): (Vec<u32>, Vec<u32>) = messages.map(|[sent, received]| (sent, received)).unzip();
    let rounds = Parts::new(size, draw).rounds() as u32;
    let words = format!("{name} of {size}");
    for is_counted in [false, true] {
        let start = |(rank, engine): (u32, &mut Engine)| {
            let world = engine.comm_world();
            start(engine, rank, world).unwrap()
        };
        let requests: Vec<_> = (0..).zip(&mut cluster.engines).map(start).collect();
        let bound = ROUNDS_A_MESSAGE * (rounds + 2) + expected.iter().max().unwrap() / MESSAGES_A_ROUND;
        let sent = run(cluster, &requests, if is_counted { bound } else { 20_000 }, &words);
        // A rank that gets more messages than the first credit of a peer allows also sends grants of credit.
        let is_drawn = |(rank, &sent): (usize, &u32)| {
            let more = if received[rank] > FEW { received[rank] } else { 0 };
            (expected[rank]..=expected[rank] + more).contains(&sent)
        };
        assert!(!is_counted || sent.iter().enumerate().all(is_drawn), "{words}: {sent:?}, drawn {expected:?}");
        let results = take_all(cluster, requests);
        assert!((0..).zip(results).all(|(rank, result)| check(rank, result)), "{words}");
    }
}

#[test]
fn clusters_of_up_to_256_engines_send_what_was_counted_in_as_many_rounds() {
    for size in [16, 100, 256] {
        let mut cluster = Cluster::sim(size, &SimNet::new(size, SimConfig::calm(1)));
        one_from_or_for_all(&mut cluster, size);
        a_block_for_each(&mut cluster, size);
        reductions(&mut cluster, size);
    }
}

fn one_from_or_for_all(cluster: &mut Cluster, size: u32) {
    let all = |rank: u32| if rank == 0 { (0..u64::from(size)).collect() } else { Vec::new() };
    let room = |rank: u32| vec![0; all(rank).len()];
    let places = consecutive(&vec![1; size as usize]);
    compare(cluster, "barrier", |engine, _, world| engine.ibarrier(world), |_, _| true);
    let shared = |rank: u32| vec![if rank == 0 { 7u64 } else { 0 }];
    compare(cluster, "bcast", |engine, rank, world| engine.ibcast(shared(rank), Rank(0), world), |_, of| of == [7]);
    compare(
        cluster,
        "gather",
        |engine, rank, world| engine.igather(vec![u64::from(rank)], room(rank), Rank(0), world),
        |rank, (_, of)| of == all(rank),
    );
    compare(
        cluster,
        "gatherv",
        |engine, rank, world| engine.igatherv(vec![u64::from(rank)], room(rank), &places, Rank(0), world),
        |rank, (_, of)| of == all(rank),
    );
    compare(
        cluster,
        "scatter",
        |engine, rank, world| engine.iscatter(all(rank), vec![0u64], Rank(0), world),
        |rank, (_, of)| of == [u64::from(rank)],
    );
    compare(
        cluster,
        "scatterv",
        |engine, rank, world| engine.iscatterv(all(rank), vec![0u64], &places, Rank(0), world),
        |rank, (_, of)| of == [u64::from(rank)],
    );
}

fn a_block_for_each(cluster: &mut Cluster, size: u32) {
    let all: Vec<u64> = (0..u64::from(size)).collect();
    let (places, room) = (consecutive(&vec![1; size as usize]), vec![0u64; size as usize]);
    let mine = |rank: u32| vec![u64::from(rank); size as usize];
    compare(
        cluster,
        "allgather",
        |engine, rank, world| engine.iallgather(vec![u64::from(rank)], room.clone(), world),
        |_, (_, of)| of == all,
    );
    compare(
        cluster,
        "allgatherv",
        |engine, rank, world| engine.iallgatherv(vec![u64::from(rank)], room.clone(), &places, world),
        |_, (_, of)| of == all,
    );
    compare(
        cluster,
        "alltoall",
        |engine, rank, world| engine.ialltoall(mine(rank), room.clone(), world),
        |_, (_, of)| of == all,
    );
    compare(
        cluster,
        "alltoallv",
        |engine, rank, world| engine.ialltoallv(mine(rank), &places, room.clone(), &places, world),
        |_, (_, of)| of == all,
    );
    compare(
        cluster,
        "alltoallw",
        |engine, rank, world| {
            let send = List(vec![vec![u64::from(rank)]; size as usize]);
            engine.ialltoallw(send, List(vec![vec![0u64]; size as usize]), world)
        },
        |_, (_, of)| of.0.concat() == all,
    );
}

fn reductions(cluster: &mut Cluster, size: u32) {
    let (total, counts) = (u64::from(size), vec![1; size as usize]);
    compare(
        cluster,
        "reduce",
        |engine, _, world| engine.ireduce(vec![1u64], vec![0], op::Sum, Rank(0), world),
        |rank, (_, of)| rank > 0 || of == [total],
    );
    compare(
        cluster,
        "allreduce",
        |engine, _, world| engine.iallreduce(vec![1u64], vec![0], op::Sum, world),
        |_, (_, of)| of == [total],
    );
    compare(
        cluster,
        "reduce_scatter_block",
        |engine, _, world| engine.ireduce_scatter_block(vec![1u64; size as usize], vec![0], op::Sum, world),
        |_, (_, of)| of == [total],
    );
    compare(
        cluster,
        "reduce_scatter",
        |engine, _, world| engine.ireduce_scatter(vec![1u64; size as usize], vec![0], &counts, op::Sum, world),
        |_, (_, of)| of == [total],
    );
    compare(
        cluster,
        "scan",
        |engine, _, world| engine.iscan(vec![1u64], vec![0], op::Sum, world),
        |rank, (_, of)| of == [u64::from(rank) + 1],
    );
    compare(
        cluster,
        "exscan",
        |engine, _, world| engine.iexscan(vec![1u64], vec![0], op::Sum, world),
        |rank, (_, of)| of == [u64::from(rank)],
    );
}
