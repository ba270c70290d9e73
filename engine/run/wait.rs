//! Waiting: an engine looks, ticks, spins, yields, and at last sleeps on file descriptors, over all transports at once.

mod descriptor;

use crate::api::request::Waitable;
use crate::run::engine::Engine;
use rustix::event::epoll;
use std::time::{Duration, Instant};
use tickwire_components::limits::{
    SPINS_SHARED, WAIT_BUSY_POLLS_A_CLOCK, WAIT_POLLS_A_BOARD_POLL, WAIT_POLLS_A_CLOCK, WAIT_POLLS_A_TICK,
    WAIT_POLLS_UNPAUSED,
};
use tickwire_components::{CarState, NIL, ProcId, RequestError, RequestId, RequestState, Status};
use tickwire_systems::procs::ending::failed_member;

/// The status of a wait for a null request (`MPI_REQUEST_NULL`).
const NOTHING: Status = Status::NULL;

impl Engine {
    /// Waits until a request is done (`MPI_Wait`), progressing everything. The request can then be taken.
    ///
    /// # Errors
    /// The error of the request, if it ended with one; or why waiting is impossible.
    #[inline]
    pub fn wait(&mut self, request: &impl Waitable) -> Result<Status, RequestError> {
        let waited = self.wait_id(request.request_id());
        self.let_go();
        waited?;
        self.end_of(request)
    }

    /// How a request that is done has ended. An error goes to the handler of its communicator first. A persistent request is inactive
    /// afterwards.
    #[inline(always)]
    pub(crate) fn end_of(&mut self, request: &impl Waitable) -> Result<Status, RequestError> {
        let id = request.request_id();
        match request.ready_status() {
            Some(status) => Ok(status),
            None if !id.has_row() => Ok(NOTHING),
            None => self.end_of_row(request, id),
        }
    }

    /// As [`Engine::end_of`], of a request with a row.
    #[inline(always)]
    pub(crate) fn end_of_row(&mut self, request: &impl Waitable, id: RequestId) -> Result<Status, RequestError> {
        let ended = self.outcome(id);
        if request.is_persistent() {
            self.deactivate(id);
        }
        ended
    }

    /// Whether a request is persistent and inactive: it was not started since the caller was told of its last end.
    pub(crate) fn is_inactive(&mut self, id: RequestId) -> bool {
        let request = self.store.all().requests.get(id.row as usize);
        request.is_some_and(|request| request.state == RequestState::Inactive && request.generation == id.generation)
    }

    /// Makes a persistent request inactive, after the caller was told of its end.
    pub(crate) fn deactivate(&mut self, id: RequestId) {
        let request = self.store.all().requests.get_mut(id.row as usize);
        if let Some(request) = request.filter(|request| request.generation == id.generation)
            && request.state == RequestState::Done
        {
            request.state = RequestState::Inactive;
        }
    }

    /// Sends frames that transports hold back for later ones. A caller whose wait has ended may make no progress for long.
    #[inline(always)]
    pub(crate) fn let_go(&mut self) {
        match *self.holders {
            [] => {}
            [row] => self.let_one_go(row),
            _ => self.let_all_go(),
        }
    }

    #[inline(always)]
    fn let_one_go(&mut self, row: usize) {
        self.store.endpoints()[row].transport.get().flush();
    }

    #[cold]
    fn let_all_go(&mut self) {
        let endpoints = self.store.endpoints();
        for &row in &self.holders {
            endpoints[row].transport.get().flush();
        }
    }

    /// As [`Engine::wait`], for at most `time`; `Duration::MAX` is no limit.
    ///
    /// # Errors
    /// [`RequestError::Timeout`] if the request is not done by then. The request stays pending.
    pub fn wait_for(&mut self, request: &impl Waitable, time: Duration) -> Result<Status, RequestError> {
        let id = request.request_id();
        let end = Instant::now().checked_add(time);
        self.observer.awaited = id;
        let ended = self.wait_deadline(end, |engine| engine.is_done(id));
        self.observer.awaited.row = NIL;
        self.let_go();
        ended?;
        self.end_of(request)
    }

