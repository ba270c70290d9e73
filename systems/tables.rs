//! The tables as a whole: spawning them, growing them, and reaching them from outside a system.

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
use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use tickwire_components::limits::{self, CONTROL_ROWS, Limits};
use tickwire_components::submission::{Inbound, Submissions};
use tickwire_components::{
    Arrival, Buffer, Car, Communicator, FreeList, Held, KnownProc, Large, Link, Members, NIL, Notices, ProcTable,
    Progress, Request, Row, Supply, Vc,
};

/// What the tables are spawned from.
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
    pub generation: u32,
}

/// The limits, where systems and maintenance can read them. On the engine's one row.
#[derive(Component, Debug)]
pub struct Settings(pub Limits);

/// Where all columns are, and their addresses.
///
/// Tables move only when rows are spawned, which only [`Tables::grow`] and its like do, or when a system of the
/// application was given the world. After either the addresses are taken anew ([`Tables::refresh`]), so a system or a
/// call pays one load for a column instead of a look-up (2 ns, or 16 instructions, each).
#[derive(Clone)]
pub struct Tables {
    columns: Columns,
    addresses: Arc<Addresses>,
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
            fn find(world: &mut World) -> Self {
                Columns { $($field: ColumnState::new::<$type>(world)),* }
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

/// [`Tables`] as a resource, for systems to find.
#[derive(Resource, Clone)]
struct Shared(Tables);

macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $method:ident { $($field:ident: $type:ty, $how:ident;)* }) => {
        $(#[$doc])*
        pub struct $name<'w> {
            $(#[doc = view!(@doc $field)] pub $field: view!(@type $how 'w $type)),*
        }

        impl $name<'_> {
            /// # Safety
            /// The world of these addresses is borrowed, and nobody else uses the columns while this lives.
            #[expect(unsafe_code, reason = "columns of a borrowed world")]
            #[inline(always)]
            unsafe fn at(addresses: &Addresses) -> Self {
                // SAFETY: by this function's contract; each column is borrowed once.
                unsafe { $name { $($field: view!(@borrow $how addresses, $field)),* } }
            }
        }

        impl Tables {
            $(#[$doc])*
            #[inline(always)]
            pub fn $method<'w>(&self, _world: &'w mut World) -> $name<'w> {
                // SAFETY: the world is borrowed as a whole, and the addresses are its own.
                #[expect(unsafe_code, reason = "disjoint columns of one borrowed world")]
                unsafe { $name::at(&self.addresses) }
            }
        }

        // SAFETY: the access to each column is declared.
        #[expect(unsafe_code, reason = "measured: an address costs one load where a look-up costs 16 instructions")]
        unsafe impl SystemParam for $name<'_> {
            type State = Tables;
            type Item<'w, 's> = $name<'w>;

            fn init_state(world: &mut World) -> Tables {
                Tables::of(world)
            }

            fn init_access(tables: &Tables, _: &mut SystemMeta, access: &mut SystemAccess, _: &mut World) {
                $(tables.columns.$field.declare::<Self>(view!(@write $how), access);)*
            }

