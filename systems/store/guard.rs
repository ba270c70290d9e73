//! The guard of the tables: whether the world and its rows are still the engine's, and what is done if not.
//!
//! Code of the application gets the world as a whole: its systems, and hooks and observers that run when the engine spawns
//! rows. It may put another world in its place, clear it, or move rows. What bevy offers of that without an unsafe block
//! leaves traces which can be seen without reading a row: the world's number, a mark on the engine's one row that nobody
//! else can make, and the number of rows of each table. Hooks refuse all that would leave none: to despawn a row, or to
//! remove or replace one of its components.

use super::addresses::{Addresses, Columns, TABLES};
use super::spawn::{Mark, Plan, spawn};
use super::tables::Tables;
use bevy_ecs::component::ComponentId;
use bevy_ecs::entity::Entity;
use bevy_ecs::world::{World, WorldId};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::Progress;
use tickwire_components::submission::Submissions;
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

/// What the tables are compared with.
pub(super) struct Guard {
    state: Mutex<State>,
}

pub(super) struct State {
    columns: Columns,
    /// The components of the columns that transports have on the CAR table.
    row_states: Vec<ComponentId>,
    world: WorldId,
    /// The engine's one row.
    one: Entity,
    pub(super) counts: [usize; TABLES],
    /// The transports, by a way that does not lead through the world.
    transports: Vec<AnyTransport>,
    /// What the tables of a lost world are replaced by.
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
        let state = State { columns, row_states, world, one, counts, transports, plan, submissions, lost };
        Guard { state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a world is the one of this store.
    pub(super) fn is_of(&self, world: WorldId) -> bool {
        self.lock().world == world
    }

    /// Why the world is lost, if it is.
    pub(super) fn lost(&self) -> Option<String> {
        self.lock().lost.clone()
    }

    /// Which column is where.
    pub(super) fn columns(&self) -> Columns {
        self.lock().columns
    }

    /// The components of the columns that transports have on the CAR table.
    pub(super) fn row_states(&self) -> Vec<ComponentId> {
        self.lock().row_states.clone()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn add_transport(&self, transport: AnyTransport) {
        self.lock().transports.push(transport);
    }
}

impl State {
    /// Takes all addresses anew; how many rows each table has.
    pub(super) fn refresh(&self, shared: &Shared, world: &mut World) -> [usize; TABLES] {
        // SAFETY: whoever changes a store has borrowed it, so nothing that it has given out is in use. The world is the
        // store's: its number was compared, or it was just put there.
        #[expect(unsafe_code, reason = "addresses of a borrowed store")]
        unsafe {
            shared.addresses.refresh(&self.columns, &self.row_states, world)
        }
    }

    /// What is wrong with a world, whose addresses are taken anew if nothing is.
    pub(super) fn check(&self, shared: &Shared, world: &mut World) -> Result<(), String> {
        if world.id() != self.world {
            return Err("the application has put another world in the place of the engine's".into());
        }
        if world.get::<Mark>(self.one).is_none() {
            return Err("the application has cleared the engine's world".into());
        }
        let (before, after) = (self.counts, self.refresh(shared, world));
        match before == after {
            true => Ok(()),
            false => Err(format!(
                "the application has spawned, despawned or moved rows of the engine's tables ({before:?} became {after:?}): \
                 rows are the engine's own"
            )),
        }
    }

    /// Puts a world without procs and transports in the place of one that is not the engine's any more, and whose rows are
    /// not read.
    #[cold]
    pub(super) fn replace(&mut self, shared: &Shared, world: &mut World, words: String) {
        // Before any memory goes: none of it is theirs from here on.
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
        self.world = world.id();
        self.counts = self.refresh(shared, world);
        self.lost = Some(words);
        // It may have values of the application, whose end is theirs.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(lost)));
    }
}

/// What was said with a panic.
pub fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".into())
}

/// What a [`Store`] and those that run systems in its world have in common.
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

    /// The engine's one row.
    #[inline(always)]
    pub(super) fn progress<'w>(&'w self, _: &'w mut World) -> &'w mut Progress {
        // SAFETY: the store is borrowed for as long as the row is.
        #[expect(unsafe_code, reason = "a column of a borrowed store")]
        unsafe {
            self.addresses.progress()
        }
    }
}
