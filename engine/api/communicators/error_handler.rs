//! Error handlers: what happens on an error, besides returning it. Operations that succeed do not run this code.

use crate::run::engine::Engine;
use std::fmt::Display;
use std::io::Write;
use tickwire_components::{
    CarKind, Comm, CommError, Communicator, ErrorHandler, PostError, RequestError, RequestId, Row, Status, context,
};
use tickwire_systems::procs::communicators::live;

/// The row of the communicator (self) whose handler is used if there is no other.
const SELF_ROW: Row = 1;

/// What an error handler calls a collective operation.
const COLLECTIVE: &str = "collective operation";

/// Whether an error of an operation of several ranks is one for the error handler: an operation that was cancelled is none.
fn ends_together(error: &RequestError) -> bool {
    use RequestError::{Abandoned, OtherType, PeerFailed, Short, Truncated};
    matches!(error, Truncated { .. } | PeerFailed { .. } | OtherType(_) | Short { .. } | Abandoned(_))
}

impl Engine {
    /// How a request that is done has ended. An error goes to the handler of its communicator first.
    #[inline]
    pub(crate) fn outcome(&mut self, id: RequestId) -> Result<Status, RequestError> {
        match self.ended_well(id) {
            Some(status) => Ok(status),
            None => self.outcome_slowly(id),
        }
    }

    #[cold]
    #[inline(never)]
    fn outcome_slowly(&mut self, id: RequestId) -> Result<Status, RequestError> {
        let ended = self.ended(id);
        if let Err(error) = &ended {
            self.raise_request(id, error);
        }
        ended
    }

    /// The reason why a receive from any source cannot go on. It goes to the handler of its communicator first.
    #[cold]
    pub(crate) fn disturbed(&mut self, id: RequestId) -> RequestError {
        let error = self.disturbance(id);
        self.raise_request(id, &error);
        error
    }

    /// Passes on the error of an operation that could not be posted, after the error handler.
    #[cold]
    #[inline(never)]
    pub(crate) fn raise_post(&self, comm: Comm, what: &str, error: PostError) -> PostError {
        if self.full_waits && matches!(error, PostError::Full { .. }) {
            return error;
        }
        let alive = live(self.store.communicators(), comm.0).is_ok();
        self.raise(if alive { Communicator::row(comm.0) as Row } else { SELF_ROW }, Some(comm), what, &error);
        error
    }

    /// Passes on the error of an operation on a communicator as a whole, after the error handler.
    #[cold]
    pub(crate) fn raise_comm(&self, comm: Comm, what: &str, error: CommError) -> CommError {
        self.raise(Communicator::row(comm.0) as Row, None, what, &error);
        error
    }

    /// Passes on the error of an agreement on a new communicator, after the error handler. The parent communicator may be closing.
    #[cold]
    pub(super) fn raise_row(&self, row: Row, what: &str, error: CommError) -> CommError {
        self.raise(row, None, what, &error);
        error
    }

    /// Tells the error handler that a request ended in an error, or cannot end. A cancelled request is no error, even if finalizing has
    /// cancelled it: it did what it was told.
    #[cold]
    #[inline(never)]
    fn raise_request(&mut self, id: RequestId, error: &RequestError) {
        use RequestError::{NotReady, OtherType, PeerFailed, PeerFailedPending, Truncated};
        let all = self.store.all();
        let Some(car) = all.cars.get(id.row as usize) else { return };
        let (is_error, what) = match (context::plane(car.context), car.kind) {
            (context::USER, kind) => (
                matches!(
                    error,
                    Truncated { .. } | PeerFailed { .. } | PeerFailedPending { .. } | NotReady | OtherType(_)
                ),
                if kind == CarKind::Send { "send" } else { "receive" },
            ),
            (context::COLLECTIVE, CarKind::Graph) => (ends_together(error), COLLECTIVE),
            (context::BLOCK, CarKind::Graph) => (ends_together(error), "graph"),
            // Errors of the engine's own messages are raised by the code that has posted them.
            _ => return,
        };
        if !is_error {
            return;
        }
        let word = car.context;
        // The communicator's handler is used for as long as no other communicator has taken its row.
        let row = context::id(word);
        let is_its = |comm: &&Communicator| context::word(row, comm.incarnation) == context::base(word);
        if all.communicators.get(row as usize).filter(is_its).is_some() {
            self.raise(row, None, what, error);
        }
    }

    /// Passes on the error of a collective operation that had no request, after the error handler.
    #[cold]
    pub(crate) fn raise_collective(&self, row: Row, error: RequestError) -> RequestError {
        if ends_together(&error) {
            self.raise(row, None, COLLECTIVE, &error);
        }
        error
    }

    /// Runs a communicator's error handler. If the communicator does not exist, `given` is the handle that the caller passed.
    fn raise(&self, row: Row, given: Option<Comm>, what: &str, error: &dyn Display) {
        self.tell_error(&format!("{what}: {error}"));
        let Some(comm) = self.store.communicators().get(row as usize) else { return };
        if comm.error_handler != ErrorHandler::Abort {
            return;
        }
        let name = match (row, given) {
            (SELF_ROW, Some(Comm(given))) if given != SELF_ROW => format!("communicator {given}"),
            (0, _) => "communicator 0 (world)".to_owned(),
            (SELF_ROW, _) => "communicator 1 (self)".to_owned(),
            _ => format!("communicator {row}"),
        };
        let rank = self.rank();
        // A single write, so that lines of several ranks do not mix. If stderr is closed, the process ends all the same.
        let line = format!("tickwire: rank {rank}: {what} on {name}: {error}; ending the process\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            trace.flush();
        }
        std::process::exit(1);
    }
}
