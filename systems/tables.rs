//! The tables as a whole: spawning them, growing them, and reaching them from outside a system.

mod guard;
mod rows;

pub(crate) use guard::Table;
pub use guard::words_of;
pub use rows::*;

use crate::credits::buffers_granted;
use crate::endpoint::{Endpoint, RowStates};
use crate::views::ColumnState;
use bevy_ecs::bundle::NoBundleEffect;
use bevy_ecs::change_detection::Tick;
use bevy_ecs::component::Component;
use bevy_ecs::prelude::*;
use bevy_ecs::query::FilteredAccess;
use bevy_ecs::storage::{TableId, TableRow};
use bevy_ecs::system::{SystemAccess, SystemMeta, SystemParam, SystemParamValidationError};
use bevy_ecs::world::unsafe_world_cell::UnsafeWorldCell;
use guard::{Guard, Mark, TABLES};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;
use tickwire_components::limits::{self, CONTROL_ROWS, Limits};
use tickwire_components::submission::{Inbound, Submissions};
use tickwire_components::{
    Arrival, Buffer, Car, Communicator, FreeList, Held, KnownProc, Large, Link, Members, NIL, Notices, PostError,
    ProcTable, Progress, Request, Row, Supply, Vc,
};

/// What the tables are spawned from.
#[derive(Clone)]
pub struct Plan {
    /// Limits and budgets.
    pub limits: Limits,
    /// Number of procs in the world.
    pub procs: u32,
    /// The own one.
    pub me: u32,
    /// Cards of all procs, `card_bytes` each.
    pub cards: Vec<u8>,
    /// Bytes of a card.
    pub card_bytes: usize,
    /// CAR rows to begin with.
    pub rows: usize,
    /// First generation of requests.
    pub generation: u64,
}

/// Communicators that there are from the start: of all procs, and of the own one.
const COMMUNICATORS_INITIAL: usize = 2;

impl Plan {
    fn car_rows(&self) -> usize {
        self.rows.clamp(1, self.limits.cars_max) + CONTROL_ROWS
    }

    fn buffer_rows(&self) -> usize {
        limits::BUFFERS_INITIAL.min(self.limits.buffers_max)
    }
}

/// The limits, where systems and maintenance can read them. On the engine's one row.
#[derive(Component, Debug)]
#[component(immutable, on_discard = tickwire_components::refuse_removal)]
pub struct Settings(pub Limits);

/// Where all columns are, and their addresses.
///
/// Tables move only when rows are spawned, which only [`Tables::grow`] and its like do, or when code of the application was
/// given the world. After either the addresses are taken anew ([`Tables::verify`]), so a system or a call pays one load for
/// a column instead of a look-up (2 ns, or 16 instructions, each).
///
/// They are of one world, and of use with no other: whoever [makes](Tables::make) them promises that. An application does
/// not get at them; its systems read the columns by [views](crate::views) and queries.
#[derive(Clone)]
pub struct Tables {
    columns: Columns,
    addresses: Arc<Addresses>,
    guard: Arc<Guard>,
}

thread_local! {
    /// The tables of the system that is being initialized, if it is one of the engine's: no other may have parameters over
    /// columns of the engine for writing.
    static OWN: RefCell<Option<Tables>> = const { RefCell::new(None) };
}

/// Initializes parameters of a system of the engine's own.
pub(crate) fn initialize_own<R>(tables: &Tables, initialize: impl FnOnce() -> R) -> R {
    struct Forget;
    impl Drop for Forget {
        fn drop(&mut self) {
            OWN.set(None);
        }
    }
    OWN.set(Some(tables.clone()));
    let _forget = Forget;
    initialize()
}

/// The tables of the system that is being initialized.
///
/// # Panics
/// If it is a system of the application.
fn own<P>() -> Tables {
    OWN.with_borrow(Clone::clone).unwrap_or_else(|| {
        let name = std::any::type_name::<P>();
        panic!(
            "{name} is for the engine's own systems: one of the application reads columns by `ReadColumn` or a query"
        )
    })
}

