//! Calls: functions that other threads submit, and that run on the engine's thread.

use super::{Submitted, Submitter};
use crate::api::communicators::Agreement;
use crate::api::error::Error;
use crate::api::probe::message::Message;
use crate::api::request::Request;
use crate::api::scope::{Owned, Scope};
use crate::run::engine::Engine;
use crate::run::park::block_on;
use crate::run::promise::{Promise, promise};
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tickwire_components::submission::{Function, Task};
use tickwire_components::{
    Comm, CommError, Exclusive, Group, IntoBuffer, LeasedBytes, Panic, Pieces, PostError, Rank, RequestError, Source,
    Status, Tag, TagFilter,
};
use tickwire_systems::store::words_of;

/// A future of the return value of a call, made by [`Submitter::call`]. Dropping it does not withdraw the call.
///
/// It fails if the engine is closed before the call is made, or if the engine has no room for the call.
#[must_use = "what the call returns, or why it was not made, is in the future"]
pub struct Called<T>(Promise<Result<T, RequestError>>);

impl<T> Future for Called<T> {
    type Output = Result<T, RequestError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, RequestError>> {
        Pin::new(&mut self.0).poll(context).map(|told| told.unwrap_or(Err(RequestError::Stale)))
    }
}

impl<T> Called<T> {
    /// Blocks this thread until the call has returned. The engine's owner must tick meanwhile.
    ///
    /// # Errors
    /// The call was not made, or it has panicked.
    pub fn wait(self) -> Result<T, RequestError> {
        block_on(self)
    }
}

impl Engine {
    /// Makes the next call, if there is one. Returns the panic of the call, if it has panicked.
    #[cold]
    pub(super) fn run_call(&mut self) -> Option<Panic> {
        let call = self.store.all().inbound.pop_call()?;
        // Whatever the call leaves behind, the next call may run.
        let returned = catch_unwind(AssertUnwindSafe(|| call(Ok(self))));
        if !self.is_lost() {
            self.store.all().inbound.has_returned();
        }
        returned.err()
    }

    /// Cancels the receive that another thread awaits in this slot. `false` if there is none.
    #[cold]
    pub(super) fn cancel_slot(&mut self, slot: u32) -> bool {
        let all = self.store.all();
        let row = (0..all.requests.len() as u32).find(|&row| all.callbacks.slot(row) == Some(slot));
        row.is_some_and(|row| self.cancel_row(row))
    }
}

impl<L> Scope<'_, '_, L> {
    pub(super) fn cancel_submitted(&mut self, slot: u32) -> bool {
        self.engine_mut().cancel_slot(slot)
    }
}

impl<B: 'static> Submitted<B> {
    /// Cancels a receive, after everything that was submitted before. See [`Engine::cancel`]. A cancelled operation
    /// ends with [`RequestError::Cancelled`].
    ///
    /// The future returns whether the receive was cancelled: `false` if it is done, or has a message.
    pub fn cancel(&self) -> Called<bool> {
        let (shared, slot) = (self.shared.clone(), self.slot);
        let generation = self.generation;
        Submitter { shared: shared.clone() }.call(move |engine| {
            let lock = shared.slots.get(slot as usize).map(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner));
            // Another operation may use the slot by now.
            let current = lock.is_some_and(|state| state.generation == generation && state.answer.is_none());
            current && engine.cancel_submitted(slot)
        })
    }
}

