//! Decides whether a ring is too small for its traffic.
//!
//! Three things make a ring grow:
//!
//! - **Lack of room.** A ring lacks room when a frame does not fit now, or when the writer would like a frame longer than the ring can ever
//!   hold. If two such events are no farther apart than twice the ring, all bytes written between them count. Once these bytes are
//!   [`RING_PATIENCE`] times the ring, it should be four times as long, or as long as four of its longest frames. One message that is a
//!   little longer than the ring makes no ring grow.
//! - **Much traffic.** The ends of a ring that has been filled [`RING_LAPS`] times exchange much data. The ring should have
//!   [`ROOMY_RING_BYTES`], or what its frames need, so that its ends wait least for each other.
//! - **Streams.** If a ring of that length has been filled [`STREAM_LAPS`] times by frames that are no answers, it should be as long as
//!   allowed. Then its lines have left the reader's caches before they are written again. Answers do not count: the writer keeps them in a
//!   short part of the ring, see [`Writer::turning_within`](super::ring::Writer::turning_within).
//!
//! All positions here are bytes of frames, as [`Writer::written`](super::ring::Writer::written) counts them.

use tickwire_components::limits::{RING_LAPS, RING_PATIENCE, ROOMY_RING_BYTES, STREAM_LAPS};

/// A writer's record of the lack of room in its ring.
#[derive(Clone, Copy, Debug)]
pub struct Shortage {
    /// Bytes of the largest ring that this one may become.
    most: u64,
    /// Bytes that had been written when the ring last lacked room.
    last: u64,
    /// Bytes that count as written under lack of room.
    wanting: u64,
    /// The longest frame that lacked room meanwhile, in bytes.
    longest: u64,
    /// Bytes that had been written when the ring began, or when it last could not grow.
    began: u64,
    /// Bytes of frames that are no answers, since then.
    streamed: u64,
    /// The factor on all thresholds. Each failure to grow raises it.
    patience: u64,
}

impl Default for Shortage {
    fn default() -> Self {
        Shortage { most: 0, last: 0, wanting: 0, longest: 0, began: 0, streamed: 0, patience: 1 }
    }
}

impl Shortage {
    /// Sets how long the ring may become, in bytes, a power of two.
    pub fn may_become(&mut self, most: u64) {
        self.most = most;
    }

    /// Notes that the ring has no room for a frame of `need` bytes.
    pub(super) fn note(&mut self, written: u64, need: u64, capacity: u64) {
        let since = written - self.last;
        if since > 2 * capacity {
            (self.wanting, self.longest) = (0, 0);
        } else {
            self.wanting += since;
        }
        self.last = written;
        self.longest = self.longest.max(need);
    }

    /// Notes bytes of frames that are no answers.
    pub(super) fn note_stream(&mut self, bytes: u64) {
        self.streamed = self.streamed.saturating_add(bytes);
    }

    /// The ring has grown.
    pub(super) fn is_over(&mut self, written: u64) {
        *self = Shortage { last: written, began: written, most: self.most, ..Shortage::default() };
    }

    /// The ring cannot grow now. It asks again only at four times the thresholds.
    pub fn wait_longer(&mut self, written: u64) {
        (self.wanting, self.streamed, self.began) = (0, 0, written);
        self.patience = self.patience.saturating_mul(4);
    }

    /// The ring can never grow.
    pub fn give_up(&mut self) {
        self.most = 0;
    }

    /// The length that a ring of `capacity` bytes should have, if it has been too small for long enough.
    #[inline]
    pub fn wish(&self, capacity: u64, written: u64) -> Option<u64> {
        let times = |count: u64| self.patience.saturating_mul(count * capacity);
        if self.most <= capacity {
            return None;
        }
        let frames = |longest: u64| longest.saturating_mul(4).checked_next_power_of_two().unwrap_or(u64::MAX);
        let roomy = frames(self.longest).max(ROOMY_RING_BYTES as u64).min(self.most);
        if capacity >= roomy {
            return (self.streamed >= times(STREAM_LAPS)).then_some(self.most);
        }
        if written - self.began >= times(RING_LAPS) {
            return Some(roomy);
        }
        (self.wanting >= times(RING_PATIENCE)).then(|| frames(self.longest.max(capacity)).min(roomy))
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
    fn a_roomy_ring_grows_with_what_is_streamed_through_it_only() {
        let (roomy, most) = (ROOMY_RING_BYTES as u64, 8 * ROOMY_RING_BYTES as u64);
        let mut shortage = Shortage::default();
        shortage.may_become(most);
        assert_eq!(shortage.wish(roomy / 2, RING_LAPS * roomy), Some(roomy), "first it becomes roomy");
        shortage.is_over(1000);
        (0..1000).for_each(|n| shortage.note(1000 + n * roomy, 9000, roomy));
        assert_eq!(shortage.wish(roomy, 1 << 40), None, "answers and a slow reader are no reason");
        shortage.note_stream(STREAM_LAPS * roomy - 1);
        assert_eq!(shortage.wish(roomy, 1 << 40), None);
        shortage.note_stream(1);
        assert_eq!(shortage.wish(roomy, 1 << 40), Some(most));
        shortage.wait_longer(1 << 40);
        shortage.note_stream(4 * STREAM_LAPS * roomy - 1);
        assert_eq!(shortage.wish(roomy, 1 << 41), None);
        shortage.note_stream(1);
        assert_eq!(shortage.wish(roomy, 1 << 41), Some(most));
        assert_eq!(shortage.wish(most, 1 << 41), None, "it is as large as it may be");
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
