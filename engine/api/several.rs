//! Waiting for several requests, and testing them. Null requests (`None`) and inactive persistent requests do not count: these calls
//! neither wait for them nor report them.

use crate::api::request::{Tested, Waitable};
use crate::run::engine::Engine;
use std::time::Instant;
use tickwire_components::limits::{GATHER_DISTANCE, GATHER_TIME, GATHER_TIME_MAX};
use tickwire_components::{RequestError, RequestId, Status};

/// The state of one of several requests.
enum Stand {
    /// A null request, or an inactive one.
    Ignored,
    Pending,
    Done,
}

/// An error of one of several requests, with its index. An error of the engine as a whole is returned as it is.
#[cold]
fn of_one(index: usize, error: RequestError) -> RequestError {
    use RequestError::{Finalized, Poisoned, System, Timeout};
    match error {
        Finalized | Poisoned(_) | System(_) | Timeout => error,
        error => RequestError::InStatus { index, error: Box::new(error) },
    }
}

impl Engine {
    /// Waits until all of these are done (`MPI_Waitall`). Each can then be taken, and has its own status.
    ///
    /// While more than 16 requests are open, this may not poll for up to 1 µs: messages that come one after another are received faster if
    /// the engine does not poll for each.
    ///
    /// # Errors
    /// [`RequestError::InStatus`] with the first request that ended in an error. All requests are done then, and each error went to its
    /// communicator's handler. The same error at once if a handle is stale, or if a request cannot end before a failure is acknowledged.
    /// Otherwise the reason why waiting is impossible.
    #[inline]
    pub fn wait_all<W: Waitable>(&mut self, requests: &[W]) -> Result<(), RequestError> {
        let mut well = true;
        // The first index at which messages may gather again.
        let mut gathers = 1;
        for (index, request) in requests.iter().enumerate() {
            let id = request.request_id();
            if index >= gathers
                && let Some(later) = requests.get(index + GATHER_DISTANCE)
                && self.is_open(id)
                && self.is_open(later.request_id())
            {
                gathers = index + GATHER_DISTANCE;
                self.let_gather(requests.len() - index);
            }
            if let Err(error) = self.wait_id(id) {
                self.let_go();
                return Err(of_one(index, error));
            }
            well &= !request.is_persistent() && (!id.has_row() || self.ended_well(id).is_some());
        }
        self.let_go();
        if well { Ok(()) } else { self.ends_of(requests) }
    }

    /// Waits until one of these is done (`MPI_Waitany`) and returns its index and status; `None` if there is nothing to wait for.
    ///
    /// Null requests (`None`) and inactive persistent requests do not count. A request stays done until it is taken. To wait for the next
    /// one, put `None` in its place:
    ///
    /// ```
    /// # use tickwire::{Bootstrap, Engine, Tag};
    /// # let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    /// # let (me, world) = (engine.rank(), engine.comm_world());
    /// let post = |engine: &mut Engine, tag| engine.irecv(vec![0u8], me, Tag(tag), world).map(Some);
    /// let mut open = [post(&mut engine, 1)?, post(&mut engine, 2)?];
    /// engine.send(&[7u8], me, Tag(2), world)?;
    /// engine.send(&[8u8], me, Tag(1), world)?;
    /// let mut sum = 0;
    /// while let Some((index, status)) = engine.wait_any(&open)? {
    ///     assert_eq!(status.length, 1);
    ///     if let Some(request) = open[index].take() {
    ///         sum += engine.take(request)?.0[0];
    ///     }
    /// }
    /// assert_eq!(sum, 15);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RequestError::InStatus`] if the request ended in an error; its communicator's handler is called first. The same error if a handle
    /// is stale, or if a request cannot end before a failure is acknowledged. Otherwise the reason why waiting is impossible.
    pub fn wait_any<W: Waitable>(&mut self, requests: &[W]) -> Result<Option<(usize, Status)>, RequestError> {
        self.await_any(requests)?;
        self.test_any(requests).map(Tested::done)
    }

    /// Waits until at least one of these is done (`MPI_Waitsome`). Returns the indices and statuses of all that are done, or none if there
    /// is nothing to wait for. [`Engine::wait_any`] says which requests count.
    ///
    /// # Errors
    /// As [`Engine::wait_any`], for the first request that ended in an error. The next call reports the other requests that are done.
    pub fn wait_some<W: Waitable>(&mut self, requests: &[W]) -> Result<Vec<(usize, Status)>, RequestError> {
        self.await_any(requests)?;
        self.test_some(requests).map(|found| found.done().unwrap_or_default())
    }

