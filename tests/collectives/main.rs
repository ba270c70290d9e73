//! Collective operations: clusters of engines in one process, over every transport that a cluster has. Results are
//! compared with serial models. Some members die, and some calls are wrong.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    clippy::result_large_err,
    reason = "a test fails by panic, and results have the same bits"
)]

mod boards;
mod cells;
mod deaths;
mod elements;
mod forms;
mod growth;
mod hosts;
mod kept;
mod kit;
mod lengths;
mod misuse;
mod neighbours;
mod overlap;
mod persistent;
mod random;
mod storms;
mod sums;
mod topologies;

use kit::{BOUND, SIZES, all, clusters, sum, values};
use std::time::Duration;
use tickwire::internals::transports::sim::Death;
use tickwire::testing::{Board, Cluster, SimConfig, SimNet};
use tickwire::{Comm, Engine, Indexed, PostError, Rank, RequestError, Tag, in_place, op};

#[test]
fn every_operation_gives_what_a_serial_program_would() {
    for size in SIZES {
        for (number, mut cluster) in clusters(size).into_iter().enumerate() {
            // The operands are long over loopback, with and without Deliver.
            let counts = if number == 0 || number == 6 { &[0, 1, 5000][..] } else { &[0, 7, 300] };
            counts.iter().for_each(|&count| every_operation(&mut cluster, size, count));
            cluster.tick_times(200);
            cluster.assert_at_rest();
        }
    }
}

fn every_operation(cluster: &mut Cluster, size: u32, count: usize) {
    let (ranks, root, last) = (size as usize, size / 2, size - 1);
    let joined: Vec<i64> = (0..size).flat_map(|rank| values(rank, count)).collect();
    all(cluster, |engine, _, world| engine.ibarrier(world));
    let results = all(cluster, |engine, rank, world| {
        let buffer = if rank == root { values(root, count) } else { vec![0; count] };
        engine.ibcast(buffer, Rank(root), world)
    });
    assert!(results.iter().all(|of| *of == values(root, count)), "bcast of {count} to {size}");
    // The operand is dealt out in blocks, and is no multiple of them.
    let long = if size >= 8 && count == 1 { 20_003 } else { 0 };
    let results = all(cluster, |engine, rank, world| {
        let buffer = if rank == root { values(root, long) } else { vec![0; long] };
        engine.ibcast(buffer, Rank(root), world)
    });
    assert!(results.iter().all(|of| *of == values(root, long)), "bcast of {long} to {size}");
    let results = all(cluster, |engine, rank, world| {
        let room = if rank == last { joined.len() } else { 0 };
        engine.igather(values(rank, count), vec![0i64; room], Rank(last), world)
    });
    assert!(results[last as usize].1 == joined, "gather of {count} to {size}");
    let results = all(cluster, |engine, rank, world| {
        let send = if rank == root { joined.clone() } else { vec![] };
        engine.iscatter(send, vec![0i64; count], Rank(root), world)
    });
    assert!((0..).zip(&results).all(|(rank, of)| of.1 == values(rank, count)), "scatter of {count} to {size}");
    let results =
        all(cluster, |engine, rank, world| engine.iallgather(values(rank, count), vec![0i64; ranks * count], world));
    assert!(results.iter().all(|of| of.1 == joined), "allgather of {count} to {size}");
    let results = all(cluster, |engine, rank, world| {
        let send = (0..size).flat_map(|to| values(rank * 100 + to, count)).collect::<Vec<_>>();
        engine.ialltoall(send, vec![0i64; ranks * count], world)
    });
    for (rank, (_, received)) in (0..).zip(&results) {
        let expected: Vec<_> = (0..size).flat_map(|from| values(from * 100 + rank, count)).collect();
        assert!(*received == expected, "alltoall of {count} to {size}");
    }
    let results = all(cluster, |engine, rank, world| {
        let room = if rank == root { count } else { 0 };
        engine.ireduce(values(rank, count), vec![0i64; room], op::Sum, Rank(root), world)
    });
    assert!(results[root as usize].1 == sum(0..size, count), "reduce of {count} to {size}");
    let results =
        all(cluster, |engine, rank, world| engine.iallreduce(values(rank, count), vec![0i64; count], op::Sum, world));
    assert!(results.iter().all(|of| of.1 == sum(0..size, count)), "allreduce of {count} to {size}");
    let results =
        all(cluster, |engine, rank, world| engine.iallreduce(in_place(), values(rank, count), op::Max, world));
    assert!(results.iter().all(|of| of.1 == values(last, count)), "allreduce in place of {count} to {size}");
    let results = all(cluster, |engine, rank, world| {
        engine.ireduce_scatter_block(values(rank, ranks * count), vec![0i64; count], op::Sum, world)
    });
    let sums = sum(0..size, ranks * count);
    assert!(results.iter().flat_map(|of| &of.1).eq(&sums), "reduce_scatter_block of {count} to {size}");
    let results =
        all(cluster, |engine, rank, world| engine.iscan(values(rank, count), vec![0i64; count], op::Sum, world));
    assert!((1..).zip(&results).all(|(end, of)| of.1 == sum(0..end, count)), "scan of {count} to {size}");
    let results =
        all(cluster, |engine, rank, world| engine.iexscan(values(rank, count), vec![0i64; count], op::Sum, world));
    assert!((0..).zip(&results).all(|(end, of)| of.1 == sum(0..end, count)), "exscan of {count} to {size}");
}

