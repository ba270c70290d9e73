//! Memory that is attached to windows and detached again. Peers of this host find it in the window's directory.

use super::RejectedBuffer;
use crate::run::engine::Engine;
use tickwire_components::{LeasedBytes, Rank, RegionAccess, Sequence, Span, Window, WindowError};
use tickwire_systems::procs::windows::{AttachedRun, OwnMemory, WindowRow};
use tickwire_transports::windows::{Listed, Part, UpdateGuard};

/// Whether a run begins at a displacement. Several may, if they have no bytes.
fn is_at(run: &AttachedRun, displacement: usize) -> bool {
    run.part.memory().is_some_and(|memory| memory.start().addr() == displacement)
}

fn out_of_bounds(rank: u32, displacement: usize) -> WindowError {
    WindowError::OutOfBounds { target: Rank(rank), first: displacement, end: displacement, length: 0 }
}

impl Engine {
    /// Makes a buffer accessible in a window of [`Engine::win_create_dynamic`] (`MPI_Win_attach`). Local. Returns the displacement of its
    /// first byte, which the program tells others.
    ///
    /// # Errors
    /// The window is none of those. The error gives the buffer back.
    pub fn win_attach<B>(&mut self, buffer: B, window: Window<u8>) -> Result<usize, RejectedBuffer<B>>
    where
        B: Sequence + LeasedBytes + Send + Sync + 'static,
    {
        let boxed = Box::new(buffer);
        let span = boxed.piece(0);
        let part = match self.check_attach(span, window) {
            Ok(part) => part,
            Err(error) => return Err(RejectedBuffer { error, buffer: Some(*boxed) }),
        };
        let displacement = span.start().expose_provenance();
        let mut serial = 0;
        let row = self.window(window.handle);
        if let Ok(WindowRow { own: OwnMemory::Attached(runs), .. }) = row {
            serial = 1 + runs.iter().map(|run| run.serial).max().unwrap_or(0);
            runs.push(AttachedRun { part, number: None, serial, buffer: boxed });
        }
        match self.list_attached(serial, displacement, span.len(), window.handle) {
            Ok(()) => Ok(displacement),
            // It was not listed. No peer has heard of it.
            Err(error) => {
                Err(RejectedBuffer { error, buffer: self.take_attached(serial, window.handle).ok().flatten() })
            }
        }
    }

    /// The part that a buffer would be.
    fn check_attach(&mut self, span: Span, window: Window<u8>) -> Result<Part, WindowError> {
        let row = self.window(window.handle)?;
        let part = row.own_part().and_then(|own| own.with_memory(span));
        let instead = "only a window of win_create_dynamic has memory attached";
        let is_dynamic = matches!(row.own, OwnMemory::Attached(_));
        part.filter(|_| is_dynamic).ok_or(WindowError::OwnPart { what: "fixed", instead })
    }

    /// Takes a buffer out of a window again (`MPI_Win_detach`), by the displacement that [`Engine::win_attach`] returned. `None` if it is no
    /// `B`: it stays attached then. Local: no epoch may be open in which others access it.
    ///
    /// # Errors
    /// There is none at this displacement.
    pub fn win_detach<B: Send + Sync + 'static>(
        &mut self,
        displacement: usize,
        window: Window<u8>,
    ) -> Result<Option<B>, WindowError> {
        let row = self.window(window.handle)?;
        let none = WindowError::NotAttached { displacement };
        let OwnMemory::Attached(runs) = &row.own else { return Err(none) };
        let here: Vec<&AttachedRun> = runs.iter().filter(|run| is_at(run, displacement)).collect();
        if here.is_empty() {
            return Err(none);
        }
        let Some(run) = here.iter().find(|run| run.buffer.is::<B>()) else { return Ok(None) };
        let serial = run.serial;
        self.unlist_attached(serial, window.handle)?;
        self.take_attached(serial, window.handle)
    }

    /// Takes a run that is not listed out of a window.
    fn take_attached<B: Send + Sync + 'static>(&mut self, serial: u64, handle: u32) -> Result<Option<B>, WindowError> {
        let row = self.window(handle)?;
        let none = out_of_bounds(row.rank, 0);
        let OwnMemory::Attached(runs) = &mut row.own else { return Err(none) };
        let place = runs.iter().position(|run| run.serial == serial).ok_or(none)?;
        let AttachedRun { buffer, .. } = runs.swap_remove(place);
        Ok(buffer.downcast::<B>().ok().map(|buffer| *buffer))
    }

    /// Lists a run. If the directory has no free slot, peers reach the run by way of this engine.
    fn list_attached(
        &mut self,
        serial: u64,
        displacement: usize,
        bytes: usize,
        handle: u32,
    ) -> Result<(), WindowError> {
        if bytes == 0 {
            return Ok(());
        }
        let run = Listed { address: displacement as u64, bytes: bytes as u64, access: RegionAccess::ALL.bits() };
        self.change_attached(serial, handle, |part, guard, number| *number = part.list_anywhere(guard, run))
    }

    /// Takes a run out of the directory. When this returns, no peer on this host uses the run, or begins to.
    fn unlist_attached(&mut self, serial: u64, handle: u32) -> Result<(), WindowError> {
        self.change_attached(serial, handle, |part, guard, number| {
            if let Some(number) = number.take() {
                part.unlist(guard, number);
            }
        })
    }

    fn change_attached(
        &mut self,
        serial: u64,
        handle: u32,
        mut change: impl FnMut(&Part, &UpdateGuard<'_>, &mut Option<u32>),
    ) -> Result<(), WindowError> {
        self.wait_on_holder(handle, |engine| {
            let all = engine.store.all();
            let Some(row) = all.windows.get(handle) else { return Ok(()) };
            let OwnMemory::Attached(runs) = &mut row.own else { return Ok(()) };
            let mut runs = std::mem::take(runs);
            let changed = row.own_part().map_or(Ok(()), |part| {
                let guard = part.lock_updates(|member| row.is_gone(all.procs, member))?;
                if let Some(run) = runs.iter_mut().find(|run| run.serial == serial) {
                    change(part, &guard, &mut run.number);
                }
                Ok(())
            });
            row.own = OwnMemory::Attached(runs);
            changed
        })?;
        Ok(())
    }
}
