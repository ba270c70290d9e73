//! Pseudo-random numbers that a seed reproduces.

/// A small generator of pseudo-random numbers (Steele, Lea, Flood: SplitMix64), for tests that a seed must reproduce.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        SplitMix(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next number below a bound, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// The next number of a range; its start if it is empty.
    pub fn within(&mut self, range: &std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start).max(1))
    }

    /// Whether an event occurs that occurs `of_256` times in 256. With 0, no random number is consumed.
    pub fn happens(&mut self, of_256: u8) -> bool {
        of_256 > 0 && self.below(256) < of_256.into()
    }
}
