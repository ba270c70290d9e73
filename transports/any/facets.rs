//! Facets of any transport, and those of their calls that are made for each message: without a virtual call where the transport
//! has a variant.

use super::variants::{AnyTransport, each};
use crate::facets::{CreditWindows, Direct, Lending, Matching, Memory, OneSided, Registering, SharedMemory, Watchers};
use crate::frames::{ReceiveEnvelope, Sent};
use crate::transport::Transport;
use tickwire_components::credit::Credit;
use tickwire_components::{Abilities, Row, Span};

impl AnyTransport {
    /// See [`Transport::memory`].
    pub fn memory(&mut self) -> Option<&mut dyn Memory> {
        each!(self, t => t.memory())
    }

    /// See [`Transport::direct`].
    pub fn direct(&mut self) -> Option<&mut dyn Direct> {
        each!(self, t => t.direct())
    }

    /// See [`Transport::one_sided`].
    pub fn one_sided(&mut self) -> Option<&mut dyn OneSided> {
        each!(self, t => t.one_sided())
    }

    /// See [`Transport::matching`].
    pub fn matching(&mut self) -> Option<&mut dyn Matching> {
        each!(self, t => t.matching())
    }

    /// See [`Transport::lending`].
    pub fn lending(&mut self) -> Option<&mut dyn Lending> {
        each!(self, t => t.lending())
    }

    /// See [`Transport::registering`].
    pub fn registering(&mut self) -> Option<&mut dyn Registering> {
        each!(self, t => t.registering())
    }

    /// See [`Transport::credit_windows`].
    pub fn credit_windows(&mut self) -> Option<&mut dyn CreditWindows> {
        each!(self, t => t.credit_windows())
    }

    /// See [`Transport::shared_memory`].
    pub fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        each!(self, t => t.shared_memory())
    }

    /// See [`Transport::watchers`].
    pub fn watchers(&mut self) -> Option<&mut dyn Watchers> {
        each!(self, t => t.watchers())
    }

    /// See [`SharedMemory::wake`].
    #[inline(always)]
    pub fn wake(&mut self, link: u32) {
        match self.links() {
            Some(links) => links.wake(link),
            None => self.shared_memory().into_iter().for_each(|memory| memory.wake(link)),
        }
    }

    /// Its abilities with memory, by which the engine chooses who supplies memory.
    pub fn abilities(&mut self) -> Abilities {
        let (lends, registers) = (self.lending().is_some(), self.registering().is_some());
        let capabilities = self.capabilities();
        Abilities {
            lends,
            registers,
            gathers: capabilities.gathers,
            copies: capabilities.inject_max as u64,
            minimum: capabilities.progress_min as u64,
        }
    }

    /// See [`Memory::read_at_once`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    #[inline]
    pub unsafe fn read_at_once(&mut self, link: u32, address: u64, into: Span, alone: bool) -> bool {
        // SAFETY: by the same contract.
        unsafe {
            match self {
                AnyTransport::Shm(t) => t.read_at_once(link, address, into, alone),
                _ => self.memory().is_some_and(|memory| memory.read_at_once(link, address, into, alone)),
            }
        }
    }

    /// See [`Memory::expose`].
    ///
    /// # Safety
    /// As there.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    #[inline]
    pub unsafe fn expose(&mut self, link: u32, run: Span) {
        // SAFETY: by the same contract.
        unsafe {
            match self {
                AnyTransport::Shm(t) => t.expose(link, run),
                _ => self.memory().into_iter().for_each(|memory| memory.expose(link, run)),
            }
        }
    }

    /// See [`Memory::withdraw`].
    #[inline]
    pub fn withdraw(&mut self, link: u32, run: Span) {
        match self {
            AnyTransport::Shm(t) => t.withdraw(link, run),
            _ => self.memory().into_iter().for_each(|memory| memory.withdraw(link, run)),
        }
    }

    /// See [`Matching::post_receive`].
    #[inline]
    pub fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent {
        match self {
            AnyTransport::Ofi(t) => t.post_receive(row, wanted),
            _ => self.matching().map_or(Sent::Failed, |matching| matching.post_receive(row, wanted)),
        }
    }

    /// See [`CreditWindows::grant`].
    #[inline]
    pub fn grant(&mut self, link: u32, credit: Credit) {
        match self.links() {
            Some(links) => links.grant(link, credit),
            None => self.credit_windows().into_iter().for_each(|windows| windows.grant(link, credit)),
        }
    }

    /// See [`CreditWindows::granted`].
    #[inline]
    pub fn granted(&mut self, link: u32) -> Credit {
        match self.links() {
            Some(links) => links.granted(link),
            None => self.credit_windows().map_or(Credit::NONE, |windows| windows.granted(link)),
        }
    }

    /// Takes all memory of the application back from the transport: everything exposed, expected or in flight.
    pub fn give_memory_back(&mut self) {
        if let Some(memory) = self.memory() {
            memory.withdraw_all();
        }
        if let Some(direct) = self.direct() {
            direct.end();
        }
    }
}
