//! Flushes of operations on exposed memory.

use crate::observe::one_sided::OneSidedCall;
use crate::run::engine::Engine;
use tickwire_components::{ProcId, Rank, WindowError};
use tickwire_systems::procs::windows::regions::REGIONS;

impl Engine {
    /// Waits until all operations so far on regions of a proc are done at that proc.
    ///
    /// # Errors
    /// The first error among these operations, for example a stale key.
    pub fn region_flush(&mut self, proc: ProcId) -> Result<(), WindowError> {
        self.told(OneSidedCall::towards("region_flush", Rank(proc.0), REGIONS), |engine| {
            engine.closed.check_post()?;
            engine.look_now_and_then();
            match engine.known_target(proc) {
                Some(target) => engine.flush_target(Rank(target), REGIONS),
                None => Ok(()),
            }
        })
    }

    /// As [`Engine::region_flush`], of all procs.
    ///
    /// # Errors
    /// As [`Engine::region_flush`].
    pub fn region_flush_all(&mut self) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("region_flush_all", REGIONS), Engine::flush_all_regions)
    }

    fn flush_all_regions(&mut self) -> Result<(), WindowError> {
        self.closed.check_post()?;
        self.look_now_and_then();
        let targets = self.store.all().windows.get(REGIONS).map_or(0, |row| row.targets.len() as u32);
        let mut ended = Ok(());
        for target in 0..targets {
            ended = ended.and(self.flush_target(Rank(target), REGIONS));
        }
        ended
    }

    /// Waits until the buffers of all operations so far on regions of a proc may be used again. That concerns operations with requests:
    /// other calls return only then anyway.
    ///
    /// # Errors
    /// As [`Engine::region_flush`], for operations that are known to have failed by then.
    pub fn region_flush_local(&mut self, proc: ProcId) -> Result<(), WindowError> {
        self.told(OneSidedCall::towards("region_flush_local", Rank(proc.0), REGIONS), |engine| {
            engine.closed.check_post()?;
            match engine.known_target(proc) {
                Some(target) => engine.wait_sent(REGIONS, Rank(target)),
                None => Ok(()),
            }
        })
    }

    /// As [`Engine::region_flush_local`], of all procs.
    ///
    /// # Errors
    /// As [`Engine::region_flush_local`].
    pub fn region_flush_local_all(&mut self) -> Result<(), WindowError> {
        self.told(OneSidedCall::on("region_flush_local_all", REGIONS), Engine::flush_all_regions_locally)
    }

    fn flush_all_regions_locally(&mut self) -> Result<(), WindowError> {
        self.closed.check_post()?;
        let targets = self.store.all().windows.get(REGIONS).map_or(0, |row| row.targets.len() as u32);
        let mut ended = Ok(());
        for target in 0..targets {
            ended = ended.and(self.region_flush_local(ProcId(target)));
        }
        ended
    }
}
