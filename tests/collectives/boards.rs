//! Operations over boards: engines of one host that read each other's operands from boards. Each engine runs in a thread of its own,
//! since boards are opened by a blocking operation.

mod behind;
mod ends;
mod opening;
mod results;
mod slots;
mod systems;

use crate::kit::on_threads;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tickwire::internals::components::limits::BOARDS_WIDE;
use tickwire::internals::systems::procs::boards::Boards;
use tickwire::{Comm, Engine, Limits, OperationError, Rank, RequestError, in_place, op};

/// Runs `part` as each rank, in threads, with boards or by messages alone.
fn each_rank(size: u32, boards: bool, part: impl Fn(&mut Engine, u32, Comm) + Sync) {
    on_threads(size, |rank, bootstrap| {
        let limits = Limits { boards, ..Limits::default() };
        let mut engine = Engine::builder().limits(limits).build(bootstrap).unwrap();
        let world = engine.comm_world();
        part(&mut engine, rank, world);
        let _ = engine.finalize(Duration::from_secs(20));
    });
}

fn values(rank: u32, count: usize) -> Vec<i64> {
    (0..count as i64).map(|at| i64::from(rank) * 1_000_003 + at * at + 1).collect()
}

/// A function that is neither commutative nor associative: its result shows which operands were combined, and in which order.
fn mix(left: i64, right: i64) -> i64 {
    left.rotate_left(7).wrapping_mul(31) ^ right.wrapping_add(left)
}

/// Compares two slices. The panic message shows only a part of them.
#[track_caller]
fn same(found: &[i64], expected: &[i64], words: &str) {
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    assert!(found.len() == expected.len() && differs.is_none(), "{words}: {} elements, at {differs:?}", found.len());
}

/// How many communicators of an engine have boards.
fn with_boards(engine: &mut Engine) -> usize {
    let mut query = engine.world().try_query::<&Boards>().unwrap();
    query.iter(engine.world()).map(Boards::count).sum()
}

#[test]
fn sixteen_members_have_boards_and_seventeen_have_none() {
    for size in [16, 17] {
        each_rank(size, true, |engine, rank, world| {
            // This opens the boards, and runs by messages.
            engine.barrier(world).unwrap();
            for count in [1, 3_000] {
                let mut sums = vec![0; count];
                engine.allreduce(&vec![rank; count], &mut sums, op::Sum, world).unwrap();
                assert_eq!(sums, vec![size * (size - 1) / 2; count]);
            }
            assert_eq!(with_boards(engine), usize::from(size == 16));
        });
    }
}

/// No rank may leave a barrier before all have entered it, with boards and by messages.
#[test]
fn nobody_leaves_a_barrier_before_all_have_entered_it() {
    const ROUNDS: u32 = 60;
    for (size, boards) in [(2, true), (3, true), (2, false), (5, false)] {
        let entered = [const { AtomicU32::new(0) }; ROUNDS as usize];
        each_rank(size, boards, |engine, rank, world| {
            for (round, entered) in (0..).zip(&entered) {
                if round % size == rank {
                    // This rank is the last one. All others have entered the barrier or are about to, and have time to
                    // leave it if they could.
                    let start = Instant::now();
                    while entered.load(Ordering::SeqCst) < size - 1 {
                        assert!(start.elapsed() < Duration::from_secs(20), "round {round}: the others do not come");
                        std::thread::yield_now();
                    }
                    (0..100).for_each(|_| std::thread::yield_now());
                }
                entered.fetch_add(1, Ordering::SeqCst);
                match round % 3 {
                    0 => engine.barrier(world).unwrap(),
                    1 => {
                        let request = engine.ibarrier(world).unwrap();
                        engine.wait_take(request).unwrap();
                    }
                    _ => {
                        let barrier = engine.barrier_init(world).unwrap();
                        engine.start(&barrier).unwrap();
                        engine.wait(&barrier).unwrap();
                    }
                }
                assert_eq!(entered.load(Ordering::SeqCst), size, "round {round}, boards: {boards}");
            }
        });
    }
}

#[test]
fn a_member_may_run_ahead_no_further_than_others_can_read() {
    each_rank(3, true, |engine, rank, world| {
        engine.barrier(world).unwrap();
        for round in 0..500u64 {
            // The root has to wait for the others only because the number of operations in progress is limited.
            for step in round..round + 30 {
                let mut shared = [if rank == 1 { step } else { 0 }; 4];
                engine.bcast(&mut shared, Rank(1), world).unwrap();
                assert_eq!(shared, [step; 4]);
            }
            let mut long = vec![if rank == 2 { round } else { 0 }; if round % 100 == 0 { 20_000 } else { 300 }];
            engine.bcast(&mut long, Rank(2), world).unwrap();
            assert!(long.iter().all(|&value| value == round));
        }
    });
}