impl Submitter {
    /// Has the engine's thread call a function, after everything that this thread has submitted before. The function can do all that the
    /// engine can: probe, make communicators, start persistent requests.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, Rank, Source, Tag};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// # let world = engine.comm_world();
    /// let submitter = engine.submitter();
    /// let worker = async move {
    ///     let receive = submitter.call(move |engine| engine.recv_init([0u8; 4], Source::Any, Tag(1), world)).await??;
    ///     let (receive, done) = submitter
    ///         .call(move |engine| {
    ///             engine.start(&receive)?;
    ///             let done = engine.completion(&receive)?;
    ///             Ok::<_, tickwire::Error>((receive, done))
    ///         })
    ///         .await??;
    ///     submitter.isend(b"ping".to_vec(), Rank(0), Tag(1), world)?.await?;
    ///     let status = done.await?;
    ///     Ok::<_, tickwire::Error>((status, submitter.call(move |engine| engine.free(receive)).await??))
    /// };
    /// let (status, bytes) = engine.drive_until(worker)?;
    /// assert_eq!((status.length, &bytes[..]), (4, &b"ping"[..]));
    /// # Ok::<(), tickwire::Error>(())
    /// ```
    ///
    /// The function runs within a tick, and the engine does nothing else meanwhile. Let the function start long operations, and await them
    /// outside of it. Other calls, and operations submitted after this call, wait for its end. A panic in the function poisons the engine,
    /// as a panic in a callback does.
    pub fn call<T: Send + 'static>(
        &self,
        function: impl FnOnce(&mut Scope<'_, 'static, Owned>) -> T + Send + 'static,
    ) -> Called<T> {
        self.try_call(function).unwrap_or_else(|(error, _)| {
            let (teller, promise) = promise(Err(RequestError::Finalized));
            teller.tell(Err(RequestError::NotPosted(error)));
            Called(promise)
        })
    }

    /// As [`Submitter::call`]. If the call cannot be submitted, the function comes back with the reason.
    fn try_call<T: Send + 'static, F>(&self, function: F) -> Result<Called<T>, (PostError, F)>
    where
        F: FnOnce(&mut Scope<'_, 'static, Owned>) -> T + Send + 'static,
    {
        let (teller, promise) = promise(Err(RequestError::Finalized));
        let room = |left: usize| left.checked_sub(1);
        if let Some(error) = self.refusal() {
            return Err((error, function));
        }
        if self.shared.calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_err() {
            let rows = self.shared.slots.len();
            return Err((PostError::Full { table: "submission", rows, limit: "submissions_max" }, function));
        }
        let run: Function = Box::new(move |engine: Result<&mut dyn Any, RequestError>| {
            let engine = match engine.map(|engine| engine.downcast_mut::<Engine>()) {
                Ok(Some(engine)) => engine,
                Ok(None) => return,
                Err(error) => return teller.tell(Err(error)),
            };
            match catch_unwind(AssertUnwindSafe(|| function(&mut engine.borrowed()))) {
                Ok(value) => teller.tell(Ok(value)),
                Err(panic) => {
                    teller.tell(Err(RequestError::Poisoned(words_of(&*panic))));
                    resume_unwind(panic);
                }
            }
        });
        self.push(Task::Call(Exclusive::new(run)));
        Ok(Called(promise))
    }

    /// As [`Submitter::call`], but if there is no room for the call, waits until there is: the function has something that must not be
    /// lost.
    async fn call_for_sure<T: Send + 'static>(
        &self,
        mut function: impl FnOnce(&mut Scope<'_, 'static, Owned>) -> T + Send + 'static,
    ) -> Result<T, RequestError> {
        loop {
            match self.try_call(function) {
                Ok(called) => return called.await,
                Err((PostError::Full { .. }, back)) => function = back,
                Err((error, _)) => return Err(RequestError::NotPosted(error)),
            }
            // The engine makes calls in its next tick.
            let mut was_asked = false;
            std::future::poll_fn(|context| match std::mem::replace(&mut was_asked, true) {
                true => Poll::Ready(()),
                false => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
        }
    }

    /// Posts an operation on the engine's thread, and returns its buffer and status. For operations that have no call of their own here,
    /// such as a receive of a probed message.
    ///
    /// # Errors
    /// Why the operation was not posted, or the error with which it ended.
    pub async fn post<B: Pieces + Send + 'static, E: Into<Error> + Send + 'static>(
        &self,
        post: impl FnOnce(&mut Scope<'_, 'static, Owned>) -> Result<Request<B>, E> + Send + 'static,
    ) -> Result<(B, Status), Error> {
        let posted = self.call(|engine| {
            let request = post(engine).map_err(Into::into)?;
            match engine.completion(&request) {
                Ok(done) => Ok::<_, Error>((request, done)),
                Err(error) => {
                    let _ = engine.cancel(&request);
                    Err(error.into())
                }
            }
        });
        let (request, done) = posted.await??;
        if let Err(error) = done.await {
            if matches!(error, RequestError::PeerFailedPending { .. }) {
                // The receive is still posted. Nobody would get the message that it takes.
                let _ = self.call_for_sure(move |engine| drop(engine.cancel(&request))).await;
            }
            return Err(error.into());
        }
        Ok(self.call_for_sure(move |engine| engine.take(request)).await??)
    }

    /// Sends and receives at the same time (`MPI_Sendrecv`). Returns both buffers, and the status of the received message.
    ///
    /// # Errors
    /// As [`Submitter::isend`] and [`Submitter::irecv`], or the error with which one of them ended. If the send fails, the receive is
    /// cancelled.
    #[expect(clippy::too_many_arguments, reason = "a send and a receive")]
    pub async fn sendrecv<S, R>(
        &self,
        buffer: S,
        to: Rank,
        send_tag: Tag,
        into: R,
        source: impl Into<Source>,
        receive_tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<(S::Buffer, R::Buffer, Status), Error>
    where
        S: IntoBuffer<Buffer: Send + 'static>,
        R: IntoBuffer<Buffer: LeasedBytes + Send + 'static>,
    {
        let incoming: Submitted<R::Buffer> = self.irecv(into, source, receive_tag, comm)?;
        let sent = match self.isend(buffer, to, send_tag, comm) {
            Ok(outgoing) => outgoing.await.map_err(Error::from),
            Err(rejected) => Err(rejected.into()),
        };
        let (buffer, _) = match sent {
            Ok(sent) => sent,
            Err(error) => {
                let _ = incoming.cancel().await;
                return Err(error);
            }
        };
        let (into, status) = incoming.await?;
        Ok((buffer, into, status))
    }

    /// Looks for a message (`MPI_Iprobe`). See [`Engine::iprobe`].
    pub fn iprobe(
        &self,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Called<Result<Option<Status>, PostError>> {
        let (source, tag) = (source.into(), tag.into());
        self.call(move |engine| engine.iprobe(source, tag, comm))
    }

    /// Looks for a message and removes it from matching (`MPI_Improbe`). See [`Engine::improbe`].
    pub fn improbe(
        &self,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Called<Result<Option<Message>, PostError>> {
        let (source, tag) = (source.into(), tag.into());
        self.call(move |engine| engine.improbe(source, tag, comm))
    }

    /// Duplicates a communicator (`MPI_Comm_dup`). See [`Engine::start_dup`].
    ///
    /// # Errors
    /// As [`Engine::comm_dup`].
    pub async fn comm_dup(&self, comm: Comm) -> Result<Comm, CommError> {
        let made = self.agree(move |engine| engine.start_dup(comm)).await?;
        made.ok_or(CommError::Stale)
    }

    /// Splits a communicator (`MPI_Comm_split`). See [`Engine::start_split`].
    ///
    /// # Errors
    /// As [`Engine::comm_split`].
    pub async fn comm_split(&self, comm: Comm, color: Option<u32>, key: i32) -> Result<Option<Comm>, CommError> {
        self.agree(move |engine| engine.start_split(comm, color, key)).await
    }

    /// Makes a communicator of a group (`MPI_Comm_create`). See [`Engine::start_create`].
    ///
    /// # Errors
    /// As [`Engine::comm_create`].
    pub async fn comm_create(&self, comm: Comm, group: &Group) -> Result<Option<Comm>, CommError> {
        let group = group.clone();
        self.agree(move |engine| engine.start_create(comm, &group)).await
    }

    async fn agree(
        &self,
        start: impl FnOnce(&mut Scope<'_, 'static, Owned>) -> Result<Agreement, CommError> + Send + 'static,
    ) -> Result<Option<Comm>, CommError> {
        let agreed = self.call(|engine| start(engine).and_then(|agreement| engine.agreed(agreement)));
        agreed.await.map_err(CommError::Wait)??.await
    }
}
