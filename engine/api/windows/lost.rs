//! Puts that a fabric has failed to do. The fabric may have taken a part of one, which may arrive whenever it likes. Only the origin
//! knows. So before it ends an epoch, it tells the owner of the part, which then never lends that as a slice, and does not use its memory
//! again.

use super::comm_of;
use super::remote::RemoteMove;
use crate::api::request::OperationError;
use crate::run::engine::Engine;
use tickwire_components::{Rank, RemoteKind, WindowError, op};

impl Engine {
    /// Tells the owner of a rank's part of puts that have failed there, unless it knows. All operations on the part are over.
    ///
    /// # Errors
    /// The owner could not be told. Then it must not come to know that the epoch has ended, either.
    #[inline(always)]
    pub(super) fn tell_lost(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        let target = self.target(rank, handle)?;
        if !target.has_lost_put || target.is_loss_told { Ok(()) } else { self.tell_lost_now(rank, handle) }
    }

    #[cold]
    fn tell_lost_now(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        self.run_answered(RemoteKind::LostPuts, &[RemoteMove::NONE], (rank, handle))?;
        self.target(rank, handle)?.is_loss_told = true;
        Ok(())
    }

    /// As [`Engine::tell_lost`], to all owners. Returns whether all know.
    pub(super) fn tell_all_lost(&mut self, handle: u32) -> Result<bool, WindowError> {
        let mut all_know = true;
        let window = self.window(handle)?;
        // Without a fabric nothing is lost.
        let ranks = if window.has_fabric { window.targets.len() as u32 } else { 0 };
        for rank in 0..ranks {
            all_know &= self.tell_lost(Rank(rank), handle).is_ok();
        }
        Ok(all_know)
    }

    /// Waits until all members have come to a fence, and hears whether all owners know of the puts that have failed at their parts. If a
    /// member could not tell one of them, none lends its part any more: no owner knows whom it means.
    pub(super) fn meet_at_fence(&mut self, all_know: bool, handle: u32) -> Result<(), OperationError> {
        let has_fabric = self.store.all().windows.get(handle).is_some_and(|window| window.has_fabric);
        if !has_fabric {
            return self.barrier(comm_of(handle));
        }
        let mut untold = [0u8];
        self.allreduce(&[u8::from(!all_know)], &mut untold, op::Max, comm_of(handle))?;
        if let Some(window) = self.store.all().windows.get(handle) {
            window.has_puts_in_flight |= untold != [0];
        }
        Ok(())
    }

    /// Waits until all members have come to free a window. Returns whether a fabric may still write into the own part: puts of another
    /// member have failed there, and the fabric may have taken a part of them.
    pub(super) fn meet_to_free(&mut self, handle: u32) -> Result<bool, OperationError> {
        let lost: Option<Vec<u8>> = self
            .store
            .all()
            .windows
            .get(handle)
            .filter(|window| window.has_fabric)
            .map(|window| window.targets.iter().map(|target| target.has_lost_put.into()).collect());
        let Some(lost) = lost else { return self.barrier(comm_of(handle)).map(|()| false) };
        // If there are too few rows, nobody is told anything, and the call can be made again.
        let theirs = self.tell_each("win_free", comm_of(handle), &lost, &mut Vec::new())?;
        Ok(theirs.contains(&1))
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use crate::Engine;
    use crate::testing::Board;
    use std::time::Duration;
    use tickwire_components::Window;
    use tickwire_transports::ofi::{Choice, Library};

    #[test]
    fn a_member_that_cannot_tell_an_owner_tells_all_members_of_a_fence() {
        if Library::get().is_err() {
            return;
        }
        let board = Board::new(2);
        std::thread::scope(|threads| {
            for rank in 0..2 {
                let board = &board;
                threads.spawn(move || {
                    let builder = Engine::builder().ofi(Choice { contexts: Some(1), ..Choice::default() });
                    let builder = builder.include(["loopback", "ofi:tcp;ofi_rxm"]);
                    let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                    let window: Window<u64> = engine.win_allocate(1, engine.comm_world()).unwrap();
                    engine.meet_at_fence(true, window.handle).unwrap();
                    assert!(engine.win_exclusive(window).is_ok());
                    engine.meet_at_fence(rank == 0, window.handle).unwrap();
                    assert!(engine.win_exclusive(window).is_err(), "{rank}");
                    engine.meet_at_fence(true, window.handle).unwrap();
                    assert!(engine.win_exclusive(window).is_err(), "{rank}: for good");
                    engine.finalize(Duration::from_secs(20)).unwrap();
                });
            }
        });
    }
}
