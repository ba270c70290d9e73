//! Measures how long something stands in the way of all peers. See `losses`.

use tickwire_components::limits::FABRIC_ANSWER_NS_MAX;

/// How long something has been in the way, in this engine's own ticks.
#[derive(Default)]
pub(super) struct Jam {
    time_ns: u64,
    looked_ns: u64,
}

impl Jam {
    /// Notes whether it is in the way now. Returns for how long it has been, ns. An engine that computes between two looks has not waited.
    pub(super) fn look(&mut self, is_there: bool, now_ns: u64) -> u64 {
        let since_ns = now_ns.saturating_sub(self.looked_ns).min(FABRIC_ANSWER_NS_MAX);
        // The first look only begins the time.
        let had_begun = self.looked_ns != 0;
        *self = match is_there {
            true => Jam { time_ns: self.time_ns + if had_begun { since_ns } else { 0 }, looked_ns: now_ns.max(1) },
            false => Jam::default(),
        };
        self.time_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_jam_lasts_as_long_as_this_engine_looks_at_it() {
        let mut jam = Jam::default();
        let mut look = |is_there, ms| jam.look(is_there, ms * MS) / MS;
        assert_eq!([look(true, 1000), look(true, 1100), look(true, 1150)], [0, 100, 150]);
        assert_eq!(look(true, 3_600_000), 150 + FABRIC_ANSWER_NS_MAX / MS, "it has computed meanwhile");
        assert_eq!([look(false, 3_600_001), look(true, 3_600_100), look(true, 3_600_110)], [0, 0, 10]);
    }
}
