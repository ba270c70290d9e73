//! The one-sided facet of an endpoint over libfabric.

use super::operation::What;
use super::{Rma, RmaConfig, refuses_stale_keys};
use crate::facets::OneSided;
use crate::ofi::Ofi;
use crate::ofi::control::Message;
use crate::remote::{
    AtomicOperation, AtomicWidths, AtomicWord, Channel, FailedOperation, Issued, RemoteAccess, RemoteKey, RemoteRun,
    Settled,
};
use tickwire_components::limits::RMA_SLOT_BYTES;
use tickwire_components::{NIL, Span};

impl Ofi {
    /// Accepts an operation. If the two procs have not met for one-sided operations yet, introduces this one to the peer first.
    ///
    /// # Safety
    /// As [`Rma::issue`].
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    unsafe fn issue(
        &mut self,
        channel: Channel,
        remote: RemoteRun,
        what: What,
        local: Span,
        number: u64,
    ) -> Result<Issued, String> {
        let rma = self.port.get_mut().open_rma()?;
        if channel.link == NIL {
            rma.meet_oneself();
        }
        // SAFETY: by this function's contract.
        let issued = unsafe { rma.issue(channel, remote, what, local, number)? };
        if issued == Issued::Full && channel.link != NIL {
            let Some(line) = self.connections.line_mut(channel.link) else {
                return Err("this link is not open".into());
            };
            if let Some(introduction) = rma.introduce(channel.link) {
                line.tell(&Message::OneSided(introduction));
            }
        }
        self.pace.hurry();
        Ok(issued)
    }
}

// SAFETY: local runs are lent to the provider until their operations are complete, exposed ones until their regions are closed.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl OneSided for Ofi {
    fn contexts(&self) -> u32 {
        self.own.config.choice.contexts() as u32
    }

    unsafe fn register_exposed(&mut self, run: Span, access: RemoteAccess) -> Result<RemoteKey, String> {
        // SAFETY: by the same contract.
        let key = unsafe { self.port.get_mut().open_rma()?.expose(run, access) };
        self.pace.hurry();
        key
    }

    fn withdraw_exposed(&mut self, key: &RemoteKey) {
        self.port.get_mut().rma().into_iter().for_each(|rma| rma.withdraw(key));
    }

    fn withdraw_for_good(&mut self, key: &RemoteKey) -> u64 {
        let number = self.withdraw_and_ask(key);
        self.pace.hurry();
        number
    }

    fn settled(&mut self, number: u64) -> Settled {
        self.port.get_mut().rma().map_or(Settled::Unused, |rma| rma.settled(number))
    }

    fn may_use(&mut self, link: u32) -> bool {
        self.port.get_mut().rma().is_some_and(|rma| rma.may_use(link))
    }

    fn has_left(&mut self, link: u32) {
        self.port.get_mut().rma().into_iter().for_each(|rma| rma.hear_goodbye(link));
    }

    fn refuses_stale_keys(&self) -> bool {
        let offered = self.port.borrow().offered_rma();
        offered.is_some_and(|memory| refuses_stale_keys(self.provider(), memory))
    }

    fn atomics(&mut self) -> AtomicWidths {
        self.port.get_mut().open_rma().map_or(AtomicWidths::default(), |rma| rma.atomics)
    }

    fn copies_max(&self) -> usize {
        RMA_SLOT_BYTES
    }

    unsafe fn put(&mut self, channel: Channel, to: RemoteRun, from: Span, number: u64) -> Result<Issued, String> {
        // SAFETY: by the same contract.
        unsafe { self.issue(channel, to, What::Put, from, number) }
    }

    unsafe fn get(&mut self, channel: Channel, from: RemoteRun, into: Span, number: u64) -> Result<Issued, String> {
        // SAFETY: by the same contract.
        unsafe { self.issue(channel, from, What::Get, into, number) }
    }

    unsafe fn fetch_atomic(
        &mut self,
        channel: Channel,
        target: RemoteRun,
        operation: AtomicOperation,
        operand: AtomicWord,
        into: Span,
        number: u64,
    ) -> Result<Issued, String> {
        // SAFETY: by the same contract.
        unsafe { self.issue(channel, target, What::Fetch(operation, operand), into, number) }
    }

    unsafe fn compare_swap(
        &mut self,
        channel: Channel,
        target: RemoteRun,
        expected: AtomicWord,
        swap: AtomicWord,
        into: Span,
        number: u64,
    ) -> Result<Issued, String> {
        // SAFETY: by the same contract.
        unsafe { self.issue(channel, target, What::Swap(expected, swap), into, number) }
    }

    fn issued(&self, channel: Channel) -> u64 {
        self.port.borrow().rma_counts(channel).0
    }

    fn completed(&self, channel: Channel) -> u64 {
        self.port.borrow().rma_counts(channel).1
    }

    fn failed_operation(&mut self) -> Option<FailedOperation> {
        self.port.get_mut().rma()?.failed.pop_front()
    }

    fn progress(&mut self) {
        self.port.get_mut().poll_rma();
        self.wake_targets();
        self.pace.hurry();
    }

    fn was_reached(&mut self) -> bool {
        self.port.get_mut().rma().is_some_and(|rma| rma.was_reached())
    }
}

impl Rma {
    /// How many operations a channel has accepted, and how many of them are complete.
    pub(in crate::ofi) fn counts_of(&self, channel: Channel) -> (u64, u64) {
        self.counts(channel).map_or((0, 0), |counts| (counts.issued(), counts.completed()))
    }
}

impl RmaConfig {
    /// Takes the settings from an endpoint's configuration.
    pub(in crate::ofi) fn new(config: &crate::ofi::OfiConfig) -> Self {
        RmaConfig {
            contexts: config.choice.contexts(),
            automatic: config.choice.has_thread,
            ending_time: std::time::Duration::from_millis(config.close_ms_max.into()),
            #[cfg(test)]
            mr_mode: None,
        }
    }
}
