//! Error handlers: what an error does besides being returned. Nothing here is on the path of an operation that ends well.

use crate::run::engine::Engine;
use std::fmt::Display;
use std::io::Write;
use tickwire_components::{
    CarKind, Comm, CommError, Communicator, ErrorHandler, PostError, RequestError, RequestId, Row, Status, context,
};
use tickwire_systems::procs::communicators::live;

/// The row of the communicator whose handler is asked when there is no other.
const SELF_ROW: Row = 1;

impl Engine {
    /// How a request that is done has ended, after its communicator's handler if not well.
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

    /// Why a receive from any source cannot go on, after its communicator's handler.
    #[cold]
    pub(crate) fn disturbed(&mut self, id: RequestId) -> RequestError {
        let error = self.disturbance(id);
        self.raise_request(id, &error);
        error
    }

    /// An operation could not be posted.
    #[cold]
    #[inline(never)]
    pub(crate) fn raise_post(&self, comm: Comm, what: &str, error: PostError) -> PostError {
        let alive = live(self.store.communicators(), comm.0).is_ok();
        self.raise(if alive { Communicator::row(comm.0) as Row } else { SELF_ROW }, Some(comm), what, &error);
        error
    }

    /// An operation on a communicator as a whole failed.
    #[cold]
    pub(crate) fn raise_comm(&self, comm: Comm, what: &str, error: CommError) -> CommError {
        self.raise(Communicator::row(comm.0) as Row, None, what, &error);
        error
    }

    /// An agreement on a communicator's offspring failed; the communicator may be closing.
    #[cold]
    pub(super) fn raise_row(&self, row: Row, what: &str, error: CommError) -> CommError {
        self.raise(row, None, what, &error);
        error
    }

    /// A request ended in an error, or cannot end well. A request that was cancelled, also by finalizing, did what it was
    /// told.
    #[cold]
    #[inline(never)]
    fn raise_request(&mut self, id: RequestId, error: &RequestError) {
        use RequestError::{NotReady, PeerFailed, PeerFailedPending, Truncated};
        if !matches!(error, Truncated { .. } | PeerFailed { .. } | PeerFailedPending { .. } | NotReady) {
            return;
        }
        let all = self.store.all();
        let Some(car) = all.cars.get(id.row as usize) else { return };
        // Of the engine's own messages, who has posted them raises what comes of it.
        if context::plane(car.context) != context::USER {
            return;
        }
        let what = if car.kind == CarKind::Send { "send" } else { "receive" };
        let word = car.context;
        // The handler outlives the communicator for as long as its row is none other's.
        let row = context::id(word);
        let is_its = |comm: &&Communicator| context::word(row, comm.incarnation) == context::base(word);
        if all.communicators.get(row as usize).filter(is_its).is_some() {
            self.raise(row, None, what, error);
        }
    }

    /// Does what a communicator's handler says. `given` is what the caller named it by, if it does not exist.
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
        // One write, so that lines of several ranks do not mix; a closed stderr is no reason to go on.
        let line = format!("tickwire: rank {rank}: {what} on {name}: {error}; ending the process\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
        if let Some(trace) = &mut *self.trace.borrow_mut() {
            trace.flush();
        }
        std::process::exit(1);
    }
}
