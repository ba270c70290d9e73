//! A member dies in an operation of any kind. All others end in time, those that need the dead member get an error, and all
//! memory and rows are given back.

use crate::kit::{BOUND, all};
use std::ops::Range;
use tickwire::internals::components::limits::FAILURE_MS_MAX;
use tickwire::internals::transports::sim::Death;
use tickwire::testing::{Cluster, SimConfig, SimNet};
use tickwire::{
    Cartesian, Comm, Engine, List, Pieces, Rank, Rejected, Request, RequestError, Tag, Test, Topology, consecutive, op,
};
use tickwire_tests::survivors::check_given_back;

/// Number of ranks.
const SIZE: u32 = 6;
const RANKS: usize = SIZE as usize;
/// The root of operations that have one.
const ROOT: Rank = Rank(1);
/// Numbers of elements of a part: one that fits a frame, and one that does not.
const COUNTS: [usize; 2] = [1, 3000];

/// Runs an operation in which a member dies: one that has not called it, or one that has. `needs` says whether a rank (the
/// second number) needs what a dead one (the first) would have sent.
fn one_dies<B: Pieces>(
    name: &str,
    needs: impl Fn(u32, u32) -> bool,
    post: impl Fn(&mut Engine, usize, u32, Comm) -> Result<Request<B>, Rejected<B>>,
) {
    for (victim, has_called) in [0, 1, 3, 5].into_iter().flat_map(|victim| [(victim, false), (victim, true)]) {
        for count in COUNTS {
            let words = format!("{name} of {count}, rank {victim} dies, it has called: {has_called}");
            let calm = SimConfig::calm(u64::from(victim));
            let late = SimConfig { partial_of_256: 60, delay_ns: 0..300_000, ..calm.clone() };
            let net = SimNet::new(SIZE, if has_called { late } else { calm });
            let mut cluster = Cluster::sim(SIZE, &net);
            make_ring(&mut cluster);
            all(&mut cluster, |engine, _, world| engine.ibarrier(world));
            let mut requests = Vec::new();
            for (rank, engine) in (0..SIZE).zip(&mut cluster.engines).filter(|(rank, _)| *rank != victim || has_called)
            {
                let world = engine.comm_world();
                requests.push((rank, post(engine, count, rank, world).unwrap()));
            }
            cluster.tick_times(if has_called { 4 } else { victim });
            net.kill(victim, Death::At(cluster.now_ns));
            if let Some(at) = requests.iter().position(|(rank, _)| *rank == victim) {
                std::mem::forget(requests.swap_remove(at).1);
            }
            let must_fail = |rank| !has_called && needs(victim, rank);
            all_end(&mut cluster, requests, must_fail, &words);
            let living: Vec<usize> = (0..RANKS).filter(|&rank| rank as u32 != victim).collect();
            check_given_back(&mut cluster, &living);
            talk_on(&mut cluster, &living);
        }
    }
}

/// Each rank has the rank before it and the rank behind it as neighbours.
fn make_ring(cluster: &mut Cluster) {
    for engine in &mut cluster.engines {
        let world = engine.comm_world();
        engine.comm_set_topology(world, Topology::Cartesian(Cartesian::new(&[(SIZE, true)]))).unwrap();
    }
}

/// Waits for the requests of the survivors. All must end within the longest time in which a dead peer's requests may be
/// pending.
fn all_end<B: Pieces>(
    cluster: &mut Cluster,
    requests: Vec<(u32, Request<B>)>,
    must_fail: impl Fn(u32) -> bool,
    words: &str,
) {
    let death_ns = cluster.now_ns;
    cluster.tick_until(BOUND, words, |cluster| {
        let is_pending = |(rank, request): &(u32, Request<B>)| {
            matches!(cluster.engines[*rank as usize].test(request), Ok(Test::Pending))
        };
        !requests.iter().any(is_pending)
    });
    let passed_ms = (cluster.now_ns - death_ns) / 1_000_000;
    assert!(passed_ms <= u64::from(FAILURE_MS_MAX), "{words}: it has taken {passed_ms} ms");
    for (rank, request) in requests {
        match cluster.engines[rank as usize].take(request) {
            Ok(_) => assert!(!must_fail(rank), "{words}: rank {rank} has nothing of the dead rank"),
            Err(failed) => {
                use RequestError::{Abandoned, PeerFailed};
                assert!(matches!(failed.error, PeerFailed { .. } | Abandoned(_)), "{words}: {}", failed.error);
            }
        }
    }
}

