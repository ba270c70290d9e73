//! Probes: looking at messages before they are received, and taking one for a receive of its own (MPI 4.1 §3.8).

use crate::api::p2p::full;
use crate::api::pull::Pulled;
use crate::api::request::{Home, OperationError, Request};
use crate::run::core::{Closed, Engine};
use std::fmt;
use thiserror::Error;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::limits::ANY;
use tickwire_components::wire::Header;
use tickwire_components::{
    Comm, LeasedBytes, NIL, NoBytes, Pending, Pieces, PostError, ProcId, Pull, Rank, RequestError, RequestState, Row,
    Source, Status, Tag, TagFilter, Unexpected, VcState,
};
use tickwire_systems::procs::communicators::{alive, known};
use tickwire_systems::protocols::provider_matched::checked;
use tickwire_systems::steps::activate::{rows_of, take_rows};
use tickwire_systems::steps::arguments::{check_null_receive, check_receive};
use tickwire_systems::steps::credit::feed;
use tickwire_systems::steps::posting::receive_car;
use tickwire_systems::steps::provider::is_matched;
use tickwire_systems::steps::unexpected::receive_unexpected;
use tickwire_systems::store::Tables;
use tickwire_transports::{Peeked, ReceiveEnvelope, Sent};

/// A message that a matched probe has found: no other receive or probe finds it any more.
///
/// Receive it with [`Engine::mrecv`] or [`Engine::imrecv`]. Dropping it throws the message away.
#[must_use = "dropping a message throws it away: receive it"]
pub struct Message {
    home: &'static Home,
    /// Its row among the unexpected entries; [`NIL`] if it is from no proc or was received.
    row: Row,
    epoch: u64,
    comm: Comm,
    status: Status,
}

impl Message {
    /// Its sender, tag and length.
    pub fn status(&self) -> Status {
        self.status
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if self.row != NIL {
            self.home.messages.push((self.row, self.epoch));
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("status", &self.status).finish_non_exhaustive()
    }
}

/// A receive of a probed message that could not be posted; message and buffer come back.
#[derive(Error)]
#[error("{error}")]
pub struct RejectedMessage<B> {
    /// Why.
    pub error: PostError,
    /// The message.
    pub message: Message,
    /// The buffer.
    pub buffer: B,
}

impl<B> fmt::Debug for RejectedMessage<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RejectedMessage({:?})", self.error)
    }
}

/// Looks after which a transport that matches by itself is taken to have found nothing.
pub(crate) const PEEK_LOOKS: u32 = 1000;

/// How a message is looked for at the transport that matches by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// It stays there.
    Only,
    /// It is taken out of the reach of receives.
    Claim,
    /// It is moved into the engine's queue.
    Pull,
}

/// Where a probe has found a message.
enum Found {
    /// Among the unexpected.
    Here(Row),
    /// At the transport.
    There(Status),
    /// It was there, and has been claimed.
    Claimed(Row),
}

/// The VC of a message's sender, by its rank.
fn row_of(all: &Tables<'_>, header: &Header) -> Row {
    let proc = known(all.communicators, header.context()).and_then(|comm| comm.proc(header.source()));
    proc.and_then(|proc| all.procs.known.get(proc as usize)).map_or(NIL, |known| known.row)
}

fn status_of(header: &Header) -> Status {
    Status { source: Rank(header.source()), tag: Tag(header.tag()), length: header.length as usize }
}

