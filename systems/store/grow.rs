//! Grows tables, up to their bounds. Rows may move, so this happens between passes only.

use super::StoreMut;
use super::guard::Table;
use super::spawn::{link_free, spawn_cars, spawn_rows};
#[cfg(any(test, feature = "testing"))]
use crate::procs::endpoint::Endpoint;
use crate::steps::credit::buffers_granted;
use bevy_ecs::prelude::*;
use tickwire_components::limits;
use tickwire_components::{Buffer, Communicator, PostError, Row, Supply, Vc};

impl StoreMut<'_> {
    /// Spawns a contacted proc. Returns its row, which is the number of contacted procs before it.
    ///
    /// # Errors
    /// If the world is lost: see [`StoreMut::verify`].
    pub fn spawn_proc(&mut self, proc: u32, endpoint: u8) -> Result<Row, PostError> {
        let row = self.all().vcs.len() as Row;
        self.spawn_checked(Table::Vcs, 1, |world| {
            world.spawn(Vc::new(proc, endpoint));
        })?;
        Ok(row)
    }

    /// Spawns an endpoint, for an engine that is built by hand. Returns its row.
    ///
    /// # Errors
    /// As [`StoreMut::spawn_proc`].
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn spawn_endpoint(&mut self, mut endpoint: Endpoint) -> Result<Row, PostError> {
        let row = self.all().endpoints.len() as Row;
        // SAFETY: used when the world is lost, and no reference to a row lives.
        #[expect(unsafe_code, reason = "a second way to a transport")]
        self.shared.guard.add_transport(unsafe { endpoint.transport.get().second() });
        self.spawn_checked(Table::Endpoints, 1, |world| {
            world.spawn(endpoint);
        })?;
        Ok(row)
    }

    /// Doubles the CAR rows, up to their bound. `false` if the bound is reached, or the world is lost.
    pub fn grow(&mut self) -> bool {
        let all = self.all();
        let cars = all.cars.len();
        let most = all.limits.0.cars_max;
        let more = cars.min(most.saturating_sub(cars));
        let generation = all.requests[0].generation;
        if self.spawn_checked(Table::Cars, more, |world| spawn_cars(world, more, generation)).is_err() {
            return false;
        }
        let all = self.all();
        link_free(&mut all.progress.free_cars, all.cars, cars);
        all.progress.stamps.grow(all.cars.len());
        all.progress.rows_exhausted = cars + more == most;
        more > 0
    }

    /// Spawns communicator rows until there are at least `rows`, up to their bound.
    pub fn grow_communicators(&mut self, rows: usize) {
        let there = self.all().communicators.len();
        if rows > there {
            let target = rows.max(2 * there).min(limits::CONTEXTS_MAX);
            let more = target.saturating_sub(there);
            let spawn = |world: &mut World| spawn_rows(world, more, |_| Communicator::FREE);
            // After a failure the rows are missing, which callers check.
            let _ = self.spawn_checked(Table::Communicators, more, spawn);
        }
    }

    /// Doubles the buffer rows, up to their bound.
    pub fn grow_buffers(&mut self) {
        let all = self.all();
        let buffers = all.buffers.len();
        let most = all.limits.0.buffers_max.max(buffers_granted(all.progress, all.vcs));
        let more = buffers.min(most.saturating_sub(buffers));
        let spawn = |world: &mut World| spawn_rows(world, more, |_| Buffer::default());
        if self.spawn_checked(Table::Buffers, more, spawn).is_err() {
            return;
        }
        let all = self.all();
        link_free(&mut all.progress.free_buffers[0], all.buffers, buffers);
        all.progress.count_free_buffers(all.buffers.len());
    }

    /// Doubles the supply rows, up to the bound of CAR rows. `false` if the bound is reached, or the world is lost.
    pub fn grow_supplies(&mut self) -> bool {
        let all = self.all();
        let supplies = all.supplies.len();
        let more = supplies.min(all.limits.0.cars_max.saturating_sub(supplies));
        let spawn = |world: &mut World| spawn_rows(world, more, |_| Supply::default());
        if self.spawn_checked(Table::Supplies, more, spawn).is_err() {
            return false;
        }
        let all = self.all();
        link_free(&mut all.progress.free_supplies, all.supplies, supplies);
        more > 0
    }
}
