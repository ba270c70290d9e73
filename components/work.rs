//! Counts of the work since the last tick.

use std::ops::{AddAssign, SubAssign};
use std::sync::atomic::{AtomicU32, Ordering};

/// The work of a tick, counted in rows. It includes the calls since the tick before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Operations that were posted.
    pub posted: u32,
    /// Receives that were matched with a message.
    pub matched: u32,
    /// Frames that were given to a transport.
    pub sent: u32,
    /// Frames that were read from a transport.
    pub received: u32,
    /// Requests that were completed.
    pub completed: u32,
}

impl Work {
    /// Whether nothing was done.
    #[inline]
    pub fn is_idle(&self) -> bool {
        let Work { posted, matched, sent, received, completed } = *self;
        posted | matched | sent | received | completed == 0
    }
}

/// A counter that is incremented in many places and read soon after. It wraps around.
///
/// The compiler would read several plain counters at once by a wide load. After stores of single words, such a load stalls until all of
/// them have left the store buffer, behind what was written to a peer before. An atomic counter is always loaded by itself.
#[derive(Debug, Default)]
pub struct Count(AtomicU32);

impl Count {
    /// The number.
    #[inline(always)]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl AddAssign<u32> for Count {
    #[inline(always)]
    fn add_assign(&mut self, more: u32) {
        let number = self.0.get_mut();
        *number = number.wrapping_add(more);
    }
}

impl SubAssign<u32> for Count {
    #[inline(always)]
    fn sub_assign(&mut self, less: u32) {
        let number = self.0.get_mut();
        *number = number.wrapping_sub(less);
    }
}

/// The counters of [`Work`].
#[derive(Debug, Default)]
pub struct Tally {
    /// See [`Work::posted`].
    pub posted: Count,
    /// See [`Work::matched`].
    pub matched: Count,
    /// See [`Work::sent`].
    pub sent: Count,
    /// See [`Work::received`].
    pub received: Count,
    /// See [`Work::completed`].
    pub completed: Count,
}

impl Tally {
    /// The counts.
    #[inline(always)]
    pub fn get(&self) -> Work {
        Work {
            posted: self.posted.get(),
            matched: self.matched.get(),
            sent: self.sent.get(),
            received: self.received.get(),
            completed: self.completed.get(),
        }
    }

    /// The counts, which are reset to 0.
    #[inline(always)]
    pub fn take(&mut self) -> Work {
        let work = self.get();
        if !work.is_idle() {
            *self = Tally::default();
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_counted_once() {
        let mut tally = Tally::default();
        assert!(tally.take().is_idle());
        tally.posted += 1;
        tally.completed += 2;
        tally.completed -= 1;
        let work = Work { posted: 1, completed: 1, ..Work::default() };
        assert_eq!((tally.get(), tally.take(), tally.take()), (work, work, Work::default()));
        assert!(!work.is_idle());
    }

    #[test]
    fn numbers_wrap() {
        let mut tally = Tally::default();
        tally.sent -= 1;
        assert_eq!(tally.sent.get(), u32::MAX);
        tally.sent += 2;
        assert_eq!(tally.sent.get(), 1);
    }
}
