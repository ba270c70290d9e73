//! Persistent operations: they are started many times, with the buffers that they were made with.

use crate::kit::{BOUND, SIZES, clusters, in_threads, on_threads, value, values};
use std::time::{Duration, Instant};
use tickwire::internals::components::NIL;
use tickwire::internals::systems::procs::boards::Boards;
use tickwire::internals::transports::sim::Death;
use tickwire::testing::{Cluster, SimConfig, SimNet, rows};
use tickwire::{Engine, Limits, Persistent, PostError, Rank, RequestError, RequestId, Tag, Test, op};

/// Makes a sum of one buffer into another on every engine.
fn sums(cluster: &mut Cluster, count: usize) -> Vec<Persistent<(Vec<i64>, Vec<i64>)>> {
    let make = |engine: &mut tickwire::Engine| {
        let world = engine.comm_world();
        engine.allreduce_init(vec![0i64; count], vec![0i64; count], op::Sum, world).unwrap()
    };
    cluster.engines.iter_mut().map(make).collect()
}

/// Ticks until all these operations are done.
fn wait<B: tickwire::Pieces>(cluster: &mut Cluster, persistents: &[Persistent<B>]) {
    for _ in 0..BOUND {
        let mut pending = false;
        for (engine, persistent) in cluster.engines.iter_mut().zip(persistents) {
            pending |= engine.test(persistent).unwrap() == Test::Pending;
        }
        if !pending {
            return;
        }
        cluster.tick_all();
    }
    panic!("not done\n{}", cluster.report());
}

#[test]
fn they_give_what_is_in_their_buffers_at_each_start() {
    for size in SIZES {
        for mut cluster in clusters(size) {
            for count in [1usize, 3000] {
                let mut persistents = sums(&mut cluster, count);
                for round in 0..5u32 {
                    for (rank, (engine, persistent)) in (0..).zip(cluster.engines.iter_mut().zip(&mut persistents)) {
                        engine.buffer(persistent).unwrap().0.copy_from_slice(&values(rank * 10 + round, count));
                        engine.start(persistent).unwrap();
                        // With only one rank, the operation is done when it starts.
                        if size > 1 {
                            assert_eq!(engine.start(persistent).unwrap_err(), PostError::Active);
                        }
                        // Other operations begin and end between the starts.
                        let world = engine.comm_world();
                        drop(engine.ibarrier(world).unwrap());
                    }
                    wait(&mut cluster, &persistents);
                    let expected: Vec<i64> =
                        (0..count).map(|at| (0..size).map(|rank| value(rank * 10 + round, at)).sum()).collect();
                    for (engine, persistent) in cluster.engines.iter_mut().zip(&mut persistents) {
                        assert!(engine.buffer(persistent).unwrap().1 == expected, "{size} ranks, round {round}");
                    }
                }
                for (rank, (engine, persistent)) in (0..).zip(cluster.engines.iter_mut().zip(persistents)) {
                    match rank % 2 {
                        0 => drop(engine.free(persistent).unwrap()),
                        _ => drop(persistent),
                    }
                }
            }
            cluster.tick_times(300);
            cluster.assert_at_rest();
        }
    }
}

/// Two persistent operations and other operations run at once. A third one is dropped while it runs. It must be freed
/// when it is done.
#[test]
fn several_run_at_once_and_one_that_is_dropped_ends_by_itself() {
    let size = 4;
    for mut cluster in clusters(size) {
        let first = sums(&mut cluster, 100);
        let second = sums(&mut cluster, 2);
        let mut others = Vec::new();
        for (rank, engine) in (0..).zip(&mut cluster.engines) {
            let world = engine.comm_world();
            engine.start(&first[rank as usize]).unwrap();
            others.push(engine.iallreduce(vec![rank], vec![0], op::Max, world).unwrap());
            engine.start(&second[rank as usize]).unwrap();
        }
        drop(first);
        wait(&mut cluster, &second);
        for (rank, request) in others.into_iter().enumerate() {
            assert_eq!(cluster.finish(BOUND, rank, request).unwrap().0.1, [size - 1]);
        }
        drop(second);
        cluster.tick_times(300);
        cluster.assert_at_rest();
    }
}

