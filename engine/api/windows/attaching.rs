//! Memory that is attached to windows and detached again. Peers of this host find it in the window's directory.

use crate::run::engine::Engine;
use tickwire_components::{LeasedBytes, Rank, RegionAccess, Sequence, Window, WindowError};
use tickwire_systems::procs::windows::{AttachedRun, OwnMemory};
use tickwire_transports::windows::{Listed, Part, UpdateGuard};

fn is_at(run: &AttachedRun, displacement: usize) -> bool {
    run.part.memory().is_some_and(|memory| memory.start().addr() == displacement)
}

impl Engine {
    /// Makes a buffer accessible in a window of [`Engine::win_create_dynamic`] (`MPI_Win_attach`). Local. Returns the displacement of its
    /// first byte, which the program tells others.
    ///
    /// # Errors
    /// The window is none of those.
    pub fn win_attach<B>(&mut self, buffer: B, window: Window<u8>) -> Result<usize, WindowError>
    where
        B: Sequence + LeasedBytes + Send + Sync + 'static,
    {
        let buffer = Box::new(buffer);
        let span = buffer.piece(0);
        let row = self.window(window.handle)?;
        let part = row.own_part().and_then(|own| own.with_memory(span));
        let (OwnMemory::Attached(runs), Some(part)) = (&mut row.own, part) else {
            let instead = "only a window of win_create_dynamic has memory attached";
            return Err(WindowError::OwnPart { what: "fixed", instead });
        };
        let displacement = span.start().expose_provenance();
        runs.push(AttachedRun { part, number: None, buffer });
        self.list_attached(displacement, span.len(), window.handle)?;
        Ok(displacement)
    }

    /// Takes a buffer out of a window again (`MPI_Win_detach`), by the displacement that [`Engine::win_attach`] returned, if it is a `B`.
    /// Local: no epoch may be open in which others access it.
    ///
    /// # Errors
    /// There is none at this displacement.
    pub fn win_detach<B: Send + Sync + 'static>(
        &mut self,
        displacement: usize,
        window: Window<u8>,
    ) -> Result<Option<B>, WindowError> {
        self.unlist_attached(displacement, window.handle)?;
        let row = self.window(window.handle)?;
        let none =
            WindowError::OutOfBounds { target: Rank(row.rank), first: displacement, end: displacement, length: 0 };
        let OwnMemory::Attached(runs) = &mut row.own else { return Err(none) };
        let place = runs.iter().position(|run| is_at(run, displacement)).ok_or(none)?;
        let AttachedRun { buffer, .. } = runs.swap_remove(place);
        Ok(buffer.downcast::<B>().ok().map(|buffer| *buffer))
    }

    /// Lists the run that was attached last. If the directory has no free slot, peers reach the run by way of this engine.
    fn list_attached(&mut self, displacement: usize, bytes: usize, handle: u32) -> Result<(), WindowError> {
        if bytes == 0 {
            return Ok(());
        }
        let run = Listed { address: displacement as u64, bytes: bytes as u64, access: RegionAccess::ALL.bits() };
        self.change_attached(displacement, handle, |part, guard, number| *number = part.list_anywhere(guard, run))
    }

    /// Takes a run out of the directory. When this returns, no peer on this host uses the run, or begins to.
    fn unlist_attached(&mut self, displacement: usize, handle: u32) -> Result<(), WindowError> {
        self.change_attached(displacement, handle, |part, guard, number| {
            if let Some(number) = number.take() {
                part.unlist(guard, number);
            }
        })
    }

    fn change_attached(
        &mut self,
        displacement: usize,
        handle: u32,
        mut change: impl FnMut(&Part, &UpdateGuard<'_>, &mut Option<u32>),
    ) -> Result<(), WindowError> {
        self.wait_at_once(|engine| {
            let all = engine.store.all();
            let Some(row) = all.windows.get(handle) else { return true };
            let OwnMemory::Attached(runs) = &mut row.own else { return true };
            let mut runs = std::mem::take(runs);
            let changed = row.own_part().is_none_or(|part| {
                // A member that has died is passed over.
                let Ok(guard) = part.lock_updates(|member| row.is_dead(all.vcs, member)) else { return false };
                if let Some(run) = runs.iter_mut().find(|run| is_at(run, displacement)) {
                    change(part, &guard, &mut run.number);
                }
                true
            });
            row.own = OwnMemory::Attached(runs);
            changed
        })?;
        Ok(())
    }
}