            #[inline(always)]
            unsafe fn get_param<'w>(
                tables: &mut Tables,
                _: &SystemMeta,
                _: UnsafeWorldCell<'w>,
                _: Tick,
            ) -> Result<$name<'w>, SystemParamValidationError> {
                // SAFETY: the executor grants the declared access, and has refreshed the addresses if rows have moved.
                Ok(unsafe { $name::at(&tables.addresses) })
            }
        }
    };
    (@doc progress) => { "The engine's one row." };
    (@doc procs) => { "Known procs." };
    (@doc inbound) => { "Submissions of other threads." };
    (@doc limits) => { "Limits." };
    (@doc notices) => { "Whom to call when requests are done." };
    (@doc arrivals) => { "Arrivals." };
    (@doc cars) => { "CARs." };
    (@doc large) => { "CARs, cold column." };
    (@doc requests) => { "Requests." };
    (@doc held) => { "Buffers of requests." };
    (@doc buffers) => { "Temporaries." };
    (@doc supplies) => { "Supplies." };
    (@doc communicators) => { "Communicators." };
    (@doc endpoints) => { "Endpoints." };
    (@doc vcs) => { "Contacted procs." };
    (@type one $life:lifetime $type:ty) => { &$life mut $type };
    (@type one_read $life:lifetime $type:ty) => { &$life $type };
    (@type with_cars $life:lifetime $type:ty) => { &$life mut [$type] };
    (@type rows $life:lifetime $type:ty) => { &$life mut [$type] };
    (@type rows_read $life:lifetime $type:ty) => { &$life [$type] };
    (@borrow one $addresses:expr, $field:ident) => { &mut *$addresses.$field.get().cast() };
    (@borrow one_read $addresses:expr, $field:ident) => { &*$addresses.$field.get().cast() };
    (@borrow rows $addresses:expr, $field:ident) => { &mut *$addresses.$field.get() };
    (@borrow rows_read $addresses:expr, $field:ident) => { &*$addresses.$field.get() };
    // As many as there are CARs, and said so: one look at a row number serves all columns of its table.
    (@borrow with_cars $addresses:expr, $field:ident) => {
        &mut *std::ptr::slice_from_raw_parts_mut($addresses.$field.get().cast(), $addresses.cars.get().len())
    };
    (@write one) => { true };
    (@write one_read) => { false };
    (@write with_cars) => { true };
    (@write rows) => { true };
    (@write rows_read) => { false };
}

view! {
    /// Everything, for code outside of systems.
    AllTables, all {
        progress: Progress, one;
        procs: ProcTable, one;
        inbound: Inbound, one;
        limits: Settings, one_read;
        notices: Notices, one;
        arrivals: Arrival, rows;
        cars: Car, rows;
        large: Large, with_cars;
        requests: Request, with_cars;
        held: Held, with_cars;
        buffers: Buffer, rows;
        supplies: Supply, rows;
        communicators: Communicator, rows;
        endpoints: Endpoint, rows;
        vcs: Vc, rows;
    }
}

view! {
    /// What an inline send touches.
    SendTables, send {
        progress: Progress, one;
        procs: ProcTable, one_read;
        communicators: Communicator, rows_read;
        endpoints: Endpoint, rows;
        vcs: Vc, rows;
    }
}

view! {
    /// What an offer touches that is made at once.
    OfferTables, offering {
        progress: Progress, one;
        procs: ProcTable, one_read;
        cars: Car, rows;
        large: Large, with_cars;
        requests: Request, with_cars;
        communicators: Communicator, rows_read;
        endpoints: Endpoint, rows;
        vcs: Vc, rows;
    }
}

view! {
    /// What posting a receive touches.
    ReceiveTables, receive {
        progress: Progress, one;
        procs: ProcTable, one_read;
        communicators: Communicator, rows_read;
        cars: Car, rows;
        requests: Request, with_cars;
        held: Held, with_cars;
        vcs: Vc, rows;
    }
}

view! {
    /// What asking after a request touches.
    RequestTables, request {
        progress: Progress, one;
        cars: Car, rows;
        requests: Request, with_cars;
        held: Held, with_cars;
    }
}

view! {
    /// What [`crate::deliver`] reads and writes, but for the endpoints.
    DeliverTables, delivering {
        progress: Progress, one;
        cars: Car, rows;
        large: Large, with_cars;
        requests: Request, with_cars;
        vcs: Vc, rows;
        communicators: Communicator, rows_read;
    }
}

view! {
    /// What tells whether a message to oneself goes to its receive at once.
    OwnTables, own {
        progress: Progress, one_read;
        cars: Car, rows_read;
        vcs: Vc, rows_read;
        endpoints: Endpoint, rows;
    }
}

