//! Windows: memory that other ranks read, write and update.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod batches;
mod copies;
mod deaths;
mod epochs;
mod fabric;
mod keys;
mod kit;
mod layouts;
mod lost;
mod many;
mod model;
mod mutexes;
mod nobody;
mod process;
mod refusals;
mod regions;
mod requests;
mod shortage;
mod typed;
mod updates;
mod withdrawals;

use kit::{ALL, Over, SHARED, each_rank, next, own, refused, values, windows};
use tickwire::{AtomicsDomain, Comm, Engine, LockKind, Rank, Window, WindowError, WindowReach, op};

/// Elements of a part: none, one word, a few words, one request, several requests, and many requests.
const COUNTS: [usize; 6] = [0, 1, 3, 500, 5_000, 100_000];

#[test]
fn what_is_put_is_there_after_a_fence_and_can_be_got() {
    for over in ALL {
        for size in [1, 2, 3] {
            each_rank(size, over, |engine, rank, world| {
                for count in COUNTS {
                    for window in windows(engine, count + 1, world) {
                        let sent = values(rank, count);
                        engine.win_fence(window).unwrap();
                        engine.put(&sent, next(rank, size), 1, window).unwrap();
                        engine.win_fence(window).unwrap();
                        let from = (rank + size - 1) % size;
                        assert_eq!(own(engine, count + 1, window)[1..], values(from, count), "{over:?} {count}");
                        let mut got = vec![0; count];
                        engine.get(&mut got, Rank(from), 1, window).unwrap();
                        engine.win_fence(window).unwrap();
                        assert_eq!(got, values((from + size - 1) % size, count));
                        engine.win_free(window).unwrap();
                    }
                }
            });
        }
    }
}

#[test]
fn a_window_says_how_its_parts_are_reached() {
    let reaches = |engine: &mut Engine, world: Comm, rank: u32| {
        windows(engine, 8, world).map(|window| {
            let reaches = [0, 1].map(|other| engine.win_reach(Rank(other), window).unwrap());
            assert_eq!(reaches[rank as usize], WindowReach::Memory, "the own part");
            let domain = engine.win_domain(window).unwrap();
            assert_eq!(engine.win_len(Rank(1 - rank), window), Ok(8));
            engine.win_free(window).unwrap();
            (reaches[1 - rank as usize], domain)
        })
    };
    each_rank(2, Over::Shm, |engine, rank, world| {
        let [allocated, created] = reaches(engine, world, rank);
        assert_eq!(allocated, (WindowReach::Memory, AtomicsDomain::Processor));
        assert_eq!(created, (WindowReach::Kernel, AtomicsDomain::Lock));
    });
    each_rank(2, Over::Copied, |engine, rank, world| {
        assert_eq!(reaches(engine, world, rank), [(WindowReach::Memory, AtomicsDomain::Processor); 2]);
        let longest = engine.limits().window_copy_max;
        for (bytes, reach) in [(longest, WindowReach::Memory), (longest + 1, WindowReach::Kernel)] {
            let window = engine.win_create(vec![0u8; bytes], world).unwrap();
            assert_eq!(engine.win_reach(Rank(1 - rank), window), Ok(reach), "{bytes} B");
            engine.win_free(window).unwrap();
        }
    });
    each_rank(2, Over::SomeCopied, |engine, rank, world| {
        let [_, created] = reaches(engine, world, rank);
        let reach = [WindowReach::Memory, WindowReach::Kernel][rank as usize];
        assert_eq!(created, (reach, AtomicsDomain::Lock), "rank {rank}");
    });
    for over in [Over::Heap, Over::Process] {
        each_rank(2, over, |engine, rank, world| {
            let [allocated, created] = reaches(engine, world, rank);
            assert_eq!(allocated, (WindowReach::Memory, AtomicsDomain::Processor), "{over:?}");
            assert_eq!(created, (WindowReach::Memory, AtomicsDomain::Lock), "{over:?}");
        });
    }
    for over in [Over::Loopback, Over::Short] {
        each_rank(2, over, |engine, rank, world| {
            assert_eq!(reaches(engine, world, rank), [(WindowReach::Engine, AtomicsDomain::Engine); 2]);
        });
    }
}

