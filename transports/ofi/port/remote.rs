//! The endpoints for one-sided operations beside the one for messages. See [`crate::ofi::rma`].

use super::Port;
use crate::ofi::rma::{Introduction, Rma, RmaConfig};
use crate::remote::Channel;

/// What an endpoint keeps for one-sided operations.
pub(in crate::ofi) struct RmaState {
    pub(in crate::ofi) config: RmaConfig,
    /// Whether the provider offers what is needed, once it has been asked.
    offered: Option<bool>,
}

impl RmaState {
    pub(super) fn new(config: RmaConfig) -> Self {
        RmaState { config, offered: None }
    }
}

impl Port {
    /// Whether the provider has one-sided operations, and they are wanted.
    pub(in crate::ofi) fn has_rma(&mut self) -> bool {
        let (info, state) = (self.endpoint.domain().info(), &mut self.rma_state);
        *state.offered.get_or_insert_with(|| Rma::offered(info, &state.config).is_ok())
    }

    /// The endpoints, which are opened when they are asked for first.
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

    /// The same, if they are open.
    pub(in crate::ofi) fn rma(&mut self) -> Option<&mut Rma> {
        self.rma.as_deref_mut()
    }

    /// Progresses them, if they are open.
    #[cold]
    pub(in crate::ofi) fn poll_rma(&mut self) -> usize {
        self.rma.as_mut().map_or(0, |rma| rma.poll())
    }

    /// Operations that a channel has taken, and that are complete.
    pub(in crate::ofi) fn rma_counts(&self, channel: Channel) -> (u64, u64) {
        self.rma.as_ref().map_or((0, 0), |rma| rma.counts_of(channel))
    }

    /// Whether operations of this side are under way.
    pub(in crate::ofi) fn is_operating(&self) -> bool {
        self.rma.as_ref().is_some_and(|rma| rma.is_busy())
    }

    /// Whether peers may be using memory of this process, which goes on only while somebody asks.
    pub(in crate::ofi) fn is_exposing(&self) -> bool {
        !self.ringing.is_empty() || self.rma.as_ref().is_some_and(|rma| rma.is_exposing())
    }

    /// The peer of a link has introduced itself for one-sided operations; what it is to be told in return.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(in crate::ofi) fn meet_rma(&mut self, link: u32, theirs: Introduction) -> Result<Option<Introduction>, String> {
        match self.open_rma() {
            Ok(rma) => rma.meet(link, theirs).map(|()| rma.introduce(link)),
            // Who has none itself asks for nothing.
            Err(_) if matches!(theirs, Introduction::Nowhere(_)) => Ok(None),
            Err(why) => Ok(Some(Introduction::Nowhere(why))),
        }
    }

    /// The endpoints, which are open.
    #[cfg(test)]
    pub(in crate::ofi) fn rma_for_test(&mut self) -> &mut Rma {
        self.open_rma().expect("one-sided operations")
    }

    /// How many contexts are opened.
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
