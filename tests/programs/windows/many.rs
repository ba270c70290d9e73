//! A window with more members than a lock has bits. All members but two are killed. One is killed while it holds a
//! lock, and the others at any moment of taking and giving back locks.

use crate::kit::{PATIENCE, die, die_later, in_time, say, until};
use std::path::Path;
use std::time::{Duration, Instant};
use tickwire::internals::components::VcState;
use tickwire::{Engine, LockKind, ProcId, Rank, Window, WindowError};

/// Number of ranks that survive.
const LIVING: u32 = 2;
/// Locks that a rank takes in a row before it looks at the clock again.
const LOCKS: usize = 1000;
/// Ranks are killed at random moments within this time, ns.
const DYING_NS: u64 = 300_000_000;

/// Plays a rank. The last rank is killed while it shares the lock of rank 0's part. The others are killed at random
/// moments, while they lock their own parts.
pub(crate) fn many(engine: &mut Engine, place: &Path) {
    let (world, me, size) = (engine.comm_world(), engine.rank().0, engine.size());
    assert!(size > 32 + LIVING);
    let window = engine.win_allocate::<u64>(1, world).unwrap();
    engine.barrier(world).unwrap();
    if me < LIVING {
        survive(engine, window, place);
    } else if me == size - 1 {
        hold(engine, window, place);
    } else {
        share_and_die(engine, window, place);
    }
}

/// Dies while it holds a lock.
fn hold(engine: &mut Engine, window: Window<u64>, place: &Path) {
    engine.win_lock(LockKind::Shared, Rank(0), window).unwrap();
    say(place, "held");
    until(engine, place, &["asking-0", "asking-1"]);
    die(place);
}

/// Takes the lock of its own part and gives it back, again and again, until it is killed at some moment.
fn share_and_die(engine: &mut Engine, window: Window<u64>, place: &Path) {
    let me = engine.rank();
    until(engine, place, &["asking-0", "asking-1"]);
    let nanoseconds = u64::from(std::process::id()) * 7_919_993 % DYING_NS;
    die_later(place, Duration::from_nanos(nanoseconds));
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        for _ in 0..LOCKS {
            engine.win_lock(LockKind::Shared, me, window).unwrap();
            engine.win_unlock(me, window).unwrap();
        }
    }
    panic!("it has not died");
}

/// Plays a survivor. It is told that the holder of rank 0's lock has died. Of each other lock, it either gets the
/// lock, or is told that its holder was killed.
fn survive(engine: &mut Engine, window: Window<u64>, place: &Path) {
    let (me, size) = (engine.rank().0, engine.size());
    until(engine, place, &["held"]);
    say(place, &format!("asking-{me}"));
    assert!(!lock_alone(engine, Rank(0), size - 1, window), "a dead member shares it");
    let start = Instant::now();
    let (mut lost, mut is_over) = (vec![false; size as usize], false);
    while !is_over {
        assert!(start.elapsed() < PATIENCE, "some have not died");
        is_over = (LIVING..size).all(|rank| engine.vc_state(ProcId(rank)) == Some(VcState::Failed));
        for rank in LIVING..size - 1 {
            // All locks are tried once more when all are dead: then no lock can come back.
            if !lost[rank as usize] || is_over {
                let locked = lock_alone(engine, Rank(rank), rank, window);
                assert!(!(lost[rank as usize] && locked), "rank {rank}'s lock has come back");
                lost[rank as usize] = !locked;
            }
        }
        engine.tick();
    }
    println!("rank {me}: {} were killed with a lock", lost.iter().filter(|lost| **lost).count());
    assert!(engine.win_free(window).is_err(), "members have died");
}

/// Takes a lock alone and gives it back. Returns `false` if a dead member holds it. That member can only be `holder`.
fn lock_alone(engine: &mut Engine, rank: Rank, holder: u32, window: Window<u64>) -> bool {
    match in_time("win_lock", || engine.win_lock(LockKind::Exclusive, rank, window)) {
        Ok(()) => {
            // If the target has died, the end of the epoch reports it.
            let ended = engine.win_unlock(rank, window);
            assert!(matches!(ended, Ok(()) | Err(WindowError::PeerFailed { .. })), "{ended:?}");
            true
        }
        Err(WindowError::HolderFailed { proc, .. }) => {
            assert_eq!(proc, ProcId(holder));
            false
        }
        Err(error) => panic!("rank {}: {error}", rank.0),
    }
}
