//! Loans: memory of the caller that the engine uses while a call lasts, and their end on every way out of it.
//!
//! A blocking call lends the buffer of its one request, a scope those of all that it posts. Whoever lends is inside
//! [`Engine::lending`] until the engine has nothing of it any more. A panic that comes through (out of a sink, a waker, an
//! observer, a transport or launcher of the application) ends all loans and poisons the engine: nobody can say what it has
//! left half done.

use crate::run::engine::{Closed, Engine};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwire_components::{CarKind, CarState, Held, Lease, Request, RequestError, RequestId, RequestState, Row, Span};
use tickwire_systems::procs::ending::fail;
use tickwire_systems::steps::finish::free_request;

/// What a panic is told as that has left a call with borrowed memory.
const LEFT: &str = "a panic has left a call that had lent memory to the engine";

/// An engine with open loans. Dropped by nothing but a panic.
struct Lending<'a>(&'a mut Engine);

impl Drop for Lending<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.abandon_loans();
    }
}

/// What was taken away from operations.
struct Withdrawn {
    /// Those that were not done, by row.
    open: Vec<RequestId>,
    /// VCs whose peers were in the middle of a message.
    cut: Vec<Row>,
    /// The buffers of all; leaked by a panic, since a transport may still have one.
    buffers: ManuallyDrop<Vec<Lease>>,
}

impl Withdrawn {
    fn drop_buffers(self) {
        drop(ManuallyDrop::into_inner(self.buffers));
    }
}

fn is_open(request: &Request) -> bool {
    matches!(request.state, RequestState::Active | RequestState::Detached)
}

impl Engine {
    /// Does what lends memory of the caller, or posts what the engine does not own yet.
    #[inline(always)]
    pub(crate) fn lending<T>(&mut self, part: impl FnOnce(&mut Engine) -> T) -> T {
        let lending = Lending(self);
        let value = part(&mut *lending.0);
        std::mem::forget(lending);
        value
    }

    /// Ends the loans of a scope: cancels its receives that have no message yet, drives all else to its end, and gives back
    /// or drops every buffer, also of requests whose tokens were forgotten or have left the scope.
    pub(crate) fn leave_scope(&mut self) {
        if self.store.progress().scoped != 0 {
            self.lending(Engine::end_scope);
        }
    }

    fn end_scope(&mut self) {
        let mut open = self.open_loans();
        if self.closed == Closed::No {
            // Those whose tokens were dropped too: they fill borrowed bytes all the same.
            for &row in &open {
                self.cancel_row(row);
            }
            open = self.open_loans();
        }
        let ended = open.is_empty() || self.wait_until(|engine| engine.are_over(&mut open)).is_ok();
        if !ended {
            self.end_loans(None);
        }
        self.free_lent();
    }

    /// Requests that are not done and have buffers of a scope.
    fn open_loans(&mut self) -> Vec<Row> {
        let requests = self.store.all().requests;
        let open = (0u32..).zip(requests.iter()).filter(|(_, request)| request.scoped && is_open(request));
        open.map(|(row, _)| row).collect()
    }

    /// Whether none of these is an open loan any more; forgets those that are not.
    fn are_over(&mut self, open: &mut Vec<Row>) -> Result<bool, RequestError> {
        self.closed.check_request()?;
        let requests = self.store.all().requests;
        let is_over = |request: &Request| !(request.scoped && is_open(request));
        while open.pop_if(|row| requests.get(*row as usize).is_none_or(is_over)).is_some() {}
        Ok(open.is_empty())
    }

    /// Frees requests that are done and have buffers of a scope.
    fn free_lent(&mut self) {
        let all = self.store.all();
        let mut buffers = Vec::new();
        for row in 0..all.requests.len() {
            let request = &mut all.requests[row];
            if request.scoped && request.state == RequestState::Done {
                buffers.push(std::mem::take(&mut all.held[row].0));
                all.progress.registrations.let_go(row as Row);
                free_request(all.progress, all.cars, all.requests, row as Row);
            }
        }
        // The application's own code, if a buffer has any.
        drop(buffers);
    }

    /// Takes borrowed bytes away from requests that did not end (of one, or of all scopes): receives fill nothing more,
    /// sends send nothing more.
    ///
    /// Only for a loan that is ended by force: the engine is closed or poisoned, or a wait failed.
    #[cold]
    pub(crate) fn end_loans(&mut self, only: Option<RequestId>) {
        let withdrawn =
            self.withdraw(|id, request, _| request.scoped && is_open(request) && only.is_none_or(|only| only == id));
        for &vc in &withdrawn.cut {
            self.cut_off(vc);
        }
        for &id in &withdrawn.open {
            let _ = self.cancel_id(id);
            let request = &mut self.store.all().requests[id.row as usize];
            if request.generation == id.generation && request.state == RequestState::Active {
                request.state = RequestState::Detached;
            }
        }
        withdrawn.drop_buffers();
    }

    /// Ends all loans after a panic, and those of operations that were posted and have no owner yet. What the application's
    /// own code does meanwhile cannot stop it.
    #[cold]
    fn abandon_loans(&mut self) {
        // Rows are not read before it is known that they are still there.
        let _ = self.store.verify();
        if self.closed == Closed::No {
            let _ = catch_unwind(AssertUnwindSafe(|| self.close_poisoned(LEFT.into())));
        }
        let withdrawn = self.withdraw(|_, request, held| request.scoped || is_open(request) && held.0.is_empty());
        for &vc in &withdrawn.cut {
            let _ = catch_unwind(AssertUnwindSafe(|| self.cut_off(vc)));
        }
        let _ = catch_unwind(AssertUnwindSafe(|| self.refuse_submissions()));
        let _ = catch_unwind(AssertUnwindSafe(|| withdrawn.drop_buffers()));
    }

    /// Takes the bytes away from these operations. Calls nothing but the engine's own code.
    fn withdraw(&mut self, is_over: impl Fn(RequestId, &Request, &Held) -> bool) -> Withdrawn {
        let all = self.store.all();
        let (mut open, mut cut, mut buffers) = (Vec::new(), Vec::new(), Vec::new());
        for (row, (request, held)) in (0..).zip(all.requests.iter_mut().zip(all.held.iter_mut())) {
            let id = RequestId { row, generation: request.generation };
            if !is_over(id, request, held) {
                continue;
            }
            let scoped = std::mem::take(&mut request.scoped);
            all.progress.scoped -= u32::from(scoped);
            if is_open(request) {
                open.push(id);
            }
            buffers.push(std::mem::take(&mut held.0));
        }
        for (car, large) in all.cars.iter_mut().zip(&*all.large).filter(|(car, _)| car.kind != CarKind::None) {
            if open.binary_search_by_key(&car.request, |id| id.row).is_ok() {
                // A message that lost its bytes half way cannot be told from a whole one: the peer must see a broken link.
                let half = car.kind == CarKind::Send && car.state != CarState::Finished;
                let half = half || matches!(car.state, CarState::Receiving | CarState::Reading);
                if (half || large.is_lent(car.state)) && !cut.contains(&car.vc) {
                    cut.push(car.vc);
                }
                car.span = Span::EMPTY;
            }
        }
        Withdrawn { open, cut, buffers: ManuallyDrop::new(buffers) }
    }

    fn cut_off(&mut self, vc: Row) {
        fail(&mut self.store.all(), vc, "an operation was abandoned half way".into());
    }
}
