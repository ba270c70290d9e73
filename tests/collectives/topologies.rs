//! Topologies, and operations among neighbours.

use crate::kit::{all, clusters, in_threads, on_threads, take_all, values};
use std::time::Duration;
use tickwire::testing::Cluster;
use tickwire::{
    Cartesian, CommError, Datatype, Engine, Error, Limits, List, Packed, PostError, ProcId, Rank, Source, Tag,
    Topology, TopologyError, in_place, op,
};

/// Gives every engine's world a topology.
fn set(cluster: &mut Cluster, topology: impl Fn(u32) -> Topology) {
    for (rank, engine) in (0..).zip(&mut cluster.engines) {
        let world = engine.comm_world();
        engine.comm_set_topology(world, topology(rank)).unwrap();
    }
}

/// What a rank sends in a direction of a grid.
fn sent(rank: u32, direction: usize, count: usize) -> Vec<i64> {
    values(rank * 10 + direction as u32, count)
}

/// A pending operation keeps the topology that it was started with. An equal call after it uses the new topology.
#[test]
fn a_topology_that_changes_under_an_operation_is_that_of_the_next_one() {
    for mut cluster in clusters(3) {
        let ring = |step: u32| {
            move |rank: u32| Topology::Graph {
                sources: vec![Rank((rank + 3 - step) % 3)],
                destinations: vec![Rank((rank + step) % 3)],
            }
        };
        set(&mut cluster, ring(1));
        let mut requests = Vec::new();
        for (rank, engine) in (0..).zip(&mut cluster.engines) {
            let world = engine.comm_world();
            requests.push(engine.ineighbor_alltoall(vec![rank; 500], vec![9; 500], world).unwrap());
        }
        set(&mut cluster, ring(2));
        let mut buffers = take_all(&mut cluster, requests);
        for (rank, (_, received)) in (0u32..).zip(&buffers) {
            assert_eq!(*received, [(rank + 2) % 3; 500]);
        }
        // The same buffers at the same addresses, so that the calls are equal.
        let mut given = std::mem::take(&mut buffers).into_iter();
        let buffers = all(&mut cluster, |engine, _, world| {
            let (send, receive) = given.next().unwrap();
            engine.ineighbor_alltoall(send, receive, world)
        });
        for (rank, (_, received)) in (0u32..).zip(&buffers) {
            assert_eq!(*received, [(rank + 1) % 3; 500]);
        }
        cluster.tick_times(200);
        cluster.assert_at_rest();
    }
}

/// Elements of four or eight bytes that a datatype packs.
fn packed(of: Vec<u32>, words: usize) -> Packed<Vec<u32>> {
    let element = Datatype::contiguous(words, &Datatype::of::<u32>()).unwrap();
    let count = of.len() / words;
    Packed::new(of, &element, count).unwrap()
}

#[test]
fn packed_elements_go_to_neighbours_whole_and_have_one_length() {
    let grid = Cartesian::new(&[(3, true)]);
    for mut cluster in clusters(3) {
        set(&mut cluster, |_| Topology::Cartesian(grid.clone()));
        let numbers = |rank: u32| (0..12).map(|at| rank * 100 + at).collect::<Vec<u32>>();
        // Each rank sends three elements of two words to each of two neighbours.
        let results = all(&mut cluster, |engine, rank, world| {
            engine.ineighbor_alltoall(packed(numbers(rank), 2), packed(vec![0; 12], 2), world)
        });
        for (rank, (_, mut received)) in (0..).zip(results) {
            let (before, behind) = (numbers((rank + 2) % 3), numbers((rank + 1) % 3));
            assert_eq!(*received.unpack(), [&before[6..], &behind[..6]].concat(), "rank {rank}");
        }
        let engine = &mut cluster.engines[0];
        let world = engine.comm_world();
        let refused = engine.ineighbor_alltoall(packed(vec![0; 12], 1), packed(vec![0; 24], 2), world).unwrap_err();
        assert!(matches!(refused.error, PostError::Elements { given: 8, needed: 4, .. }), "{}", refused.error);
        let refused = engine.iallgather(packed(vec![0; 4], 1), packed(vec![0; 24], 2), world).unwrap_err();
        assert!(matches!(refused.error, PostError::Elements { given: 8, needed: 4, .. }), "{}", refused.error);
        // Rank 0 sends three elements to each of the others. An empty buffer may have elements of any length.
        let results = all(&mut cluster, |engine, rank, world| {
            let nothing = vec![0..0; 3];
            match rank {
                0 => {
                    let send = packed(numbers(0), 2);
                    engine.ialltoallv(send, &[0..0, 0..3, 3..6], packed(Vec::new(), 1), &nothing, world)
                }
                _ => {
                    let receive = packed(vec![0; 6], 2);
                    engine.ialltoallv(packed(Vec::new(), 1), &nothing, receive, &[0..3, 0..0, 0..0], world)
                }
            }
        });
        for (rank, (_, mut received)) in results.into_iter().enumerate().skip(1) {
            assert_eq!(*received.unpack(), numbers(0)[6 * (rank - 1)..][..6], "rank {rank}");
        }
        cluster.tick_times(200);
        cluster.assert_at_rest();
    }
}

