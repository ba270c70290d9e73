//! The locks of a window's part: words in shared memory that name who holds them.
//!
//! *Access lock*, for epochs (`MPI_Win_lock`): one holder alone, or any number of holders that share it. Its word names the member that
//! holds it alone. With up to 32 members it also names those that share it, by a bit for each. With more members it counts them, and each
//! marks a line of its own, from before it is counted until after it is no longer counted. So a member that is killed at any instruction
//! is named if it is counted, and nobody waits for it without being told. A member that is killed while its line is marked, but not
//! counted, is named too, as long as others share the lock.
//!
//! A rank in a window is one process as long as the window lives: a process that has ended never comes back under its proc's number. So
//! the rank also says which process holds a lock. Its id and start time are in the proc's card.
//!
//! *Update lock*, for updates of many elements: one holder alone, for a microsecond or so. As long as nobody has ever updated many
//! elements, updates of few need no lock: the processor updates each element by an atomic operation. The two kinds cannot be mixed, so
//! the first holder of the lock changes the part for good. It writes that into the *mode* word, makes all processors see it, and waits
//! for updates without the lock to end. Each member shows such an update in its *busy* word.

use crate::rings::atomics::{AtomicU32, AtomicU64, Ordering};

/// How an access lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// With others (`MPI_LOCK_SHARED`).
    Shared,
    /// Alone (`MPI_LOCK_EXCLUSIVE`).
    Exclusive,
}

/// What the line of a member says while that shares an access lock of many members, and shortly before and after.
pub(crate) const SHARING: u32 = 1;

/// Bits that say who shares it, or how many do.
const SHARED_BITS: u32 = 32;

/// Members of a part up to which its access lock says who shares it.
pub(crate) const NAMED_MAX: u32 = SHARED_BITS;

/// What one of many members adds to an access lock to share it.
const ONE: u64 = 1;

/// What a member adds to an access lock to share it: a bit of its own, or where there are more members than bits, one.
pub(crate) const fn share_of(me: u32, members: u32) -> u64 {
    if members <= NAMED_MAX { 1 << me } else { ONE }
}

/// How a member holds an access lock of so many members, whose own line is `line`.
pub(crate) fn held_by(word: &AtomicU64, line: &AtomicU32, member: u32, members: u32) -> Option<Hold> {
    let word = word.load(Ordering::Acquire);
    let shares = match members <= NAMED_MAX {
        true => word & share_of(member, members) != 0,
        false => word != 0 && line.load(Ordering::Relaxed) == SHARING,
    };
    match (word >> SHARED_BITS) as u32 {
        0 => shares.then_some(Hold::Shared),
        holder => (holder - 1 == member).then_some(Hold::Exclusive),
    }
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
        // The release is for the line of `try_among_many`.
        match word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Ok(()),
            Err(now) => match (now >> SHARED_BITS) as u32 {
                0 if hold == Hold::Exclusive && now != 0 => return Err(None),
                0 => seen = now,
                holder => return Err(Some(holder - 1)),
            },
        }
    }
}

/// Gives an access lock back.
#[inline(always)]
pub(crate) fn release_access(word: &AtomicU64, share: u64, hold: Hold) {
    match hold {
        Hold::Exclusive => word.store(0, Ordering::Release),
        // The acquire keeps the line of `release_among_many` as it is until then.
        Hold::Shared => drop(word.fetch_sub(share, Ordering::AcqRel)),
    }
}

/// Takes an access lock of more than [`NAMED_MAX`] members to share it, if it is free for that.
///
/// # Errors
/// The member that holds it alone.
#[inline(always)]
pub(crate) fn try_among_many(word: &AtomicU64, line: &AtomicU32, me: u32) -> Result<(), Option<u32>> {
    line.store(SHARING, Ordering::Relaxed);
    let taken = try_access(word, me, ONE, Hold::Shared);
    if taken.is_err() {
        line.store(0, Ordering::Relaxed);
    }
    taken
}

/// Gives back what [`try_among_many`] has taken.
#[inline(always)]
pub(crate) fn release_among_many(word: &AtomicU64, line: &AtomicU32) {
    release_access(word, ONE, Hold::Shared);
    line.store(0, Ordering::Relaxed);
}

