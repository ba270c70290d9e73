//! Predefined operations (`MPI_SUM` and so on).

use crate::{Datatype, Described, Indexed, OnPacked, OnStructs, Operation};

/// A reduction of [`Packed`](crate::Packed) buffers by a function on packed elements of a datatype. The function gets the bytes of
/// the left and of the right element, and writes the result over the right one.
pub fn on_packed<F: Fn(&[u8], &mut [u8])>(of: &Datatype, function: F) -> OnPacked<F> {
    OnPacked::new(of, function)
}

/// A reduction of [`Packed`](crate::Packed) buffers by a function on structs with a datatype. The bytes that the datatype leaves
/// out are those of `T::default()`.
pub fn on_structs<T: Described, F: Fn(T, T) -> T>(function: F) -> OnStructs<T, F> {
    OnStructs::new(function)
}

/// Declares operations.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name;
    )*};
}

operations! {
    /// The sum (`MPI_SUM`). Integers wrap around. A NaN is `NAN` of the type.
    Sum;
    /// The product (`MPI_PROD`). Integers wrap around. A NaN is `NAN` of the type.
    Product;
    /// The smaller one (`MPI_MIN`). Between a NaN and a number, the number wins; between −0 and 0, −0.
    Min;
    /// The greater one (`MPI_MAX`). Between a NaN and a number, the number wins; between −0 and 0, 0.
    Max;
    /// 1 if both are not 0, else 0 (`MPI_LAND`).
    LogicalAnd;
    /// 1 if at least one is not 0, else 0 (`MPI_LOR`).
    LogicalOr;
    /// 1 if exactly one is not 0, else 0 (`MPI_LXOR`).
    LogicalXor;
    /// Bitwise and (`MPI_BAND`).
    BitAnd;
    /// Bitwise or (`MPI_BOR`).
    BitOr;
    /// Bitwise exclusive or (`MPI_BXOR`).
    BitXor;
    /// The smaller value, with its index (`MPI_MINLOC`). Between a NaN and a number, the number wins.
    MinLoc;
    /// The greater value, with its index (`MPI_MAXLOC`). Between a NaN and a number, the number wins.
    MaxLoc;
    /// The right operand: an update with it overwrites the target (`MPI_REPLACE`).
    Replace;
    /// The left operand: an update with it only reads the target (`MPI_NO_OP`).
    Keep;
}

/// Implements an operation for types.
macro_rules! combine {
    ($name:ident: $($type:ty)*, |$left:ident, $right:ident| $result:expr) => {$(
        impl Operation<$type> for $name {
            #[inline(always)]
            fn combine(&self, $left: $type, $right: $type) -> $type {
                $result
            }

            #[inline(always)]
            fn may_panic(&self) -> bool {
                false
            }
        }
    )*};
}

/// Implements operations for integers.
macro_rules! integers {
    ($($type:ty)*) => {
        combine!(Sum: $($type)*, |left, right| left.wrapping_add(right));
        combine!(Product: $($type)*, |left, right| left.wrapping_mul(right));
        combine!(Min: $($type)*, |left, right| left.min(right));
        combine!(Max: $($type)*, |left, right| left.max(right));
        combine!(LogicalAnd: $($type)*, |left, right| (left != 0 && right != 0).into());
        combine!(LogicalOr: $($type)*, |left, right| (left != 0 || right != 0).into());
        combine!(LogicalXor: $($type)*, |left, right| ((left != 0) != (right != 0)).into());
        combine!(BitAnd: $($type)*, |left, right| left & right);
        combine!(BitOr: $($type)*, |left, right| left | right);
        combine!(BitXor: $($type)*, |left, right| left ^ right);
    };
}

impl<T: Send + Sync + 'static> Operation<T> for Replace {
    #[inline(always)]
    fn combine(&self, _: T, right: T) -> T {
        right
    }
}

impl<T: Send + Sync + 'static> Operation<T> for Keep {
    #[inline(always)]
    fn combine(&self, left: T, _: T) -> T {
        left
    }
}

