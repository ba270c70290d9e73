//! Epochs that an origin opens by itself (passive target): locks.

use super::remote::RemoteMove;
use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::Engine;
use tickwire_components::{LockKind, Rank, RemoteKind, Window, WindowError};
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_systems::procs::windows::{Access, Epochs, Failure, hold_of};

/// What there is to end before a lock.
const OTHERS: &str = "an access epoch is started";

impl Engine {
    /// Opens an epoch towards a rank by locking its part of a window, alone or with others (`MPI_Win_lock`). Waits for the lock.
    ///
    /// # Errors
    /// An epoch towards the rank is open, or a member that holds the lock has failed.
    #[inline]
    pub fn win_lock<T>(&mut self, kind: LockKind, rank: Rank, window: Window<T>) -> Result<(), WindowError> {
        // The frequent case: it is in reach, and free.
        if self.is_quick()
            && window.handle != REGIONS
            && let Some(row) = self.store.all().windows.get(window.handle)
            && !row.epochs.started
            && let Some(target) = row.targets.get_mut(rank.0 as usize)
            && target.access == Access::None
            && target.locks().is_some_and(|part| part.try_lock(hold_of(kind)).is_ok())
        {
            target.access = Access::Locked(kind);
            row.epochs.locked += 1;
            return Ok(());
        }
        self.lock_slowly(kind, rank, window.handle)
    }

    #[inline(never)]
    fn lock_slowly(&mut self, kind: LockKind, rank: Rank, handle: u32) -> Result<(), WindowError> {
        self.told(OneSidedCall::towards("win_lock", rank, handle), |engine| engine.lock_rank(kind, rank, handle))
    }

    fn lock_rank(&mut self, kind: LockKind, rank: Rank, handle: u32) -> Result<(), WindowError> {
        self.begin_lock(rank, handle, "win_lock")?;
        self.take_lock(kind, rank, handle)?;
        let row = self.window(handle)?;
        row.epochs.locked += 1;
        row.targets[rank.0 as usize].access = Access::Locked(kind);
        Ok(())
    }

    /// Ends the epoch of [`Engine::win_lock`] (`MPI_Win_unlock`): all its operations are done at the target.
    ///
    /// # Errors
    /// There is none, or one of its operations has failed, or the rank. The epoch has ended all the same.
    #[inline]
    pub fn win_unlock<T>(&mut self, rank: Rank, window: Window<T>) -> Result<(), WindowError> {
        // The frequent case: all is done, and giving the lock back orders it before what the next holder does.
        if !self.is_look_due()
            && self.is_quick()
            && let Some(row) = self.store.all().windows.get(window.handle)
            && !row.epochs.all_locked
            && let Some(target) = row.targets.get_mut(rank.0 as usize)
            && let Access::Locked(kind) = target.access
            && target.issued == target.completed
            && target.failure.is_none()
            && let Some(part) = target.locks()
        {
            part.unlock(hold_of(kind));
            target.access = Access::None;
            row.epochs.locked -= 1;
            return Ok(());
        }
        self.unlock_slowly(rank, window.handle)
    }

    #[inline(never)]
    fn unlock_slowly(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        self.told(OneSidedCall::towards("win_unlock", rank, handle), |engine| {
            engine.look_if_due();
            engine.unlock_rank(rank, handle)
        })
    }

    fn unlock_rank(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        let nothing = WindowError::NothingOpen { what: "win_unlock", needed: "win_lock of the rank" };
        let all_locked = self.window(handle)?.epochs.all_locked;
        let Access::Locked(kind) = self.target(rank, handle)?.access else { return Err(nothing) };
        if all_locked {
            return Err(nothing);
        }
        let flushed = self.flush_target(rank, handle);
        let unlocked = self.tell_lost(rank, handle).and_then(|()| self.give_lock(kind, rank, handle));
        let row = self.window(handle)?;
        row.epochs.locked -= 1;
        row.targets[rank.0 as usize].access = Access::None;
        flushed.and(unlocked)
    }

