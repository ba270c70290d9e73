//! Transports that have no variant of their own, in a form that can be boxed.

use crate::capabilities::Capabilities;
use crate::frames::{Frame, LinkEvent, MemoryRead, Peeked, ReceiveEnvelope, Sent, Traffic};
use crate::take::Take;
use crate::transport::Transport;
use rustix::fd::BorrowedFd;
use std::any::Any;
use tickwire_components::credit::Credit;
use tickwire_components::wire::Header;
use tickwire_components::{Access, Arrival, Payload, Registration, Row, Span, Spans};

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
    /// See [`Transport::attach`].
    fn attach(&mut self, link: u32, vc: Row);
    /// See [`Transport::fits`].
    fn fits(&mut self, link: u32, payload: u64) -> u64;
    /// See [`Transport::shared_bytes`].
    fn shared_bytes(&self) -> u64;
    /// See [`Transport::reads`].
    fn reads(&self, link: u32, address: u64, length: u64) -> bool;
    /// See [`Transport::traffic`].
    fn traffic(&self, link: u32) -> Option<Traffic>;
    /// See [`Transport::read`].
    ///
    /// # Errors
    /// Why not, in words.
    ///
    /// # Safety
    /// As there.
    unsafe fn read(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String>;
    /// See [`Transport::read_at_once`].
    ///
    /// # Safety
    /// As there.
    unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool;
    /// See [`Transport::expose`].
    ///
    /// # Safety
    /// As there.
    unsafe fn expose(&mut self, link: u32, run: Span);
    /// See [`Transport::withdraw`].
    fn withdraw(&mut self, link: u32, run: Span);
    /// See [`Transport::expect`].
    ///
    /// # Safety
    /// As there.
    unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32>;
    /// See [`Transport::send_direct`].
    ///
    /// # Safety
    /// As there.
    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool;
    /// See [`Transport::end_direct`].
    fn end_direct(&mut self);
    /// See [`Transport::lend`].
    fn lend(&mut self, link: u32, least: u64, most: u64, into: &mut Spans) -> u64;
    /// See [`Transport::take_back`].
    fn take_back(&mut self, run: Span);
    /// See [`Transport::register`].
    ///
    /// # Errors
    /// Why not, in words.
    fn register(&mut self, span: Span, access: Access) -> Result<Registration, String>;
    /// See [`Transport::deregister`].
    fn deregister(&mut self, registration: Registration);
    /// See [`Transport::post_receive`].
    fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent;
    /// See [`Transport::recall`].
    fn recall(&mut self, row: Row, unless_message: bool);
    /// See [`Transport::peek`].
    fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent;
    /// See [`Transport::peeked`].
    fn peeked(&mut self) -> Peeked;
    /// See [`Transport::leave_matching`].
    fn leave_matching(&mut self);
    /// See [`Transport::grant`].
    fn grant(&mut self, link: u32, credit: Credit);
    /// See [`Transport::granted`].
    fn granted(&mut self, link: u32) -> Credit;
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
pub(super) struct Boxed<T>(pub(super) T);

// SAFETY: it only passes on.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a transport gives out")]
unsafe impl<T: Transport> Outside for Boxed<T> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }
    fn card(&self) -> Vec<u8> {
        self.0.card()
    }
    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        self.0.reaches(proc, card)
    }
    fn moved(&self) -> (u64, u64) {
        self.0.moved()
    }
    fn fits(&mut self, link: u32, payload: u64) -> u64 {
        self.0.fits(link, payload)
    }
    fn shared_bytes(&self) -> u64 {
        self.0.shared_bytes()
    }
    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        self.0.connect(proc, card, now_ns)
    }
    fn attach(&mut self, link: u32, vc: Row) {
        self.0.attach(link, vc);
    }
    fn reads(&self, link: u32, address: u64, length: u64) -> bool {
        self.0.reads(link, address, length)
    }
    fn traffic(&self, link: u32) -> Option<Traffic> {
        self.0.traffic(link)
    }
    unsafe fn read(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String> {
        // SAFETY: by the same contract.
        unsafe { self.0.read(link, reads) }
    }

    unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool {
        // SAFETY: by the same contract.
        unsafe { self.0.read_at_once(link, address, into, alone) }
    }

    unsafe fn expose(&mut self, link: u32, run: Span) {
        // SAFETY: by the same contract.
        unsafe { self.0.expose(link, run) }
    }

    fn withdraw(&mut self, link: u32, run: Span) {
        self.0.withdraw(link, run);
    }

    unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32> {
        // SAFETY: by the same contract.
        unsafe { self.0.expect(link, row, into) }
    }

    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        // SAFETY: by the same contract.
        unsafe { self.0.send_direct(link, row, number, from) }
    }

    fn end_direct(&mut self) {
        self.0.end_direct();
    }

    fn lend(&mut self, link: u32, least: u64, most: u64, into: &mut Spans) -> u64 {
        self.0.lend(link, least, most, into)
    }
    fn take_back(&mut self, run: Span) {
        self.0.take_back(run);
    }
    fn register(&mut self, span: Span, access: Access) -> Result<Registration, String> {
        self.0.register(span, access)
    }
    fn deregister(&mut self, registration: Registration) {
        self.0.deregister(registration);
    }
    fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent {
        self.0.post_receive(row, wanted)
    }
    fn recall(&mut self, row: Row, unless_message: bool) {
        self.0.recall(row, unless_message);
    }
    fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent {
        self.0.peek(wanted, claim)
    }
    fn peeked(&mut self) -> Peeked {
        self.0.peeked()
    }
    fn leave_matching(&mut self) {
        self.0.leave_matching();
    }
    fn grant(&mut self, link: u32, credit: Credit) {
        self.0.grant(link, credit);
    }
    fn granted(&mut self, link: u32) -> Credit {
        self.0.granted(link)
    }
    unsafe fn send(&mut self, link: u32, header: &Header, pieces: &[Span], state: Option<&mut dyn Any>) -> Sent {
        // SAFETY: by this function's contract.
        let pieces = unsafe { &Payload::new(pieces) };
        match state.and_then(|state| state.downcast_mut::<T::RowState>()) {
            Some(state) => self.0.send(link, header, pieces, state),
            None => self.0.send(link, header, pieces, &mut T::RowState::default()),
        }
    }
    unsafe fn send_batch(&mut self, link: u32, frames: &[Frame], state: Option<&mut dyn Any>) -> (usize, Sent) {
        let mut fresh = T::RowState::default();
        let state = state.and_then(|state| state.downcast_mut::<T::RowState>()).unwrap_or(&mut fresh);
        // SAFETY: by the same contract.
        unsafe { self.0.send_batch(link, frames, state) }
    }
    fn flush(&mut self) {
        self.0.flush();
    }
    fn ready(&self) -> bool {
        self.0.ready()
    }
    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.0.drain(now_ns, arrivals)
    }
    fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.0.drain_link(link, now_ns, arrivals)
    }
    fn deliver(&mut self, most: u32, mut take: &mut dyn Take) -> (u32, bool) {
        self.0.deliver(most, &mut take)
    }
    fn release(&mut self) {
        self.0.release();
    }
    fn wants_control(&self) -> bool {
        self.0.wants_control()
    }
    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        self.0.control(now_ns, events);
    }
    fn close_link(&mut self, link: u32) {
        self.0.close_link(link);
    }
    fn give_up(&mut self, link: u32, reason: &str) {
        self.0.give_up(link, reason);
    }
    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        self.0.has_ended(proc, card)
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.wait_fd()
    }
    fn arm(&mut self) -> bool {
        self.0.arm()
    }
    fn must_poll(&self) -> bool {
        self.0.must_poll()
    }
    fn disarm(&mut self) {
        self.0.disarm();
    }
    fn close(&mut self) {
        self.0.close();
    }
}
