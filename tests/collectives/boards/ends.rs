//! Operations on boards that fail: members call different operations, leave, or have a function that panics.

mod lengths;
mod orders;

use super::each_rank;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tickwire::{OperationError, PostError, Rank, RequestError, op};

#[test]
fn lengths_that_differ_are_told_and_what_follows_is_intact() {
    for [short, long] in [[1, 3], [3, 500], [500, 5_000], [5_000, 9_000], [40_000, 50_000]] {
        each_rank(2, true, |engine, rank, world| {
            engine.barrier(world).unwrap();
            let count = if rank == 0 { short } else { long };
            let ended = engine.allreduce(&vec![1u64; count], &mut vec![0; count], op::Sum, world);
            let error = match ended {
                Err(OperationError::Request(error)) => error,
                ended => panic!("{ended:?}"),
            };
            match error {
                RequestError::Truncated { status, capacity } if rank == 0 => {
                    assert_eq!((status.source, status.length, capacity), (Rank(1), long * 8, short * 8));
                }
                RequestError::Short { from, sent, expected } if rank == 1 => {
                    assert_eq!((from, sent, expected), (Rank(0), short * 8, long * 8));
                }
                RequestError::Abandoned(from) => assert_eq!(from, Rank(1 - rank), "who was faster has told"),
                error => panic!("rank {rank}: {error}"),
            }
            let mut total = [0];
            engine.allreduce(&[rank + 1], &mut total, op::Sum, world).unwrap();
            assert_eq!(total, [3]);
        });
    }
}

