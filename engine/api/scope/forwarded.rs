//! Calls that a scope forwards to its engine unchanged.

use super::Scope;
use crate::api::communicators::{Agreed, Agreeing, Agreement};
use crate::api::notify::Completion;
use crate::api::persistent::Persistent;
use crate::api::probe::message::Message;
use crate::api::request::{OperationError, Test, Tested, Waitable};
use std::time::Duration;
use tickwire_components::{
    Basic, Comm, CommError, ErrorHandler, Group, LeasedBytes, Pieces, PostError, ProcId, Rank, Receipt, RequestError,
    Source, Status, Tag, TagFilter, Work,
};

macro_rules! forward {
    ($($(#[$doc:meta])* fn $name:ident $(<$($generic:ident: $bound:path),*>)? (&mut self $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        impl<L> Scope<'_, '_, L> {$(
            $(#[$doc])*
            #[inline]
            #[allow(clippy::missing_errors_doc, clippy::too_many_arguments, reason = "those of the forwarded call")]
            pub fn $name $(<$($generic: $bound),*>)? (&mut self $(, $arg: $type)*) -> $result {
                // A panic inside the engine ends all loans; a panic in the scope's own closure does not.
                self.engine.lending(|engine| engine.$name($($arg),*))
            }
        )*}
    };
}

forward! {
    /// See [`Engine::tick`](crate::Engine::tick).
    fn tick(&mut self) -> Work;
    /// See [`Engine::tick_at`](crate::Engine::tick_at).
    fn tick_at(&mut self, now_ns: u64) -> Work;
    /// See [`Engine::test`](crate::Engine::test).
    fn test<W: Waitable>(&mut self, request: &W) -> Result<Test, RequestError>;
    /// See [`Engine::wait`](crate::Engine::wait).
    fn wait<W: Waitable>(&mut self, request: &W) -> Result<Status, RequestError>;
    /// See [`Engine::wait_for`](crate::Engine::wait_for).
    fn wait_for<W: Waitable>(&mut self, request: &W, time: Duration) -> Result<Status, RequestError>;
    /// See [`Engine::wait_all`](crate::Engine::wait_all).
    fn wait_all<W: Waitable>(&mut self, requests: &[W]) -> Result<(), RequestError>;
    /// See [`Engine::wait_any`](crate::Engine::wait_any).
    fn wait_any<W: Waitable>(&mut self, requests: &[W]) -> Result<Option<(usize, Status)>, RequestError>;
    /// See [`Engine::wait_some`](crate::Engine::wait_some).
    fn wait_some<W: Waitable>(&mut self, requests: &[W]) -> Result<Vec<(usize, Status)>, RequestError>;
    /// See [`Engine::send`](crate::Engine::send).
    fn send<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError>;
    /// See [`Engine::ssend`](crate::Engine::ssend).
    fn ssend<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError>;
    /// See [`Engine::rsend`](crate::Engine::rsend).
    fn rsend<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), OperationError>;
    /// See [`Engine::bsend`](crate::Engine::bsend).
    fn bsend<B: Pieces>(&mut self, buffer: B, to: Rank, tag: Tag, comm: Comm) -> Result<(), PostError>;
    /// See [`Engine::iprobe`](crate::Engine::iprobe).
    fn iprobe(&mut self, source: impl Into<Source>, tag: impl Into<TagFilter>, comm: Comm) -> Result<Option<Status>, PostError>;
    /// See [`Engine::probe`](crate::Engine::probe).
    fn probe(&mut self, source: impl Into<Source>, tag: impl Into<TagFilter>, comm: Comm) -> Result<Status, OperationError>;
    /// See [`Engine::improbe`](crate::Engine::improbe).
    fn improbe(&mut self, source: impl Into<Source>, tag: impl Into<TagFilter>, comm: Comm) -> Result<Option<Message>, PostError>;
    /// See [`Engine::mprobe`](crate::Engine::mprobe).
    fn mprobe(&mut self, source: impl Into<Source>, tag: impl Into<TagFilter>, comm: Comm) -> Result<Message, OperationError>;
    /// See [`Engine::mrecv`](crate::Engine::mrecv).
    fn mrecv<B: LeasedBytes>(&mut self, message: Message, buffer: B) -> Result<Status, OperationError>;
    /// See [`Engine::test_any`](crate::Engine::test_any).
    fn test_any<W: Waitable>(&mut self, requests: &[W]) -> Result<Tested<(usize, Status)>, RequestError>;
    /// See [`Engine::test_some`](crate::Engine::test_some).
    fn test_some<W: Waitable>(&mut self, requests: &[W]) -> Result<Tested<Vec<(usize, Status)>>, RequestError>;
    /// See [`Engine::test_all`](crate::Engine::test_all).
    fn test_all<W: Waitable>(&mut self, requests: &[W]) -> Result<bool, RequestError>;
    /// See [`Engine::start`](crate::Engine::start).
    fn start<B: Pieces>(&mut self, persistent: &Persistent<B>) -> Result<(), PostError>;
    /// See [`Engine::start_all`](crate::Engine::start_all).
    fn start_all<B: Pieces>(&mut self, persistents: &[Persistent<B>]) -> Result<(), PostError>;
    /// See [`Engine::recv`](crate::Engine::recv).
    fn recv<B: LeasedBytes>(&mut self, buffer: B, source: impl Into<Source>, tag: impl Into<TagFilter>, comm: Comm) -> Result<Status, OperationError>;
    /// See [`Engine::recv_vec`](crate::Engine::recv_vec).
    fn recv_vec<T: Basic>(&mut self, source: impl Into<Source>, tag: impl Into<TagFilter>, comm: Comm) -> Result<(Vec<T>, Status), OperationError>;
    /// See [`Engine::receipt`](crate::Engine::receipt).
    fn receipt<W: Waitable>(&mut self, request: &W) -> Option<Receipt>;
    /// See [`Engine::cancel`](crate::Engine::cancel).
    fn cancel<W: Waitable>(&mut self, request: &W) -> Result<bool, RequestError>;
    /// See [`Engine::sendrecv`](crate::Engine::sendrecv).
    fn sendrecv<S: Pieces, R: LeasedBytes>(&mut self, buffer: S, to: Rank, send_tag: Tag, into: R, source: impl Into<Source>, receive_tag: impl Into<TagFilter>, comm: Comm) -> Result<Status, OperationError>;
    /// See [`Engine::sendrecv_replace`](crate::Engine::sendrecv_replace).
    fn sendrecv_replace<T: Basic>(&mut self, elements: &mut [T], to: Rank, send_tag: Tag, source: impl Into<Source>, receive_tag: impl Into<TagFilter>, comm: Comm) -> Result<Status, OperationError>;
    /// See [`Engine::on_complete`](crate::Engine::on_complete).
    fn on_complete<W: Waitable>(&mut self, request: &W, call: impl FnOnce(Result<Status, RequestError>) + Send + 'static) -> Result<(), RequestError>;
    /// See [`Engine::completion`](crate::Engine::completion).
    fn completion<W: Waitable>(&mut self, request: &W) -> Result<Completion, RequestError>;
    /// See [`Engine::attach_buffer`](crate::Engine::attach_buffer).
    fn attach_buffer(&mut self, bytes: usize) -> ();
    /// See [`Engine::detach_buffer`](crate::Engine::detach_buffer).
    fn detach_buffer(&mut self) -> Result<usize, RequestError>;
    /// See [`Engine::start_dup`](crate::Engine::start_dup).
    fn start_dup(&mut self, comm: Comm) -> Result<Agreement, CommError>;
    /// See [`Engine::start_split`](crate::Engine::start_split).
    fn start_split(&mut self, comm: Comm, color: Option<u32>, key: i32) -> Result<Agreement, CommError>;
    /// See [`Engine::start_create`](crate::Engine::start_create).
    fn start_create(&mut self, comm: Comm, group: &Group) -> Result<Agreement, CommError>;
    /// See [`Engine::start_create_group`](crate::Engine::start_create_group).
    fn start_create_group(&mut self, comm: Comm, group: &Group, tag: Tag) -> Result<Agreement, CommError>;
    /// See [`Engine::test_agreement`](crate::Engine::test_agreement).
    fn test_agreement(&mut self, agreement: &mut Agreement) -> Result<Agreed, CommError>;
    /// See [`Engine::wait_agreement`](crate::Engine::wait_agreement).
    fn wait_agreement(&mut self, agreement: &mut Agreement) -> Result<Option<Comm>, CommError>;
    /// See [`Engine::agreed`](crate::Engine::agreed).
    fn agreed(&mut self, agreement: Agreement) -> Result<Agreeing, CommError>;
    /// See [`Engine::comm_dup`](crate::Engine::comm_dup).
    fn comm_dup(&mut self, comm: Comm) -> Result<Comm, CommError>;
    /// See [`Engine::comm_split`](crate::Engine::comm_split).
    fn comm_split(&mut self, comm: Comm, color: Option<u32>, key: i32) -> Result<Option<Comm>, CommError>;
    /// See [`Engine::comm_create`](crate::Engine::comm_create).
    fn comm_create(&mut self, comm: Comm, group: &Group) -> Result<Option<Comm>, CommError>;
    /// See [`Engine::comm_create_group`](crate::Engine::comm_create_group).
    fn comm_create_group(&mut self, comm: Comm, group: &Group, tag: Tag) -> Result<Comm, CommError>;
    /// See [`Engine::comm_free`](crate::Engine::comm_free).
    fn comm_free(&mut self, comm: Comm) -> Result<(), CommError>;
    /// See [`Engine::comm_set_priority`](crate::Engine::comm_set_priority).
    fn comm_set_priority(&mut self, comm: Comm, priority: u8) -> Result<(), CommError>;
    /// See [`Engine::comm_set_no_wildcard`](crate::Engine::comm_set_no_wildcard).
    fn comm_set_no_wildcard(&mut self, comm: Comm, no_wildcard: bool) -> Result<(), CommError>;
    /// See [`Engine::comm_set_error_handler`](crate::Engine::comm_set_error_handler).
    fn comm_set_error_handler(&mut self, comm: Comm, handler: ErrorHandler) -> Result<(), CommError>;
    /// See [`Engine::acknowledge_failures`](crate::Engine::acknowledge_failures).
    fn acknowledge_failures(&mut self) -> Vec<(ProcId, String)>;
    /// See [`Engine::connect`](crate::Engine::connect).
    fn connect(&mut self, proc: ProcId) -> Result<(), PostError>;
}
