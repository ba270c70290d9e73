//! Receipts: what became of an operation, for those that were asked for.

use crate::core::Engine;
use crate::request::{Rejected, Request, Waitable};
use tickwire_components::{
    Comm, LeasedBytes, NIL, Pieces, Rank, Receipt, RequestId, Source, Tag, TagFilter, car_flags,
};
use tickwire_systems::receipts::{note, of, open};

/// Posts operations whose receipts are kept. See [`Engine::receipted`].
pub struct Receipted<'e> {
    engine: &'e mut Engine,
}

impl Engine {
    /// Posts the next operation with a receipt: `engine.receipted().isend(…)`. Ask for it by [`Engine::receipt`].
    ///
    /// While such an operation is not done, the engine runs its systems one by one and looks at it after each; nothing is
    /// paid for by others before and after. A send with a receipt goes through the tables, never straight to the transport.
    pub fn receipted(&mut self) -> Receipted<'_> {
        Receipted { engine: self }
    }

    /// The receipt of an operation, as far as it has come; `None` if none was asked for, or its request was taken.
    pub fn receipt(&mut self, request: &impl Waitable) -> Option<Receipt> {
        let RequestId { row, generation } = request.request_id();
        let tables = self.tables.request(&mut self.world);
        let there = tables.requests.get(row as usize).is_some_and(|request| request.generation == generation);
        of(tables.progress, row, generation).filter(|_| there).cloned()
    }

    /// After posting: the request's stages are noted from now on.
    fn open_receipt(&mut self, id: RequestId) {
        if id.row == NIL {
            return;
        }
        let clock = (!self.virtual_time).then_some(self.started);
        open(&mut self.world, &self.tables, id.row, clock);
        self.observer.passes = self.observer.passes.max(std::mem::take(&mut self.frequent_passes));
    }

    /// After the passes of a tick: once nothing with a receipt is pending, ticks are again what they were.
    #[cold]
    pub(crate) fn note_receipts(&mut self) {
        note(&mut self.world, &self.tables);
        if self.tables.progress(&mut self.world).receipts.unfinished == 0 {
            self.frequent_passes = std::mem::take(&mut self.observer.passes);
        }
    }
}

impl Receipted<'_> {
    /// See [`Engine::isend`].
    ///
    /// # Errors
    /// As [`Engine::isend`].
    pub fn isend<B: Pieces + Send + 'static>(
        self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B>, Rejected<B>> {
        self.send(buffer, to, tag, comm, 0)
    }

    /// See [`Engine::issend`].
    ///
    /// # Errors
    /// As [`Engine::issend`].
    pub fn issend<B: Pieces + Send + 'static>(
        self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B>, Rejected<B>> {
        self.send(buffer, to, tag, comm, car_flags::SYNCHRONOUS)
    }

    /// See [`Engine::irecv`].
    ///
    /// # Errors
    /// As [`Engine::irecv`].
    pub fn irecv<B: LeasedBytes + Send + 'static>(
        self,
        buffer: B,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Request<B>, Rejected<B>> {
        let request = self.engine.post_receive(buffer, source.into(), tag.into(), comm, false)?;
        self.engine.open_receipt(request.id());
        Ok(request)
    }

    fn send<B: Pieces>(self, buffer: B, to: Rank, tag: Tag, comm: Comm, flags: u8) -> Result<Request<B>, Rejected<B>> {
        let length = buffer.total();
        let request = self.engine.post_send_rows(buffer, length, to, tag, comm, false, flags)?;
        self.engine.open_receipt(request.id());
        Ok(request)
    }
}