/// Any number of operations may be in progress at once, also on two communicators in a different order on each rank.
#[test]
fn operations_in_progress_do_not_meet_each_other() {
    let size = 5;
    for mut cluster in clusters(size) {
        let mut first = Vec::new();
        let mut second = Vec::new();
        for (rank, engine) in (0..).zip(&mut cluster.engines) {
            let (world, own) = (engine.comm_world(), engine.comm_self());
            let mut of_own = |engine: &mut Engine| {
                second.push(engine.iallreduce([rank].to_vec(), vec![0u32], op::Sum, own).unwrap());
            };
            if rank % 2 == 0 {
                of_own(engine);
            }
            first.push(
                (0..40u32)
                    .map(|n| engine.iallreduce(vec![rank + n], vec![0], op::Sum, world).unwrap())
                    .collect::<Vec<_>>(),
            );
            if rank % 2 == 1 {
                of_own(engine);
            }
        }
        // The youngest request is waited for first.
        for (rank, requests) in first.into_iter().enumerate() {
            for (n, request) in requests.into_iter().enumerate().rev() {
                assert_eq!(cluster.finish(BOUND, rank, request).unwrap().0.1, [10 + 5 * n as u32]);
            }
        }
        for (rank, request) in second.into_iter().enumerate() {
            assert_eq!(cluster.finish(BOUND, rank, request).unwrap().0.1, [rank as u32]);
        }
        cluster.tick_times(200);
        cluster.assert_at_rest();
    }
}

#[test]
fn functions_of_the_application_keep_the_order_of_ranks() {
    // Products of matrices do not commute.
    let product = |a: [i64; 4], b: [i64; 4]| {
        [a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]]
    };
    let matrix = |rank: u32| [1, i64::from(rank), 1 - i64::from(rank % 3), 1];
    for size in SIZES {
        let expected = (0..size).map(matrix).reduce(product).unwrap();
        for mut cluster in clusters(size) {
            let results = all(&mut cluster, |engine, rank, world| {
                engine.iallreduce(vec![matrix(rank)], vec![[0i64; 4]], product, world)
            });
            assert!(results.iter().all(|of| of.1 == [expected]), "{size} ranks");
            let results = all(&mut cluster, |engine, rank, world| {
                let at = Indexed { value: f64::from(rank % 3), index: u64::from(rank) };
                engine.iallreduce(in_place(), vec![at], op::MaxLoc, world)
            });
            let greatest = (size - 1).min(2);
            let expected = Indexed { value: f64::from(greatest), index: u64::from(greatest) };
            assert!(results.iter().all(|of| of.1 == [expected]));
        }
    }
}

