//! The transports that an engine can hold, and how a call finds the right one.

use super::outside::{Boxed, Outside};
use super::own::Own;
use crate::loopback::Loopback;
use crate::ofi::Ofi;
use crate::rings::links::Links;
use crate::shm::Shm;
use crate::transport::Transport;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A transport of an engine. The frequent ones are variants; everything else is boxed.
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
    ($($transport:ident),*) => {$(
        impl From<$transport> for AnyTransport {
            fn from(transport: $transport) -> Self {
                AnyTransport::$transport(Own(Arc::new(UnsafeCell::new(transport))))
            }
        }
    )*};
}
from!(Loopback, Shm, Ofi);

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
        AnyTransport::Outside(Own(Arc::new(UnsafeCell::new(Boxed(transport)))))
    }

    /// The same transport once more, for who closes it when the first way to it is gone. It ends with the last of its owners.
    ///
    /// # Safety
    /// Both are used as if they were one: by one thread at a time, and neither while a reference that came of the other lives.
    #[expect(unsafe_code, reason = "two owners of one value")]
    pub unsafe fn second(&self) -> Self {
        match self {
            AnyTransport::Loopback(own) => AnyTransport::Loopback(Own(own.0.clone())),
            AnyTransport::Shm(own) => AnyTransport::Shm(Own(own.0.clone())),
            AnyTransport::Ofi(own) => AnyTransport::Ofi(Own(own.0.clone())),
            AnyTransport::Outside(own) => AnyTransport::Outside(Own(own.0.clone())),
        }
    }

    /// The connections of a transport that consists of rings: what is on the message path is there once, not once for each.
    #[inline(always)]
    pub(super) fn links(&mut self) -> Option<&mut Links> {
        match self {
            AnyTransport::Loopback(t) => Some(t.links_mut()),
            AnyTransport::Shm(t) => Some(t.links_mut()),
            AnyTransport::Ofi(_) | AnyTransport::Outside(_) => None,
        }
    }
}