macro_rules! columns {
    ($($field:ident: $type:ty,)*) => {
        /// Which column is where.
        #[derive(Clone, Copy)]
        struct Columns {
            $($field: ColumnState),*
        }

        /// The addresses of all columns: first row and number of rows.
        struct Addresses {
            $($field: Cell<*mut [$type]>),*
        }

        impl Columns {
            /// # Errors
            /// If a column is in no table, or in several.
            fn find(world: &mut World) -> Result<Self, String> {
                Ok(Columns { $($field: ColumnState::find::<$type>(world)?),* })
            }

            /// Those of a world in which there are neither procs nor endpoints.
            fn of_few(world: &mut World) -> Self {
                Columns { $($field: ColumnState::new_or_empty::<$type>(world)),* }
            }

            /// The first of the engine's components that some entity has.
            fn any_used(world: &mut World) -> Option<&'static str> {
                $(if ColumnState::is_used::<$type>(world) {
                    return Some(std::any::type_name::<$type>());
                })*
                None
            }
        }

        impl Addresses {
            fn new() -> Self {
                Addresses { $($field: Cell::new(std::ptr::slice_from_raw_parts_mut(std::ptr::dangling_mut(), 0))),* }
            }

            /// Asks bevy for all addresses.
            fn refresh(&self, columns: &Columns, cell: UnsafeWorldCell<'_>) {
                // SAFETY: only addresses are taken here; whoever uses them has borrowed the world.
                #[expect(unsafe_code, reason = "addresses of columns")]
                unsafe { $(self.$field.set(columns.$field.slice::<$type>(cell));)* }
            }
        }
    };
}

impl Addresses {
    /// Rows of the tables that only the engine may spawn or move, in the order of [`Table`].
    fn counts(&self) -> [usize; TABLES] {
        [
            self.progress.get().len(),
            self.cars.get().len(),
            self.buffers.get().len(),
            self.supplies.get().len(),
            self.arrivals.get().len(),
            self.communicators.get().len(),
            self.endpoints.get().len(),
            self.vcs.get().len(),
        ]
    }

    /// The engine's one row, of the world that these were just taken of.
    fn progress<'w>(&self, _: &'w mut World) -> &'w mut Progress {
        // SAFETY: the world is borrowed as a whole, and the addresses are its own.
        #[expect(unsafe_code, reason = "a column of a borrowed world")]
        unsafe {
            &mut *self.progress.get().cast()
        }
    }
}

columns! {
    progress: Progress,
    procs: ProcTable,
    inbound: Inbound,
    limits: Settings,
    notices: Notices,
    arrivals: Arrival,
    cars: Car,
    large: Large,
    requests: Request,
    held: Held,
    buffers: Buffer,
    supplies: Supply,
    communicators: Communicator,
    endpoints: Endpoint,
    vcs: Vc,
}

// SAFETY: the cells are written and read only by whoever has borrowed the world they point into.
#[expect(unsafe_code, reason = "addresses of columns")]
unsafe impl Send for Addresses {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "addresses of columns")]
unsafe impl Sync for Addresses {}

/// The tables of Deliver, borrowed for each message anew: it loads the addresses that it needs, where a tick would write all
/// of them to its stack.
pub struct Deliveries<'w> {
    addresses: &'w Addresses,
    world: PhantomData<&'w mut World>,
}

impl Deliveries<'_> {
    /// All of them.
    #[inline(always)]
    pub fn tables(&mut self) -> DeliverTables<'_> {
        // SAFETY: the world is borrowed as a whole for as long as this lives, and all that has been given away besides are
        // the endpoints, which are none of these columns.
        #[expect(unsafe_code, reason = "disjoint columns of one borrowed world")]
        unsafe {
            DeliverTables::at(self.addresses)
        }
    }
}

