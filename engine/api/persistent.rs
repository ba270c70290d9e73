//! Persistent requests (MPI 4.1 §3.9): operations that keep their arguments and buffer, and can be started again and again.

mod buffers;

use crate::api::collectives::check_buffer;
use crate::api::request::{Rejected, Request, Waitable};
use crate::api::send_options::SendOptions;
use crate::run::engine::Engine;
use std::marker::PhantomData;
use tickwire_components::submission::Operation;
use tickwire_components::{
    Car, CarState, Comm, IntoBuffer, LeasedBytes, Lent, NIL, NoBytes, Pieces, PostError, Rank, RequestId, RequestState,
    Row, Source, Status, Tag, TagFilter, car_flags,
};
use tickwire_systems::procs::communicators::live;
use tickwire_systems::steps::activate::{activate, rows_of, take_rows};
use tickwire_systems::steps::arguments::{Envelope, check_operation};
use tickwire_systems::steps::posting::{new_send, queue_receive, queue_send, receive_car};

/// An operation that can be started again and again with one buffer. The engine holds the buffer in between.
///
/// Wait for it and test it like any request: the call that reports its end makes it inactive. Calls for several requests ignore it until it
/// is started again. A call for it alone reports its last end again, or [`Status::NULL`] if it was never started. [`Engine::buffer`] gives
/// access to the bytes while it is not active. Dropping it frees it, once it is done.
///
/// A buffer that replaces the first one must live as long:
///
/// ```compile_fail,E0597
/// # use tickwire::{Bootstrap, Engine, Tag};
/// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
/// # let (me, world) = (engine.rank(), engine.comm_world());
/// let mut send = engine.send_init(&b"for ever"[..], me, Tag(1), world).unwrap();
/// let short = vec![1u8; 8];
/// *engine.buffer(&mut send).unwrap() = &short[..];
/// ```
#[must_use = "dropping a persistent request frees it"]
pub struct Persistent<B> {
    token: Request<B>,
    what: What,
    comm: Comm,
    /// Invariant in `B`: otherwise [`Engine::buffer`] would let a buffer with a shorter lifetime replace one with a longer lifetime.
    _invariant: PhantomData<fn(B) -> B>,
}

/// What a persistent request starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// A message. Only sends use the mode and the options.
    Message { operation: Operation, mode: Mode, options: SendOptions },
    /// The graph of a collective operation, by its number.
    Graph(u32),
    /// A collective operation on boards, by its number.
    Boards(u32),
}

/// How a persistent request sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Standard,
    Synchronous,
    Buffered,
    Ready,
}

impl<B> Persistent<B> {
    /// The untyped name of the request.
    pub fn id(&self) -> RequestId {
        self.token.id()
    }

    /// The persistent request of a collective operation or of blocks.
    pub(crate) fn collective(token: Request<B>, what: What, comm: Comm) -> Self {
        Persistent { token, what, comm, _invariant: PhantomData }
    }

    /// Gives the messages of a send a priority of their own. See [`SendOptions::priority`]. Messages of a collective operation always have
    /// the priority of its communicator.
    pub fn with_priority(mut self, priority: u8) -> Self {
        if let What::Message { options, .. } = &mut self.what {
            *options = options.priority(priority);
        }
        self
    }

    /// Whether the operation is a receive, and so writes its buffer.
    fn receives(&self) -> bool {
        matches!(self.what, What::Message { operation: Operation::Receive { .. }, .. })
    }
}

impl<B: Pieces> Waitable for Persistent<B> {
    fn request_id(&self) -> RequestId {
        self.id()
    }

    fn is_persistent(&self) -> bool {
        true
    }
}

macro_rules! send_init {
    ($($(#[$doc:meta])* $name:ident $mode:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// A wrong argument or no free row. The error gives the buffer back.
        pub fn $name<B: IntoBuffer<Buffer: Send + 'static>>(
            &mut self,
            buffer: B,
            to: Rank,
            tag: Tag,
            comm: Comm,
        ) -> Result<Persistent<B::Buffer>, Rejected<B::Buffer>> {
            self.init(buffer.into_buffer(), Operation::Send { to, tag }, Mode::$mode, comm, false)
        }
    )*};
}

impl Engine {
    send_init! {
        /// A persistent send in standard mode (`MPI_Send_init`).
        send_init Standard;
        /// A persistent send in synchronous mode (`MPI_Ssend_init`). See [`Engine::issend`].
        ssend_init Synchronous;
        /// A persistent send in buffered mode (`MPI_Bsend_init`). See [`Engine::ibsend`].
        bsend_init Buffered;
        /// A persistent send in ready mode (`MPI_Rsend_init`). See [`Engine::irsend`].
        rsend_init Ready;
    }

