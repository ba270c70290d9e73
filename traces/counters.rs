//! Run counters of the systems.

use std::sync::atomic::{AtomicU64, Ordering};

/// Index of Deliver's counter, after those of the six system sets of a tick.
pub const DELIVER: usize = 6;
const RUNS: usize = DELIVER + 1;

/// Counts how many times each system of an engine has run. Written by the thread that owns the engine; any thread may read it.
#[derive(Debug, Default)]
pub struct Counters {
    runs: [AtomicU64; RUNS],
}

impl Counters {
    /// Counts one run of system `index`, in the order of the sets of a tick; [`DELIVER`] is last.
    #[inline(always)]
    pub fn ran(&self, index: usize) {
        if let Some(runs) = self.runs.get(index) {
            // There is only one writer, so no atomic addition is needed.
            runs.store(runs.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Runs of each system so far.
    pub fn runs(&self) -> [u64; RUNS] {
        std::array::from_fn(|index| self.runs[index].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_system_and_ignores_others() {
        let counters = Counters::default();
        counters.ran(1);
        counters.ran(1);
        counters.ran(DELIVER);
        counters.ran(9);
        assert_eq!(counters.runs(), [0, 2, 0, 0, 0, 0, 1]);
    }
}
