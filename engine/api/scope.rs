//! Scopes: lending borrowed buffers to operations that outlive the call which posts them.

mod forwarded;
mod persistent;

use crate::api::probe::message::{Message, RejectedMessage};
use crate::api::receipt::Receipted;
use crate::api::request::{Failed, Rejected, Request};
use crate::api::send_options::SendOptions;
use crate::run::engine::Engine;
use std::marker::PhantomData;
use std::ops::Deref;
use tickwire_components::{Comm, IntoBuffer, LeasedBytes, Pieces, Rank, Source, Status, Tag, TagFilter};

/// An engine that borrows buffers: the argument of the closure of `Engine::scope`.
///
/// It forwards the calls that are safe on a borrowed engine, but does not hand out the engine itself: the closure could exchange the engine
/// for another one, and the original would leave the scope together with the buffers.
///
/// `L` says which buffers it takes: [`Borrowed`] ones, or only [`Owned`] ones, as in [`Submitter::call`](crate::Submitter::call).
pub struct Scope<'scope, 'env: 'scope, L = Borrowed> {
    pub(crate) engine: &'scope mut Engine,
    /// Whether leaving the scope ends the operations that it has posted. `false` in a call of another thread, where no borrowed buffer can
    /// be posted.
    pub(crate) lends: bool,
    /// Invariant in the buffers' lifetime. Not `Send`, since it may hold cells of this thread.
    _env: PhantomData<(&'scope mut &'env (), *mut (), L)>,
}

/// The buffers of an [`Engine::scope`](crate::Engine::scope): also borrowed ones, and ones that must stay on this thread. All of them come
/// back before the scope ends.
#[derive(Debug)]
pub enum Borrowed {}

/// The buffers of a call of another thread: those that may outlive the call. The engine may move to another thread meanwhile, so they must
/// be `Send`.
#[derive(Debug)]
pub enum Owned {}

/// Which buffers a [`Scope`] takes. Implemented for [`Borrowed`] and [`Owned`], and for no other type.
#[diagnostic::on_unimplemented(
    message = "the buffer `{B}` cannot be used in a call of another thread",
    note = "such a buffer must be `Send` and owned, since the operation may outlive the call"
)]
pub trait Takes<B>: sealed::Sealed {}

impl<B> Takes<B> for Borrowed {}
impl<B: Send + 'static> Takes<B> for Owned {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Borrowed {}
    impl Sealed for super::Owned {}
}

impl Engine {
    /// Lends buffers: inside the scope, [`Scope::isend`] and [`Scope::irecv`] take borrowed buffers: `&[T]`, `&mut [T]`,
    /// [`Cells`](crate::Cells).
    ///
    /// Leaving the scope, even by a panic, cancels its receives that have no message yet, and drives its other operations to completion or
    /// to the failure of their peer. A panic that comes out of the engine itself poisons the engine, and ends these operations at once.
    /// After that, buffers that were not taken back are dropped, and tokens that are left are stale.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, Rank, Tag};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    /// # let (me, world) = (engine.rank(), engine.comm_world());
    /// let mut buffer = [0; 5];
    /// engine.scope(|scope| {
    ///     let incoming = scope.irecv(&mut buffer[..], me, Tag(1), world).unwrap();
    ///     scope.send(b"hello", me, Tag(1), world).unwrap();
    ///     scope.wait(&incoming).unwrap();
    /// });
    /// assert_eq!(&buffer, b"hello");
    /// ```
    ///
    /// A buffer whose lifetime ends before the scope does cannot be lent:
    ///
    /// ```compile_fail,E0597
    /// # use tickwire::{Bootstrap, Engine, Tag};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    /// # let (me, world) = (engine.rank(), engine.comm_world());
    /// engine.scope(|scope| {
    ///     let mut buffer = [0; 5];
    ///     let _ = scope.irecv(&mut buffer[..], me, Tag(1), world);
    /// });
    /// ```
    ///
    /// A buffer cannot be used while it is lent:
    ///
    /// ```compile_fail,E0506
    /// # use tickwire::{Bootstrap, Engine, Tag};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    /// # let (me, world) = (engine.rank(), engine.comm_world());
    /// let mut buffer = [0; 5];
    /// engine.scope(|scope| {
    ///     let incoming = scope.irecv(&mut buffer[..], me, Tag(1), world).unwrap();
    ///     buffer[0] = 1;
    ///     let _ = scope.wait(&incoming);
    /// });
    /// ```
    ///
    /// The token of a borrowed buffer does not outlive the buffer:
    ///
    /// ```compile_fail,E0505
    /// # use tickwire::{Bootstrap, Engine, Tag};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    /// # let (me, world) = (engine.rank(), engine.comm_world());
    /// let mut buffer = vec![0u8; 5];
    /// let token = engine.scope(|scope| scope.irecv(&mut buffer[..], me, Tag(1), world).unwrap());
    /// drop(buffer);
    /// let _ = engine.take(token);
    /// ```
    ///
    /// Outside of a scope, calls take only owned buffers:
    ///
    /// ```compile_fail,E0597
    /// # use tickwire::{Bootstrap, Engine, Tag};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    /// # let (me, world) = (engine.rank(), engine.comm_world());
    /// let buffer = vec![0u8; 5];
    /// let _ = engine.isend(&buffer[..], me, Tag(1), world);
    /// ```
    pub fn scope<'env, T>(&mut self, body: impl for<'scope> FnOnce(&mut Scope<'scope, 'env>) -> T) -> T {
        struct Leave<'a>(&'a mut Engine);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.leave_scope();
            }
        }
        let leave = Leave(self);
        let mut scope = Scope { engine: &mut *leave.0, lends: true, _env: PhantomData };
        body(&mut scope)
    }

    /// A scope that takes only owned buffers, for code that must not exchange the engine for another one.
    pub(crate) fn borrowed(&mut self) -> Scope<'_, 'static, Owned> {
        Scope { engine: self, lends: false, _env: PhantomData }
    }
}