#[test]
fn wrong_arguments_are_errors_and_the_communicator_stays_as_it_was() {
    let mut cluster = Cluster::loopback(2);
    let engine = &mut cluster.engines[0];
    let world = engine.comm_world();
    let rejected = engine.ibcast(vec![1u8], Rank(2), world).unwrap_err();
    assert_eq!((rejected.error, rejected.buffer), (PostError::Rank { rank: 2, last: 1 }, vec![1]));
    let rejected = engine.iallreduce(vec![1u8; 3], vec![0; 2], op::Sum, world).unwrap_err();
    assert_eq!(rejected.error.to_string(), "the receive buffer has 2 elements, and 3 are needed");
    assert!(engine.ialltoall(vec![1u8; 3], vec![0; 3], world).is_err(), "3 elements for 2 ranks");
    assert!(engine.ibarrier(Comm(77)).is_err());
    let results = all(&mut cluster, |engine, rank, world| engine.iallreduce(vec![rank], vec![0], op::Sum, world));
    assert!(results.iter().all(|of| of.1 == [1]));
    cluster.assert_at_rest();
}

/// If lengths differ between ranks, each rank that notices it gets an error. Later operations must work.
#[test]
fn lengths_that_differ_are_errors_and_what_follows_is_intact() {
    for (first, second) in [(3usize, 2usize), (2, 3), (9000, 2), (2, 9000)] {
        for mut cluster in clusters(2) {
            let mut requests = Vec::new();
            for (engine, count) in cluster.engines.iter_mut().zip([first, second]) {
                let world = engine.comm_world();
                requests.push(engine.iallreduce(vec![1u64; count], vec![0; count], op::Sum, world).unwrap());
            }
            let errors =
                (0..).zip(requests).map(|(rank, request)| cluster.finish(BOUND, rank, request).unwrap_err().error);
            for error in errors.collect::<Vec<_>>() {
                use RequestError::{Abandoned, Short, Truncated};
                assert!(matches!(error, Short { .. } | Truncated { .. } | Abandoned(_)), "{error}");
            }
            let results =
                all(&mut cluster, |engine, rank, world| engine.iallreduce(vec![rank], vec![0], op::Sum, world));
            assert!(results.iter().all(|of| of.1 == [1]), "{first} and {second}");
            cluster.tick_times(300);
            // Long and short operands have different graphs, so messages may be left. `lengths.rs` tests that case.
            if first.max(second) < 100 {
                cluster.assert_at_rest();
            }
        }
    }
}

/// A member dies. Each survivor gets an error and nobody hangs. The survivors can still exchange messages.
#[test]
fn a_dead_member_fails_the_operation_and_the_others_talk_on() {
    let size = 6;
    for (seed, victim) in (0..8).flat_map(|seed| [(seed, 0), (seed, 3), (seed, 5)]) {
        for count in [1usize, 3000] {
            let net = SimNet::new(size, SimConfig::calm(seed));
            let mut cluster = Cluster::sim(size, &net);
            all(&mut cluster, |engine, _, world| engine.ibarrier(world));
            let mut requests = Vec::new();
            for (rank, engine) in (0..size).zip(&mut cluster.engines).filter(|(rank, _)| *rank != victim) {
                let world = engine.comm_world();
                requests.push((rank, engine.iallreduce(vec![1u64; count], vec![0; count], op::Sum, world).unwrap()));
            }
            cluster.tick_times(seed as u32);
            net.kill(victim, Death::At(cluster.now_ns));
            for (rank, request) in requests {
                let error = cluster.finish(BOUND, rank as usize, request).unwrap_err().error;
                assert!(matches!(error, RequestError::PeerFailed { .. } | RequestError::Abandoned(_)), "{error}");
            }
            let living: Vec<usize> = (0..size as usize).filter(|&rank| rank as u32 != victim).collect();
            for pair in living.windows(2) {
                let world = cluster.engines[pair[0]].comm_world();
                let send = cluster.engines[pair[0]].isend(vec![7u8; 100], Rank(pair[1] as u32), Tag(1), world).unwrap();
                let receive =
                    cluster.engines[pair[1]].irecv(vec![0u8; 100], Rank(pair[0] as u32), Tag(1), world).unwrap();
                assert_eq!(cluster.finish(BOUND, pair[1], receive).unwrap().0, [7; 100]);
                cluster.finish(BOUND, pair[0], send).unwrap();
            }
        }
    }
}

