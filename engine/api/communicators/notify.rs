//! Callbacks and futures of agreements on new communicators.

use super::agreement::Agreement;
use super::state::{Caller, Made, Negotiation};
use crate::run::engine::Engine;
use crate::run::home::{Dropped, Home};
use crate::run::promise::{Promise, promise};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use tickwire_components::{Comm, CommError, Pending, RequestError, Status};

/// A future of the communicator that the members agree on, returned by [`Engine::agreed`]. The owner of the engine must tick meanwhile.
///
/// Polled again after its end, it returns [`CommError::Stale`]. Dropping it earlier does not withdraw this member: the engine completes the
/// agreement, and then frees the communicator.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Agreeing {
    made: Promise<Made>,
    home: &'static Home,
    epoch: u64,
}

impl Drop for Agreeing {
    fn drop(&mut self) {
        leave(self.home, self.epoch, self.made.abandon());
    }
}

/// Has the engine free a communicator that was made but that nobody has taken.
fn leave(home: &Home, epoch: u64, made: Option<Made>) {
    if let Some(Ok(Some(comm))) = made {
        home.others.push((Dropped::Comm(comm), epoch));
    }
}

impl Future for Agreeing {
    type Output = Made;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Made> {
        Pin::new(&mut self.made).poll(context).map(|told| told.unwrap_or(Err(CommError::Stale)))
    }
}

impl Engine {
    /// Calls a function once when the members have agreed, with the result that [`Engine::test_agreement`] would return. The function owns
    /// the communicator, and has to free it.
    ///
    /// A tick calls it, from Complete, as with [`Engine::on_complete`]. If the engine is closed first, the function is called with an
    /// error.
    ///
    /// # Errors
    /// [`CommError::Stale`] if the result was taken before.
    pub fn on_agreed(
        &mut self,
        agreement: Agreement,
        call: impl FnOnce(Result<Option<Comm>, CommError>) + Send + 'static,
    ) -> Result<(), CommError> {
        let Some(place) = self.place(&agreement) else { return Err(CommError::Stale) };
        self.comms.negotiations[place].caller = Some(Caller::new(call));
        drop(agreement);
        self.drive_negotiations();
        Ok(())
    }

    /// A future of the communicator that the members agree on. Any thread may await it.
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo())?;
    /// # let world = engine.comm_world();
    /// let agreement = engine.start_dup(world)?;
    /// let made = engine.agreed(agreement)?;
    /// let copy = engine.drive_until(made)?.expect("all members have called it");
    /// assert_eq!(engine.comm_size(copy)?, 1);
    /// # Ok::<(), tickwire::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`CommError::Stale`] if the result was taken before.
    pub fn agreed(&mut self, agreement: Agreement) -> Result<Agreeing, CommError> {
        let (teller, made) = promise(Err(CommError::Wait(RequestError::Finalized)));
        let (home, epoch) = (self.home, self.epoch);
        self.on_agreed(agreement, move |made| leave(home, epoch, teller.tell_or_keep(made)))?;
        Ok(Agreeing { made, home, epoch })
    }

    /// Has the next run of Complete call the functions whose agreements have ended.
    pub(super) fn call_agreed(&mut self) {
        let due = |negotiation: &Negotiation| negotiation.is_over() && negotiation.caller.is_some();
        while let Some(place) = self.comms.negotiations.iter().position(due) {
            let Some(caller) = self.comms.negotiations[place].caller.take() else { break };
            let made = self.take_and_raise(place);
            let all = self.store.all();
            all.callbacks.add_late(Box::new(move |_| caller.call(made)), Ok(Status::NULL));
            all.progress.late = true;
            all.progress.pending |= Pending::COMPLETE;
        }
    }

    /// Calls the functions of all open agreements with an error, since a panic has closed the engine and nobody will agree any more.
    pub(crate) fn call_disappointed(&mut self) {
        let callers: Vec<_> =
            self.comms.negotiations.iter_mut().filter_map(|negotiation| negotiation.caller.take()).collect();
        for caller in callers {
            let error = self.closed.post_error().into();
            let _ = catch_unwind(AssertUnwindSafe(|| caller.call(Err(error))));
        }
    }
}