impl<'env, L> Scope<'_, 'env, L> {
    /// As [`Engine::isend`], with a borrowed buffer.
    ///
    /// # Errors
    /// As [`Engine::isend`].
    #[inline(always)]
    pub fn isend<B: IntoBuffer<Buffer: 'env>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>>
    where
        L: Takes<B::Buffer>,
    {
        self.engine.post_send(buffer.into_buffer(), to, tag, comm, self.lends)
    }

    /// As [`Engine::issend`], with a borrowed buffer.
    ///
    /// # Errors
    /// As [`Engine::isend`].
    pub fn issend<B: IntoBuffer<Buffer: 'env>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>>
    where
        L: Takes<B::Buffer>,
    {
        self.engine.post_synchronous(buffer.into_buffer(), to, tag, comm, self.lends)
    }

    /// As [`Engine::isend_with`], with a borrowed buffer.
    ///
    /// # Errors
    /// As [`Engine::isend`].
    pub fn isend_with<B: IntoBuffer<Buffer: 'env>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
        options: SendOptions,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>>
    where
        L: Takes<B::Buffer>,
    {
        self.engine.post_with(buffer.into_buffer(), to, tag, comm, self.lends, options)
    }

    /// As [`Engine::irsend`], with a borrowed buffer.
    ///
    /// # Errors
    /// As [`Engine::isend`].
    pub fn irsend<B: IntoBuffer<Buffer: 'env>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>>
    where
        L: Takes<B::Buffer>,
    {
        self.engine.post_ready(buffer.into_buffer(), to, tag, comm, self.lends)
    }

    /// As [`Engine::imrecv`], with a borrowed buffer.
    ///
    /// # Errors
    /// As [`Engine::imrecv`].
    pub fn imrecv<B: IntoBuffer<Buffer: LeasedBytes + 'env>>(
        &mut self,
        message: Message,
        buffer: B,
    ) -> Result<Request<B::Buffer>, RejectedMessage<B::Buffer>>
    where
        L: Takes<B::Buffer>,
    {
        self.engine.receive_message(message, buffer.into_buffer(), self.lends)
    }

    /// As [`Engine::irecv`], with a borrowed buffer.
    ///
    /// # Errors
    /// As [`Engine::irecv`].
    #[inline(always)]
    pub fn irecv<B: IntoBuffer<Buffer: LeasedBytes + 'env>>(
        &mut self,
        buffer: B,
        source: impl Into<Source>,
        tag: impl Into<TagFilter>,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>>
    where
        L: Takes<B::Buffer>,
    {
        self.engine.post_receive(buffer.into_buffer(), source.into(), tag.into(), comm, self.lends)
    }

    /// As [`Engine::ibsend`], with a borrowed buffer.
    ///
    /// # Errors
    /// As [`Engine::ibsend`].
    pub fn ibsend<B: IntoBuffer<Buffer: 'env>>(
        &mut self,
        buffer: B,
        to: Rank,
        tag: Tag,
        comm: Comm,
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>>
    where
        L: Takes<B::Buffer>,
    {
        self.engine.post_buffered(buffer.into_buffer(), to, tag, comm)
    }

    /// See [`Engine::take`].
    ///
    /// # Errors
    /// As [`Engine::take`].
    #[inline(always)]
    pub fn take<B: Pieces>(&mut self, request: Request<B>) -> Result<(B, Status), Failed<B>> {
        self.engine.take(request)
    }

    /// See [`Engine::wait_take`].
    ///
    /// # Errors
    /// As [`Engine::wait_take`].
    pub fn wait_take<B: Pieces>(&mut self, request: Request<B>) -> Result<(B, Status), Failed<B>> {
        // A panic inside the engine ends all loans; a panic in the scope's own closure does not.
        self.engine.lending(|engine| engine.wait_take(request))
    }

    /// As [`Engine::receipted`], for operations with borrowed buffers.
    pub fn receipted(&mut self) -> Receipted<'_, 'env> {
        Receipted::new(self.engine, self.lends)
    }
}

impl<L> Scope<'_, '_, L> {
    /// For the engine's own code, which does not exchange the engine.
    pub(crate) fn engine_mut(&mut self) -> &mut Engine {
        self.engine
    }
}

impl<L> Deref for Scope<'_, '_, L> {
    type Target = Engine;
    #[inline]
    fn deref(&self) -> &Engine {
        self.engine
    }
}
