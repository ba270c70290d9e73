//! Requests: posting an operation returns one, and taking the operation's result consumes it.

use crate::run::home::Home;
use std::fmt;
use std::marker::PhantomData;
use thiserror::Error;
use tickwire_components::{CountError, NIL, Pieces, PostError, Rank, RequestError, RequestId, Row, Status, Tag};

/// The token of an operation in progress, typed by the buffer that the engine holds for it.
///
/// Take the buffer back with `Engine::take` once the operation is done. Dropping the token detaches the request: the engine finishes the
/// operation and frees the buffer.
#[must_use = "dropping a request detaches it; keep it to wait for it"]
pub struct Request<B> {
    home: &'static Home,
    row: Row,
    /// The tag of an operation that was complete when it was posted.
    tag: u32,
    /// The row's generation. For an operation that was complete when it was posted: its destination, and in the upper half how often the
    /// place of its receipt was used.
    // A whole word. With half a word and padding, it would be copied as one word just after it was written as half a word, and that copy
    // would wait until the write has left the store buffer.
    number: u64,
    ready: Option<B>,
    marker: PhantomData<B>,
}

impl<B> Request<B> {
    #[inline]
    pub(crate) fn new(home: &'static Home, row: Row, generation: u64) -> Self {
        Request { home, row, tag: 0, number: generation, ready: None, marker: PhantomData }
    }

    #[inline]
    pub(crate) fn ready(home: &'static Home, buffer: B, peer: u32, tag: u32) -> Self {
        Request { home, row: NIL, tag, number: peer.into(), ready: Some(buffer), marker: PhantomData }
    }

    /// The request of a send with a receipt that was complete when it was posted. The receipt's place is a row from
    /// [`ROWLESS`](tickwire_components::ROWLESS) on.
    pub(crate) fn noted(home: &'static Home, buffer: B, row: Row, number: u64, tag: u32) -> Self {
        Request { home, row, tag, number, ready: Some(buffer), marker: PhantomData }
    }

    /// The buffer and status of an operation that was complete when it was posted.
    #[inline]
    pub(crate) fn take_ready(&mut self, length: impl FnOnce(&B) -> usize) -> Option<(B, Status)> {
        let buffer = self.ready.take()?;
        let status = self.ready_status_of(&buffer, length);
        Some((buffer, status))
    }

    #[inline]
    pub(crate) fn status_ready(&self, length: impl FnOnce(&B) -> usize) -> Option<Status> {
        let buffer = self.ready.as_ref()?;
        Some(self.ready_status_of(buffer, length))
    }

    #[inline]
    fn ready_status_of(&self, buffer: &B, length: impl FnOnce(&B) -> usize) -> Status {
        match Rank(self.number as u32) {
            Rank::NULL => Status::NULL,
            source => Status { source, tag: Tag(self.tag), length: length(buffer) },
        }
    }

    #[inline]
    pub(crate) fn belongs_to(&self, home: &'static Home) -> bool {
        std::ptr::eq(self.home, home)
    }

    /// Makes sure that dropping the token detaches nothing.
    #[inline]
    pub(crate) fn disarm(&mut self) {
        self.row = NIL;
    }

    /// The same token again, of an operation that was not complete when it was posted. For calls that are seldom made: if the token itself
    /// were passed to such a call, the compiler would keep it in memory even where the call is not made.
    #[inline(always)]
    pub(crate) fn renew(mut self) -> Self {
        let renewed = Request::new(self.home, self.row, self.number);
        self.disarm();
        renewed
    }

    /// The untyped name of the request.
    #[inline]
    pub fn id(&self) -> RequestId {
        RequestId { row: self.row, generation: self.number }
    }
}

impl<B> Drop for Request<B> {
    #[inline]
    fn drop(&mut self) {
        if self.row != NIL {
            self.home.dropped.push((self.row, self.number));
        }
    }
}

impl<B> fmt::Debug for Request<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("row", &self.row).field("generation", &self.number).finish()
    }
}

/// Something that can be waited for: a request of any buffer type, or its id.
pub trait Waitable {
    /// The id of the request.
    fn request_id(&self) -> RequestId;

    /// The status of an operation that was complete when it was posted. Such an operation has no row that holds a status.
    fn ready_status(&self) -> Option<Status> {
        None
    }

    /// Whether there is no request at all (`MPI_REQUEST_NULL`).
    fn is_nothing(&self) -> bool {
        false
    }

    /// Whether the request is persistent: when it is done it stays, inactive, and can be started again.
    fn is_persistent(&self) -> bool {
        false
    }
}

impl<B: Pieces> Waitable for Request<B> {
    #[inline]
    fn request_id(&self) -> RequestId {
        self.id()
    }

    #[inline]
    fn ready_status(&self) -> Option<Status> {
        self.status_ready(Pieces::total)
    }
}

impl Waitable for RequestId {
    #[inline]
    fn request_id(&self) -> RequestId {
        *self
    }
}

