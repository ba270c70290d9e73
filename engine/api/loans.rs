//! Loans: buffers that requests borrow from the caller. Every loan ends before the call or scope returns, on every path.
//!
//! A blocking call lends the buffer of its one request. A scope lends the buffers of all requests that it posts. The code
//! that lends runs inside [`Engine::lending`] until the engine uses none of these buffers any more.
//!
//! A panic may unwind through such a call. It may come out of code of the application: a sink, a waker, an observer, a
//! transport or a launcher. It ends all loans and poisons the engine, because an operation may be half done.

use crate::run::engine::{Closed, Engine};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwire_components::{CarKind, CarState, Held, Lease, Request, RequestError, RequestId, RequestState, Row, Span};
use tickwire_systems::procs::ending::fail;
use tickwire_systems::protocols::one_sided::cut_loans;

/// The reason that poisons an engine after such a panic.
const LEFT: &str = "a panic has left a call that had lent memory to the engine";

/// An engine with open loans. Only a panic drops it.
struct Lending<'a>(&'a mut Engine);

impl Drop for Lending<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.abandon_loans();
    }
}

/// The result of [`Engine::withdraw_buffers`].
struct Withdrawn {
    /// Requests that were not done, in the order of their rows.
    open: Vec<RequestId>,
    /// VCs with a message that was transferred in part.
    cut: Vec<Row>,
    /// The buffers of all requests. A panic leaks them, because a transport may still use one.
    buffers: ManuallyDrop<Vec<Lease>>,
}

impl Withdrawn {
    fn drop_buffers(self) {
        drop(ManuallyDrop::into_inner(self.buffers));
    }
}

/// Whether the operation is still in progress.
fn is_open(request: &Request) -> bool {
    matches!(request.state, RequestState::Active | RequestState::Detached)
}

impl Engine {
    /// Runs code that lends memory of the caller to the engine, or posts an operation before the engine owns its buffer. If
    /// the code panics, all loans end.
    #[inline(always)]
    pub(crate) fn lending<T>(&mut self, part: impl FnOnce(&mut Engine) -> T) -> T {
        let lending = Lending(self);
        let value = part(&mut *lending.0);
        std::mem::forget(lending);
        value
    }

    /// Ends the loans of a scope. Cancels its receives that have no message yet, and completes all other requests. Then gives
    /// back or drops every buffer. That includes requests whose handles were forgotten or have left the scope.
    pub(crate) fn leave_scope(&mut self) {
        if self.store.progress().scoped != 0 {
            self.lending(Engine::end_scope);
        }
    }

    fn end_scope(&mut self) {
        // Receives are paired with what is there already, such as sends of this rank to itself, before they are cancelled.
        self.advance(false);
        self.let_go();
        let mut open = self.open_loans();
        if self.closed == Closed::No {
            // Also receives whose handles were dropped: they would still write to borrowed buffers.
            for &row in &open {
                self.cancel_row(row);
            }
            open = self.open_loans();
        }
        let ended = open.is_empty() || self.wait_until(|engine| engine.are_over(&mut open)).is_ok();
        self.let_go();
        if !ended {
            self.end_loans(None);
        }
        self.free_lent();
    }

    /// Requests in progress that have borrowed buffers.
    fn open_loans(&mut self) -> Vec<Row> {
        let requests = self.store.all().requests;
        let open = (0u32..).zip(requests.iter()).filter(|(_, request)| request.scoped && is_open(request));
        open.map(|(row, _)| row).collect()
    }

    /// Whether none of these requests is an open loan any more. Removes ended ones from the end of the list.
    fn are_over(&mut self, open: &mut Vec<Row>) -> Result<bool, RequestError> {
        self.closed.check_request()?;
        let requests = self.store.all().requests;
        let is_over = |request: &Request| !(request.scoped && is_open(request));
        while open.pop_if(|row| requests.get(*row as usize).is_none_or(is_over)).is_some() {}
        Ok(open.is_empty())
    }

    /// Frees requests that have borrowed buffers and are done, or are persistent and not started.
    fn free_lent(&mut self) {
        let is_lent =
            |request: &Request| request.scoped && matches!(request.state, RequestState::Done | RequestState::Inactive);
        let requests = (0u32..).zip(self.store.all().requests.iter());
        let rows: Vec<Row> = requests.filter(|(_, request)| is_lent(request)).map(|(row, _)| row).collect();
        let mut buffers = Vec::with_capacity(rows.len());
        for row in rows {
            let all = self.store.all();
            buffers.push(std::mem::take(&mut all.held[row as usize].0));
            all.progress.registrations.let_go(row);
            self.free_row(row);
        }
        // Dropping a buffer may run code of the application.
        drop(buffers);
    }

    /// Takes borrowed buffers away from requests that are still in progress: from the request `only`, or from all. Their
    /// receives write nothing more, and their sends read nothing more.
    ///
    /// For loans that have to end before their requests do: the engine is closed or poisoned, or a wait failed.
    #[cold]
    pub(crate) fn end_loans(&mut self, only: Option<RequestId>) {
        self.cancel_graphs(only);
        let withdrawn = self.withdraw_buffers(|id, request, _| {
            request.scoped && is_open(request) && only.is_none_or(|only| only == id)
        });
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

    /// Ends all loans after a panic, also of operations whose buffers the engine does not own yet. A further panic in code of
    /// the application cannot stop it.
    #[cold]
    fn abandon_loans(&mut self) {
        // Rows may be gone. This checks that they are there before any is read.
        let _ = self.store.verify();
        if self.closed == Closed::No {
            let _ = catch_unwind(AssertUnwindSafe(|| self.close_poisoned(LEFT.into())));
        }
        if !self.is_lost() {
            self.cancel_graphs(None);
            cut_loans(self.store.all().windows);
        }
        let withdrawn =
            self.withdraw_buffers(|_, request, held| request.scoped || is_open(request) && held.0.is_empty());
        for &vc in &withdrawn.cut {
            let _ = catch_unwind(AssertUnwindSafe(|| self.cut_off(vc)));
        }
        let _ = catch_unwind(AssertUnwindSafe(|| self.refuse_submissions()));
        let _ = catch_unwind(AssertUnwindSafe(|| withdrawn.drop_buffers()));
    }

    /// Takes the buffers away from the requests for which `is_over` holds. Runs no code of the application.
    fn withdraw_buffers(&mut self, is_over: impl Fn(RequestId, &Request, &Held) -> bool) -> Withdrawn {
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
                // The peer cannot tell a message that lost its buffer in the middle from a whole one. So the connection has
                // to fail.
                let at_rest = matches!(car.state, CarState::Finished | CarState::Waiting | CarState::Resting);
                let half = car.kind == CarKind::Send && !at_rest;
                let half = half || matches!(car.state, CarState::Receiving | CarState::Passing | CarState::Reading);
                if (half || large.is_lent(car.state)) && !cut.contains(&car.vc) {
                    cut.push(car.vc);
                }
                car.span = Span::EMPTY;
            }
        }
        Withdrawn { open, cut, buffers: ManuallyDrop::new(buffers) }
    }

    /// Fails a VC, so that its peer does not take a part of a message for the whole.
    pub(crate) fn cut_off(&mut self, vc: Row) {
        fail(&mut self.store.all(), vc, "an operation was abandoned half way".into());
    }
}
