//! Posting receives. The frequent cases take one row and few checks; `post_receive_rows` handles all cases.

use super::run::{Run, only_run};
use crate::api::request::{Rejected, Request};
use crate::run::engine::Engine;
use tickwire_components::limits::ANY;
use tickwire_components::{Comm, LeasedBytes, NIL, Pieces, PostError, Rank, Row, Source, Span, TagFilter, VcState};
use tickwire_systems::steps::activate::{rows_of, take_rows};
use tickwire_systems::steps::arguments::{
    Envelope, check_null_receive, check_receive, directed_envelope, receive_envelope,
};
use tickwire_systems::steps::posting::{queue_receive, receive_car, receive_inline};

impl Engine {
    #[inline(always)]
    pub(crate) fn post_receive<B: LeasedBytes>(
        &mut self,
        buffer: B,
        source: Source,
        tag: TagFilter,
        comm: Comm,
        scoped: bool,
    ) -> Result<Request<B>, Rejected<B>> {
        if let Some(run) = only_run(&buffer) {
            let row = self.receive_from(run, source, tag, comm);
            if row != NIL {
                return Ok(self.hold(row, buffer, scoped));
            }
        }
        self.post_receive_rows(buffer, source, tag, comm, scoped)
    }

    /// The frequent cases of a receive into one run of bytes. Returns its row, or [`NIL`] if it is none of these.
    #[inline(always)]
    pub(super) fn receive_from(&mut self, run: Span, source: Source, tag: TagFilter, comm: Comm) -> Row {
        match source {
            Source::Rank(rank) => match self.receive_run(run, rank.0, tag.number(), comm) {
                NIL => self.receive_among(run, source.number(), tag.number(), comm),
                row => row,
            },
            Source::Any => self.receive_among(run, ANY, tag.number(), comm),
        }
    }

    /// The most frequent case of a receive: one run of bytes, a free row, and a connected peer of which no message waits. [`NIL`] in any
    /// other case.
    #[inline(never)]
    fn receive_run(&mut self, run: Span, rank: u32, tag: u32, comm: Comm) -> Row {
        let tables = self.store.all();
        let Some(envelope) = directed_envelope(tables.communicators, comm.0, rank, tag) else { return NIL };
        let vc_row = tables.procs.known[envelope.proc as usize].row;
        self.receive_over_vc(run, u64::from(envelope.context) | u64::from(rank) << 32, tag, vc_row)
    }

    /// [`Engine::receive_run`] with a checked envelope. Context and source share one word, so that all arguments fit into registers.
    #[inline(never)]
    fn receive_over_vc(&mut self, run: Span, origin: u64, tag: u32, vc_row: Row) -> Row {
        let (context, source) = (origin as u32, (origin >> 32) as u32);
        let envelope = Envelope { context, source, tag, proc: NIL, length: 0 };
        let tables = self.store.all();
        // SAFETY: the callers have the row hold the buffer.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        unsafe {
            receive_inline(tables.progress, tables.cars, tables.requests, tables.vcs, vc_row, &envelope, &Run(run))
        }
    }

    /// A receive from any source, or one whose message may have arrived already.
    #[inline(never)]
    fn receive_among(&mut self, run: Span, rank: u32, tag: u32, comm: Comm) -> Row {
        let tables = self.store.all();
        if tables.progress.closed() {
            return NIL;
        }
        let Some(envelope) = receive_envelope(tables.communicators, comm.0, rank, tag) else { return NIL };
        let vc_row = match envelope.proc {
            NIL => NIL,
            proc => tables.procs.known[proc as usize].row,
        };
        let reached =
            envelope.proc == NIL || tables.vcs.get(vc_row as usize).is_some_and(|vc| vc.state != VcState::Unconnected);
        let car = receive_car(tables.progress, &envelope, vc_row);
        if !reached {
            return NIL;
        }
        // SAFETY: the callers have the row hold the buffer.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let row = unsafe { take_rows(tables.progress, tables.cars, tables.requests, &Run(run), car) };
        if let Some(row) = row {
            queue_receive(tables.progress, tables.cars, tables.vcs, row);
            return row;
        }
        NIL
    }

    /// As [`Engine::post_receive`], for all cases.
    #[inline(never)]
    pub(super) fn post_receive_rows<B: LeasedBytes>(
        &mut self,
        buffer: B,
        source: Source,
        tag: TagFilter,
        comm: Comm,
        scoped: bool,
    ) -> Result<Request<B>, Rejected<B>> {
        if source == Source::from(Rank::NULL) {
            return match self.check_null(|comms| check_null_receive(comms, comm.0, tag)) {
                Ok(()) => Ok(Request::ready(self.home, buffer, Rank::NULL.0, tag.number())),
                Err(error) => Err(Rejected { error: self.raise_post(comm, "receive", error), buffer }),
            };
        }
        let queued = match buffer.has_overlap() {
            false => self.queue_receive_rows(&buffer, source, tag, comm),
            true => Err(PostError::Overlap),
        };
        match queued {
            Ok(row) => Ok(self.hold(row, buffer, scoped)),
            Err(error) => Err(Rejected { error: self.raise_post(comm, "receive", error), buffer }),
        }
    }

    fn queue_receive_rows(
        &mut self,
        buffer: &impl Pieces,
        source: Source,
        tag: TagFilter,
        comm: Comm,
    ) -> Result<Row, PostError> {
        self.closed.check_post()?;
        let mut tables = self.store.all();
        let envelope = check_receive(tables.communicators, comm.0, source, tag)?;
        let mut vc_row = NIL;
        if envelope.proc != NIL {
            vc_row = tables.procs.known[envelope.proc as usize].row;
            if vc_row == NIL || tables.vcs[vc_row as usize].state == VcState::Unconnected {
                // Without a connection, nothing reports the peer's death. A failure is reported by the request, after messages that have
                // arrived.
                vc_row = self.reach(envelope.proc)?;
                tables = self.store.all();
            }
        }
        let car = receive_car(tables.progress, &envelope, vc_row);
        // SAFETY: the caller has the row hold the buffer.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let mut row = unsafe { take_rows(tables.progress, tables.cars, tables.requests, buffer, car) };
        if row.is_none() {
            self.need_rows(rows_of(buffer))?;
            tables = self.store.all();
            // SAFETY: as above.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let again = unsafe { take_rows(tables.progress, tables.cars, tables.requests, buffer, car) };
            row = again;
        }
        let Some(row) = row else { return Err(self.full()) };
        queue_receive(tables.progress, tables.cars, tables.vcs, row);
        Ok(row)
    }
}