integers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);
combine!(Sum: f32 f64, |left, right| (left + right).with_one_nan());
combine!(Product: f32 f64, |left, right| (left * right).with_one_nan());
combine!(Min: f32 f64, |left, right| left.lesser(right));
combine!(Max: f32 f64, |left, right| left.greater(right));

/// Operations on floats that give the same bits in whichever order the operands come. The processor's instructions leave that open for
/// zeros and for NaNs, and the compiler may exchange operands.
trait SameBits: Sized {
    /// The smaller one. −0 is less than 0.
    fn lesser(self, other: Self) -> Self;
    /// The greater one.
    fn greater(self, other: Self) -> Self;
    /// The same value, where there is only one NaN.
    fn with_one_nan(self) -> Self;
}

macro_rules! same_bits {
    ($($type:ty)*) => {$(
        impl SameBits for $type {
            #[inline(always)]
            fn lesser(self, other: $type) -> $type {
                // Equal floats have the same bits, unless they are zeros.
                if self == other {
                    <$type>::from_bits(self.to_bits() | other.to_bits())
                } else {
                    self.min(other).with_one_nan()
                }
            }

            #[inline(always)]
            fn greater(self, other: $type) -> $type {
                if self == other {
                    <$type>::from_bits(self.to_bits() & other.to_bits())
                } else {
                    self.max(other).with_one_nan()
                }
            }

            #[inline(always)]
            fn with_one_nan(self) -> $type {
                if self.is_nan() { <$type>::NAN } else { self }
            }
        }
    )*};
}

same_bits!(f32 f64);

/// Whether `other` is a NaN, and `one` is a number or a NaN of a lower index. Without this, a NaN would hide what it is combined with, and
/// the result would depend on the order.
fn is_number_or_first<V: PartialOrd, I: Ord>(one: &Indexed<V, I>, other: &Indexed<V, I>) -> bool {
    let is_nan = |value: &V| value.partial_cmp(value).is_none();
    is_nan(&other.value) && (!is_nan(&one.value) || one.index < other.index)
}

impl<V: PartialOrd + Send + Sync + 'static, I: Ord + Send + Sync + 'static> Operation<Indexed<V, I>> for MinLoc {
    fn combine(&self, left: Indexed<V, I>, right: Indexed<V, I>) -> Indexed<V, I> {
        let less = right.value < left.value || right.value == left.value && right.index < left.index;
        if less || is_number_or_first(&right, &left) { right } else { left }
    }
}

impl<V: PartialOrd + Send + Sync + 'static, I: Ord + Send + Sync + 'static> Operation<Indexed<V, I>> for MaxLoc {
    fn combine(&self, left: Indexed<V, I>, right: Indexed<V, I>) -> Indexed<V, I> {
        let greater = right.value > left.value || right.value == left.value && right.index < left.index;
        if greater || is_number_or_first(&right, &left) { right } else { left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nans_of_any_bits_give_the_same_bits_in_either_order() {
        let nans = [f64::NAN, -f64::NAN, f64::from_bits(0x7FF8_0000_0000_1234), f64::from_bits(0xFFF8_0000_0000_0007)];
        let others = [0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY];
        let bits = |value: f64| value.to_bits();
        for &one in &nans {
            for &other in nans.iter().chain(&others) {
                for (left, right) in [(one, other), (other, one)] {
                    let (left, right) = (std::hint::black_box(left), std::hint::black_box(right));
                    let made = [Sum.combine(left, right), Product.combine(left, right)].map(bits);
                    assert_eq!(made, [bits(f64::NAN); 2], "{left:?} and {right:?}");
                    let best = if other.is_nan() { f64::NAN } else { other };
                    assert_eq!([Min.combine(left, right), Max.combine(left, right)].map(bits), [bits(best); 2]);
                }
            }
        }
        let made =
            [Sum.combine(f64::INFINITY, f64::NEG_INFINITY), Product.combine(std::hint::black_box(0.0), f64::INFINITY)];
        assert_eq!(made.map(bits), [bits(f64::NAN); 2]);
        assert_eq!(Sum.combine(-f32::NAN, f32::from_bits(0x7FC0_0009)).to_bits(), f32::NAN.to_bits());
    }
}
