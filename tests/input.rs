//! The bytes from which a fuzz target takes what it does. Tests without a fuzzer make such bytes from a seed.

/// What is left of an input. An input that has ended reads as zeros.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    /// Takes a byte.
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Takes a word of eight bytes.
    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
}