#[test]
fn a_member_that_runs_ahead_writes_no_cell_that_is_still_read() {
    each_rank(2, true, |engine, rank, world| {
        engine.barrier(world).unwrap();
        // Operands of different lengths use the same cells in different ways.
        for round in 0..200usize {
            let count = [150_000, 20_000, 9_000, 60_000, 130_000][round % 5] / 8;
            let expected = |at: usize| (round * 1_000_003 + at) as u64;
            let mut shared: Vec<u64> = (0..count).map(|at| if rank == 1 { expected(at) } else { 0 }).collect();
            engine.bcast(&mut shared, Rank(1), world).unwrap();
            let differs = (0..count).find(|&at| shared[at] != expected(at));
            assert_eq!(differs, None, "round {round}");
        }
    });
}

/// As if ranks shared processors, chunks have their greatest length. In the last case the boards are narrow and have
/// the most members. Together their operands are longer than the room in the boards.
#[test]
fn operands_in_shared_heaps_are_read_where_they_are() {
    for (size, others, count) in [(2, 0, 300_001), (3, 0, 40_000), (5, 0, 70_000), (12, BOARDS_WIDE, 10_000)] {
        on_threads(size, |rank, bootstrap| {
            let limits = Limits { spins: 0, ..Limits::default() };
            let mut engine = Engine::builder().limits(limits).shared_heap(true).build(bootstrap).unwrap();
            let mut comm = engine.comm_world();
            for _ in 0..others {
                engine.barrier(comm).unwrap();
                comm = engine.comm_dup(comm).unwrap();
            }
            // This opens the boards.
            engine.barrier(comm).unwrap();
            let sums = |first: usize| -> Vec<i64> {
                let of =
                    |at: usize| i64::from(size * (size - 1) / 2) * 1_000_003 + i64::from(size) * (at * at + 1) as i64;
                (first..first + count).map(of).collect()
            };
            let own = count * rank as usize;
            let mut send = engine.alloc_elements::<i64>(count * size as usize).unwrap();
            send.copy_from_slice(&values(rank, count * size as usize));
            let mut receive = engine.alloc_elements::<i64>(count).unwrap();
            engine.reduce_scatter_block(&send[..], &mut receive[..], op::Sum, comm).unwrap();
            same(&receive, &sums(own), "reduce_scatter_block");
            engine.allreduce(&send[..count], &mut receive[..], op::Sum, comm).unwrap();
            same(&receive, &sums(0), "allreduce");
            receive.fill(-1);
            engine.reduce(&send[..count], &mut receive[..], op::Sum, Rank(1), comm).unwrap();
            same(&receive, &if rank == 1 { sums(0) } else { vec![-1; count] }, "reduce");
            receive.copy_from_slice(&send[..count]);
            engine.allreduce(in_place(), &mut receive[..], op::Sum, comm).unwrap();
            same(&receive, &sums(0), "allreduce in place");
            engine.finalize(Duration::from_secs(20)).unwrap();
        });
    }
}

#[test]
fn more_communicators_than_have_wide_boards_give_the_same() {
    each_rank(2, true, |engine, rank, world| {
        let comms: Vec<Comm> = (0..10).map(|_| engine.comm_dup(world).unwrap()).collect();
        for comm in comms {
            engine.barrier(comm).unwrap();
            let own = values(rank, 33_000);
            let mut sums = vec![0; own.len()];
            engine.allreduce(&own, &mut sums, mix, comm).unwrap();
            let expected: Vec<i64> = values(0, own.len())
                .into_iter()
                .zip(values(1, own.len()))
                .map(|(left, right)| mix(left, right))
                .collect();
            same(&sums, &expected, "allreduce");
            let mut prefix = vec![0; own.len()];
            engine.scan(&own, &mut prefix, mix, comm).unwrap();
            same(&prefix, if rank == 0 { &own } else { &expected }, "scan into another buffer");
        }
    });
}

#[test]
fn different_operations_in_one_place_are_errors() {
    each_rank(2, true, |engine, rank, world| {
        engine.barrier(world).unwrap();
        let mut value = [1u8];
        let ended = match rank {
            0 => engine.allreduce(&[1u8], &mut value, op::Sum, world),
            _ => engine.allgather(&[1u8], &mut [0u8; 2], world),
        };
        assert!(matches!(ended, Err(OperationError::Request(RequestError::Abandoned(_)))), "{ended:?}");
        engine.barrier(world).unwrap();
    });
}

