//! Point-to-point: sending and receiving.
//!
//! Posting and taking are split. Code that handles a buffer is inlined into the application; code that handles tables is called with
//! numbers and returns a number. The reason: the application reads a token that is returned through memory before the token's last word has
//! left the store buffer, where it stands behind the frame of a send. If the token is read in words of another size than it was written in,
//! every send waits until the cache line of its frame has come. Measured: 20 ns of 65 a message.

mod own;
mod receive;
mod rows;
mod run;
mod send;
mod take;

use crate::api::request::{OperationError, Rejected, Request};
use crate::api::send_options::SendOptions;
use crate::run::engine::Engine;
use run::only_run;
use tickwire_components::{
    Comm, IntoBuffer, LeasedBytes, NIL, Ownership, Pieces, Rank, RequestError, Source, Span, Status, Tag, TagFilter,
};

impl Engine {
    /// Starts to send a buffer to a rank (`MPI_Isend`, standard mode). The engine owns the buffer until it is taken back.
    ///
    /// Short messages are usually on their way when this returns.
    ///
    /// # Errors
    /// A wrong argument, a peer that has failed, or no free row. The error gives the buffer back.
    #[inline]
    pub fn isend<B: IntoBuffer<Buffer: Send + 'static>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.post_send(buffer.into_buffer(), to, tag, comm, false)
    }

    /// Starts to receive into a buffer (`MPI_Irecv`). The engine owns the buffer until it is taken back.
    ///
    /// # Errors
    /// A wrong argument or no free row. The error gives the buffer back.
    #[inline]
    pub fn irecv<B: IntoBuffer<Buffer: LeasedBytes + Send + 'static>>(
        &mut self,
        buffer: B,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.post_receive(buffer.into_buffer(), source.into(), tag.into(), comm, false)
    }

    /// [`Engine::isend`] of memory that the caller keeps.
    ///
    /// # Errors
    /// As [`Engine::isend`].
    ///
    /// # Safety
    /// `length` bytes at `start` stay valid for reads, and nobody writes them, until the request is done or the engine dropped.
    #[expect(unsafe_code, reason = "the raw form")]
    pub unsafe fn isend_raw(
        &mut self,
        start: *const u8,
        length: usize,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<Ownership<'static>>, Rejected<Ownership<'static>>> {
        // SAFETY: by this function's contract.
        let buffer = unsafe { Ownership::new(Span::new(start.cast_mut(), length)) };
        self.post_send(buffer, to, tag, comm, false)
    }

    /// [`Engine::irecv`] into memory that the caller keeps.
    ///
    /// # Errors
    /// As [`Engine::irecv`].
    ///
    /// # Safety
    /// `length` bytes at `start` stay valid for writes, and nobody else uses them, until the request is done or the engine dropped.
    #[expect(unsafe_code, reason = "the raw form")]
    pub unsafe fn irecv_raw(
        &mut self,
        start: *mut u8,
        length: usize,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Request<Ownership<'static>>, Rejected<Ownership<'static>>> {
        // SAFETY: by this function's contract.
        let buffer = unsafe { Ownership::new(Span::new(start, length)) };
        self.post_receive(buffer, source.into(), tag.into(), comm, false)
    }

    /// Sends a buffer, and returns when the buffer may be used again (`MPI_Send`).
    ///
    /// # Errors
    /// A wrong argument, or the error with which the operation ended.
    #[inline]
    pub fn send<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError> {
        if let Some(run) = only_run(&buffer) {
            if self.send_run(run, to, tag, comm) {
                self.let_go();
                return Ok(());
            }
            let row = self.offer_run(run, to, tag, comm);
            if row != NIL {
                let request = self.hold(row, buffer, true);
                return self.wait_lent(request).map(drop);
            }
        }
        self.send_rows(buffer, to, tag, comm)
    }

    /// [`Engine::send`] through the tables.
    #[inline(never)]
    fn send_rows<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError> {
        let request = self.post_send_rows(buffer, to, tag, comm, true, SendOptions::new())?;
        self.wait_lent(request).map(drop)
    }

    /// Receives into a buffer, and returns when the message is there (`MPI_Recv`).
    ///
    /// # Errors
    /// A wrong argument, or the error with which the operation ended.
    #[inline]
    pub fn recv<B: LeasedBytes>(
        &mut self,
        buffer: B,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Status, OperationError> {
        // Not by `post_receive`: its token would be read out of memory behind the frame of an earlier send (see the module's
        // documentation).
        let (source, tag) = (source.into(), tag.into());
        if let Some(run) = only_run(&buffer) {
            let row = self.receive_from(run, source, tag, comm);
            if row != NIL {
                let request = self.hold(row, buffer, true);
                return self.wait_lent(request);
            }
        }
        self.recv_rows(buffer, source, tag, comm)
    }

    /// [`Engine::recv`] in the less frequent cases.
    #[inline(never)]
    fn recv_rows<B: LeasedBytes>(
        &mut self,
        buffer: B,
        source: Source,
        tag: TagFilter,
        comm: Comm,
    ) -> Result<Status, OperationError> {
        let request = self.post_receive_rows(buffer, source, tag, comm, true)?;
        self.wait_lent(request)
    }

    /// Waits for a request whose buffer is borrowed. Ends the loan in any case, even if a panic passes through.
    #[inline]
    pub(crate) fn wait_lent<B: Pieces>(&mut self, request: Request<B>) -> Result<Status, OperationError> {
        self.lending(|engine| {
            let waited = engine.wait_id(request.id());
            engine.let_go();
            if waited.is_ok() {
                return match engine.take(request) {
                    Ok((_, status)) => Ok(status),
                    Err(failed) => Err(failed.error.into()),
                };
            }
            engine.wait_lent_failed(request)
        })
    }

    #[cold]
    fn wait_lent_failed<B: Pieces>(&mut self, request: Request<B>) -> Result<Status, OperationError> {
        let id = request.id();
        let ended = self.wait_id(id);
        let result = match self.take(request) {
            Ok((_, status)) => return Ok(status),
            Err(failed) => failed.error,
        };
        self.end_loans(Some(id));
        Err(match ended {
            Err(error) if result == RequestError::Pending => error.into(),
            _ => result.into(),
        })
    }
}
