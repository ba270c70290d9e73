//! The store: the world, and the addresses of the columns of its tables.
//!
//! Addresses are taken here, and nowhere else. They are dereferenced here and by the columns of [`Rows`], which the store gives out only
//! while it is borrowed. Systems of the application use [views](crate::views), which ask bevy for their column in each run and keep no
//! address. Rows move only when [`StoreMut::grow`] and similar functions spawn rows, or while code of the application has the world. After
//! either, the addresses are taken anew ([`StoreMut::verify`]).

mod access;
mod addresses;
mod change;
mod grow;
mod guard;
mod spawn;
pub(crate) mod tables;

pub use access::row_system;
pub(crate) use addresses::Addresses;
pub use addresses::ColumnName;
pub use guard::words_of;
pub use spawn::Plan;
pub use tables::{Settings, Tables};

use crate::procs::endpoint::Endpoint;
use crate::procs::windows::Windows;
use crate::rows::{Rows, Wire};
use addresses::Columns;
use bevy_ecs::change_detection::MutUntyped;
use bevy_ecs::component::{ComponentId, Mutable};
use bevy_ecs::prelude::*;
use bevy_ecs::storage::TableId;
use guard::{Guard, Shared};
use spawn::{COMMUNICATORS_INITIAL, Mark, link_all, spawn};
use std::sync::Arc;
use tickwire_components::limits;
use tickwire_components::submission::{Inbound, Submissions};
use tickwire_components::{Communicator, Held, Progress, Vc};

/// A world with the tables of an engine.
///
/// Rows of one store cannot get into another one:
///
/// ```compile_fail,E0521
/// # use tickwire_systems::store::Store;
/// fn swap(one: &mut Store, other: &mut Store) {
///     one.with(|one, _| other.with(|other, _| std::mem::swap(&mut one.cars, &mut other.cars)));
/// }
/// ```
pub struct Store {
    world: World,
    shared: Arc<Shared>,
}

/// A [`Store`] that is borrowed for writing.
pub struct StoreMut<'w> {
    world: &'w mut World,
    shared: &'w Arc<Shared>,
}

/// A way back to a [`Store`] for code that is given only its world: the executor of a schedule, and the systems in it.
#[derive(Clone)]
pub struct StoreKey {
    shared: Arc<Shared>,
}

impl StoreKey {
    /// The store that a world belongs to.
    ///
    /// # Panics
    /// If the world is not that of this store.
    pub fn enter<'w>(&'w self, world: &'w mut World) -> StoreMut<'w> {
        assert!(self.shared.guard.is_of(world.id()), "a system of the engine is run in another world than its own");
        StoreMut { world, shared: &self.shared }
    }
}

impl Store {
    /// Makes the tables of an engine in a world: spawns all rows, and finds their columns. This proc is row 0 of the contacted procs.
    ///
    /// # Errors
    /// If the world has entities with components of the engine, or hooks of the application have moved its rows.
    pub fn new(
        mut world: World,
        plan: Plan,
        submissions: Arc<Submissions>,
        mut endpoints: Vec<Endpoint>,
    ) -> Result<Self, String> {
        if let Some(name) = Columns::any_used(&mut world) {
            return Err(format!("there are entities with a {name} before the engine has spawned its rows: spawn none"));
        }
        // SAFETY: used when the world is lost, and no reference to a row lives.
        #[expect(unsafe_code, reason = "a second way to the transports, for when the world is lost")]
        let transports = endpoints.iter_mut().map(|endpoint| unsafe { endpoint.transport.get().second() }).collect();
        let expected = [
            1,
            plan.car_rows(),
            plan.buffer_rows(),
            limits::SUPPLIES_INITIAL,
            limits::ARRIVALS,
            COMMUNICATORS_INITIAL,
            endpoints.len(),
            1,
        ];
        let row_states = endpoints.iter().filter_map(|endpoint| Some(endpoint.rows?.component)).collect();
        let me = plan.me;
        let one = spawn(&mut world, &plan, submissions.clone());
        world.spawn_batch(endpoints).for_each(drop);
        world.spawn(Vc::new(me, 0));
        world.flush();
        let columns = Columns::find(&mut world)?;
        let shared = Shared {
            addresses: Addresses::new(),
            guard: Guard::new(columns, row_states, &world, one, transports, (plan, submissions)),
        };
        let mut store = Store { world, shared: Arc::new(shared) };
        let counts = store.as_mut().accept();
        if counts != expected || store.world.get::<Mark>(one).is_none() || store.verify().is_err() {
            return Err("hooks or observers of the application have moved rows of the engine: rows are its own".into());
        }
        link_all(&mut store.all());
        Ok(store)
    }

