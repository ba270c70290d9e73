//! Elements of random programs, and the operations that reduce them.

use tickwire::{Basic, Operation, bytemuck, op};

/// An element. It is made from a number, and it can be reduced in three ways.
pub(crate) trait Item: Basic + Default + PartialEq + std::fmt::Debug {
    /// The operation of the element type itself. It has no state, so equal calls share a graph.
    type Native: Operation<Self>;
    /// See [`Item::Native`].
    const NATIVE: Self::Native;
    /// Whether the native result is independent of which operands are combined first.
    const IS_ASSOCIATIVE: bool;

    /// The element for a number.
    fn of(number: u64) -> Self;
    /// The expected result of [`Item::NATIVE`].
    fn native(left: Self, right: Self) -> Self;
    /// An associative function that is not commutative.
    fn chain(left: Self, right: Self) -> Self;
    /// A function that is neither associative nor commutative: its result shows which operands were combined.
    fn mix(left: Self, right: Self) -> Self;

    /// `count` elements, made from a seed.
    fn run(seed: u64, count: usize) -> Vec<Self> {
        (0..count as u64).map(|at| Self::of(scramble(seed ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15)))).collect()
    }
}

/// A pseudo-random number made from another number.
pub(crate) fn scramble(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Item for u64 {
    type Native = op::Sum;
    const NATIVE: op::Sum = op::Sum;
    const IS_ASSOCIATIVE: bool = true;

    fn of(number: u64) -> Self {
        number
    }

    fn native(left: Self, right: Self) -> Self {
        left.wrapping_add(right)
    }

    /// A word stands for a function x ↦ a x + b. The result is the composition of both.
    fn chain(left: Self, right: Self) -> Self {
        let parts = |of: u64| (of as u32, (of >> 32) as u32);
        let ((a, b), (c, d)) = (parts(left), parts(right));
        u64::from(a.wrapping_mul(c)) | u64::from(a.wrapping_mul(d).wrapping_add(b)) << 32
    }

    fn mix(left: Self, right: Self) -> Self {
        left.rotate_left(7).wrapping_mul(31) ^ right.wrapping_add(left)
    }
}

impl Item for i32 {
    type Native = op::Max;
    const NATIVE: op::Max = op::Max;
    const IS_ASSOCIATIVE: bool = true;

    fn of(number: u64) -> Self {
        number as i32
    }

    fn native(left: Self, right: Self) -> Self {
        left.max(right)
    }

    /// The right operand if it is odd, else the left one.
    fn chain(left: Self, right: Self) -> Self {
        if right & 1 == 1 { right } else { left }
    }

    fn mix(left: Self, right: Self) -> Self {
        left.wrapping_mul(3).wrapping_sub(right)
    }
}

/// Floats of many orders of magnitude, so that a sum depends on the order of its operands.
impl Item for f64 {
    type Native = op::Sum;
    const NATIVE: op::Sum = op::Sum;
    const IS_ASSOCIATIVE: bool = false;

    fn of(number: u64) -> Self {
        f64::from(number as i32) * 10f64.powi((number >> 32) as i32 % 17 - 8)
    }

    fn native(left: Self, right: Self) -> Self {
        left + right
    }

    /// The left operand if it is not negative, else the right one.
    fn chain(left: Self, right: Self) -> Self {
        if left >= 0.0 { left } else { right }
    }

    fn mix(left: Self, right: Self) -> Self {
        left * 0.75 - right
    }
}

/// The modulus of the numbers, a prime below 2^8, so that products fit.
const PRIME: u32 = 251;

/// A 2 × 2 matrix, an element type of the user.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[repr(C)]
pub(crate) struct Matrix {
    rows: [[u8; 2]; 2],
    /// How many matrices were multiplied.
    factors: u16,
}

// SAFETY: six bytes that may have any value, without padding.
#[expect(unsafe_code, reason = "an element is plain data")]
unsafe impl bytemuck::Zeroable for Matrix {}

// SAFETY: as above.
#[expect(unsafe_code, reason = "an element is plain data")]
unsafe impl bytemuck::Pod for Matrix {}

impl Basic for Matrix {}

const _: () = assert!(size_of::<Matrix>() == 6);

/// Products of matrices, in the order of ranks.
pub(crate) struct Product;

impl Operation<Matrix> for Product {
    fn combine(&self, left: Matrix, right: Matrix) -> Matrix {
        Matrix::native(left, right)
    }
}

impl Item for Matrix {
    type Native = Product;
    const NATIVE: Product = Product;
    const IS_ASSOCIATIVE: bool = true;

    fn of(number: u64) -> Self {
        let byte = |at: u32| (number >> (8 * at)) as u8;
        Matrix { rows: [[byte(0), byte(1)], [byte(2), byte(3)]], factors: 1 }
    }

    fn native(left: Self, right: Self) -> Self {
        let at = |row: usize, column: usize| {
            let product = |by: usize| u32::from(left.rows[row][by]) * u32::from(right.rows[by][column]);
            ((product(0) + product(1)) % PRIME) as u8
        };
        let rows = [[at(0, 0), at(0, 1)], [at(1, 0), at(1, 1)]];
        Matrix { rows, factors: left.factors.wrapping_add(right.factors) }
    }

    /// The left operand, with the factors of both.
    fn chain(left: Self, right: Self) -> Self {
        Matrix { factors: left.factors.wrapping_add(right.factors), ..left }
    }

    fn mix(left: Self, right: Self) -> Self {
        Matrix { factors: left.factors.wrapping_mul(5), ..Matrix::native(left, right) }
    }
}
