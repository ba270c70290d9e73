//! The keys that are counted: how they are drawn, their bins, and how many are expected in each bin.

use std::ops::Range;

/// All keys are below this.
pub(crate) const KEYS: u64 = 1 << 16;

/// Bits of each of the four numbers that are added up for a key.
const BITS: u32 = 14;
/// Of 256 keys, so many are in the narrow hill.
const NARROW: u64 = 48;
/// Where the narrow hill begins, and how many times narrower it is than the wide one.
const NARROW_FROM: u64 = 45_056;
const NARROWER: u64 = 4;

/// Scrambles a word: the finalizer of SplitMix64.
pub(crate) fn scramble(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The key of an index. Any rank can draw any key by itself.
pub(crate) fn key(seed: u64, index: u64) -> u64 {
    let word = scramble(scramble(seed).wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let sum: u64 = (0..4).map(|part| word >> (part * BITS) & ((1 << BITS) - 1)).sum();
    if word >> 56 < NARROW { NARROW_FROM + sum / NARROWER } else { sum }
}

/// The indexes whose keys a rank draws.
pub(crate) fn indexes(keys: u64, rank: u32, ranks: u32) -> Range<u64> {
    let first = |rank: u32| (u128::from(keys) * u128::from(rank) / u128::from(ranks)) as u64;
    first(rank)..first(rank + 1)
}

/// The bin of a key.
pub(crate) fn bin(key: u64, bins: usize) -> usize {
    (key * bins as u64 / KEYS) as usize
}

/// The share of all keys that is expected between two keys.
pub(crate) fn expected(from: f64, to: f64) -> f64 {
    let part = NARROW as f64 / 256.0;
    let unit = f64::from(1 << BITS);
    let wide = below(to / unit) - below(from / unit);
    let [from, to] = [from, to].map(|key| (key - NARROW_FROM as f64) * NARROWER as f64 / unit);
    (1.0 - part) * wide + part * (below(to) - below(from))
}

/// The probability that the sum of four numbers between 0 and 1 is below `sum` (Irwin and Hall).
fn below(sum: f64) -> f64 {
    let sum = sum.clamp(0.0, 4.0);
    let terms = [1.0, -4.0, 6.0, -4.0].into_iter().zip([0.0, 1.0, 2.0, 3.0]);
    terms.map(|(times, from)| times * (sum - from).max(0.0).powi(4)).sum::<f64>() / 24.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_one_rank() {
        for (keys, ranks) in [(0, 1), (1, 3), (1000, 7), (u64::MAX, 4096)] {
            let all: Vec<_> = (0..ranks).map(|rank| indexes(keys, rank, ranks)).collect();
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((all[0].start, all[ranks as usize - 1].end), (0, keys));
        }
    }

    #[test]
    fn as_many_keys_are_drawn_as_are_to_be_expected() {
        const DRAWN: u64 = 100_000;
        let (bins, width) = (16, KEYS as f64 / 16.0);
        let mut counts = vec![0u64; bins];
        (0..DRAWN).for_each(|index| counts[bin(key(3, index), bins)] += 1);
        let mut all = 0.0;
        for (bin, count) in counts.into_iter().enumerate() {
            let expected = DRAWN as f64 * expected(bin as f64 * width, (bin + 1) as f64 * width);
            assert!((count as f64 - expected).abs() < 5.0 * expected.sqrt() + 5.0, "{bin}: {count}, not {expected}");
            all += expected;
        }
        assert!((all - DRAWN as f64).abs() < 1e-6 * DRAWN as f64, "{all}");
    }
}
