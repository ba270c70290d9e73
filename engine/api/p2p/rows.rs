//! The rows of operations that are posted.

use crate::api::request::Request;
use crate::run::engine::Engine;
use tickwire_components::{Communicator, PostError, Row};

impl Engine {
    /// Checks the arguments of an operation with no proc.
    #[cold]
    pub(crate) fn check_null(
        &mut self,
        check: impl FnOnce(&[Communicator]) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        self.closed.check_post()?;
        check(self.store.all().communicators)
    }

    /// Gives a posted request its buffer, and its poster the token.
    #[inline(always)]
    pub(crate) fn hold<B>(&mut self, row: Row, buffer: B, scoped: bool) -> Request<B> {
        let tables = self.store.all();
        tables.held[row as usize].0.put(buffer);
        let request = &mut tables.requests[row as usize];
        if scoped {
            request.scoped = true;
            tables.progress.scoped += 1;
        }
        Request::new(self.home, row, request.generation)
    }

    /// Sees to it that an operation finds so many rows.
    #[cold]
    pub(crate) fn need_rows(&mut self, needed: usize) -> Result<(), PostError> {
        self.free_dropped();
        loop {
            let progress = self.store.progress();
            if progress.free_cars.count as usize >= needed {
                return Ok(());
            }
            if !self.store.as_mut().grow() {
                return Err(if self.is_lost() { self.closed.post_error() } else { self.full() });
            }
        }
    }
}
