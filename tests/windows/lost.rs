//! Puts that a fabric has failed to do, and of which it may have taken a part: owners hear of them before the epoch ends.

use crate::kit::{FABRICS, each_rank};
use tickwire::testing::rows;
use tickwire::{Engine, LockKind, Rank, Window, WindowError};

/// A put of this rank at another one has failed.
fn lose(engine: &mut Engine, rank: Rank, window: Window<u64>) {
    let windows = rows(engine).windows;
    windows.get(window.handle).unwrap().targets[rank.0 as usize].has_lost_put = true;
}

/// Whether the own part is lent. It is refused for no other reason than a put that may still arrive.
fn is_lent(engine: &mut Engine, window: Window<u64>) -> bool {
    match engine.win_exclusive(window) {
        Ok(_) => true,
        Err(error @ WindowError::OwnPart { .. }) => {
            assert!(error.to_string().contains("a put that has failed may still write"), "{error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn who_waits_for_the_lock_of_an_origin_hears_of_its_lost_puts() {
    for over in FABRICS {
        for all in [false, true] {
            each_rank(2, over, |engine, rank, world| {
                let window = engine.win_allocate::<u64>(4, world).unwrap();
                assert!(is_lent(engine, window));
                engine.barrier(world).unwrap();
                if rank == 0 {
                    // The other one has the lock by now, and gives it back while this waits.
                    engine.barrier(world).unwrap();
                    assert!(!is_lent(engine, window), "{over:?} {all}");
                } else {
                    let lock = |engine: &mut Engine| match all {
                        true => engine.win_lock_all(window),
                        false => engine.win_lock(LockKind::Exclusive, Rank(0), window),
                    };
                    let unlock = |engine: &mut Engine| match all {
                        true => engine.win_unlock_all(window),
                        false => engine.win_unlock(Rank(0), window),
                    };
                    lock(engine).unwrap();
                    engine.put(&[7], Rank(0), 0, window).unwrap();
                    lose(engine, Rank(0), window);
                    engine.barrier(world).unwrap();
                    unlock(engine).unwrap();
                    // Whoever was refused has given the lock back.
                    lock(engine).unwrap();
                    unlock(engine).unwrap();
                    assert!(is_lent(engine, window), "nothing is lost here");
                }
                engine.barrier(world).unwrap();
                assert_eq!(is_lent(engine, window), rank == 1, "{over:?} {all}: for good");
                assert_eq!(engine.win_free(window).is_err(), rank == 0);
            });
        }
    }
}

#[test]
fn a_fence_tells_those_alone_at_whose_parts_puts_are_lost() {
    for over in FABRICS {
        each_rank(3, over, |engine, rank, world| {
            let window = engine.win_allocate::<u64>(4, world).unwrap();
            engine.win_fence(window).unwrap();
            engine.put(&[7], Rank((rank + 1) % 3), 0, window).unwrap();
            if rank == 2 {
                lose(engine, Rank(0), window);
            }
            engine.win_fence_last(window).unwrap();
            assert_eq!(is_lent(engine, window), rank != 0, "{over:?} {rank}");
            engine.barrier(world).unwrap();
            assert_eq!(engine.win_free(window).is_err(), rank == 0);
        });
    }
}

#[test]
fn who_waits_for_the_end_of_an_exposure_epoch_hears_of_lost_puts() {
    for over in FABRICS {
        each_rank(2, over, |engine, rank, world| {
            let window = engine.win_allocate::<u64>(4, world).unwrap();
            let other = engine.comm_group(world).unwrap().include(&[1 - rank]).unwrap();
            if rank == 0 {
                engine.win_post(&other, window).unwrap();
                engine.win_wait(window).unwrap();
            } else {
                engine.win_start(&other, window).unwrap();
                engine.put(&[7], Rank(0), 0, window).unwrap();
                lose(engine, Rank(0), window);
                engine.win_complete(window).unwrap();
            }
            assert_eq!(is_lent(engine, window), rank == 1, "{over:?}");
            engine.barrier(world).unwrap();
            assert_eq!(engine.win_free(window).is_err(), rank == 0);
        });
    }
}
