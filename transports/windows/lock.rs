//! The locks of a window's part: words in shared memory that name who holds them.
//!
//! *Access lock*, for epochs (`MPI_Win_lock`): one holder alone, or any number of holders that share it.
//!
//! *Update lock*, for updates of many elements: a holder alone, for a microsecond or so. Updates of few elements need no lock while
//! nobody has ever updated many: each element is updated by an atomic operation of the processor. Both kinds cannot be mixed, so the
//! first one that takes the lock changes the part for good: it says so in the *mode* word, has all processors see that, and waits for
//! updates that were under way, each of which its member shows in its *busy* word.

use crate::rings::atomics::{AtomicU32, AtomicU64, Ordering};

/// How an access lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// With others (`MPI_LOCK_SHARED`).
    Shared,
    /// Alone (`MPI_LOCK_EXCLUSIVE`).
    Exclusive,
}

/// Bits that say who shares it, or how many do.
const SHARED_BITS: u32 = 32;

/// Members of a part up to which its access lock says who shares it.
pub(crate) const NAMED_MAX: u32 = SHARED_BITS;

/// What a member adds to an access lock to share it: a bit of its own, or where there are more members than bits, one.
pub(crate) const fn share_of(me: u32, members: u32) -> u64 {
    if members <= NAMED_MAX { 1 << me } else { 1 }
}

/// Whether a member shares an access lock that says so.
pub(crate) fn shares(word: &AtomicU64, member: u32) -> bool {
    let word = word.load(Ordering::Relaxed);
    word >> SHARED_BITS == 0 && word & share_of(member, NAMED_MAX) != 0
}

/// The word of a member that holds a lock alone.
const fn alone(me: u32) -> u64 {
    (me as u64 + 1) << SHARED_BITS
}

/// Takes an access lock, if it is free for that.
///
/// # Errors
/// The member that holds it alone; `None` if several share it.
#[inline(always)]
pub(crate) fn try_access(word: &AtomicU64, me: u32, share: u64, hold: Hold) -> Result<(), Option<u32>> {
    let mut seen = 0;
    loop {
        let next = match hold {
            Hold::Exclusive => alone(me),
            Hold::Shared => seen + share,
        };
        match word.compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Ok(()),
            Err(now) => match (now >> SHARED_BITS) as u32 {
                0 if hold == Hold::Exclusive && now != 0 => return Err(None),
                0 => seen = now,
                holder => return Err(Some(holder - 1)),
            },
        }
    }
}

/// The member that holds an access lock alone.
pub(crate) fn alone_in(word: &AtomicU64) -> Option<u32> {
    ((word.load(Ordering::Relaxed) >> SHARED_BITS) as u32).checked_sub(1)
}

/// Gives an access lock back.
#[inline(always)]
pub(crate) fn release_access(word: &AtomicU64, share: u64, hold: Hold) {
    match hold {
        Hold::Exclusive => word.store(0, Ordering::Release),
        Hold::Shared => drop(word.fetch_sub(share, Ordering::Release)),
    }
}

/// Updates of few elements need no lock.
pub(crate) const EACH_BY_ITSELF: u32 = 0;
/// All updates take the lock from now on; some that need none may be under way.
const CHANGING: u32 = 1;
/// All updates take the lock.
pub(crate) const ALL_LOCKED: u32 = 2;

/// Takes an update lock, if nobody has it or a member that `is_dead`.
///
/// # Errors
/// The member that has it.
#[inline(always)]
pub(crate) fn try_update(word: &AtomicU32, me: u32, is_dead: impl Fn(u32) -> bool) -> Result<(), u32> {
    match word.compare_exchange(0, me + 1, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        // What a member that has died has left half done is undefined; the others go on.
        Err(holder) if is_dead(holder.wrapping_sub(1)) => {
            let taken = word.compare_exchange(holder, me + 1, Ordering::Acquire, Ordering::Relaxed);
            taken.map(drop).map_err(|now| now.wrapping_sub(1))
        }
        Err(holder) => Err(holder - 1),
    }
}

/// Gives an update lock back.
#[inline(always)]
pub(crate) fn release_update(word: &AtomicU32) {
    word.store(0, Ordering::Release);
}

