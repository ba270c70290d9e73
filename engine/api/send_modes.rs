//! Synchronous and ready mode (MPI 4.1 §3.4), and sending and receiving in one call (§3.10).

use crate::api::request::{OperationError, Rejected, Request};
use crate::api::send_options::SendOptions;
use crate::run::engine::Engine;
use bytemuck::{AnyBitPattern, NoUninit};
use tickwire_components::{Comm, IntoBuffer, LeasedBytes, Pieces, Rank, Source, Status, Tag, TagFilter, car_flags};
use tickwire_systems::procs::communicators::alive;
use tickwire_systems::steps::posting::asks_when_ready;

impl Engine {
    /// Starts a send in synchronous mode (`MPI_Issend`). It is done only when a receive has been paired with it.
    ///
    /// # Errors
    /// As [`Engine::isend`].
    pub fn issend<B: IntoBuffer<Buffer: Send + 'static>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.post_synchronous(buffer.into_buffer(), to, tag, comm, false)
    }

    /// Starts a send in ready mode (`MPI_Irsend`). The caller must know that the matching receive is posted.
    ///
    /// If no receive is posted, the result depends on the message. A message that asks before it is sent (to the own rank, or longer than
    /// the eager limit) ends its request with [`RequestError::NotReady`](tickwire_components::RequestError::NotReady). A shorter message to
    /// another proc arrives as in standard mode. So does a message whose receiver owes more answers than it can keep.
    ///
    /// # Errors
    /// As [`Engine::isend`].
    pub fn irsend<B: IntoBuffer<Buffer: Send + 'static>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.post_ready(buffer.into_buffer(), to, tag, comm, false)
    }

    /// Sends in synchronous mode (`MPI_Ssend`). Returns when a receive has been paired with the message and the buffer may be used again.
    ///
    /// # Errors
    /// As [`Engine::send`].
    pub fn ssend<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError> {
        let request = self.post_synchronous(buffer, to, tag, comm, true)?;
        self.wait_lent(request).map(drop)
    }

    /// Sends in ready mode (`MPI_Rsend`). See [`Engine::irsend`].
    ///
    /// # Errors
    /// As [`Engine::send`], and [`RequestError::NotReady`](tickwire_components::RequestError::NotReady).
    pub fn rsend<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError> {
        let request = self.post_ready(buffer, to, tag, comm, true)?;
        self.wait_lent(request).map(drop)
    }

    /// Posts a send in synchronous mode. It always goes through the tables, which note when it is paired.
    pub(crate) fn post_synchronous<B: Pieces>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        scoped: bool,
    ) -> Result<Request<B>, Rejected<B>> {
        self.post_send_rows(buffer, to, tag, comm, scoped, SendOptions::of(car_flags::SYNCHRONOUS))
    }

    /// Posts a send in ready mode, or in standard mode if its receiver could not say that it is not ready.
    pub(crate) fn post_ready<B: Pieces>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        scoped: bool,
    ) -> Result<Request<B>, Rejected<B>> {
        match self.asks_when_ready(to, comm, buffer.total()) {
            true => self.post_send_rows(buffer, to, tag, comm, scoped, SendOptions::of(car_flags::READY)),
            false => self.post_send(buffer, to, tag, comm, scoped),
        }
    }

    /// Whether the receiver of a message in ready mode can say that it is not ready.
    pub(crate) fn asks_when_ready(&mut self, to: Rank, comm: Comm, length: usize) -> bool {
        let all = self.store.all();
        let proc = alive(all.communicators, comm.0).and_then(|comm| comm.proc(to.0));
        let Some(known) = proc.and_then(|proc| all.procs.known.get(proc as usize)) else { return false };
        let endpoint = all.vcs.get(known.row as usize).and_then(|vc| all.endpoints.get(vc.endpoint as usize));
        proc.is_some_and(|proc| asks_when_ready(all.procs.me, endpoint, proc, length as u64))
    }

    /// Sends to one proc and receives from one at the same time (`MPI_Sendrecv`).
    ///
    /// # Errors
    /// As [`Engine::send`] and [`Engine::recv`]. If the send fails, the receive is given up.
    #[expect(clippy::too_many_arguments, reason = "a send and a receive")]
    pub fn sendrecv<S: Pieces, R: LeasedBytes>(
        &mut self,
        buffer: S,
        to: Rank,
        send_tag: Tag,
        into: R,
        source: impl Into<Source>,
        receive_tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Status, OperationError> {
        let incoming = self.post_receive(into, source.into(), receive_tag.into(), comm, true)?;
        // A rejected buffer is dropped in here, too: that may panic, and the receive has borrowed memory already.
        let posted =
            |engine: &mut Engine| engine.post_send(buffer, to, send_tag, comm, true).map_err(|rejected| rejected.error);
        let sent = match self.lending(posted) {
            Ok(outgoing) => self.wait_lent(outgoing).map(drop),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = sent {
            // If a message was paired with the receive meanwhile, the receive completes.
            let _ = self.lending(|engine| engine.cancel(&incoming));
            let _ = self.wait_lent(incoming);
            return Err(error);
        }
        self.wait_lent(incoming)
    }

    /// As [`Engine::sendrecv`], with one buffer for the sent and the received elements (`MPI_Sendrecv_replace`).
    ///
    /// # Errors
    /// As [`Engine::sendrecv`].
    pub fn sendrecv_replace<T: NoUninit + AnyBitPattern>(
        &mut self,
        elements: &mut [T],
        to: Rank,
        send_tag: Tag,
        source: impl Into<Source>,
        receive_tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Status, OperationError> {
        let outgoing = elements.to_vec();
        self.sendrecv(outgoing, to, send_tag, elements, source, receive_tag, comm)
    }
}
