//! The rows of operations that are posted.

use crate::api::request::{Posted, Rejected, Request};
use crate::run::engine::Engine;
use tickwire_components::{Comm, Communicator, NIL, Pieces, PostError, Rank, Row};
use tickwire_systems::protocols::graph::kept::forget;
use tickwire_systems::steps::signatures::note;

impl Engine {
    /// Checks the arguments of an operation whose peer is `MPI_PROC_NULL`.
    #[cold]
    pub(crate) fn check_null(
        &mut self,
        check: impl FnOnce(&[Communicator]) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        self.closed.check_post()?;
        check(self.store.all().communicators)
    }

    /// Stores the buffer of a posted request, and returns the request's token.
    #[inline(always)]
    pub(crate) fn hold<B: Pieces>(&mut self, row: Row, buffer: B, scoped: bool) -> Request<B> {
        if self.limits.check_types {
            self.note_type(row, &buffer);
        }
        let tables = self.store.all();
        tables.held[row as usize].0.put(buffer);
        let request = &mut tables.requests[row as usize];
        if scoped {
            request.scoped = true;
            tables.progress.scoped += 1;
        }
        Request::new(self.home, row, request.generation)
    }

    /// The token of a posted operation, which is complete already if it has no row. If posting failed, the error goes to the communicator's
    /// handler first, and gives the buffer back.
    pub(crate) fn token_of<B: Pieces>(
        &mut self,
        posted: Result<Row, PostError>,
        (name, comm): (&'static str, Comm),
        buffer: B,
        scoped: bool,
    ) -> Posted<B> {
        match posted {
            Ok(NIL) => Ok(Request::ready(self.home, buffer, Rank::NULL.0, 0)),
            Ok(row) => Ok(self.hold(row, buffer, scoped)),
            Err(error) => Err(Rejected { error: self.raise_post(comm, name, error), buffer }),
        }
    }

    /// Notes the type of a posted operation, if types are checked.
    #[cold]
    pub(crate) fn note_type(&mut self, row: Row, buffer: &impl Pieces) {
        note(self.store.progress(), row, buffer.type_name());
    }

    /// Makes sure that this many rows are free.
    #[cold]
    pub(crate) fn need_rows(&mut self, needed: usize) -> Result<(), PostError> {
        self.free_dropped();
        loop {
            let progress = self.store.progress();
            if progress.free_cars.count as usize >= needed {
                return Ok(());
            }
            if !self.store.as_mut().grow() && !self.store.with(|rows, _| forget(rows, |_| true)) {
                return Err(if self.is_lost() { self.closed.post_error() } else { self.full() });
            }
        }
    }

    /// Takes this many free rows, so that nothing else gets them before [`Engine::free_again`] is called for them. A call that starts
    /// several operations, and waits between them, cannot fail for want of rows then.
    #[cold]
    pub(crate) fn set_aside(&mut self, count: usize) -> Result<Vec<Row>, PostError> {
        self.need_rows(count)?;
        let all = self.store.all();
        Ok(std::iter::from_fn(|| all.progress.free_cars.pop(all.cars)).take(count).collect())
    }

    /// Frees so many of the rows that were set aside.
    #[cold]
    pub(crate) fn free_again(&mut self, aside: &mut Vec<Row>, count: usize) {
        let all = self.store.all();
        let kept = aside.len().saturating_sub(count);
        aside.drain(kept..).for_each(|row| all.progress.free_cars.push(all.cars, row));
    }
}