/// Begins an update without the lock, if that is possible; [`end_free`] ends it. `light` is the light side of the fence that
/// [`close_free`] pays for.
#[inline(always)]
pub(crate) fn begin_free(mode: &AtomicU32, busy: &AtomicU32, light: impl Fn()) -> bool {
    busy.store(1, Ordering::Relaxed);
    light();
    let is_free = mode.load(Ordering::Acquire) == EACH_BY_ITSELF;
    if !is_free {
        busy.store(0, Ordering::Release);
    }
    is_free
}

/// Ends an update without the lock.
#[inline(always)]
pub(crate) fn end_free(busy: &AtomicU32) {
    busy.store(0, Ordering::Release);
}

/// Closes a part to updates without the lock. For the holder of the update lock.
///
/// # Errors
/// A member that is still at one.
pub(crate) fn close_free<'a>(
    mode: &AtomicU32,
    busy: impl Iterator<Item = (u32, &'a AtomicU32)>,
    is_dead: impl Fn(u32) -> bool,
    heavy: impl FnOnce(),
) -> Result<(), u32> {
    if mode.load(Ordering::Relaxed) == ALL_LOCKED {
        return Ok(());
    }
    mode.store(CHANGING, Ordering::Relaxed);
    heavy();
    for (member, busy) in busy {
        if busy.load(Ordering::Acquire) != 0 && !is_dead(member) {
            return Err(member);
        }
    }
    mode.store(ALL_LOCKED, Ordering::Release);
    Ok(())
}

#[cfg(all(test, not(tickwire_loom)))]
mod tests {
    use super::*;

    const NOBODY: fn(u32) -> bool = |_| false;
    /// There are more members than bits.
    const SHARE: u64 = share_of(0, NAMED_MAX + 1);

    #[test]
    fn an_access_lock_is_held_by_one_alone_or_by_many() {
        let word = AtomicU64::new(0);
        for me in [3, 0] {
            assert_eq!(try_access(&word, me, SHARE, Hold::Shared), Ok(()));
        }
        assert_eq!(try_access(&word, 1, SHARE, Hold::Exclusive), Err(None), "many share it");
        release_access(&word, SHARE, Hold::Shared);
        assert_eq!(try_access(&word, 1, SHARE, Hold::Exclusive), Err(None), "one is left");
        release_access(&word, SHARE, Hold::Shared);
        assert_eq!(try_access(&word, u32::MAX - 1, SHARE, Hold::Exclusive), Ok(()));
        for hold in [Hold::Shared, Hold::Exclusive] {
            assert_eq!(try_access(&word, 1, SHARE, hold), Err(Some(u32::MAX - 1)));
        }
        release_access(&word, SHARE, Hold::Exclusive);
        assert_eq!(try_access(&word, 0, SHARE, Hold::Shared), Ok(()));
    }

    #[test]
    fn a_lock_of_few_members_names_those_that_share_it() {
        let word = AtomicU64::new(0);
        for me in [31, 0, 7] {
            assert_eq!(try_access(&word, me, share_of(me, NAMED_MAX), Hold::Shared), Ok(()));
        }
        release_access(&word, share_of(0, NAMED_MAX), Hold::Shared);
        let sharing: Vec<u32> = (0..NAMED_MAX).filter(|&member| shares(&word, member)).collect();
        assert_eq!(sharing, [7, 31]);
        assert_eq!(try_access(&word, 1, share_of(1, NAMED_MAX), Hold::Exclusive), Err(None));
        [7, 31].into_iter().for_each(|me| release_access(&word, share_of(me, NAMED_MAX), Hold::Shared));
        assert_eq!(try_access(&word, 1, share_of(1, NAMED_MAX), Hold::Exclusive), Ok(()));
        assert!((0..NAMED_MAX).all(|member| !shares(&word, member)), "it is held alone");
    }

