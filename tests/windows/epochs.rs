//! Epochs: which operations they order, and which ranks they exclude.

use crate::kit::{ALL, Over, PATIENCE, SHARED, compute_until, each_rank, next, own, refused, values, windows};
use crate::typed::puts_and_gets_of_many_runs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tickwire::{AtomicsDomain, Datatype, Engine, Group, LockKind, Rank, RequestError, Typed, Window, WindowReach, op};

#[test]
fn exclusive_locks_keep_others_out() {
    for over in ALL {
        let rounds = if over == Over::Short { 30 } else { 200 };
        each_rank(4, over, |engine, _, world| {
            for window in windows(engine, 2, world) {
                for _ in 0..rounds {
                    engine.win_lock(LockKind::Exclusive, Rank(0), window).unwrap();
                    // Neither the get nor the put is atomic. Only the lock keeps other ranks out in between.
                    let mut halves = [0; 2];
                    engine.get(&mut halves, Rank(0), 0, window).unwrap();
                    assert_eq!(halves[0], halves[1], "somebody is half done");
                    engine.put(&[halves[0] + 1], Rank(0), 0, window).unwrap();
                    engine.put(&[halves[1] + 1], Rank(0), 1, window).unwrap();
                    engine.win_unlock(Rank(0), window).unwrap();
                }
                engine.barrier(world).unwrap();
                engine.win_lock(LockKind::Shared, Rank(0), window).unwrap();
                let mut halves = [0; 2];
                engine.get(&mut halves, Rank(0), 0, window).unwrap();
                engine.win_unlock(Rank(0), window).unwrap();
                assert_eq!(halves, [4 * rounds; 2]);
                engine.win_free(window).unwrap();
            }
        });
    }
}

#[test]
fn shared_locks_are_held_together_and_the_owner_waits_for_them() {
    for over in [Over::Shm, Over::Loopback] {
        each_rank(3, over, |engine, rank, world| {
            for window in windows(engine, 4, world) {
                if rank > 0 {
                    engine.win_lock(LockKind::Shared, Rank(0), window).unwrap();
                }
                // All ranks hold the shared lock at the same time.
                engine.barrier(world).unwrap();
                if rank > 0 {
                    engine.put(&[u64::from(rank)], Rank(0), rank as usize, window).unwrap();
                    engine.win_unlock(Rank(0), window).unwrap();
                } else {
                    let part = engine.win_exclusive(window).unwrap();
                    assert_eq!(part[1..3], [1, 2], "it is held once they are done");
                }
                engine.barrier(world).unwrap();
                engine.win_free(window).unwrap();
            }
        });
    }
}

#[test]
fn posted_epochs_are_met_by_started_ones() {
    for over in ALL {
        each_rank(3, over, |engine, rank, world| {
            let group = engine.comm_group(world).unwrap();
            let [before, behind] = [(rank + 2) % 3, (rank + 1) % 3].map(|rank| group.include(&[rank]).unwrap());
            for window in windows(engine, 1, world) {
                for round in 1..20 {
                    engine.win_post(&before, window).unwrap();
                    refused(engine.win_post(&before, window), "an exposure epoch is posted");
                    engine.win_start(&behind, window).unwrap();
                    refused(engine.put(&[1], Rank((rank + 2) % 3), 0, window), "no epoch is open");
                    engine.accumulate(&[round], op::Sum, next(rank, 3), 0, window).unwrap();
                    engine.win_complete(window).unwrap();
                    if round % 2 == 0 {
                        engine.win_wait(window).unwrap();
                    } else {
                        while !engine.win_test(window).unwrap() {
                            engine.tick();
                        }
                    }
                    assert_eq!(own(engine, 1, window), [(1..=round).sum::<u64>()]);
                }
                engine.win_free(window).unwrap();
            }
            let nobody: Group = group.include(&[]).unwrap();
            let window = engine.win_allocate::<u64>(1, world).unwrap();
            engine.win_post(&nobody, window).unwrap();
            engine.win_wait(window).unwrap();
            engine.win_free(window).unwrap();
        });
    }
}

#[test]
fn an_epoch_of_a_fence_ends_by_a_lock_if_nothing_was_done_in_it() {
    each_rank(2, Over::Shm, |engine, rank, world| {
        let window = engine.win_allocate::<u64>(1, world).unwrap();
        let other = Rank(1 - rank);
        engine.win_fence(window).unwrap();
        refused(engine.win_exclusive(window).map(drop), "a fence's epoch is open");
        engine.win_lock_all(window).unwrap();
        refused(engine.win_exclusive(window).map(drop), "win_exclusive is not possible while");
        engine.win_unlock_all(window).unwrap();
        engine.win_lock(LockKind::Exclusive, other, window).unwrap();
        engine.put(&[5], other, 0, window).unwrap();
        engine.win_unlock(other, window).unwrap();
        engine.win_fence(window).unwrap();
        engine.put(&[6], other, 0, window).unwrap();
        refused(engine.win_lock(LockKind::Shared, other, window), "a fence's epoch has operations");
        engine.win_fence_last(window).unwrap();
        assert_eq!(engine.win_exclusive(window).unwrap()[..], [6]);
        refused(engine.put(&[6], other, 0, window), "no epoch is open");
        engine.win_free(window).unwrap();
    });
}

