//! What a connection is opened with, what it asks of its transport, and the doorbell of a peer.

use crate::rings::inbox::Inbox;
use crate::rings::memory::RawRing;
use crate::rings::ring::Corrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, ReadWriteFlags};
use std::any::Any;
use std::io::IoSliceMut;
use std::ptr::NonNull;
use std::sync::Arc;

/// A view of the inbox of a peer, or of this process. It keeps the inbox's memory alive.
#[derive(Clone)]
pub struct InboxView {
    inbox: NonNull<Inbox>,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: an inbox consists of atomics, and the view keeps its memory alive.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Send for InboxView {}

impl InboxView {
    /// A view of the inbox at `base`, whose memory `keep` keeps alive.
    ///
    /// # Safety
    /// `base` is aligned to 128 bytes and points to an [`Inbox`] (zero bytes are an empty one) that lives as long as `keep`.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub unsafe fn new(base: NonNull<u8>, keep: Arc<dyn Any + Send + Sync>) -> Self {
        InboxView { inbox: base.cast(), _keep: keep }
    }
}

impl std::ops::Deref for InboxView {
    type Target = Inbox;
    #[expect(unsafe_code, reason = "a view of shared memory")]
    #[inline(always)]
    fn deref(&self) -> &Inbox {
        // SAFETY: by the contract of `new`; all fields are atomics.
        unsafe { self.inbox.as_ref() }
    }
}

/// The parts of a connection that both sides have agreed upon.
pub struct Ends {
    /// The ring to the peer.
    pub outgoing: RawRing,
    /// The ring from the peer.
    pub incoming: RawRing,
    /// The peer's inbox.
    pub inbox: InboxView,
    /// Number of the connection in the peer's inbox.
    pub slot: u32,
    /// The doorbell that wakes the peer when it sleeps.
    pub doorbell: Arc<OwnedFd>,
    /// Whether the peer and this process have one-sided fences.
    pub one_sided: bool,
    /// Payloads of this many bytes and more are written past the caches, for a peer on another processor. [`u64::MAX`] for none.
    pub past_min: u64,
    /// Bytes that either ring may grow to, a power of two; 0 if they stay as they are.
    pub ring_max: usize,
    /// Keeps the rings' memory alive.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// What a connection needs from its transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// The connection must be closed: its ring is corrupt.
    Closing(Corrupt),
    /// A larger ring must be passed to the peer, since the ring to the peer has been too small for long. See [`super::Links::wish`].
    Room,
}

/// Makes a doorbell silent again. Never waits: peers have the doorbell, too, and could make reads of it block, so this read does not rely on
/// how the doorbell was opened.
pub fn silence(doorbell: &OwnedFd) {
    let mut count = [0; 8];
    let at_current = u64::MAX;
    let read = rustix::io::preadv2(doorbell, &mut [IoSliceMut::new(&mut count)], at_current, ReadWriteFlags::NOWAIT);
    // Kernels before 5.8 do not have this for a doorbell.
    if matches!(read, Err(Errno::NOTSUP | Errno::NOSYS)) {
        let mut polled = [PollFd::new(doorbell, PollFlags::IN)];
        if poll(&mut polled, Some(&Timespec::default())).is_ok_and(|rung| rung > 0) {
            let _ = rustix::io::read(doorbell, &mut count);
        }
    }
}

/// Rings a doorbell. A full one rings already.
pub fn ring(doorbell: &OwnedFd) {
    let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
}
