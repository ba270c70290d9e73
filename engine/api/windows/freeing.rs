//! How windows are freed, and how their buffers come back.

use super::offer::Brings;
use super::{RejectedBuffer, comm_of};
use crate::api::request::OperationError;
use crate::run::engine::Engine;
use std::any::Any;
use tickwire_components::{LeasedBytes, PostError, Sequence, Window, WindowError};
use tickwire_systems::procs::windows::{Epochs, OwnMemory, WindowRow};
use tickwire_systems::protocols::one_sided::remove_window;

/// What there was of a window that is gone, and whether an operation has failed.
type Freed = (Option<Box<WindowRow>>, Result<(), WindowError>);

/// The error of a member whose part a fabric may still write.
fn lost_puts() -> WindowError {
    WindowError::Fabric {
        reason: "puts of another member have failed and may still arrive, so the memory stays in use".into(),
    }
}

impl Engine {
    /// Frees a window (`MPI_Win_free`). All members call it, after all epochs but those of fences have ended.
    ///
    /// # Errors
    /// An epoch is open, an operation has failed, or a member has. In the latter two cases the window is gone here, too. If a member has
    /// failed, the memory of its part is not used again: others may still write there. Neither is memory into which a put of another member
    /// may still come, since a fabric has failed to do it.
    pub fn win_free<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.free_window(window.handle)?.1
    }

    /// As [`Engine::win_free`], and gives back the buffer that the part was made of. `None` if the window was not made by
    /// [`Engine::win_create`].
    ///
    /// # Errors
    /// As [`Engine::win_free`], or the buffer is no `B`: the window stays as it is then. If the window is gone, the error gives the buffer
    /// back, unless another member may still write into it.
    pub fn win_take<B>(&mut self, window: Window<B::Item>) -> Result<Option<B>, RejectedBuffer<B>>
    where
        B: Sequence + LeasedBytes + Send + Sync + 'static,
    {
        let taken = self.take_window(window.handle, |buffer| buffer.is::<B>());
        let (row, told) = taken.map_err(|error| RejectedBuffer { error, buffer: None })?;
        let buffer = row.and_then(|row| Brings::back(row.own).into_buffer());
        match told {
            Ok(()) => Ok(buffer),
            Err(error) => Err(RejectedBuffer { error, buffer }),
        }
    }

    /// Frees a window, if its part is no buffer or one that is wanted. As [`Engine::free_window`] otherwise.
    fn take_window(&mut self, handle: u32, is_wanted: fn(&dyn Any) -> bool) -> Result<Freed, WindowError> {
        if let OwnMemory::Buffer(buffer) | OwnMemory::Copied(_, buffer) = &self.window(handle)?.own
            && !is_wanted(&**buffer)
        {
            let instead = "name its type, or drop it by win_free";
            return Err(WindowError::OwnPart { what: "a buffer of another type", instead });
        }
        self.free_window(handle)
    }

    /// Frees a window. Returns what there was of it, and whether an operation has failed.
    ///
    /// # Errors
    /// The window stays, or others may still use it.
    fn free_window(&mut self, handle: u32) -> Result<Freed, WindowError> {
        let Epochs { all_locked, locked, started, posted, .. } = self.window(handle)?.epochs;
        let open = [
            (all_locked, "all ranks are locked"),
            (locked > 0, "a rank is locked"),
            (started, "an access epoch is started"),
            (posted, "an exposure epoch is posted"),
        ];
        if let Some((_, open)) = open.into_iter().find(|(is_open, _)| *is_open) {
            return Err(WindowError::EpochOpen { what: "win_free", open });
        }
        let done = self.complete_window(handle);
        let failures = self.take_failures(handle)?;
        let met = self.meet_to_free(handle);
        if let Err(OperationError::Post(error @ PostError::Full { .. })) = met {
            // Nobody was told of anything: the call can be made again, and tells of failures then.
            self.put_back(failures, handle)?;
            return Err(error.into());
        }
        let flushed = done.and(self.first_of(failures, handle));
        // A member that has not heard of the failure may still write there, and a fabric may still write what it has taken.
        let in_use = met.map_or_else(|error| Some(error.into()), |has_lost| has_lost.then(lost_puts));
        if let Some(error) = in_use {
            self.store.all().windows.retire(handle);
            return Err(flushed.err().unwrap_or(error));
        }
        let freed = self.free_comm(comm_of(handle));
        let removed = self.store.with(|rows, wire| remove_window(rows, wire.endpoints, handle));
        if let Some(window) = &removed
            && let (OwnMemory::Copied(memory, _), Some(part)) = (&window.own, window.own_part())
        {
            // SAFETY: the window had the buffer, which may be written like the part of any window.
            #[expect(unsafe_code, reason = "bytes that are addresses")]
            let copied = unsafe { part.get(0, *memory) };
            debug_assert!(copied, "both have one length");
        }
        Ok((removed, flushed.and(freed.map_err(WindowError::from))))
    }
}
