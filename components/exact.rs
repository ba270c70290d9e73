//! Sums of floats without rounding.

use crate::{Operation, op};
use bytemuck::{Pod, Zeroable};
use std::fmt;
use std::ops::AddAssign;

/// A sum of floats that is not rounded until it is [read](ExactSum::value). So the result depends only on the values that were added,
/// not on their order or on the number of ranks. It is an element type of reductions.
///
/// It is a two's complement integer whose unit is the smallest positive float. It is long enough for 2⁷⁶ of the greatest floats: 280
/// bytes for `f64`, 56 bytes for `f32`. Infinities and NaNs are recorded beside it.
///
/// ```
/// use tickwire_components::{ExactSum, Operation, op};
/// let (left, right) = (ExactSum::from(1e300), [1.0, -1e300].into_iter().collect());
/// assert_eq!(op::Sum.combine(left, right).value(), 1.0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ExactSum<F: ExactFloat> {
    /// The integer, lowest word first.
    words: F::Words,
    /// Which special values were added: a set of [`INFINITY`], [`NEGATIVE`] and [`NAN`].
    specials: u64,
}

/// +∞ was added.
const INFINITY: u64 = 1;
/// −∞ was added.
const NEGATIVE: u64 = 2;
/// A NaN was added.
const NAN: u64 = 4;

/// A float that an [`ExactSum`] adds: `f32` or `f64`.
pub trait ExactFloat: Copy + PartialEq + fmt::Debug + Send + Sync + 'static + sealed::Sealed {
    /// The words of the integer.
    type Words: Pod + Eq + Send + Sync + AsRef<[u64]> + AsMut<[u64]>;
    /// Bits of the fraction.
    #[doc(hidden)]
    const FRACTION: u32;
    /// The stored exponent of infinities and NaNs.
    #[doc(hidden)]
    const SPECIAL: u64;
    #[doc(hidden)]
    fn into_bits(self) -> u64;
    #[doc(hidden)]
    fn of_bits(bits: u64) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

macro_rules! floats {
    ($($float:ty, $bits:ty, $words:literal, $exponent:literal;)*) => {$(
        impl ExactFloat for $float {
            type Words = [u64; $words];
            const FRACTION: u32 = <$float>::MANTISSA_DIGITS - 1;
            const SPECIAL: u64 = $exponent;

            fn into_bits(self) -> u64 {
                self.to_bits().into()
            }

            fn of_bits(bits: u64) -> Self {
                <$float>::from_bits(bits as $bits)
            }
        }

        // The greatest float is shifted left by `$exponent - 2`. A sign bit and 76 more bits remain.
        const _: () = assert!(64 * $words > $exponent - 2 + <$float>::MANTISSA_DIGITS + 76);
        const _: () = assert!(size_of::<ExactSum<$float>>() == 8 * ($words + 1));
    )*};
}

floats! {
    f32, u32, 6, 255;
    f64, u64, 34, 2047;
}

// SAFETY: words of plain data, of one size and alignment, so that there is no padding; 0 is a value.
#[expect(unsafe_code, reason = "plain data")]
unsafe impl<F: ExactFloat> Zeroable for ExactSum<F> {}
// SAFETY: as above, and any bytes are a value.
#[expect(unsafe_code, reason = "plain data")]
unsafe impl<F: ExactFloat> Pod for ExactSum<F> {}

impl<F: ExactFloat> crate::Basic for ExactSum<F> {}

impl<F: ExactFloat> Default for ExactSum<F> {
    fn default() -> Self {
        Self::zeroed()
    }
}

impl<F: ExactFloat> ExactSum<F> {
    /// The sum of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The float that is nearest to the sum; of two equally near ones, the even one. A sum of zeros is 0, never −0.
    ///
    /// The result is infinite if an infinity was added, or if the sum is too great for a float. It is NaN if a NaN was added, or
    /// infinities of both signs.
    pub fn value(&self) -> F {
        let (sign, infinity) = (1 << (F::FRACTION + F::SPECIAL.count_ones()), F::SPECIAL << F::FRACTION);
        match self.specials & (INFINITY | NEGATIVE | NAN) {
            0 => {}
            INFINITY => return F::of_bits(infinity),
            NEGATIVE => return F::of_bits(infinity | sign),
            _ => return F::of_bits(infinity | 1 << (F::FRACTION - 1)),
        }
        let mut words = self.words;
        let is_negative = words.as_ref().last().is_some_and(|word| word >> 63 != 0);
        if is_negative {
            negate(words.as_mut());
        }
        let bits = rounded(words.as_ref(), F::FRACTION).min(infinity);
        F::of_bits(bits | if is_negative { sign } else { 0 })
    }
}