#[test]
fn a_buffer_that_has_moved_is_an_error_and_nothing_is_started() {
    let mut cluster = Cluster::loopback(2);
    let mut persistents = sums(&mut cluster, 4);
    let engine = &mut cluster.engines[0];
    let before = std::mem::replace(&mut engine.buffer(&mut persistents[0]).unwrap().0, vec![1; 4]);
    assert_eq!(engine.start(&persistents[0]).unwrap_err(), PostError::Moved);
    engine.buffer(&mut persistents[0]).unwrap().0 = before;
    // The first buffer is kept, so that the longer one is surely elsewhere.
    let whole = std::mem::replace(&mut engine.buffer(&mut persistents[0]).unwrap().1, vec![0; 5]);
    assert_eq!(engine.start(&persistents[0]).unwrap_err(), PostError::Moved);
    let _ = engine.buffer(&mut persistents[0]).unwrap().1.pop();
    assert_eq!(engine.start(&persistents[0]).unwrap_err(), PostError::Moved, "it has the length, but is elsewhere");
    engine.buffer(&mut persistents[0]).unwrap().1 = whole;
    let _ = engine.buffer(&mut persistents[0]).unwrap().1.pop();
    assert_eq!(engine.start(&persistents[0]).unwrap_err(), PostError::Moved, "it is there, but shorter");
    drop(persistents);
    cluster.tick_times(50);
    cluster.assert_at_rest();
}

/// An operation that has failed cannot be started again, but it can be freed.
#[test]
fn one_that_has_failed_says_so() {
    let size = 4;
    for seed in 0..6 {
        let net = SimNet::new(size, SimConfig::calm(seed));
        let mut cluster = Cluster::sim(size, &net);
        let mut persistents = sums(&mut cluster, if seed % 2 == 0 { 1 } else { 3000 });
        for (engine, persistent) in cluster.engines.iter_mut().zip(&persistents) {
            engine.start(persistent).unwrap();
        }
        wait(&mut cluster, &persistents);
        let victim = seed as u32 % size;
        for (engine, persistent) in cluster.engines.iter_mut().zip(&persistents) {
            if engine.rank() != Rank(victim) {
                engine.start(persistent).unwrap();
            }
        }
        net.kill(victim, Death::At(cluster.now_ns));
        for rank in (0..size as usize).filter(|&rank| rank as u32 != victim) {
            let mut ended = None;
            for _ in 0..BOUND {
                match cluster.engines[rank].test(&persistents[rank]) {
                    Ok(Test::Pending) => {
                        cluster.tick_all();
                    }
                    other => {
                        ended = Some(other);
                        break;
                    }
                }
            }
            let error = ended.unwrap().unwrap_err();
            assert!(matches!(error, RequestError::PeerFailed { .. } | RequestError::Abandoned(_)), "{error}");
            assert_eq!(cluster.engines[rank].start(&persistents[rank]).unwrap_err(), PostError::HasFailed);
        }
        let others: Vec<usize> = (0..size as usize).filter(|&rank| rank as u32 != victim).collect();
        for (rank, persistent) in persistents.drain(..).enumerate() {
            if others.contains(&rank) {
                cluster.engines[rank].free(persistent).unwrap();
            } else {
                std::mem::forget(persistent);
            }
        }
        let world = cluster.engines[others[0]].comm_world();
        let send = cluster.engines[others[0]].isend(vec![7u8; 9], Rank(others[1] as u32), Tag(1), world).unwrap();
        let receive = cluster.engines[others[1]].irecv(vec![0u8; 9], Rank(others[0] as u32), Tag(1), world).unwrap();
        assert_eq!(cluster.finish(BOUND, others[1], receive).unwrap().0, [7; 9]);
        cluster.finish(BOUND, others[0], send).unwrap();
    }
}

/// For each persistent operation of an engine, whether it has a graph.
fn have_graphs(engine: &Engine) -> Vec<bool> {
    let mut query = engine.world().try_query::<&Boards>().unwrap();
    let boards = query.single(engine.world()).unwrap();
    boards.persistent.iter().flatten().map(|kept| kept.graph != NIL).collect()
}

/// Ticks until there are as many persistent operations as `expected` has entries, with graphs where `expected` says so.
/// By then, operations whose handle was dropped are removed.
#[track_caller]
fn until_these_have_graphs(engine: &mut Engine, expected: &[bool]) {
    let is_so = |_| {
        engine.tick();
        have_graphs(engine) == expected
    };
    assert!((0..1_000_000).any(is_so), "{:?} instead of {expected:?}", have_graphs(engine));
}

