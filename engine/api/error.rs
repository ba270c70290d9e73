//! One error type for a program that wants to use only `?`.

use crate::api::probe::message::RejectedMessage;
use crate::api::request::{Failed, OperationError, Rejected};
use crate::api::windows::{RejectedBuffer, RejectedUpdate};
use crate::bootstrap::BootstrapError;
use thiserror::Error;
use tickwire_components::{
    BuildError, CommError, CountError, DatatypeError, FinalizeError, GroupError, PostError, ProgressError,
    RequestError, Unfit, WindowError,
};
use tickwire_transports::HeapError;

/// Any error of an operation of the engine. `?` converts each operation's own error into this one. It drops the buffer that some of those
/// errors give back.
///
/// ```
/// use tickwire::{Bootstrap, Engine, Tag};
///
/// fn greet() -> Result<usize, tickwire::Error> {
///     let mut engine = Engine::builder().build(Bootstrap::from_env()?)?;
///     let (me, world) = (engine.rank(), engine.comm_world());
///     let incoming = engine.irecv([0u32; 4], me, Tag(1), world)?;
///     engine.send(&[1u32, 2, 3], me, Tag(1), world)?;
///     let (_, status) = engine.wait_take(incoming)?;
///     engine.finalize(std::time::Duration::from_secs(5))?;
///     Ok(status.count::<u32>()?)
/// }
/// assert_eq!(greet()?, 3);
/// # Ok::<(), tickwire::Error>(())
/// ```
///
/// To get the buffer back, take it from the operation's own error:
///
/// ```
/// # use tickwire::{Bootstrap, Engine, Rank, Tag};
/// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
/// # let world = engine.comm_world();
/// let rejected = engine.isend(vec![1.5f64], Rank(7), Tag(1), world).unwrap_err();
/// assert_eq!(rejected.buffer, [1.5]);
/// let error = tickwire::Error::from(rejected);
/// assert!(error.to_string().contains("rank 7 is out of range"));
/// # Ok::<(), tickwire::Error>(())
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The launcher failed, or what it told this process is wrong.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// An engine could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// An operation could not be posted.
    #[error(transparent)]
    Post(#[from] PostError),
    /// An operation ended with an error.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A call that posts and waits failed.
    #[error(transparent)]
    Operation(OperationError),
    /// A message is not a whole number of elements.
    #[error(transparent)]
    Count(#[from] CountError),
    /// An operation on a communicator failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// An operation on a group failed.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// An invalid datatype, or one that does not fit its buffer.
    #[error(transparent)]
    Datatype(#[from] DatatypeError),
    /// An operation on a window failed.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// The shared heap failed.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// The part of an engine that makes progress could not be changed.
    #[error(transparent)]
    Progress(#[from] ProgressError),
    /// An engine did not end cleanly.
    #[error(transparent)]
    Finalize(#[from] FinalizeError),
    /// The system refused a descriptor or a thread.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

impl From<OperationError> for Error {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Post(error) => Error::Post(error),
            OperationError::Request(error) => Error::Request(error),
            OperationError::Count(error) => Error::Count(error),
            other => Error::Operation(other),
        }
    }
}

impl<B> From<Rejected<B>> for Error {
    fn from(rejected: Rejected<B>) -> Self {
        Error::Post(rejected.error)
    }
}

impl<B> From<RejectedUpdate<B>> for Error {
    fn from(rejected: RejectedUpdate<B>) -> Self {
        Error::Window(rejected.error)
    }
}

impl<B> From<RejectedBuffer<B>> for Error {
    fn from(rejected: RejectedBuffer<B>) -> Self {
        Error::Window(rejected.error)
    }
}

impl<B> From<RejectedMessage<B>> for Error {
    fn from(rejected: RejectedMessage<B>) -> Self {
        Error::Post(rejected.error)
    }
}

impl<B, R> From<Failed<B, R>> for Error {
    fn from(failed: Failed<B, R>) -> Self {
        Error::Request(failed.error)
    }
}

impl<B> From<Unfit<B>> for Error {
    fn from(unfit: Unfit<B>) -> Self {
        Error::Datatype(unfit.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn it_goes_to_other_threads_and_says_what_its_cause_says() {
        fn travels<T: Send + Sync + 'static>() {}
        travels::<Error>();
        let error = Error::from(OperationError::from(PostError::Rank { rank: 9, last: 3 }));
        assert!(matches!(error, Error::Post(_)));
        assert_eq!(error.to_string(), PostError::Rank { rank: 9, last: 3 }.to_string());
        let failed: Failed<Vec<u8>> = Failed::ended(RequestError::Cancelled, None);
        assert!(matches!(Error::from(failed), Error::Request(RequestError::Cancelled)));
        // A transparent error passes on the sources of its cause.
        let io = BootstrapError::System { operation: "a fence", source: std::io::Error::other("gone") };
        assert_eq!(Error::from(io).source().map(ToString::to_string).as_deref(), Some("gone"));
    }
}