    #[test]
    fn an_update_lock_goes_on_past_a_dead_holder() {
        let word = AtomicU32::new(0);
        assert_eq!(try_update(&word, 0, NOBODY), Ok(()));
        assert_eq!(try_update(&word, 1, NOBODY), Err(0));
        assert_eq!(try_update(&word, 1, |member| member == 2), Err(0), "another one is dead");
        assert_eq!(try_update(&word, 1, |member| member == 0), Ok(()));
        assert_eq!(try_update(&word, 2, NOBODY), Err(1));
        release_update(&word);
        assert_eq!(try_update(&word, 2, NOBODY), Ok(()));
    }

    #[test]
    fn updates_without_the_lock_end_before_those_with_it_begin() {
        let (mode, busy) = (AtomicU32::new(EACH_BY_ITSELF), [AtomicU32::new(0), AtomicU32::new(0)]);
        let members = || (0..).zip(&busy);
        assert!(begin_free(&mode, &busy[1], || {}));
        assert_eq!(close_free(&mode, members(), NOBODY, || {}), Err(1));
        assert!(!begin_free(&mode, &busy[0], || {}), "it is closed from the first attempt on");
        assert_eq!(close_free(&mode, members(), |member| member == 1, || {}), Ok(()), "a dead one ends nothing");
        end_free(&busy[1]);
        assert_eq!(close_free(&mode, members(), NOBODY, || panic!("it was closed before")), Ok(()));
        assert!(!begin_free(&mode, &busy[1], || {}));
    }
}

#[cfg(all(test, tickwire_loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const SHARE: u64 = share_of(0, NAMED_MAX + 1);

    /// What a test shares: the locks, and a number that is not atomic by itself.
    struct Shared {
        access: AtomicU64,
        update: AtomicU32,
        mode: AtomicU32,
        busy: [AtomicU32; 2],
        low: AtomicU32,
        high: AtomicU32,
    }

    fn shared() -> Arc<Shared> {
        let zero = || AtomicU32::new(0);
        Arc::new(Shared {
            access: AtomicU64::new(0),
            update: zero(),
            mode: zero(),
            busy: [zero(), zero()],
            low: zero(),
            high: zero(),
        })
    }

    /// Adds one to both halves, one after the other, by loads and stores.
    fn add_slowly(shared: &Shared) {
        for half in [&shared.low, &shared.high] {
            half.store(half.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    fn light() {
        crate::rings::atomics::fence(Ordering::SeqCst);
    }

    #[test]
    fn loom_who_holds_an_access_lock_alone_sees_all_that_was_done_before() {
        loom::model(|| {
            let one = shared();
            let other = one.clone();
            let adding = thread::spawn(move || {
                while try_access(&other.access, 1, SHARE, Hold::Exclusive).is_err() {
                    thread::yield_now();
                }
                add_slowly(&other);
                release_access(&other.access, SHARE, Hold::Exclusive);
            });
            while try_access(&one.access, 0, SHARE, Hold::Shared).is_err() {
                thread::yield_now();
            }
            let halves = [&one.low, &one.high].map(|half| half.load(Ordering::Relaxed));
            assert_eq!(halves[0], halves[1], "half done");
            release_access(&one.access, SHARE, Hold::Shared);
            adding.join().expect("the other thread has not panicked");
        });
    }

    #[test]
    fn loom_updates_with_and_without_the_lock_lose_nothing() {
        loom::model(|| {
            let one = shared();
            let other = one.clone();
            let free = thread::spawn(move || {
                if begin_free(&other.mode, &other.busy[1], light) {
                    other.low.fetch_add(1, Ordering::AcqRel);
                    end_free(&other.busy[1]);
                    return;
                }
                while try_update(&other.update, 1, |_| false).is_err() {
                    thread::yield_now();
                }
                other.low.store(other.low.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                release_update(&other.update);
            });
            loop {
                while try_update(&one.update, 0, |_| false).is_err() {
                    thread::yield_now();
                }
                if close_free(&one.mode, (0..).zip(&one.busy), |_| false, light).is_ok() {
                    break;
                }
                release_update(&one.update);
                thread::yield_now();
            }
            one.low.store(one.low.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            release_update(&one.update);
            free.join().expect("the other thread has not panicked");
            assert_eq!(one.low.load(Ordering::Relaxed), 2, "an update is lost");
        });
    }
}