#[test]
fn a_fence_that_one_member_has_left_keeps_its_part_shared() {
    each_rank(2, Over::Shm, |engine, rank, world| {
        let window = engine.win_allocate::<u64>(1, world).unwrap();
        engine.win_fence(window).unwrap();
        if rank == 0 {
            engine.win_lock(LockKind::Exclusive, Rank(0), window).unwrap();
            engine.win_unlock(Rank(0), window).unwrap();
            // The other rank may still put, without a lock.
            refused(engine.win_exclusive(window).map(drop), "a fence's epoch is open");
        }
        engine.barrier(world).unwrap();
        if rank == 1 {
            engine.put(&[5], Rank(0), 0, window).unwrap();
        }
        engine.win_fence_last(window).unwrap();
        assert_eq!(engine.win_exclusive(window).unwrap()[..], [if rank == 0 { 5 } else { 0 }]);
        engine.win_free(window).unwrap();
    });
}

#[test]
fn a_target_that_is_asked_admits_only_who_is_in_an_epoch() {
    for over in [Over::Loopback, Over::Short] {
        each_rank(2, over, |engine, rank, world| {
            for window in windows(engine, 1, world) {
                let not_exposed = "the target has no epoch open for this rank";
                engine.win_fence(window).unwrap();
                // One rank believes that a fence's epoch goes on, and the other one that it has ended.
                if rank == 0 {
                    engine.win_fence(window).unwrap();
                    // The other rank may be the last one to leave the fence, and admits this one until then.
                    engine.barrier(world).unwrap();
                    engine.put(&[5], Rank(1), 0, window).unwrap();
                    refused(engine.win_flush(Rank(1), window), not_exposed);
                    refused(engine.get(&mut [0], Rank(1), 0, window), not_exposed);
                    let request = engine.raccumulate(vec![5], op::Sum, Rank(1), 0, window).unwrap();
                    assert_eq!(engine.wait(&request), Err(RequestError::NotExposed));
                } else {
                    engine.win_fence_last(window).unwrap();
                    engine.barrier(world).unwrap();
                }
                engine.win_fence_last(window).unwrap();
                assert_eq!(own(engine, 1, window), [0]);
                // It admits who has the lock, and who is in a posted epoch.
                let group = engine.comm_group(world).unwrap().include(&[1 - rank]).unwrap();
                if rank == 0 {
                    engine.win_lock(LockKind::Shared, Rank(1), window).unwrap();
                    engine.put(&[6], Rank(1), 0, window).unwrap();
                    engine.win_unlock(Rank(1), window).unwrap();
                    engine.win_start(&group, window).unwrap();
                    engine.accumulate(&[1], op::Sum, Rank(1), 0, window).unwrap();
                    engine.win_complete(window).unwrap();
                } else {
                    engine.win_post(&group, window).unwrap();
                    engine.win_wait(window).unwrap();
                    assert_eq!(own(engine, 1, window), [7]);
                }
                engine.win_free(window).unwrap();
            }
        });
    }
}

#[test]
fn an_exposure_epoch_goes_on_for_those_that_have_not_failed() {
    let (told, left) = (AtomicBool::new(false), AtomicBool::new(false));
    each_rank(3, Over::Shm, |engine, rank, world| {
        let window = engine.win_allocate::<u64>(1, world).unwrap();
        let group = engine.comm_group(world).unwrap();
        let start = Instant::now();
        let wait_for = |engine: &mut Engine, what: &AtomicBool| {
            while !what.load(Ordering::Acquire) {
                assert!(start.elapsed() < PATIENCE, "rank {rank} waits");
                engine.tick();
            }
        };
        if rank == 0 {
            engine.win_post(&group.include(&[1, 2]).unwrap(), window).unwrap();
            let failed = loop {
                match engine.win_test(window) {
                    Ok(over) => assert!(!over, "nobody has completed"),
                    Err(error) => break error,
                }
                assert!(start.elapsed() < PATIENCE, "nobody has failed");
                engine.tick();
            };
            assert!(failed.to_string().contains("proc 1"), "{failed}");
            refused(engine.win_exclusive(window).map(drop), "an exposure epoch is posted");
            told.store(true, Ordering::Release);
            while !engine.win_test(window).unwrap() {
                assert!(start.elapsed() < PATIENCE, "the other one does not complete");
                engine.tick();
            }
            assert_eq!(engine.win_exclusive(window).unwrap()[..], [7]);
            left.store(true, Ordering::Release);
        } else {
            engine.win_start(&group.include(&[0]).unwrap(), window).unwrap();
            if rank == 1 {
                let _ = engine.finalize(PATIENCE);
                return;
            }
            wait_for(engine, &told);
            engine.put(&[7], Rank(0), 0, window).unwrap();
            engine.win_complete(window).unwrap();
            wait_for(engine, &left);
        }
    });
}