impl Tables {
    /// Makes the tables of an engine: spawns all rows, and finds their columns. The own proc is row 0 of the contacted ones.
    ///
    /// # Errors
    /// If the world has entities with components of the engine.
    ///
    /// # Safety
    /// The tables, and all clones of them, are used with this world alone, or with the one that [`Tables::verify`] puts in
    /// its place; and no system of the engine is run while another reference to its columns lives.
    #[expect(unsafe_code, reason = "addresses of one world's columns, which every call uses unchecked")]
    pub unsafe fn make(
        world: &mut World,
        plan: Plan,
        submissions: Arc<Submissions>,
        mut endpoints: Vec<Endpoint>,
    ) -> Result<Self, String> {
        if let Some(name) = Columns::any_used(world) {
            return Err(format!("there are entities with a {name} before the engine has spawned its rows: spawn none"));
        }
        // SAFETY: used when the world is lost, and no reference to a row lives.
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
        let me = plan.me;
        let one = Tables::spawn(world, &plan, submissions.clone());
        world.spawn_batch(endpoints).for_each(drop);
        world.spawn(Vc::new(me, 0));
        world.flush();
        let columns = Columns::find(world)?;
        let guard = Guard::new(columns, world, one, transports, plan, submissions);
        let tables = Tables { columns, addresses: Arc::new(Addresses::new()), guard: Arc::new(guard) };
        tables.guard.accept(&tables.addresses, world);
        if tables.addresses.counts() != expected || world.get::<Mark>(one).is_none() {
            return Err("hooks or observers of the application have moved rows of the engine: rows are its own".into());
        }
        tables.link_all(world);
        Ok(tables)
    }

    /// Spawns all tables but the procs' and endpoints'. Returns the engine's one row.
    fn spawn(world: &mut World, plan: &Plan, submissions: Arc<Submissions>) -> Entity {
        let one = world.spawn((
            Mark,
            Progress::new(&plan.limits, plan.procs),
            ProcTable {
                known: vec![KnownProc { row: NIL }; plan.procs as usize],
                cards: plan.cards.clone(),
                card_bytes: plan.card_bytes,
                me: plan.me,
                reasons: Vec::new(),
                departed: Vec::new(),
                fallen: Vec::new(),
            },
            Inbound::new(submissions),
            Settings(plan.limits.clone()),
            Notices::default(),
        ));
        let one = one.id();
        spawn_rows(world, limits::ARRIVALS, |_| Arrival::default());
        spawn_rows(world, COMMUNICATORS_INITIAL, |row| match row {
            0 => Communicator::founding(0, plan.procs, plan.me, Members::World),
            _ => Communicator::founding(1, 1, 0, Members::List([plan.me].into())),
        });
        spawn_cars(world, plan.car_rows(), plan.generation);
        spawn_rows(world, plan.buffer_rows(), |_| Buffer::default());
        spawn_rows(world, limits::SUPPLIES_INITIAL, |_| Supply::default());
        one
    }

    /// Links all free rows.
    fn link_all(&self, world: &mut World) {
        let all = self.all(world);
        let own = all.cars.len() - CONTROL_ROWS;
        link_free(&mut all.progress.control_cars, all.cars, own);
        link_free(&mut all.progress.free_cars, &mut all.cars[..own], 0);
        all.progress.stamps.grow(all.cars.len());
        link_free(&mut all.progress.free_buffers[0], all.buffers, 0);
        all.progress.count_free_buffers(all.buffers.len());
        link_free(&mut all.progress.free_supplies, all.supplies, 0);
        all.procs.known[all.procs.me as usize].row = 0;
    }

