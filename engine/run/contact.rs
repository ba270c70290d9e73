//! Gives a proc its VC row at first contact, and connects the VC at first use.

use crate::run::engine::Engine;
use tickwire_components::{NIL, PostError, Row, VcState};
use tickwire_systems::procs::connections::contact;

impl Engine {
    /// The VC row of a proc. Contacts the proc if it has no row yet.
    #[inline]
    pub(crate) fn proc_row(&mut self, proc: u32) -> Result<u32, PostError> {
        let row = self.store.all().procs.known.get(proc as usize).map_or(NIL, |known| known.row);
        if row != NIL {
            return Ok(row);
        }
        self.contact(proc)
    }

    #[cold]
    pub(crate) fn contact(&mut self, proc: u32) -> Result<u32, PostError> {
        self.closed.check_post()?;
        self.sample_clock();
        let row = contact(&mut self.store.as_mut(), proc);
        if !self.is_lost() {
            self.look_around();
        }
        // Looking around may find that the world is lost.
        self.closed.check_post()?;
        row
    }

    /// The VC row of a proc. Starts to connect the VC at first use. A connection that fails at once is no error here: its VC's state tells.
    #[cold]
    pub(crate) fn reach(&mut self, proc: u32) -> Result<Row, PostError> {
        let row = self.proc_row(proc);
        let known = self.store.all().procs.known[proc as usize].row;
        if known != NIL {
            if self.store.all().vcs[known as usize].state == VcState::Unconnected {
                let _ = contact(&mut self.store.as_mut(), proc);
            }
            return Ok(known);
        }
        row
    }
}
