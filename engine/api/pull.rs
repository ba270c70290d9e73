//! Pulling: moving messages that wait at a transport which matches messages itself into the engine's own queue.
//!
//! Receives search the engine's queue first, and pulled messages are older than those that stay, so the order is kept. The engine pulls for
//! a dump, which shows pulled messages; for a probe, where asking the transport yields no length; for a peer that may make no more offers,
//! since an offer takes less memory here than at the transport; and for a communicator that is freed, of which no message may stay.

use crate::api::probe::peek::Look;
use crate::run::engine::Engine;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::limits::{ANY, CONTEXTS_PULLED, PEEK_POLLS};
use tickwire_components::{CommState, Pull};
use tickwire_systems::protocols::provider_matched::{is_starved, list_granters};

/// The result of moving a message into the engine's queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pulled {
    /// The message is in the queue.
    One,
    /// There was no message.
    None,
    /// The transport has not answered.
    Unknown,
}

impl Engine {
    /// Moves a message from the transport that matches messages itself into the engine's queue. `wanted` must accept any tag.
    pub(crate) fn pull(&mut self, wanted: &EnvelopeKey) -> Pulled {
        debug_assert_eq!(wanted.tag, ANY, "else what is pulled overtakes what is not");
        let before = self.store.progress().provider.pull;
        if before != Pull::No || self.ask_transport(wanted, Look::Pull).is_none() {
            let provider = &self.store.progress().provider;
            return if provider.pull == Pull::No && provider.queue.is_empty() { Pulled::None } else { Pulled::Unknown };
        }
        for look in 0..PEEK_POLLS {
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

    /// Moves all messages of a context from the transport that matches messages itself into the engine's queue. Returns `false` if the
    /// transport has not said whether these are all.
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

    /// Moves messages of the communicators in use into the engine's queue, of a limited number of them. Returns for how many communicators
    /// messages may still be at the transport.
    pub(crate) fn pull_everything(&mut self) -> u64 {
        let all = self.store.all();
        let used = all.communicators.iter().filter(|comm| matches!(comm.state, CommState::Live | CommState::Closing));
        let contexts: Vec<u32> = used.map(|comm| comm.context).collect();
        let (now, later) = contexts.split_at(contexts.len().min(CONTEXTS_PULLED));
        later.len() as u64 + now.iter().map(|&context| u64::from(!self.pull_all(context))).sum::<u64>()
    }

    /// The part of a look around that concerns a transport which matches messages itself.
    #[cold]
    pub(crate) fn look_after_matching(&mut self) {
        let all = self.store.all();
        list_granters(all.progress, all.vcs);
        if is_starved(all.progress, all.vcs) {
            self.pull_everything();
        }
    }
}