/// The survivors can still exchange messages.
fn talk_on(cluster: &mut Cluster, living: &[usize]) {
    for pair in living.windows(2) {
        let world = cluster.engines[pair[0]].comm_world();
        let send = cluster.engines[pair[0]].isend(vec![7u8; 100], Rank(pair[1] as u32), Tag(1), world).unwrap();
        let receive = cluster.engines[pair[1]].irecv(vec![0u8; 100], Rank(pair[0] as u32), Tag(1), world).unwrap();
        assert_eq!(cluster.finish(BOUND, pair[1], receive).unwrap().0, [7; 100]);
        cluster.finish(BOUND, pair[0], send).unwrap();
    }
}

/// Elements for this many parts.
fn parts(count: usize, parts: usize) -> Vec<u64> {
    vec![1; count * parts]
}

/// Elements for this many parts at the root, and none elsewhere.
fn at_root(rank: u32, count: usize, ranks: usize) -> Vec<u64> {
    parts(count, if Rank(rank) == ROOT { ranks } else { 0 })
}

/// The number of elements of a rank where lengths differ: one more on odd ranks.
fn length(count: usize, rank: u32) -> usize {
    count + rank as usize % 2
}

/// The places of so many elements of each rank.
fn uneven(count: usize) -> Vec<Range<usize>> {
    consecutive(&(0..SIZE).map(|rank| length(count, rank)).collect::<Vec<_>>())
}

/// The places of two parts, the second one first.
fn reversed(count: usize) -> [Range<usize>; 2] {
    [count..2 * count, 0..count]
}

#[test]
fn with_a_root() {
    let from_root = |victim: u32, _: u32| Rank(victim) == ROOT;
    let to_root = |_: u32, rank: u32| Rank(rank) == ROOT;
    one_dies("bcast", from_root, |engine, count, _, world| engine.ibcast(parts(count, 1), ROOT, world));
    one_dies("scatter", from_root, |engine, count, rank, world| {
        engine.iscatter(at_root(rank, count, RANKS), parts(count, 1), ROOT, world)
    });
    one_dies("gather", to_root, |engine, count, rank, world| {
        engine.igather(parts(count, 1), at_root(rank, count, RANKS), ROOT, world)
    });
    one_dies("gatherv", to_root, |engine, count, rank, world| {
        let places = if Rank(rank) == ROOT { uneven(count) } else { vec![] };
        let room = at_root(rank, count + 1, RANKS);
        engine.igatherv(parts(length(count, rank), 1), room, &places, ROOT, world)
    });
    one_dies("scatterv", from_root, |engine, count, rank, world| {
        let places = if Rank(rank) == ROOT { uneven(count) } else { vec![] };
        let sent = at_root(rank, count + 1, RANKS);
        engine.iscatterv(sent, parts(length(count, rank), 1), &places, ROOT, world)
    });
    one_dies("reduce", to_root, |engine, count, rank, world| {
        engine.ireduce(parts(count, 1), at_root(rank, count, 1), op::Sum, ROOT, world)
    });
}