#[test]
fn a_member_that_goes_fails_what_waits_for_it_and_messages_go_on() {
    for count in [1, 500, 20_000] {
        each_rank(3, true, |engine, rank, world| {
            engine.barrier(world).unwrap();
            if rank == 2 {
                return;
            }
            let mut failed = 0;
            for _ in 0..12 {
                let ended = engine.allreduce(&vec![1u32; count], &mut vec![0; count], op::Sum, world);
                let Err(OperationError::Request(error)) = ended else { panic!("{ended:?}") };
                failed += u32::from(matches!(error, RequestError::PeerFailed { .. } | RequestError::Abandoned(_)));
            }
            assert_eq!(failed, 12);
            let peer = Rank(1 - rank);
            let receive = engine.irecv(vec![0u32; 1], peer, tickwire::Tag(1), world).unwrap();
            engine.send(&[rank], peer, tickwire::Tag(1), world).unwrap();
            assert_eq!(engine.wait_take(receive).unwrap().0, [1 - rank]);
        });
    }
}

#[test]
fn a_member_that_has_done_its_part_may_go_while_others_wait_for_a_third() {
    // The first flag says that rank 0 is gone. Rank 2 waits for it. The second flag says that rank 2 has ticked
    // since. Rank 1 waits for it.
    let turns = [const { AtomicBool::new(false) }; 2];
    let wait = |turn: &AtomicBool| {
        let start = Instant::now();
        while !turn.load(Ordering::Acquire) && start.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
    };
    each_rank(3, true, |engine, rank, world| {
        engine.barrier(world).unwrap();
        if rank == 1 {
            wait(&turns[1]);
        }
        let request = engine.iscan(in_place(), values(rank, 5_000), op::Sum, world).unwrap();
        if rank == 2 {
            wait(&turns[0]);
            (0..100).for_each(|_| {
                engine.tick();
            });
            turns[1].store(true, Ordering::Release);
        }
        let (_, prefix) = engine.wait_take(request).unwrap().0;
        let own: Vec<_> = (0..=rank).map(|rank| values(rank, 5_000)).collect();
        let expected: Vec<i64> = (0..5_000).map(|at| own.iter().map(|own| own[at]).sum()).collect();
        same(&prefix, &expected, "scan");
        if rank == 0 {
            let _ = engine.finalize(Duration::from_millis(50));
            turns[0].store(true, Ordering::Release);
        }
    });
}

/// An operation in progress is completed when its scope ends: then the borrowed buffers have the result.
#[test]
fn requests_in_progress_are_completed_by_the_end_of_their_scope() {
    for count in [1, 400, 100_000] {
        let posted = AtomicBool::new(false);
        each_rank(2, true, |engine, rank, world| {
            engine.barrier(world).unwrap();
            if rank == 0 {
                let (own, mut sums) = (vec![1u64; count], vec![0u64; count]);
                engine.scope(|scope| {
                    let sum = scope.iallreduce(&own[..], &mut sums[..], op::Sum, world).unwrap();
                    assert!(!scope.test(&sum).unwrap().is_done(), "the other one does not take part yet");
                    posted.store(true, Ordering::Release);
                });
                assert_eq!(sums, vec![3; count]);
            } else {
                let start = Instant::now();
                while !posted.load(Ordering::Acquire) {
                    assert!(start.elapsed() < Duration::from_secs(20), "nothing is posted");
                    std::thread::yield_now();
                }
                let mut sums = vec![0u64; count];
                engine.allreduce(&vec![2u64; count], &mut sums, op::Sum, world).unwrap();
                assert_eq!(sums, vec![3; count]);
            }
        });
    }
}

#[test]
fn communicators_come_and_go_with_their_boards() {
    each_rank(4, true, |engine, rank, world| {
        for round in 0..20u32 {
            let half = engine.comm_split(world, Some(rank % 2), rank as i32).unwrap().unwrap();
            engine.barrier(half).unwrap();
            let mut total = [0];
            engine.allreduce(&[rank + round], &mut total, op::Sum, half).unwrap();
            assert_eq!(total, [rank % 2 * 2 + 2 + 2 * round]);
            engine.comm_free(half).unwrap();
            let copy = engine.comm_dup(world).unwrap();
            engine.barrier(copy).unwrap();
            let mut all = vec![0; 4];
            engine.allgather(&[rank], &mut all, copy).unwrap();
            assert_eq!(all, [0, 1, 2, 3]);
            engine.comm_free(copy).unwrap();
        }
    });
}
