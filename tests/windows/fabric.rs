//! Windows over fabrics. The fabric does puts and gets, and the target's engine does all other operations.

use crate::kit::{FABRICS, PATIENCE, each_of, each_rank, next, over_fabric, own, values, windows};
use crate::regions::exposed;
use std::time::Instant;
use tickwire::testing::rows;
use tickwire::{AtomicsDomain, Comm, Engine, LockKind, ProcId, Rank, RegionAccess, Request, Tag, WindowReach, op};

#[test]
fn a_fabric_moves_what_is_put_and_got() {
    for over in FABRICS {
        each_rank(3, over, |engine, rank, world| {
            for window in windows(engine, 100_001, world) {
                let to = next(rank, 3);
                assert_eq!(engine.win_reach(to, window), Ok(WindowReach::Fabric), "{over:?}");
                assert_eq!(engine.win_domain(window), Ok(AtomicsDomain::Engine));
                let from = (rank + 2) % 3;
                for count in [0, 1, 7, 1_000, 100_000] {
                    engine.win_fence(window).unwrap();
                    engine.put(values(rank, count), to, 1, window).unwrap();
                    engine.win_fence(window).unwrap();
                    assert_eq!(own(engine, count + 1, window)[1..], values(from, count), "{over:?} {count}");
                    let mut got = vec![0; count];
                    engine.get(&mut got, Rank(from), 1, window).unwrap();
                    assert_eq!(got, values((from + 2) % 3, count));
                }
                engine.win_fence_last(window).unwrap();
                let counts = engine.win_counts(to, window).unwrap();
                assert_eq!((counts.issued, counts.completed), (5, 5));
                engine.win_free(window).unwrap();
            }
        });
    }
}

#[test]
fn a_member_without_memory_of_its_own_reaches_that_of_others_by_the_fabric() {
    for over in FABRICS {
        each_rank(2, over, |engine, rank, world| {
            let window = engine.win_allocate::<u64>([0, 64][rank as usize], world).unwrap();
            if rank == 0 {
                assert_eq!(engine.win_reach(Rank(1), window), Ok(WindowReach::Fabric), "{over:?}");
            }
            engine.win_fence(window).unwrap();
            if rank == 0 {
                engine.put(values(0, 60), Rank(1), 4, window).unwrap();
            }
            engine.win_fence_last(window).unwrap();
            if rank == 1 {
                assert_eq!(own(engine, 64, window)[4..], values(0, 60));
            }
            engine.win_free(window).unwrap();
        });
    }
}

#[test]
fn locks_and_updates_go_beside_what_a_fabric_moves() {
    for over in FABRICS {
        each_rank(3, over, |engine, rank, world| {
            let window = engine.win_allocate::<u64>(3, world).unwrap();
            for _ in 0..30 {
                engine.win_lock(LockKind::Exclusive, Rank(0), window).unwrap();
                let mut halves = [0; 2];
                engine.get(&mut halves, Rank(0), 0, window).unwrap();
                assert_eq!(halves[0], halves[1], "somebody is half done");
                engine.put(&[halves[0] + 1, halves[1] + 1], Rank(0), 0, window).unwrap();
                engine.fetch_and_op(1, op::Sum, Rank(0), 2, window).unwrap();
                engine.win_unlock(Rank(0), window).unwrap();
            }
            engine.barrier(world).unwrap();
            if rank == 0 {
                assert_eq!(engine.win_exclusive(window).unwrap()[..], [90, 90, 90]);
            }
            engine.win_free(window).unwrap();
        });
    }
}

#[test]
fn without_contexts_the_targets_engine_does_all_operations() {
    for provider in ["tcp;ofi_rxm", "sockets"] {
        each_of(2, |_| over_fabric(provider, 0), without_contexts);
    }
}