/// An engine is finalized. Its own part of the operation ends, and the parts of its peers fail.
#[test]
fn a_member_that_ends_fails_the_operation() {
    for mut cluster in clusters(3) {
        all(&mut cluster, |engine, _, world| engine.ibarrier(world));
        let mut requests = Vec::new();
        for engine in &mut cluster.engines[..2] {
            let world = engine.comm_world();
            requests.push(engine.iallreduce(vec![1u64; 3000], vec![0; 3000], op::Sum, world).unwrap());
        }
        let (second, first) = (requests.pop().unwrap(), requests.pop().unwrap());
        let _ = cluster.engines[0].finalize(Duration::ZERO);
        assert_eq!(cluster.engines[0].take(first).unwrap_err().error, RequestError::Finalized);
        let error = cluster.finish(BOUND, 1, second).unwrap_err().error;
        assert!(matches!(error, RequestError::PeerFailed { .. } | RequestError::Abandoned(_)), "{error}");
    }
}

/// A function of the application that panics poisons only its own engine. The lent buffers come back.
#[test]
fn a_function_that_panics_poisons_its_engine() {
    // The operand fits the first line of a slot, or a slot, or goes through cells.
    for count in [1, 200, 3000] {
        a_function_panics(count);
    }
}

fn a_function_panics(count: usize) {
    let board = Board::new(2);
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let board = &board;
            scope.spawn(move || {
                let mut engine = Engine::builder().build(board.bootstrap(rank)).unwrap();
                let world = engine.comm_world();
                engine.barrier(world).unwrap();
                let bug =
                    move |left: u64, right: u64| if rank == 0 { panic!("a bug in the sum") } else { left + right };
                let mut sums = vec![0; count];
                let ended = engine.allreduce(&vec![1u64; count], &mut sums, bug, world);
                let error = match ended {
                    // On boards each of the two ranks combines the operands itself, so rank 1 may succeed.
                    Ok(()) => {
                        assert!(rank == 1 && sums == vec![2; count]);
                        engine.barrier(world).unwrap_err().to_string()
                    }
                    Err(error) => error.to_string(),
                };
                let words = if rank == 0 { "a bug in the sum" } else { "has failed" };
                assert!(error.contains(words), "{error}");
                sums.fill(1);
                drop(engine);
            });
        }
    });
}

/// The blocking calls. Each engine is in its own thread.
#[test]
fn calls_that_wait_give_what_they_should() {
    let size = 4;
    let board = Board::new(size);
    std::thread::scope(|scope| {
        for rank in 0..size {
            let board = &board;
            scope.spawn(move || {
                let mut engine = Engine::builder().build(board.bootstrap(rank)).unwrap();
                let world = engine.comm_world();
                for round in 0..200 {
                    engine.barrier(world).unwrap();
                    let mut total = [0u32];
                    engine.allreduce(&[rank + round], &mut total, op::Sum, world).unwrap();
                    assert_eq!(total, [6 + 4 * round]);
                    let mut shared = vec![if rank == 1 { round } else { 0 }; 3];
                    engine.bcast(&mut shared, Rank(1), world).unwrap();
                    assert_eq!(shared, [round; 3]);
                    let mut gathered = vec![0; if rank == 2 { 4 } else { 0 }];
                    engine.gather(&[rank], &mut gathered, Rank(2), world).unwrap();
                    assert!(rank != 2 || gathered == [0, 1, 2, 3]);
                    let mut before = [u32::MAX];
                    engine.exscan(&[1u32], &mut before, op::Sum, world).unwrap();
                    assert_eq!(before, [if rank == 0 { u32::MAX } else { rank }]);
                }
                engine.finalize(Duration::from_secs(10)).unwrap();
            });
        }
    });
}