view! {
    /// What a look touches: is there anything to do?
    LookTables, look {
        progress: Progress, one;
        inbound: Inbound, one;
        endpoints: Endpoint, rows;
    }
}

view! {
    /// What Post reads and writes.
    PostTables, post {
        progress: Progress, one;
        inbound: Inbound, one;
        procs: ProcTable, one_read;
        communicators: Communicator, rows_read;
        cars: Car, rows;
        large: Large, with_cars;
        requests: Request, with_cars;
        held: Held, with_cars;
        vcs: Vc, rows;
        endpoints: Endpoint, rows;
    }
}

view! {
    /// What Match reads and writes.
    MatchTables, matching {
        progress: Progress, one;
        arrivals: Arrival, rows;
        cars: Car, rows;
        large: Large, with_cars;
        vcs: Vc, rows;
        communicators: Communicator, rows_read;
    }
}

view! {
    /// What SupplyBuffers reads and writes.
    SupplyTables, supply {
        progress: Progress, one;
        arrivals: Arrival, rows;
        buffers: Buffer, rows;
        supplies: Supply, rows;
        cars: Car, rows;
        large: Large, with_cars;
        vcs: Vc, rows;
        endpoints: Endpoint, rows;
    }
}

view! {
    /// What Transfer reads and writes.
    TransferTables, transfer {
        progress: Progress, one;
        arrivals: Arrival, rows;
        cars: Car, rows;
        large: Large, with_cars;
        buffers: Buffer, rows;
        vcs: Vc, rows;
        endpoints: Endpoint, rows;
    }
}

view! {
    /// What DrainCq reads and writes.
    DrainTables, drain {
        progress: Progress, one;
        endpoints: Endpoint, rows;
        arrivals: Arrival, rows;
    }
}

view! {
    /// What Complete reads and writes.
    CompleteTables, complete {
        progress: Progress, one;
        procs: ProcTable, one_read;
        notices: Notices, one;
        vcs: Vc, rows_read;
        cars: Car, rows;
        large: Large, with_cars;
        requests: Request, with_cars;
        held: Held, with_cars;
    }
}

impl Tables {
    /// Spawns all tables but the procs' and endpoints', which [`Tables::find`] needs too.
    pub fn spawn(world: &mut World, plan: &Plan, submissions: Arc<Submissions>) {
        let rows = plan.rows.clamp(1, plan.limits.cars_max) + CONTROL_ROWS;
        world.spawn((
            Progress::new(&plan.limits, plan.procs),
            ProcTable {
                known: vec![KnownProc { row: NIL }; plan.procs as usize],
                cards: plan.cards.clone(),
                card_bytes: plan.card_bytes,
                me: plan.me,
                reasons: Vec::new(),
            },
            Inbound { shared: submissions, waiting: Default::default() },
            Settings(plan.limits.clone()),
            Notices::default(),
        ));
        spawn_rows(world, limits::ARRIVALS, |_| Arrival::default());
        spawn_rows(world, 2, |row| match row {
            0 => Communicator::founding(0, plan.procs, plan.me, Members::World),
            _ => Communicator::founding(1, 1, 0, Members::List([plan.me].into())),
        });
        spawn_cars(world, rows, plan.generation);
        spawn_rows(world, limits::BUFFERS_INITIAL.min(plan.limits.buffers_max), |_| Buffer::default());
        spawn_rows(world, limits::SUPPLIES_INITIAL, |_| Supply::default());
    }

    /// Finds the columns and links all free rows. Every table has at least one row by now.
    pub fn find(world: &mut World) -> Self {
        let tables = Tables { columns: Columns::find(world), addresses: Arc::new(Addresses::new()) };
        tables.refresh(world);
        world.insert_resource(Shared(tables.clone()));
        let all = tables.all(world);
        let own = all.cars.len() - CONTROL_ROWS;
        link_free(&mut all.progress.control_cars, all.cars, own);
        link_free(&mut all.progress.free_cars, &mut all.cars[..own], 0);
        all.progress.stamps.grow(all.cars.len());
        link_free(&mut all.progress.free_buffers[0], all.buffers, 0);
        all.progress.count_free_buffers(all.buffers.len());
        link_free(&mut all.progress.free_supplies, all.supplies, 0);
        tables
    }

