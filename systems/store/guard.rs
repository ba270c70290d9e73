//! The guard of the tables: whether the world and its rows are still the engine's, and what is done if not.
//!
//! Code of the application gets the world as a whole: its systems, and hooks and observers that run when the engine spawns
//! rows. It may put another world in its place, clear it, or move rows. What bevy offers of that without an unsafe block
//! leaves traces which can be seen without reading a row: the world's number, a mark on the engine's one row that nobody
//! else can make, and the number of rows of each table. Hooks refuse all that would leave none: to despawn a row, or to
//! remove or replace one of its components.

use super::addresses::{Columns, TABLES};
use super::{Plan, Shared, Store, StoreMut};
use bevy_ecs::component::{Component, ComponentId};
use bevy_ecs::entity::Entity;
use bevy_ecs::schedule::Schedule;
use bevy_ecs::world::{World, WorldId};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tickwire_components::submission::Submissions;
use tickwire_components::{PostError, posting};
use tickwire_transports::AnyTransport;

/// The tables whose rows are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[expect(dead_code, reason = "tables that do not grow")]
pub(crate) enum Table {
    One,
    Cars,
    Buffers,
    Supplies,
    Arrivals,
    Communicators,
    Endpoints,
    Vcs,
}

/// On the engine's one row: that it is this one. It is neither cloned with the row nor made by anybody else.
#[derive(Component)]
#[component(immutable, on_discard = tickwire_components::refuse_removal)]
pub(super) struct Mark;

/// What the tables are compared with.
pub(super) struct Guard {
    state: Mutex<State>,
}

struct State {
    columns: Columns,
    /// The components of the columns that transports have on the CAR table.
    row_states: Vec<ComponentId>,
    world: WorldId,
    /// The engine's one row.
    one: Entity,
    counts: [usize; TABLES],
    /// The transports, by a way that does not lead through the world.
    transports: Vec<AnyTransport>,
    /// What the tables of a lost world are replaced by.
    plan: Plan,
    submissions: Arc<Submissions>,
    /// Why the world is lost, if it is.
    lost: Option<String>,
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

    fn lock(&self) -> MutexGuard<'_, State> {
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
    fn refresh(&self, shared: &Shared, world: &mut World) -> [usize; TABLES] {
        // SAFETY: whoever changes a store has borrowed it, so nothing that it has given out is in use. The world is the
        // store's: its number was compared, or it was just put there.
        #[expect(unsafe_code, reason = "addresses of a borrowed store")]
        unsafe {
            shared.addresses.refresh(&self.columns, &self.row_states, world)
        }
    }

    /// What is wrong with a world, whose addresses are taken anew if nothing is.
    fn check(&self, shared: &Shared, world: &mut World) -> Result<(), String> {
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
    fn replace(&mut self, shared: &Shared, world: &mut World, words: String) {
        // Before any memory goes: none of it is theirs from here on.
        for transport in &mut self.transports {
            let close = || {
                transport.end_direct();
                transport.close();
            };
            let _ = catch_unwind(AssertUnwindSafe(close));
        }
        let lost = std::mem::replace(world, World::new());
        let plan = Plan { rows: 1, cards: Vec::new(), card_bytes: 0, ..self.plan.clone() };
        self.one = super::spawn(world, &plan, self.submissions.clone());
        self.columns = Columns::of_few(world);
        self.row_states = Vec::new();
        self.world = world.id();
        self.counts = self.refresh(shared, world);
        self.lost = Some(words);
        // It may have values of the application, whose end is theirs.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(lost)));
    }
}

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

    /// Runs a schedule over the world, with systems of the application, and looks whether the world is still the engine's.
    ///
    /// # Errors
    /// With what a system has panicked.
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
    /// Takes the addresses of a world that is known to be the engine's, and the number of its rows for what it has to be.
    pub(super) fn accept(&mut self) -> [usize; TABLES] {
        let mut state = self.shared.guard.lock();
        state.counts = state.refresh(self.shared, self.world);
        state.counts
    }

    /// Looks whether the world and its tables are still the engine's, after code of the application had them, and takes all
    /// addresses anew. If they are not, then from here on the world is another one: without procs, transports and
    /// operations, and closed. The transports are closed, and the buffers of the operations left alone for good.
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

    /// Lends the world to code of the application, and looks behind it whether the world is still the engine's.
    ///
    /// # Errors
    /// As [`StoreMut::verify`].
    pub fn lend<R>(&mut self, run: impl FnOnce(&mut World) -> R) -> Result<R, String> {
        let result = run(self.world);
        self.verify().map(|()| result)
    }

    /// Spawns rows of a table, so many, and looks whether hooks and observers of the application have left them where they
    /// belong. They run here, whoever asks for the rows.
    ///
    /// # Errors
    /// If they have not, or have panicked: the world is lost.
    pub(crate) fn spawn_checked(
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

    /// As `spawn_checked`, of anything else that runs hooks and observers of the application.
    ///
    /// # Errors
    /// As there.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut World) -> R) -> Result<R, PostError> {
        let mut result = None;
        self.spawn_checked(Table::One, 0, |world| result = Some(change(world)))?;
        result.ok_or(PostError::Finalized)
    }
}

/// What was said with a panic.
pub fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".into())
}
