//! Probes (MPI 4.1 §3.8). A probe returns the status of a message that could be received. A matched probe also removes the
//! message from matching: only a receive that names it gets it.

mod looking;
pub(crate) mod message;
pub(crate) mod peek;
mod receive;

use crate::api::request::{OperationError, Request};
use crate::run::engine::Engine;
use looking::Found;
use message::{Message, RejectedMessage};
use tickwire_components::bytemuck::AnyBitPattern;
use tickwire_components::bytemuck::allocation::try_zeroed_vec;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::{
    Basic, Comm, IntoBuffer, LeasedBytes, NIL, PostError, Rank, RequestError, Source, Status, TagFilter,
};
use tickwire_systems::steps::arguments::{check_null_receive, check_receive};

impl Engine {
    /// Looks for a message that a receive with these arguments would match (`MPI_Iprobe`). Ticks if there is none at first. The
    /// message stays available for receives.
    ///
    /// # Errors
    /// A wrong argument. If there is no such message: the failure of its source. For any source, that is a member of the
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

    /// Waits for a message that a receive with these arguments would match (`MPI_Probe`). The message stays available for
    /// receives.
    ///
    /// # Errors
    /// A wrong argument, the failure of the source, or the reason why waiting is impossible.
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
                Found::Here(row) => Ok(self.status_of(row)),
                Found::There(status) => Ok(status),
            },
        }
    }

    /// As [`Engine::iprobe`], and removes the message from matching (`MPI_Improbe`). No other receive or probe finds it any
    /// more.
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
        match self.pull_until(&wanted) {
            Some(row) => Ok(Some(self.claim(row, comm))),
            None => self.check_living(source.number(), comm).map(|()| None),
        }
    }

    /// As [`Engine::probe`], and removes the message from matching (`MPI_Mprobe`). No other receive or probe finds it any more.
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
            },
        }
    }

    /// Starts to receive a message that a matched probe has found (`MPI_Imrecv`).
    ///
    /// # Errors
    /// The message belongs to another engine, the engine is closed, or there is no free row. Message and buffer come back.
    pub fn imrecv<B: IntoBuffer<Buffer: LeasedBytes + Send + 'static>>(
        &mut self,
        message: Message,
        buffer: B,
    ) -> Result<Request<B::Buffer>, RejectedMessage<B::Buffer>> {
        self.receive_message(message, buffer.into_buffer(), false)
    }

    /// Receives a message that a matched probe has found (`MPI_Mrecv`).
    ///
    /// # Errors
    /// As [`Engine::imrecv`], but the message is dropped; or the error of the receive.
    pub fn mrecv<B: LeasedBytes>(&mut self, message: Message, buffer: B) -> Result<Status, OperationError> {
        let request = self.receive_message(message, buffer, true).map_err(|rejected| rejected.error)?;
        self.wait_lent(request)
    }

    /// Receives the next message into a vector that is as long as the message (`MPI_Mprobe`, `MPI_Get_count`, `MPI_Mrecv`).
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, Source, Tag};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// # let (me, world) = (engine.rank(), engine.comm_world());
    /// engine.send(&[1.5f64, 2.5], me, Tag(1), world)?;
    /// let (numbers, status) = engine.recv_vec::<f64>(Source::Any, Tag(1), world)?;
    /// assert_eq!((numbers, status.count::<f64>()?), (vec![1.5, 2.5], 2));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Engine::probe`]. [`OperationError::Count`] if the message is not a whole number of elements, and [`OperationError::Memory`] if
    /// there is no memory for it. In both cases the message can still be received, unless a receive of another thread has taken the message
    /// that was found first: then the one behind it is dropped.
    pub fn recv_vec<T: Basic>(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<(Vec<T>, Status), OperationError> {
        let found = self.probe(source, tag, comm)?;
        let mut elements = room_for::<T>(found)?;
        let message = match found.source {
            Rank::NULL => self.mprobe(Rank::NULL, TagFilter::Any, comm)?,
            source => self.mprobe(source, found.tag, comm)?,
        };
        if message.status().length != found.length {
            // A receive of another thread has taken the message that the probe found.
            elements = room_for::<T>(message.status())?;
        }
        let status = self.mrecv(message, &mut elements)?;
        Ok((elements, status))
    }

    /// Checks a probe's arguments, and returns the envelope that it looks for. `None` if the source is [`Rank::NULL`]. An error
    /// goes to the error handler first.
    fn probed(&mut self, source: Source, tag: TagFilter, comm: Comm) -> Result<Option<EnvelopeKey>, PostError> {
        self.check_probe(source, tag, comm).map_err(|error| self.raise_post(comm, "probe", error))
    }

    fn check_probe(&mut self, source: Source, tag: TagFilter, comm: Comm) -> Result<Option<EnvelopeKey>, PostError> {
        if source == Source::from(Rank::NULL) {
            return self.check_null(|comms| check_null_receive(comms, comm.0, tag)).map(|()| None);
        }
        self.closed.check_post()?;
        let communicators = self.store.all().communicators;
        let envelope = check_receive(communicators, comm.0, source, tag)?;
        if envelope.proc != NIL {
            // Without a connection, nothing reports the death of the peer.
            self.reach(envelope.proc)?;
        }
        Ok(Some(EnvelopeKey { context: envelope.context, source: envelope.source, tag: envelope.tag }))
    }
}

/// A vector of as many elements as a message has, all bytes 0.
pub(crate) fn room_for<T: AnyBitPattern>(status: Status) -> Result<Vec<T>, OperationError> {
    // A peer has stated the length, so the allocation may fail. Memory that the system gives is zero already, and is not written: it is
    // used only as far as data comes.
    try_zeroed_vec(status.count::<T>()?).map_err(|()| OperationError::Memory { bytes: status.length })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of this process that has pages, bytes.
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("the process's memory");
        let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
        pages * rustix::param::page_size()
    }

    #[test]
    fn room_for_a_long_message_has_no_pages_before_data_comes() {
        let (before, length) = (resident(), 1 << 30);
        let room = room_for::<u64>(Status { length, ..Status::NULL }).expect("addresses");
        assert_eq!((room.len(), room.first(), room.last()), (length / 8, Some(&0), Some(&0)));
        assert!(resident().saturating_sub(before) < length / 4, "most of it has no pages");
    }

    #[test]
    fn more_than_there_can_be_is_an_error() {
        let told = Status { length: usize::MAX / 16 * 16, ..Status::NULL };
        assert!(matches!(room_for::<u128>(told), Err(OperationError::Memory { bytes }) if bytes == told.length));
    }
}
