//! Whether the reader of a ring, or of a staging buffer, is near: how long a cache line takes from its processor.
//!
//! The reader publishes how far it has read. When the writer looks there and finds a new position, the line has come from the
//! reader's processor. Some of these looks are timed. Processes may move to other processors, so they are timed again and again.

use std::time::Instant;
use tickwire_components::limits::{NEAR_LINE_NS, NEAR_LOOKS_UNTIMED};

/// How many times are taken for a decision. The one in the middle counts: a few looks may have been interrupted, and a few may have found
/// a line that was here already.
const TIMES: usize = 9;

/// What the writer of a ring, or of a staging buffer, knows about its distance from the reader.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Distance {
    /// The times of the decision that is being made, ns.
    times: [u32; TIMES],
    /// How many there are.
    taken: usize,
    /// How many further looks are not timed.
    untimed: u32,
    near: bool,
}

impl Distance {
    /// Reads a position that the reader publishes. `known` is the position that was read before.
    pub(super) fn look(&mut self, known: u64, read: impl FnOnce() -> u64) -> u64 {
        if self.untimed > 0 {
            self.untimed -= 1;
            return read();
        }
        let since = Instant::now();
        let position = read();
        if position != known {
            self.note(u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        position
    }

    /// Whether the reader was near when that was last decided. Until then, `false` or as [assumed](Distance::assumed).
    pub(super) fn is_near(&self) -> bool {
        self.near
    }

    /// Assumes that the reader is near, or far, until that is decided.
    pub(super) fn assumed(near: bool) -> Self {
        Distance { near, ..Distance::default() }
    }

    /// As after a decision.
    #[cfg(test)]
    pub(super) fn decided(near: bool) -> Self {
        Distance { near, untimed: NEAR_LOOKS_UNTIMED, ..Distance::default() }
    }

    fn note(&mut self, ns: u32) {
        self.times[self.taken] = ns;
        self.taken += 1;
        if self.taken == TIMES {
            self.times.sort_unstable();
            self.near = self.times[TIMES / 2] <= NEAR_LINE_NS;
            (self.taken, self.untimed) = (0, NEAR_LOOKS_UNTIMED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(distance: &mut Distance, times: [u32; TIMES]) -> bool {
        times.into_iter().for_each(|ns| distance.note(ns));
        distance.is_near()
    }

    #[test]
    fn the_time_in_the_middle_decides_and_the_decision_is_made_again() {
        let (near, far) = (NEAR_LINE_NS, NEAR_LINE_NS + 1);
        let mut distance = Distance::default();
        assert!(!distance.is_near(), "not known yet");
        assert!(note(&mut distance, [far, near, 9_000_000, near, near, 0, u32::MAX, near, far]));
        assert!(!note(&mut distance, [far, near, far, near, far, 0, far, near, far]));
        assert!(note(&mut distance, [near; TIMES]));
    }

    #[test]
    fn only_lines_that_the_reader_has_written_are_timed_and_only_sometimes() {
        let mut distance = Distance::default();
        for _ in 0..3 * TIMES {
            assert_eq!(distance.look(7, || 7), 7);
        }
        assert_eq!((distance.taken, distance.untimed), (0, 0), "the line was here already");
        for position in 1..=TIMES as u64 {
            assert_eq!(distance.look(position - 1, || position), position);
        }
        assert_eq!((distance.taken, distance.untimed), (0, NEAR_LOOKS_UNTIMED));
        for left in (0..NEAR_LOOKS_UNTIMED).rev() {
            assert_eq!(distance.look(1, || 2), 2);
            assert_eq!((distance.taken, distance.untimed), (0, left));
        }
        distance.look(1, || 2);
        assert_eq!(distance.taken, 1);
    }
}
