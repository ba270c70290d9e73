//! Sends in buffered mode (MPI 4.1 §3.4, §3.6): a message that cannot leave at once is copied.

use crate::api::attached::Copied;
use crate::api::request::{Rejected, Request};
use crate::api::send_options::SendOptions;
use crate::run::engine::{Closed, Engine};
use std::sync::atomic::Ordering;
use tickwire_components::limits::BUFFERED_OVERHEAD;
use tickwire_components::{Comm, IntoBuffer, Pieces, PostError, Rank, RequestError, Tag};
use tickwire_systems::steps::arguments::{check_null_send, check_send};
use tickwire_systems::steps::posting::send_copied;
use tickwire_systems::store::Tables;
use tickwire_transports::copy;

impl Engine {
    /// Starts a send in buffered mode (`MPI_Ibsend`). A message that cannot leave at once is copied into the attached buffer, so the
    /// request is done when this returns.
    ///
    /// # Errors
    /// As [`Engine::isend`], and [`PostError::BufferFull`] if the copy does not fit.
    pub fn ibsend<B: IntoBuffer<Buffer: Send + 'static>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.post_buffered(buffer.into_buffer(), to, tag, comm)
    }

    pub(crate) fn post_buffered<B: Pieces>(
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

    /// Sends in buffered mode (`MPI_Bsend`): never waits. See [`Engine::ibsend`].
    ///
    /// # Errors
    /// As [`Engine::ibsend`].
    pub fn bsend<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), PostError> {
        self.send_buffered(&buffer, to, tag, comm).map_err(|error| self.raise_post(comm, "send", error))
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
        if to == Rank::NULL {
            return self.check_null(|comms| check_null_send(comms, comm.0, tag.0));
        }
        self.closed.check_post()?;
        let length = buffer.total();
        check_send(self.store.all().communicators, comm.0, to.0, tag.0, length)?;
        let (needed, attached) = (length + BUFFERED_OVERHEAD, self.attached.bytes);
        let free = attached.saturating_sub(self.attached.used.load(Ordering::Relaxed));
        if needed > free {
            return Err(PostError::BufferFull { needed, free, attached });
        }
        self.attached.used.fetch_add(needed, Ordering::Relaxed);
        let copied =
            Copied { bytes: copy::gather(buffer), type_name: buffer.type_name(), used: self.attached.used.clone() };
        let row = self.lending(|engine| engine.queue_send_rows(&copied, to, tag, comm, SendOptions::new()))?;
        // Nobody will wait for this request. It is freed once the message has left.
        drop(self.hold(row, copied, false));
        self.free_dropped();
        Ok(())
    }

    /// Sends a message that can be copied into a frame at once, which needs no attached room. Returns whether it could.
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
        self.attached.bytes = self.attached.bytes.saturating_add(bytes);
    }

    /// Waits until all messages in buffered mode have left, and takes the room away (`MPI_Buffer_detach`). Returns the size of the room,
    /// bytes.
    ///
    /// # Errors
    /// If waiting is impossible; the room stays attached.
    pub fn detach_buffer(&mut self) -> Result<usize, RequestError> {
        let used = self.attached.used.clone();
        let waited = self.wait_until(|engine| match engine.closed {
            Closed::No => Ok(used.load(Ordering::Relaxed) == 0),
            _ => Err(engine.closed.request_error()),
        });
        self.let_go();
        waited?;
        Ok(std::mem::take(&mut self.attached.bytes))
    }
}