/// What arrives from a direction is what the rank there has sent in the opposite direction. This also holds if both
/// neighbours are the same rank, or the own rank. At the end of a grid the buffer does not change.
#[test]
fn neighbours_of_a_grid_exchange_by_direction() {
    let grids: [&[(u32, bool)]; 5] =
        [&[(1, true)], &[(2, true)], &[(2, true), (2, false)], &[(5, false)], &[(1, true), (3, true)]];
    for dimensions in grids {
        let grid = Cartesian::new(dimensions);
        let ways = 2 * dimensions.len();
        for mut cluster in clusters(grid.points() as u32) {
            set(&mut cluster, |_| Topology::Cartesian(grid.clone()));
            for count in [1usize, 400] {
                let expected = |rank: u32| -> Vec<i64> {
                    let from = |direction: usize| {
                        let (before, behind) = grid.shift(Rank(rank), direction / 2, 1).unwrap();
                        let other = if direction.is_multiple_of(2) { before } else { behind };
                        if other == Rank::NULL { vec![-1; count] } else { sent(other.0, direction ^ 1, count) }
                    };
                    (0..ways).flat_map(from).collect()
                };
                let buffer = |rank: u32| (0..ways).flat_map(|way| sent(rank, way, count)).collect::<Vec<_>>();
                let results = all(&mut cluster, |engine, rank, world| {
                    engine.ineighbor_alltoall(buffer(rank), vec![-1i64; ways * count], world)
                });
                assert!((0..).zip(&results).all(|(rank, of)| of.1 == expected(rank)), "{dimensions:?}, {count}");
                let places: Vec<_> = (0..ways).map(|way| way * count..(way + 1) * count).collect();
                let results = all(&mut cluster, |engine, rank, world| {
                    engine.ineighbor_alltoallv(buffer(rank), &places, vec![-1i64; ways * count], &places, world)
                });
                assert!((0..).zip(&results).all(|(rank, of)| of.1 == expected(rank)), "{dimensions:?}, {count}");
                let results = all(&mut cluster, |engine, rank, world| {
                    let send = (0..ways).map(|way| sent(rank, way, count)).collect();
                    engine.ineighbor_alltoallw(List(send), List(vec![vec![-1i64; count]; ways]), world)
                });
                assert!((0..).zip(&results).all(|(rank, of)| of.1.0.concat() == expected(rank)));
            }
            cluster.tick_times(200);
            cluster.assert_at_rest();
        }
    }
}

