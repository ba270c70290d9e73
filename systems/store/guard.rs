//! The guard of the tables: checks whether the world and its rows are still the engine's, and replaces them if not.
//!
//! Code of the application gets the whole world: its systems do, and so do hooks and observers that run when the engine spawns rows. This
//! code may put another world in its place, clear it, or move rows. Whatever bevy allows of that without `unsafe` leaves traces that can be
//! seen without reading a row: the world's id, a mark on the engine's singleton row that no other code can make, the number of rows of
//! each table, and the archetypes of rows that were in another table. Hooks refuse the changes that would leave no trace: despawning a row,
//! and removing or replacing one of its components.

use super::addresses::{Addresses, Columns, TABLES};
use super::spawn::{Mark, Plan, spawn};
use super::tables::Tables;
use crate::procs::endpoint::Endpoint;
use bevy_ecs::archetype::Archetype;
use bevy_ecs::component::ComponentId;
use bevy_ecs::entity::Entity;
use bevy_ecs::world::{World, WorldId};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::Progress;
use tickwire_components::submission::{Inbound, Submissions};
use tickwire_transports::AnyTransport;

/// The tables whose rows are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[expect(dead_code, reason = "tables that do not grow")]
pub(super) enum Table {
    One,
    Cars,
    Buffers,
    Supplies,
    Arrivals,
    Communicators,
    Endpoints,
    Vcs,
}

/// The state that the tables are checked against.
pub(super) struct Guard {
    state: Mutex<State>,
}

pub(super) struct State {
    columns: Columns,
    /// The components of the columns that transports add to the CAR table.
    row_states: Vec<ComponentId>,
    world: WorldId,
    /// The engine's singleton row.
    one: Entity,
    pub(super) counts: [usize; TABLES],
    /// How many of the world's archetypes were checked. Archetypes never vanish, and never get another table.
    archetypes: usize,
    /// The transports, by references that do not lead through the world.
    transports: Vec<AnyTransport>,
    /// The plan of the tables that replace those of a lost world.
    plan: Plan,
    submissions: Arc<Submissions>,
    /// Why the world is lost, if it is.
    pub(super) lost: Option<String>,
}

impl Guard {
    pub(super) fn new(
        columns: Columns,
        row_states: Vec<ComponentId>,
        world: &World,
        one: Entity,
        transports: Vec<AnyTransport>,
        (plan, submissions): (Plan, Arc<Submissions>),
    ) -> Self {
        let (world, counts, lost) = (world.id(), [0; TABLES], None);
        let archetypes = 0;
        let state = State { columns, row_states, world, one, counts, archetypes, transports, plan, submissions, lost };
        Guard { state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a world is that of this store.
    pub(super) fn is_of(&self, world: WorldId) -> bool {
        self.lock().world == world
    }

    /// Why the world is lost, if it is.
    pub(super) fn lost(&self) -> Option<String> {
        self.lock().lost.clone()
    }

    /// The location of each column.
    pub(super) fn columns(&self) -> Columns {
        self.lock().columns
    }

    /// The components of the columns that transports add to the CAR table.
    pub(super) fn row_states(&self) -> Vec<ComponentId> {
        self.lock().row_states.clone()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn add_transport(&self, transport: AnyTransport) {
        self.lock().transports.push(transport);
    }
}

impl State {
    /// Takes all addresses anew. Returns the number of rows of each table.
    pub(super) fn refresh(&self, shared: &Shared, world: &mut World) -> [usize; TABLES] {
        // SAFETY: whoever changes a store has borrowed it, so nothing that it has given out is in use. The world is the
        // store's: its number was compared, or it was just put there.
        #[expect(unsafe_code, reason = "addresses of a borrowed store")]
        unsafe {
            shared.addresses.refresh(&self.columns, &self.row_states, world)
        }
    }

    /// Checks a world. If nothing is wrong, the column addresses have been taken anew.
    pub(super) fn check(&mut self, shared: &Shared, world: &mut World) -> Result<(), String> {
        if world.id() != self.world {
            return Err("the application has put another world in the place of the engine's".into());
        }
        if world.get::<Mark>(self.one).is_none() {
            return Err("the application has cleared the engine's world".into());
        }
        let has_moved = self.has_moved_rows(world);
        let (before, after) = (self.counts, self.refresh(shared, world));
        match before == after && !has_moved {
            true => Ok(()),
            false => Err(format!(
                "the application has spawned, despawned or moved rows of the engine's tables ({before:?} became {after:?}): \
                 rows are the engine's own"
            )),
        }
    }

    /// Whether a row of the engine's has been in another table since the last check. It need not be there any more: a component that is
    /// inserted and removed again leaves as many rows as before, but in another order. What stays is the archetype that the row had meanwhile.
    fn has_moved_rows(&mut self, world: &World) -> bool {
        let archetypes = world.archetypes();
        if archetypes.len() == self.archetypes {
            return false;
        }
        let columns = self.columns.one_of_each_table();
        let is_elsewhere = |archetype: &Archetype| {
            columns.iter().any(|of| archetype.contains(of.component()) && archetype.table_id() != of.table())
        };
        let has_moved = archetypes.iter().skip(self.archetypes).any(is_elsewhere);
        self.archetypes = archetypes.len();
        has_moved
    }

    /// Replaces a world that is no longer the engine's by one without procs and transports. Rows of the old world are not read.
    #[cold]
    pub(super) fn replace(&mut self, shared: &Shared, world: &mut World, words: String) {
        // Before any memory is freed: close the transports, so that they use none of it any more.
        for transport in &mut self.transports {
            let close = || {
                transport.give_memory_back();
                transport.close();
            };
            let _ = catch_unwind(AssertUnwindSafe(close));
        }
        let lost = std::mem::replace(world, World::new());
        let plan = Plan { rows: 1, cards: Vec::new(), card_bytes: 0, ..self.plan.clone() };
        self.one = spawn(world, &plan, self.submissions.clone());
        self.columns = Columns::of_few(world);
        self.row_states = Vec::new();
        (self.world, self.archetypes) = (world.id(), 0);
        self.counts = self.refresh(shared, world);
        self.lost = Some(words);
        // The old world may contain values of the application, whose destructors may panic.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(lost)));
    }
}

/// The message of a panic.
pub fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".into())
}

/// The state that a [`Store`] shares with the systems and executors of its world.
pub(super) struct Shared {
    pub(super) addresses: Addresses,
    pub(super) guard: Guard,
}

impl Shared {
    /// All columns of a store whose world is borrowed.
    #[inline(always)]
    pub(super) fn tables<'w>(&'w self, _: &'w mut World) -> Tables<'w> {
        // SAFETY: the store is borrowed for as long as the columns are.
        #[expect(unsafe_code, reason = "disjoint columns of one borrowed store")]
        unsafe {
            self.addresses.tables()
        }
    }

    /// The engine's singleton row.
    #[inline(always)]
    pub(super) fn progress<'w>(&'w self, _: &'w mut World) -> &'w mut Progress {
        // SAFETY: the store is borrowed for as long as the row is.
        #[expect(unsafe_code, reason = "a column of a borrowed store")]
        unsafe {
            self.addresses.progress()
        }
    }

    /// See [`Store::look`](super::Store::look).
    #[inline(always)]
    pub(super) fn look<'w>(&'w self, _: &'w mut World) -> (&'w mut Progress, &'w mut Inbound, &'w mut [Endpoint]) {
        // SAFETY: the store is borrowed for as long as the columns are.
        #[expect(unsafe_code, reason = "columns of a borrowed store")]
        unsafe {
            self.addresses.look()
        }
    }
}
