//! Callbacks and futures of requests. They run in Complete only, on the thread that owns the engine.

use crate::api::request::Waitable;
use crate::run::engine::Engine;
use crate::run::promise::{Promise, promise};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tickwire_components::{Outcome, Pending, RequestError, RequestState, Status};

/// A future of how a request ends. Awaiting it takes nothing: [`Engine::take`] gives the buffer.
///
/// Whoever owns the engine must tick meanwhile. If the request is taken or freed first it ends as the request did. Polled again
/// after its end it is [`RequestError::Stale`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Completion(Promise<Outcome>);

impl Future for Completion {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        Pin::new(&mut self.0).poll(context).map(|told| told.unwrap_or(Err(RequestError::Stale)))
    }
}

impl Engine {
    /// Calls a function once when a request is done, with how it ended, also if its token is dropped before.
    ///
    /// It is called too, with [`RequestError::PeerFailedPending`], when a proc fails that a receive from any source might wait for.
    /// That stays posted: acknowledge the failure, and give another callback.
    ///
    /// It is called by a tick, from Complete; of a request that is done already, by the next one. Several callbacks of a
    /// request are called in the order in which they were given. A panic in one poisons the engine, once all others that were
    /// due have been called; those that are left are then called with [`RequestError::Poisoned`].
    ///
    /// # Errors
    /// If the handle is stale, inactive, or the engine is closed; or if a failure has not been acknowledged that would have to be
    /// told at once.
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