/// A star. Its middle, rank 0, sends to rank 1 over two edges, and to ranks 2 and 3 over one edge each. Rank 3 also
/// sends to the middle.
#[test]
fn neighbours_of_a_graph_exchange_in_their_order() {
    let size = 4;
    for mut cluster in clusters(size) {
        set(&mut cluster, |rank| match rank {
            0 => Topology::Graph { sources: vec![Rank(3)], destinations: [1, 1, 2, 3].map(Rank).to_vec() },
            1 => Topology::Graph { sources: vec![Rank(0), Rank(0)], destinations: vec![] },
            2 => Topology::Graph { sources: vec![Rank(0)], destinations: vec![] },
            _ => Topology::Graph { sources: vec![Rank(0)], destinations: vec![Rank(0)] },
        });
        let degree = |rank: u32| [1, 2, 1, 1][rank as usize];
        let results = all(&mut cluster, |engine, rank, world| {
            engine.ineighbor_allgather(values(rank, 3), vec![0i64; 3 * degree(rank)], world)
        });
        let middle = values(0, 3);
        assert_eq!(results[0].1, values(3, 3));
        assert_eq!(results[1].1, [middle.clone(), middle.clone()].concat());
        assert!(results[2].1 == middle && results[3].1 == middle);
        // The same exchange, with the places in reverse order and a gap between them.
        let results = all(&mut cluster, |engine, rank, world| {
            let places = [4..7, 0..3];
            engine.ineighbor_allgatherv(values(rank, 3), vec![-1i64; 8], &places[..degree(rank)], world)
        });
        assert_eq!(results[0].1, [&[-1; 4], &values(3, 3)[..], &[-1]].concat());
        assert_eq!(results[1].1, [&middle[..], &[-1], &middle[..], &[-1]].concat());
        for rank in [2, 3] {
            assert_eq!(results[rank].1, [&[-1; 4], &middle[..], &[-1]].concat(), "rank {rank}");
        }
        let results = all(&mut cluster, |engine, rank, world| {
            let send: Vec<u32> = if rank == 0 { vec![10, 11, 12, 13] } else { vec![rank; usize::from(rank == 3)] };
            engine.ineighbor_alltoall(send, vec![0u32; degree(rank)], world)
        });
        assert_eq!(
            results.iter().map(|of| of.1.clone()).collect::<Vec<_>>(),
            [vec![3], vec![10, 11], vec![12], vec![13]]
        );
        cluster.tick_times(200);
        cluster.assert_at_rest();
    }
}

