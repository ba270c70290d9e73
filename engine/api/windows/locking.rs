//! Epochs that an origin opens by itself (passive target): locks, and flushes within them.

use super::remote::RemoteMove;
use crate::run::engine::{Closed, Engine};
use std::sync::atomic::{Ordering, fence};
use tickwire_components::{LockKind, Rank, RemoteKind, VcState, Window, WindowError};
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_systems::procs::windows::{Access, Epochs, Failure, Target, hold_of};

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
        if self.closed == Closed::No
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
    /// There is none, or one of its operations has failed.
    #[inline]
    pub fn win_unlock<T>(&mut self, rank: Rank, window: Window<T>) -> Result<(), WindowError> {
        // The frequent case: all is done, and giving the lock back orders it before what the next holder does.
        if self.closed == Closed::No
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
        let nothing = WindowError::NothingOpen { what: "win_unlock", needed: "win_lock of the rank" };
        let all_locked = self.window(handle)?.epochs.all_locked;
        let Access::Locked(kind) = self.target(rank, handle)?.access else { return Err(nothing) };
        if all_locked {
            return Err(nothing);
        }
        let flushed = self.flush_target(rank, handle);
        let unlocked = self.give_lock(kind, rank, handle);
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
        let handle = window.handle;
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
    /// There is none, or one of its operations has failed: the first that did. The epoch has ended all the same.
    pub fn win_unlock_all<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        let handle = window.handle;
        let row = self.window(handle)?;
        if !std::mem::take(&mut row.epochs.all_locked) {
            return Err(WindowError::NothingOpen { what: "win_unlock_all", needed: "win_lock_all" });
        }
        let ranks = row.targets.len() as u32;
        let mut ended = self.flush_window(handle);
        for rank in 0..ranks {
            ended = ended.and(self.give_lock(LockKind::Shared, Rank(rank), handle));
            self.window(handle)?.targets[rank as usize].access = Access::None;
        }
        ended
    }

    /// Waits until all operations on a rank's part are done there (`MPI_Win_flush`).
    ///
    /// # Errors
    /// There is no such window or rank, no epoch is open towards the rank, or one of the operations has failed: the first that did.
    #[inline]
    pub fn win_flush<T>(&mut self, rank: Rank, window: Window<T>) -> Result<(), WindowError> {
        // The frequent case, without a result that may be an error: operations in memory are done when they return.
        if let Some((target, _)) = self.near::<u8>(rank, 0, window.handle)
            && order(target)
        {
            return Ok(());
        }
        self.check_epoch(rank, window.handle)?;
        self.flush_target(rank, window.handle)
    }

    /// As [`Engine::win_flush`], of all ranks (`MPI_Win_flush_all`).
    ///
    /// # Errors
    /// As [`Engine::win_flush`]; an epoch towards one rank will do.
    pub fn win_flush_all<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.check_epochs(window.handle, "win_flush_all")?;
        self.flush_window(window.handle)
    }

    /// Waits until the buffers of all operations on a rank's part may be used again (`MPI_Win_flush_local`). Only operations with
    /// requests can leave a buffer in use: all others return once their buffer is free.
    ///
    /// # Errors
    /// As [`Engine::win_flush`].
    pub fn win_flush_local<T>(&mut self, rank: Rank, window: Window<T>) -> Result<(), WindowError> {
        self.check_epoch(rank, window.handle)?;
        self.wait_sent(window.handle, rank)
    }

    /// As [`Engine::win_flush_local`], of all ranks (`MPI_Win_flush_local_all`).
    ///
    /// # Errors
    /// As [`Engine::win_flush_all`].
    pub fn win_flush_local_all<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.check_epochs(window.handle, "win_flush_local_all")?;
        let mut ended = Ok(());
        for rank in 0..self.window(window.handle)?.targets.len() as u32 {
            if !self.is_unused(Rank(rank), window.handle)? {
                ended = ended.and(self.wait_sent(window.handle, Rank(rank)));
            }
        }
        ended
    }

    /// Orders what this proc reads and writes in its own part with what others did there (`MPI_Win_sync`).
    ///
    /// # Errors
    /// There is no such window.
    pub fn win_sync<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.window(window.handle)?;
        fence(Ordering::SeqCst);
        Ok(())
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
        self.store.all().windows.awaited = Some((handle, rank.0));
        let taken = self.wait_until_locked(kind, rank, handle);
        self.store.all().windows.awaited = None;
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

    /// Waits until all operations on a rank's part are done there.
    #[inline(always)]
    pub(crate) fn flush_target(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        if order(self.target(rank, handle)?) {
            return Ok(());
        }
        self.wait_flushed(rank, handle)
    }

    #[inline(never)]
    fn wait_flushed(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        self.wait_done(rank, handle)?;
        match self.target(rank, handle)?.failure.take() {
            Some(failure) => Err(self.failed(failure, rank, handle)),
            None => Ok(()),
        }
    }

    /// As [`Engine::flush_target`], but leaves a failure of an operation at the target.
    pub(super) fn complete_target(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        match order(self.target(rank, handle)?) {
            true => Ok(()),
            false => self.wait_done(rank, handle),
        }
    }

    fn wait_done(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        // Operations that are posted later are not waited for.
        let issued = self.target(rank, handle)?.issued;
        self.await_mail(rank, handle)?;
        if self.target(rank, handle)?.by_fabric > 0 {
            self.flush_fabric(rank, handle)?;
        }
        // The first look costs no more than itself: most flushes find all done.
        self.wait_at_once(|engine| engine.target(rank, handle).map_or(true, |target| target.completed >= issued))?;
        self.let_go();
        Ok(())
    }

    /// Waits until all operations on a window are done.
    pub(super) fn flush_window(&mut self, handle: u32) -> Result<(), WindowError> {
        let done = self.complete_window(handle);
        let failures = self.take_failures(handle)?;
        done.and(self.first_of(failures, handle))
    }

    /// As [`Engine::flush_window`], but leaves failures of operations at their targets.
    pub(super) fn complete_window(&mut self, handle: u32) -> Result<(), WindowError> {
        fence(Ordering::SeqCst);
        let mut ended = Ok(());
        for rank in 0..self.window(handle)?.targets.len() as u32 {
            let Target { issued, completed, .. } = self.window(handle)?.targets[rank as usize];
            if issued != completed {
                ended = ended.and(self.wait_done(Rank(rank), handle));
            }
        }
        ended
    }

    /// Takes the failures of operations on a window that were not told yet: the ranks of their targets, and how they have failed.
    pub(super) fn take_failures(&mut self, handle: u32) -> Result<Vec<(Rank, Failure)>, WindowError> {
        let mut failures = Vec::new();
        for rank in (0..self.window(handle)?.targets.len() as u32).map(Rank) {
            if self.target(rank, handle)?.failure.is_some() && !self.is_unused(rank, handle)? {
                failures.extend(self.target(rank, handle)?.failure.take().map(|failure| (rank, failure)));
            }
        }
        Ok(failures)
    }

    /// Gives failures back that were taken and not told.
    pub(super) fn put_back(&mut self, failures: Vec<(Rank, Failure)>, handle: u32) -> Result<(), WindowError> {
        for (rank, failure) in failures {
            self.target(rank, handle)?.failure.get_or_insert(failure);
        }
        Ok(())
    }

    /// The error of the first failure.
    pub(super) fn first_of(&mut self, failures: Vec<(Rank, Failure)>, handle: u32) -> Result<(), WindowError> {
        let first = failures.into_iter().next();
        first.map_or(Ok(()), |(rank, failure)| Err(self.failed(failure, rank, handle)))
    }

    /// Whether a member has failed of which nothing was asked. A flush of all ranks does not fail because of it.
    fn is_unused(&mut self, rank: Rank, handle: u32) -> Result<bool, WindowError> {
        let Target { issued, vc, .. } = *self.target(rank, handle)?;
        let vc = self.store.all().vcs.get(vc as usize);
        Ok(issued == 0 && vc.is_some_and(|vc| vc.state == VcState::Failed))
    }

    /// Waits until the buffers of all operations posted on a rank's part so far may be used again. That includes all gets.
    pub(crate) fn wait_sent(&mut self, handle: u32, rank: Rank) -> Result<(), WindowError> {
        // This flush does not cover operations that are posted later.
        let last = self.store.all().windows.next;
        self.wait_at_once(|engine| {
            let windows = &mut *engine.store.all().windows;
            let by_fabric = windows.by_fabric.iter();
            let is_meant = |number: u64| number <= last;
            let mut at_fabric = by_fabric.filter(|operation| (operation.handle, operation.target) == (handle, rank.0));
            if at_fabric.any(|operation| is_meant(operation.number)) {
                return false;
            }
            let Some(window) = windows.get(handle) else { return true };
            let mut posted = window.targets[rank.0 as usize].operations.iter();
            posted.all(|operation| match &operation.batch {
                // What it brings is a copy.
                Some(batch) => batch.parts.iter().all(|part| !is_meant(part.number) || part.into.is_empty()),
                None => !is_meant(operation.number) || operation.all_sent && operation.into.is_empty(),
            })
        })?;
        match self.target(rank, handle)?.failure.take() {
            Some(failure) => Err(self.failed(failure, rank, handle)),
            None => Ok(()),
        }
    }

    /// Whether an epoch is open towards a rank.
    #[inline(always)]
    fn check_epoch(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        match self.target(rank, handle)?.access {
            Access::None => Err(WindowError::NoEpoch(rank)),
            _ => Ok(()),
        }
    }

    /// Whether an epoch is open towards any rank.
    fn check_epochs(&mut self, handle: u32, what: &'static str) -> Result<(), WindowError> {
        let is_open = self.window(handle)?.targets.iter().any(|target| target.access != Access::None);
        if is_open { Ok(()) } else { Err(WindowError::NoEpochs(what)) }
    }
}

impl Engine {
    /// Which epochs of a window are open.
    pub(super) fn epochs(&mut self, handle: u32) -> Result<Epochs, WindowError> {
        Ok(self.window(handle)?.epochs)
    }
}

/// Orders what was put into a part, and what was got from it, before all that this process reads later. Returns whether all operations on
/// the part are done, and none has failed.
#[inline(always)]
fn order(target: &mut Target) -> bool {
    if target.ordered == target.issued {
        // There were only gets. Some processors need an instruction for that, x86-64 none.
        fence(Ordering::Acquire);
    } else {
        fence(Ordering::SeqCst);
        target.ordered = target.issued;
    }
    target.issued == target.completed && target.failure.is_none()
}
