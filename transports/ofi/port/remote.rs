//! The endpoints for one-sided operations beside the one for messages. See [`crate::ofi::rma`].

use super::Port;
use crate::ofi::rma::{Introduction, MemoryMode, Rma};
use crate::remote::Channel;

impl Port {
    /// Whether the provider has one-sided operations and the configuration asks for them.
    pub(in crate::ofi) fn has_rma(&self) -> bool {
        self.offered_rma().is_some()
    }

    /// How memory is registered for one-sided operations, if there are any.
    pub(in crate::ofi) fn offered_rma(&self) -> Option<MemoryMode> {
        let (info, state) = (self.endpoint.domain().info(), &self.rma_state);
        let offered = || Rma::offered(info, &state.config).and_then(|offered| MemoryMode::of(&offered));
        *state.offered.get_or_init(|| offered().ok())
    }

    /// The endpoints for one-sided operations, which are opened with the first call.
    ///
    /// # Errors
    /// Why there are none, in words.
    pub(in crate::ofi) fn open_rma(&mut self) -> Result<&mut Rma, String> {
        let rma = match self.rma.take() {
            Some(rma) => rma,
            None => Box::new(Rma::open(self.endpoint.domain().info(), &self.rma_state.config, &self.registry)?),
        };
        Ok(self.rma.insert(rma))
    }

    /// The endpoints for one-sided operations, if they are open.
    pub(in crate::ofi) fn rma(&mut self) -> Option<&mut Rma> {
        self.rma.as_deref_mut()
    }

    /// Progresses them, if they are open.
    #[cold]
    pub(in crate::ofi) fn poll_rma(&mut self) -> usize {
        self.rma.as_mut().map_or(0, |rma| rma.poll())
    }

    /// How many operations a channel has accepted, and how many of them are complete.
    pub(in crate::ofi) fn rma_counts(&self, channel: Channel) -> (u64, u64) {
        self.rma.as_ref().map_or((0, 0), |rma| rma.counts_of(channel))
    }

    /// Whether one-sided operations of this process are in flight.
    pub(in crate::ofi) fn is_operating(&self) -> bool {
        self.rma.as_ref().is_some_and(|rma| rma.is_busy())
    }

    /// Whether peers may be using memory of this process, in a way that progresses only while this process polls.
    pub(in crate::ofi) fn is_exposing(&self) -> bool {
        !self.ringing.is_empty() || self.rma.as_ref().is_some_and(|rma| rma.is_exposing())
    }

    /// The peer of a link has introduced itself for one-sided operations. Returns what to tell the peer in return.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(in crate::ofi) fn meet_rma(&mut self, link: u32, theirs: Introduction) -> Result<Option<Introduction>, String> {
        let has_none = matches!(theirs, Introduction::Nowhere(_));
        match self.open_rma() {
            // These endpoints have become unusable, and the peer does not know that yet.
            Ok(rma) if !has_none && rma.check().is_err() => Ok(rma.check().err().map(Introduction::Nowhere)),
            // A peer without such endpoints would answer that it has none, again and again.
            Ok(rma) => rma.meet(link, theirs).map(|()| if has_none { None } else { rma.introduce(link) }),
            // A peer without such endpoints expects no answer.
            Err(_) if has_none => Ok(None),
            Err(why) => Ok(Some(Introduction::Nowhere(why))),
        }
    }

    /// The endpoints for one-sided operations, which are opened if need be.
    #[cfg(test)]
    pub(in crate::ofi) fn rma_for_test(&mut self) -> &mut Rma {
        self.open_rma().expect("one-sided operations")
    }

    /// Sets how many contexts are opened.
    #[cfg(test)]
    pub(in crate::ofi) fn set_contexts(&mut self, contexts: usize) {
        self.rma_state.config.contexts = contexts;
    }

    /// Registers memory in another way than the provider asks for.
    #[cfg(test)]
    pub(in crate::ofi) fn force_mr_mode(&mut self, offered: u64, forced: u64) {
        self.rma_state.config.mr_mode = Some((offered, forced));
    }
}
