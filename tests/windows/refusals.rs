//! Calls that are refused: nothing has changed, and no buffer is lost.

use crate::kit::{ALL, Over, each_of, each_rank, over_fabric, refused};
use tickwire::{Comm, Engine, Group, LockKind, Rank, Window, WindowError, WindowReach};

#[test]
fn epochs_that_do_not_mix_are_refused_and_stay_as_they_are() {
    for over in [Over::Shm, Over::Loopback] {
        each_rank(2, over, |engine, rank, world| {
            let window = engine.win_allocate::<u64>(1, world).unwrap();
            let group = engine.comm_group(world).unwrap().include(&[1 - rank]).unwrap();
            let other = Rank(1 - rank);
            engine.win_post(&group, window).unwrap();
            refused(engine.win_fence(window), "an epoch is started or posted");
            refused(engine.win_free(window), "an exposure epoch is posted");
            engine.win_start(&group, window).unwrap();
            refused(engine.win_start(&group, window), "an access epoch is started");
            refused(engine.win_lock(LockKind::Shared, other, window), "started");
            refused(engine.win_lock_all(window), "started");
            refused(engine.win_fence(window), "an epoch is started or posted");
            refused(engine.win_free(window), "an access epoch is started");
            engine.put(&[u64::from(rank) + 5], other, 0, window).unwrap();
            engine.win_complete(window).unwrap();
            refused(engine.win_complete(window), "win_start comes first");
            engine.win_wait(window).unwrap();
            refused(engine.win_wait(window), "win_post comes first");
            refused(engine.win_test(window).map(drop), "win_post comes first");
            let mut own = [0];
            engine.win_read(&mut own, 0, window).unwrap();
            assert_eq!(own, [u64::from(other.0) + 5]);
            engine.win_lock(LockKind::Shared, other, window).unwrap();
            refused(engine.win_start(&group, window), "a rank is locked");
            refused(engine.win_lock_all(window), "a rank is locked");
            refused(engine.win_free(window), "a rank is locked");
            engine.win_unlock(other, window).unwrap();
            refused(engine.win_unlock_all(window), "win_lock_all comes first");
            engine.win_free(window).unwrap();
            // The next window may have the same row, but the handle is another one.
            let next = engine.win_allocate::<u64>(1, world).unwrap();
            refused(engine.win_lock(LockKind::Shared, other, window), "has been freed");
            refused(engine.win_free(window), "has been freed");
            engine.win_free(next).unwrap();
        });
    }
}

/// The buffer that a call gives back with its error.
fn back<T>(result: Result<T, tickwire::RejectedBuffer<Vec<u64>>>, words: &str) -> Vec<u64> {
    let Err(rejected) = result else { panic!("it must be refused: {words}") };
    assert!(rejected.to_string().contains(words), "{rejected}");
    rejected.buffer.expect("nobody else can use it")
}

