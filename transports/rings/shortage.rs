//! Whether a ring is too small for what goes through it.
//!
//! A ring is too small at a position of its writer if it has no room for a frame there, or could never have for a frame as long
//! as the writer would like. What is written between two such positions that are no farther apart than twice the ring has
//! been written under want. Once that is [`RING_PATIENCE`] times the ring, the ring should grow: four times, or as far as it takes for four
//! of its longest frames. One message that is a little longer than the ring makes no ring grow. A ring that has been filled [`RING_LAPS`]
//! times is one of a pair that talks much, and should be as large as it may: then the two ends wait for each other least.

use tickwire_components::limits::{RING_LAPS, RING_PATIENCE};

/// What a writer knows of the want of room in its ring.
#[derive(Clone, Copy, Debug)]
pub struct Shortage {
    /// Bytes of the largest ring that this one may become.
    most: u64,
    /// Where the ring was found too small last, bytes.
    position: u64,
    /// Bytes that were written under want.
    written: u64,
    /// The longest frame that there was no room for meanwhile, bytes.
    longest: u64,
    /// Where the ring began, or was asked for more in vain.
    began: u64,
    /// How many times as long as usual nothing is asked for.
    patience: u64,
}

impl Default for Shortage {
    fn default() -> Self {
        Shortage { most: 0, position: 0, written: 0, longest: 0, began: 0, patience: 1 }
    }
}

impl Shortage {
    /// The ring may become so many bytes long, a power of two.
    pub fn may_become(&mut self, most: u64) {
        self.most = most;
    }

    /// Notes that the ring has no room for a frame of `need` bytes.
    pub(super) fn note(&mut self, position: u64, need: u64, capacity: u64) {
        let written = position - self.position;
        if written > 2 * capacity {
            (self.written, self.longest) = (0, 0);
        } else {
            self.written += written;
        }
        self.position = position;
        self.longest = self.longest.max(need);
    }

    /// The ring has grown, with its writer at a position.
    pub(super) fn is_over(&mut self, position: u64) {
        *self = Shortage { position, began: position, most: self.most, ..Shortage::default() };
    }

    /// It cannot grow now: not asked for again before as much has been written under want four times.
    pub fn wait_longer(&mut self, position: u64) {
        (self.written, self.began) = (0, position);
        self.patience = self.patience.saturating_mul(4);
    }

    /// It can never grow.
    pub fn give_up(&mut self) {
        self.most = 0;
    }

    /// Bytes that a ring of `capacity` should have, if it has been too small for long enough, with its writer at `position`.
    #[inline]
    pub fn wish(&self, capacity: u64, position: u64) -> Option<u64> {
        let times = |count: u64| self.patience.saturating_mul(count * capacity);
        if self.most <= capacity {
            return None;
        }
        if position - self.began >= times(RING_LAPS) {
            return Some(self.most);
        }
        let frames = self.longest.max(capacity).saturating_mul(4).checked_next_power_of_two();
        (self.written >= times(RING_PATIENCE)).then(|| frames.map_or(self.most, |bytes| bytes.min(self.most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: u64 = 8192;

    /// A ring of which so much is written between two frames of `need` bytes that it has no room for, until it should grow:
    /// how much that was, and what it should become.
    fn grown_after(step: u64, need: u64) -> Option<(u64, u64)> {
        let mut shortage = Shortage::default();
        shortage.may_become(256 << 10);
        (0..2000).map(|n| n * step).find_map(|position| {
            shortage.note(position, need, RING);
            Some((position, shortage.wish(RING, position)?))
        })
    }

    #[test]
    fn a_ring_grows_after_long_want_as_far_as_its_frames_need() {
        let enough = RING_PATIENCE * RING;
        assert_eq!(grown_after(1024, 320), Some((enough, 32 << 10)));
        assert_eq!(grown_after(2 * RING, 8256), Some((enough, 64 << 10)));
        assert_eq!(grown_after(64, 33_000), Some((enough, 256 << 10)));
        assert_eq!(grown_after(1024, u64::MAX), Some((enough, 256 << 10)));
        let laps = (RING_LAPS * RING).next_multiple_of(2 * RING + 64);
        assert_eq!(
            grown_after(2 * RING + 64, 320),
            Some((laps, 256 << 10)),
            "now and then it is full, but much goes through"
        );
        assert_eq!(grown_after(0, 320), None, "a reader that does not read is not helped");
    }

    #[test]
    fn what_cannot_grow_is_asked_for_more_and_more_rarely() {
        let mut shortage = Shortage::default();
        shortage.may_become(4 * RING);
        let mut asked = Vec::new();
        for n in 0..2000 {
            shortage.note(n * 1024, 320, RING);
            if shortage.wish(RING, n * 1024).is_some() {
                asked.push(n * 1024 / RING);
                shortage.wait_longer(n * 1024);
            }
        }
        assert_eq!(asked, [8, 40, 168]);
        shortage.give_up();
        shortage.note(1 << 30, 320, RING);
        assert_eq!(shortage.wish(RING, 1 << 40), None);
    }

    #[test]
    fn a_ring_that_may_not_grow_never_wishes_to() {
        let mut shortage = Shortage::default();
        (0..1000).for_each(|n| shortage.note(n * 1024, 9000, RING));
        assert_eq!(shortage.wish(RING, 1 << 40), None);
        shortage.may_become(RING);
        assert_eq!(shortage.wish(RING, 1 << 40), None);
    }
}
