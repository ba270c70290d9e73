//! Equal calls share a graph. They must not share data, messages or memory.

use crate::kit::{BOUND, all, clusters, dup, values};
use tickwire::testing::Cluster;
use tickwire::{Limits, PostError, Rank, Test, in_place, op};

/// The same buffers are used again and again. In between, contents, operations, roots and lengths change.
#[test]
fn each_call_has_its_own_result() {
    for size in [1, 2, 3, 8] {
        for mut cluster in clusters(size) {
            let mut buffers: Vec<_> = (0..size).map(|_| (vec![0i64; 40], vec![0i64; 40])).collect();
            for round in 0..30u32 {
                let length = if round % 3 == 0 { 40 } else { 7 };
                for (rank, (send, receive)) in (0..).zip(&mut buffers) {
                    *send = values(rank + round, 40);
                    send.truncate(length);
                    receive.resize(length, -1);
                }
                let mut given = std::mem::take(&mut buffers).into_iter();
                let root = Rank(round % size);
                buffers = all(&mut cluster, |engine, _, world| {
                    let (send, receive) = given.next().unwrap();
                    match round % 4 {
                        0 => engine.iallreduce(send, receive, op::Sum, world),
                        1 => engine.iallreduce(send, receive, op::Max, world),
                        2 => engine.ireduce(send, receive, op::Sum, root, world),
                        _ => engine.iscan(send, receive, op::Min, world),
                    }
                });
                let of = |rank: u32| values(rank + round, length);
                for (rank, (_, result)) in (0..).zip(&buffers) {
                    let expected: Vec<i64> = match round % 4 {
                        1 => of(size - 1),
                        3 => of(0),
                        2 if root != Rank(rank) => continue,
                        _ => (0..length).map(|at| (0..size).map(|rank| of(rank)[at]).sum()).collect(),
                    };
                    assert!(*result == expected, "{size} ranks, round {round}, rank {rank}");
                }
            }
            cluster.tick_times(200);
            cluster.assert_at_rest();
        }
    }
}

/// Two barriers at the same time are equal calls. The second one needs its own graph.
#[test]
fn calls_in_progress_share_nothing() {
    for mut cluster in clusters(4) {
        for _ in 0..3 {
            let mut requests = Vec::new();
            for (rank, engine) in cluster.engines.iter_mut().enumerate() {
                let world = engine.comm_world();
                (0..5).for_each(|_| requests.push((rank, engine.ibarrier(world).unwrap())));
            }
            for (rank, request) in requests.into_iter().rev() {
                cluster.finish(BOUND, rank, request).unwrap();
            }
        }
        cluster.tick_times(200);
        cluster.assert_at_rest();
    }
}

/// Only a few graphs are kept. They are freed when their rows are needed, and when their communicator is freed.
#[test]
fn kept_graphs_stand_in_nobodys_way() {
    let limits = Limits { cars_max: 64, ..Limits::default() };
    let mut cluster = Cluster::loopback_with(1, |builder| builder.limits(limits.clone()));
    let mut kept = Vec::new();
    let world = cluster.engines[0].comm_world();
    for round in 0..100u32 {
        // Each call has a buffer at another address, so no two calls are equal.
        let request = cluster.engines[0].iallgather(vec![round; 3], vec![0; 3], world).unwrap();
        kept.push(cluster.finish(BOUND, 0, request).unwrap().0);
    }
    assert!((0..).zip(&kept).all(|(round, of)| of.1 == [round; 3]));
    let receives: Result<Vec<_>, _> =
        (0..64).map(|tag| cluster.engines[0].irecv(vec![0u8; 1], Rank(0), tickwire::Tag(tag), world)).collect();
    let receives = receives.expect("all rows are there");
    let full = cluster.engines[0].iallgather(vec![1u32; 3], vec![0; 3], world).unwrap_err();
    assert!(matches!(full.error, PostError::Full { .. }), "{}", full.error);
    for tag in 0..64 {
        cluster.engines[0].send(&[1u8], Rank(0), tickwire::Tag(tag), world).unwrap();
    }
    receives.into_iter().for_each(|request| drop(cluster.finish(BOUND, 0, request).unwrap()));
    cluster.assert_at_rest();
}

