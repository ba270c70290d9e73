//! Changes to the world: spawning rows, and giving the whole world to code of the application. After either, a check follows whether the
//! world is still the engine's.

use super::addresses::TABLES;
use super::guard::{Table, words_of};
use super::{Store, StoreMut};
use bevy_ecs::schedule::Schedule;
use bevy_ecs::world::World;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tickwire_components::{PostError, posting};

impl Store {
    /// See [`StoreMut::verify`].
    ///
    /// # Errors
    /// As there.
    pub fn verify(&mut self) -> Result<(), String> {
        self.as_mut().verify()
    }

    /// See [`StoreMut::change`].
    ///
    /// # Errors
    /// As there.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut World) -> R) -> Result<R, PostError> {
        self.as_mut().change(change)
    }

    /// Runs a schedule over the world, with systems of the application. Then checks whether the world is still the engine's.
    ///
    /// # Errors
    /// The payload of a system's panic.
    pub fn run(&mut self, schedule: &mut Schedule) -> std::thread::Result<()> {
        let ran = catch_unwind(AssertUnwindSafe(|| schedule.run(&mut self.world)));
        if self.lost().is_none()
            && let Err(words) = self.verify()
        {
            return ran.and(Err(Box::new(words)));
        }
        ran
    }
}

impl StoreMut<'_> {
    /// Takes the column addresses of a world that is known to be the engine's. Its numbers of rows become the expected ones.
    pub(super) fn accept(&mut self) -> [usize; TABLES] {
        let mut state = self.shared.guard.lock();
        state.counts = state.refresh(self.shared, self.world);
        state.counts
    }

    /// Checks whether the world and its tables are still the engine's, after code of the application had them, and takes all addresses
    /// anew. If they are not, another world replaces them: one without procs, transports and operations, and closed. The transports are
    /// closed, and the buffers of the operations are never touched again.
    ///
    /// # Errors
    /// What the application has done, in words.
    pub fn verify(&mut self) -> Result<(), String> {
        let mut state = self.shared.guard.lock();
        if let Some(words) = &state.lost {
            return Err(words.clone());
        }
        let Err(words) = state.check(self.shared, self.world) else { return Ok(()) };
        state.replace(self.shared, self.world, words.clone());
        drop(state);
        self.progress().posting |= posting::CLOSED;
        Err(words)
    }

    /// Lends the world to code of the application. Then checks whether the world is still the engine's.
    ///
    /// # Errors
    /// As [`StoreMut::verify`].
    pub fn lend<R>(&mut self, run: impl FnOnce(&mut World) -> R) -> Result<R, String> {
        let result = run(self.world);
        self.verify().map(|()| result)
    }

    /// Spawns `count` rows of a table. Then checks that hooks and observers of the application, which run here, have not moved rows.
    ///
    /// # Errors
    /// If they have moved rows, or have panicked: the world is lost.
    pub(super) fn spawn_checked(
        &mut self,
        table: Table,
        count: usize,
        spawn: impl FnOnce(&mut World),
    ) -> Result<(), PostError> {
        if let Some(words) = self.lost() {
            return Err(PostError::Poisoned(words));
        }
        let spawned = catch_unwind(AssertUnwindSafe(|| {
            spawn(self.world);
            self.world.flush();
        }));
        let mut state = self.shared.guard.lock();
        state.counts[table as usize] += count;
        let checked = match spawned {
            Ok(()) => state.check(self.shared, self.world),
            Err(panic) => Err(format!("a hook or an observer of the application has panicked: {}", words_of(&*panic))),
        };
        let Err(words) = checked else { return Ok(()) };
        state.replace(self.shared, self.world, words.clone());
        drop(state);
        self.progress().posting |= posting::CLOSED;
        Err(PostError::Poisoned(words))
    }

    /// As `spawn_checked`, for any other change that runs hooks and observers of the application.
    ///
    /// # Errors
    /// As there.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut World) -> R) -> Result<R, PostError> {
        let mut result = None;
        self.spawn_checked(Table::One, 0, |world| result = Some(change(world)))?;
        result.ok_or(PostError::Finalized)
    }
}
