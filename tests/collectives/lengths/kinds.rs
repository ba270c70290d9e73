//! One rank calls an operation with another number of elements than the others. Every kind of operation is tried. Whoever
//! needs what differs gets an error, and nobody waits forever.

use super::ends;
use crate::kit::clusters;
use tickwire::testing::Cluster;
use tickwire::{Cartesian, Comm, Engine, List, Pieces, Rank, Rejected, Request, Topology, consecutive, op};

/// Number of ranks.
const SIZE: u32 = 4;
const RANKS: usize = SIZE as usize;
/// The root of operations that have one. It has the usual number of elements.
const ROOT: Rank = Rank(1);
/// The rank that differs, its number of elements, and the number of the others. Some numbers fit a frame, others need a
/// rendezvous.
const CASES: [(u32, usize, usize); 5] = [(0, 1, 3), (2, 3, 1), (2, 100, 5_000), (0, 5_000, 100), (3, 4_000, 5_000)];

/// Starts an operation in which one rank has another number of elements, over all transports. The ranks that `needs`
/// names, given the rank that differs and a rank, must get an error.
fn one_differs<B: Pieces>(
    name: &str,
    needs: impl Fn(u32, u32) -> bool,
    mut post: impl FnMut(&mut Engine, usize, u32, Comm) -> Result<Request<B>, Rejected<B>>,
) {
    for (case, (odd, of_odd, usual)) in CASES.into_iter().enumerate() {
        // Each transport has some of the cases.
        let clusters = clusters(SIZE).into_iter().enumerate();
        for (number, mut cluster) in clusters.filter(|(number, _)| (number + case).is_multiple_of(3)) {
            make_ring(&mut cluster);
            let words = format!("{name} of {usual}, but {of_odd} on rank {odd}, cluster {number}");
            let ended = ends(&mut cluster, &words, |engine, rank, world| {
                post(engine, if rank == odd { of_odd } else { usual }, rank, world)
            });
            for (rank, error) in (0..).zip(&ended) {
                assert!(error.is_some() || !needs(odd, rank), "{words}: rank {rank} is not told");
            }
        }
    }
}

/// Each rank has the rank before it and the rank behind it as neighbours.
fn make_ring(cluster: &mut Cluster) {
    for engine in &mut cluster.engines {
        let world = engine.comm_world();
        let ring = Topology::Cartesian(Cartesian::new(&[(SIZE, true)]));
        engine.comm_set_topology(world, ring).unwrap();
    }
}

/// Whether two ranks are the same, or neighbours in the ring.
fn are_near(odd: u32, rank: u32) -> bool {
    (odd + SIZE - rank) % SIZE != 2
}

/// Elements for this many parts.
fn parts(count: usize, parts: usize) -> Vec<u64> {
    vec![1; count * parts]
}

#[test]
fn at_a_root() {
    let is_root = |_: u32, rank: u32| Rank(rank) == ROOT;
    let room = |rank: u32, length: usize| vec![0u64; if Rank(rank) == ROOT { length } else { 0 }];
    one_differs("gather", is_root, |engine, count, rank, world| {
        engine.igather(parts(count, 1), room(rank, count * RANKS), ROOT, world)
    });
    one_differs("gatherv", is_root, |engine, count, rank, world| {
        let places = consecutive(&[count; RANKS]);
        engine.igatherv(parts(count, 1), room(rank, count * RANKS), &places, ROOT, world)
    });
    one_differs("reduce", is_root, |engine, count, rank, world| {
        engine.ireduce(parts(count, 1), room(rank, count), op::Sum, ROOT, world)
    });
}

#[test]
fn from_a_root() {
    let is_odd = |odd: u32, rank: u32| odd == rank;
    one_differs("scatter", is_odd, |engine, count, rank, world| {
        let send = parts(count, if Rank(rank) == ROOT { RANKS } else { 0 });
        engine.iscatter(send, parts(count, 1), ROOT, world)
    });
    one_differs("scatterv", is_odd, |engine, count, rank, world| {
        let send = parts(count, if Rank(rank) == ROOT { RANKS } else { 0 });
        engine.iscatterv(send, parts(count, 1), &consecutive(&[count; RANKS]), ROOT, world)
    });
}

#[test]
fn where_each_rank_has_something_for_all() {
    let all = |_: u32, _: u32| true;
    one_differs("allgather", all, |engine, count, _, world| {
        engine.iallgather(parts(count, 1), parts(count, RANKS), world)
    });
    one_differs("allgatherv", all, |engine, count, _, world| {
        engine.iallgatherv(parts(count, 1), parts(count, RANKS), &consecutive(&[count; RANKS]), world)
    });
    one_differs("alltoall", all, |engine, count, _, world| {
        engine.ialltoall(parts(count, RANKS), parts(count, RANKS), world)
    });
    one_differs("alltoallv", all, |engine, count, _, world| {
        let places = consecutive(&[count; RANKS]);
        engine.ialltoallv(parts(count, RANKS), &places, parts(count, RANKS), &places, world)
    });
    one_differs("alltoallw", all, |engine, count, _, world| {
        let lists = || List(vec![parts(count, 1); RANKS]);
        engine.ialltoallw(lists(), lists(), world)
    });
}

#[test]
fn in_reductions() {
    let all = |_: u32, _: u32| true;
    one_differs("allreduce", all, |engine, count, _, world| {
        engine.iallreduce(parts(count, 1), parts(count, 1), op::Sum, world)
    });
    one_differs("reduce_scatter_block", all, |engine, count, _, world| {
        engine.ireduce_scatter_block(parts(count, RANKS), parts(count, 1), op::Sum, world)
    });
    one_differs("reduce_scatter", all, |engine, count, _, world| {
        engine.ireduce_scatter(parts(count, RANKS), parts(count, 1), &[count; RANKS], op::Sum, world)
    });
    // A prefix depends on the ranks before.
    let behind = |odd: u32, rank: u32| rank >= odd.max(1);
    one_differs("scan", behind, |engine, count, _, world| {
        engine.iscan(parts(count, 1), parts(count, 1), op::Sum, world)
    });
    one_differs("exscan", behind, |engine, count, _, world| {
        engine.iexscan(parts(count, 1), parts(count, 1), op::Sum, world)
    });
}

#[test]
fn among_neighbours() {
    one_differs("neighbor_allgather", are_near, |engine, count, _, world| {
        engine.ineighbor_allgather(parts(count, 1), parts(count, 2), world)
    });
    one_differs("neighbor_allgatherv", are_near, |engine, count, _, world| {
        engine.ineighbor_allgatherv(parts(count, 1), parts(count, 2), &consecutive(&[count; 2]), world)
    });
    one_differs("neighbor_alltoall", are_near, |engine, count, _, world| {
        engine.ineighbor_alltoall(parts(count, 2), parts(count, 2), world)
    });
    one_differs("neighbor_alltoallv", are_near, |engine, count, _, world| {
        let places = consecutive(&[count; 2]);
        engine.ineighbor_alltoallv(parts(count, 2), &places, parts(count, 2), &places, world)
    });
    one_differs("neighbor_alltoallw", are_near, |engine, count, _, world| {
        let lists = || List(vec![parts(count, 1); 2]);
        engine.ineighbor_alltoallw(lists(), lists(), world)
    });
}
