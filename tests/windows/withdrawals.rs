//! Regions that are withdrawn while others use them.

use crate::kit::{ALL, FABRICS, Over, SHARED, each_rank};
use std::sync::Mutex;
use std::time::Duration;
use tickwire::{Engine, ProcId, Rank, RegionAccess, Tag};

#[test]
fn nothing_is_written_after_a_withdrawal_however_many_are_writing() {
    SHARED.into_iter().for_each(others_write_while_it_is_withdrawn);
}

fn others_write_while_it_is_withdrawn(over: Over) {
    let rounds = 200;
    each_rank(3, over, |engine, rank, world| {
        let mut buffer = vec![0u64; 64];
        for round in 0..rounds {
            let region = engine.expose(buffer, RegionAccess::ALL).unwrap();
            let mut keys = [region.key(); 3];
            engine.allgather(&[region.key()], &mut keys, world).unwrap();
            if rank == 0 {
                // The other ranks write all the time. Nobody tells them of the withdrawal.
                for _ in 0..round {
                    engine.tick();
                }
                buffer = engine.withdraw(region).unwrap();
                buffer.fill(u64::MAX);
                engine.barrier(world).unwrap();
                // The others try once more.
                engine.barrier(world).unwrap();
                assert!(buffer.iter().all(|&word| word == u64::MAX), "round {round}");
            } else {
                let write = |engine: &mut Engine| {
                    let put = engine.region_put(&[u64::from(rank); 64], &keys[0], 0);
                    put.and_then(|()| engine.region_flush(ProcId(0)))
                };
                for _ in 0..1_000 {
                    if write(engine).is_err() {
                        break;
                    }
                }
                engine.barrier(world).unwrap();
                let late = write(engine).unwrap_err();
                assert!(late.to_string().contains("has no such bytes"), "round {round}: {late}");
                engine.barrier(world).unwrap();
                buffer = engine.withdraw(region).unwrap();
            }
        }
    });
}

/// Long puts and gets of others are under way by a fabric. They are over before the owner gets its buffer back.
#[test]
fn nothing_of_a_fabric_arrives_after_a_withdrawal() {
    const WORDS: usize = 1 << 17;
    for over in FABRICS {
        each_rank(3, over, |engine, rank, world| {
            let mut buffer = vec![0u64; WORDS];
            for round in 0..24 {
                let region = engine.expose(buffer, RegionAccess::ALL).unwrap();
                let mut keys = [region.key(); 3];
                engine.allgather(&[region.key()], &mut keys, world).unwrap();
                if rank == 0 {
                    for _ in 0..40 * round {
                        engine.tick();
                    }
                    buffer = engine.withdraw(region).unwrap();
                    buffer.fill(u64::MAX);
                    engine.barrier(world).unwrap();
                    assert!(buffer.iter().all(|&word| word == u64::MAX), "{over:?}, round {round}");
                } else {
                    // An operation is refused if the memory was withdrawn before it arrived there.
                    for _ in 0..4 {
                        let put = engine.region_rput(vec![u64::from(rank); WORDS], &keys[0], 0).unwrap();
                        if engine.wait_take(put).is_err() {
                            break;
                        }
                    }
                    engine.barrier(world).unwrap();
                    let late = engine.region_rput(vec![0u64; 64], &keys[0], 0).map(|put| engine.wait_take(put));
                    assert!(!matches!(late, Ok(Ok(_))), "{over:?}, round {round}: the key is stale");
                    buffer = engine.withdraw(region).unwrap();
                }
                engine.barrier(world).unwrap();
            }
        });
    }
}

/// A proc finalizes with a long put under way: the put is complete before others hear that the proc has left, so the
/// region can be withdrawn.
#[test]
fn who_has_finalized_uses_no_region_any_more() {
    const WORDS: usize = 1 << 19;
    for over in FABRICS {
        each_rank(2, over, |engine, rank, world| {
            let region = engine.expose(vec![0u64; WORDS], RegionAccess::ALL).unwrap();
            let mut keys = [region.key(); 2];
            engine.allgather(&[region.key()], &mut keys, world).unwrap();
            if rank == 1 {
                let put = engine.region_rput(vec![7u64; WORDS], &keys[0], 0).unwrap();
                engine.finalize(Duration::from_secs(20)).unwrap();
                assert!(engine.take(put).is_ok(), "{over:?}");
                return;
            }
            let never = engine.irecv(vec![0u8; 1], Rank(1), Tag(1), world).unwrap();
            let left = engine.wait(&never).unwrap_err();
            assert!(left.to_string().contains("finalized"), "{over:?}: {left}");
            assert!(engine.withdraw(region).unwrap().iter().all(|&word| word == 7), "{over:?}");
        });
    }
}

/// A key that a program has kept, for example in a file, from a run before this one.
#[test]
fn a_key_of_an_earlier_engine_opens_no_region_of_this_one() {
    for over in ALL {
        let kept = Mutex::new(None);
        each_rank(2, over, |engine, rank, world| {
            let region = engine.expose(vec![1u64; 4], RegionAccess::ALL).unwrap();
            if rank == 0 {
                *kept.lock().unwrap() = Some(region.key());
            }
            engine.barrier(world).unwrap();
            engine.withdraw(region).unwrap();
        });
        each_rank(2, over, |engine, rank, world| {
            let region = engine.expose(vec![1u64; 4], RegionAccess::ALL).unwrap();
            engine.barrier(world).unwrap();
            if rank == 1 {
                let key = kept.lock().unwrap().unwrap();
                let put = engine.region_put(&[5u64], &key, 0).and_then(|()| engine.region_flush(ProcId(0)));
                assert!(put.unwrap_err().to_string().contains("no such bytes"), "{over:?}");
                assert!(engine.region_get(&mut [0u64], &key, 0).is_err(), "{over:?}");
            }
            engine.barrier(world).unwrap();
            assert_eq!(engine.withdraw(region).unwrap(), [1; 4], "{over:?}");
        });
    }
}
