//! The receiver of frames that are handed out one by one, without an arrival row.

use tickwire_components::wire::Header;
use tickwire_components::{Row, Span};

/// The result of [`Take::other`].
#[derive(Clone, Copy, Debug)]
pub enum Other {
    /// It was refused, and stays in the transport.
    Left,
    /// It was taken.
    Taken,
    /// It was taken and has ended a send whose bytes may be [exposed](crate::Memory::expose) to the link that the frame arrived on. They
    /// must be withdrawn before anything else is done.
    Ended(Span),
}

/// A receiver of single frames. See [`Transport::deliver`](crate::Transport::deliver).
#[expect(unsafe_code, reason = "payloads are addresses")]
pub trait Take {
    /// The engine's time, ns.
    fn now_ns(&mut self) -> u64;

    /// Takes a whole message, with its VC; `false` if it is refused.
    ///
    /// # Safety
    /// The payload is valid for reads during the call, as of all calls here.
    unsafe fn message(&mut self, header: &Header, payload: Span, vc: Row) -> bool;

    /// Takes a frame of a message that its receiver reads out of the sender's memory.
    ///
    /// # Safety
    /// As [`Take::message`].
    unsafe fn other(&mut self, header: &Header, payload: Span, vc: Row) -> Other;

    /// Takes a whole message that the transport has matched with the receive in a row; `false` if it is refused.
    ///
    /// # Safety
    /// As [`Take::message`].
    unsafe fn matched(&mut self, header: &Header, payload: Span, vc: Row, receive: Row) -> bool;
}

#[expect(unsafe_code, reason = "payloads are addresses")]
impl<T: Take + ?Sized> Take for &mut T {
    fn now_ns(&mut self) -> u64 {
        (**self).now_ns()
    }

    unsafe fn message(&mut self, header: &Header, payload: Span, vc: Row) -> bool {
        // SAFETY: by the same contract.
        unsafe { (**self).message(header, payload, vc) }
    }

    unsafe fn other(&mut self, header: &Header, payload: Span, vc: Row) -> Other {
        // SAFETY: as above.
        unsafe { (**self).other(header, payload, vc) }
    }

    unsafe fn matched(&mut self, header: &Header, payload: Span, vc: Row, receive: Row) -> bool {
        // SAFETY: as above.
        unsafe { (**self).matched(header, payload, vc, receive) }
    }
}

/// Takes no frame: all frames wait for a drain.
pub(crate) struct Nobody;

#[expect(unsafe_code, reason = "payloads are addresses")]
impl Take for Nobody {
    fn now_ns(&mut self) -> u64 {
        0
    }

    #[inline(always)]
    unsafe fn message(&mut self, _: &Header, _: Span, _: Row) -> bool {
        false
    }

    unsafe fn other(&mut self, _: &Header, _: Span, _: Row) -> Other {
        Other::Left
    }

    unsafe fn matched(&mut self, _: &Header, _: Span, _: Row, _: Row) -> bool {
        false
    }
}