#[test]
fn the_own_part_is_not_lent_after_a_fence_that_a_failed_member_cannot_end() {
    each_rank(2, Over::Shm, |engine, rank, world| {
        let window = engine.win_allocate::<u64>(1, world).unwrap();
        engine.win_fence(window).unwrap();
        if rank == 1 {
            let _ = engine.finalize(PATIENCE);
            return;
        }
        engine.win_fence_last(window).unwrap_err();
        refused(engine.win_exclusive(window).map(drop), "a failed member cannot end: use win_read");
        let mut own = [1];
        engine.win_read(&mut own, 0, window).unwrap();
        assert_eq!(own, [0]);
    });
}

#[test]
fn a_target_that_computes_is_not_waited_for_in_memory_that_it_has_attached() {
    SHARED.into_iter().for_each(computes_with_attached_memory);
}

fn computes_with_attached_memory(over: Over) {
    const COUNT: usize = 50_000;
    let is_done = AtomicBool::new(false);
    let reach = if over != Over::Process { WindowReach::Kernel } else { WindowReach::Memory };
    each_rank(2, over, |engine, rank, world| {
        let window = engine.win_create_dynamic(world).unwrap();
        assert_eq!(engine.win_domain(window), Ok(AtomicsDomain::Lock));
        // There is more than one run, and one run is detached.
        let gone = engine.win_attach(vec![0u64; 10], window).unwrap();
        let others = engine.win_attach(vec![9u64; 10], window).unwrap();
        let at = engine.win_attach(vec![0u64; COUNT], window).unwrap();
        assert!(engine.win_detach::<Vec<u64>>(gone, window).unwrap().is_some());
        let mut places = [0usize; 2];
        engine.allgather(&[at], &mut places, world).unwrap();
        engine.win_lock_all(window).unwrap();
        engine.barrier(world).unwrap();
        if rank == 0 {
            let (words, at) = (window.cast::<u64>(), places[1] / size_of::<u64>());
            assert_eq!(engine.win_reach(Rank(1), window), Ok(reach));
            engine.put(values(0, COUNT), Rank(1), at, words).unwrap();
            engine.win_flush(Rank(1), window).unwrap();
            engine.accumulate(&vec![2; COUNT], op::Sum, Rank(1), at, words).unwrap();
            let old = engine.fetch_and_op(5, op::Sum, Rank(1), at + 1, words).unwrap();
            assert_eq!(old, values(0, 2)[1] + 2);
            assert_eq!(engine.compare_and_swap(old + 5, 7, Rank(1), at + 1, words).unwrap(), old + 5);
            let put = engine.rput(vec![1u64; 3], Rank(1), at + COUNT - 3, words).unwrap();
            engine.wait_take(put).unwrap();
            let mut got = vec![0; COUNT];
            engine.get(&mut got, Rank(1), at, words).unwrap();
            let mut expected: Vec<u64> = values(0, COUNT).into_iter().map(|value| value + 2).collect();
            expected[1] = 7;
            expected[COUNT - 3..].fill(1);
            assert!(got == expected);
            puts_and_gets_of_many_runs(engine, words, at);
            is_done.store(true, Ordering::Release);
        } else {
            compute_until(&is_done);
        }
        engine.barrier(world).unwrap();
        engine.win_unlock_all(window).unwrap();
        assert_eq!(engine.win_detach::<Vec<u64>>(others, window).unwrap().unwrap(), [9; 10]);
        engine.win_free(window).unwrap();
    });
}

#[test]
fn a_target_that_computes_is_not_waited_for_on_its_host() {
    SHARED.into_iter().chain([Over::Copied]).for_each(computes);
}

fn computes(over: Over) {
    let is_done = [[(); 2]; 2].map(|phases| phases.map(|()| AtomicBool::new(false)));
    each_rank(2, over, |engine, rank, world| {
        for (window, [has_locked, is_done]) in windows(engine, 3 * RUNS, world).into_iter().zip(&is_done) {
            // While the target computes it makes no call. It enters its barriers only later.
            engine.barrier(world).unwrap();
            if rank == 0 {
                locks_part_of_one_that_computes(engine, window);
                has_locked.store(true, Ordering::Release);
            } else {
                compute_until(has_locked);
            }
            engine.win_lock_all(window).unwrap();
            engine.barrier(world).unwrap();
            if rank == 0 {
                uses_part_of_one_that_computes(engine, window);
                is_done.store(true, Ordering::Release);
            } else {
                compute_until(is_done);
            }
            engine.barrier(world).unwrap();
            engine.win_unlock_all(window).unwrap();
            engine.win_free(window).unwrap();
        }
    });
}

