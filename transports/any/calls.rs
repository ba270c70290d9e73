//! Calls of any transport that are not made for each message.

use super::variants::{AnyTransport, each};
use crate::capabilities::Capabilities;
use crate::frames::{LinkEvent, Traffic};
use crate::transport::Transport;
use rustix::fd::BorrowedFd;
use tickwire_components::Row;

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