#[test]
fn requests_are_done_when_their_elements_are_there() {
    for over in ALL {
        each_rank(2, over, |engine, rank, world| {
            for window in windows(engine, 3_000, world) {
                engine.win_lock_all(window).unwrap();
                let other = Rank(1 - rank);
                let put = engine.rput(values(rank, 3_000), other, 0, window).unwrap();
                assert_eq!(engine.wait_take(put).unwrap().0, values(rank, 3_000));
                let got = engine.rget(vec![0; 3_000], other, 0, window).unwrap();
                assert_eq!(engine.wait_take(got).unwrap().0, values(rank, 3_000));
                let added = engine.raccumulate(vec![1; 3_000], op::Sum, other, 0, window).unwrap();
                engine.wait_take(added).unwrap();
                let both = engine.rget_accumulate(vec![2; 3_000], vec![0; 3_000], op::Sum, other, 0, window).unwrap();
                let (_, old) = engine.wait_take(both).unwrap().0;
                assert!(old.iter().zip(values(rank, 3_000)).all(|(old, sent)| *old == sent + 1));
                let counts = engine.win_counts(other, window).unwrap();
                assert_eq!((counts.issued, counts.completed), (4, 4));
                engine.win_unlock_all(window).unwrap();
                engine.win_free(window).unwrap();
            }
        });
    }
}

#[test]
fn wrong_use_is_an_error_and_changes_nothing() {
    for over in [Over::Shm, Over::Loopback] {
        each_rank(2, over, |engine, rank, world| {
            for window in windows(engine, 4, world) {
                let other = Rank(1 - rank);
                refused(engine.put(&[1], other, 0, window), "no epoch is open towards rank");
                refused(engine.get(&mut [1], other, 0, window), "no epoch is open");
                refused(engine.accumulate(&[1], op::Sum, other, 0, window), "no epoch is open");
                refused(
                    engine.rput(vec![1], other, 0, window).map(drop).map_err(|back| back.error),
                    "no epoch is open",
                );
                refused(
                    engine.rget(vec![1], other, 0, window).map(drop).map_err(|back| back.error),
                    "no epoch is open",
                );
                refused(engine.fetch_and_op(1, op::Sum, other, 0, window).map(drop), "no epoch is open");
                refused(engine.compare_and_swap(0, 1, other, 0, window).map(drop), "no epoch is open");
                refused(engine.win_flush(other, window), "no epoch is open");
                refused(engine.win_flush_local(other, window), "no epoch is open");
                refused(
                    engine.win_flush_all(window),
                    "no epoch is open: lock a rank, lock all, fence, or start one before win_flush_all",
                );
                refused(engine.win_flush_local_all(window), "start one before win_flush_local_all");
                refused(engine.win_unlock(other, window), "win_unlock has nothing to end");
                refused(engine.win_unlock_all(window), "win_unlock_all has nothing to end");
                refused(engine.win_complete(window), "win_complete has nothing to end");
                refused(engine.win_wait(window), "win_wait has nothing to end");
                engine.win_lock(LockKind::Shared, other, window).unwrap();
                refused(engine.win_lock(LockKind::Shared, other, window), "not possible while the rank is locked");
                refused(engine.win_lock_all(window), "while a rank is locked");
                refused(engine.win_fence(window), "while a rank is locked");
                refused(engine.put(&[1, 2], other, 3, window), "bytes 24 to 40 are not within the 32 bytes");
                refused(engine.put(&[1], other, usize::MAX / 4, window), "not within");
                refused(engine.get(&mut [1; 5], other, 0, window), "not within");
                refused(engine.put(&[1], Rank(2), 0, window), "rank 2 is out of range");
                let swapped = engine.compare_and_swap(0, 1, other, 4, window);
                refused(swapped.map(drop), "not within");
                refused(engine.win_free(window), "win_free is not possible while a rank is locked");
                refused(engine.win_flush(Rank(rank), window), "no epoch is open");
                engine.win_flush_all(window).unwrap();
                engine.win_unlock(other, window).unwrap();
                engine.win_lock_all(window).unwrap();
                refused(engine.win_lock_all(window), "while all ranks are locked");
                engine.win_unlock_all(window).unwrap();
                assert_eq!(
                    engine.win_counts(other, window).unwrap().issued,
                    engine.win_counts(other, window).unwrap().completed
                );
                engine.win_free(window).unwrap();
                refused(engine.put(&[1], other, 0, window), "has been freed");
                refused(engine.win_free(window), "has been freed");
                refused(engine.win_fence(window), "has been freed");
            }
            let refused = engine.win_allocate::<u64>(usize::MAX / 8, world).unwrap_err().to_string();
            assert!(refused.contains("rank 0 has no memory"), "{refused}");
        });
    }
}

#[test]
fn the_buffer_of_a_created_window_comes_back_with_what_others_put() {
    for over in ALL {
        each_rank(3, over, |engine, rank, world| {
            let window: Window<i32> = engine.win_create(vec![-1; 4].into_boxed_slice(), world).unwrap();
            engine.win_lock_all(window).unwrap();
            engine.put(&[rank as i32], next(rank, 3), rank as usize, window).unwrap();
            engine.win_unlock_all(window).unwrap();
            engine.barrier(world).unwrap();
            let back: Box<[i32]> = engine.win_take(window).unwrap().expect("it is the buffer");
            let from = (rank + 2) % 3;
            let expected: Vec<i32> = (0..4).map(|at| if at == from as i32 { at } else { -1 }).collect();
            assert_eq!(*back, expected[..]);
        });
    }
}