    /// The tables of a world, with fresh addresses.
    ///
    /// # Panics
    /// If [`Tables::find`] was not called on the world before.
    pub fn of(world: &mut World) -> Self {
        let tables = world.resource::<Shared>().0.clone();
        tables.refresh(world);
        tables
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

    /// Takes all addresses anew: after anything that may have spawned rows.
    pub fn refresh(&self, world: &mut World) {
        self.addresses.refresh(&self.columns, world.as_unsafe_world_cell());
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

    /// Rows of the tables that only the engine may spawn or move: its own one row, and those of all other tables.
    pub fn row_counts(&self, _world: &mut World) -> [usize; 8] {
        let at = &self.addresses;
        [
            at.progress.get().len(),
            at.cars.get().len(),
            at.buffers.get().len(),
            at.supplies.get().len(),
            at.arrivals.get().len(),
            at.communicators.get().len(),
            at.endpoints.get().len(),
            at.vcs.get().len(),
        ]
    }

    /// Takes all addresses anew after a system of the application has panicked or moved rows, so that the engine can
    /// still be closed: the engine's one row is looked for if it is not where it was.
    #[cold]
    pub fn recover(&mut self, world: &mut World) {
        self.refresh(world);
        if self.addresses.progress.get().len() != 1 {
            self.columns.progress = ColumnState::new::<Progress>(world);
            self.columns.procs = ColumnState::new::<ProcTable>(world);
            self.columns.inbound = ColumnState::new::<Inbound>(world);
            self.columns.limits = ColumnState::new::<Settings>(world);
            self.columns.notices = ColumnState::new::<Notices>(world);
            self.refresh(world);
        }
    }

    /// Spawns CAR rows, as many again as there are, up to their bound. `false` if they are at it.
    pub fn grow(&self, world: &mut World) -> bool {
        let all = self.all(world);
        let cars = all.cars.len();
        let (own, most) = (cars - CONTROL_ROWS, all.limits.0.cars_max);
        let more = own.min(most.saturating_sub(own));
        let generation = all.requests[0].generation;
        spawn_cars(world, more, generation);
        self.refresh(world);
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
            spawn_rows(world, target - there, |_| Communicator::FREE);
            self.refresh(world);
        }
    }

    /// Spawns buffer rows, as many again as there are, up to their bound.
    pub fn grow_buffers(&self, world: &mut World) {
        let all = self.all(world);
        let buffers = all.buffers.len();
        let most = all.limits.0.buffers_max.max(buffers_granted(all.progress, all.vcs));
        let more = buffers.min(most.saturating_sub(buffers));
        spawn_rows(world, more, |_| Buffer::default());
        self.refresh(world);
        let all = self.all(world);
        link_free(&mut all.progress.free_buffers[0], all.buffers, buffers);
        all.progress.count_free_buffers(all.buffers.len());
    }

    /// Spawns supply rows, as many again as there are. There are at most as many as CAR rows; `false` if that is so.
    pub fn grow_supplies(&self, world: &mut World) -> bool {
        let all = self.all(world);
        let supplies = all.supplies.len();
        let more = supplies.min(all.limits.0.cars_max.saturating_sub(supplies));
        spawn_rows(world, more, |_| Supply::default());
        self.refresh(world);
        let all = self.all(world);
        link_free(&mut all.progress.free_supplies, all.supplies, supplies);
        more > 0
    }
}

/// Spawns CAR rows, each with a request that is free.
fn spawn_cars(world: &mut World, count: usize, generation: u32) {
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
        let components = world.query::<&Endpoint>().iter(world).filter_map(|e| Some(e.rows?.component)).collect();
        (ColumnState::new::<Car>(world).table(), components)
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