    #[inline(always)]
    pub(crate) fn wait_id(&mut self, id: RequestId) -> Result<(), RequestError> {
        if !id.has_row() {
            return Ok(());
        }
        if self.is_over(id) {
            return Ok(());
        }
        match self.wait_pending(id) {
            None => Ok(()),
            Some(error) => Err(*error),
        }
    }

    /// Whether there is nothing to wait for any more. `true` is certain; after `false` the caller has to look closer.
    #[inline(always)]
    pub(crate) fn is_over(&mut self, id: RequestId) -> bool {
        let request = self.store.all().requests.get(id.row as usize);
        request.is_some_and(|request| request.generation == id.generation && request.state.is_over())
    }

    /// The part of [`Engine::wait_id`] that looks. Most waits end with the first look. The error is boxed, so that success needs no memory.
    #[inline(never)]
    fn wait_pending(&mut self, id: RequestId) -> Option<Box<RequestError>> {
        self.observer.awaited = id;
        let at_boards = self.boards_busy && self.wait_at_boards(id.row);
        if (at_boards || self.advance(true)) && self.is_over(id) {
            self.observer.awaited.row = NIL;
            return None;
        }
        self.wait_longer(id)
    }

    #[inline(never)]
    fn wait_longer(&mut self, id: RequestId) -> Option<Box<RequestError>> {
        let ended = self.wait_until(|engine| engine.is_done(id));
        self.observer.awaited.row = NIL;
        ended.err().map(Box::new)
    }

    /// Whether a request is done. An error if the handle is stale, or if it is a receive from any source and a proc has failed.
    #[inline]
    pub(crate) fn is_done(&mut self, id: RequestId) -> Result<bool, RequestError> {
        if self.state(id)? {
            return Ok(true);
        }
        if self.is_disturbed(id) {
            return Err(self.disturbed(id));
        }
        self.closed.check_request()?;
        Ok(false)
    }

    /// The error that tells a pending receive from any source which proc has failed.
    #[cold]
    pub(crate) fn disturbance(&mut self, id: RequestId) -> RequestError {
        let all = self.store.all();
        let context = all.cars[id.row as usize].context;
        let row = failed_member(all.communicators, all.vcs, context).unwrap_or(0);
        let (proc, reason) = (ProcId(all.vcs[row as usize].proc), all.procs.reason(row).to_owned());
        RequestError::PeerFailedPending { proc, reason }
    }

    /// Whether a receive from any source has to be told of a failure. Only one that still waits for its message has to.
    #[inline(always)]
    pub(crate) fn is_disturbed(&mut self, id: RequestId) -> bool {
        let requests = self.store.all().requests;
        requests.get(id.row as usize).is_some_and(|request| request.disturbed) && self.awaits_message(id)
    }

    /// Whether a receive has no message yet. A receive that has one is waited for as usual.
    #[cold]
    fn awaits_message(&mut self, id: RequestId) -> bool {
        use CarState::{AtProvider, New, Posted, Recalled, ToProvider};
        let all = self.store.all();
        let is_active = all.requests[id.row as usize].state == RequestState::Active;
        is_active && matches!(all.cars[id.row as usize].state, New | Posted | ToProvider | AtProvider | Recalled)
    }

    /// Acknowledges all failures of procs so far, so that receives from any source go on without these procs. Until then, waiting for such
    /// a receive on a communicator with a failed member fails with [`RequestError::PeerFailedPending`], even if it was posted later.
    /// Returns the procs whose failures had not been acknowledged before, with what is known of each.
    pub fn acknowledge_failures(&mut self) -> Vec<(ProcId, String)> {
        let all = self.store.all();
        let mut acknowledged = Vec::new();
        for (row, vc) in (0..).zip(all.vcs.iter_mut()) {
            if vc.state == tickwire_components::VcState::Failed && !vc.acknowledged {
                vc.acknowledged = true;
                acknowledged.push((ProcId(vc.proc), all.procs.reason(row).to_owned()));
            }
        }
        for request in all.requests.iter_mut() {
            request.disturbed = false;
        }
        all.progress.unacknowledged = 0;
        acknowledged
    }

    #[inline]
    pub(crate) fn wait_until(
        &mut self,
        done: impl FnMut(&mut Engine) -> Result<bool, RequestError>,
    ) -> Result<(), RequestError> {
        self.wait_deadline(None, done)
    }