/// A poisoned engine gives up its operations in progress, and the other members get an error.
#[test]
fn requests_of_a_poisoned_engine_end_and_others_hear_of_it() {
    for count in [1, 400, 100_000] {
        let poisoned = AtomicBool::new(false);
        each_rank(2, true, |engine, rank, world| {
            let other = engine.comm_dup(world).unwrap();
            engine.barrier(world).unwrap();
            engine.barrier(other).unwrap();
            let (own, mut sums) = (vec![1u64; count], vec![0u64; count]);
            if rank == 0 {
                let panics = |_: u64, _: u64| -> u64 { panic!("the application's function") };
                engine.scope(|scope| {
                    let _sum = scope.iallreduce(&own[..], &mut sums[..], op::Sum, world).unwrap();
                    let ended = scope.allreduce(&[1], &mut [0], panics, other);
                    assert!(matches!(ended, Err(OperationError::Request(RequestError::Poisoned(_)))), "{ended:?}");
                    poisoned.store(true, Ordering::Release);
                });
                // Nothing writes to this buffer any more.
                sums.fill(7);
            } else {
                engine.allreduce(&[1], &mut [0], |left: u64, right: u64| left + right, other).unwrap();
                // The other member may do its part in later operations until its engine is poisoned.
                let start = Instant::now();
                while !poisoned.load(Ordering::Acquire) {
                    assert!(start.elapsed() < Duration::from_secs(20), "nothing panics");
                    std::thread::yield_now();
                }
                match engine.allreduce(&own, &mut sums, op::Sum, world) {
                    // A short operand was completely on the board before the panic.
                    Ok(()) => assert!(count <= 400 && sums == vec![2; count]),
                    Err(OperationError::Request(
                        RequestError::Abandoned(Rank(0)) | RequestError::PeerFailed { .. },
                    )) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
}

/// As [`requests_of_a_poisoned_engine_end_and_others_hear_of_it`], but the function of the same operation has panicked.
#[test]
fn others_hear_of_a_function_that_has_panicked_while_its_engine_is_kept() {
    for count in [1, 400, 100_000] {
        let told = AtomicBool::new(false);
        each_rank(2, true, |engine, rank, world| {
            engine.barrier(world).unwrap();
            let (own, mut sums) = (vec![1u64; count], vec![0u64; count]);
            if rank == 0 {
                let panics = |_: u64, _: u64| -> u64 { panic!("the application's function") };
                let ended = engine.allreduce(&own, &mut sums, panics, world);
                assert!(matches!(ended, Err(OperationError::Request(RequestError::Poisoned(_)))), "{ended:?}");
                let start = Instant::now();
                while !told.load(Ordering::Acquire) {
                    assert!(start.elapsed() < Duration::from_secs(20), "{count}: the other one waits");
                    std::thread::yield_now();
                }
                return;
            }
            let ended = engine.allreduce(&own, &mut sums, |left: u64, right: u64| left + right, world);
            // It may succeed if both members had read a short operand before.
            assert!(ended.is_err() || count <= 400);
            assert!(engine.barrier(world).is_err(), "it takes part in nothing any more");
            told.store(true, Ordering::Release);
        });
    }
}

/// For operations that only copy, members compare numbers of bytes. So each member may use another element type.
#[test]
fn what_is_copied_may_have_other_elements_on_each_member() {
    // The bytes are whole elements of 8 and of 24 bytes, but no whole number of chunks for either.
    const BYTES: usize = 1_048_560;
    each_rank(3, true, |engine, rank, world| {
        engine.barrier(world).unwrap();
        for round in 0..7u64 {
            let words = (0..BYTES as u64 / 8).map(|at| at * 3 + round);
            let mut shared: Vec<u64> = if rank == 0 { words.clone().collect() } else { vec![0; BYTES / 8] };
            // The members use different element types, in turn.
            match (rank + round as u32) % 3 {
                0 => engine.bcast(&mut shared, Rank(0), world).unwrap(),
                1 => engine.bcast(cast::<[u64; 3]>(&mut shared), Rank(0), world).unwrap(),
                _ => engine.bcast(cast::<u8>(&mut shared), Rank(0), world).unwrap(),
            }
            assert!(shared.iter().copied().eq(words), "round {round}");
            let mut all = vec![0u64; 3 * 3000];
            let mut own: Vec<u64> = (0..3000).map(|at| u64::from(rank) * 10_000 + at).collect();
            match (rank + round as u32) % 2 {
                0 => engine.allgather(&own, &mut all, world).unwrap(),
                _ => engine.allgather(&*cast::<[u64; 3]>(&mut own), cast::<[u64; 3]>(&mut all), world).unwrap(),
            }
            let expected = (0..3).flat_map(|rank| (0..3000).map(move |at| rank * 10_000 + at));
            assert!(all.iter().copied().eq(expected), "round {round}");
        }
    });
}

fn cast<T: tickwire::Element>(words: &mut [u64]) -> &mut [T] {
    tickwire::internals::components::bytemuck::cast_slice_mut(words)
}

/// Elements that are reduced must have the same size on all members.
#[test]
fn elements_of_other_lengths_are_told() {
    each_rank(2, true, |engine, rank, world| {
        engine.barrier(world).unwrap();
        for count in [2, 6_000] {
            let ended = match rank {
                0 => engine.allreduce(&vec![1u64; count], &mut vec![0u64; count], op::Sum, world),
                _ => engine.allreduce(&vec![1u32; 2 * count], &mut vec![0u32; 2 * count], op::Sum, world),
            };
            assert!(matches!(ended, Err(OperationError::Request(RequestError::Abandoned(_)))), "{ended:?}");
        }
        engine.barrier(world).unwrap();
    });
}

/// A member that has freed a communicator takes part in no later operation on it. The other members get an error.
#[test]
fn who_waits_for_a_member_that_has_freed_the_communicator_is_told() {
    for count in [1usize, 100_000] {
        each_rank(3, true, |engine, rank, world| {
            let other = engine.comm_dup(world).unwrap();
            engine.barrier(other).unwrap();
            if rank == 0 {
                engine.comm_free(other).unwrap();
            } else {
                let ended = engine.bcast(vec![0u64; count], Rank(0), other);
                assert!(matches!(ended, Err(OperationError::Request(RequestError::Abandoned(Rank(0))))), "{ended:?}");
                engine.comm_free(other).unwrap();
            }
            engine.barrier(world).unwrap();
        });
    }
}

/// Both members think that they are the root, so neither needs anything of the other one.
#[test]
fn long_operations_with_different_roots_are_errors() {
    each_rank(2, true, |engine, rank, world| {
        engine.barrier(world).unwrap();
        for bytes in [4 << 20, 200 << 10] {
            let shared = engine.ibcast(vec![1u8; bytes], Rank(rank), world).unwrap();
            let ended = engine.wait_for(&shared, Duration::from_secs(20));
            let is_told = matches!(ended, Err(RequestError::Abandoned(_)));
            // Bytes that fit the board may all be there before the other one has called.
            assert!(is_told || ended.is_ok() && bytes < 1 << 20, "{ended:?}");
            let mut sum = [0];
            engine.allreduce(&[rank], &mut sum, op::Sum, world).unwrap();
            assert_eq!(sum, [1]);
        }
        // Here one member only gives, and the other one only gives, too, and is done at once.
        if rank == 0 {
            let shared = engine.ibcast(vec![1u8; 4 << 20], Rank(0), world).unwrap();
            let ended = engine.wait_for(&shared, Duration::from_secs(20));
            assert!(matches!(ended, Err(RequestError::Abandoned(_) | RequestError::Short { .. })), "{ended:?}");
        } else {
            engine.gather(&[1u8; 8], &mut [0u8; 0], Rank(0), world).unwrap();
        }
        let mut sum = [0];
        engine.allreduce(&[rank], &mut sum, op::Sum, world).unwrap();
        assert_eq!(sum, [1]);
    });
}

/// A persistent operation fails on one rank, by messages, before there are boards. Both start it again on boards: later
/// operations of both still meet.
#[test]
fn a_persistent_operation_that_has_failed_on_one_rank_does_not_shift_others() {
    each_rank(2, true, |engine, rank, world| {
        let bytes = if rank == 0 { 8 } else { 16 };
        let shared = engine.bcast_init(vec![1u8; bytes], Rank(0), world).unwrap();
        engine.start(&shared).unwrap();
        let ended = engine.wait(&shared);
        assert!(rank == 0 || ended.is_err());
        engine.barrier(world).unwrap();
        for round in 0..3 {
            match engine.start(&shared) {
                Ok(()) => drop(engine.wait(&shared)),
                Err(error) => assert!(error == PostError::HasFailed && rank == 1, "{error}"),
            }
            let mut sum = [0];
            engine.allreduce(&[rank + round], &mut sum, op::Sum, world).unwrap();
            assert_eq!(sum, [1 + 2 * round], "round {round}");
        }
        engine.free(shared).unwrap();
    });
}