    /// The index and status of one of these that is done (`MPI_Testany`). Makes no progress. [`Engine::wait_any`] says which requests
    /// count.
    ///
    /// # Errors
    /// As [`Engine::wait_any`].
    pub fn test_any<W: Waitable>(&mut self, requests: &[W]) -> Result<Tested<(usize, Status)>, RequestError> {
        let mut found = Tested::Nothing;
        for (index, request) in requests.iter().enumerate() {
            match self.stand_of(index, request)? {
                Stand::Ignored => {}
                Stand::Pending => found = Tested::Pending,
                Stand::Done => {
                    let status = self.end_of(request).map_err(|error| of_one(index, error))?;
                    return Ok(Tested::Done((index, status)));
                }
            }
        }
        Ok(found)
    }

    /// The indices and statuses of all of these that are done (`MPI_Testsome`). Makes no progress. [`Engine::wait_any`] says which requests
    /// count.
    ///
    /// # Errors
    /// As [`Engine::wait_some`].
    pub fn test_some<W: Waitable>(&mut self, requests: &[W]) -> Result<Tested<Vec<(usize, Status)>>, RequestError> {
        let (mut done, mut pending) = (Vec::new(), false);
        for (index, request) in requests.iter().enumerate() {
            match self.stand_of(index, request)? {
                Stand::Ignored => {}
                Stand::Pending => pending = true,
                Stand::Done => done.push(index),
            }
        }
        if done.is_empty() {
            return Ok(if pending { Tested::Pending } else { Tested::Nothing });
        }
        // Errors first: a caller that gets an error does not get the other statuses, so those must not count as reported.
        for &index in &done {
            let id = requests[index].request_id();
            if id.has_row() && self.ended_well(id).is_none() {
                self.end_of(&requests[index]).map_err(|error| of_one(index, error))?;
            }
        }
        let mut ended = Vec::with_capacity(done.len());
        for index in done {
            ended.push((index, self.end_of(&requests[index]).map_err(|error| of_one(index, error))?));
        }
        Ok(Tested::Done(ended))
    }

    /// Whether all of these are done (`MPI_Testall`). Makes no progress. Requests that do not count are regarded as done.
    ///
    /// # Errors
    /// As [`Engine::wait_all`].
    pub fn test_all<W: Waitable>(&mut self, requests: &[W]) -> Result<bool, RequestError> {
        for (index, request) in requests.iter().enumerate() {
            if let Stand::Pending = self.stand_of(index, request)? {
                return Ok(false);
            }
        }
        self.ends_of(requests).map(|()| true)
    }

    /// Whether a request is still in progress.
    #[inline(always)]
    fn is_open(&mut self, id: RequestId) -> bool {
        id.has_row() && !self.is_over(id)
    }

    /// Stops polling for a moment, so that the next look finds more of these messages.
    ///
    /// A receiver that takes each message as it comes takes away the ring's next cache line while the sender is filling it. The sender has
    /// to get the line back before it goes on, and both wait for lines to travel. If sender and receiver are a few messages apart, each
    /// line travels once. If one sender has yet to write all messages, the pause does not delay the last one.
    #[inline(never)]
    fn let_gather(&mut self, messages: usize) {
        self.store.progress().looked = None;
        let time = (GATHER_TIME * messages as u32).min(GATHER_TIME_MAX);
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    /// How several requests have ended. All of them are done or do not count. Returns the first error among them.
    #[inline(never)]
    fn ends_of<W: Waitable>(&mut self, requests: &[W]) -> Result<(), RequestError> {
        let mut first = Ok(());
        for (index, request) in requests.iter().enumerate() {
            if self.is_inactive(request.request_id()) {
                continue;
            }
            if let Err(error) = self.end_of(request)
                && first.is_ok()
            {
                first = Err(of_one(index, error));
            }
        }
        first
    }

    /// Waits until one of these is done, or there is nothing to wait for.
    fn await_any<W: Waitable>(&mut self, requests: &[W]) -> Result<(), RequestError> {
        let waited = match self.any_is_over(requests)? {
            true => Ok(()),
            false => self.wait_until(|engine| engine.any_is_over(requests)),
        };
        self.let_go();
        waited
    }

    fn any_is_over<W: Waitable>(&mut self, requests: &[W]) -> Result<bool, RequestError> {
        let mut nothing = true;
        for (index, request) in requests.iter().enumerate() {
            match self.stand_of(index, request)? {
                Stand::Ignored => {}
                Stand::Pending => nothing = false,
                Stand::Done => return Ok(true),
            }
        }
        Ok(nothing)
    }

    /// The state of one of several requests.
    #[inline]
    fn stand_of(&mut self, index: usize, request: &impl Waitable) -> Result<Stand, RequestError> {
        let id = request.request_id();
        Ok(match self.is_done(id).map_err(|error| of_one(index, error))? {
            false => Stand::Pending,
            true if request.is_nothing() || self.is_inactive(id) => Stand::Ignored,
            true => Stand::Done,
        })
    }
}
