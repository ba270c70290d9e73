//! A transport under another name, whose calls let other engines go on.

use super::stage::moment;
use tickwire::internals::components::wire::Header;
use tickwire::internals::components::{Arrival, Pieces, Row};
use tickwire::internals::transports::{
    Capabilities, CreditWindows, LinkEvent, Memory, Registering, Sent, SharedMemory, Take, Transport,
};

/// See the module.
pub(crate) struct Interleaved<T> {
    name: &'static str,
    inner: T,
    capabilities: Capabilities,
    /// Whether it calls nobody. Others may call it.
    is_barred: bool,
    /// Whether it shares memory with peers, for boards, windows and exposed memory.
    shares: bool,
}

impl<T: Transport> Interleaved<T> {
    pub(crate) fn new(name: &'static str, inner: T, priority: u8) -> Self {
        let capabilities = Capabilities { priority, ..inner.capabilities().clone() };
        Interleaved { name, inner, capabilities, is_barred: false, shares: false }
    }

    /// This transport, changed so that it calls nobody, or as it is.
    pub(crate) fn barred(self, is_barred: bool) -> Self {
        Interleaved { is_barred, ..self }
    }

    /// This transport, changed so that it shares memory with peers, or as it is.
    pub(crate) fn sharing(self, shares: bool) -> Self {
        Interleaved { shares, ..self }
    }

    /// Makes a call, with a moment before it and one behind it.
    fn amid<R>(&mut self, call: impl FnOnce(&mut T) -> R) -> R {
        moment();
        let result = call(&mut self.inner);
        moment();
        result
    }
}

// SAFETY: everything that it lends comes from the transport within.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl<T: Transport> Transport for Interleaved<T> {
    type RowState = T::RowState;

    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn card(&self) -> Vec<u8> {
        self.inner.card()
    }

    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        self.inner.reaches(proc, card)
    }

    fn memory(&mut self) -> Option<&mut dyn Memory> {
        self.inner.memory()
    }

    fn registering(&mut self) -> Option<&mut dyn Registering> {
        self.inner.registering()
    }

    fn credit_windows(&mut self) -> Option<&mut dyn CreditWindows> {
        self.inner.credit_windows()
    }

    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        if self.shares { self.inner.shared_memory() } else { None }
    }

    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        if self.is_barred {
            return Err(format!("{} calls nobody", self.name));
        }
        self.amid(|inner| inner.connect(proc, card, now_ns))
    }

    fn attach(&mut self, link: u32, vc: Row) {
        self.amid(|inner| inner.attach(link, vc));
    }

    fn fits(&mut self, link: u32, payload: u64) -> u64 {
        self.inner.fits(link, payload)
    }

    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, state: &mut T::RowState) -> Sent {
        self.amid(|inner| inner.send(link, header, pieces, state))
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn ready(&self) -> bool {
        moment();
        self.inner.ready()
    }

    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.amid(|inner| inner.drain(now_ns, arrivals))
    }

    fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        self.amid(|inner| inner.deliver(most, take))
    }

    fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.amid(|inner| inner.drain_link(link, now_ns, arrivals))
    }

    fn release(&mut self) {
        self.amid(T::release);
    }

    fn wants_control(&self) -> bool {
        moment();
        self.inner.wants_control()
    }

    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        self.amid(|inner| inner.control(now_ns, events));
    }

    fn close_link(&mut self, link: u32) {
        self.amid(|inner| inner.close_link(link));
    }

    fn give_up(&mut self, link: u32, reason: &str) {
        self.amid(|inner| inner.give_up(link, reason));
    }

    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        self.inner.has_ended(proc, card)
    }

    fn close(&mut self) {
        self.amid(T::close);
    }
}