    #[inline]
    pub(crate) fn wait_deadline(
        &mut self,
        end: Option<Instant>,
        mut done: impl FnMut(&mut Engine) -> Result<bool, RequestError>,
    ) -> Result<(), RequestError> {
        let (mut idle, mut busy) = (0u32, 0u32);
        // Takes the account of earlier work, so that the loop sees only its own.
        self.take_work();
        loop {
            if self.advance(true) {
                match done(self) {
                    Ok(false) => {}
                    ended => return ended.map(drop),
                }
                match self.take_work().is_idle() {
                    false => {
                        idle = 0;
                        busy = busy.wrapping_add(1);
                        // Work for others must not put off the end of the wait.
                        if busy.is_multiple_of(WAIT_BUSY_POLLS_A_CLOCK) && end.is_some_and(|end| end <= Instant::now())
                        {
                            return Err(RequestError::Timeout);
                        }
                    }
                    // A send is still blocked: the tick was in vain.
                    true => idle = idle.saturating_add(WAIT_POLLS_A_TICK),
                }
            }
            idle = idle.saturating_add(self.looks_spent(idle));
            if idle > WAIT_POLLS_UNPAUSED.min(self.spins) {
                // A sleep or the end of this wait may follow, so the next look will not come right after this one.
                self.store.progress().looked = None;
                // Nothing was found for long. A look around may have ended the request.
                if done(self)? {
                    return Ok(());
                }
                if self.rest(idle, end)? {
                    idle = 0;
                }
            }
        }
    }

    /// How many empty looks the last one counts for. Where ranks share processors, a look at boards counts for many, so that the wait
    /// yields after four of them. Such a look takes longer than others, and the rank that is waited for may need this processor.
    #[inline(always)]
    fn looks_spent(&self, idle: u32) -> u32 {
        if self.boards_busy && self.spins <= SPINS_SHARED && idle < self.spins { WAIT_POLLS_A_BOARD_POLL } else { 1 }
    }

    /// The patient part of waiting: it spins, yields, and at last sleeps. Returns whether peers have used memory of this process by a
    /// fabric that needs this engine to poll. No frame of theirs says so.
    #[cold]
    #[inline(never)]
    fn rest(&mut self, idle: u32, end: Option<Instant>) -> Result<bool, RequestError> {
        let spins = self.spins;
        if idle <= spins {
            let is_over = |end| (idle.is_multiple_of(WAIT_POLLS_A_CLOCK) || idle == u32::MAX) && end <= Instant::now();
            if end.is_some_and(is_over) {
                return Err(RequestError::Timeout);
            }
            std::hint::spin_loop();
            return Ok(false);
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(RequestError::Timeout);
        }
        if idle <= spins.saturating_add(self.limits.yields) {
            rustix::thread::sched_yield();
            return Ok(false);
        }
        self.look_around();
        if self.was_reached() {
            return Ok(true);
        }
        self.sleep(left.unwrap_or(Duration::MAX)).map_err(|e| RequestError::System(e.to_string()))?;
        Ok(self.was_reached())
    }

    /// Whether peers have used memory of this process by a fabric that makes progress only while it is polled.
    fn was_reached(&mut self) -> bool {
        let mut reached = false;
        for endpoint in self.store.endpoints() {
            reached |= endpoint.transport.get().one_sided().is_some_and(|fabric| fabric.was_reached());
        }
        reached
    }

    fn sleep(&mut self, most: Duration) -> Result<(), rustix::io::Errno> {
        self.observer.waiting = true;
        let slept = self.doze(most);
        self.observer.waiting = false;
        slept
    }

    fn doze(&mut self, most: Duration) -> Result<(), rustix::io::Errno> {
        if !self.prepare_wait() {
            return Ok(());
        }
        let time = self.wait_timeout().min(most);
        self.flush_trace();
        let before = self.store.progress().now_ns;
        self.observer.page.asleep(true);
        let slept = self.nap(time);
        self.observer.page.asleep(false);
        self.sample_clock();
        self.observer.slept_ns += self.store.progress().now_ns - before;
        self.end_wait();
        self.look_around();
        slept
    }

    fn nap(&mut self, time: Duration) -> Result<(), rustix::io::Errno> {
        let time = rustix::event::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 8];
        match epoll::wait(&self.waiter.epoll, &mut events, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
