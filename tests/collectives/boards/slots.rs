//! Members that run ahead of others wait for a slot of their board: who is waited for, and what ends such a wait.

use super::each_rank;
use crate::kit::PATIENCE;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;
use tickwire::internals::components::limits::BOARD_SLOTS;
use tickwire::{Comm, Engine, OperationError, Rank, Request, RequestError, op};

/// More operations than a member can run ahead.
pub(super) const AHEAD: u32 = 3 * BOARD_SLOTS as u32;

/// Ticks until a condition holds.
pub(super) fn until(engine: &mut Engine, what: &str, mut is_so: impl FnMut(&mut Engine) -> bool) {
    let start = Instant::now();
    while !is_so(engine) {
        assert!(start.elapsed() < PATIENCE, "{what}");
        engine.tick();
        std::thread::yield_now();
    }
}

/// Operations in which rank 0 needs nothing of the others.
fn operation(kind: u32, count: usize, engine: &mut Engine, world: Comm) -> Result<(), OperationError> {
    let mut own = vec![1u64; count];
    match kind {
        0 => engine.scan(&own, &mut vec![0; count], op::Sum, world),
        1 => engine.bcast(&mut own, Rank(0), world),
        2 => engine.gather(&own, &mut vec![0; if engine.rank() == Rank(1) { 3 * count } else { 0 }], Rank(1), world),
        _ => {
            let scan: Request<_> = engine.iscan(own, vec![0; count], op::Sum, world).map_err(|e| e.error)?;
            engine.wait_take(scan).map(drop).map_err(OperationError::from)
        }
    }
}

/// Rank 1 ends. Rank 2 gets an error, and calls nothing more. Rank 0 needs neither, but cannot run ahead for ever.
#[test]
fn a_member_that_waits_for_one_that_has_given_up_since_another_is_gone_is_told() {
    for (kind, count) in [(0, 1), (1, 1), (2, 1), (3, 1), (0, 400), (0, 20_000), (1, 20_000)] {
        let (is_gone, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        each_rank(3, true, |engine, rank, world| {
            engine.barrier(world).unwrap();
            match rank {
                0 => {
                    until(engine, "rank 2 has given up", |_| is_gone.load(Ordering::Acquire));
                    let mut errors = 0;
                    for _ in 0..AHEAD {
                        let ended = operation(kind, count, engine, world);
                        let Err(OperationError::Request(error)) = ended else {
                            assert!(ended.is_ok() && errors == 0, "{ended:?} after {errors} errors");
                            continue;
                        };
                        let is_of_one =
                            |error| matches!(error, RequestError::PeerFailed { .. } | RequestError::Abandoned(Rank(1)));
                        errors += u32::from(is_of_one(error));
                    }
                    assert!(errors > 0, "kind {kind}, {count}: none is an error");
                    has_ended.store(true, Ordering::Release);
                }
                1 => {}
                _ => {
                    let ended = operation(0, count, engine, world);
                    assert!(matches!(ended, Err(OperationError::Request(_))), "{ended:?}");
                    is_gone.store(true, Ordering::Release);
                    until(engine, "rank 0 is told", |_| has_ended.load(Ordering::Acquire));
                }
            }
        });
    }
}

#[test]
fn who_is_waited_for_by_a_member_that_runs_ahead_is_dumped() {
    let entered = AtomicU32::new(0);
    each_rank(2, true, |engine, rank, world| {
        engine.barrier(world).unwrap();
        if rank == 0 {
            let mut scans = Vec::new();
            for _ in 0..AHEAD {
                scans.push(engine.iscan(vec![1u64], vec![0], op::Sum, world).unwrap());
                engine.tick();
            }
            let dump = engine.dump();
            let waits: Vec<_> =
                dump.operations.iter().filter_map(|of| Some((of.peer, of.collective.as_ref()?))).collect();
            let [(peer, collective)] = waits[..] else { panic!("{dump}") };
            assert_eq!((peer, collective.name.as_str()), (Some(1), "scan"));
            entered.store(1, Ordering::Release);
            scans.into_iter().for_each(|scan| drop(engine.wait_take(scan).unwrap()));
        } else {
            until(engine, "rank 0 has dumped", |_| entered.load(Ordering::Acquire) == 1);
            for _ in 0..AHEAD {
                engine.scan(&[1u64], &mut [0], op::Sum, world).unwrap();
            }
        }
    });
}
