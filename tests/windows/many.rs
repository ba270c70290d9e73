//! Windows with more members than the lock of a part has bits.

use crate::kit::{Over, each_rank};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tickwire::launch::{Job, OnFailure, RankStatus};
use tickwire::{LockKind, Rank, op};
use tickwire_tests::scratch::Directory;

/// More members than the 32 bits of a lock.
const MEMBERS: u32 = 36;
/// Longer than any wait on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(100);

#[test]
fn more_than_32_share_a_lock_and_one_has_it_alone_once_they_have_given_it_back() {
    let given_back = AtomicU32::new(0);
    each_rank(MEMBERS, Over::Shm, |engine, rank, world| {
        let (target, last) = (Rank(0), MEMBERS - 1);
        let window = engine.win_allocate::<u64>(2, world).unwrap();
        engine.win_lock(LockKind::Shared, target, window).unwrap();
        engine.fetch_and_op(1, op::Sum, target, 0, window).unwrap();
        engine.barrier(world).unwrap();
        if rank == 0 {
            let dump = engine.dump();
            let holders = dump.windows[0].holders.iter().map(|holder| (holder.rank, holder.exclusive));
            assert!(holders.eq((0..MEMBERS).map(|rank| (rank, false))), "{dump}");
        }
        engine.barrier(world).unwrap();
        if rank == last {
            engine.win_unlock(target, window).unwrap();
            engine.win_lock(LockKind::Exclusive, target, window).unwrap();
            assert_eq!(given_back.load(Ordering::Acquire), last, "some still share it");
            let mut counted = [0];
            engine.get(&mut counted, target, 0, window).unwrap();
            assert_eq!(counted, [u64::from(MEMBERS)]);
            engine.put(&[7], target, 1, window).unwrap();
        } else {
            given_back.fetch_add(1, Ordering::AcqRel);
        }
        engine.win_unlock(target, window).unwrap();
        engine.barrier(world).unwrap();
        // The members share the lock once more.
        engine.win_lock(LockKind::Shared, target, window).unwrap();
        let mut put = [0];
        engine.get(&mut put, target, 1, window).unwrap();
        assert_eq!(put, [7]);
        engine.win_unlock(target, window).unwrap();
        engine.win_free(window).unwrap();
    });
}

#[test]
fn who_wants_a_lock_that_one_of_many_died_with_is_told() {
    let place = Directory::new("windows-many");
    let job = Job::new(MEMBERS).program(env!("CARGO_BIN_EXE_tests-windows")).args(["many"]).args([place.as_os_str()]);
    let outcome = job.on_failure(OnFailure::Continue).tag_output(true).timeout(TIMEOUT).run().unwrap();
    assert!(outcome.statuses[..2].iter().all(|status| status.is_success()), "{outcome:?}");
    assert!(outcome.statuses[2..].iter().all(|status| *status == RankStatus::Killed(9)), "{outcome:?}");
}
