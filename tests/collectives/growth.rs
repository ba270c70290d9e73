//! How many messages ranks send in simulated clusters under virtual time: as many as they draw, with up to 256 engines.

use tickwire::internals::components::{Pieces, Span};
use tickwire::internals::systems::collectives::draft::{Act, Draft};
use tickwire::internals::systems::collectives::{reduce, scan};
use tickwire::testing::{Cluster, SimConfig, SimNet};
use tickwire::{Engine, Rank, Request, Test, op};

/// Time of a round of ticks, ns.
const STEP_NS: u64 = 1_000;
/// Rounds of ticks for a message after the other: on its way, taken, answered.
const ROUNDS_A_MESSAGE: u32 = 8;

type Buffers = (Vec<u64>, Vec<u64>);
type Start = fn(&mut Engine) -> Request<Buffers>;
type Draw = fn(&mut Draft, Span, Span);

/// Operations as they are started, and as they are drawn.
const OPERATIONS: [(&str, Start, Draw); 3] = [
    (
        "allreduce",
        |engine| engine.iallreduce(vec![1], vec![0], op::Sum, engine.comm_world()).unwrap(),
        |draft, input, output| reduce::allreduce(draft, input, output, 8),
    ),
    (
        "reduce",
        |engine| engine.ireduce(vec![1], vec![0], op::Sum, Rank(0), engine.comm_world()).unwrap(),
        |draft, input, output| {
            let output = (draft.rank == 0).then_some(output);
            reduce::reduce(draft, input, output, 0);
        },
    ),
    (
        "scan",
        |engine| engine.iscan(vec![1], vec![0], op::Sum, engine.comm_world()).unwrap(),
        |draft, input, output| scan::scan(draft, input, output, false),
    ),
];

/// Messages that a rank draws.
fn drawn(rank: u32, size: u32, draw: Draw) -> u32 {
    let (input, output) = (vec![0u64], vec![0u64]);
    let mut draft = Draft::new(rank, size);
    draw(&mut draft, input.piece(0), output.piece(0));
    draft.acts.iter().filter(|act| matches!(act, Act::Send { .. })).count() as u32
}

/// Runs requests of all engines; the frames that each has sent, and the rounds of ticks that it took.
fn run<B: Pieces>(cluster: &mut Cluster, requests: Vec<Request<B>>, bound: u32) -> (Vec<u32>, u32, Vec<B>) {
    let mut sent = vec![0; requests.len()];
    for round in 0..bound {
        for (rank, sent) in sent.iter_mut().enumerate() {
            *sent += cluster.tick(rank).sent;
        }
        cluster.now_ns += STEP_NS;
        let mut engines = cluster.engines.iter_mut().zip(&requests);
        if engines.all(|(engine, request)| !matches!(engine.test(request), Ok(Test::Pending))) {
            let engines = cluster.engines.iter_mut().zip(requests);
            return (sent, round, engines.map(|(engine, request)| engine.take(request).unwrap().0).collect());
        }
    }
    panic!("not done after {bound} rounds of ticks");
}

#[test]
fn clusters_of_up_to_256_engines_send_what_was_counted_in_as_many_rounds() {
    for size in [16, 100, 256] {
        let mut cluster = Cluster::sim(size, &SimNet::new(size, SimConfig::calm(1)));
        let depth = size.next_power_of_two().ilog2();
        for (name, start, draw) in OPERATIONS {
            // The first time they connect.
            for is_counted in [false, true] {
                let requests = cluster.engines.iter_mut().map(start).collect();
                let bound = if is_counted { ROUNDS_A_MESSAGE * (depth + 2) } else { 20_000 };
                let (sent, rounds, results) = run(&mut cluster, requests, bound);
                let expected: Vec<u32> = (0..size).map(|rank| drawn(rank, size, draw)).collect();
                println!("{name} of {size}: {rounds} rounds, {} messages at most", expected.iter().max().unwrap());
                assert!(!is_counted || sent == expected, "{name} of {size}: {sent:?}, drawn {expected:?}");
                let last = results[if name == "scan" { size as usize - 1 } else { 0 }].1[0];
                assert_eq!(last, u64::from(size), "{name}");
            }
        }
    }
}
