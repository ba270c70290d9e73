//! Peeks: how the engine looks at messages of a transport that matches messages itself (the provider).

use crate::run::engine::Engine;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::limits::{ANY, PEEK_POLLS};
use tickwire_components::wire::Header;
use tickwire_components::{NIL, Pending, Pull, Row};
use tickwire_systems::procs::communicators::known;
use tickwire_systems::protocols::provider_matched::checked;
use tickwire_systems::steps::provider::is_matched;
use tickwire_systems::store::Tables;
use tickwire_transports::{Peeked, ReceiveEnvelope, Sent};

/// What a peek does with the message that it finds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// The message stays at the provider, and receives still match it.
    Only,
    /// The message is moved into the engine's unexpected queue.
    Pull,
}

impl Engine {
    /// Peeks for a message at the provider, and waits for the result. Returns the header of the message that a receive with
    /// this envelope would match there.
    pub(crate) fn ask_transport(&mut self, wanted: &EnvelopeKey, how: Look) -> Option<Header> {
        if !self.store.progress().has_provider() {
            return None;
        }
        // Receives that were posted earlier match first.
        self.drain_more(0);
        let all = self.store.all();
        let EnvelopeKey { context, source, tag } = *wanted;
        let mut link = NIL;
        if source != ANY {
            let proc = known(all.communicators, context)?.proc(source)?;
            let vc = all.vcs.get(all.procs.known.get(proc as usize)?.row as usize)?;
            if !is_matched(all.progress, vc, context) {
                return None;
            }
            link = vc.link;
        }
        let provider = &all.progress.provider;
        // A move that is in progress needs the answer of its own peek.
        if !provider.queue.is_empty() || provider.pull != Pull::No {
            return None;
        }
        let transport = all.endpoints.get_mut(provider.endpoint as usize)?.transport.get().matching()?;
        // Discards the late result of an earlier peek.
        transport.peeked();
        let pulls = how == Look::Pull;
        let wanted = ReceiveEnvelope { link, context, source, tag };
        if transport.peek(&wanted, pulls) != Sent::Done {
            return None;
        }
        if pulls {
            all.progress.provider.pull = Pull::Awaited;
        }
        for look in 0..PEEK_POLLS {
            self.drain_more(look);
            let all = self.store.all();
            let endpoint = all.endpoints.get_mut(all.progress.provider.endpoint as usize)?;
            match endpoint.transport.get().matching()?.peeked() {
                Peeked::Pending => {}
                Peeked::Nothing => {
                    all.progress.provider.pull = Pull::No;
                    return None;
                }
                // A pulled message is checked when it arrives.
                Peeked::Found(header, _) if pulls => return Some(header),
                Peeked::Found(header, vc) => {
                    let all = self.store.all();
                    let vc = if vc == NIL { row_of(&all, &header) } else { vc };
                    return checked(&header, all.vcs.get(vc as usize), all.communicators).then_some(header);
                }
            }
        }
        if pulls {
            // What it finds later comes into the engine's queue.
            self.store.progress().provider.pull = Pull::Left;
        }
        None
    }

    /// Runs a pass that polls the transports and places what has arrived. `look` counts the calls so far; after many, the
    /// thread yields.
    pub(crate) fn drain_more(&mut self, look: u32) {
        self.store.progress().pending |= Pending::POST | Pending::DRAIN;
        self.run();
        if look > PEEK_POLLS / 10 {
            std::thread::yield_now();
        }
    }
}

/// The VC of a message's sender, by the rank in the header. [`NIL`] if there is none.
fn row_of(all: &Tables<'_>, header: &Header) -> Row {
    let proc = known(all.communicators, header.context()).and_then(|comm| comm.proc(header.source()));
    proc.and_then(|proc| all.procs.known.get(proc as usize)).map_or(NIL, |known| known.row)
}
