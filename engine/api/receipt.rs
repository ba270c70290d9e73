//! Receipts: a record of what became of an operation, for operations that asked for one.

use crate::api::persistent::Persistent;
use crate::api::probe::message::{Message, RejectedMessage};
use crate::api::request::{Rejected, Request, Waitable};
use crate::api::send_options::SendOptions;
use crate::run::engine::Engine;
use std::marker::PhantomData;
use std::time::Instant;
use tickwire_components::{
    Comm, IntoBuffer, LeasedBytes, NIL, Pieces, PostError, Rank, Receipt, RequestId, Row, Source, Tag, TagFilter,
};
use tickwire_systems::procs::receipts::{Came, forget_sent, has_room, note, note_sent, of, open};

/// Posts operations whose receipts are kept. See [`Engine::receipted`] and [`Scope::receipted`](crate::Scope::receipted).
pub struct Receipted<'e, 'env> {
    engine: &'e mut Engine,
    scoped: bool,
    _env: PhantomData<&'env mut &'env ()>,
}

impl Engine {
    /// Posts the next operation with a receipt: `engine.receipted().isend(…)`. [`Engine::receipt`] returns the receipt.
    ///
    /// While such an operation is not done, the engine checks it after each system that has run, and after Deliver. A stage gets the time
    /// of the check that finds it. If a wait was looking for the message, Deliver's stages get the time at which the successful look began.
    /// A message that leaves as a whole within the call that sends it has the same time in all stages: when it had left. Without such
    /// operations in progress, receipts cost nothing.
    pub fn receipted(&mut self) -> Receipted<'_, 'static> {
        Receipted::new(self, false)
    }

    /// The receipt of an operation, with the stages reached so far. `None` if no receipt was asked for, or its request was taken.
    pub fn receipt<W: Waitable>(&mut self, request: &W) -> Option<Receipt> {
        let RequestId { row, generation } = request.request_id();
        of(&mut self.store.as_mut(), row, generation)
    }

    /// Opens the receipt of a request that was just posted: its stages are noted from now on.
    fn open_receipt(&mut self, id: RequestId, came: Came) {
        if !id.has_row() {
            return;
        }
        let start = self.receipts_start();
        open(&mut self.store.as_mut(), id.row, start, came);
        if !self.observer.receipts {
            self.look_at_receipts(true);
        }
    }

    /// Sends a message at once and as a whole, with a receipt. Returns the row and the number of its request, or `None` if the message
    /// cannot leave so.
    fn send_noted<B: Pieces>(&mut self, buffer: &B, to: Rank, tag: Tag, comm: Comm) -> Option<(Row, u64)> {
        if !has_room(self.store.progress(), self.limits.cars_max) {
            return None;
        }
        let proc = self.send_whole(buffer, to, tag, comm)?;
        let start = self.receipts_start();
        let mut all = self.store.all();
        let vc_row = all.procs.known[proc as usize].row;
        Some(note_sent(&mut all, vc_row, to.0, buffer.total(), start))
    }

    /// When the engine was built. `None` if the caller gives the time.
    fn receipts_start(&self) -> Option<Instant> {
        (!self.virtual_time).then_some(self.started)
    }

    /// Drops the receipt of a message whose request has no row.
    #[cold]
    pub(crate) fn forget_receipt(&mut self, row: Row, number: u64) {
        forget_sent(self.store.progress(), row, number);
    }

    /// Notes stages at the end of a tick. Once no operation with a receipt is pending, the engine stops checking.
    #[cold]
    pub(crate) fn note_receipts(&mut self) {
        note(&mut self.store.as_mut());
        self.end_receipts();
    }

    /// Stops checking, if no operation with a receipt is pending.
    pub(crate) fn end_receipts(&mut self) {
        if self.store.progress().receipts.open.is_empty() {
            self.look_at_receipts(false);
        }
    }

    /// Says whether there are operations with receipts that are not done.
    fn look_at_receipts(&mut self, open: bool) {
        self.observer.receipts = open;
        self.watching.look_at_receipts(open);
        self.choose_own_at_once();
        self.choose_looks();
    }
}

impl<'e, 'env> Receipted<'e, 'env> {
    pub(crate) fn new(engine: &'e mut Engine, scoped: bool) -> Self {
        Receipted { engine, scoped, _env: PhantomData }
    }

    /// See [`Engine::isend`].
    ///
    /// # Errors
    /// As [`Engine::isend`].
    pub fn isend<B: IntoBuffer<Buffer: Send + 'env>>(
        self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.isend_with(buffer.into_buffer(), to, tag, comm, SendOptions::new())
    }

    /// See [`Engine::issend`].
    ///
    /// # Errors
    /// As [`Engine::issend`].
    pub fn issend<B: IntoBuffer<Buffer: Send + 'env>>(
        self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.isend_with(buffer.into_buffer(), to, tag, comm, SendOptions::new().synchronous())
    }

    /// See [`Engine::irsend`].
    ///
    /// # Errors
    /// As [`Engine::irsend`].
    pub fn irsend<B: IntoBuffer<Buffer: Send + 'env>>(
        self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.isend_with(buffer.into_buffer(), to, tag, comm, SendOptions::new().ready())
    }

    /// See [`Engine::isend_with`]. Sends in buffered mode have no receipt: they are done when they are posted.
    ///
    /// # Errors
    /// As [`Engine::isend`].
    pub fn isend_with<B: IntoBuffer<Buffer: Send + 'env>>(
        self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        options: SendOptions,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        let buffer = buffer.into_buffer();
        let length = buffer.total();
        let options = self.engine.asking(options, to, comm, length);
        if options.flags() == 0
            && let Some((row, number)) = self.engine.send_noted(&buffer, to, tag, comm)
        {
            return Ok(Request::noted(self.engine.home, buffer, row, number, tag.0));
        }
        // As without a receipt: a message that its receiver reads is offered at once.
        let offered = match options == SendOptions::new() {
            true => self.engine.offer_at_once(&buffer, to, tag, comm),
            false => NIL,
        };
        let request = match offered {
            NIL => self.engine.post_send_rows(buffer, to, tag, comm, self.scoped, options)?,
            row => self.engine.hold(row, buffer, self.scoped),
        };
        self.engine.open_receipt(request.id(), Came::Posted);
        Ok(request)
    }

    /// See [`Engine::irecv`].
    ///
    /// # Errors
    /// As [`Engine::irecv`].
    pub fn irecv<B: IntoBuffer<Buffer: LeasedBytes + Send + 'env>>(
        self,
        buffer: B,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        let request = self.engine.post_receive(buffer.into_buffer(), source.into(), tag.into(), comm, self.scoped)?;
        self.engine.open_receipt(request.id(), Came::Posted);
        Ok(request)
    }

    /// See [`Engine::imrecv`].
    ///
    /// # Errors
    /// As [`Engine::imrecv`].
    pub fn imrecv<B: IntoBuffer<Buffer: LeasedBytes + Send + 'env>>(
        self,
        message: Message,
        buffer: B,
    ) -> Result<Request<B::Buffer>, RejectedMessage<B::Buffer>> {
        let request = self.engine.receive_message(message, buffer.into_buffer(), self.scoped)?;
        self.engine.open_receipt(request.id(), Came::Found);
        Ok(request)
    }

    /// See [`Engine::start`]. The receipt is that of this start. It is kept until the next start with a receipt.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start<B: Pieces>(self, persistent: &Persistent<B>) -> Result<(), PostError> {
        self.engine.start_by(persistent, false)?;
        self.engine.open_receipt(persistent.id(), Came::Posted);
        Ok(())
    }
}