    /// A persistent receive (`MPI_Recv_init`).
    ///
    /// # Errors
    /// A wrong argument or no free row. The error gives the buffer back.
    pub fn recv_init<B: IntoBuffer<Buffer: LeasedBytes + Send + 'static>>(
        &mut self,
        buffer: B,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Persistent<B::Buffer>, Rejected<B::Buffer>> {
        self.init(
            buffer.into_buffer(),
            Operation::Receive { source: source.into(), tag: tag.into() },
            Mode::Standard,
            comm,
            false,
        )
    }

    /// `scoped` says that the buffer is borrowed. See [`crate::api::loans`].
    pub(crate) fn init<B: Pieces>(
        &mut self,
        buffer: B,
        operation: Operation,
        mode: Mode,
        comm: Comm,
        scoped: bool,
    ) -> Result<Persistent<B>, Rejected<B>> {
        let receives = matches!(operation, Operation::Receive { .. });
        let checked = match receives && buffer.has_overlap() {
            false => self.check_persistent(operation, comm, buffer.total()),
            true => Err(PostError::Overlap),
        };
        let row = match checked.and_then(|_| self.inactive_row()) {
            Ok(row) => row,
            Err(error) => return Err(Rejected { error: self.raise_post(comm, "init", error), buffer }),
        };
        self.register_persistent(row, &buffer, operation, comm);
        let token = self.hold(row, buffer, scoped);
        let what = What::Message { operation, mode, options: SendOptions::new() };
        Ok(Persistent { token, what, comm, _invariant: PhantomData })
    }

    /// Checks the arguments of a start, and returns its envelope. `None` if the peer is `MPI_PROC_NULL`.
    fn check_persistent(
        &mut self,
        operation: Operation,
        comm: Comm,
        length: usize,
    ) -> Result<Option<Envelope>, PostError> {
        self.closed.check_post()?;
        check_operation(self.store.all().communicators, comm.0, operation, length)
    }

    /// Takes a row for a request that is not active.
    fn inactive_row(&mut self) -> Result<Row, PostError> {
        self.need_rows(1)?;
        let all = self.store.all();
        let Status { source, tag, .. } = Status::NULL;
        let car = Car { state: CarState::Done, source: source.0, tag: tag.0, ..Car::default() };
        // SAFETY: there are no bytes.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let row = unsafe { take_rows(all.progress, all.cars, all.requests, &NoBytes, car) };
        let Some(row) = row else { return Err(self.full()) };
        all.progress.active -= 1;
        all.progress.work.posted -= 1;
        let request = &mut all.requests[row as usize];
        (request.counter, request.state) = (0, RequestState::Inactive);
        Ok(row)
    }

    /// Starts a persistent request (`MPI_Start`), for the first time or after it was done.
    ///
    /// # Errors
    /// If the request is active or stale, or the operation cannot be posted. The request stays as it was.
    pub fn start<B: Pieces>(&mut self, persistent: &Persistent<B>) -> Result<(), PostError> {
        self.start_by(persistent, true)
    }

    /// Starts a persistent request. Without `inline`, a send goes through the tables even if it could leave at once.
    pub(crate) fn start_by<B: Pieces>(&mut self, persistent: &Persistent<B>, inline: bool) -> Result<(), PostError> {
        self.try_start(persistent, inline).map_err(|error| self.raise_post(persistent.comm, "start", error))
    }

    fn try_start<B: Pieces>(&mut self, persistent: &Persistent<B>, inline: bool) -> Result<(), PostError> {
        let comm = persistent.comm;
        match persistent.what {
            What::Message { operation, mode, options } => {
                let (row, lent) = (persistent.id().row, self.lent(persistent)?);
                self.start_message((row, comm), &lent, (operation, mode, options), inline)
            }
            What::Graph(number) => {
                live(self.store.all().communicators, comm.0)?;
                let row = self.idle_row(persistent)?;
                // SAFETY: the token's type is the one its buffer was put with.
                #[expect(unsafe_code, reason = "type-erased ownership")]
                let start = |engine: &mut Engine| unsafe { engine.start_graph(row, number, check_buffer::<B>) };
                self.start_noted((row, comm), Engine::name_of_graph, number, start)
            }
            What::Boards(number) => {
                let row = self.idle_row(persistent)?;
                // SAFETY: the token's type is the one its buffer was put with.
                #[expect(unsafe_code, reason = "type-erased ownership")]
                let start = |engine: &mut Engine| unsafe { engine.start_kept(comm, row, number, check_buffer::<B>) };
                self.start_noted((row, comm), Engine::name_of_kept, number, start)
            }
        }
    }

