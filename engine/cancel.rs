//! The end of operations before they are done: cancelled, dropped, or robbed of the memory that they were lent.

use crate::core::{Closed, Engine};
use crate::request::Waitable;
use tickwire_components::{CarKind, CarState, Pending, RequestError, RequestId, RequestState, Row, Span, car_flags};
use tickwire_systems::complete::{abort, free_request};
use tickwire_systems::lodging::{is_lodged, recall};
use tickwire_systems::matching::remove_posted;

/// Looks after which a receive that does not come back is left to come back later.
const RECALL_LOOKS: u32 = 1000;

impl Engine {
    /// Cancels a posted receive (`MPI_Cancel`): if no message was paired with it yet, it ends with
    /// [`RequestError::Cancelled`] and takes none. Returns whether it was cancelled; sends never are. A receive at a transport
    /// that matches by itself, and does not answer at once, may still end so after `false`.
    ///
    /// # Errors
    /// If the handle is stale or the engine closed.
    pub fn cancel<W: Waitable>(&mut self, request: &W) -> Result<bool, RequestError> {
        self.cancel_id(request.request_id())
    }

    pub(crate) fn cancel_id(&mut self, id: RequestId) -> Result<bool, RequestError> {
        if self.closed != Closed::No {
            return Err(self.closed.request_error());
        }
        if self.state(id)? {
            return Ok(false);
        }
        Ok(self.cancel_row(id.row))
    }

    /// Takes a request's receive out of its queue, whether or not somebody still has its token.
    pub(crate) fn cancel_row(&mut self, request: Row) -> bool {
        let all = self.tables.all(&mut self.world);
        let row = request;
        let car = &all.cars[row as usize];
        let removed = match car.state {
            _ if car.kind != CarKind::Receive => false,
            CarState::Staged => all.progress.staged.remove(all.cars, row),
            CarState::Lodging => all.progress.lodgings.queue.remove(all.cars, row),
            _ if is_lodged(car) => {
                recall(all.progress, all.cars, row, car_flags::CANCELLED);
                return self.await_recall(row);
            }
            _ => remove_posted(all.progress, all.cars, all.vcs, row),
        };
        if removed {
            abort(all.progress, all.cars, row, car_flags::CANCELLED);
        }
        removed
    }

    /// Whether a receive comes back from the transport that it is at. That is known at once, or nearly so; if not, the receive
    /// ends later, cancelled or with its message, and is not called cancelled now.
    fn await_recall(&mut self, row: Row) -> bool {
        let looks = if self.virtual_time { 2 } else { RECALL_LOOKS };
        for look in 0..looks {
            self.tables.progress(&mut self.world).pending |= Pending::POST | Pending::DRAIN;
            self.run();
            let car = &self.tables.all(&mut self.world).cars[row as usize];
            if car.state != CarState::Recalled {
                return car.flags & car_flags::CANCELLED != 0;
            }
            if look > RECALL_LOOKS / 10 {
                std::thread::yield_now();
            }
        }
        false
    }

    /// Frees requests whose tokens were dropped, or leaves them to be freed when done.
    pub(crate) fn free_dropped(&mut self) {
        self.free_messages();
        let progress = self.tables.progress(&mut self.world);
        if !progress.registrations.withdrawn.is_empty() {
            progress.pending |= Pending::WORLD;
        }
        while let Some((row, generation)) = self.home.dropped.pop() {
            let tables = self.tables.request(&mut self.world);
            let Some(request) = tables.requests.get_mut(row as usize) else { continue };
            if request.generation != generation {
                continue;
            }
            match request.state {
                RequestState::Active => request.state = RequestState::Detached,
                RequestState::Done | RequestState::Inactive => {
                    tables.held[row as usize].0.clear();
                    tables.progress.registrations.let_go(row);
                    free_request(tables.progress, tables.cars, tables.requests, row);
                }
                _ => {}
            }
        }
    }

    /// Takes borrowed bytes away from requests that did not end (of one, or of all scopes): receives fill nothing more,
    /// sends send nothing more.
    ///
    /// Only for a loan that is ended by force: the engine is closed or poisoned, or a wait failed.
    #[cold]
    pub(crate) fn end_loans(&mut self, only: Option<RequestId>) {
        let all = self.tables.all(&mut self.world);
        let mut ids = Vec::new();
        for (row, request) in all.requests.iter_mut().enumerate() {
            let id = RequestId { row: row as Row, generation: request.generation };
            let open = matches!(request.state, RequestState::Active | RequestState::Detached);
            if request.scoped && open && only.is_none_or(|only| only == id) {
                request.scoped = false;
                all.progress.scoped -= 1;
                ids.push(id);
            }
        }
        let mut broken = Vec::new();
        for (car, large) in all.cars.iter_mut().zip(&*all.large).filter(|(car, _)| car.kind != CarKind::None) {
            if ids.iter().any(|id| id.row == car.request) {
                // A message that lost its bytes half way cannot be told from a whole one: the peer must see a broken link.
                let half = car.kind == CarKind::Send && car.state != CarState::Finished;
                let half = half || matches!(car.state, CarState::Receiving | CarState::Reading);
                if (half || large.is_lent(car.state)) && !broken.contains(&car.vc) {
                    broken.push(car.vc);
                }
                car.span = Span::EMPTY;
            }
        }
        for vc in broken {
            let mut all = self.tables.all(&mut self.world);
            tickwire_systems::connections::fail(&mut all, vc, "an operation was abandoned half way".into());
        }
        let held = self.tables.all(&mut self.world).held;
        ids.iter().for_each(|id| held[id.row as usize].0.clear());
        for id in ids {
            let _ = self.cancel_id(id);
            let request = &mut self.tables.request(&mut self.world).requests[id.row as usize];
            if request.generation == id.generation && request.state == RequestState::Active {
                request.state = RequestState::Detached;
            }
        }
    }
}