    /// What Deliver reads and writes: the endpoints, and the rest.
    #[inline(always)]
    pub fn deliveries<'w>(&'w self, world: &'w mut World) -> (&'w mut [Endpoint], Deliveries<'w>) {
        (self.endpoints(world), Deliveries { addresses: &self.addresses, world: PhantomData })
    }

    /// What Transfer reads and writes, with the columns of the transports.
    #[inline(always)]
    pub fn transferring<'w>(&self, world: &'w mut World) -> (TransferTables<'w>, RowStateColumns<'w>) {
        let cell = world.as_unsafe_world_cell();
        // SAFETY: the world is borrowed as a whole; its reference is not used beyond this call, and the columns of the
        // transports are none of those that have a name.
        #[expect(unsafe_code, reason = "disjoint columns of one borrowed world")]
        let tables = self.transfer(unsafe { cell.world_mut() });
        (tables, RowStateColumns { world: cell, table: self.columns.cars.table() })
    }

    /// The engine's one row.
    #[inline(always)]
    pub fn progress<'w>(&self, world: &'w mut World) -> &'w mut Progress {
        self.look(world).progress
    }

    /// The endpoints.
    #[inline(always)]
    pub fn endpoints<'w>(&self, world: &'w mut World) -> &'w mut [Endpoint] {
        self.look(world).endpoints
    }

    /// The submissions of other threads.
    #[inline(always)]
    pub fn inbound<'w>(&self, world: &'w mut World) -> &'w mut Inbound {
        self.look(world).inbound
    }

    /// The table of the contacted procs.
    pub fn vc_table(&self) -> TableId {
        self.columns.vcs.table()
    }

    /// Spawns a contacted proc; its row is the number of those before it.
    ///
    /// # Errors
    /// If the world is lost by it: see [`Tables::verify`].
    pub fn spawn_proc(&self, world: &mut World, proc: u32, endpoint: u8) -> Result<Row, PostError> {
        let row = self.addresses.vcs.get().len() as Row;
        self.spawn_checked(world, Table::Vcs, 1, |world| {
            world.spawn(Vc::new(proc, endpoint));
        })?;
        Ok(row)
    }

    /// Spawns an endpoint, for an engine that is built by hand; its row.
    ///
    /// # Errors
    /// As [`Tables::spawn_proc`].
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn spawn_endpoint(&self, world: &mut World, mut endpoint: Endpoint) -> Result<Row, PostError> {
        let row = self.addresses.endpoints.get().len() as Row;
        // SAFETY: used when the world is lost, and no reference to a row lives.
        #[expect(unsafe_code, reason = "a second way to a transport")]
        self.guard.add_transport(unsafe { endpoint.transport.get().second() });
        self.spawn_checked(world, Table::Endpoints, 1, |world| {
            world.spawn(endpoint);
        })?;
        Ok(row)
    }

    /// Gives back the memory that rows keep when they are dropped, since a transport may have it: at the end of an engine,
    /// when none has.
    pub fn free_buffers(&self, world: &mut World) {
        let all = self.all(world);
        all.held.iter_mut().for_each(Held::clear);
        all.buffers.iter_mut().for_each(|buffer| buffer.store(Box::default()));
    }

    /// Spawns CAR rows, as many again as there are, up to their bound. `false` if they are at it, or the world is lost by it.
    pub fn grow(&self, world: &mut World) -> bool {
        let all = self.all(world);
        let cars = all.cars.len();
        let (own, most) = (cars - CONTROL_ROWS, all.limits.0.cars_max);
        let more = own.min(most.saturating_sub(own));
        let generation = all.requests[0].generation;
        let spawned = self.spawn_checked(world, Table::Cars, more, |world| spawn_cars(world, more, generation));
        if spawned.is_err() {
            return false;
        }
        let all = self.all(world);
        link_free(&mut all.progress.free_cars, all.cars, cars);
        all.progress.stamps.grow(all.cars.len());
        all.progress.rows_exhausted = own + more == most;
        more > 0
    }

    /// Spawns communicator rows until there are at least `rows`, up to their bound.
    pub fn grow_communicators(&self, world: &mut World, rows: usize) {
        let there = self.all(world).communicators.len();
        if rows > there {
            let target = rows.max(2 * there).min(limits::CONTEXTS_MAX);
            let more = target.saturating_sub(there);
            let spawn = |world: &mut World| spawn_rows(world, more, |_| Communicator::FREE);
            // Whoever looks for a row that is not there finds none.
            let _ = self.spawn_checked(world, Table::Communicators, more, spawn);
        }
    }

    /// Spawns buffer rows, as many again as there are, up to their bound.
    pub fn grow_buffers(&self, world: &mut World) {
        let all = self.all(world);
        let buffers = all.buffers.len();
        let most = all.limits.0.buffers_max.max(buffers_granted(all.progress, all.vcs));
        let more = buffers.min(most.saturating_sub(buffers));
        let spawn = |world: &mut World| spawn_rows(world, more, |_| Buffer::default());
        if self.spawn_checked(world, Table::Buffers, more, spawn).is_err() {
            return;
        }
        let all = self.all(world);
        link_free(&mut all.progress.free_buffers[0], all.buffers, buffers);
        all.progress.count_free_buffers(all.buffers.len());
    }

    /// Spawns supply rows, as many again as there are. There are at most as many as CAR rows; `false` if that is so, or the
    /// world is lost by it.
    pub fn grow_supplies(&self, world: &mut World) -> bool {
        let all = self.all(world);
        let supplies = all.supplies.len();
        let more = supplies.min(all.limits.0.cars_max.saturating_sub(supplies));
        let spawn = |world: &mut World| spawn_rows(world, more, |_| Supply::default());
        if self.spawn_checked(world, Table::Supplies, more, spawn).is_err() {
            return false;
        }
        let all = self.all(world);
        link_free(&mut all.progress.free_supplies, all.supplies, supplies);
        more > 0
    }
}