/// Changes the sign of an integer.
fn negate(words: &mut [u64]) {
    let mut carry = true;
    for word in words {
        (*word, carry) = (!*word).overflowing_add(carry.into());
    }
}

/// The bits of the float that is nearest to an integer, in units of the smallest positive float. If the integer is too great for a
/// float, the result is more than the bits of infinity.
fn rounded(words: &[u64], fraction: u32) -> u64 {
    let Some(top) = words.iter().rposition(|&word| word != 0) else { return 0 };
    let highest = top as u64 * 64 + 63 - u64::from(words[top].leading_zeros());
    // For a shift of 0, the integer is the float's bits: the leading bit of a normal float becomes the exponent 1.
    let Some(shift) = highest.checked_sub(fraction.into()).filter(|&shift| shift > 0) else { return words[0] };
    let (first, offset) = ((shift / 64) as usize, shift % 64);
    let word = |index: usize| u128::from(words.get(index).copied().unwrap_or(0));
    let significand = ((word(first) | word(first + 1) << 64) >> offset) as u64;
    let is_set = |bit: u64| words[(bit / 64) as usize] >> (bit % 64) & 1 != 0;
    let half = shift - 1;
    let below = (half / 64) as usize;
    let is_more = words[..below].iter().any(|&word| word != 0) || words[below] & ((1 << (half % 64)) - 1) != 0;
    let up = is_set(half) && (is_more || significand & 1 != 0);
    // The leading bit of the significand adds 1 to the exponent. A carry of rounding does so too.
    (shift << fraction) + significand + u64::from(up)
}

impl<F: ExactFloat> From<F> for ExactSum<F> {
    fn from(value: F) -> Self {
        let mut sum = Self::default();
        sum += value;
        sum
    }
}

impl<F: ExactFloat> AddAssign<F> for ExactSum<F> {
    fn add_assign(&mut self, value: F) {
        let bits = value.into_bits();
        let fraction = bits & ((1 << F::FRACTION) - 1);
        let exponent = bits >> F::FRACTION & F::SPECIAL;
        let is_negative = bits >> (F::FRACTION + F::SPECIAL.count_ones()) != 0;
        if exponent == F::SPECIAL {
            self.specials |= match (fraction, is_negative) {
                (0, false) => INFINITY,
                (0, true) => NEGATIVE,
                _ => NAN,
            };
            return;
        }
        let significand = if exponent == 0 { fraction } else { fraction | 1 << F::FRACTION };
        let shift = exponent.saturating_sub(1);
        let added = u128::from(significand) << (shift % 64);
        let words = &mut self.words.as_mut()[(shift / 64) as usize..];
        match is_negative {
            true => combine(words, added, u64::overflowing_sub),
            false => combine(words, added, u64::overflowing_add),
        }
    }
}

/// Adds two words to an integer, or subtracts them, as `step` does with one word.
#[inline(always)]
fn combine(words: &mut [u64], mut rest: u128, step: impl Fn(u64, u64) -> (u64, bool)) {
    for word in words {
        let carry;
        (*word, carry) = step(*word, rest as u64);
        rest = (rest >> 64) + u128::from(carry);
        if rest == 0 {
            break;
        }
    }
}

impl<F: ExactFloat> AddAssign<&ExactSum<F>> for ExactSum<F> {
    fn add_assign(&mut self, other: &ExactSum<F>) {
        self.specials |= other.specials;
        let mut carry = false;
        for (word, &added) in self.words.as_mut().iter_mut().zip(other.words.as_ref()) {
            let sum = u128::from(*word) + u128::from(added) + u128::from(carry);
            (*word, carry) = (sum as u64, sum >> 64 != 0);
        }
    }
}

impl<F: ExactFloat> Extend<F> for ExactSum<F> {
    fn extend<I: IntoIterator<Item = F>>(&mut self, values: I) {
        values.into_iter().for_each(|value| *self += value);
    }
}

impl<F: ExactFloat> FromIterator<F> for ExactSum<F> {
    fn from_iter<I: IntoIterator<Item = F>>(values: I) -> Self {
        let mut sum = Self::default();
        sum.extend(values);
        sum
    }
}

impl<F: ExactFloat> fmt::Debug for ExactSum<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExactSum({:?})", self.value())
    }
}

impl<F: ExactFloat> Operation<ExactSum<F>> for op::Sum {
    #[inline]
    fn combine(&self, mut left: ExactSum<F>, right: ExactSum<F>) -> ExactSum<F> {
        left += &right;
        left
    }
}

#[cfg(test)]
mod tests;
