//! Point-to-point: posting, testing, taking, cancelling.

use crate::api::request::{Failed, OperationError, Rejected, Request, Test, Waitable};
use crate::api::send_options::SendOptions;
use crate::run::core::{Closed, Engine};
use tickwire_components::index::EnvelopeKey;
use tickwire_components::limits::ANY;
use tickwire_components::{
    Car, Comm, Communicator, Large, LeasedBytes, NIL, Ownership, Pieces, PostError, ProcId, Rank, RequestError,
    RequestId, RequestState, Row, Source, Span, Status, Tag, TagFilter, VcState, car_flags,
};
use tickwire_systems::procs::connections::contact;
use tickwire_systems::protocols::eager::deliver_own;
use tickwire_systems::rows::Rows;
use tickwire_systems::steps::activate::{rows_of, take_rows};
use tickwire_systems::steps::arguments::{
    Envelope, check_null_receive, check_null_send, check_receive, check_send, directed_envelope, receive_envelope,
    send_envelope,
};
use tickwire_systems::steps::finish::{free_request, outcome, status};
use tickwire_systems::steps::posting::{queue_receive, queue_send, receive_car, receive_inline, send_car, send_inline};
use tickwire_systems::steps::send::{offer_now, send_now};
use tickwire_traces::tracy;

/// One run of bytes, while the buffer that it belongs to stays with the caller. Spans themselves are no buffers: anybody can
/// copy one, and post it after the buffer is gone.
struct Run(Span);

// SAFETY: whoever makes one keeps the buffer, whose address does not depend on where this is.
#[expect(unsafe_code, reason = "the engine trusts the addresses that a buffer type reports")]
unsafe impl Pieces for Run {
    #[inline(always)]
    fn piece(&self, _index: usize) -> Span {
        self.0
    }
}

/// The bytes of a buffer that is one run, as most are.
#[inline(always)]
fn only_run(buffer: &impl Pieces) -> Option<Span> {
    (buffer.pieces() == 1).then(|| buffer.piece(0))
}

