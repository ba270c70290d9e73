//! Callbacks and futures of requests. They run in Complete only, on the thread that owns the engine.

use crate::api::request::Waitable;
use crate::run::engine::Engine;
use crate::run::promise::{Promise, promise};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tickwire_components::{Outcome, Pending, RequestError, RequestState, Status};

/// A future of how a request ends. It does not take the buffer: [`Engine::take`] does.
///
/// The owner of the engine must tick meanwhile. If the request is taken or freed first, the future ends as the request did. Polled again
/// after its end, it returns [`RequestError::Stale`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Completion(Promise<Outcome>);

impl Future for Completion {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        Pin::new(&mut self.0).poll(context).map(|told| told.unwrap_or(Err(RequestError::Stale)))
    }
}

impl Engine {
    /// Calls a function once when a request is done, and tells it how the request ended. Also if the request's token is dropped before.
    ///
    /// The function is also called, with [`RequestError::PeerFailedPending`], when a proc fails that a receive from any source might wait
    /// for. The receive stays posted: acknowledge the failure, and register another callback.
    ///
    /// A tick calls the function, from Complete. If the request is done already, the next tick does. Several callbacks of a request are
    /// called in the order in which they were registered. A panic in one poisons the engine, after all others that were due have been
    /// called. Those that are left are then called with [`RequestError::Poisoned`].
    ///
    /// # Errors
    /// If the handle is stale or inactive, or the engine is closed. Also if the function would have to be called at once because of a
    /// failure that was not acknowledged.
    pub fn on_complete<W: Waitable>(
        &mut self,
        request: &W,
        call: impl FnOnce(Result<Status, RequestError>) + Send + 'static,
    ) -> Result<(), RequestError> {
        self.closed.check_request()?;
        let id = request.request_id();
        if self.is_disturbed(id) && self.state(id) == Ok(false) {
            return Err(self.disturbed(id));
        }
        let outcome = match request.ready_status() {
            Some(status) => Ok(status),
            None if !id.has_row() => Err(RequestError::Stale),
            None => match self.state(id)? {
                true => self.outcome(id),
                false => Err(RequestError::Pending),
            },
        };
        let all = self.store.all();
        match outcome {
            Err(RequestError::Stale) => return Err(RequestError::Stale),
            Err(RequestError::Pending) => {
                all.requests[id.row as usize].notified = true;
                all.callbacks.add(id.row, Box::new(call));
            }
            _ if all.requests.get(id.row as usize).is_some_and(|r| r.state == RequestState::Inactive) => {
                return Err(RequestError::Stale);
            }
            outcome => {
                all.callbacks.add_late(Box::new(call), outcome);
                all.progress.late = true;
                all.progress.pending |= Pending::COMPLETE;
            }
        }
        Ok(())
    }

    /// A future of how a request ends. See [`Engine::on_complete`].
    ///
    /// # Errors
    /// As [`Engine::on_complete`].
    pub fn completion<W: Waitable>(&mut self, request: &W) -> Result<Completion, RequestError> {
        let (teller, promise) = promise(Err(RequestError::Finalized));
        self.on_complete(request, move |outcome| teller.tell(outcome))?;
        Ok(Completion(promise))
    }
}
