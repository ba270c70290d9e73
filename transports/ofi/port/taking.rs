//! A wrapper around [`Take`] that bounds how many messages one poll delivers.

use crate::{Other, Take};
use tickwire_components::wire::Header;
use tickwire_components::{Row, Span};

/// Passes at most `left` more messages on to `take`.
pub(super) struct Bounded<'a, T> {
    pub(super) take: &'a mut T,
    pub(super) left: u32,
}

#[expect(unsafe_code, reason = "bytes that are addresses")]
impl<T: Take> Take for Bounded<'_, T> {
    fn now_ns(&mut self) -> u64 {
        self.take.now_ns()
    }

    #[inline(always)]
    unsafe fn message(&mut self, header: &Header, payload: Span, vc: Row) -> bool {
        // SAFETY: by the same contract.
        let taken = self.left > 0 && unsafe { self.take.message(header, payload, vc) };
        self.left -= u32::from(taken);
        taken
    }

    unsafe fn other(&mut self, header: &Header, payload: Span, vc: Row) -> Other {
        // SAFETY: by the same contract.
        unsafe { self.take.other(header, payload, vc) }
    }

    unsafe fn matched(&mut self, header: &Header, payload: Span, vc: Row, receive: Row) -> bool {
        // SAFETY: by the same contract.
        unsafe { self.take.matched(header, payload, vc, receive) }
    }
}
