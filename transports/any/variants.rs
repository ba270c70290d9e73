//! The transports that an engine can hold, and how a call finds the right one.

use super::outside::{Boxed, Outside};
use crate::loopback::Loopback;
use crate::ofi::Ofi;
use crate::rings::links::Links;
use crate::shm::Shm;
use crate::transport::Transport;
use tickwire_components::Own;

/// A transport of an engine. The common ones are variants; any other is boxed.
pub enum AnyTransport {
    /// Within the process.
    Loopback(Own<Loopback>),
    /// Within the host.
    Shm(Own<Shm>),
    /// Other hosts, over libfabric.
    Ofi(Own<Ofi>),
    /// Any other.
    Outside(Own<dyn Outside>),
}

macro_rules! from {
    ($($transport:ident)*) => {$(
        impl From<$transport> for AnyTransport {
            fn from(transport: $transport) -> Self {
                AnyTransport::$transport(Own::new(transport))
            }
        }
    )*};
}
from! { Loopback Shm Ofi }

/// One call for all variants.
macro_rules! each {
    ($self:expr, $transport:ident => $call:expr) => {
        match $self {
            AnyTransport::Loopback($transport) => $call,
            AnyTransport::Shm($transport) => $call,
            AnyTransport::Ofi($transport) => $call,
            AnyTransport::Outside($transport) => $call,
        }
    };
}
pub(super) use each;

impl AnyTransport {
    /// Boxes a transport that has no variant of its own.
    pub fn outside<T: Transport + 'static>(transport: T) -> Self {
        AnyTransport::Outside(Own::from(Box::new(Boxed { inner: transport }) as Box<dyn Outside>))
    }

    /// The same transport a second time, for an owner that closes it when the first one is gone. It ends with the last of its owners.
    ///
    /// # Safety
    /// Both are used as if they were one: by one thread at a time, and neither while a reference that came of the other lives.
    #[expect(unsafe_code, reason = "two owners of one value")]
    pub unsafe fn second(&self) -> Self {
        // SAFETY: by the same contract.
        unsafe {
            match self {
                AnyTransport::Loopback(own) => AnyTransport::Loopback(own.second()),
                AnyTransport::Shm(own) => AnyTransport::Shm(own.second()),
                AnyTransport::Ofi(own) => AnyTransport::Ofi(own.second()),
                AnyTransport::Outside(own) => AnyTransport::Outside(own.second()),
            }
        }
    }

    /// Whether it is a transport that consists of rings, which [`AnyTransport::rings_ready`] polls.
    pub fn has_rings(&self) -> bool {
        matches!(self, AnyTransport::Loopback(_) | AnyTransport::Shm(_))
    }

    /// The connections of a transport that consists of rings, so that code on the message path exists once, not once for each of them.
    #[inline(always)]
    pub(super) fn links(&mut self) -> Option<&mut Links> {
        match self {
            AnyTransport::Loopback(t) => Some(t.links_mut()),
            AnyTransport::Shm(t) => Some(t.links_mut()),
            _ => None,
        }
    }
}
