//! Whether a collective operation runs on boards or by messages.

use super::Draw;
use crate::run::engine::Engine;
use tickwire_components::{Collective, Comm, PostError};
use tickwire_systems::collectives::draft::Draft;
use tickwire_systems::procs::communicators::live;

/// How an operation is to run.
pub(super) enum Plan<D> {
    /// On boards.
    Boards(Collective),
    /// By messages, as drawn.
    Drawn(Box<Draft>),
    /// By messages.
    NotYet(D),
}

impl Engine {
    /// Checks that a communicator is there, and the engine open.
    pub(super) fn check_comm(&mut self, comm: Comm) -> Result<(), PostError> {
        self.closed.check_post()?;
        live(self.store.all().communicators, comm.0).map(drop)
    }

    /// Decides whether an operation runs on boards.
    #[inline(always)]
    pub(super) fn choose_boards<B, D: Draw<B>>(
        &mut self,
        comm: Comm,
        buffer: &B,
        draw: D,
    ) -> Result<Plan<D>, PostError> {
        self.check_comm(comm)?;
        let (row, context) = self.context_of(comm);
        let boards = &mut *self.store.all().boards;
        if boards.open(row, context).is_none() && !boards.is_broken(row, context) {
            return Ok(Plan::NotYet(draw));
        }
        let mut draft = self.draw(comm, buffer, draw, true)?;
        match draft.on_boards.take() {
            Some(_) if self.store.all().boards.is_broken(row, context) => Err(self.broken(comm)),
            Some(call) => Ok(Plan::Boards(call)),
            None => Ok(Plan::Drawn(Box::new(draft))),
        }
    }
}
