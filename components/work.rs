//! What was done since the last tick: what a tick tells, and how it is counted.

use std::ops::{AddAssign, SubAssign};
use std::sync::atomic::{AtomicU32, Ordering};

/// What a tick did, in rows; calls made since the tick before it included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Operations that were posted.
    pub posted: u32,
    /// Receives that were paired with a message.
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

/// A number that is counted up at many places and read soon after. It wraps.
///
/// Counted by single words, a row of plain numbers would be read by wider ones, and such a read waits until all of them have
/// left the store buffer, behind what was written to a peer before. An atomic number is read by itself.
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

/// [`Work`] as it is counted.
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
    /// What was counted.
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

    /// What was counted; from here on it is counted anew.
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
