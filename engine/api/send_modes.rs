//! The modes of sending besides the standard one (MPI 4.1 §3.4), and sending and receiving in one call (§3.10).

use crate::api::request::{OperationError, Rejected, Request};
use crate::api::send_options::SendOptions;
use crate::run::core::{Closed, Engine};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tickwire_components::limits::BUFFERED_OVERHEAD;
use tickwire_components::{
    Comm, Pieces, PostError, Rank, RequestError, Source, Span, Status, Tag, TagFilter, car_flags,
};
use tickwire_systems::procs::communicators::alive;
use tickwire_systems::steps::posting::send_copied;
use tickwire_systems::store::Tables;
use tickwire_transports::copy;

/// What was attached for sends in buffered mode.
#[derive(Default)]
pub(crate) struct Attached {
    bytes: usize,
    used: Arc<AtomicUsize>,
}

/// The engine's own copy of a message in buffered mode; its bytes are free again when it is dropped.
struct Copied {
    bytes: Box<[u8]>,
    used: Arc<AtomicUsize>,
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes.len() + BUFFERED_OVERHEAD, Ordering::Relaxed);
    }
}

// SAFETY: the bytes are on the heap, so moving the value does not move them.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Copied {
    fn piece(&self, index: usize) -> Span {
        self.bytes.piece(index)
    }
}