/// Spawns CAR rows, each with a request that is free.
fn spawn_cars(world: &mut World, count: usize, generation: u64) {
    let request = Request { generation, ..Request::FREE };
    spawn_rows(world, count, |_| (Car::default(), Large::default(), request, Held::default()));
}

fn spawn_rows<B: Bundle<Effect: NoBundleEffect>>(world: &mut World, count: usize, mut make: impl FnMut(usize) -> B) {
    world.spawn_batch((0..count).map(&mut make).collect::<Vec<B>>()).for_each(drop);
}

/// Puts the rows from `first` on into a free list, the lowest on top.
fn link_free<L: Link>(list: &mut FreeList, rows: &mut [L], first: usize) {
    for row in (first..rows.len()).rev() {
        list.push(rows, row as Row);
    }
}

/// The columns that transports have on the CAR table. See [`crate::endpoint::RowState`].
pub struct RowStateColumns<'w> {
    world: UnsafeWorldCell<'w>,
    table: TableId,
}

impl RowStateColumns<'_> {
    /// The value of a transport on a CAR row.
    #[expect(unsafe_code, reason = "a column whose type only its transport knows")]
    pub fn get(&mut self, rows: RowStates, row: Row) -> Option<&mut dyn Any> {
        // SAFETY: the access to the columns is declared, and `self` is borrowed while the value is.
        let table = unsafe { self.world.storages() }.tables.get(self.table)?;
        if row as usize >= table.entity_count() as usize {
            return None;
        }
        let row = TableRow::new(nonmax::NonMaxU32::new(row)?);
        // SAFETY: the row exists.
        let value = unsafe { table.get_column(rows.component)?.get_data_unchecked(row) };
        // SAFETY: declared for writing, and borrowed once.
        Some((rows.cast)(unsafe { value.assert_unique() }))
    }
}

// SAFETY: write access to every transport's column is declared.
#[expect(unsafe_code, reason = "a parameter over columns whose types only transports know")]
unsafe impl SystemParam for RowStateColumns<'_> {
    type State = (TableId, Vec<bevy_ecs::component::ComponentId>);
    type Item<'w, 's> = RowStateColumns<'w>;

    fn init_state(world: &mut World) -> Self::State {
        let tables = own::<Self>();
        let components = world.query::<&Endpoint>().iter(world).filter_map(|e| Some(e.rows?.component)).collect();
        (tables.columns.cars.table(), components)
    }

    fn init_access(state: &Self::State, _: &mut SystemMeta, access: &mut SystemAccess, _: &mut World) {
        for &component in &state.1 {
            let mut filter = FilteredAccess::default();
            filter.add_write(component);
            access.ensure_filtered_access(filter);
        }
    }

    unsafe fn get_param<'w>(
        state: &mut Self::State,
        _: &SystemMeta,
        world: UnsafeWorldCell<'w>,
        _: Tick,
    ) -> Result<RowStateColumns<'w>, SystemParamValidationError> {
        Ok(RowStateColumns { world, table: state.0 })
    }
}
