//! Flushes: waiting until the operations of this proc are done, within an epoch or at its end, and what has failed of them.

use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::Engine;
use std::sync::atomic::{Ordering, fence};
use tickwire_components::{Rank, VcState, Window, WindowError};
use tickwire_systems::procs::windows::regions::REGIONS;
use tickwire_systems::procs::windows::{Access, Failure, Target};

impl Engine {
    /// Waits until all operations on a rank's part are done there (`MPI_Win_flush`).
    ///
    /// # Errors
    /// There is no such window or rank, no epoch is open towards the rank, or one of the operations has failed: the first that did. Once
    /// the rank has failed, each flush of it is an error.
    #[inline]
    pub fn win_flush<T>(&mut self, rank: Rank, window: Window<T>) -> Result<(), WindowError> {
        // The frequent case, without a result that may be an error: operations in memory are done when they return.
        if !self.is_look_due()
            && self.is_quick()
            && let Some((target, _)) = self.near::<u8>(rank, 0, window.handle)
            && order(target)
        {
            return Ok(());
        }
        self.flush_slowly(rank, window.handle)
    }

    #[inline(never)]
    fn flush_slowly(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        self.told(OneSidedCall::towards("win_flush", rank, handle), |engine| {
            engine.look_if_due();
            engine.check_epoch(rank, handle)?;
            engine.flush_target(rank, handle)
        })
    }

    /// As [`Engine::win_flush`], of all ranks (`MPI_Win_flush_all`).
    ///
    /// # Errors
    /// As [`Engine::win_flush`]; an epoch towards one rank will do. A rank that has failed counts only if an epoch is open towards it and
    /// it was the target of an operation on the window before.
    pub fn win_flush_all<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("win_flush_all", window.handle), |engine| {
            engine.look_now_and_then();
            engine.check_epochs(window.handle, "win_flush_all")?;
            engine.flush_window(window.handle)
        })
    }

    /// Waits until the buffers of all operations on a rank's part may be used again (`MPI_Win_flush_local`). Only operations with
    /// requests can leave a buffer in use: all others return once their buffer is free.
    ///
    /// # Errors
    /// As [`Engine::win_flush`].
    pub fn win_flush_local<T>(&mut self, rank: Rank, window: Window<T>) -> Result<(), WindowError> {
        self.told(OneSidedCall::towards("win_flush_local", rank, window.handle), |engine| {
            engine.look_now_and_then();
            engine.check_epoch(rank, window.handle)?;
            engine.wait_sent(window.handle, rank)
        })
    }

    /// As [`Engine::win_flush_local`], of all ranks (`MPI_Win_flush_local_all`).
    ///
    /// # Errors
    /// As [`Engine::win_flush_all`].
    pub fn win_flush_local_all<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("win_flush_local_all", window.handle), |engine| {
            engine.look_now_and_then();
            engine.flush_local_all(window.handle)
        })
    }

    fn flush_local_all(&mut self, handle: u32) -> Result<(), WindowError> {
        self.check_epochs(handle, "win_flush_local_all")?;
        let mut ended = Ok(());
        for rank in 0..self.window(handle)?.targets.len() as u32 {
            if !self.is_unused(Rank(rank), handle)? {
                ended = ended.and(self.wait_sent(handle, Rank(rank)));
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
        self.take_failure(rank, handle)
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

    /// The error of a failure of an operation on a target that was not told yet, or of the target itself.
    pub(super) fn take_failure(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        let target = self.target(rank, handle)?;
        // Operations on regions of a proc that has failed are errors by themselves, and no epoch of regions could leave that proc out.
        let failure = if handle == REGIONS { target.failure.take() } else { target.take_failure() };
        failure.map_or(Ok(()), |failure| Err(self.failed(failure, rank, handle)))
    }

    /// Takes the failures of operations on a window that were not told yet, and those of targets: their ranks, and how they have failed.
    pub(super) fn take_failures(&mut self, handle: u32) -> Result<Vec<(Rank, Failure)>, WindowError> {
        let mut failures = Vec::new();
        for rank in (0..self.window(handle)?.targets.len() as u32).map(Rank) {
            if self.target(rank, handle)?.failure.is_some() && !self.is_unused(rank, handle)? {
                failures.extend(self.target(rank, handle)?.take_failure().map(|failure| (rank, failure)));
            }
        }
        Ok(failures)
    }

    /// Gives failures back that were taken and not told.
    pub(super) fn put_back(
        &mut self,
        failures: impl IntoIterator<Item = (Rank, Failure)>,
        handle: u32,
    ) -> Result<(), WindowError> {
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

    /// Whether a member has failed of which nothing was asked, or towards which no epoch is open. A flush of all ranks does not fail
    /// because of it.
    fn is_unused(&mut self, rank: Rank, handle: u32) -> Result<bool, WindowError> {
        let Target { issued, vc, access, .. } = *self.target(rank, handle)?;
        let vc = self.store.all().vcs.get(vc as usize);
        Ok((issued == 0 || access == Access::None) && vc.is_some_and(|vc| vc.state == VcState::Failed))
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
        self.take_failure(rank, handle)
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
    pub(super) fn check_epochs(&mut self, handle: u32, what: &'static str) -> Result<(), WindowError> {
        let is_open = self.window(handle)?.targets.iter().any(|target| target.access != Access::None);
        if is_open { Ok(()) } else { Err(WindowError::NoEpochs(what)) }
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