impl Engine {
    /// Starts a send in synchronous mode (`MPI_Issend`): it is done only when a receive has been paired with it.
    ///
    /// # Errors
    /// As [`Engine::isend`].
    pub fn issend<B: Pieces + Send + 'static>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B>, Rejected<B>> {
        let length = buffer.total();
        self.post_send_rows(buffer, length, to, tag, comm, false, SendOptions::of(car_flags::SYNCHRONOUS))
    }

    /// Starts a send in ready mode (`MPI_Irsend`): the caller knows that its receive is posted.
    ///
    /// If it is not, the request of a message that asks before it is sent (to oneself, or longer than the eager limit)
    /// ends with [`RequestError::NotReady`]; a shorter message to another proc arrives as in standard mode.
    ///
    /// # Errors
    /// As [`Engine::isend`].
    pub fn irsend<B: Pieces + Send + 'static>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B>, Rejected<B>> {
        self.post_ready(buffer, to, tag, comm, false)
    }

    /// Starts a send in buffered mode (`MPI_Ibsend`): what cannot leave at once is copied into the attached buffer, so it is
    /// done when this returns.
    ///
    /// # Errors
    /// As [`Engine::isend`], and [`PostError::BufferFull`] if the copy does not fit.
    pub fn ibsend<B: Pieces + Send + 'static>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B>, Rejected<B>> {
        match self.send_buffered(&buffer, to, tag, comm) {
            Ok(()) => Ok(Request::ready(self.home, buffer, to.0, tag.0)),
            Err(error) => Err(Rejected { error: self.raise_post(comm, "send", error), buffer }),
        }
    }

    /// Sends in synchronous mode and returns when a receive has been paired with it and the buffer may be used (`MPI_Ssend`).
    ///
    /// # Errors
    /// As [`Engine::send`].
    pub fn ssend(&mut self, bytes: &[u8], to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError> {
        let request =
            self.post_send_rows(bytes, bytes.len(), to, tag, comm, true, SendOptions::of(car_flags::SYNCHRONOUS))?;
        self.settle(request).map(drop)
    }

    /// Sends in ready mode (`MPI_Rsend`). See [`Engine::irsend`].
    ///
    /// # Errors
    /// As [`Engine::send`], and [`RequestError::NotReady`].
    pub fn rsend(&mut self, bytes: &[u8], to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError> {
        let request = self.post_ready(bytes, to, tag, comm, true)?;
        self.settle(request).map(drop)
    }

    /// Sends in buffered mode (`MPI_Bsend`): never waits. See [`Engine::ibsend`].
    ///
    /// # Errors
    /// As [`Engine::ibsend`].
    pub fn bsend(&mut self, bytes: &[u8], to: Rank, tag: Tag, comm: Comm) -> Result<(), PostError> {
        self.send_buffered(&bytes, to, tag, comm).map_err(|error| self.raise_post(comm, "send", error))
    }

    pub(crate) fn post_ready<B: Pieces>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        scoped: bool,
    ) -> Result<Request<B>, Rejected<B>> {
        let length = buffer.total();
        match self.asks_when_ready(to, comm, length) {
            true => self.post_send_rows(buffer, length, to, tag, comm, scoped, SendOptions::of(car_flags::READY)),
            false => self.post_send(buffer, to, tag, comm, scoped),
        }
    }

    /// Whether the receiver of a message in ready mode can tell that it is not ready.
    pub(crate) fn asks_when_ready(&mut self, to: Rank, comm: Comm, length: usize) -> bool {
        let all = self.store.all();
        let proc = alive(all.communicators, comm.0).and_then(|comm| comm.proc(to.0));
        let Some(known) = proc.and_then(|proc| all.procs.known.get(proc as usize)) else { return false };
        let endpoint = all.vcs.get(known.row as usize).and_then(|vc| all.endpoints.get(vc.endpoint as usize));
        proc == Some(all.procs.me) || endpoint.is_some_and(|endpoint| length as u64 > endpoint.eager_max)
    }

    pub(crate) fn send_buffered<B: Pieces + ?Sized>(
        &mut self,
        buffer: &B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<(), PostError> {
        if self.send_copy(buffer, to, tag, comm) {
            return Ok(());
        }
        if self.closed != Closed::No {
            return Err(self.closed.post_error());
        }
        let length = buffer.total();
        let (needed, attached) = (length + BUFFERED_OVERHEAD, self.attached.bytes);
        let free = attached.saturating_sub(self.attached.used.load(Ordering::Relaxed));
        if needed > free && to != Rank::NULL {
            return Err(PostError::BufferFull { needed, free, attached });
        }
        self.attached.used.fetch_add(needed, Ordering::Relaxed);
        let copied = Copied { bytes: copy::gather(buffer), used: self.attached.used.clone() };
        // Nobody will ask for it: it is freed when it has left.
        self.post_send_rows(copied, length, to, tag, comm, false, SendOptions::new())
            .map(drop)
            .map_err(|rejected| rejected.error)?;
        self.free_dropped();
        Ok(())
    }

    /// What is copied into a frame at once needs no room.
    fn send_copy<B: Pieces + ?Sized>(&mut self, buffer: &B, to: Rank, tag: Tag, comm: Comm) -> bool {
        let Some(envelope) = self.envelope(buffer.total(), to, tag, comm) else { return false };
        let Tables { progress, procs, vcs, endpoints, .. } = self.store.all();
        let Some(vc) = vcs.get_mut(procs.known[envelope.proc as usize].row as usize) else { return false };
        let endpoint = &mut endpoints[vc.endpoint as usize];
        send_copied(progress, vc, endpoint, &envelope, buffer)
    }

    /// Attaches room for sends in buffered mode, in addition to what there is (`MPI_Buffer_attach`). A message takes its
    /// bytes and [`BUFFERED_OVERHEAD`].
    pub fn attach_buffer(&mut self, bytes: usize) {
        self.attached.bytes += bytes;
    }

    /// Waits until all messages in buffered mode have left, and takes the room away (`MPI_Buffer_detach`). Returns how
    /// much it was, bytes.
    ///
    /// # Errors
    /// If waiting is impossible; the room stays attached.
    pub fn detach_buffer(&mut self) -> Result<usize, RequestError> {
        let used = self.attached.used.clone();
        self.wait_until(|engine| match engine.closed {
            Closed::No => Ok(used.load(Ordering::Relaxed) == 0),
            _ => Err(engine.closed.request_error()),
        })?;
        Ok(std::mem::take(&mut self.attached.bytes))
    }

    /// Sends to one proc and receives from one at the same time (`MPI_Sendrecv`).
    ///
    /// # Errors
    /// As [`Engine::send`] and [`Engine::recv`]; the other half is finished or given up then.
    #[expect(clippy::too_many_arguments, reason = "a send and a receive")]
    pub fn sendrecv(
        &mut self,
        bytes: &[u8],
        to: Rank,
        send_tag: Tag,
        into: &mut [u8],
        source: impl Into<Source>,
        receive_tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Status, OperationError> {
        let (source, receive_tag) = (source.into(), receive_tag.into());
        self.scope(|scope| {
            let incoming = scope.irecv(into, source, receive_tag, comm)?;
            let outgoing = scope.isend(bytes, to, send_tag, comm)?;
            scope.wait(&outgoing)?;
            scope.take(outgoing)?;
            scope.wait(&incoming)?;
            Ok(scope.take(incoming)?.1)
        })
    }

    /// As [`Engine::sendrecv`], with one buffer for what is sent and what is received (`MPI_Sendrecv_replace`).
    ///
    /// # Errors
    /// As [`Engine::sendrecv`].
    pub fn sendrecv_replace(
        &mut self,
        bytes: &mut [u8],
        to: Rank,
        send_tag: Tag,
        source: impl Into<Source>,
        receive_tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Status, OperationError> {
        let outgoing = bytes.to_vec();
        self.sendrecv(&outgoing, to, send_tag, bytes, source, receive_tag, comm)
    }
}