impl<W: Waitable> Waitable for &W {
    #[inline]
    fn request_id(&self) -> RequestId {
        (**self).request_id()
    }

    #[inline]
    fn ready_status(&self) -> Option<Status> {
        (**self).ready_status()
    }

    #[inline]
    fn is_nothing(&self) -> bool {
        (**self).is_nothing()
    }

    #[inline]
    fn is_persistent(&self) -> bool {
        (**self).is_persistent()
    }
}

/// `None` is the null request: calls for several requests ignore it, and a call for it alone returns [`Status::NULL`].
impl<W: Waitable> Waitable for Option<W> {
    #[inline]
    fn request_id(&self) -> RequestId {
        self.as_ref().map_or(RequestId { row: NIL, generation: 0 }, Waitable::request_id)
    }

    #[inline]
    fn ready_status(&self) -> Option<Status> {
        self.as_ref().and_then(Waitable::ready_status)
    }

    #[inline]
    fn is_nothing(&self) -> bool {
        self.as_ref().is_none_or(Waitable::is_nothing)
    }

    #[inline]
    fn is_persistent(&self) -> bool {
        self.as_ref().is_some_and(Waitable::is_persistent)
    }
}

/// The result of a test of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// Not done. Tick and ask again.
    Pending,
    /// Done without an error.
    Done(Status),
}

impl Test {
    /// Whether it is done.
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self, Test::Done(_))
    }
}

/// The result of a test of several requests. Null requests (`None`) and inactive persistent requests do not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tested<T> {
    /// Some requests count, and none of these is done. Tick and ask again.
    Pending,
    /// The requests that are done.
    Done(T),
    /// No request counts: there is nothing to wait for.
    Nothing,
}

impl<T> Tested<T> {
    /// The requests that are done, if any.
    pub fn done(self) -> Option<T> {
        match self {
            Tested::Done(which) => Some(which),
            Tested::Pending | Tested::Nothing => None,
        }
    }
}

/// The token of an operation that was posted, or an error that gives the buffer back.
pub type Posted<B> = Result<Request<B>, Rejected<B>>;

/// An operation that could not be posted. The error gives its buffer back.
#[derive(Error)]
#[error("{error}")]
pub struct Rejected<B> {
    /// Why it was not posted.
    pub error: PostError,
    /// The buffer of the operation.
    pub buffer: B,
}

/// A request that ended in an error, with its buffer; or a request that could not be taken, with the request itself.
///
/// ```
/// # use tickwire::{Bootstrap, Engine, RequestError, Tag};
/// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
/// # let (me, world) = (engine.rank(), engine.comm_world());
/// let request = engine.irecv(vec![0u8; 5], me, Tag(1), world)?;
/// let early = engine.take(request).unwrap_err();
/// assert_eq!(early.error, RequestError::Pending);
/// let request = early.request.ok_or("it is given back")?;
/// engine.send(b"hello", me, Tag(1), world)?;
/// engine.wait(&request)?;
/// assert_eq!(engine.take(request)?.0, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Error)]
#[error("{error}")]
pub struct Failed<B, R = Request<B>> {
    /// Why it failed.
    pub error: RequestError,
    /// The buffer, if the request has ended.
    pub buffer: Option<B>,
    /// The request, if it has not ended or belongs to another engine. Dropping it detaches it: the engine finishes it and frees the buffer.
    pub request: Option<R>,
}

impl<B, R> Failed<B, R> {
    /// A request that has ended.
    pub(crate) fn ended(error: RequestError, buffer: Option<B>) -> Self {
        Failed { error, buffer, request: None }
    }

    /// A request that the caller gets back.
    pub(crate) fn given_back(error: RequestError, request: R) -> Self {
        Failed { error, buffer: None, request: Some(request) }
    }
}

impl<B> fmt::Debug for Rejected<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rejected({:?})", self.error)
    }
}

impl<B, R> fmt::Debug for Failed<B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failed({:?})", self.error)
    }
}

impl<B> From<Rejected<B>> for PostError {
    fn from(rejected: Rejected<B>) -> Self {
        rejected.error
    }
}

impl<B, R> From<Failed<B, R>> for RequestError {
    fn from(failed: Failed<B, R>) -> Self {
        failed.error
    }
}

/// How a blocking operation failed: when it was posted, or later.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The operation was not posted.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The operation was posted, and ended with an error.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The message is not a whole number of elements. It was not received.
    #[error(transparent)]
    Count(#[from] CountError),
    /// There is no memory for the message. It was not received.
    #[error("there is no memory for a message of {bytes} bytes: receive it in parts, or send less at once")]
    Memory {
        /// Bytes of the message.
        bytes: usize,
    },
}

impl<B> From<Rejected<B>> for OperationError {
    fn from(rejected: Rejected<B>) -> Self {
        OperationError::Post(rejected.error)
    }
}

impl<B, R> From<Failed<B, R>> for OperationError {
    fn from(failed: Failed<B, R>) -> Self {
        OperationError::Request(failed.error)
    }
}