/// A blocking operation opens boards. Persistent operations that were made before run by messages until then. From
/// their next start on, they run on boards.
#[test]
fn persistent_operations_that_were_made_before_boards_run_on_them_as_soon_as_there_are_some() {
    for (size, count) in [(2, 1), (2, 2_000), (2, 300_001), (3, 5), (5, 2_000)] {
        in_threads(size, |engine, rank, world| {
            let mut sum = engine.allreduce_init(vec![0; count], vec![0; count], op::Sum, world).unwrap();
            let mut late = engine.allgather_init(vec![rank; count], vec![0; count * size as usize], world).unwrap();
            let [by_messages, on_boards] =
                [(); 2].map(|()| engine.allreduce_init(vec![rank], vec![0], op::Sum, world).unwrap());
            engine.start(&by_messages).unwrap();
            drop(by_messages);
            for start in 0..4 {
                if start == 2 {
                    // There were four operations, and one of them was dropped.
                    until_these_have_graphs(engine, &[true; 3]);
                    engine.barrier(world).unwrap();
                }
                engine.buffer(&mut sum).unwrap().0.copy_from_slice(&values(rank + start, count));
                engine.start(&sum).unwrap();
                engine.wait(&sum).unwrap();
                let operands: Vec<Vec<i64>> = (0..size).map(|rank| values(rank + start, count)).collect();
                let expected: Vec<i64> = (0..count).map(|at| operands.iter().map(|of| of[at]).sum()).collect();
                assert!(engine.buffer(&mut sum).unwrap().1 == expected, "sum");
            }
            assert_eq!(have_graphs(engine), [false, true, true]);
            engine.start(&late).unwrap();
            engine.wait(&late).unwrap();
            let expected: Vec<u32> = (0..size).flat_map(|rank| vec![rank; count]).collect();
            assert!(engine.buffer(&mut late).unwrap().1 == expected, "allgather");
            if rank == 0 {
                // Rank 0 drops its handle and notices this before the other ranks start the operation.
                engine.start(&on_boards).unwrap();
                drop(on_boards);
                let end = Instant::now() + Duration::from_millis(20);
                while Instant::now() < end {
                    engine.tick();
                }
                (1..size).for_each(|to| engine.send(b"", Rank(to), Tag(1), world).unwrap());
            } else {
                engine.recv(&mut [0u8; 0], Rank(0), Tag(1), world).unwrap();
                engine.start(&on_boards).unwrap();
                drop(on_boards);
            }
            engine.barrier(world).unwrap();
            until_these_have_graphs(engine, &[false; 2]);
            drop((sum, late));
            until_these_have_graphs(engine, &[]);
        });
    }
}

/// A persistent operation ends in Complete, and its token is dropped before that.
#[test]
fn nothing_is_left_of_one_whose_token_is_dropped_while_it_is_active() {
    on_threads(2, |_, bootstrap| {
        let limits = Limits { deliver: false, ..Limits::default() };
        let mut engine = Engine::builder().limits(limits).build(bootstrap).unwrap();
        let world = engine.comm_world();
        engine.barrier(world).unwrap();
        for round in 0..20 {
            let sum = engine.allreduce_init(vec![round], vec![0i64], op::Sum, world).unwrap();
            engine.start(&sum).unwrap();
            drop(sum);
            let next = engine.iallreduce(vec![1i64], vec![0i64], op::Sum, world).unwrap();
            assert_eq!(engine.wait_take(next).unwrap().0.1, [2]);
        }
        assert_eq!(rows(&mut engine).boards.persistent.iter().flatten().count(), 0);
        engine.finalize(Duration::from_secs(20)).unwrap();
    });
}

/// A member leaves before boards are opened. Its last operation went by messages.
#[test]
fn one_that_was_made_before_boards_fails_if_a_member_has_gone_before_they_were_opened() {
    on_threads(3, |rank, bootstrap| {
        let mut engine = Engine::builder().build(bootstrap).unwrap();
        let world = engine.comm_world();
        let sum = engine.allreduce_init(vec![1i64; 4], vec![0; 4], op::Sum, world).unwrap();
        engine.start(&sum).unwrap();
        engine.wait(&sum).unwrap();
        if rank != 2 {
            engine.barrier(world).unwrap_err();
            for _ in 0..3 {
                let started = engine.start(&sum);
                assert!(started.is_err() || engine.wait(&sum).is_err());
            }
            let peer = Rank(1 - rank);
            let receive = engine.irecv(vec![0u32; 1], peer, Tag(1), world).unwrap();
            engine.send(&[rank], peer, Tag(1), world).unwrap();
            assert_eq!(engine.wait_take(receive).unwrap().0, [1 - rank]);
        }
        let _ = engine.finalize(Duration::from_secs(20));
    });
}

/// Operations on boards are in progress while a rank waits for a request that no row of this engine has.
#[test]
fn waiting_for_what_is_no_request_of_this_engine_is_an_error_while_boards_are_busy() {
    in_threads(2, |engine, rank, world| {
        engine.barrier(world).unwrap();
        let stranger = RequestId { row: 1 << 30, generation: 1 };
        if rank == 0 {
            let sum = engine.iallreduce(vec![1i64], vec![0], op::Sum, world).unwrap();
            assert_eq!(engine.wait(&stranger), Err(RequestError::Stale));
            engine.send(b"", Rank(1), Tag(1), world).unwrap();
            assert_eq!(engine.wait_take(sum).unwrap().0.1, [2]);
        } else {
            engine.recv(&mut [0u8; 0], Rank(0), Tag(1), world).unwrap();
            let sum = engine.iallreduce(vec![1i64], vec![0], op::Sum, world).unwrap();
            assert_eq!(engine.wait_take(sum).unwrap().0.1, [2]);
        }
    });
}