/// A rank without neighbours counts the operation too, so that its later operations match those of the others.
#[test]
fn a_rank_without_neighbours_keeps_step() {
    let size = 3;
    for mut cluster in clusters(size) {
        set(&mut cluster, |rank| {
            let other: Vec<Rank> = if rank < 2 { vec![Rank(1 - rank)] } else { vec![] };
            Topology::Graph { sources: other.clone(), destinations: other }
        });
        for round in 0..3 {
            let results = all(&mut cluster, |engine, rank, world| {
                engine.ineighbor_allgather(values(rank, 3), vec![0i64; if rank < 2 { 3 } else { 0 }], world)
            });
            assert!(results[0].1 == values(1, 3) && results[1].1 == values(0, 3) && results[2].1.is_empty());
            let results =
                all(&mut cluster, |engine, rank, world| engine.iallreduce(vec![rank + round], vec![0], op::Sum, world));
            assert!(results.iter().all(|of| of.1 == [3 + 3 * round]));
        }
        cluster.tick_times(200);
        cluster.assert_at_rest();
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let mut cluster = Cluster::loopback(2);
    let engine = &mut cluster.engines[0];
    let world = engine.comm_world();
    let error = engine.ineighbor_allgather(vec![1u8], vec![0u8], world).unwrap_err().error;
    assert_eq!(error, PostError::NoTopology);
    let grid = Topology::Cartesian(Cartesian::new(&[(3, false)]));
    let error = engine.comm_set_topology(world, grid).unwrap_err();
    assert_eq!(error, CommError::Topology(TopologyError::Points { points: 3, ranks: 2 }));
    engine.comm_set_topology(world, Topology::Cartesian(Cartesian::new(&[(2, false)]))).unwrap();
    let rejected = engine.ineighbor_alltoall(vec![1u8; 3], vec![0u8; 2], world).unwrap_err();
    assert_eq!(rejected.error, PostError::Elements { what: "send buffer", given: 3, needed: 2 });
    let rejected = engine.ineighbor_alltoall(in_place::<u8>(), vec![0u8; 2], world).unwrap_err();
    assert_eq!(rejected.error, PostError::InPlace { who: "no member" });
    let graph = Topology::Graph { sources: vec![Rank(0)], destinations: vec![Rank(1)] };
    let error = engine.comm_set_topology(world, graph).unwrap_err();
    assert_eq!(error, CommError::Topology(TopologyError::Own { sources: 1, destinations: 0 }));
    assert!(engine.comm_topology(engine.comm_self()).is_none());
    cluster.assert_at_rest();
}

/// The calls that make communicators. Each engine is in its own thread.
#[test]
fn communicators_are_made_with_their_topologies() {
    let size = 7;
    in_threads(size, |engine, rank, world| {
        let grid = Cartesian::new(&[(2, false), (3, true)]);
        let made = engine.cart_create(world, &grid).unwrap();
        assert_eq!(made.is_some(), rank < 6, "the grid has six points");
        if let Some(plane) = made {
            let rows = engine.cart_sub(plane, &[false, true]).unwrap();
            assert_eq!(engine.comm_size(rows), Ok(3));
            let mut sum = [rank];
            engine.allreduce(in_place(), &mut sum, op::Sum, rows).unwrap();
            assert_eq!(sum, [if rank < 3 { 3 } else { 12 }]);
            let mut around = [0; 2];
            engine.neighbor_allgather(&[rank], &mut around, rows).unwrap();
            let row = rank / 3 * 3;
            assert_eq!(around, [row + (rank + 2) % 3, row + (rank + 1) % 3]);
            engine.comm_free(rows).unwrap();
            engine.comm_free(plane).unwrap();
            assert!(engine.comm_topology(plane).is_none());
        }
        // Each rank names the edge of the rank before it. Together these edges are a ring.
        let (from, to) = (Rank((rank + 1) % size), Rank((rank + 2) % size));
        // The application's promise to use no wildcards must not affect the engine's own receives.
        let plain = engine.comm_dup(world).unwrap();
        engine.comm_set_no_wildcard(plain, true).unwrap();
        let ring = engine.graph_create(plain, &[(from, to)]).unwrap();
        let any = engine.irecv(vec![0u8; 1], Source::Any, Tag(1), ring).unwrap_err();
        assert!(matches!(any.error, PostError::Wildcard(_)), "the promise is handed on: {}", any.error);
        let mut before = [0];
        engine.neighbor_alltoall(&[rank], &mut before, ring).unwrap();
        assert_eq!(before, [(rank + size - 1) % size]);
        let own = [Rank((rank + 1) % size)];
        let back = engine.graph_create_adjacent(world, &own, &[Rank((rank + size - 1) % size)]).unwrap();
        let mut behind = [0];
        engine.neighbor_alltoall(&[rank], &mut behind, back).unwrap();
        assert_eq!(behind, [(rank + 1) % size]);
        assert!(engine.cart_create(world, &Cartesian::new(&[(8, true)])).is_err());
        assert!(engine.graph_create(world, &[(Rank(0), Rank(7))]).is_err());
    });
}

/// Rank 0 has too few rows for the edges that it names. The others are told, and nobody waits for its notices.
#[test]
fn a_rank_without_rows_for_its_edges_fails_the_call_on_all_ranks() {
    for size in [2, 3, 9] {
        on_threads(size, |rank, bootstrap| {
            let cars_max = if rank == 0 { 128 } else { Limits::default().cars_max };
            let limits = Limits { cars_max, ..Limits::default() };
            let mut engine = Engine::builder().limits(limits).build(bootstrap).unwrap();
            let world = engine.comm_world();
            let ring = [(Rank(rank), Rank((rank + 1) % size))];
            for named in [64, 1000] {
                let many = vec![ring[0]; named];
                let error = engine.graph_create(world, if rank == 0 { &many } else { &ring }).unwrap_err();
                match (rank, error) {
                    (0, Error::Post(PostError::Full { rows: 128, .. })) => {}
                    (1.., Error::Comm(CommError::Refused { proc: ProcId(0), .. })) => {}
                    (_, error) => panic!("rank {rank} of {size}: {error:?}"),
                }
                engine.barrier(world).unwrap();
            }
            // The rows that were taken are free again.
            let made = engine.graph_create(world, &vec![ring[0]; 40]).unwrap();
            let mut before = [0; 40];
            engine.neighbor_alltoall(&[rank; 40], &mut before, made).unwrap();
            assert_eq!(before, [(rank + size - 1) % size; 40]);
            engine.comm_free(made).unwrap();
            engine.finalize(Duration::from_secs(20)).unwrap();
        });
    }
}