/// Updates of few elements need no lock.
pub(crate) const EACH_BY_ITSELF: u32 = 0;
/// All updates that begin now take the lock. Some that began without it may still be under way.
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

/// Gives an update lock back, if it is still this member's. Another one may have taken this member for dead, and have taken the lock over.
#[inline(always)]
pub(crate) fn release_update(word: &AtomicU32, me: u32) {
    let _ = word.compare_exchange(me + 1, 0, Ordering::Release, Ordering::Relaxed);
}

/// Begins an update without the lock, if that is possible; [`end_free`] ends it. `light` is the cheap side of a fence whose costly side
/// is in [`close_free`].
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
/// A member that is still at an update without the lock.
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

    /// Which of so many members share a lock, by their lines.
    fn sharing(word: &AtomicU64, lines: &[AtomicU32]) -> Vec<u32> {
        let members = lines.len() as u32;
        let shares = |(member, line)| held_by(word, line, member, members) == Some(Hold::Shared);
        (0..).zip(lines).filter(|&(member, line)| shares((member, line))).map(|(member, _)| member).collect()
    }

    fn lines(members: u32) -> Vec<AtomicU32> {
        (0..members).map(|_| AtomicU32::new(0)).collect()
    }

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
        let lines = lines(NAMED_MAX);
        assert_eq!(sharing(&word, &lines), [7, 31]);
        assert_eq!(try_access(&word, 1, share_of(1, NAMED_MAX), Hold::Exclusive), Err(None));
        [7, 31].into_iter().for_each(|me| release_access(&word, share_of(me, NAMED_MAX), Hold::Shared));
        assert_eq!(try_access(&word, 1, share_of(1, NAMED_MAX), Hold::Exclusive), Ok(()));
        assert!(sharing(&word, &lines).is_empty(), "it is held alone");
        assert_eq!(held_by(&word, &lines[1], 1, NAMED_MAX), Some(Hold::Exclusive));
    }

    #[test]
    fn a_lock_of_many_members_names_those_that_share_it_and_those_that_were_killed_at_it() {
        const MEMBERS: u32 = 1024;
        let (word, lines) = (AtomicU64::new(0), lines(MEMBERS));
        for me in 0..MEMBERS {
            assert_eq!(try_among_many(&word, &lines[me as usize], me), Ok(()));
        }
        assert!(sharing(&word, &lines).into_iter().eq(0..MEMBERS));
        assert_eq!(try_access(&word, 0, SHARE, Hold::Exclusive), Err(None));
        (0..MEMBERS).filter(|me| *me != 700).for_each(|me| release_among_many(&word, &lines[me as usize]));
        assert_eq!(sharing(&word, &lines), [700]);
        // Killed before it is counted, and after.
        for counted in [false, true] {
            let word = AtomicU64::new(u64::from(counted) * SHARE);
            assert_eq!(try_access(&word, 3, SHARE, Hold::Exclusive).is_err(), counted);
            assert_eq!(sharing(&word, &lines), if counted { vec![700] } else { vec![] });
        }
        release_among_many(&word, &lines[700]);
        assert_eq!(try_access(&word, 3, SHARE, Hold::Exclusive), Ok(()));
        assert_eq!(try_among_many(&word, &lines[700], 700), Err(Some(3)));
        assert!(sharing(&word, &lines).is_empty());
        assert_eq!(lines[700].load(Ordering::Relaxed), 0, "it does not share it");
        assert_eq!(held_by(&word, &lines[3], 3, MEMBERS), Some(Hold::Exclusive));
    }

    #[test]
    fn an_update_lock_goes_on_past_a_dead_holder() {
        let word = AtomicU32::new(0);
        assert_eq!(try_update(&word, 0, NOBODY), Ok(()));
        assert_eq!(try_update(&word, 1, NOBODY), Err(0));
        assert_eq!(try_update(&word, 1, |member| member == 2), Err(0), "another one is dead");
        assert_eq!(try_update(&word, 1, |member| member == 0), Ok(()));
        release_update(&word, 0);
        assert_eq!(try_update(&word, 2, NOBODY), Err(1), "the one that was taken for dead gives nothing back");
        release_update(&word, 1);
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
mod loom_tests;
