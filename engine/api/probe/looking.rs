//! How a probe finds its message. It looks among the unexpected messages, then at the transport that matches messages itself (the
//! provider).

use super::message::Message;
use super::peek::Look;
use crate::api::pull::Pulled;
use crate::api::request::OperationError;
use crate::run::engine::Engine;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::limits::ANY;
use tickwire_components::wire::Header;
use tickwire_components::{Comm, NIL, PostError, ProcId, Progress, Rank, RequestError, Row, Status, Tag, VcState};
#[cfg(feature = "bevy")]
use tickwire_components::{Source, TagFilter};
use tickwire_systems::procs::communicators::alive;
use tickwire_systems::steps::credit::feed;

/// Where a probe has found a message.
pub(super) enum Found {
    /// Among the unexpected messages, at this entry.
    Here(Row),
    /// At the provider. The message is still there.
    There(Status),
}

impl Engine {
    /// The unexpected message that a probe finds. Ticks once if there is none at first.
    pub(super) fn look_for(&mut self, wanted: &EnvelopeKey) -> Option<Row> {
        if let Some(row) = self.find_message(wanted) {
            return Some(row);
        }
        self.tick();
        self.find_message(wanted)
    }

    /// The oldest unexpected message that fits. No posted receive matches it.
    fn find_message(&mut self, wanted: &EnvelopeKey) -> Option<Row> {
        let progress = self.store.progress();
        // Match pairs new receives and arrivals first: a posted receive goes before a probe.
        if progress.arrivals > 0 || !progress.new_receives.is_empty() {
            self.run();
        }
        let all = self.store.all();
        if receives_wait(all.progress) {
            return None;
        }
        let found = all.progress.unexpected.find(wanted);
        if found.is_none() && all.progress.starved_peers > 0 {
            all.progress.probing = true;
            feed(all.progress, all.vcs, NIL);
        }
        found
    }

    pub(super) fn await_message(
        &mut self,
        wanted: &EnvelopeKey,
        comm: Comm,
        claim: bool,
    ) -> Result<Found, OperationError> {
        let mut found = self.find_anywhere(wanted, claim);
        if found.is_none() {
            // A call of another thread, run by this wait, may wait in the same way.
            let before = self.ends.probed;
            self.ends.probed |= wanted.source == ANY;
            let waited = self.wait_until(|engine| {
                found = engine.find_anywhere(wanted, claim);
                match found {
                    Some(_) => Ok(true),
                    None => engine.check_sources(wanted.source, comm).map(|()| false),
                }
            });
            self.ends.probed = before;
            waited?;
        }
        found.ok_or_else(|| RequestError::Stale.into())
    }

    fn find_anywhere(&mut self, wanted: &EnvelopeKey, claim: bool) -> Option<Found> {
        if let Some(row) = self.find_message(wanted) {
            return Some(Found::Here(row));
        }
        if claim {
            return self.pull_until(wanted).map(Found::Here);
        }
        self.look_there(wanted).map(Found::There)
    }

    /// The status of a message at the provider. If the provider's peek does not tell lengths, this moves the message into the
    /// unexpected queue.
    pub(super) fn look_there(&mut self, wanted: &EnvelopeKey) -> Option<Status> {
        let all = self.store.all();
        let endpoint = all.endpoints.get_mut(all.progress.provider.endpoint as usize)?;
        if receives_wait(all.progress) {
            return None;
        }
        if endpoint.transport.get().capabilities().completion_data >= size_of::<u64>() {
            return self.ask_transport(wanted, Look::Only).map(|header| status_of(&header));
        }
        self.pull_until(wanted).map(|row| self.status_of(row))
    }

    /// Moves messages from the provider into the unexpected queue until one of them fits. Returns its entry.
    ///
    /// Older messages of the same senders are moved too, whatever their tags. If only the message that fits were moved, a later receive of
    /// any tag would find it before the older ones.
    pub(super) fn pull_until(&mut self, wanted: &EnvelopeKey) -> Option<Row> {
        let oldest = EnvelopeKey { tag: ANY, ..*wanted };
        while !receives_wait(self.store.progress()) && self.pull(&oldest) == Pulled::One {
            // What was drained with it may have been deferred.
            if receives_wait(self.store.progress()) {
                break;
            }
            if let Some(row) = self.store.progress().unexpected.find(wanted) {
                return Some(row);
            }
        }
        None
    }

