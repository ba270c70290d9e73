//! What unit tests call with buffers of their own, which outlive what is done with them.

#![expect(unsafe_code, reason = "spans over the buffers of a test")]

use crate::{Direct, Memory, MemoryRead};
use tickwire_components::{Row, Span};

/// See [`crate::copy::copy`].
pub(crate) fn copy(to: Span, from: Span) -> usize {
    // SAFETY: the test's own bytes, or those of a transport that it has not told to release them.
    unsafe { crate::copy::copy(to, from) }
}

/// The calls of [`Memory`] that are given memory.
pub(crate) trait GivenMemory: Memory {
    fn read_into(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String> {
        // SAFETY: the test keeps the runs.
        unsafe { self.read(link, reads) }
    }

    fn read_into_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool {
        // SAFETY: the test keeps the run.
        unsafe { self.read_at_once(link, address, into, alone) }
    }

    fn expose_run(&mut self, link: u32, run: Span) {
        // SAFETY: the test keeps the run.
        unsafe { self.expose(link, run) }
    }
}

impl<T: Memory> GivenMemory for T {}

/// The calls of [`Direct`] that are given memory.
pub(crate) trait GivenPlaces: Direct {
    fn expect_into(&mut self, link: u32, row: Row, into: Span) -> Option<u32> {
        // SAFETY: the test keeps the place.
        unsafe { self.expect(link, row, into) }
    }

    fn send_out(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        // SAFETY: the test keeps the message.
        unsafe { self.send_direct(link, row, number, from) }
    }
}

impl<T: Direct> GivenPlaces for T {}