    /// The store, borrowed for changes.
    #[inline(always)]
    pub fn as_mut(&mut self) -> StoreMut<'_> {
        StoreMut { world: &mut self.world, shared: &self.shared }
    }

    /// A key for an executor of the world's schedule, and for systems.
    pub fn key(&self) -> StoreKey {
        StoreKey { shared: self.shared.clone() }
    }

    /// The world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Borrows a component of the application for writing. `None` if the entity does not have it.
    pub fn get_mut<T: Component<Mutability = Mutable>>(&mut self, entity: Entity) -> Option<&mut T> {
        Some(self.world.get_mut::<T>(entity)?.into_inner())
    }

    /// As [`Store::get_mut`], for a component that is known by its id. Also `None` for components that are immutable.
    pub fn get_mut_by_id(&mut self, entity: Entity, component: ComponentId) -> Option<MutUntyped<'_>> {
        self.world.get_mut_by_id(entity, component)
    }

    /// See [`StoreMut::with`].
    #[inline(always)]
    pub fn with<R>(&mut self, run: impl for<'store> FnOnce(&mut Rows<'store>, &mut Wire<'_>) -> R) -> R {
        self.as_mut().with(run)
    }

    /// All columns of the store.
    #[inline(always)]
    pub fn all(&mut self) -> Tables<'_> {
        self.shared.tables(&mut self.world)
    }

    /// The engine's singleton row.
    #[inline(always)]
    pub fn progress(&mut self) -> &mut Progress {
        self.shared.progress(&mut self.world)
    }

    /// The endpoints.
    #[inline(always)]
    pub fn endpoints(&mut self) -> &mut [Endpoint] {
        self.look().2
    }

    /// The communicators, to be read.
    pub fn communicators(&self) -> &[Communicator] {
        // SAFETY: the store is borrowed for as long as the column is, and whoever writes the column borrows the store to change
        // it.
        #[expect(unsafe_code, reason = "a column of a borrowed store")]
        unsafe {
            self.shared.addresses.communicators()
        }
    }

    /// The windows, to be read.
    pub fn windows(&self) -> &Windows {
        // SAFETY: as in `communicators`.
        #[expect(unsafe_code, reason = "a column of a borrowed store")]
        unsafe {
            self.shared.addresses.windows()
        }
    }

    /// What a poll reads that finds nothing to do: the engine's singleton row, submissions, and endpoints.
    #[inline(always)]
    pub fn look(&mut self) -> (&mut Progress, &mut Inbound, &mut [Endpoint]) {
        self.shared.look(&mut self.world)
    }

    /// Why the world is lost, if it is. See [`StoreMut::verify`].
    pub fn lost(&self) -> Option<String> {
        self.shared.guard.lost()
    }
}

impl StoreMut<'_> {
    /// Runs a function over the rows, and over the endpoints and arrivals.
    #[inline(always)]
    pub fn with<R>(&mut self, run: impl for<'store> FnOnce(&mut Rows<'store>, &mut Wire<'_>) -> R) -> R {
        // SAFETY: the store is borrowed while `run` runs, and the rows have a brand that lets `run` keep none.
        #[expect(unsafe_code, reason = "disjoint columns of one borrowed store")]
        let (rows, mut wire) = unsafe { self.shared.addresses.rows() };
        run(rows, &mut wire)
    }

    /// All columns of the store.
    #[inline(always)]
    pub fn all(&mut self) -> Tables<'_> {
        self.shared.tables(self.world)
    }

    /// The engine's singleton row.
    #[inline(always)]
    pub fn progress(&mut self) -> &mut Progress {
        self.shared.progress(self.world)
    }

    /// The endpoints.
    #[inline(always)]
    pub fn endpoints(&mut self) -> &mut [Endpoint] {
        self.shared.look(self.world).2
    }

    /// Why the world is lost, if it is. See [`StoreMut::verify`].
    pub fn lost(&self) -> Option<String> {
        self.shared.guard.lost()
    }

    /// The table of the contacted procs.
    pub fn vc_table(&self) -> TableId {
        self.shared.guard.columns().vcs.table()
    }

    /// Frees the memory of buffers, which rows do not free when they are dropped, since a transport may still use it. Called at the end of
    /// an engine, when no transport does.
    pub fn free_buffers(&mut self) {
        let all = self.all();
        all.held.iter_mut().for_each(Held::clear);
        all.buffers.iter_mut().for_each(|buffer| buffer.store(Box::default()));
    }
}