#[test]
fn of_two_buffers_at_one_place_each_is_detached_as_itself() {
    for over in ALL {
        each_rank(2, over, |engine, rank, world| {
            let window = engine.win_create_dynamic(world).unwrap();
            let bytes: &'static mut [u8] = Box::leak(vec![3u8; 64].into());
            let (none, rest) = bytes.split_at_mut(0);
            let none: &'static mut [u8; 0] = none.try_into().unwrap();
            let before = engine.win_attach(vec![1u32], window).unwrap();
            let at = engine.win_attach(rest, window).unwrap();
            assert_eq!(engine.win_attach(none, window).unwrap(), at);
            // The last one takes the place of this one in the list.
            assert!(engine.win_detach::<Vec<u32>>(before, window).unwrap().is_some());
            let rest = engine.win_detach::<&'static mut [u8]>(at, window).unwrap().expect("it is attached");
            let mut places = [0; 2];
            engine.allgather(&[at], &mut places, world).unwrap();
            let other = Rank(1 - rank);
            engine.win_lock(LockKind::Shared, other, window).unwrap();
            let put = engine.put(&[9u8], other, places[other.0 as usize], window);
            let flushed = engine.win_flush(other, window);
            assert!(put.and(flushed).is_err(), "{over:?}: it is detached");
            engine.win_unlock(other, window).unwrap();
            engine.barrier(world).unwrap();
            assert!(rest.iter().all(|&byte| byte == 3), "{over:?}");
            assert!(engine.win_detach::<&'static mut [u8; 0]>(at, window).unwrap().is_some());
            engine.win_free(window).unwrap();
        });
    }
}

#[test]
fn a_buffer_that_becomes_no_memory_of_a_window_comes_back() {
    for over in ALL {
        each_rank(2, over, |engine, rank, world| {
            let buffer = vec![u64::from(rank); 100];
            let copy = engine.comm_dup(world).unwrap();
            engine.comm_free(copy).unwrap();
            assert_eq!(back(engine.win_create(buffer.clone(), copy), "freed"), buffer);
            // Only a dynamic window has memory attached.
            let window: Window<u64> = engine.win_create(buffer.clone(), world).unwrap();
            assert_eq!(back(engine.win_attach(buffer.clone(), window.cast()), "win_create_dynamic"), buffer);
            // Who names another type gets nothing, and loses nothing.
            let wrong = engine.win_take::<Box<[u64]>>(window).map(drop).map_err(WindowError::from);
            refused(wrong, "a buffer of another type");
            engine.barrier(world).unwrap();
            assert_eq!(engine.win_take::<Vec<u64>>(window).unwrap().unwrap(), buffer);
            let dynamic = engine.win_create_dynamic(world).unwrap();
            let at = engine.win_attach(buffer.clone(), dynamic).unwrap();
            assert_eq!(engine.win_detach::<Vec<u8>>(at, dynamic), Ok(None));
            assert_eq!(engine.win_detach::<Vec<u64>>(at, dynamic), Ok(Some(buffer.clone())));
            engine.win_free(dynamic).unwrap();
            assert_eq!(back(engine.win_attach(buffer.clone(), dynamic), "has been freed"), buffer);
        });
    }
}

#[test]
fn a_buffer_comes_back_where_a_member_has_failed() {
    for over in [Over::Shm, Over::Copied, Over::Loopback] {
        each_rank(3, over, |engine, rank, world| {
            engine.barrier(world).unwrap();
            if rank == 1 {
                return;
            }
            let rejected = engine.win_create(vec![7u64; 10], world).map(drop).unwrap_err();
            assert!(rejected.to_string().contains("proc 1"), "{rejected}");
            assert_eq!(rejected.buffer, Some(vec![7; 10]), "{over:?}");
        });
    }
}

#[test]
fn a_buffer_comes_back_where_another_member_has_no_memory() {
    for over in ALL {
        each_rank(3, over, |engine, rank, world| {
            // Its part would be longer than all memory.
            if rank == 2 {
                let failed = engine.win_allocate::<u64>(usize::MAX / 8, world).map(drop).unwrap_err();
                assert!(matches!(failed, WindowError::Memory { rank: Rank(2), .. }), "{over:?}: {failed}");
            } else {
                assert_eq!(back(engine.win_create(vec![7u64; 10], world), "rank 2 has no memory"), [7; 10], "{over:?}");
            }
        });
    }
}

#[test]
fn a_buffer_comes_back_with_the_error_of_an_operation_that_has_failed() {
    for over in [Over::Loopback, Over::Short] {
        each_rank(3, over, |engine, rank, world| takes_after_a_failure(engine, rank, world, false));
    }
}

/// The buffer has what others have put into its copy.
#[test]
fn a_buffer_that_was_copied_comes_back_with_the_error_of_an_operation_that_has_failed() {
    // Ranks 0 and 1 share memory with each other. Rank 2 does with nobody.
    let builder = |rank| match over_fabric("tcp;ofi_rxm", 0) {
        builder if rank == 2 => builder,
        builder => builder.shared_heap(false).include(["shm", "loopback", "ofi:tcp;ofi_rxm"]),
    };
    each_of(3, builder, |engine, rank, world| takes_after_a_failure(engine, rank, world, true));
}

fn takes_after_a_failure(engine: &mut Engine, rank: u32, world: Comm, is_copied: bool) {
    let window = engine.win_create(vec![u64::from(rank); 10], world).unwrap();
    if rank < 2 {
        let reach = if is_copied { WindowReach::Memory } else { WindowReach::Engine };
        assert_eq!(engine.win_reach(Rank(1 - rank), window), Ok(reach));
    }
    engine.win_fence(window).unwrap();
    engine.put(&[7u64], Rank((rank + 1) % 3), 3, window).unwrap();
    // Rank 0 believes that a fence's epoch goes on. For the others it has ended.
    match rank {
        0 => engine.win_fence(window).unwrap(),
        _ => engine.win_fence_last(window).unwrap(),
    }
    engine.barrier(world).unwrap();
    if rank == 0 {
        engine.put(&[8u64], Rank(2), 4, window).unwrap();
    }
    let mut expected = vec![u64::from(rank); 10];
    expected[3] = 7;
    let taken = engine.win_take::<Vec<u64>>(window);
    match rank {
        0 => assert_eq!(back(taken, "no epoch open for this rank"), expected),
        _ => assert_eq!(taken.unwrap(), Some(expected)),
    }
    refused(engine.win_free(window), "has been freed");
}

#[test]
fn a_group_that_is_not_within_the_window_is_refused() {
    each_rank(3, Over::Shm, |engine: &mut Engine, rank, world| {
        let pair = engine.comm_split(world, Some(rank / 2), 0).unwrap().unwrap();
        let window = engine.win_allocate::<u8>(1, pair).unwrap();
        let all: Group = engine.comm_group(world).unwrap();
        refused(engine.win_post(&all, window), "proc");
        let started: Result<(), WindowError> = engine.win_start(&all, window);
        refused(started, "proc");
        // Neither has begun an epoch.
        engine.win_fence_last(window).unwrap();
        engine.win_free(window).unwrap();
    });
}