#[test]
fn cells_of_all_parts_are_seen_by_all_members_of_a_host() {
    SHARED.into_iter().for_each(cells_are_seen);
    each_rank(2, Over::Loopback, |engine, _, world| {
        let refused = engine.win_allocate_shared::<u32>(1, world).unwrap_err().to_string();
        assert!(refused.contains("not all members share memory"), "{refused}");
    });
}

fn cells_are_seen(over: Over) {
    each_rank(3, over, |engine, rank, world| {
        let window = engine.win_allocate_shared::<u32>(rank as usize + 1, world).unwrap();
        engine.win_lock_all(window).unwrap();
        engine.win_cells(Rank(rank), window).unwrap().set(rank as usize, rank + 10);
        engine.win_sync(window).unwrap();
        engine.barrier(world).unwrap();
        for other in 0..3 {
            let cells = engine.win_cells(Rank(other), window).unwrap();
            assert_eq!((cells.len(), cells.get(other as usize)), (other as usize + 1, other + 10));
        }
        engine.barrier(world).unwrap();
        engine.win_unlock_all(window).unwrap();
        assert!(engine.win_cells(next(rank, 3), window).is_err(), "no epoch is open");
        engine.win_free(window).unwrap();
    });
}

#[test]
fn an_update_that_ends_beyond_attached_memory_updates_no_element_twice() {
    const THERE: usize = 18 << 10;
    for over in ALL {
        each_rank(2, over, |engine, rank, world| {
            let window = engine.win_create_dynamic(world).unwrap();
            let at = engine.win_attach(vec![0u64; THERE / 8], window).unwrap();
            let mut places = [0usize; 2];
            engine.allgather(&[at], &mut places, world).unwrap();
            let other = Rank(1 - rank);
            engine.win_lock(LockKind::Shared, other, window).unwrap();
            let there = places[other.0 as usize] / 8;
            let updated = engine.accumulate(&vec![1u64; (THERE + (2 << 10)) / 8], op::Sum, other, there, window.cast());
            let flushed = engine.win_flush(other, window);
            assert!(updated.and(flushed).unwrap_err().to_string().contains("no such bytes"), "{over:?}");
            engine.win_unlock(other, window).unwrap();
            engine.barrier(world).unwrap();
            let back: Vec<u64> = engine.win_detach(at, window).unwrap().expect("it is the buffer");
            assert!(back.iter().all(|&count| count <= 1), "{over:?}");
            engine.win_free(window).unwrap();
        });
    }
}

#[test]
fn memory_is_attached_and_detached_and_what_is_not_there_is_an_error() {
    for over in ALL {
        each_rank(2, over, |engine, rank, world| {
            let window = engine.win_create_dynamic(world).unwrap();
            let at = engine.win_attach(vec![0u64; 100], window).unwrap();
            let mut places = [0usize; 2];
            engine.allgather(&[at], &mut places, world).unwrap();
            let other = Rank(1 - rank);
            let there = places[other.0 as usize];
            engine.win_lock(LockKind::Exclusive, other, window).unwrap();
            engine.put(&[7u8; 80], other, there + 8, window).unwrap();
            let sum = engine.fetch_and_op(1u64, op::Sum, other, there / 8, window.cast()).unwrap();
            assert_eq!(sum, 0);
            engine.win_unlock(other, window).unwrap();
            engine.barrier(world).unwrap();
            // The target refuses bytes outside of its part, and the flush reports it.
            engine.win_lock(LockKind::Shared, other, window).unwrap();
            let put = engine.put(&[7u8; 80], other, there + 800 - 79, window);
            let flushed = engine.win_flush(other, window);
            assert!(put.and(flushed).unwrap_err().to_string().contains("no such bytes"));
            engine.win_unlock(other, window).unwrap();
            engine.barrier(world).unwrap();
            let back: Vec<u64> = engine.win_detach(at, window).unwrap().expect("it is the buffer");
            assert_eq!((back[0], back[1], back[11]), (1, 0x0707_0707_0707_0707, 0));
            let none = WindowError::NotAttached { displacement: at };
            assert_eq!(engine.win_detach::<Vec<u64>>(at, window), Err(none));
            engine.barrier(world).unwrap();
            engine.win_lock_all(window).unwrap();
            let put = engine.put(&[7u8; 8], other, there, window);
            assert!(put.and(engine.win_flush_all(window)).is_err(), "it was detached");
            engine.win_unlock_all(window).unwrap();
            engine.win_free(window).unwrap();
        });
    }
}
