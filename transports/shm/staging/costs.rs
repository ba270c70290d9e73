//! The recent costs of reading and staging, and the choice between them.

use std::time::Duration;

/// How a part of a message is received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// Out of the sender's memory.
    Read,
    /// Out of the staging buffer.
    Stage,
}

/// Sizes that are told apart, powers of two: up to 16 KiB, to 32 KiB …, above 512 KiB.
pub(super) const SIZES: usize = 7;
/// One of this many reads of a size takes the more expensive way, to measure it again.
const TRIED_AGAIN: u32 = 128;
/// One of this many reads of a size is timed, once both ways are known.
const TIMED: u32 = 8;
/// How often each way is tried before one is chosen. The first tries meet cold caches.
const TRIALS: u32 = 4;

/// The index of a read's size among the [`SIZES`].
pub(super) fn size_of_read(bytes: usize) -> usize {
    let size = bytes.div_ceil(16 << 10).next_power_of_two().trailing_zeros() as usize;
    size.min(SIZES - 1)
}

/// The recent costs of both ways, for one size.
#[derive(Clone, Copy, Default)]
pub(super) struct Costs {
    /// By [`Way`], in ns per MiB.
    ns: [u64; 2],
    /// Reads so far.
    count: u32,
}

impl Costs {
    /// The way of the next read, whether to time it, and for how many reads after it the choice need not be made again.
    pub(super) fn choose(&mut self) -> (Way, bool, u8) {
        let trials = self.count < 2 * TRIALS;
        // Staging takes some of the sender's time too, so it must pay off.
        let stage = if trials { self.count % 2 == 1 } else { self.ns[1] * 16 < self.ns[0] * 15 };
        let quiet = if trials || stage { 0 } else { TIMED - 1 };
        let before = self.count;
        self.count = self.count.wrapping_add(1 + quiet);
        let again = !trials && before / TRIED_AGAIN != self.count / TRIED_AGAIN;
        let way = if stage ^ again { Way::Stage } else { Way::Read };
        (way, trials || again || before / TIMED != self.count / TIMED, quiet as u8)
    }

    /// Records what a read has cost.
    pub(super) fn note(&mut self, way: Way, bytes: usize, time: Duration) {
        let ns = ((time.as_nanos() as u64) << 20) / bytes.max(1) as u64;
        let known = &mut self.ns[way as usize];
        // A slow read was perhaps interrupted and says little about the next one; a fast one says much, especially at first.
        *known = match *known {
            0 => ns,
            known if self.count <= 2 * TRIALS => known.min(ns),
            known if ns < known => (known + ns) / 2,
            known => (known * 7 + ns.min(known * 2)) / 8,
        }
        .max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLION: usize = 1 << 20;

    /// Chooses so many times, each costing what its way costs, ns for 1 MiB; how many times it was staging.
    fn choose(costs: &mut Costs, times: u32, read: u64, stage: u64) -> u32 {
        let mut staged = 0;
        let mut quiet = 0;
        for _ in 0..times {
            if quiet > 0 {
                quiet -= 1;
                continue;
            }
            let (way, timed, next) = costs.choose();
            let ns = if way == Way::Stage { stage } else { read };
            if timed {
                costs.note(way, MILLION, Duration::from_nanos(ns));
            }
            quiet = next;
            staged += u32::from(way == Way::Stage);
        }
        staged
    }

    #[test]
    fn the_cheaper_way_is_taken_and_the_other_one_is_not_forgotten() {
        let mut costs = Costs::default();
        let trials = 2 * TRIALS;
        assert_eq!(choose(&mut costs, trials, 80_000, 50_000), TRIALS, "each as often");
        let many = 100 * TRIED_AGAIN;
        assert!((many - 101..many - 98).contains(&choose(&mut costs, many, 80_000, 50_000)));
        // It changes its mind once the other way costs less, and not for one read that was interrupted.
        assert!(choose(&mut costs, many, 40_000, 500_000) < many / 10);
        assert!((99..102).contains(&choose(&mut costs, many, 40_000, 500_000)));
        for _ in 0..2 {
            costs.note(Way::Read, MILLION, Duration::from_millis(50));
        }
        assert!(choose(&mut costs, TRIED_AGAIN / 2, 40_000, 500_000) <= 1);
        assert!(choose(&mut costs, many, 40_000, 39_000) <= 101, "what saves next to nothing is not worth it");
    }

    #[test]
    fn sizes_are_told_apart() {
        let sizes = [1, 16 << 10, (16 << 10) + 1, 32 << 10, 64 << 10, 512 << 10, 1 << 20, 1 << 30];
        assert_eq!(sizes.map(size_of_read), [0, 0, 1, 1, 2, 5, 6, 6]);
    }
}
