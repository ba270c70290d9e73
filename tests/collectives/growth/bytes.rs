//! Simulated clusters must move as many bytes as the graphs of long operations have, and little more: frames have headers.

use super::count::{Draw, Part, room};
use super::run;
use crate::kit::take_all;
use tickwire::internals::systems::collectives::{reduce, spread};
use tickwire::testing::{Cluster, SimConfig, SimNet, rows};
use tickwire::{Comm, Engine, Pieces, Rank, Rejected, Request, op};

/// Bytes of the operand of a sum, and of a broadcast.
const SUMMED: usize = 64 << 10;
const SHARED: usize = 256 << 10;
/// Bytes that a message may take beside its own: frames that announce it, ask for it and end it, and the headers of these
/// and of its pieces.
const MORE_A_MESSAGE: u64 = 512;
/// Most rounds of ticks.
const BOUND: u32 = 20_000;

/// Bytes that each engine has sent and has received so far, over all of its transports.
fn moved(cluster: &mut Cluster) -> Vec<[u64; 2]> {
    let of = |engine: &mut Engine| {
        let endpoints = rows(engine).endpoints.iter_mut().map(|endpoint| endpoint.transport.get().moved());
        endpoints.fold([0, 0], |[sent, received], (more, read)| [sent + more, received + read])
    };
    cluster.engines.iter_mut().map(of).collect()
}

/// Runs an operation twice. The first time, the engines connect. The second time, each must send and receive the bytes that
/// its graph has.
fn compare<B: Pieces>(
    cluster: &mut Cluster,
    words: &str,
    draw: Draw,
    start: impl Fn(&mut Engine, u32, Comm) -> Result<Request<B>, Rejected<B>>,
    check: impl Fn(B) -> bool,
) {
    let size = cluster.engines.len() as u32;
    for is_counted in [false, true] {
        let before = moved(cluster);
        let start = |(rank, engine): (u32, &mut Engine)| {
            let world = engine.comm_world();
            start(engine, rank, world).unwrap()
        };
        let requests: Vec<_> = (0..).zip(&mut cluster.engines).map(start).collect();
        run(cluster, &requests, BOUND, words);
        assert!(take_all(cluster, requests).into_iter().all(&check), "{words}");
        // The last messages that nobody waits for, such as grants of credit.
        cluster.tick_times(20);
        let after = moved(cluster);
        for (rank, (before, after)) in (0..).zip(before.iter().zip(&after)).filter(|_| is_counted) {
            let drawn = Part::of(rank, size, draw).messages();
            let more = MORE_A_MESSAGE * (drawn[0].len() + drawn[1].len()) as u64;
            for (side, way) in ["sends", "receives"].into_iter().enumerate() {
                let (bytes, expected) = (after[side] - before[side], drawn[side].iter().sum::<u64>());
                let words = format!("{words}: of {size} ranks, rank {rank} {way} {bytes} bytes, drawn {expected}");
                assert!((expected..=expected + more).contains(&bytes), "{words}");
            }
        }
    }
}

#[test]
fn clusters_move_the_bytes_that_were_counted() {
    for size in [16, 100] {
        let mut cluster = Cluster::sim(size, &SimNet::new(size, SimConfig::calm(1)));
        compare(
            &mut cluster,
            "allreduce",
            |draft| reduce::allreduce(draft, room(SUMMED), room(SUMMED), 8),
            |engine, _, world| engine.iallreduce(vec![1u64; SUMMED / 8], vec![0u64; SUMMED / 8], op::Sum, world),
            |(_, sums)| sums.iter().all(|&sum| sum == u64::from(size)),
        );
        compare(
            &mut cluster,
            "bcast",
            |draft| spread::broadcast(draft, room(SHARED), 0),
            |engine, rank, world| engine.ibcast(vec![u8::from(rank == 0); SHARED], Rank(0), world),
            |shared| shared.iter().all(|&byte| byte == 1),
        );
    }
}