fn without_contexts(engine: &mut Engine, rank: u32, world: Comm) {
    let other = Rank(1 - rank);
    for window in windows(engine, 1_001, world) {
        assert_eq!(engine.win_reach(other, window), Ok(WindowReach::Engine));
        assert_eq!(engine.win_domain(window), Ok(AtomicsDomain::Engine));
        engine.win_lock_all(window).unwrap();
        engine.put(values(rank, 1_000), other, 1, window).unwrap();
        engine.win_flush(other, window).unwrap();
        let mut got = vec![0; 1_000];
        engine.get(&mut got, other, 1, window).unwrap();
        assert_eq!(got, values(rank, 1_000));
        assert_eq!([3, 4].map(|add| engine.fetch_and_op(add, op::Sum, other, 0, window).unwrap()), [0, 3]);
        engine.win_unlock_all(window).unwrap();
        engine.barrier(world).unwrap();
        assert_eq!(own(engine, 1_001, window), [vec![7], values(other.0, 1_000)].concat());
        engine.win_free(window).unwrap();
    }
    let (region, keys) = exposed(engine, 1_001, RegionAccess::ALL, world);
    let key = &keys[other.0 as usize];
    assert_eq!(engine.region_reach(key), Ok(WindowReach::Engine));
    engine.region_put(values(rank, 1_000), key, 8).unwrap();
    engine.region_flush(ProcId(other.0)).unwrap();
    let mut got = vec![0; 1_000];
    engine.region_get(&mut got, key, 8).unwrap();
    assert_eq!(got, values(rank, 1_000));
    assert_eq!([3u64, 4].map(|add| engine.region_fetch_and_op(add, op::Sum, key, 0).unwrap()), [0, 3]);
    engine.barrier(world).unwrap();
    assert_eq!(engine.withdraw(region).unwrap(), [vec![7], values(other.0, 1_000)].concat());
}

#[test]
fn windows_over_fabrics_come_and_go() {
    for over in FABRICS {
        each_rank(2, over, |engine, rank, world| {
            for round in 0..20 {
                let window = engine.win_create(vec![0u64; 64], world).unwrap();
                engine.win_lock(LockKind::Shared, Rank(1 - rank), window).unwrap();
                engine.put(&[round; 64], Rank(1 - rank), 0, window).unwrap();
                engine.win_unlock(Rank(1 - rank), window).unwrap();
                engine.barrier(world).unwrap();
                assert_eq!(engine.win_take::<Vec<u64>>(window).unwrap(), Some(vec![round; 64]));
            }
        });
    }
}

/// Ticks until a request is done. Returns how many frames were sent meanwhile.
fn frames_until(engine: &mut Engine, request: &Request<Vec<u64>>) -> u64 {
    let (start, mut sent) = (Instant::now(), 0);
    loop {
        sent += u64::from(engine.tick().sent);
        if engine.test(request).unwrap().is_done() {
            return sent;
        }
        assert!(start.elapsed() < PATIENCE, "it is done");
    }
}

/// Ticks and serves the operations of the other ranks until they have finished.
fn serve(engine: &mut Engine, world: Comm) {
    let end = engine.irecv([0u8], Rank(0), Tag(9), world).unwrap();
    engine.wait_take(end).unwrap();
}

