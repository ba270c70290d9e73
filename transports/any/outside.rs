//! Transports that have no variant of their own, in a form that can be boxed.

use crate::capabilities::Capabilities;
use crate::facets::{CreditWindows, Direct, Lending, Matching, Memory, OneSided, Registering, SharedMemory, Watchers};
use crate::frames::{Frame, LinkEvent, Sent, Traffic};
use crate::take::Take;
use crate::transport::Transport;
use crate::wrapping::hand_on;
use rustix::fd::BorrowedFd;
use std::any::Any;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, Payload, Row, Span};

/// The object-safe form of [`Transport`], made for every `T: Transport + 'static` by [`super::AnyTransport::outside`].
///
/// # Safety
/// As [`Transport`].
#[expect(unsafe_code, reason = "the engine trusts the addresses that a transport gives out")]
pub unsafe trait Outside: Send {
    /// See [`Transport::name`].
    fn name(&self) -> &str;
    /// See [`Transport::capabilities`].
    fn capabilities(&self) -> &Capabilities;
    /// See [`Transport::card`].
    fn card(&self) -> Vec<u8>;
    /// See [`Transport::reaches`].
    ///
    /// # Errors
    /// Why not, in words.
    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String>;
    /// See [`Transport::moved`].
    fn moved(&self) -> (u64, u64);
    /// See [`Transport::connect`].
    ///
    /// # Errors
    /// Why it cannot even start, in words.
    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String>;
    /// See [`Transport::shared_memory`].
    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory>;
    /// See [`Transport::watchers`].
    fn watchers(&mut self) -> Option<&mut dyn Watchers>;
    /// See [`Transport::attach`].
    fn attach(&mut self, link: u32, vc: Row);
    /// See [`Transport::fits`].
    fn fits(&mut self, link: u32, payload: u64) -> u64;
    /// See [`Transport::shared_bytes`].
    fn shared_bytes(&self) -> u64;
    /// See [`Transport::traffic`].
    fn traffic(&self, link: u32) -> Option<Traffic>;
    /// See [`Transport::memory`].
    fn memory(&mut self) -> Option<&mut dyn Memory>;
    /// See [`Transport::direct`].
    fn direct(&mut self) -> Option<&mut dyn Direct>;
    /// See [`Transport::one_sided`].
    fn one_sided(&mut self) -> Option<&mut dyn OneSided>;
    /// See [`Transport::matching`].
    fn matching(&mut self) -> Option<&mut dyn Matching>;
    /// See [`Transport::lending`].
    fn lending(&mut self) -> Option<&mut dyn Lending>;
    /// See [`Transport::registering`].
    fn registering(&mut self) -> Option<&mut dyn Registering>;
    /// See [`Transport::credit_windows`].
    fn credit_windows(&mut self) -> Option<&mut dyn CreditWindows>;
    /// See [`Transport::send`]; `state` is the row's [`Transport::RowState`], or `None` at a first try without a row.
    ///
    /// # Safety
    /// The pieces are valid for reads.
    unsafe fn send(&mut self, link: u32, header: &Header, pieces: &[Span], state: Option<&mut dyn Any>) -> Sent;
    /// See [`Transport::send_batch`]; `state` as for [`Outside::send`].
    ///
    /// # Safety
    /// As there.
    unsafe fn send_batch(&mut self, link: u32, frames: &[Frame], state: Option<&mut dyn Any>) -> (usize, Sent);
    /// See [`Transport::flush`].
    fn flush(&mut self);
    /// See [`Transport::ready`].
    fn ready(&self) -> bool;
    /// See [`Transport::drain`].
    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize;
    /// See [`Transport::drain_link`].
    fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize;
    /// See [`Transport::deliver`].
    fn deliver(&mut self, most: u32, take: &mut dyn Take) -> (u32, bool);
    /// See [`Transport::release`].
    fn release(&mut self);
    /// See [`Transport::wants_control`].
    fn wants_control(&self) -> bool;
    /// See [`Transport::control`].
    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>);
    /// See [`Transport::close_link`].
    fn close_link(&mut self, link: u32);
    /// See [`Transport::give_up`].
    fn give_up(&mut self, link: u32, reason: &str);
    /// See [`Transport::has_ended`].
    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String>;
    /// See [`Transport::wait_fd`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;
    /// See [`Transport::arm`].
    fn arm(&mut self) -> bool;
    /// See [`Transport::must_poll`].
    fn must_poll(&self) -> bool;
    /// See [`Transport::disarm`].
    fn disarm(&mut self);
    /// See [`Transport::close`].
    fn close(&mut self);
}

/// A transport in a box.
pub(super) struct Boxed<T> {
    pub(super) inner: T,
}

// SAFETY: it only passes on.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a transport gives out")]
unsafe impl<T: Transport> Outside for Boxed<T> {
    hand_on! {
        name capabilities card reaches moved traffic memory direct one_sided
        matching lending registering credit_windows shared_memory watchers connect attach fits shared_bytes
        flush ready drain drain_link release wants_control control close_link
        give_up has_ended wait_fd arm must_poll disarm close
    }

    unsafe fn send(&mut self, link: u32, header: &Header, pieces: &[Span], state: Option<&mut dyn Any>) -> Sent {
        // SAFETY: by this function's contract.
        let pieces = unsafe { &Payload::new(pieces) };
        match state.and_then(|state| state.downcast_mut::<T::RowState>()) {
            Some(state) => self.inner.send(link, header, pieces, state),
            None => self.inner.send(link, header, pieces, &mut T::RowState::default()),
        }
    }
    unsafe fn send_batch(&mut self, link: u32, frames: &[Frame], state: Option<&mut dyn Any>) -> (usize, Sent) {
        let mut fresh = T::RowState::default();
        let state = state.and_then(|state| state.downcast_mut::<T::RowState>()).unwrap_or(&mut fresh);
        // SAFETY: by the same contract.
        unsafe { self.inner.send_batch(link, frames, state) }
    }
    fn deliver(&mut self, most: u32, mut take: &mut dyn Take) -> (u32, bool) {
        self.inner.deliver(most, &mut take)
    }
}
