//! Reductions: operations that combine the elements of two buffers.

use crate::graph::Side;
use crate::{LeasedBytes, Sequence, Span};
use bytemuck::{AnyBitPattern, NoUninit};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// An element that can be reduced: plain data that may move between threads.
pub trait Element: NoUninit + AnyBitPattern + Send + Sync + 'static {}

impl<T: NoUninit + AnyBitPattern + Send + Sync + 'static> Element for T {}

/// A reduction operation on elements of a type: one of [`op`], or a function of two elements.
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

/// A value and its index: the element of [`op::MinLoc`] and [`op::MaxLoc`].
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

/// Predefined operations (`MPI_SUM` and so on).
pub mod op {
    use super::{Indexed, Operation};
    use crate::{Datatype, Described, OnPacked, OnStructs};

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
        /// The sum (`MPI_SUM`). Integers wrap around.
        Sum;
        /// The product (`MPI_PROD`). Integers wrap around.
        Product;
        /// The smaller one (`MPI_MIN`). Between a NaN and a number, the number wins.
        Min;
        /// The greater one (`MPI_MAX`). Between a NaN and a number, the number wins.
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
    combine!(Sum: f32 f64, |left, right| left + right);
    combine!(Product: f32 f64, |left, right| left * right);
    combine!(Min: f32 f64, |left, right| left.min(right));
    combine!(Max: f32 f64, |left, right| left.max(right));

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

/// A reduction operation on runs of bytes that contain elements of one type.
pub trait Reducer: Send + Sync {
    /// Combines two runs, element by element, into `out`.
    ///
    /// # Safety
    /// All three are runs of elements of the operation's type and of the same length. `out` is one of the other two, or does not
    /// overlap them. Nobody else uses `out` meanwhile.
    #[expect(unsafe_code, reason = "addresses of elements")]
    unsafe fn combine(&self, out: Span, left: Span, right: Span);
}

/// The [`Reducer`] of an [`Operation`].
struct Elementwise<T, O>(O, PhantomData<fn(T)>);

#[expect(unsafe_code, reason = "addresses of elements")]
impl<T: Element, O: Operation<T>> Reducer for Elementwise<T, O> {
    unsafe fn combine(&self, out: Span, left: Span, right: Span) {
        // SAFETY: by the same contract.
        unsafe { combine_runs::<T>(out, left, right, &self.0) }
    }
}

/// How operands of a collective operation are reduced.
#[derive(Clone)]
pub enum Reduction {
    /// By an operation of size 0 that does not panic.
    Predefined(&'static dyn Reducer),
    /// By an operation of size 0.
    Stateless(&'static dyn Reducer),
    /// By an operation with state.
    Shared(Arc<dyn Reducer>),
}

impl Reduction {
    /// Whether it may run a function of the application, which may panic.
    #[inline(always)]
    pub fn may_panic(&self) -> bool {
        !matches!(self, Reduction::Predefined(_))
    }

    /// Combines two runs into `out`. See [`Reducer::combine`].
    ///
    /// # Safety
    /// As [`Reducer::combine`].
    #[expect(unsafe_code, reason = "addresses of elements")]
    #[inline(always)]
    pub unsafe fn combine(&self, out: Span, left: Span, right: Span) {
        // SAFETY: by the same contract.
        unsafe {
            match self {
                Reduction::Predefined(reducer) | Reduction::Stateless(reducer) => reducer.combine(out, left, right),
                Reduction::Shared(reducer) => reducer.combine(out, left, right),
            }
        }
    }

    /// Combines two runs into `into`, which is the operand of side `side`.
    ///
    /// # Safety
    /// As [`Reducer::combine`].
    #[expect(unsafe_code, reason = "addresses of elements")]
    pub unsafe fn combine_into(&self, into: Span, other: Span, side: Side) {
        // SAFETY: by the same contract.
        unsafe {
            match side {
                Side::Left => self.combine(into, into, other),
                Side::Right => self.combine(into, other, into),
            }
        }
    }
}

impl fmt::Debug for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reduction")
    }
}

/// Makes a [`Reduction`] of runs of bytes from an operation on elements.
#[inline(always)]
pub fn reduce<T: Element>(operation: impl Operation<T>) -> Reduction {
    const { assert!(align_of::<T>() <= align_of::<u128>(), "elements are aligned to 16 bytes at most") };
    let may_panic = operation.may_panic();
    match stateless(Elementwise(operation, PhantomData)) {
        Reduction::Stateless(reducer) if !may_panic => Reduction::Predefined(reducer),
        reduction => reduction,
    }
}

/// Wraps a reducer. A reducer of size 0 is leaked, which costs nothing: its box allocates no memory.
#[inline(always)]
fn stateless<R: Reducer + 'static>(reducer: R) -> Reduction {
    match size_of::<R>() {
        0 => Reduction::Stateless(Box::leak(Box::new(reducer))),
        _ => Reduction::Shared(Arc::new(reducer)),
    }
}

/// Combines the elements of two buffers, and writes the results to the right one. If their lengths differ, the shorter one counts.
pub fn combine<S: Sequence, R: LeasedBytes + Sequence<Item = S::Item>>(
    left: &S,
    right: R,
    operation: &impl Operation<S::Item>,
) {
    let (left, right) = (left.piece(0), right.piece(0));
    let bytes = left.len().min(right.len());
    let (left, right) = (left.part(0, bytes), right.part(0, bytes));
    // SAFETY: they are runs of elements; what may be written overlaps with nothing that is lent beside it.
    #[expect(unsafe_code, reason = "addresses of elements")]
    unsafe {
        combine_runs::<S::Item>(right, left, right, operation);
    }
}

/// See [`Reducer::combine`].
///
/// # Safety
/// As [`Reducer::combine`].
#[expect(unsafe_code, reason = "addresses of elements")]
unsafe fn combine_runs<T: Element>(out: Span, left: Span, right: Span, operation: &impl Operation<T>) {
    let count = out.len().min(left.len()).min(right.len()) / size_of::<T>().max(1);
    let is_aligned = |span: Span| span.start().cast::<T>().is_aligned();
    // Operand addresses may come from another process and may be wrong. A misaligned one leaves the result as it is.
    if count == 0 || !(is_aligned(out) && is_aligned(left) && is_aligned(right)) {
        return;
    }
    let elements = |span: Span| {
        // SAFETY: by this function's contract.
        unsafe { std::slice::from_raw_parts(span.start().cast::<T>().cast_const(), count) }
    };
    // SAFETY: by this function's contract; where it is one of the others, no other reference to that is made.
    let into = unsafe { std::slice::from_raw_parts_mut(out.start().cast::<T>(), count) };
    operation.combine_all(if std::ptr::eq(out.start(), left.start()) {
        Operands::Left(into, elements(right))
    } else if std::ptr::eq(out.start(), right.start()) {
        Operands::Right(elements(left), into)
    } else {
        Operands::Apart(into, elements(left), elements(right))
    });
}

#[cfg(test)]
#[expect(unsafe_code, reason = "addresses of elements")]
mod tests;