    /// Starts a persistent send or receive. Its row is not active.
    fn start_message(
        &mut self,
        (row, comm): (Row, Comm),
        lent: &Lent,
        (operation, mode, options): (Operation, Mode, SendOptions),
        inline: bool,
    ) -> Result<(), PostError> {
        let length = lent.total();
        let Some(envelope) = self.check_persistent(operation, comm, length)? else {
            self.end_at_once(row, Rank::NULL, Tag::ANY, 0);
            return Ok(());
        };
        let sends = match operation {
            Operation::Receive { .. } => None,
            Operation::Send { to, tag } => match mode {
                Mode::Buffered => {
                    self.send_buffered(lent, to, tag, comm)?;
                    self.end_at_once(row, to, tag, length);
                    return Ok(());
                }
                Mode::Synchronous => Some(car_flags::SYNCHRONOUS),
                Mode::Ready if self.asks_when_ready(to, comm, length) => Some(car_flags::READY),
                _ if inline && self.send_at_once(lent, to, tag, comm) => {
                    self.end_at_once(row, to, tag, length);
                    return Ok(());
                }
                _ => Some(0),
            },
        };
        self.start_rows(row, lent, sends.map(|flags| (flags, options)), &envelope)
    }

    /// Queues a persistent send, with its flags and options, or a receive.
    fn start_rows(
        &mut self,
        row: Row,
        lent: &Lent,
        send: Option<(u16, SendOptions)>,
        envelope: &Envelope,
    ) -> Result<(), PostError> {
        let vc_row = if envelope.proc == NIL { NIL } else { self.reach(envelope.proc)? };
        if lent.pieces() != 1 {
            self.need_rows(rows_of(lent))?;
        }
        let all = self.store.all();
        let car = match send {
            None => receive_car(all.progress, envelope, vc_row),
            Some((flags, options)) => {
                let peers = (&*all.communicators, &*all.vcs, &*all.procs);
                new_send(peers, envelope, vc_row, flags, options.own_priority())?
            }
        };
        let scoped = all.requests[row as usize].scoped;
        // SAFETY: the row holds the buffer, and nobody gets at it while the request is active.
        #[expect(unsafe_code, reason = "bytes that are addresses")]
        let active = unsafe { activate(all.progress, all.cars, all.requests, lent, car, row) };
        if !active {
            return Err(self.full());
        }
        // The scope that lent the buffer ends the request, however often it is started.
        all.requests[row as usize].scoped = scoped;
        match send {
            None => queue_receive(all.progress, all.cars, all.vcs, row),
            Some(_) => queue_send(all.progress, all.cars, all.large, all.vcs, row, envelope.length),
        }
        Ok(())
    }

    /// Starts all of these, in order (`MPI_Startall`).
    ///
    /// # Errors
    /// As [`Engine::start`], of the first that cannot be started. The requests before it are active; it and the rest are not.
    pub fn start_all<B: Pieces>(&mut self, persistents: &[Persistent<B>]) -> Result<(), PostError> {
        persistents.iter().try_for_each(|persistent| self.start(persistent))
    }

    /// Ends the operation of a row at once, before it is queued.
    fn end_at_once(&mut self, row: Row, source: Rank, tag: Tag, length: usize) {
        let tables = self.store.all();
        let (source, tag, state, done) = (source.0, tag.0, CarState::Done, length as u64);
        tables.cars[row as usize] = Car { state, source, tag, done, request: row, ..Car::default() };
        tables.requests[row as usize].state = RequestState::Done;
        tables.progress.work.completed += 1;
    }

    /// The bytes of a persistent request's buffer, if it may be started.
    fn lent<B: Pieces>(&mut self, persistent: &Persistent<B>) -> Result<Lent, PostError> {
        let row = self.idle_row(persistent)?;
        let tables = self.store.all();
        // SAFETY: the token's type is the one its buffer was put with; the row holds the buffer while it is active.
        #[expect(unsafe_code, reason = "type-erased ownership")]
        unsafe {
            let buffer = tables.held[row as usize].0.get::<B>().ok_or(PostError::Stale)?;
            // The application may have replaced the buffer that was checked.
            if persistent.receives() && buffer.has_overlap() {
                return Err(PostError::Overlap);
            }
            Ok(Lent::of(buffer))
        }
    }

    /// The row of a persistent request that is not active.
    fn idle_row<B>(&mut self, persistent: &Persistent<B>) -> Result<Row, PostError> {
        self.closed.check_post()?;
        let id = persistent.id();
        let request = self.store.all().requests.get(id.row as usize);
        match request {
            Some(request) if request.generation == id.generation && persistent.token.belongs_to(self.home) => {
                match request.state {
                    RequestState::Inactive | RequestState::Done => Ok(id.row),
                    RequestState::Active => Err(PostError::Active),
                    _ => Err(PostError::Stale),
                }
            }
            _ => Err(PostError::Stale),
        }
    }
}