#[test]
fn where_each_rank_has_something_for_all() {
    let needed = |_: u32, _: u32| true;
    one_dies("allgather", needed, |engine, count, _, world| {
        engine.iallgather(parts(count, 1), parts(count, RANKS), world)
    });
    one_dies("allgatherv", needed, |engine, count, rank, world| {
        engine.iallgatherv(parts(length(count, rank), 1), parts(count + 1, RANKS), &uneven(count), world)
    });
    one_dies("barrier", needed, |engine, _, _, world| engine.ibarrier(world));
    one_dies("alltoall", needed, |engine, count, _, world| {
        engine.ialltoall(parts(count, RANKS), parts(count, RANKS), world)
    });
    one_dies("alltoallv", needed, |engine, count, _, world| {
        let places = consecutive(&[count; RANKS]);
        engine.ialltoallv(parts(count, RANKS), &places, parts(count, RANKS), &places, world)
    });
    one_dies("alltoallw", needed, |engine, count, rank, world| {
        let lists = |own: u32| List((0..SIZE).map(|other| parts(length(count, own + other), 1)).collect());
        engine.ialltoallw(lists(rank), lists(rank), world)
    });
}

#[test]
fn among_neighbours() {
    let beside = |victim: u32, rank: u32| [1, SIZE - 1].contains(&victim.abs_diff(rank));
    one_dies("neighbor_allgather", beside, |engine, count, _, world| {
        engine.ineighbor_allgather(parts(count, 1), parts(count, 2), world)
    });
    one_dies("neighbor_allgatherv", beside, |engine, count, _, world| {
        engine.ineighbor_allgatherv(parts(count, 1), parts(count, 2), &reversed(count), world)
    });
    one_dies("neighbor_alltoall", beside, |engine, count, _, world| {
        engine.ineighbor_alltoall(parts(count, 2), parts(count, 2), world)
    });
    one_dies("neighbor_alltoallv", beside, |engine, count, _, world| {
        engine.ineighbor_alltoallv(parts(count, 2), &reversed(count), parts(count, 2), &reversed(count), world)
    });
    one_dies("neighbor_alltoallw", beside, |engine, count, _, world| {
        let lists = || List(vec![parts(count, 1); 2]);
        engine.ineighbor_alltoallw(lists(), lists(), world)
    });
}

/// Each rank sends to the next one only, so only that one needs it.
#[test]
fn among_neighbours_of_a_graph() {
    let behind = |victim: u32, rank: u32| (victim + 1) % SIZE == rank;
    for form in ["neighbor_allgather", "neighbor_alltoall"] {
        one_dies(form, behind, |engine, count, rank, world| {
            let topology = Topology::Graph {
                sources: vec![Rank((rank + SIZE - 1) % SIZE)],
                destinations: vec![Rank((rank + 1) % SIZE)],
            };
            engine.comm_set_topology(world, topology).unwrap();
            match form {
                "neighbor_allgather" => engine.ineighbor_allgather(parts(count, 1), parts(count, 1), world),
                _ => engine.ineighbor_alltoall(parts(count, 1), parts(count, 1), world),
            }
        });
    }
}

#[test]
fn in_reductions() {
    let needed = |_: u32, _: u32| true;
    one_dies("allreduce", needed, |engine, count, _, world| {
        engine.iallreduce(parts(count, 1), parts(count, 1), op::Sum, world)
    });
    one_dies("reduce_scatter_block", needed, |engine, count, _, world| {
        engine.ireduce_scatter_block(parts(count, RANKS), parts(count, 1), op::Sum, world)
    });
    one_dies("reduce_scatter", needed, |engine, count, _, world| {
        engine.ireduce_scatter(parts(count, RANKS), parts(count, 1), &[count; RANKS], op::Sum, world)
    });
    let behind = |victim: u32, rank: u32| rank > victim;
    one_dies("scan", behind, |engine, count, _, world| engine.iscan(parts(count, 1), parts(count, 1), op::Sum, world));
    one_dies("exscan", behind, |engine, count, _, world| {
        engine.iexscan(parts(count, 1), parts(count, 1), op::Sum, world)
    });
}
