//! How often a fabric is polled: polling it costs a hundred times what polling shared memory costs.
//!
//! Without a connection nothing can arrive, and the fabric is not polled. After an arrival it is polled with each look of the engine for a
//! time, then more and more rarely, so that an idle fabric costs next to nothing. While sends are in flight it is polled often, since most
//! providers progress only then.

use std::cell::Cell;
use tickwire_components::limits::{FABRIC_EAGER_POLLS, FABRIC_POLL_INTERVAL_MAX, FABRIC_SENDING_INTERVAL_MAX};

/// When to poll next.
#[derive(Default)]
pub(super) struct Pace {
    /// How many connections, or other reasons to poll, there are.
    open: Cell<u32>,
    countdown: Cell<u32>,
    interval: Cell<u32>,
    vain: Cell<u32>,
}

impl Pace {
    /// Whether to poll now. Counts one look.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        if self.open.get() == 0 {
            return false;
        }
        let left = self.countdown.get();
        self.countdown.set(left.saturating_sub(1));
        left == 0
    }

    /// Sets how many connections there are.
    pub(super) fn open(&self, count: u32) {
        self.open.set(count);
        self.hurry();
    }

    /// Whether every look polls.
    #[inline]
    pub(super) fn is_eager(&self) -> bool {
        self.interval.get() <= 1
    }

    /// Makes every look poll again.
    #[inline]
    pub(super) fn hurry(&self) {
        self.vain.set(0);
        self.interval.set(1);
        self.countdown.set(0);
    }

    /// Notes that a poll has found nothing. `sending` tells whether sends are in flight.
    #[inline]
    pub(super) fn asked_in_vain(&self, sending: impl FnOnce() -> bool) {
        let vain = self.vain.get().saturating_add(1);
        self.vain.set(vain);
        if vain > FABRIC_EAGER_POLLS {
            let most = if sending() { FABRIC_SENDING_INTERVAL_MAX } else { FABRIC_POLL_INTERVAL_MAX };
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
        assert_eq!(questions(&pace, FABRIC_EAGER_POLLS, false), FABRIC_EAGER_POLLS);
        questions(&pace, 4096, false);
        assert_eq!(questions(&pace, 100 * FABRIC_POLL_INTERVAL_MAX, false), 100);
        pace.hurry();
        assert_eq!(questions(&pace, 1000, false), 1000);
        pace.open(0);
        assert_eq!(questions(&pace, 1000, false), 0);
    }

    #[test]
    fn while_sends_are_under_way_it_is_asked_often() {
        let pace = Pace::default();
        pace.open(1);
        questions(&pace, FABRIC_EAGER_POLLS + 100, true);
        assert_eq!(questions(&pace, 1000 * FABRIC_SENDING_INTERVAL_MAX, true), 1000);
    }
}