/// Runs of three elements in a part of a rank that computes.
const RUNS: usize = 10_000;

fn locks_part_of_one_that_computes(engine: &mut Engine, window: Window<u64>) {
    for round in 1..=3 {
        engine.win_lock(LockKind::Exclusive, Rank(1), window).unwrap();
        let mut found = [9];
        engine.get(&mut found, Rank(1), 0, window).unwrap();
        assert_eq!(found, [round - 1]);
        engine.put(&[round], Rank(1), 0, window).unwrap();
        engine.win_unlock(Rank(1), window).unwrap();
        engine.win_lock(LockKind::Shared, Rank(1), window).unwrap();
        engine.get(&mut found, Rank(1), 0, window).unwrap();
        engine.win_unlock(Rank(1), window).unwrap();
        assert_eq!(found, [round]);
    }
}

fn uses_part_of_one_that_computes(engine: &mut Engine, window: Window<u64>) {
    // The runs are adjacent.
    for at in 0..RUNS {
        let at = 3 * at as u64;
        engine.put(&[at, at + 1, at + 2], Rank(1), at as usize, window).unwrap();
    }
    engine.win_flush(Rank(1), window).unwrap();
    let mut got = vec![0; 3 * RUNS];
    engine.get(&mut got, Rank(1), 0, window).unwrap();
    assert!(got.iter().copied().eq(0..3 * RUNS as u64));
    for _ in 0..100 {
        engine.accumulate(&[2; 1_000], op::Sum, Rank(1), 0, window).unwrap();
    }
    assert_eq!(engine.compare_and_swap(2_000, 5, Rank(1), 2_000, window), Ok(2_000));
    assert_eq!(engine.compare_and_swap(2_000, 6, Rank(1), 2_000, window), Ok(5), "another value is there");
    // Every second element goes to two of every five.
    let from = Datatype::vector(6, 1, 2, &Datatype::of::<u64>()).unwrap();
    let to = Datatype::vector(3, 2, 5, &Datatype::of::<u64>()).unwrap();
    let sent = Typed::new((100..112u64).collect::<Vec<_>>(), &from, 1).unwrap();
    engine.put_typed(&sent, Rank(1), 3_000, (&to, 1), window).unwrap();
    engine.win_flush(Rank(1), window).unwrap();
    engine.get(&mut got, Rank(1), 0, window).unwrap();
    assert_eq!((got[0], got[7], got[1_000], got[2_000]), (200, 207, 1_000, 5));
    let put = [100, 102, 3_002, 3_003, 3_004, 104, 106, 3_007, 3_008, 3_009, 108, 110, 3_012];
    assert_eq!(got[3_000..3_013], put);
    puts_and_gets_of_many_runs(engine, window, 0);
}

#[test]
fn of_two_that_put_and_flush_at_once_one_sees_what_the_other_has_put() {
    const ROUNDS: usize = 20_000;
    for over in SHARED {
        each_rank(2, over, |engine, rank, world| {
            // Each round has a cache line of its own for each rank.
            let window = engine.win_allocate::<u64>(16 * ROUNDS, world).unwrap();
            engine.win_lock_all(window).unwrap();
            let mut seen = vec![0; ROUNDS];
            for (round, seen) in seen.iter_mut().enumerate() {
                let word = |of: u32| 8 * (2 * round + of as usize);
                // The line of the other is near, and the own one has to be fetched: a put takes longer than a get.
                engine.get(std::slice::from_mut(seen), Rank(0), word(1 - rank), window).unwrap();
                engine.barrier(world).unwrap();
                engine.put(&[1], Rank(0), word(rank), window).unwrap();
                engine.win_flush(Rank(0), window).unwrap();
                engine.get(std::slice::from_mut(seen), Rank(0), word(1 - rank), window).unwrap();
                engine.win_flush(Rank(0), window).unwrap();
            }
            engine.win_unlock_all(window).unwrap();
            let mut all = vec![0; 2 * ROUNDS];
            engine.allgather(&seen, &mut all, world).unwrap();
            let blind = (0..ROUNDS).filter(|round| all[*round] + all[ROUNDS + round] == 0).count();
            assert_eq!(blind, 0, "{over:?}: rounds in which neither has seen the other's put");
            engine.win_free(window).unwrap();
        });
    }
}
