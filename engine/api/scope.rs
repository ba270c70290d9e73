//! Scopes: lending plain slices to operations that outlive the call.

use crate::api::persistent::Persistent;
use crate::api::probe::message::{Message, RejectedMessage};
use crate::api::receipt::Receipted;
use crate::api::request::{Failed, OperationError, Rejected, Request, Test, Tested, Waitable};
use crate::api::send_options::SendOptions;
use crate::run::engine::Engine;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;
use tickwire_components::{
    Basic, Comm, IntoBuffer, LeasedBytes, Pieces, PostError, Rank, Receipt, RequestError, Source, Status, Tag,
    TagFilter, Work,
};

/// An engine that borrows buffers: what `Engine::scope` gives to its closure.
///
/// It forwards the calls that are safe on a borrowed engine. It does not hand out the engine itself: an engine that
/// could be exchanged for another one would leave the scope with the buffers.
pub struct Scope<'scope, 'env: 'scope> {
    engine: &'scope mut Engine,
    /// Invariant in the buffers' lifetime; not `Send`, since it may hold cells of this thread.
    _env: PhantomData<(&'scope mut &'env (), *mut ())>,
}

impl Engine {
    /// Lends buffers: inside, [`Scope::isend`] and [`Scope::irecv`] take what is borrowed: `&[T]`, `&mut [T]`,
    /// [`Cells`](crate::Cells).
    ///
    /// Leaving it, also by panic, cancels its receives that have no message yet and drives all other operations of the
    /// scope to completion or to the failure of their peer; a panic that has come out of the engine, which is poisoned then,
    /// ends them at once. Buffers that were not taken back are dropped then, and tokens
    /// that are left are stale.
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
    /// A buffer that ends before the scope cannot be lent:
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
    /// nor be used while it is lent:
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
    /// and its token does not outlive it:
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
    /// Outside of a scope only owned buffers are taken:
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
        let mut scope = Scope { engine: &mut *leave.0, _env: PhantomData };
        body(&mut scope)
    }
}

impl<'env> Scope<'_, 'env> {
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
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.engine.post_send(buffer.into_buffer(), to, tag, comm, true)
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
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.engine.post_synchronous(buffer.into_buffer(), to, tag, comm, true)
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
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.engine.post_with(buffer.into_buffer(), to, tag, comm, true, options)
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
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.engine.post_ready(buffer.into_buffer(), to, tag, comm, true)
    }

    /// As [`Engine::imrecv`], with a borrowed buffer.
    ///
    /// # Errors
    /// As [`Engine::imrecv`].
    pub fn imrecv<B: IntoBuffer<Buffer: LeasedBytes + 'env>>(
        &mut self,
        message: Message,
        buffer: B,
    ) -> Result<Request<B::Buffer>, RejectedMessage<B::Buffer>> {
        self.engine.receive_message(message, buffer.into_buffer(), true)
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
    ) -> Result<Request<B::Buffer>, Rejected<B::Buffer>> {
        self.engine.post_receive(buffer.into_buffer(), source.into(), tag.into(), comm, true)
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
        // A panic that comes out of the engine ends all loans; one of the scope's own body does not.
        self.engine.lending(|engine| engine.wait_take(request))
    }

    /// As [`Engine::receipted`], for operations with borrowed buffers.
    pub fn receipted(&mut self) -> Receipted<'_, 'env> {
        Receipted::new(self.engine, true)
    }
}

impl Deref for Scope<'_, '_> {
    type Target = Engine;
    #[inline]
    fn deref(&self) -> &Engine {
        self.engine
    }
}

