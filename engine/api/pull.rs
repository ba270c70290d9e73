//! Pulling: moving messages that wait at a transport which matches by itself into the engine's own queue.
//!
//! Receives look there first, and what is pulled is older than what stays, so the order is kept. It is done for a dump, which
//! shows what is pulled; for a probe where a look at the transport tells no length; for a peer that has no offer left to make, as
//! an offer takes less memory here than there; and for a communicator that is freed, of which nothing may stay.

use crate::api::probe::peek::{Look, PEEK_LOOKS};
use crate::run::engine::Engine;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::limits::ANY;
use tickwire_components::{CommState, Pull};
use tickwire_systems::protocols::provider_matched::{is_starved, list_granters};

/// Communicators whose messages are pulled together at most: a look at the transport for each.
const CONTEXTS_PULLED: usize = 1000;

/// What has come of the move of a message into the engine's queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pulled {
    /// It is there.
    One,
    /// There was none.
    None,
    /// The transport has not told.
    Unknown,
}

impl Engine {
    /// Moves a message, which a receive of any tag would take, from the transport that matches by itself into the engine's queue.
    pub(crate) fn pull(&mut self, wanted: &EnvelopeKey) -> Pulled {
        debug_assert_eq!(wanted.tag, ANY, "else what is pulled overtakes what is not");
        let before = self.store.progress().provider.pull;
        if before != Pull::No || self.ask_transport(wanted, Look::Pull).is_none() {
            let provider = &self.store.progress().provider;
            return if provider.pull == Pull::No && provider.queue.is_empty() { Pulled::None } else { Pulled::Unknown };
        }
        for look in 0..PEEK_LOOKS {
            if self.store.progress().provider.pull == Pull::No {
                return Pulled::One;
            }
            self.drain_more(look);
        }
        let provider = &mut self.store.progress().provider;
        if provider.pull == Pull::No {
            return Pulled::One;
        }
        provider.pull = Pull::Left;
        Pulled::Unknown
    }

    /// Moves all messages of a context from the transport that matches by itself into the engine's queue; `false` if the transport
    /// has not told whether these are all.
    pub(crate) fn pull_all(&mut self, context: u32) -> bool {
        let any = EnvelopeKey { context, source: ANY, tag: ANY };
        loop {
            match self.pull(&any) {
                Pulled::One => {}
                Pulled::None => return true,
                Pulled::Unknown => return false,
            }
        }
    }

    /// Moves the messages of all communicators into the engine's queue, of some that are in use; returns how many of them the
    /// transport has not told all of.
    pub(crate) fn pull_everything(&mut self) -> u64 {
        let all = self.store.all();
        let used = all.communicators.iter().filter(|comm| matches!(comm.state, CommState::Live | CommState::Closing));
        let contexts: Vec<u32> = used.map(|comm| comm.context).collect();
        let (now, later) = contexts.split_at(contexts.len().min(CONTEXTS_PULLED));
        later.len() as u64 + now.iter().map(|&context| u64::from(!self.pull_all(context))).sum::<u64>()
    }

    /// The part of a look around that concerns a transport that matches by itself.
    #[cold]
    pub(crate) fn look_after_matching(&mut self) {
        let all = self.store.all();
        list_granters(all.progress, all.vcs);
        if is_starved(all.progress, all.vcs) {
            self.pull_everything();
        }
    }
}