    /// As [`Engine::improbe`], without a tick and without a check whether the source lives. Nothing comes from [`Rank::NULL`].
    #[cfg(feature = "bevy")]
    pub(crate) fn claim_next(
        &mut self,
        source: Source,
        tag: TagFilter,
        comm: Comm,
    ) -> Result<Option<Message>, PostError> {
        let Some(wanted) = self.probed(source, tag, comm)? else { return Ok(None) };
        if let Some(row) = self.find_message(&wanted) {
            return Ok(Some(self.claim(row, comm)));
        }
        Ok(self.pull_until(&wanted).map(|row| self.claim(row, comm)))
    }

    /// Fails if nothing can come from a source any more, since its rank has ended. Never fails for any source.
    #[cfg(feature = "bevy")]
    pub(crate) fn source_lives(&mut self, source: Source, comm: Comm) -> Result<(), RequestError> {
        match source {
            Source::Any => Ok(()),
            Source::Rank(_) => self.check_sources(source.number(), comm),
        }
    }

    /// Fails if the source of a probe has failed. Without this check, a loop of probes for its messages would never end.
    pub(super) fn check_living(&mut self, source: u32, comm: Comm) -> Result<(), PostError> {
        match self.check_sources(source, comm) {
            Err(RequestError::PeerFailed { proc, reason } | RequestError::PeerFailedPending { proc, reason }) => {
                Err(self.raise_post(comm, "probe", PostError::PeerFailed { proc, reason }))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the source has failed; for any source, if a member has failed and its failure is not acknowledged.
    fn check_sources(&mut self, source: u32, comm: Comm) -> Result<(), RequestError> {
        self.closed.check_request()?;
        let all = self.store.all();
        let Some(members) = alive(all.communicators, comm.0) else { return Ok(()) };
        let failed = |vc: &&tickwire_components::Vc| {
            vc.state == VcState::Failed
                && match source {
                    ANY => !vc.acknowledged && members.rank_of(vc.proc).is_some(),
                    source => members.proc(source) == Some(vc.proc),
                }
        };
        let Some(vc) = all.vcs.iter().find(failed) else { return Ok(()) };
        let row = all.procs.known[vc.proc as usize].row;
        let (proc, reason) = (ProcId(vc.proc), all.procs.reason(row).to_owned());
        Err(match source {
            ANY => RequestError::PeerFailedPending { proc, reason },
            _ => RequestError::PeerFailed { proc, reason },
        })
    }

    /// The status of an unexpected message.
    pub(super) fn status_of(&mut self, row: Row) -> Status {
        let entry = &self.store.progress().unexpected.entries[row as usize];
        Status { source: Rank(entry.source), tag: Tag(entry.tag), length: entry.length as usize }
    }

    /// Removes an unexpected message from its queue and returns its token. [`NIL`] stands for a message of [`Rank::NULL`].
    pub(super) fn claim(&mut self, row: Row, comm: Comm) -> Message {
        let mut status = Status::NULL;
        if row != NIL {
            status = self.status_of(row);
            self.store.progress().unexpected.claim(row);
        }
        Message { home: self.home, row, epoch: self.epoch, comm, status }
    }
}

fn status_of(header: &Header) -> Status {
    Status { source: Rank(header.source()), tag: Tag(header.tag()), length: header.length as usize }
}

/// Whether receives that were posted before wait, since messages are deferred. One of them may take what a probe would find.
fn receives_wait(progress: &Progress) -> bool {
    !progress.new_receives.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bootstrap;

    #[test]
    fn a_probe_within_another_ones_wait_does_not_end_the_watch_for_dead_senders() {
        let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
        let world = engine.comm_world();
        // As while another probe waits that has run this one.
        engine.ends.probed = true;
        drop(engine.isend(vec![1u8], Rank(0), Tag(8), world).unwrap());
        engine.probe(crate::Source::Any, Tag(8), world).unwrap();
        assert!(engine.ends.probed);
    }
}