    /// Opens an epoch towards all ranks, whose parts it locks with others (`MPI_Win_lock_all`).
    ///
    /// # Errors
    /// Another epoch is open, or a member has failed; nothing is locked then.
    pub fn win_lock_all<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("win_lock_all", window.handle), |engine| engine.lock_all(window.handle))
    }

    fn lock_all(&mut self, handle: u32) -> Result<(), WindowError> {
        let row = self.window(handle)?;
        let ranks = row.targets.len() as u32;
        if row.epochs.locked > 0 {
            return Err(WindowError::EpochOpen { what: "win_lock_all", open: "a rank is locked" });
        }
        for rank in 0..ranks {
            self.begin_lock(Rank(rank), handle, "win_lock_all")?;
        }
        for rank in 0..ranks {
            if let Err(error) = self.take_lock(LockKind::Shared, Rank(rank), handle) {
                for rank in 0..rank {
                    let _ = self.give_lock(LockKind::Shared, Rank(rank), handle);
                }
                return Err(error);
            }
        }
        let row = self.window(handle)?;
        row.epochs.all_locked = true;
        row.targets.iter_mut().for_each(|target| target.access = Access::Locked(LockKind::Shared));
        Ok(())
    }

    /// Ends the epoch of [`Engine::win_lock_all`] (`MPI_Win_unlock_all`).
    ///
    /// # Errors
    /// There is none, or one of its operations has failed, or a rank that was the target of operations on the window: the first that did.
    /// The epoch has ended all the same.
    pub fn win_unlock_all<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("win_unlock_all", window.handle), |engine| {
            engine.look_now_and_then();
            engine.unlock_all(window.handle)
        })
    }

    fn unlock_all(&mut self, handle: u32) -> Result<(), WindowError> {
        let row = self.window(handle)?;
        if !std::mem::take(&mut row.epochs.all_locked) {
            return Err(WindowError::NothingOpen { what: "win_unlock_all", needed: "win_lock_all" });
        }
        let ranks = row.targets.len() as u32;
        let mut ended = self.flush_window(handle);
        for rank in 0..ranks {
            let unlocked = self.tell_lost(Rank(rank), handle);
            let unlocked = unlocked.and_then(|()| self.give_lock(LockKind::Shared, Rank(rank), handle));
            ended = ended.and(unlocked);
            self.window(handle)?.targets[rank as usize].access = Access::None;
        }
        ended
    }

    /// Checks that a rank may be locked now. Ends the epoch of a fence if that had no operations.
    #[inline(always)]
    fn begin_lock(&mut self, rank: Rank, handle: u32, what: &'static str) -> Result<(), WindowError> {
        let access = self.target(rank, handle)?.access;
        if access != Access::None {
            self.leave_fence(handle, what)?;
        }
        if self.window(handle)?.epochs.started {
            return Err(WindowError::EpochOpen { what, open: OTHERS });
        }
        Ok(())
    }

    /// Ends the epoch of a fence, if nothing was done in it.
    #[cold]
    pub(super) fn leave_fence(&mut self, handle: u32, what: &'static str) -> Result<(), WindowError> {
        let row = self.window(handle)?;
        if row.epochs.all_locked {
            return Err(WindowError::EpochOpen { what, open: "all ranks are locked" });
        }
        if !row.epochs.fence {
            return Err(WindowError::EpochOpen { what, open: "the rank is locked, or an access epoch is started" });
        }
        if row.targets.iter().map(|target| target.issued).sum::<u64>() != row.epochs.fenced {
            let open = "a fence's epoch has operations (win_fence_last ends it)";
            return Err(WindowError::EpochOpen { what, open });
        }
        row.epochs.fence = false;
        row.targets.iter_mut().for_each(|target| target.access = Access::None);
        Ok(())
    }

    /// Takes a lock, once it is free.
    #[inline(always)]
    fn take_lock(&mut self, kind: LockKind, rank: Rank, handle: u32) -> Result<(), WindowError> {
        match self.try_lock(kind, rank, handle)? {
            true => Ok(()),
            false => self.wait_for_lock(kind, rank, handle),
        }
    }

    /// Takes a lock in reach, if it is free.
    #[inline(always)]
    fn try_lock(&mut self, kind: LockKind, rank: Rank, handle: u32) -> Result<bool, WindowError> {
        let locks = self.target(rank, handle)?.locks();
        Ok(locks.is_some_and(|part| part.try_lock(hold_of(kind)).is_ok()))
    }

    #[inline(never)]
    fn wait_for_lock(&mut self, kind: LockKind, rank: Rank, handle: u32) -> Result<(), WindowError> {
        let since_ns = self.waits_since();
        self.store.all().windows.awaited = Some((handle, rank.0));
        let taken = self.wait_until_locked(kind, rank, handle);
        self.store.all().windows.awaited = None;
        if let Some(since_ns) = since_ns {
            self.tell_access(OneSidedCall::towards("wait for lock", rank, handle), since_ns);
        }
        taken
    }

    fn wait_until_locked(&mut self, kind: LockKind, rank: Rank, handle: u32) -> Result<(), WindowError> {
        if self.target(rank, handle)?.locks().is_none() {
            return self.run_answered(RemoteKind::Lock(kind), &[RemoteMove::NONE], (rank, handle));
        }
        let mut failed = Ok(());
        self.wait_on_memory(|engine| {
            let all = engine.store.all();
            let Some(window) = all.windows.get(handle) else { return true };
            let target = &window.targets[rank.0 as usize];
            let Some(part) = target.locks() else { return true };
            if part.try_lock(hold_of(kind)).is_ok() {
                return true;
            }
            if let Some(member) = part.dead_holder(|member| window.is_dead(all.vcs, member)) {
                failed = Err(Failure::HolderFailed(member));
            }
            failed.is_err()
        })?;
        failed.map_err(|failure| self.failed(failure, rank, handle))
    }

    /// Gives a lock back.
    #[inline(always)]
    fn give_lock(&mut self, kind: LockKind, rank: Rank, handle: u32) -> Result<(), WindowError> {
        if let Some(part) = self.target(rank, handle)?.locks() {
            part.unlock(hold_of(kind));
            return Ok(());
        }
        self.run_answered(RemoteKind::Unlock(kind), &[RemoteMove::NONE], (rank, handle))
    }

    /// Which epochs of a window are open.
    pub(super) fn epochs(&mut self, handle: u32) -> Result<Epochs, WindowError> {
        Ok(self.window(handle)?.epochs)
    }
}
