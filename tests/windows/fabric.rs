//! Windows over fabrics: a fabric moves what is put and got, and the target's engine does the rest.

use crate::kit::{FABRICS, each_rank, next, own, values, windows};
use tickwire::{AtomicsDomain, LockKind, Rank, WindowReach, op};

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
