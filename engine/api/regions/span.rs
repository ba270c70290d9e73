//! Elements of a call as a span.

use tickwire_components::{Element, Span};

/// Elements on the caller's stack, as a span.
pub(crate) fn span_of<T: Element>(elements: &mut [T]) -> Span {
    // SAFETY: the caller keeps the elements until the span is used no more.
    #[expect(unsafe_code, reason = "lends local bytes")]
    unsafe {
        Span::new(elements.as_mut_ptr().cast(), size_of_val(elements))
    }
}