#[test]
fn requests_of_puts_and_gets_are_carried_by_the_fabric_and_need_no_frame() {
    const COUNT: usize = 50_000;
    for over in FABRICS {
        each_rank(2, over, |engine, rank, world| {
            let window = engine.win_allocate::<u64>(COUNT, world).unwrap();
            let region = engine.expose(vec![0u64; COUNT], RegionAccess::ALL).unwrap();
            let mut keys = [region.key(); 2];
            engine.allgather(&[region.key()], &mut keys, world).unwrap();
            engine.win_lock_all(window).unwrap();
            engine.barrier(world).unwrap();
            if rank == 1 {
                serve(engine, world);
            } else {
                // These ticks complete the earlier operations.
                (0..1000).for_each(|_| _ = engine.tick());
                let mut sent = 0;
                for count in [0, 1, 512, 1_000, COUNT] {
                    let bytes = values(count as u32, count);
                    let put = engine.rput(bytes.clone(), Rank(1), 0, window).unwrap();
                    sent += frames_until(engine, &put);
                    engine.take(put).unwrap();
                    let got = engine.rget(vec![0; count], Rank(1), 0, window).unwrap();
                    sent += frames_until(engine, &got);
                    assert!(engine.take(got).unwrap().0 == bytes, "{over:?} {count}");
                    let put = engine.region_rput(bytes.clone(), &keys[1], 0).unwrap();
                    sent += frames_until(engine, &put);
                    engine.take(put).unwrap();
                    let got = engine.region_rget(vec![0; count], &keys[1], 0).unwrap();
                    sent += frames_until(engine, &got);
                    assert!(engine.take(got).unwrap().0 == bytes, "{over:?} {count}");
                }
                assert_eq!(sent, 0, "{over:?}: by frames");
                let counts = engine.win_counts(Rank(1), window).unwrap();
                assert_eq!((counts.issued, counts.completed), (10, 10));
                // For comparison: the target's engine does this operation.
                let update = engine.raccumulate(vec![1; 10], op::Sum, Rank(1), 0, window).unwrap();
                assert!(frames_until(engine, &update) > 0);
                engine.take(update).unwrap();
                engine.send(&[1u8], Rank(1), Tag(9), world).unwrap();
            }
            engine.win_unlock_all(window).unwrap();
            engine.win_free(window).unwrap();
            engine.barrier(world).unwrap();
            engine.withdraw(region).unwrap();
        });
    }
}

#[test]
fn a_flush_waits_for_what_has_a_request_too_and_many_may_be_open() {
    for over in FABRICS {
        each_rank(2, over, |engine, rank, world| {
            const OPEN: usize = 700;
            let window = engine.win_allocate::<u64>(OPEN, world).unwrap();
            let other = Rank(1 - rank);
            engine.win_lock_all(window).unwrap();
            let puts: Vec<_> =
                (0..OPEN).map(|at| engine.rput(vec![at as u64 + 1; 1], other, at, window).unwrap()).collect();
            engine.win_flush(other, window).unwrap();
            for put in puts {
                assert!(engine.test(&put).unwrap().is_done(), "{over:?}: it was flushed");
                engine.take(put).unwrap();
            }
            let mut found = vec![0; OPEN];
            engine.get(&mut found, other, 0, window).unwrap();
            assert!(found.into_iter().eq(1..=OPEN as u64));
            engine.win_unlock_all(window).unwrap();
            engine.win_free(window).unwrap();
        });
    }
}

/// A put that has failed may be taken in part by then. Only its origin knows, so it says so when the window is freed.
#[test]
fn memory_into_which_a_put_that_has_failed_may_still_come_stays_in_use() {
    for over in FABRICS {
        each_rank(2, over, |engine, rank, world| {
            for lost in [false, true] {
                let window = engine.win_create(vec![u64::from(rank); 4], world).unwrap();
                engine.win_fence(window).unwrap();
                engine.put(&[7], Rank(1 - rank), 0, window).unwrap();
                engine.win_fence_last(window).unwrap();
                if lost && rank == 1 {
                    let windows = rows(engine).windows;
                    windows.get(window.handle).unwrap().targets[0].has_lost_put = true;
                }
                let taken = engine.win_take::<Vec<u64>>(window);
                if lost && rank == 0 {
                    let rejected = taken.unwrap_err();
                    assert!(
                        rejected.buffer.is_none() && rejected.to_string().contains("may still arrive"),
                        "{rejected}"
                    );
                } else {
                    assert_eq!(taken.unwrap().unwrap()[0], 7);
                }
                engine.barrier(world).unwrap();
            }
        });
    }
}
