//! Testing a request, and taking it when it is done.

use crate::api::request::{Failed, Request, Test, Waitable};
use crate::run::engine::{Closed, Engine};
use tickwire_components::{NIL, Pieces, RequestError, RequestId, RequestState, Status, car_flags};
use tickwire_systems::steps::finish::{free_request, outcome, status};

impl Engine {
    /// Says whether a request is done, without making progress (`MPI_Request_get_status`).
    ///
    /// # Errors
    /// The error of a request that has ended with one; it can still be taken. An error if the handle is stale, or if the request cannot end
    /// any more since the engine is closed. [`RequestError::PeerFailedPending`] if the request is a receive from any source and a proc has
    /// failed that it might wait for. The receive stays posted, and the error is repeated until the failure is acknowledged.
    #[inline]
    pub fn test<W: Waitable>(&mut self, request: &W) -> Result<Test, RequestError> {
        if let Some(status) = request.ready_status() {
            return Ok(Test::Done(status));
        }
        let id = request.request_id();
        if !id.has_row() {
            return Ok(Test::Done(Status::NULL));
        }
        match self.is_done(id)? {
            false => Ok(Test::Pending),
            true => self.end_of_row(request, id).map(Test::Done),
        }
    }

    /// Takes a request that is done. Returns its buffer and its status.
    ///
    /// # Errors
    /// The error of a request that has ended with one; it gives the buffer back. [`RequestError::Pending`] if the request is not done, or
    /// an error if it belongs to another engine: these give the request back (see [`Failed`]). Or the handle is stale.
    #[inline(always)]
    pub fn take<B: Pieces>(&mut self, mut request: Request<B>) -> Result<(B, Status), Failed<B>> {
        if let Some(ready) = request.take_ready(Pieces::total) {
            let RequestId { row, generation } = request.id();
            if row != NIL && request.belongs_to(self.home) {
                request.disarm();
                self.forget_receipt(row, generation);
            }
            return Ok(ready);
        }
        let id = request.id();
        // The frequent case: the request is done, without an error.
        let tables = self.store.all();
        if let Some(entry) = tables.requests.get(id.row as usize)
            && entry.generation == id.generation
            && entry.state == RequestState::Done
            && let Some(car) = tables.cars.get(id.row as usize)
            && car.flags & car_flags::ERRORS == 0
            && request.belongs_to(self.home)
        {
            let status = status(car);
            // SAFETY: the token's type is the one its buffer was put with.
            #[expect(unsafe_code, reason = "type-erased ownership")]
            let buffer = unsafe { tables.held[id.row as usize].0.take::<B>() };
            if let Some(buffer) = buffer {
                request.disarm();
                free_request(tables.progress, tables.cars, tables.requests, id.row);
                return Ok((buffer, status));
            }
        }
        self.take_slowly(request.renew())
    }

    /// Waits for a request and takes it ([`Engine::wait`], then [`Engine::take`]). Returns its buffer and its status.
    ///
    /// # Errors
    /// The error of a request that has ended with one (the buffer comes back), or why waiting is impossible (the request comes back).
    #[inline]
    pub fn wait_take<B: Pieces>(&mut self, request: Request<B>) -> Result<(B, Status), Failed<B>> {
        let waited = self.wait(&request);
        let taken = self.take(request);
        match (waited, taken) {
            // The request is still pending. The error of the wait says more than that.
            (Err(error), Err(failed)) if failed.error == RequestError::Pending => Err(Failed { error, ..failed }),
            (_, taken) => taken,
        }
    }

    #[cold]
    #[inline(never)]
    fn take_slowly<B: Pieces>(&mut self, mut request: Request<B>) -> Result<(B, Status), Failed<B>> {
        let id = request.id();
        if !request.belongs_to(self.home) {
            return Err(Failed::given_back(RequestError::Stale, request));
        }
        match self.state(id) {
            Ok(true) => {}
            Ok(false) => return Err(Failed::given_back(RequestError::Pending, request)),
            Err(error) => return Err(Failed::given_back(error, request)),
        }
        request.disarm();
        let error = self.outcome(id).err();
        let tables = self.store.all();
        let status = status(&tables.cars[id.row as usize]);
        // SAFETY: the token's type is the one its buffer was put with.
        #[expect(unsafe_code, reason = "type-erased ownership")]
        let buffer = unsafe { tables.held[id.row as usize].0.take::<B>() };
        free_request(tables.progress, tables.cars, tables.requests, id.row);
        match (error, buffer) {
            (None, Some(buffer)) => Ok((buffer, status)),
            (error, buffer) => Err(Failed::ended(error.unwrap_or(RequestError::Stale), buffer)),
        }
    }

    /// Whether the request behind a handle is done.
    ///
    /// # Errors
    /// If the handle is stale.
    #[inline]
    pub(crate) fn state(&mut self, id: RequestId) -> Result<bool, RequestError> {
        let tables = self.store.all();
        match tables.requests.get(id.row as usize) {
            None if !id.has_row() => Ok(true),
            Some(request) if request.generation == id.generation && request.state.is_over() => Ok(true),
            Some(request) if request.generation == id.generation && request.state == RequestState::Active => Ok(false),
            _ => Err(self.stale()),
        }
    }

    /// The error of a handle that names no request. After a panic the rows themselves may have moved.
    #[cold]
    fn stale(&self) -> RequestError {
        match self.closed {
            Closed::Poisoned(_) => self.closed.request_error(),
            _ => RequestError::Stale,
        }
    }

    /// The status of a request that is done, if it has ended without an error.
    #[inline(always)]
    pub(crate) fn ended_well(&mut self, id: RequestId) -> Option<Status> {
        let car = self.store.all().cars.get(id.row as usize)?;
        (car.flags & car_flags::ERRORS == 0).then(|| status(car))
    }

    /// How a request that is done has ended.
    pub(crate) fn ended(&mut self, id: RequestId) -> Result<Status, RequestError> {
        let all = self.store.all();
        outcome(all.progress, all.cars, all.large, all.vcs, all.procs, id.row)
    }
}
