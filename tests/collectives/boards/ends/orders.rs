//! Members that call operations in different orders, or of which only some can run an operation on boards.

use crate::boards::each_rank;
use std::time::Duration;
use tickwire::{Comm, Engine, OperationError, PostError, RequestError, consecutive, op};

fn sum_is_right(engine: &mut Engine, rank: u32, world: Comm) {
    let mut total = [0];
    engine.allreduce(&[rank + 1], &mut total, op::Sum, world).unwrap();
    assert_eq!(total, [3]);
}

fn is_given_up(ended: &Result<(), OperationError>) -> bool {
    matches!(ended, Err(OperationError::Request(RequestError::Abandoned(_))))
}

#[test]
fn persistent_operations_that_members_start_in_different_orders_fail_and_mix_nothing() {
    for (count, has_boards_before) in [(1, true), (1, false), (100, true), (3_000, true), (3_000, false)] {
        each_rank(2, true, |engine, rank, world| {
            if has_boards_before {
                engine.barrier(world).unwrap();
            }
            let one = engine.allreduce_init(vec![1u64; count], vec![0u64; count], op::Sum, world).unwrap();
            let other = engine.allreduce_init(vec![100u64; count], vec![0u64; count], op::Sum, world).unwrap();
            if !has_boards_before {
                engine.barrier(world).unwrap();
            }
            let order = if rank == 0 { [&one, &other] } else { [&other, &one] };
            order.iter().for_each(|persistent| engine.start(persistent).unwrap());
            for persistent in order {
                let ended = engine.wait(persistent);
                assert!(matches!(ended, Err(RequestError::Abandoned(_))), "{count}: {ended:?}");
            }
            sum_is_right(engine, rank, world);
        });
    }
}

#[test]
fn a_persistent_operation_that_meets_another_call_fails_with_it() {
    each_rank(2, true, |engine, rank, world| {
        engine.barrier(world).unwrap();
        let kept = engine.barrier_init(world).unwrap();
        let mut ended = Vec::new();
        for starts in [rank == 0, rank == 1] {
            ended.push(match starts {
                true => {
                    engine.start(&kept).unwrap();
                    engine.wait(&kept).map(drop).map_err(OperationError::from)
                }
                false => engine.barrier(world),
            });
        }
        assert!(ended.iter().all(is_given_up), "{ended:?}");
        sum_is_right(engine, rank, world);
    });
}

/// A form with a length for each rank runs by messages.
#[test]
fn a_persistent_operation_that_one_member_runs_on_boards_and_the_other_by_messages_is_an_error_of_both() {
    for has_boards_before in [true, false] {
        each_rank(2, true, |engine, rank, world| {
            if has_boards_before {
                engine.barrier(world).unwrap();
            }
            let (own, room) = (vec![rank], vec![0; 2]);
            let kept = match rank {
                0 => engine.allgather_init(own, room, world).unwrap(),
                _ => engine.allgatherv_init(own, room, &consecutive(&[1, 1]), world).unwrap(),
            };
            if !has_boards_before {
                engine.barrier(world).unwrap();
            }
            engine.start(&kept).unwrap();
            let ended = engine.wait_for(&kept, Duration::from_secs(20));
            assert!(matches!(ended, Err(RequestError::Abandoned(_))), "{rank}: {ended:?}");
            sum_is_right(engine, rank, world);
            for _ in 0..20 {
                assert_eq!(engine.start(&kept), Err(PostError::HasFailed), "{rank}");
                sum_is_right(engine, rank, world);
            }
        });
    }
}

#[test]
fn persistent_operations_by_messages_and_calls_on_boards_may_follow_each_other() {
    each_rank(3, true, |engine, rank, world| {
        engine.barrier(world).unwrap();
        let kept = engine.allgatherv_init(vec![rank], vec![9; 3], &consecutive(&[1, 1, 1]), world).unwrap();
        for _ in 0..20 {
            engine.start(&kept).unwrap();
            let mut total = [0];
            engine.allreduce(&[rank], &mut total, op::Sum, world).unwrap();
            assert_eq!(total, [3]);
            engine.wait(&kept).unwrap();
        }
        assert_eq!(engine.free(kept).unwrap().1, [0, 1, 2]);
    });
}

/// Elements that are longer than those for boards.
#[test]
fn elements_with_which_only_one_member_can_use_boards_are_an_error_for_both() {
    for of_calls in [1, 20] {
        each_rank(2, true, |engine, rank, world| {
            engine.barrier(world).unwrap();
            for _ in 0..of_calls {
                let ended = match rank {
                    0 => engine.allreduce(&[[1u64; 512]], &mut [[0; 512]], first::<512>, world),
                    _ => engine.allreduce(&[[1u64; 640]], &mut [[0; 640]], first::<640>, world),
                };
                assert!(is_given_up(&ended) || rank == 1 && ended.is_err(), "{ended:?}");
            }
            sum_is_right(engine, rank, world);
        });
    }
}

fn first<const COUNT: usize>(left: [u64; COUNT], _: [u64; COUNT]) -> [u64; COUNT] {
    left
}
