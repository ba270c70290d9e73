//! Calls of any transport that are not made for each message.

use super::variants::{AnyTransport, each};
use crate::capabilities::Capabilities;
use crate::frames::{LinkEvent, MemoryRead, Peeked, ReceiveEnvelope, Sent, Traffic};
use crate::transport::Transport;
use rustix::fd::BorrowedFd;
use tickwire_components::credit::Credit;
use tickwire_components::{Access, Registration, Row, Span, Spans};

impl AnyTransport {
    /// See [`Transport::name`].
    pub fn name(&self) -> &str {
        each!(self, t => t.name())
    }

    /// See [`Transport::capabilities`].
    pub fn capabilities(&self) -> &Capabilities {
        each!(self, t => t.capabilities())
    }

    /// See [`Transport::card`].
    pub fn card(&self) -> Vec<u8> {
        each!(self, t => t.card())
    }

    /// See [`Transport::reaches`].
    ///
    /// # Errors
    /// Why not, in words.
    pub fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        each!(self, t => t.reaches(proc, card))
    }

    /// See [`Transport::moved`].
    pub fn moved(&self) -> (u64, u64) {
        each!(self, t => t.moved())
    }

    /// See [`Transport::fits`].
    #[inline(never)]
    pub fn fits(&mut self, link: u32, payload: u64) -> u64 {
        each!(self, t => t.fits(link, payload))
    }

    /// See [`Transport::shared_bytes`].
    pub fn shared_bytes(&self) -> u64 {
        each!(self, t => t.shared_bytes())
    }

    /// See [`Transport::reads`].
    pub fn reads(&self, link: u32, address: u64, length: u64) -> bool {
        each!(self, t => t.reads(link, address, length))
    }

    /// See [`Transport::read`].
    ///
    /// # Errors
    /// Why not, in words.
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    pub unsafe fn read(&mut self, link: u32, reads: &[MemoryRead]) -> Result<(), String> {
        // SAFETY: by the same contract.
        unsafe { each!(self, t => t.read(link, reads)) }
    }

    /// See [`Transport::read_at_once`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    #[inline]
    pub unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool {
        // SAFETY: by the same contract.
        unsafe { each!(self, t => t.read_at_once(link, address, into, alone)) }
    }

    /// See [`Transport::expose`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    #[inline]
    pub unsafe fn expose(&mut self, link: u32, run: Span) {
        // SAFETY: by the same contract.
        unsafe { each!(self, t => t.expose(link, run)) }
    }

    /// See [`Transport::withdraw`].
    #[inline]
    pub fn withdraw(&mut self, link: u32, run: Span) {
        each!(self, t => t.withdraw(link, run));
    }

    /// See [`Transport::expect`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    pub unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32> {
        // SAFETY: by the same contract.
        unsafe { each!(self, t => t.expect(link, row, into)) }
    }

    /// See [`Transport::send_direct`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    pub unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        // SAFETY: by the same contract.
        unsafe { each!(self, t => t.send_direct(link, row, number, from)) }
    }

    /// See [`Transport::end_direct`].
    pub fn end_direct(&mut self) {
        each!(self, t => t.end_direct());
    }

    /// See [`Transport::lend`].
    pub fn lend(&mut self, link: u32, least: u64, most: u64, into: &mut Spans) -> u64 {
        each!(self, t => t.lend(link, least, most, into))
    }

    /// See [`Transport::take_back`].
    pub fn take_back(&mut self, run: Span) {
        each!(self, t => t.take_back(run));
    }

    /// See [`Transport::register`].
    ///
    /// # Errors
    /// Why not, in words.
    pub fn register(&mut self, span: Span, access: Access) -> Result<Registration, String> {
        each!(self, t => t.register(span, access))
    }

    /// See [`Transport::deregister`].
    pub fn deregister(&mut self, registration: Registration) {
        each!(self, t => t.deregister(registration));
    }

    /// See [`Transport::connect`].
    ///
    /// # Errors
    /// Why it cannot even start, in words.
    pub fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        each!(self, t => t.connect(proc, card, now_ns))
    }

    /// See [`Transport::attach`].
    pub fn attach(&mut self, link: u32, vc: Row) {
        each!(self, t => t.attach(link, vc));
    }

    /// See [`Transport::post_receive`].
    pub fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent {
        each!(self, t => t.post_receive(row, wanted))
    }

    /// See [`Transport::recall`].
    pub fn recall(&mut self, row: Row, unless_message: bool) {
        each!(self, t => t.recall(row, unless_message));
    }

    /// See [`Transport::peek`].
    pub fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent {
        each!(self, t => t.peek(wanted, claim))
    }

    /// See [`Transport::peeked`].
    pub fn peeked(&mut self) -> Peeked {
        each!(self, t => t.peeked())
    }

    /// See [`Transport::leave_matching`].
    pub fn leave_matching(&mut self) {
        each!(self, t => t.leave_matching());
    }

    /// See [`Transport::grant`].
    pub fn grant(&mut self, link: u32, credit: Credit) {
        each!(self, t => t.grant(link, credit));
    }

    /// See [`Transport::granted`].
    pub fn granted(&mut self, link: u32) -> Credit {
        each!(self, t => t.granted(link))
    }

    /// See [`Transport::wants_control`].
    #[inline]
    pub fn wants_control(&self) -> bool {
        each!(self, t => t.wants_control())
    }

    /// See [`Transport::control`].
    pub fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        each!(self, t => t.control(now_ns, events));
    }

    /// See [`Transport::close_link`].
    pub fn close_link(&mut self, link: u32) {
        each!(self, t => t.close_link(link));
    }

    /// See [`Transport::give_up`].
    pub fn give_up(&mut self, link: u32, reason: &str) {
        each!(self, t => t.give_up(link, reason));
    }

    /// See [`Transport::has_ended`].
    pub fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        each!(self, t => t.has_ended(proc, card))
    }

    /// See [`Transport::wait_fd`].
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        each!(self, t => t.wait_fd())
    }

    /// See [`Transport::arm`].
    pub fn arm(&mut self) -> bool {
        each!(self, t => t.arm())
    }

    /// See [`Transport::must_poll`].
    pub fn must_poll(&self) -> bool {
        each!(self, t => t.must_poll())
    }

    /// See [`Transport::disarm`].
    pub fn disarm(&mut self) {
        each!(self, t => t.disarm());
    }

    /// See [`Transport::traffic`].
    pub fn traffic(&self, link: u32) -> Option<Traffic> {
        each!(self, t => t.traffic(link))
    }

    /// See [`Transport::close`].
    pub fn close(&mut self) {
        each!(self, t => t.close());
    }
}