impl Engine {
    /// Looks for a message that a receive with these arguments would take, after a tick (`MPI_Iprobe`). It stays where it is.
    ///
    /// # Errors
    /// A wrong argument; or, where there is no such message, that its source has failed, which for any source is a member of the
    /// communicator whose failure was not [acknowledged](Engine::acknowledge_failures).
    pub fn iprobe(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Option<Status>, PostError> {
        let (source, tag) = (source.into(), tag.into());
        let Some(wanted) = self.probed(source, tag, comm)? else { return Ok(Some(Status::NULL)) };
        if let Some(row) = self.look_for(&wanted) {
            return Ok(Some(self.status_of(row)));
        }
        match self.look_there(&wanted) {
            Some(status) => Ok(Some(status)),
            None => self.check_living(source.number(), comm).map(|()| None),
        }
    }

    /// Waits for a message that a receive with these arguments would take (`MPI_Probe`). It stays where it is.
    ///
    /// # Errors
    /// A wrong argument, that the source has failed, or that waiting is impossible.
    pub fn probe(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Status, OperationError> {
        let (source, tag) = (source.into(), tag.into());
        match self.probed(source, tag, comm)? {
            None => Ok(Status::NULL),
            Some(wanted) => match self.await_message(&wanted, comm, false)? {
                Found::Here(row) | Found::Claimed(row) => Ok(self.status_of(row)),
                Found::There(status) => Ok(status),
            },
        }
    }

    /// As [`Engine::iprobe`], and takes the message out of the reach of other receives (`MPI_Improbe`).
    ///
    /// # Errors
    /// As [`Engine::iprobe`].
    pub fn improbe(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Option<Message>, PostError> {
        let (source, tag) = (source.into(), tag.into());
        let Some(wanted) = self.probed(source, tag, comm)? else { return Ok(Some(self.claim(NIL, comm))) };
        if let Some(row) = self.look_for(&wanted) {
            return Ok(Some(self.claim(row, comm)));
        }
        match self.claim_there(&wanted) {
            Some(row) => Ok(Some(self.message(row, comm))),
            None => self.check_living(source.number(), comm).map(|()| None),
        }
    }

    /// As [`Engine::probe`], and takes the message out of the reach of other receives (`MPI_Mprobe`).
    ///
    /// # Errors
    /// As [`Engine::probe`].
    pub fn mprobe(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Message, OperationError> {
        let (source, tag) = (source.into(), tag.into());
        match self.probed(source, tag, comm)? {
            None => Ok(self.claim(NIL, comm)),
            Some(wanted) => match self.await_message(&wanted, comm, true)? {
                Found::Here(row) => Ok(self.claim(row, comm)),
                Found::There(_) => Err(RequestError::Stale.into()),
                Found::Claimed(row) => Ok(self.message(row, comm)),
            },
        }
    }

    /// Starts to receive a message that a matched probe has found (`MPI_Imrecv`).
    ///
    /// # Errors
    /// If the message is of another engine, the engine is closed, or there is no free row; both come back.
    pub fn imrecv<B: LeasedBytes + Send + 'static>(
        &mut self,
        message: Message,
        buffer: B,
    ) -> Result<Request<B>, RejectedMessage<B>> {
        self.receive_message(message, buffer, false)
    }

    /// Receives a message that a matched probe has found (`MPI_Mrecv`).
    ///
    /// # Errors
    /// As [`Engine::imrecv`] (the message is thrown away), or how the operation ended.
    pub fn mrecv(&mut self, message: Message, bytes: &mut [u8]) -> Result<Status, OperationError> {
        let request = self.receive_message(message, bytes, true).map_err(|rejected| rejected.error)?;
        self.settle(request)
    }

    pub(crate) fn receive_message<B: LeasedBytes>(
        &mut self,
        mut message: Message,
        buffer: B,
        scoped: bool,
    ) -> Result<Request<B>, RejectedMessage<B>> {
        if message.row == NIL {
            return Ok(Request::ready(self.home, buffer, Rank::NULL.0, ANY));
        }
        let queued = match buffer.has_overlap() {
            false => self.queue_message(&message, &buffer),
            true => Err(PostError::Overlap),
        };
        match queued {
            Ok(row) => {
                message.row = NIL;
                Ok(self.hold(row, buffer, scoped))
            }
            Err(error) => {
                let error = self.raise_post(message.comm, "receive", error);
                Err(RejectedMessage { error, message, buffer })
            }
        }
    }

    fn queue_message(&mut self, message: &Message, buffer: &impl Pieces) -> Result<Row, PostError> {
        if self.closed != Closed::No {
            return Err(self.closed.post_error());
        }
        if !std::ptr::eq(message.home, self.home) || message.epoch != self.epoch {
            return Err(PostError::Stale);
        }
        let Status { source, tag, .. } = message.status;
        let communicators = self.store.all().communicators;
        let envelope = check_receive(communicators, message.comm.0, source.into(), tag.into())?;
        self.need_rows(rows_of(buffer))?;
        let all = self.store.all();
        let found = all.progress.unexpected.entries[message.row as usize];
        let car = receive_car(all.progress, &envelope, found.vc);
        // SAFETY: the caller has the row hold the buffer.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let row = unsafe { take_rows(all.progress, all.cars, all.requests, buffer, car) };
        let Some(row) = row else {
            return Err(full(&self.limits));
        };
        all.progress.unexpected.release(message.row);
        self.store.with(|rows, _| receive_unexpected(rows, row, &found));
        Ok(row)
    }

    /// Throws messages away whose tokens were dropped: they are received into nothing.
    pub(crate) fn free_messages(&mut self) {
        while let Some((entry, epoch)) = self.home.messages.pop() {
            if epoch != self.epoch || self.closed != Closed::No {
                continue;
            }
            let all = self.store.all();
            let found = all.progress.unexpected.entries[entry as usize];
            let Unexpected { context, source, tag, vc, .. } = found;
            let envelope = tickwire_systems::steps::arguments::Envelope { context, source, tag, proc: NIL, length: 0 };
            let car = receive_car(all.progress, &envelope, vc);
            // SAFETY: there are no bytes.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let row = unsafe { take_rows(all.progress, all.cars, all.requests, &NoBytes, car) };
            let Some(row) = row else {
                // With the next look around, when rows are free.
                self.home.messages.push((entry, epoch));
                all.progress.pending |= tickwire_components::Pending::WORLD;
                return;
            };
            all.requests[row as usize].state = RequestState::Detached;
            all.progress.unexpected.release(entry);
            self.store.with(|rows, _| receive_unexpected(rows, row, &found));
        }
    }

    /// Checks a probe's arguments and says what it looks for; `None` for no proc.
    fn probed(&mut self, source: Source, tag: TagFilter, comm: Comm) -> Result<Option<EnvelopeKey>, PostError> {
        self.check_probe(source, tag, comm).map_err(|error| self.raise_post(comm, "probe", error))
    }

    fn check_probe(&mut self, source: Source, tag: TagFilter, comm: Comm) -> Result<Option<EnvelopeKey>, PostError> {
        if source == Source::from(Rank::NULL) {
            return self.check_null(|comms| check_null_receive(comms, comm.0, tag)).map(|()| None);
        }
        if self.closed != Closed::No {
            return Err(self.closed.post_error());
        }
        let communicators = self.store.all().communicators;
        let envelope = check_receive(communicators, comm.0, source, tag)?;
        if envelope.proc != NIL {
            // Connecting is what callbacks the peer's death.
            self.reach(envelope.proc)?;
        }
        Ok(Some(EnvelopeKey { context: envelope.context, source: envelope.source, tag: envelope.tag }))
    }

    fn look_for(&mut self, wanted: &EnvelopeKey) -> Option<Row> {
        if let Some(row) = self.find_message(wanted) {
            return Some(row);
        }
        self.tick();
        self.find_message(wanted)
    }

    /// The oldest message that a probe would see, and no receive that is posted takes.
    fn find_message(&mut self, wanted: &EnvelopeKey) -> Option<Row> {
        let progress = self.store.progress();
        // Receives and arrivals that Match has yet to pair come first.
        if progress.arrivals > 0 || !progress.new_receives.is_empty() {
            self.run();
        }
        let all = self.store.all();
        let found = all.progress.unexpected.find(wanted);
        if found.is_none() && all.progress.starved_peers > 0 {
            all.progress.probing = true;
            feed(all.progress, all.vcs, NIL);
        }
        found
    }

    fn await_message(&mut self, wanted: &EnvelopeKey, comm: Comm, claim: bool) -> Result<Found, OperationError> {
        let mut found = self.find_anywhere(wanted, claim);
        if found.is_none() {
            self.ends.probed = wanted.source == ANY;
            let waited = self.wait_until(|engine| {
                found = engine.find_anywhere(wanted, claim);
                match found {
                    Some(_) => Ok(true),
                    None => engine.check_sources(wanted.source, comm).map(|()| false),
                }
            });
            self.ends.probed = false;
            waited?;
        }
        found.ok_or_else(|| RequestError::Stale.into())
    }

    fn find_anywhere(&mut self, wanted: &EnvelopeKey, claim: bool) -> Option<Found> {
        if let Some(row) = self.find_message(wanted) {
            return Some(Found::Here(row));
        }
        if claim {
            return self.claim_there(wanted).map(Found::Claimed);
        }
        self.look_there(wanted).map(Found::There)
    }

    /// A message at the transport that matches by itself. Where a look does not tell its length, it is there no more afterwards.
    fn look_there(&mut self, wanted: &EnvelopeKey) -> Option<Status> {
        let all = self.store.all();
        let endpoint = all.endpoints.get_mut(all.progress.provider.endpoint as usize)?;
        if endpoint.transport.get().capabilities().completion_data >= size_of::<u64>() {
            return self.ask_transport(wanted, Look::Only).map(|header| status_of(&header));
        }
        // What its sender has sent before it is pulled first, so that what is pulled keeps its order.
        let oldest = EnvelopeKey { tag: ANY, ..*wanted };
        while self.pull(&oldest) == Pulled::One {
            let unexpected = &mut self.store.progress().unexpected;
            if let Some(row) = unexpected.find(wanted) {
                return Some(self.status_of(row));
            }
        }
        None
    }

    /// The entry of a message that was at the transport that matches by itself, and is nobody else's any more.
    fn claim_there(&mut self, wanted: &EnvelopeKey) -> Option<Row> {
        for look in 0..PEEK_LOOKS {
            let progress = self.store.progress();
            // One that an earlier probe has asked for and not waited for, too.
            let unexpected = &progress.unexpected;
            let taken = |&row: &Row| wanted.takes(&unexpected.entries[row as usize].key());
            if let Some(place) = progress.provider.claimed.iter().position(taken) {
                return Some(progress.provider.claimed.remove(place));
            }
            if look == 0 {
                self.ask_transport(wanted, Look::Claim)?;
            } else {
                self.drain_more(look);
            }
        }
        None
    }

    /// The envelope of a message at the transport that matches by itself, which a receive would take there.
    pub(crate) fn ask_transport(&mut self, wanted: &EnvelopeKey, how: Look) -> Option<Header> {
        if !self.store.progress().has_provider() {
            return None;
        }
        // Receives that were posted before have their messages first.
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
        let transport = all.endpoints.get_mut(provider.endpoint as usize)?.transport.get();
        // What has come of a look that nobody waited for.
        transport.peeked();
        let wanted = ReceiveEnvelope { link, context, source, tag };
        let busy = !provider.queue.is_empty() || provider.pull != Pull::No;
        if busy || transport.peek(&wanted, how != Look::Only) != Sent::Done {
            return None;
        }
        let pulls = how == Look::Pull;
        if pulls {
            all.progress.provider.pull = Pull::Awaited;
        }
        for look in 0..PEEK_LOOKS {
            self.drain_more(look);
            let all = self.store.all();
            let transport = all.endpoints.get_mut(all.progress.provider.endpoint as usize)?.transport.get();
            match transport.peeked() {
                Peeked::Pending => {}
                Peeked::Nothing => {
                    all.progress.provider.pull = Pull::No;
                    return None;
                }
                // It is checked when it comes.
                Peeked::Found(header, _) if pulls => return Some(header),
                Peeked::Found(header, vc) => {
                    let vc = if vc == NIL { row_of(&all, &header) } else { vc };
                    return checked(&header, all.vcs.get(vc as usize), all.communicators).then_some(header);
                }
            }
        }
        let provider = &mut self.store.progress().provider;
        if provider.pull == Pull::Awaited {
            provider.pull = Pull::Left;
        }
        None
    }

    /// Lets the transports get on, and gives what they have to who it is for.
    pub(crate) fn drain_more(&mut self, look: u32) {
        self.store.progress().pending |= Pending::POST | Pending::DRAIN;
        self.run();
        if look > PEEK_LOOKS / 10 {
            std::thread::yield_now();
        }
    }

    /// Whether those whom a probe waits for are alive.
    /// That a message of a source may still come; else whoever looks for one again and again would do so for ever.
    fn check_living(&mut self, source: u32, comm: Comm) -> Result<(), PostError> {
        match self.check_sources(source, comm) {
            Err(RequestError::PeerFailed { proc, reason } | RequestError::PeerFailedPending { proc, reason }) => {
                Err(self.raise_post(comm, "probe", PostError::PeerFailed { proc, reason }))
            }
            _ => Ok(()),
        }
    }

    fn check_sources(&mut self, source: u32, comm: Comm) -> Result<(), RequestError> {
        if self.closed != Closed::No {
            return Err(self.closed.request_error());
        }
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

    fn status_of(&mut self, row: Row) -> Status {
        let entry = &self.store.progress().unexpected.entries[row as usize];
        Status { source: Rank(entry.source), tag: Tag(entry.tag), length: entry.length as usize }
    }

    fn claim(&mut self, row: Row, comm: Comm) -> Message {
        let mut status = Status::NULL;
        if row != NIL {
            status = self.status_of(row);
            self.store.progress().unexpected.claim(row);
        }
        Message { home: self.home, row, epoch: self.epoch, comm, status }
    }

    /// The token of a message that no queue has.
    fn message(&mut self, row: Row, comm: Comm) -> Message {
        let status = self.status_of(row);
        Message { home: self.home, row, epoch: self.epoch, comm, status }
    }
}