macro_rules! forward {
    ($($(#[$doc:meta])* fn $name:ident $(<$($generic:ident: $bound:path),*>)? (&mut self $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        impl Scope<'_, '_> {$(
            $(#[$doc])*
            #[inline]
            #[allow(clippy::missing_errors_doc, reason = "the forwarded call says it")]
            pub fn $name $(<$($generic: $bound),*>)? (&mut self $(, $arg: $type)*) -> $result {
                // A panic that comes out of the engine ends all loans; one of the scope's own body does not.
                self.engine.lending(|engine| engine.$name($($arg),*))
            }
        )*}
    };
}

forward! {
    /// See [`Engine::tick`].
    fn tick(&mut self) -> Work;
    /// See [`Engine::tick_at`].
    fn tick_at(&mut self, now_ns: u64) -> Work;
    /// See [`Engine::test`].
    fn test<W: Waitable>(&mut self, request: &W) -> Result<Test, RequestError>;
    /// See [`Engine::wait`].
    fn wait<W: Waitable>(&mut self, request: &W) -> Result<Status, RequestError>;
    /// See [`Engine::wait_for`].
    fn wait_for<W: Waitable>(&mut self, request: &W, time: Duration) -> Result<Status, RequestError>;
    /// See [`Engine::wait_all`].
    fn wait_all<W: Waitable>(&mut self, requests: &[W]) -> Result<(), RequestError>;
    /// See [`Engine::wait_any`].
    fn wait_any<W: Waitable>(&mut self, requests: &[W]) -> Result<Option<(usize, Status)>, RequestError>;
    /// See [`Engine::wait_some`].
    fn wait_some<W: Waitable>(&mut self, requests: &[W]) -> Result<Vec<(usize, Status)>, RequestError>;
    /// See [`Engine::send`].
    fn send<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError>;
    /// See [`Engine::ssend`].
    fn ssend<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError>;
    /// See [`Engine::rsend`].
    fn rsend<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError>;
    /// See [`Engine::bsend`].
    fn bsend<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), PostError>;
    /// See [`Engine::iprobe`].
    fn iprobe<S: IntoSource, T: IntoTag>(&mut self, source: S, tag: T, comm: Comm) -> Result<Option<Status>, PostError>;
    /// See [`Engine::probe`].
    fn probe<S: IntoSource, T: IntoTag>(&mut self, source: S, tag: T, comm: Comm) -> Result<Status, OperationError>;
    /// See [`Engine::improbe`].
    fn improbe<S: IntoSource, T: IntoTag>(&mut self, source: S, tag: T, comm: Comm) -> Result<Option<Message>, PostError>;
    /// See [`Engine::mprobe`].
    fn mprobe<S: IntoSource, T: IntoTag>(&mut self, source: S, tag: T, comm: Comm) -> Result<Message, OperationError>;
    /// See [`Engine::mrecv`].
    fn mrecv<B: LeasedBytes>(&mut self, message: Message, buffer: B) -> Result<Status, OperationError>;
    /// See [`Engine::test_any`].
    fn test_any<W: Waitable>(&mut self, requests: &[W]) -> Result<Tested<(usize, Status)>, RequestError>;
    /// See [`Engine::test_some`].
    fn test_some<W: Waitable>(&mut self, requests: &[W]) -> Result<Tested<Vec<(usize, Status)>>, RequestError>;
    /// See [`Engine::test_all`].
    fn test_all<W: Waitable>(&mut self, requests: &[W]) -> Result<bool, RequestError>;
    /// See [`Engine::start`].
    fn start<B: Pieces>(&mut self, persistent: &Persistent<B>) -> Result<(), PostError>;
    /// See [`Engine::start_all`].
    fn start_all<B: Pieces>(&mut self, persistents: &[Persistent<B>]) -> Result<(), PostError>;
    /// See [`Engine::recv`].
    fn recv<B: LeasedBytes, S: IntoSource, T: IntoTag>(&mut self, buffer: B, source: S, tag: T, comm: Comm) -> Result<Status, OperationError>;
    /// See [`Engine::recv_vec`].
    fn recv_vec<T: Basic, S: IntoSource, G: IntoTag>(&mut self, source: S, tag: G, comm: Comm) -> Result<(Vec<T>, Status), OperationError>;
    /// See [`Engine::receipt`].
    fn receipt<W: Waitable>(&mut self, request: &W) -> Option<Receipt>;
    /// See [`Engine::cancel`].
    fn cancel<W: Waitable>(&mut self, request: &W) -> Result<bool, RequestError>;
}

/// Whatever names a source.
pub trait IntoSource: Into<Source> {}
impl<T: Into<Source>> IntoSource for T {}
/// Whatever names tags.
pub trait IntoTag: Into<TagFilter> {}
impl<T: Into<TagFilter>> IntoTag for T {}
