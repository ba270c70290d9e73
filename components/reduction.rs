//! Reductions: operations that combine the elements of two buffers.

use crate::{Element, LeasedBytes, Operands, Operation, Sequence, Side, Span};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

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
