//! Operations on elements, as reductions and updates use them.

use bytemuck::{AnyBitPattern, NoUninit};

/// An element that can be reduced: plain data that may move between threads.
pub trait Element: NoUninit + AnyBitPattern + Send + Sync + 'static {}

impl<T: NoUninit + AnyBitPattern + Send + Sync + 'static> Element for T {}

/// A reduction operation on elements of a type: one of [`op`](crate::op), or a function of two elements.
///
/// The left operand comes from lower ranks. An operation must be associative up to rounding, but need not be commutative: all
/// reductions keep the order of ranks. Which operands are combined with each other is the same in all runs.
///
/// ```
/// use tickwire_components::{Operation, op};
/// fn is_operation<T>(_: impl Operation<T>) {}
/// is_operation::<f64>(op::Sum);
/// is_operation::<u32>(|left: u32, right: u32| left.wrapping_mul(right));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no reduction of elements of `{T}`",
    note = "use one of `tickwire::op`, or a function `Fn(T, T) -> T`"
)]
pub trait Operation<T>: Send + Sync + 'static {
    /// Combines two elements.
    fn combine(&self, left: T, right: T) -> T;

    /// Bytes of one element that it combines: the size of the type, or of the packed elements of a datatype.
    #[inline(always)]
    fn element(&self) -> usize {
        size_of::<T>()
    }

    /// Whether the operation may panic. The predefined operations do not, so they need no code that catches a panic. If an operation
    /// panics although it returns `false` here, the panic may propagate out of the waiting call, instead of an error of a poisoned
    /// engine.
    #[inline(always)]
    fn may_panic(&self) -> bool {
        true
    }

    /// Combines two runs element by element.
    #[inline(always)]
    fn combine_all(&self, operands: Operands<'_, T>)
    where
        T: Copy,
    {
        // There are three loops, so that the compiler knows in each which operands are the same.
        match operands {
            Operands::Left(into, right) => {
                into.iter_mut().zip(right).for_each(|(into, right)| *into = self.combine(*into, *right));
            }
            Operands::Right(left, into) => {
                into.iter_mut().zip(left).for_each(|(into, left)| *into = self.combine(*left, *into));
            }
            Operands::Apart(out, left, right) => {
                let pairs = left.iter().zip(right);
                out.iter_mut().zip(pairs).for_each(|(into, (left, right))| *into = self.combine(*left, *right));
            }
        }
    }
}

/// Two runs of elements to combine, and where the results go.
#[derive(Debug)]
pub enum Operands<'a, T> {
    /// The results go into the left operand.
    Left(&'a mut [T], &'a [T]),
    /// The results go into the right operand.
    Right(&'a [T], &'a mut [T]),
    /// The results go into the first run. The others are the left and the right operand.
    Apart(&'a mut [T], &'a [T], &'a [T]),
}

impl<T, F: Fn(T, T) -> T + Send + Sync + 'static> Operation<T> for F {
    fn combine(&self, left: T, right: T) -> T {
        self(left, right)
    }
}

/// A value and its index: the element of [`op::MinLoc`](crate::op::MinLoc) and [`op::MaxLoc`](crate::op::MaxLoc).
///
/// Value and index have the same size, so that there is no padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Indexed<V, I> {
    /// The value that is compared.
    pub value: V,
    /// The index. Among equal values, the lowest index wins.
    pub index: I,
}

/// Implements plain data for pairs of types of the same size.
macro_rules! indexed {
    ($($value:ty, $index:ty;)*) => {$(
        const _: () = assert!(size_of::<$value>() == size_of::<$index>());

        // SAFETY: two fields of plain data of one size and alignment have no padding.
        #[expect(unsafe_code, reason = "plain data")]
        unsafe impl NoUninit for Indexed<$value, $index> {}
        // SAFETY: any bytes are values of both fields.
        #[expect(unsafe_code, reason = "plain data")]
        unsafe impl bytemuck::Zeroable for Indexed<$value, $index> {}
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "plain data")]
        unsafe impl AnyBitPattern for Indexed<$value, $index> {}
    )*};
}

indexed! {
    i8, u8; i8, i8; u8, u8; i16, u16; i16, i16; u16, u16;
    f32, u32; f32, i32; i32, u32; i32, i32; u32, u32;
    f64, u64; f64, i64; i64, u64; i64, i64; u64, u64;
}