impl Engine {
    /// Starts to send a buffer to a rank (`MPI_Isend`, standard mode). The engine owns the buffer until it is taken back.
    ///
    /// Short messages are usually on their way when this returns.
    ///
    /// # Errors
    /// A wrong argument, a peer that has failed, or no free row; the buffer comes back.
    #[inline]
    pub fn isend<B: Pieces + Send + 'static>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B>, Rejected<B>> {
        self.post_send(buffer, to, tag, comm, false)
    }

    /// Starts to receive into a buffer (`MPI_Irecv`). The engine owns the buffer until it is taken back.
    ///
    /// # Errors
    /// A wrong argument or no free row; the buffer comes back.
    #[inline]
    pub fn irecv<B: LeasedBytes + Send + 'static>(
        &mut self,
        buffer: B,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Request<B>, Rejected<B>> {
        self.post_receive(buffer, source.into(), tag.into(), comm, false)
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

    /// Sends and returns when the buffer may be used again (`MPI_Send`).
    ///
    /// # Errors
    /// A wrong argument, or how the operation ended.
    #[inline]
    pub fn send(&mut self, bytes: &[u8], to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError> {
        if let Some(run) = only_run(&bytes) {
            if self.send_run(run, to, tag, comm) {
                self.let_go();
                return Ok(());
            }
            let row = self.offer_run(run, to, tag, comm);
            if row != NIL {
                let request = self.hold(row, bytes, true);
                return self.settle(request).map(drop);
            }
        }
        self.send_rows(bytes, to, tag, comm)
    }

    /// [`Engine::send`] through the tables.
    #[inline(never)]
    fn send_rows(&mut self, bytes: &[u8], to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError> {
        let request = self.post_send_rows(bytes, bytes.len(), to, tag, comm, true, SendOptions::new())?;
        self.settle(request).map(drop)
    }

    /// Receives into a buffer and returns when the message is there (`MPI_Recv`).
    ///
    /// # Errors
    /// A wrong argument, or how the operation ended.
    #[inline]
    pub fn recv(
        &mut self,
        bytes: &mut [u8],
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Status, OperationError> {
        // Not by `post_receive`: its token would be read out of memory, behind the frame of a send before (see below).
        let (source, tag) = (source.into(), tag.into());
        if let Some(run) = only_run(&bytes) {
            let row = self.receive_from(run, source, tag, comm);
            if row != NIL {
                let request = self.hold(row, bytes, true);
                return self.settle(request);
            }
        }
        self.recv_rows(bytes, source, tag, comm)
    }

    /// [`Engine::recv`] where the frequent case is not given.
    #[inline(never)]
    fn recv_rows(
        &mut self,
        bytes: &mut [u8],
        source: Source,
        tag: TagFilter,
        comm: Comm,
    ) -> Result<Status, OperationError> {
        let request = self.post_receive_rows(bytes, source, tag, comm, true)?;
        self.settle(request)
    }

    /// Waits for a request whose buffer is borrowed, and in any case ends the loan, also if a panic comes through.
    #[inline]
    pub(crate) fn settle<B: Pieces>(&mut self, request: Request<B>) -> Result<Status, OperationError> {
        self.lending(|engine| {
            let waited = engine.wait_id(request.id());
            engine.let_go();
            if waited.is_ok() {
                return match engine.take(request) {
                    Ok((_, status)) => Ok(status),
                    Err(failed) => Err(failed.error.into()),
                };
            }
            engine.settle_failed(request)
        })
    }

    #[cold]
    fn settle_failed<B: Pieces>(&mut self, request: Request<B>) -> Result<Status, OperationError> {
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

    // Posting and taking are divided: what handles a buffer is inlined into the application's code, what handles tables is
    // called with numbers and returns one. A token that is returned through memory is read by the application before its
    // last word has left the store buffer, behind the frame; if it is read in other words than it was written in, every
    // send waits until its frame's cache line has come: measured, 20 ns of 65 a message.

    #[inline(always)]
    pub(crate) fn post_send<B: Pieces>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        scoped: bool,
    ) -> Result<Request<B>, Rejected<B>> {
        let run = only_run(&buffer);
        let sent = match run {
            Some(run) => self.send_run(run, to, tag, comm),
            None => self.send_at_once(&buffer, to, tag, comm),
        };
        if sent {
            return Ok(Request::ready(self.home, buffer, to.0, tag.0));
        }
        if let Some(run) = run {
            let row = self.offer_run(run, to, tag, comm);
            if row != NIL {
                return Ok(self.hold(row, buffer, scoped));
            }
        }
        let length = buffer.total();
        self.post_send_rows(buffer, length, to, tag, comm, scoped, SendOptions::new())
    }

    /// [`Engine::send_at_once`] of one run of bytes.
    #[inline(never)]
    fn send_run(&mut self, run: Span, to: Rank, tag: Tag, comm: Comm) -> bool {
        match self.envelope(run.len(), to, tag, comm) {
            Some(Envelope { context, source, tag, proc, .. }) if proc == self.own_at_once => {
                self.send_to_oneself(run, context, tag, source)
            }
            Some(envelope) => self.send_over_vc(&envelope, &Run(run)),
            None => false,
        }
    }

    /// What is read out of one run of bytes is offered at once; the row of its request, or [`NIL`] if it is not so.
    #[inline(never)]
    fn offer_run(&mut self, run: Span, to: Rank, tag: Tag, comm: Comm) -> Row {
        match self.envelope(run.len(), to, tag, comm) {
            // SAFETY: the callers have the row hold the buffer, or a panic takes the bytes away from it.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            Some(envelope) => self.lending(|engine| unsafe { offer_now(engine.store.all(), &envelope, comm.0, run) }),
            None => NIL,
        }
    }

    /// The frequent case of a send: connected, nothing before it, short enough. `false` if it is not so.
    #[inline(always)]
    pub(crate) fn send_at_once<B: Pieces + ?Sized>(&mut self, buffer: &B, to: Rank, tag: Tag, comm: Comm) -> bool {
        match self.envelope(buffer.total(), to, tag, comm) {
            Some(envelope) => self.send_over_vc(&envelope, buffer),
            None => false,
        }
    }

    /// The envelope of a send, if all is well with it.
    #[inline(always)]
    pub(crate) fn envelope(&mut self, length: usize, to: Rank, tag: Tag, comm: Comm) -> Option<Envelope> {
        let tables = self.store.all();
        if tables.progress.closed() {
            return None;
        }
        send_envelope(tables.communicators, comm.0, to.0, tag.0, length)
    }

    /// A message whose envelope is right, to the transport of its VC.
    #[inline(always)]
    fn send_over_vc<B: Pieces + ?Sized>(&mut self, envelope: &Envelope, buffer: &B) -> bool {
        let tables = self.store.all();
        let row = tables.procs.known[envelope.proc as usize].row;
        let Some(vc) = tables.vcs.get_mut(row as usize) else { return false };
        let endpoint = &mut tables.endpoints[vc.endpoint as usize];
        if endpoint.prompt {
            return send_inline::<true, B>(tables.progress, vc, endpoint, envelope, buffer);
        }
        send_inline::<false, B>(tables.progress, vc, endpoint, envelope, buffer)
    }

    /// A message to oneself, past the transport if its receive is posted.
    #[inline(never)]
    fn send_to_oneself(&mut self, run: Span, context: u32, tag: u32, source: u32) -> bool {
        let message = EnvelopeKey { context, source, tag };
        let own_row = self.own_row;
        // SAFETY: the caller has the buffer.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let mut own = || self.store.with(|rows, wire| unsafe { deliver_own(rows, wire, own_row, &message, run) });
        if !tracy::connected() && own() {
            return true;
        }
        self.send_by_tick(run, context, tag, source)
    }

    /// A message to oneself, to the transport like any other one.
    #[inline(never)]
    fn send_by_tick(&mut self, run: Span, context: u32, tag: u32, source: u32) -> bool {
        let envelope = Envelope { context, source, tag, proc: self.own_at_once, length: run.len() as u64 };
        self.send_over_vc(&envelope, &Run(run))
    }

    /// As [`Engine::post_send`], with options, and through the tables in any case.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "the arguments of a send, its scope and its mode")]
    pub(crate) fn post_send_rows<B: Pieces>(
        &mut self,
        buffer: B,
        length: usize,
        to: Rank,
        tag: Tag,
        comm: Comm,
        scoped: bool,
        options: SendOptions,
    ) -> Result<Request<B>, Rejected<B>> {
        if to == Rank::NULL {
            return match self.check_null(|comms| check_null_send(comms, comm.0, tag.0)) {
                Ok(()) => Ok(Request::ready(self.home, buffer, Rank::NULL.0, tag.0)),
                Err(error) => Err(Rejected { error: self.raise_post(comm, "send", error), buffer }),
            };
        }
        match self.lending(|engine| engine.queue_send_rows(&buffer, length, to, tag, comm, options)) {
            Ok(row) => Ok(self.hold(row, buffer, scoped)),
            Err(error) => Err(Rejected { error: self.raise_post(comm, "send", error), buffer }),
        }
    }

    fn queue_send_rows(
        &mut self,
        buffer: &impl Pieces,
        length: usize,
        to: Rank,
        tag: Tag,
        comm: Comm,
        options: SendOptions,
    ) -> Result<Row, PostError> {
        if self.closed != Closed::No {
            return Err(self.closed.post_error());
        }
        let envelope = check_send(self.store.all().communicators, comm.0, to.0, tag.0, length)?;
        let vc_row = self.reach(envelope.proc)?;
        self.need_rows(rows_of(buffer))?;
        let all = self.store.all();
        if all.vcs[vc_row as usize].state == VcState::Failed {
            let reason = all.procs.reason(vc_row).to_owned();
            return Err(PostError::PeerFailed { proc: ProcId(envelope.proc), reason });
        }
        let priority = options.priority_or(all.communicators[Communicator::row(comm.0)].priority);
        let car = Car { priority, ..send_car(&envelope, vc_row, options.flags()) };
        // SAFETY: the caller has the row hold the buffer, or a panic takes the bytes away from it.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let row = unsafe { take_rows(all.progress, all.cars, all.requests, buffer, car) };
        let Some(row) = row else {
            return Err(full(&self.limits));
        };
        all.large[row as usize] = Large::of(envelope.length);
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        self.store.with(|rows, wire| unsafe {
            let endpoint = &mut wire.endpoints[rows.vcs[vc_row as usize].endpoint as usize];
            if !send_now(rows, endpoint, vc_row, row) {
                let Rows { progress, cars, large, vcs, .. } = rows;
                queue_send(progress, cars, large, vcs, row, envelope.length);
            }
        });
        Ok(row)
    }

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

    /// The frequent cases of a receive of one run of bytes: its row, or [`NIL`].
    #[inline(always)]
    fn receive_from(&mut self, run: Span, source: Source, tag: TagFilter, comm: Comm) -> Row {
        match source {
            Source::Rank(rank) => self.receive_run(run, rank, tag.number(), comm),
            Source::Any => self.receive_among(run, ANY, tag.number(), comm),
        }
    }

    /// The frequent case of a receive: one run of bytes, a row free, and a VC that exists or none that is needed. [`NIL`] if
    /// it is not so.
    #[inline(never)]
    fn receive_run(&mut self, run: Span, rank: u32, tag: u32, comm: Comm) -> Row {
        match self.receive_known(run, rank, tag, comm) {
            NIL => self.receive_among(run, Source::Rank(rank).number(), tag, comm),
            row => row,
        }
    }

    /// The most frequent one: from a peer that is connected, and of which nothing waits. [`NIL`] if it is not so.
    #[inline(always)]
    fn receive_known(&mut self, run: Span, rank: u32, tag: u32, comm: Comm) -> Row {
        let tables = self.store.all();
        let Some(envelope) = directed_envelope(tables.communicators, comm.0, rank, tag) else { return NIL };
        let vc_row = tables.procs.known[envelope.proc as usize].row;
        // SAFETY: the callers have the row hold the buffer.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        unsafe {
            receive_inline(tables.progress, tables.cars, tables.requests, tables.vcs, vc_row, &envelope, &Run(run))
        }
    }

    /// From any source, or where something may be there already.
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

    /// As [`Engine::post_receive`], in any case.
    #[inline(never)]
    fn post_receive_rows<B: LeasedBytes>(
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

    /// Checks the arguments of an operation with no proc.
    #[cold]
    pub(crate) fn check_null(
        &mut self,
        check: impl FnOnce(&[Communicator]) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        if self.closed != Closed::No {
            return Err(self.closed.post_error());
        }
        check(self.store.all().communicators)
    }

    fn queue_receive_rows(
        &mut self,
        buffer: &impl Pieces,
        source: Source,
        tag: TagFilter,
        comm: Comm,
    ) -> Result<Row, PostError> {
        if self.closed != Closed::No {
            return Err(self.closed.post_error());
        }
        let mut tables = self.store.all();
        let envelope = check_receive(tables.communicators, comm.0, source, tag)?;
        let mut vc_row = NIL;
        if envelope.proc != NIL {
            vc_row = tables.procs.known[envelope.proc as usize].row;
            if vc_row == NIL || tables.vcs[vc_row as usize].state == VcState::Unconnected {
                // Connecting is what callbacks the peer's death; a failure is told by the request, after what has arrived.
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
        let Some(row) = row else { return Err(full(&self.limits)) };
        queue_receive(tables.progress, tables.cars, tables.vcs, row);
        Ok(row)
    }

    /// Gives a posted request its buffer, and its poster the token.
    #[inline(always)]
    pub(crate) fn hold<B>(&mut self, row: Row, buffer: B, scoped: bool) -> Request<B> {
        let tables = self.store.all();
        tables.held[row as usize].0.put(buffer);
        let request = &mut tables.requests[row as usize];
        if scoped {
            request.scoped = true;
            tables.progress.scoped += 1;
        }
        Request::new(self.home, row, request.generation)
    }

    /// The row of a proc, connecting at first use. That its VC fails at once is no error here.
    #[cold]
    pub(crate) fn reach(&mut self, proc: u32) -> Result<Row, PostError> {
        let row = self.proc_row(proc);
        let known = self.store.all().procs.known[proc as usize].row;
        if known != NIL {
            if self.store.all().vcs[known as usize].state == VcState::Unconnected {
                let _ = contact(&mut self.store.as_mut(), proc);
            }
            return Ok(known);
        }
        row
    }

    /// Sees to it that an operation finds so many rows.
    #[cold]
    pub(crate) fn need_rows(&mut self, needed: usize) -> Result<(), PostError> {
        self.free_dropped();
        loop {
            let progress = self.store.progress();
            if progress.free_cars.count as usize >= needed {
                return Ok(());
            }
            if !self.store.as_mut().grow() {
                return Err(if self.is_lost() { self.closed.post_error() } else { full(&self.limits) });
            }
        }
    }

    /// Says whether a request is done, without progressing anything (`MPI_Request_get_status`).
    ///
    /// # Errors
    /// How the request ended if not well, that the handle is stale, or why it cannot end any more: the engine is closed. One
    /// that is done can still be taken.
    /// [`RequestError::PeerFailedPending`] if it is a receive from any source and a proc has failed that it might wait for: it stays
    /// posted, and says so until the failure is acknowledged.
    #[inline]
    pub fn test<W: Waitable>(&mut self, request: &W) -> Result<Test, RequestError> {
        if let Some(status) = request.ready_status() {
            return Ok(Test::Done(status));
        }
        let id = request.request_id();
        if id.row == NIL {
            return Ok(Test::Done(Status::NULL));
        }
        match self.is_done(id)? {
            false => Ok(Test::Pending),
            true => self.end_of_row(request, id).map(Test::Done),
        }
    }

    /// Takes a request that is done: its buffer and its status.
    ///
    /// # Errors
    /// How it ended if not well (the buffer comes back), that it is not done ([`RequestError::Pending`]) or of another engine
    /// (it comes back itself: see [`Failed`]), or that the handle is stale.
    #[inline(always)]
    pub fn take<B: Pieces>(&mut self, mut request: Request<B>) -> Result<(B, Status), Failed<B>> {
        if let Some(ready) = request.take_ready(Pieces::total) {
            return Ok(ready);
        }
        let id = request.id();
        // The frequent case: done, and done well.
        let tables = self.store.all();
        if let Some(entry) = tables.requests.get(id.row as usize)
            && entry.generation == id.generation
            && entry.state == RequestState::Done
            && let Some(car) = tables.cars.get(id.row as usize)
            && car.flags & car_flags::ERRORS == 0
            && request.belongs_to(self.home)
        {
            let status = status(car);
            // SAFETY: the token's type is the one its buffer was put with.
            #[expect(unsafe_code, reason = "type-erased ownership")]
            let buffer = unsafe { tables.held[id.row as usize].0.take::<B>() };
            if let Some(buffer) = buffer {
                request.disarm();
                free_request(tables.progress, tables.cars, tables.requests, id.row);
                return Ok((buffer, status));
            }
        }
        self.take_slowly(request.renew())
    }

    #[cold]
    #[inline(never)]
    fn take_slowly<B: Pieces>(&mut self, mut request: Request<B>) -> Result<(B, Status), Failed<B>> {
        let id = request.id();
        if !request.belongs_to(self.home) {
            return Err(Failed::given_back(RequestError::Stale, request));
        }
        match self.state(id) {
            Ok(true) => {}
            Ok(false) => return Err(Failed::given_back(RequestError::Pending, request)),
            Err(error) => return Err(Failed::given_back(error, request)),
        }
        request.disarm();
        let error = self.outcome(id).err();
        let tables = self.store.all();
        let status = status(&tables.cars[id.row as usize]);
        // SAFETY: the token's type is the one its buffer was put with.
        #[expect(unsafe_code, reason = "type-erased ownership")]
        let buffer = unsafe { tables.held[id.row as usize].0.take::<B>() };
        free_request(tables.progress, tables.cars, tables.requests, id.row);
        match (error, buffer) {
            (None, Some(buffer)) => Ok((buffer, status)),
            (error, buffer) => Err(Failed::ended(error.unwrap_or(RequestError::Stale), buffer)),
        }
    }

    /// Whether the request behind a handle is done.
    ///
    /// # Errors
    /// If the handle is stale.
    #[inline]
    pub(crate) fn state(&mut self, id: RequestId) -> Result<bool, RequestError> {
        let tables = self.store.all();
        match tables.requests.get(id.row as usize) {
            None if id.row == NIL => Ok(true),
            Some(request) if request.generation == id.generation && request.state.is_over() => Ok(true),
            Some(request) if request.generation == id.generation && request.state == RequestState::Active => Ok(false),
            _ => Err(self.stale()),
        }
    }

    /// What is wrong with a handle that names no request: after a panic the rows themselves may have moved.
    #[cold]
    fn stale(&self) -> RequestError {
        match self.closed {
            Closed::Poisoned(_) => self.closed.request_error(),
            _ => RequestError::Stale,
        }
    }

    /// The status of a request that is done, if it has ended well.
    #[inline(always)]
    pub(crate) fn ended_well(&mut self, id: RequestId) -> Option<Status> {
        let car = self.store.all().cars.get(id.row as usize)?;
        (car.flags & car_flags::ERRORS == 0).then(|| status(car))
    }

    /// How a request that is done has ended.
    pub(crate) fn ended(&mut self, id: RequestId) -> Result<Status, RequestError> {
        let all = self.store.all();
        outcome(all.cars, all.large, all.vcs, all.procs, id.row)
    }
}

#[cold]
pub(crate) fn full(limits: &tickwire_components::limits::Limits) -> PostError {
    PostError::Full { table: "CAR", rows: limits.cars_max, limit: "cars_max" }
}