#[test]
fn kept_graphs_stand_in_the_way_of_no_other_thread_either() {
    let limits = Limits { cars_max: 64, ..Limits::default() };
    let mut cluster = Cluster::loopback_with(2, |builder| builder.limits(limits.clone()));
    let world = cluster.engines[0].comm_world();
    // The table has once been found to be as large as it may be.
    let mut taken = Vec::new();
    while let Ok(receive) = cluster.engines[0].irecv(vec![0u8; 1], Rank(0), tickwire::Tag(0), world) {
        taken.push(receive);
    }
    assert_eq!(taken.len(), 64);
    for receive in taken {
        cluster.engines[0].cancel(&receive).unwrap();
        let _ = cluster.finish(BOUND, 0, receive);
    }
    // Each call has a buffer at another address, so no two calls are equal.
    let kept: Vec<_> = (0..20u32)
        .map(|round| all(&mut cluster, |engine, _, world| engine.iallgather(vec![round; 3], vec![0; 6], world)))
        .collect();
    let submitter = cluster.engines[0].submitter();
    let receives: Vec<_> =
        (0..64).map(|tag| submitter.irecv(vec![0u8; 1], Rank(0), tickwire::Tag(tag), world).unwrap()).collect();
    cluster.tick_times(20);
    // Before the owner makes a call that needs a row.
    assert_eq!(cluster.engines[0].dump().operations.len(), 64);
    for tag in 0..64 {
        cluster.engines[0].send(&[1u8], Rank(0), tickwire::Tag(tag), world).unwrap();
    }
    cluster.tick_times(20);
    receives.into_iter().for_each(|receive| assert_eq!(receive.wait().unwrap().0, [1]));
    cluster.assert_at_rest();
    drop(kept);
}

#[test]
fn a_communicator_that_is_freed_takes_its_graphs_along() {
    let mut cluster = Cluster::loopback(3);
    let mut ids = Vec::new();
    for round in 0..5u32 {
        let made = dup(&mut cluster);
        for _ in 0..3 {
            let results = {
                let mut comms = made.iter();
                all(&mut cluster, |engine, rank, _| {
                    let comm = *comms.next().unwrap();
                    engine.iallreduce(in_place(), vec![rank + round], op::Sum, comm)
                })
            };
            assert!(results.iter().all(|of| of.1 == [3 + 3 * round]));
        }
        ids.push(cluster.engines[0].comm_context_id(made[0]).unwrap());
        for (engine, comm) in cluster.engines.iter_mut().zip(&made) {
            engine.comm_free(*comm).unwrap();
        }
        cluster.tick_times(20);
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "the id is free again each time: {ids:?}");
    cluster.assert_at_rest();
}

/// Persistent operations that are kept cannot be started once their communicator is freed, and do not need its id. In each round the id
/// is another communicator's, on which operations work.
#[test]
fn persistent_operations_that_are_kept_do_not_keep_the_id_of_a_communicator_that_was_freed() {
    for mut cluster in clusters(3) {
        let (mut ids, mut kept) = (Vec::new(), Vec::new());
        for round in 0..5u32 {
            let made = dup(&mut cluster);
            let mut requests = Vec::new();
            for (rank, (engine, &comm)) in (0u32..).zip(cluster.engines.iter_mut().zip(&made)) {
                let sum = engine.allreduce_init(vec![rank + round], vec![0], op::Sum, comm).unwrap();
                let never = engine.allgather_init(vec![rank], vec![0; 3], comm).unwrap();
                engine.start(&sum).unwrap();
                requests.push((comm, sum, never));
            }
            cluster.tick_until(BOUND, "all are done", |cluster| {
                let mut each = cluster.engines.iter_mut().zip(&requests);
                each.all(|(engine, (_, sum, _))| engine.test(sum).unwrap() != Test::Pending)
            });
            ids.push(cluster.engines[0].comm_context_id(made[0]).unwrap());
            for (engine, (comm, sum, never)) in cluster.engines.iter_mut().zip(&mut requests) {
                assert_eq!(engine.buffer(sum).unwrap().1, [3 + 3 * round]);
                engine.comm_free(*comm).unwrap();
                assert_eq!(engine.start(never), Err(PostError::Freed(comm.0)));
            }
            kept.push(requests);
            cluster.tick_times(20);
        }
        assert!(ids.iter().all(|id| *id == ids[0]), "the id is free again each time: {ids:?}");
        for (rank, (comm, sum, never)) in kept.into_iter().flat_map(|round| (0..).zip(round)) {
            let engine = &mut cluster.engines[rank];
            assert_eq!(engine.start(&sum), Err(PostError::Freed(comm.0)));
            engine.free(sum).unwrap();
            engine.free(never).unwrap();
        }
        cluster.tick_times(20);
        cluster.assert_at_rest();
    }
}

#[test]
fn a_persistent_graph_does_not_start_on_a_communicator_that_was_freed() {
    let mut cluster = Cluster::loopback(2);
    let made = dup(&mut cluster);
    for (engine, &comm) in cluster.engines.iter_mut().zip(&made) {
        let (mut graph, own) = engine.graph(comm).with_place(vec![1u8, 2, 3, 4]);
        graph.copy(own.part(0..2).elements(), own.part(2..4));
        let persistent = graph.persistent().unwrap();
        engine.start(&persistent).unwrap();
        engine.wait(&persistent).unwrap();
        engine.comm_free(comm).unwrap();
        assert_eq!(engine.start(&persistent), Err(PostError::Freed(comm.0)));
        let kept = engine.free(persistent).unwrap();
        assert_eq!(kept.1, [1, 2, 1, 2]);
    }
    cluster.tick_times(20);
    cluster.assert_at_rest();
}
