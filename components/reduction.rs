//! Reductions: what combines the elements of two buffers.

use crate::graph::Side;
use crate::{LeasedBytes, Sequence, Span};
use bytemuck::{AnyBitPattern, NoUninit};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// What can be reduced: plain data that any thread may have.
pub trait Element: NoUninit + AnyBitPattern + Send + Sync + 'static {}

impl<T: NoUninit + AnyBitPattern + Send + Sync + 'static> Element for T {}

/// A reduction operation on elements of a type: one of [`op`], or a function of two elements.
///
/// The left operand is that of lower ranks. An operation must be associative up to rounding; it need not be commutative: all
/// reductions keep the order of ranks, and which operands meet is the same in all runs.
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

    /// Bytes of the elements that it combines: those of their type, or of a datatype that describes them.
    #[inline(always)]
    fn element(&self) -> usize {
        size_of::<T>()
    }

    /// Whether it may panic. The predefined ones do not, so they need no code that catches a panic. If one panics that says it does not,
    /// the panic may come out of the call that waits, instead of the error of an engine that has failed.
    #[inline(always)]
    fn may_panic(&self) -> bool {
        true
    }

    /// Combines many elements, one by one.
    #[inline(always)]
    fn combine_all(&self, operands: Operands<'_, T>)
    where
        T: Copy,
    {
        // Three loops, so that the compiler knows what overlaps.
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

/// Two runs of elements that are combined, and where the results go.
#[derive(Debug)]
pub enum Operands<'a, T> {
    /// Into the left one.
    Left(&'a mut [T], &'a [T]),
    /// Into the right one.
    Right(&'a [T], &'a mut [T]),
    /// Into the first of three, from a left and a right one.
    Apart(&'a mut [T], &'a [T], &'a [T]),
}

impl<T, F: Fn(T, T) -> T + Send + Sync + 'static> Operation<T> for F {
    fn combine(&self, left: T, right: T) -> T {
        self(left, right)
    }
}

/// A value and where it is from: the element of [`op::MinLoc`] and [`op::MaxLoc`].
///
/// Value and index have the same size, so that there is no padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Indexed<V, I> {
    /// What is compared.
    pub value: V,
    /// Of equal values the lowest index is taken.
    pub index: I,
}

/// Predefined operations (`MPI_SUM` and so on).
pub mod op {
    use super::{Indexed, Operation};
    use crate::{Datatype, Described, OnPacked, OnStructs};

    /// A function of elements of a datatype, of buffers that are [`Packed`](crate::Packed). It gets the packed bytes of the left one
    /// and those of the right one, and puts those of the result into the latter.
    pub fn on_packed<F: Fn(&[u8], &mut [u8])>(of: &Datatype, function: F) -> OnPacked<F> {
        OnPacked::new(of, function)
    }

    /// A function of structs that have a datatype, of buffers that are [`Packed`](crate::Packed). What their datatype leaves out is as
    /// `T::default()` has it.
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
        /// The sum; of integers it wraps around.
        Sum;
        /// The product; of integers it wraps around.
        Product;
        /// The least one. Of floats, a NaN loses against a number.
        Min;
        /// The greatest one. Of floats, a NaN loses against a number.
        Max;
        /// Whether both are other than 0: 1 or 0.
        LogicalAnd;
        /// Whether one is other than 0: 1 or 0.
        LogicalOr;
        /// Whether exactly one is other than 0: 1 or 0.
        LogicalXor;
        /// Bit by bit and.
        BitAnd;
        /// Bit by bit or.
        BitOr;
        /// Bit by bit exclusive or.
        BitXor;
        /// The least value, and its index.
        MinLoc;
        /// The greatest value, and its index.
        MaxLoc;
        /// The right one: an update by it writes (`MPI_REPLACE`).
        Replace;
        /// The left one: an update by it only reads (`MPI_NO_OP`).
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

    impl<V: PartialOrd + Send + Sync + 'static, I: Ord + Send + Sync + 'static> Operation<Indexed<V, I>> for MinLoc {
        fn combine(&self, left: Indexed<V, I>, right: Indexed<V, I>) -> Indexed<V, I> {
            let less = right.value < left.value || right.value == left.value && right.index < left.index;
            if less { right } else { left }
        }
    }

    impl<V: PartialOrd + Send + Sync + 'static, I: Ord + Send + Sync + 'static> Operation<Indexed<V, I>> for MaxLoc {
        fn combine(&self, left: Indexed<V, I>, right: Indexed<V, I>) -> Indexed<V, I> {
            let greater = right.value > left.value || right.value == left.value && right.index < left.index;
            if greater { right } else { left }
        }
    }
}

/// Pairs of types of one size.
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

/// An operation on runs of bytes, which are elements of one type.
pub trait Reducer: Send + Sync {
    /// Combines two runs, element by element, into `out`.
    ///
    /// # Safety
    /// All three are runs of elements of the operation's type and of one length. `out` is one of the other two, or overlaps with
    /// neither. Nobody else uses it meanwhile.
    #[expect(unsafe_code, reason = "addresses of elements")]
    unsafe fn combine(&self, out: Span, left: Span, right: Span);
}

/// An operation on elements of a type.
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
    /// By an operation that takes no memory and does not panic.
    Predefined(&'static dyn Reducer),
    /// By one that takes no memory.
    Stateless(&'static dyn Reducer),
    /// By any other one.
    Shared(Arc<dyn Reducer>),
}

impl Reduction {
    /// Whether a function of the application runs in it, which may panic.
    #[inline(always)]
    pub fn may_panic(&self) -> bool {
        !matches!(self, Reduction::Predefined(_))
    }

    /// Combines two runs into `out`. See [`Reducer::combine`].
    ///
    /// # Safety
    /// As there.
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

    /// Combines two runs into the first one, which is the operand on this side.
    ///
    /// # Safety
    /// As of [`Reducer::combine`].
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

/// An operation on runs of bytes that are elements of a type.
#[inline(always)]
pub fn reduce<T: Element>(operation: impl Operation<T>) -> Reduction {
    const { assert!(align_of::<T>() <= align_of::<u128>(), "elements are aligned to 16 bytes at most") };
    let may_panic = operation.may_panic();
    match stateless(Elementwise(operation, PhantomData)) {
        Reduction::Stateless(reducer) if !may_panic => Reduction::Predefined(reducer),
        reduction => reduction,
    }
}

/// What has no bytes is leaked for nothing: it lives for ever without an allocation.
#[inline(always)]
fn stateless<R: Reducer + 'static>(reducer: R) -> Reduction {
    match size_of::<R>() {
        0 => Reduction::Stateless(Box::leak(Box::new(reducer))),
        _ => Reduction::Shared(Arc::new(reducer)),
    }
}

/// Combines the elements of two buffers into the right one.
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
/// As there.
#[expect(unsafe_code, reason = "addresses of elements")]
unsafe fn combine_runs<T: Element>(out: Span, left: Span, right: Span, operation: &impl Operation<T>) {
    let count = out.len().min(left.len()).min(right.len()) / size_of::<T>().max(1);
    let is_aligned = |span: Span| span.start().cast::<T>().is_aligned();
    // Where another process has its operands is its own word: a wrong one spoils the result.
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
