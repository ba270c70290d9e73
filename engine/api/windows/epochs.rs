//! Epochs in which targets take part (active target): fences, and post, start, complete and wait.
//!
//! A member that posts an exposure epoch sends a message to each origin. A member that completes an access epoch sends one to each
//! target. These messages go in the window's own communicator, in which nobody else sends.

use super::comm_of;
use super::exposure::{Completions, Exposure};
use crate::api::request::OperationError;
use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::Engine;
use tickwire_components::epoch::{COMPLETED, POSTED};
use tickwire_components::{CommError, Group, PostError, ProcId, Rank, Window, WindowError};
use tickwire_systems::procs::windows::Access;

impl Engine {
    /// Ends the epoch of the fence before, if there was one, and begins the next one, towards all ranks (`MPI_Win_fence`). All members call
    /// it, and what each of them did before is done everywhere when it returns.
    ///
    /// # Errors
    /// Another epoch is open, an operation has failed, or a member has. After a member's failure no next epoch has begun, and after
    /// [`PostError::Full`] nothing has changed.
    #[inline]
    pub fn win_fence<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("win_fence", window.handle), |engine| engine.fence(window.handle, true))
    }

    /// As [`Engine::win_fence`], and begins no epoch (`MPI_MODE_NOSUCCEED`).
    ///
    /// # Errors
    /// As [`Engine::win_fence`].
    pub fn win_fence_last<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("win_fence_last", window.handle), |engine| engine.fence(window.handle, false))
    }

    fn fence(&mut self, handle: u32, goes_on: bool) -> Result<(), WindowError> {
        let epochs = self.epochs(handle)?;
        if epochs.all_locked || epochs.locked > 0 || epochs.started || epochs.posted {
            let open = "a rank is locked, or an epoch is started or posted";
            return Err(WindowError::EpochOpen { what: "win_fence", open });
        }
        let done = self.complete_window(handle);
        let failures = self.take_failures(handle)?;
        let all_know = self.tell_all_lost(handle)?;
        // Others may leave the barrier first, and their operations come before this member has left it.
        let exposed = self.window(handle)?.epochs.fence_exposes;
        self.window(handle)?.epochs.fence_exposes |= goes_on;
        // Also after a failure: others wait here.
        let met = self.meet_at_fence(all_know, handle);
        if let Err(error @ OperationError::Post(PostError::Full { .. })) = met {
            // Nobody was told of anything: the call can be made again, and tells of failures then.
            self.window(handle)?.epochs.fence_exposes = exposed;
            self.put_back(failures, handle)?;
            return Err(error.into());
        }
        let flushed = done.and(self.first_of(failures, handle));
        let window = self.window(handle)?;
        // If not all members have met, some may still be in the epoch before, or use their parts alone. So no next epoch begins.
        let (begins, failed) = (goes_on && met.is_ok(), met.is_err());
        if window.epochs.fence != begins {
            let access = if begins { Access::Fence } else { Access::None };
            window.targets.iter_mut().for_each(|target| target.access = access);
            window.epochs.fence = begins;
        }
        window.epochs.fenced = window.targets.iter().map(|target| target.issued).sum();
        window.epochs.fence_exposes = begins || failed && window.epochs.fence_exposes;
        flushed.and(met.map_err(WindowError::from))
    }

    /// Begins an exposure epoch: members of a group may access the own part, once they have started their epochs (`MPI_Win_post`).
    ///
    /// # Errors
    /// An exposure epoch is posted, or the group is not within the window's. If a member of it has failed, the epoch is posted to the
    /// others all the same, and [`Engine::win_wait`] ends it.
    pub fn win_post<T>(&mut self, group: &Group, window: Window<T>) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("win_post", window.handle), |engine| engine.post_exposure(group, window.handle))
    }

    fn post_exposure(&mut self, group: &Group, handle: u32) -> Result<(), WindowError> {
        let epochs = self.epochs(handle)?;
        if epochs.posted {
            return Err(WindowError::EpochOpen { what: "win_post", open: "an exposure epoch is posted" });
        }
        if epochs.fence {
            self.leave_fence(handle, "win_post")?;
        }
        let ranks = self.ranks_of(group, handle)?;
        // For the receives, and for the messages that say that the epoch is posted. After the first of these there is no way back.
        self.need_rows(2 * ranks.len())?;
        let (mut completions, mut ended) = (Vec::with_capacity(ranks.len()), Ok(()));
        for &rank in &ranks {
            match self.irecv([0u8; 0], rank, COMPLETED, comm_of(handle)) {
                Ok(completion) => completions.push((rank, completion)),
                Err(rejected) if matches!(rejected.error, PostError::PeerFailed { .. }) => {
                    ended = ended.and(Err(rejected.error.into()));
                }
                Err(rejected) => {
                    // Nobody was told of the epoch, so the receives would take the messages of the next one.
                    for (_, completion) in completions {
                        let _ = self.cancel(&completion);
                    }
                    return Err(rejected.error.into());
                }
            }
        }
        self.exposures.push(Exposure { handle, completions });
        let row = self.window(handle)?;
        row.epochs.posted = true;
        ranks.iter().for_each(|rank| row.targets[rank.0 as usize].is_admitted = true);
        let mut told = Vec::with_capacity(ranks.len());
        for rank in ranks {
            // Also after a failure: others wait for this. All messages are posted before one is waited for. Otherwise another thread could
            // take the rows of the later ones meanwhile.
            match self.isend([0u8; 0], rank, POSTED, comm_of(handle)) {
                Ok(message) => told.push(message),
                Err(rejected) => ended = ended.and(Err(rejected.error.into())),
            }
        }
        for message in told {
            ended = ended.and(self.wait_take(message).map(drop).map_err(|failed| failed.error.into()));
        }
        ended
    }

    /// Begins an access epoch towards the members of a group (`MPI_Win_start`). Waits until each of them has posted its exposure epoch.
    ///
    /// # Errors
    /// Another epoch is open, or the group is not within the window's. If a member of it has failed, the epoch has begun towards the others
    /// all the same, and [`Engine::win_complete`] ends it.
    pub fn win_start<T>(&mut self, group: &Group, window: Window<T>) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("win_start", window.handle), |engine| engine.start_access(group, window.handle))
    }

    fn start_access(&mut self, group: &Group, handle: u32) -> Result<(), WindowError> {
        let epochs = self.epochs(handle)?;
        if epochs.started || epochs.all_locked || epochs.locked > 0 {
            let open = "a rank is locked, or an access epoch is started";
            return Err(WindowError::EpochOpen { what: "win_start", open });
        }
        if epochs.fence {
            self.leave_fence(handle, "win_start")?;
        }
        let ranks = self.ranks_of(group, handle)?;
        let mut ended = Ok(());
        for rank in ranks {
            if self.target(rank, handle)?.access == Access::Started {
                // Its message was taken by a call that then found no free row.
                continue;
            }
            match self.recv(&mut [0u8; 0], rank, POSTED, comm_of(handle)) {
                Ok(_) => self.target(rank, handle)?.access = Access::Started,
                Err(error @ OperationError::Post(PostError::Full { .. })) => return Err(error.into()),
                Err(error) => ended = ended.and(Err(error.into())),
            }
        }
        // The epoch begins even if a member has failed: those that have posted an epoch wait for its end.
        self.window(handle)?.epochs.started = true;
        ended
    }

    /// Ends the epoch of [`Engine::win_start`] (`MPI_Win_complete`): its operations are done at the targets.
    ///
    /// # Errors
    /// There is none, or an operation or a target has failed: the first that did. The epoch has ended all the same, but after
    /// [`PostError::Full`].
    pub fn win_complete<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("win_complete", window.handle), |engine| engine.complete_access(window.handle))
    }

    fn complete_access(&mut self, handle: u32) -> Result<(), WindowError> {
        if !self.window(handle)?.epochs.started {
            return Err(WindowError::NothingOpen { what: "win_complete", needed: "win_start" });
        }
        let row = self.window(handle)?;
        let started = |target: &Access| *target == Access::Started;
        let ranks: Vec<u32> =
            (0..).zip(&row.targets).filter(|(_, target)| started(&target.access)).map(|(rank, _)| rank).collect();
        let mut ended = Ok(());
        for rank in ranks {
            let done = self.complete_target(Rank(rank), handle);
            let failure = self.target(Rank(rank), handle)?.take_failure();
            let sent = match self.tell_lost(Rank(rank), handle) {
                Ok(()) => self.send(&[0u8; 0], Rank(rank), COMPLETED, comm_of(handle)).map_err(WindowError::from),
                Err(untold) => Err(untold),
            };
            if let Err(error @ WindowError::Post(PostError::Full { .. })) = sent {
                // This target is still to be told, and those behind it.
                self.put_back(failure.map(|failure| (Rank(rank), failure)), handle)?;
                return Err(error);
            }
            self.window(handle)?.targets[rank as usize].access = Access::None;
            let told = failure.map_or(Ok(()), |failure| Err(self.failed(failure, Rank(rank), handle)));
            let flushed = done.and(told);
            ended = ended.and(flushed).and(sent.map(drop));
        }
        self.window(handle)?.epochs.started = false;
        ended
    }

    /// Ends the epoch of [`Engine::win_post`] (`MPI_Win_wait`), once all its origins have completed theirs.
    ///
    /// # Errors
    /// There is none, or an origin has failed. The epoch has ended all the same.
    pub fn win_wait<T>(&mut self, window: Window<T>) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("win_wait", window.handle), |engine| engine.wait_exposure(window.handle))
    }

    fn wait_exposure(&mut self, handle: u32) -> Result<(), WindowError> {
        let completions = self.take_exposure(handle, "win_wait")?;
        let mut ended = Ok(());
        for (rank, completion) in completions {
            if let Err(error) = self.wait(&completion) {
                self.note_lost(rank, handle)?;
                ended = ended.and(Err(error));
            }
        }
        self.end_exposure(handle)?;
        Ok(ended?)
    }

    /// Whether all origins of the epoch of [`Engine::win_post`] have completed theirs (`MPI_Win_test`); if so it has ended. Ticks once if
    /// they have not at first, so a program may call it until it returns `true`.
    ///
    /// # Errors
    /// There is none, or an origin has failed. That is said once; the epoch goes on until all others have completed theirs.
    pub fn win_test<T>(&mut self, window: Window<T>) -> Result<bool, WindowError> {
        let call = OneSidedCall::on("win_test", window.handle);
        // A program may ask often before the epoch has ended.
        let is_worth = |over: &Result<bool, WindowError>| *over != Ok(false);
        self.told_if(call, |engine| engine.test_exposure(window.handle), is_worth)
    }

    fn test_exposure(&mut self, handle: u32) -> Result<bool, WindowError> {
        let completions = self.take_exposure(handle, "win_test")?;
        if completions.iter().any(|(_, completion)| self.state(completion.id()) == Ok(false)) {
            self.tick();
        }
        let mut open = Vec::new();
        let mut ended = Ok(());
        for (rank, completion) in completions {
            match self.test(&completion) {
                Ok(test) if !test.is_done() => open.push((rank, completion)),
                Ok(_) => {}
                Err(error) => {
                    self.note_lost(rank, handle)?;
                    ended = ended.and(Err(error));
                }
            }
        }
        let is_over = open.is_empty();
        match is_over {
            true => self.end_exposure(handle)?,
            // Those that have not failed may still use the part.
            false => self.exposures.push(Exposure { handle, completions: open }),
        }
        ended.map(|()| is_over).map_err(WindowError::from)
    }

    /// Ends the exposure epoch: nobody is admitted any more.
    fn end_exposure(&mut self, handle: u32) -> Result<(), WindowError> {
        let row = self.window(handle)?;
        row.epochs.posted = false;
        row.targets.iter_mut().for_each(|target| target.is_admitted = false);
        Ok(())
    }

    /// Notes an origin that has failed and did not say that it has completed its epoch. See [`Engine::win_exclusive`].
    fn note_lost(&mut self, rank: Rank, handle: u32) -> Result<(), WindowError> {
        self.target(rank, handle)?.is_lost = true;
        Ok(())
    }

    fn take_exposure(&mut self, handle: u32, what: &'static str) -> Result<Completions, WindowError> {
        self.window(handle)?;
        let place = self.exposures.iter().position(|exposure| exposure.handle == handle);
        let place = place.ok_or(WindowError::NothingOpen { what, needed: "win_post" })?;
        Ok(self.exposures.swap_remove(place).completions)
    }

    /// The ranks of a group in a window.
    fn ranks_of(&mut self, group: &Group, handle: u32) -> Result<Vec<Rank>, WindowError> {
        let (row, _) = self.context_of(comm_of(handle));
        let communicator = &self.store.all().communicators[row];
        let rank = |proc| communicator.rank_of(proc).map(Rank).ok_or(proc);
        let ranks: Result<Vec<Rank>, u32> = group.procs().map(rank).collect();
        ranks.map_err(|proc| CommError::NotSubset { proc: ProcId(proc) }.into())
    }
}
