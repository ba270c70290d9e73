//! How often a fabric is looked at: asking it costs a hundred times what a look at shared memory costs.
//!
//! Without a connection nothing can come, and it is not asked. After something has come it is asked at every look, for a
//! time; then more and more rarely, so that an idle fabric costs the others next to nothing. While sends are under way it is
//! asked often, since most providers progress only then.

use std::cell::Cell;

/// Looks in vain before they become rarer: half a millisecond of them.
const EAGER: u32 = 2048;
/// Looks between two questions at most: 300 ns in 1024 looks of 9 ns are 3 %.
const INTERVAL_MAX: u32 = 1024;
/// The same while sends are under way.
const SENDING_MAX: u32 = 4;

/// When to ask next.
#[derive(Default)]
pub(super) struct Pace {
    /// Connections, or what else there is to ask for.
    open: Cell<u32>,
    countdown: Cell<u32>,
    interval: Cell<u32>,
    vain: Cell<u32>,
}

impl Pace {
    /// Whether to ask now.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        if self.open.get() == 0 {
            return false;
        }
        let left = self.countdown.get();
        self.countdown.set(left.saturating_sub(1));
        left == 0
    }

    /// How many connections there are.
    pub(super) fn open(&self, count: u32) {
        self.open.set(count);
        self.hurry();
    }

    /// Whether it is asked at every look.
    #[inline]
    pub(super) fn is_eager(&self) -> bool {
        self.interval.get() <= 1
    }

    /// Asks at every look again.
    #[inline]
    pub(super) fn hurry(&self) {
        self.vain.set(0);
        self.interval.set(1);
        self.countdown.set(0);
    }

    /// It was asked, and gave nothing; `sending` says whether sends are under way.
    #[inline]
    pub(super) fn asked_in_vain(&self, sending: impl FnOnce() -> bool) {
        let vain = self.vain.get().saturating_add(1);
        self.vain.set(vain);
        if vain > EAGER {
            let most = if sending() { SENDING_MAX } else { INTERVAL_MAX };
            let interval = (self.interval.get() * 2).min(most);
            self.interval.set(interval);
            self.countdown.set(interval - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Questions in so many looks that find nothing.
    fn questions(pace: &Pace, looks: u32, sending: bool) -> u32 {
        let mut count = 0;
        for _ in 0..looks {
            if pace.is_due() {
                count += 1;
                pace.asked_in_vain(|| sending);
            }
        }
        count
    }

    #[test]
    fn what_is_idle_is_asked_ever_more_rarely_until_something_comes() {
        let pace = Pace::default();
        assert_eq!(questions(&pace, 10_000, false), 0, "without a connection");
        pace.open(1);
        assert_eq!(questions(&pace, EAGER, false), EAGER);
        questions(&pace, 4096, false);
        assert_eq!(questions(&pace, 100 * INTERVAL_MAX, false), 100);
        pace.hurry();
        assert_eq!(questions(&pace, 1000, false), 1000);
        pace.open(0);
        assert_eq!(questions(&pace, 1000, false), 0);
    }

    #[test]
    fn while_sends_are_under_way_it_is_asked_often() {
        let pace = Pace::default();
        pace.open(1);
        questions(&pace, EAGER + 100, true);
        assert_eq!(questions(&pace, 1000 * SENDING_MAX, true), 1000);
    }
}
