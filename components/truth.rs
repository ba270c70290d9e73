//! Booleans for which every byte is a valid value.

use crate::{Operation, op};
use std::fmt;
use std::hash::{Hash, Hasher};

/// A boolean for which every byte is a valid value: 0 is false, any other byte is true. It is the element type of logical reductions,
/// and of receives.
///
/// A `bool` of Rust must be 0 or 1. A peer's bytes may be anything, so a message must not be received into `bool`s.
///
/// ```
/// use tickwire_components::Bool;
/// let flags = [true, false];
/// assert_eq!(Bool::slice(&flags), [Bool::TRUE, Bool::FALSE]);
/// assert!(Bool::from(true).get());
/// ```
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bool(u8);

// SAFETY: a byte, of which all values are allowed; 0 is one.
#[expect(unsafe_code, reason = "plain data")]
unsafe impl bytemuck::Zeroable for Bool {}
// SAFETY: as above; there is no padding.
#[expect(unsafe_code, reason = "plain data")]
unsafe impl bytemuck::Pod for Bool {}

impl crate::Basic for Bool {}

impl Bool {
    /// True.
    pub const TRUE: Bool = Bool(1);
    /// False.
    pub const FALSE: Bool = Bool(0);

    /// Whether it is true.
    pub const fn get(self) -> bool {
        self.0 != 0
    }

    /// Views a slice of `bool`s as such elements, without a copy.
    pub fn slice(bools: &[bool]) -> &[Bool] {
        bytemuck::cast_slice(bools)
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Bool(value.into())
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> Self {
        value.get()
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Bool {}

impl PartialEq<bool> for Bool {
    fn eq(&self, other: &bool) -> bool {
        self.get() == *other
    }
}

impl Hash for Bool {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.get().hash(state);
    }
}

impl fmt::Debug for Bool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl Operation<Bool> for op::LogicalAnd {
    #[inline(always)]
    fn combine(&self, left: Bool, right: Bool) -> Bool {
        (left.get() & right.get()).into()
    }
}

impl Operation<Bool> for op::LogicalOr {
    #[inline(always)]
    fn combine(&self, left: Bool, right: Bool) -> Bool {
        (left.get() | right.get()).into()
    }
}

impl Operation<Bool> for op::LogicalXor {
    #[inline(always)]
    fn combine(&self, left: Bool, right: Bool) -> Bool {
        (left.get() ^ right.get()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_a_truth_value_and_results_are_0_or_1() {
        for left in 0..=255u8 {
            for right in [0u8, 1, 2, 0x80, 255] {
                let of = |byte: u8| -> Bool { bytemuck::cast(byte) };
                let (a, b) = (left != 0, right != 0);
                let byte = |of: Bool| bytemuck::cast::<Bool, u8>(of);
                assert_eq!(byte(op::LogicalAnd.combine(of(left), of(right))), u8::from(a && b));
                assert_eq!(byte(op::LogicalOr.combine(of(left), of(right))), u8::from(a || b));
                assert_eq!(byte(op::LogicalXor.combine(of(left), of(right))), u8::from(a != b));
                assert_eq!((of(left) == of(right), bool::from(of(left))), (a == b, a));
            }
        }
        assert_eq!(format!("{:?}", Bool::slice(&[true, false])), "[true, false]");
    }
}
