//! Updates of windows: operations that combine an element of the target with one of the origin (MPI 4.1 §12.3.4), and their codes on
//! the wire.

use crate::{Element, Operation, op};

/// The type of an element that can be updated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "named like the types")]
pub enum NumberType {
    U8 = 1,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

/// An operation of an update. The target's old value is the left operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "named like the operations in `op`")]
pub enum UpdateOperation {
    Sum = 1,
    Product,
    Min,
    Max,
    BitAnd,
    BitOr,
    BitXor,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    Replace,
    Keep,
}

/// The code of an update in a frame: element type and operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UpdateCode {
    /// The type of the elements.
    pub number: NumberType,
    /// The operation.
    pub operation: UpdateOperation,
}

impl UpdateOperation {
    /// Whether it writes elements. [`op::Keep`](crate::op::Keep) only reads them.
    #[inline]
    pub const fn writes(self) -> bool {
        !matches!(self, UpdateOperation::Keep)
    }
}

impl NumberType {
    /// All of them.
    pub const ALL: [NumberType; 10] = [
        NumberType::U8,
        NumberType::U16,
        NumberType::U32,
        NumberType::U64,
        NumberType::I8,
        NumberType::I16,
        NumberType::I32,
        NumberType::I64,
        NumberType::F32,
        NumberType::F64,
    ];

    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            NumberType::U8 | NumberType::I8 => 1,
            NumberType::U16 | NumberType::I16 => 2,
            NumberType::U32 | NumberType::I32 | NumberType::F32 => 4,
            NumberType::U64 | NumberType::I64 | NumberType::F64 => 8,
        }
    }
}

impl UpdateOperation {
    /// All of them.
    pub const ALL: [UpdateOperation; 12] = [
        UpdateOperation::Sum,
        UpdateOperation::Product,
        UpdateOperation::Min,
        UpdateOperation::Max,
        UpdateOperation::BitAnd,
        UpdateOperation::BitOr,
        UpdateOperation::BitXor,
        UpdateOperation::LogicalAnd,
        UpdateOperation::LogicalOr,
        UpdateOperation::LogicalXor,
        UpdateOperation::Replace,
        UpdateOperation::Keep,
    ];
}

impl UpdateCode {
    /// The code as a word of a frame.
    pub const fn word(self) -> u32 {
        self.number as u32 | (self.operation as u32) << 8
    }

    /// Decodes the word of a frame; `None` if it is invalid.
    pub fn from_word(word: u32) -> Option<Self> {
        let number = NumberType::ALL.into_iter().find(|&number| number as u32 == word & 0xFF)?;
        let operation = UpdateOperation::ALL.into_iter().find(|&operation| operation as u32 == word >> 8)?;
        Some(UpdateCode { number, operation })
    }
}

/// An unsigned integer of the same size as a number, for the processor's atomic operations.
pub trait Bits: Element + Copy + Eq {}
impl Bits for u8 {}
impl Bits for u16 {}
impl Bits for u32 {}
impl Bits for u64 {}

/// A number that can be updated in a window: an integer or a float of up to 8 bytes.
pub trait Number: Element {
    /// Its code on the wire.
    const TYPE: NumberType;
    /// The unsigned integer of its size.
    type Bits: Bits;
    /// The bits of the number.
    fn to_bits(self) -> Self::Bits;
    /// The number with these bits.
    fn of_bits(bits: Self::Bits) -> Self;
}

/// A number that can be compared and swapped: an integer.
pub trait Integer: Number + Eq {}

/// An operation that updates numbers of a type: one of [`op`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no update of elements of `{T}`",
    note = "use one of `tickwire::op` that has an operation for this type; functions of the application cannot be sent"
)]
pub trait Update<T>: Operation<T> + Copy + Default {
    /// Its code on the wire.
    const OPERATION: UpdateOperation;
}

macro_rules! numbers {
    ($($type:ty, $name:ident, $bits:ty;)*) => {$(
        impl Number for $type {
            const TYPE: NumberType = NumberType::$name;
            type Bits = $bits;

            #[inline(always)]
            fn to_bits(self) -> $bits {
                bytemuck::cast(self)
            }

            #[inline(always)]
            fn of_bits(bits: $bits) -> Self {
                bytemuck::cast(bits)
            }
        }
    )*};
}

numbers! {
    u8, U8, u8; u16, U16, u16; u32, U32, u32; u64, U64, u64; usize, U64, u64;
    i8, I8, u8; i16, I16, u16; i32, I32, u32; i64, I64, u64; isize, I64, u64;
    f32, F32, u32; f64, F64, u64;
}

macro_rules! updates {
    ($($type:ty)*: $($operation:ident)*) => {
        updates!(@each [$($type)*] [$($operation)*]);
    };
    (@each [$($type:ty)*] $operations:tt) => {$(
        updates!(@type $type, $operations);
    )*};
    (@type $type:ty, [$($operation:ident)*]) => {$(
        impl Update<$type> for op::$operation {
            const OPERATION: UpdateOperation = UpdateOperation::$operation;
        }
    )*};
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Integer for $type {}
    )*};
}

integers! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize }
updates! {
    u8 u16 u32 u64 usize i8 i16 i32 i64 isize:
    Sum Product Min Max BitAnd BitOr BitXor LogicalAnd LogicalOr LogicalXor Replace Keep
}
updates! { f32 f64: Sum Product Min Max Replace Keep }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_it_was_written_and_nothing_else_is_one() {
        let codes = NumberType::ALL
            .into_iter()
            .flat_map(|number| UpdateOperation::ALL.into_iter().map(move |operation| UpdateCode { number, operation }));
        let words: Vec<u32> = codes.map(|code| code.word()).collect();
        for word in 0..0x1_0000 {
            let read = UpdateCode::from_word(word).map(UpdateCode::word);
            assert_eq!(read, words.contains(&word).then_some(word));
        }
        assert_eq!(UpdateCode::from_word(1 << 16 | words[0]), None);
    }

    #[test]
    fn bits_give_the_number_back() {
        fn check<T: Number + PartialEq + std::fmt::Debug>(numbers: &[T]) {
            for &number in numbers {
                assert_eq!(T::of_bits(number.to_bits()), number);
                assert_eq!(size_of::<T>(), T::TYPE.size());
            }
        }
        check(&[0u8, 255]);
        check(&[i16::MIN, -1, 7]);
        check(&[f32::MIN, -0.0, 1.5]);
        check(&[f64::INFINITY, 1e300]);
        check(&[usize::MAX, 1]);
    }
}
