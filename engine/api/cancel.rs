//! The end of operations before they are done: cancelled, or dropped.

use crate::api::request::Waitable;
use crate::run::engine::Engine;
use tickwire_components::limits::RECALL_LOOKS;
use tickwire_components::{CarKind, CarState, Pending, RequestError, RequestId, RequestState, Row, car_flags};
use tickwire_systems::protocols::graph::kept::release;
use tickwire_systems::steps::finish::free_request;
use tickwire_systems::steps::posted::remove_posted;
use tickwire_systems::steps::provider::{is_at_provider, recall};
use tickwire_systems::tick::complete::complete_cancelled;

impl Engine {
    /// Cancels a posted receive (`MPI_Cancel`). If no message was paired with it yet, it ends with [`RequestError::Cancelled`] and takes
    /// none. Returns whether it was cancelled, and so is done. Sends are never cancelled. The call never waits.
    ///
    /// A receive may be at a transport that matches messages itself. Then the call asks the transport to give it back, and looks for the
    /// answer in two passes like those of a tick. If the answer comes later, this returns `false`, and the receive ends in a later tick:
    /// cancelled, or with a message that was there before.
    ///
    /// # Errors
    /// If the handle is stale or the engine closed.
    pub fn cancel<W: Waitable>(&mut self, request: &W) -> Result<bool, RequestError> {
        self.cancel_id(request.request_id())
    }

    pub(crate) fn cancel_id(&mut self, id: RequestId) -> Result<bool, RequestError> {
        self.closed.check_request()?;
        if self.state(id)? {
            return Ok(false);
        }
        let cancelled = self.cancel_row(id.row);
        if cancelled && !self.state(id)? {
            // A transport has given it back, and Complete has not seen it yet.
            self.store.progress().pending |= Pending::COMPLETE;
            self.run();
        }
        Ok(cancelled)
    }

    /// Takes a request's receive out of its queue, whether or not somebody still has its token. Returns whether it was cancelled.
    pub(crate) fn cancel_row(&mut self, request: Row) -> bool {
        let all = self.store.all();
        let row = request;
        let car = &all.cars[row as usize];
        let removed = match car.state {
            _ if car.kind != CarKind::Receive => false,
            CarState::New => all.progress.new_receives.remove(all.cars, row),
            CarState::ToProvider => all.progress.provider.queue.remove(all.cars, row),
            _ if is_at_provider(car) => {
                recall(all.progress, all.cars, row, car_flags::CANCELLED);
                return self.look_for_recall(row);
            }
            _ => remove_posted(all.progress, all.cars, all.vcs, row),
        };
        if removed {
            self.store.with(|rows, _| complete_cancelled(rows, row));
        }
        removed
    }

    /// Looks whether a transport gives a receive back at once. Returns whether the receive came back cancelled. If it does not come back at
    /// once, it ends later, cancelled or with its message, and the result is `false`.
    fn look_for_recall(&mut self, row: Row) -> bool {
        for _ in 0..RECALL_LOOKS {
            self.store.progress().pending |= Pending::POST | Pending::DRAIN;
            self.run();
            let car = &self.store.all().cars[row as usize];
            if car.state != CarState::Recalled {
                return car.flags & car_flags::CANCELLED != 0;
            }
        }
        false
    }

    /// Frees requests whose tokens were dropped. Those that are still active are freed when they are done.
    pub(crate) fn free_dropped(&mut self) {
        self.free_messages();
        let progress = self.store.progress();
        if !progress.registrations.withdrawn.is_empty() {
            progress.pending |= Pending::WORLD;
        }
        // Popping from an empty queue would cost a fence.
        while !self.home.dropped.is_empty()
            && let Some((row, generation)) = self.home.dropped.pop()
        {
            let tables = self.store.all();
            let Some(request) = tables.requests.get_mut(row as usize) else {
                self.forget_receipt(row, generation);
                continue;
            };
            if request.generation != generation {
                continue;
            }
            match request.state {
                RequestState::Active => request.state = RequestState::Detached,
                RequestState::Done | RequestState::Inactive => {
                    tables.held[row as usize].0.clear();
                    tables.progress.registrations.let_go(row);
                    self.free_row(row);
                }
                _ => {}
            }
        }
    }

    /// Frees the row of a request that is done or inactive, and its graph if it has one.
    pub(crate) fn free_row(&mut self, row: Row) {
        self.store.with(|rows, _| release(rows, row));
        let tables = self.store.all();
        free_request(tables.progress, tables.cars, tables.requests, row);
    }
}
