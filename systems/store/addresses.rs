//! The addresses of a store's columns.

use super::tables::{Settings, Tables};
use crate::procs::boards::Boards;
use crate::procs::endpoint::Endpoint;
use crate::procs::windows::Windows;
use crate::rows::{Column, One, RowStateColumns, Rows, Wire};
use crate::views::ColumnState;
use bevy_ecs::component::ComponentId;
use bevy_ecs::prelude::*;
use bevy_ecs::storage::TableRow;
use bevy_ecs::world::unsafe_world_cell::UnsafeWorldCell;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use tickwire_components::submission::Inbound;
use tickwire_components::{
    Arrival, Buffer, Callbacks, Car, Communicator, Held, Large, Node, ProcTable, Progress, Request, Supply, Vc,
};

/// Tables whose rows only the engine may spawn or move, in the order of [`super::guard::Table`].
pub(super) const TABLES: usize = 8;

/// The addresses of all columns of a store.
pub(crate) struct Addresses {
    block: UnsafeCell<Block>,
}

struct Block {
    rows: Rows<'static>,
    arrivals: Column<'static, Arrival>,
    endpoints: Column<'static, Endpoint>,
    /// Number of rows of the table of singletons.
    ones: usize,
}

// SAFETY: the block is read and written only by whoever has borrowed the store, which is `Send`.
#[expect(unsafe_code, reason = "addresses of columns")]
unsafe impl Send for Addresses {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "addresses of columns")]
unsafe impl Sync for Addresses {}

macro_rules! columns {
    ($($field:ident: $type:ty, $name:ident, $place:ident, $kind:ident;)*) => {
        /// A column of the tables.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "named like the components")]
        pub enum ColumnName {
            $($name,)*
        }

        /// The location of each column.
        #[derive(Clone, Copy)]
        pub(crate) struct Columns {
            $(pub(super) $field: ColumnState,)*
        }

        impl Columns {
            /// # Errors
            /// If a column is in no table, or in several.
            pub(super) fn find(world: &mut World) -> Result<Self, String> {
                Ok(Columns {
                    $($field: ColumnState::find::<$type>(world)?,)*
                })
            }

            /// The columns of a world without procs and endpoints.
            pub(super) fn of_few(world: &mut World) -> Self {
                Columns {
                    $($field: ColumnState::new_or_empty::<$type>(world),)*
                }
            }

            /// The first of the engine's components that some entity has.
            pub(super) fn any_used(world: &mut World) -> Option<&'static str> {
                $(if ColumnState::is_used::<$type>(world) {
                    return Some(std::any::type_name::<$type>());
                })*
                None
            }

            /// The component of a column.
            pub(super) fn component(&self, name: ColumnName) -> ComponentId {
                match name {
                    $(ColumnName::$name => self.$field.component(),)*
                }
            }
        }

        impl Block {
            /// Asks bevy for all addresses.
            fn take(&mut self, columns: &Columns, cell: UnsafeWorldCell<'_>) {
                // SAFETY: only addresses are taken here; whoever uses them has borrowed the world.
                #[expect(unsafe_code, reason = "addresses of columns")]
                unsafe {
                    $(columns!(@place self, $field, $place).set(columns.$field.slice::<$type>(cell));)*
                    self.ones = columns.progress.slice::<Progress>(cell).len();
                }
            }
        }
    };
    (@place $block:ident, $field:ident, rows) => { $block.rows.$field };
    (@place $block:ident, $field:ident, wire) => { $block.$field };
}

columns! {
    progress: Progress, Progress, rows, One;
    procs: ProcTable, ProcTable, rows, One;
    inbound: Inbound, Inbound, rows, One;
    limits: Settings, Settings, rows, One;
    callbacks: Callbacks, Callbacks, rows, One;
    boards: Boards, Boards, rows, One;
    windows: Windows, Windows, rows, One;
    cars: Car, Car, rows, Column;
    large: Large, Large, rows, Column;
    nodes: Node, Node, rows, Column;
    requests: Request, Request, rows, Column;
    held: Held, Held, rows, Column;
    buffers: Buffer, Buffer, rows, Column;
    supplies: Supply, Supply, rows, Column;
    communicators: Communicator, Communicator, rows, Column;
    vcs: Vc, Vc, rows, Column;
    arrivals: Arrival, Arrival, wire, Column;
    endpoints: Endpoint, Endpoint, wire, Column;
}

impl Block {
    const fn dangling() -> Self {
        let rows = Rows {
            progress: One::dangling(),
            procs: One::dangling(),
            inbound: One::dangling(),
            limits: One::dangling(),
            callbacks: One::dangling(),
            boards: One::dangling(),
            windows: One::dangling(),
            cars: Column::dangling(),
            large: Column::dangling(),
            nodes: Column::dangling(),
            requests: Column::dangling(),
            held: Column::dangling(),
            buffers: Column::dangling(),
            supplies: Column::dangling(),
            communicators: Column::dangling(),
            vcs: Column::dangling(),
            row_states: RowStateColumns::empty(),
        };
        Block { rows, arrivals: Column::dangling(), endpoints: Column::dangling(), ones: 0 }
    }
}

impl Columns {
    /// A column of each table whose rows only the engine may spawn or move, in the order of [`super::guard::Table`].
    pub(super) fn one_of_each_table(&self) -> [ColumnState; TABLES] {
        let &Columns { progress, cars, buffers, supplies, arrivals, communicators, endpoints, vcs, .. } = self;
        [progress, cars, buffers, supplies, arrivals, communicators, endpoints, vcs]
    }
}

impl Addresses {
    pub(super) const fn new() -> Self {
        Addresses { block: UnsafeCell::new(Block::dangling()) }
    }

    /// Takes all addresses anew, and returns the number of rows of each table.
    ///
    /// # Safety
    /// Nothing that was given out by this is in use, and the world is the one of the columns.
    #[expect(unsafe_code, reason = "written by whoever has borrowed the store")]
    pub(super) unsafe fn refresh(
        &self,
        columns: &Columns,
        states: &[ComponentId],
        world: &mut World,
    ) -> [usize; TABLES] {
        // SAFETY: by this function's contract.
        let block = unsafe { &mut *self.block.get() };
        block.take(columns, world.as_unsafe_world_cell());
        block.take_row_states(columns, states, world);
        block.counts()
    }

    /// The rows, and the endpoints and arrivals.
    ///
    /// # Safety
    /// The store is borrowed for `'w`, and nothing else that was given out by this is in use.
    #[expect(unsafe_code, reason = "columns of a borrowed store")]
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "see the contract")]
    pub(super) unsafe fn rows<'w>(&'w self) -> (&'w mut Rows<'static>, Wire<'w>) {
        // SAFETY: by this function's contract.
        let block = unsafe { &mut *self.block.get() };
        (&mut block.rows, Wire { endpoints: &mut block.endpoints, arrivals: &mut block.arrivals })
    }

    /// The engine's singleton row.
    ///
    /// # Safety
    /// As [`Addresses::rows`].
    #[expect(unsafe_code, reason = "a column of a borrowed store")]
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "see the contract")]
    pub(super) unsafe fn progress(&self) -> &mut Progress {
        // SAFETY: by this function's contract.
        unsafe { &mut *(*self.block.get()).rows.progress.pointer() }
    }

    /// What a poll reads that finds nothing to do: the engine's singleton row, submissions, and endpoints.
    ///
    /// # Safety
    /// As [`Addresses::rows`].
    #[expect(unsafe_code, reason = "columns of a borrowed store")]
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "see the contract")]
    pub(super) unsafe fn look(&self) -> (&mut Progress, &mut Inbound, &mut [Endpoint]) {
        // SAFETY: by this function's contract; each column is borrowed once.
        unsafe {
            let Block { rows, endpoints, .. } = &*self.block.get();
            (&mut *rows.progress.pointer(), &mut *rows.inbound.pointer(), &mut *endpoints.pointer())
        }
    }

    /// The communicators, to be read.
    ///
    /// # Safety
    /// The store is borrowed for as long as the column is, and nobody writes it.
    #[expect(unsafe_code, reason = "a column of a borrowed store")]
    pub(super) unsafe fn communicators(&self) -> &[Communicator] {
        // SAFETY: by this function's contract.
        unsafe { &*(*self.block.get()).rows.communicators.pointer() }
    }

    /// The windows, to be read.
    ///
    /// # Safety
    /// As [`Addresses::communicators`].
    #[expect(unsafe_code, reason = "a column of a borrowed store")]
    pub(super) unsafe fn windows(&self) -> &Windows {
        // SAFETY: by this function's contract.
        unsafe { &*(*self.block.get()).rows.windows.pointer() }
    }

    /// All columns.
    ///
    /// # Safety
    /// As [`Addresses::rows`].
    #[expect(unsafe_code, reason = "columns of a borrowed store")]
    #[inline(always)]
    pub(super) unsafe fn tables<'w>(&'w self) -> Tables<'w> {
        // SAFETY: by this function's contract.
        let Block { rows, arrivals, endpoints, .. } = unsafe { &*self.block.get() };
        let cars = rows.cars.pointer().len();
        // SAFETY: as above; each column is borrowed once. Columns of the CAR table have as many rows as it has.
        unsafe {
            Tables {
                progress: &mut *rows.progress.pointer(),
                procs: &mut *rows.procs.pointer(),
                inbound: &mut *rows.inbound.pointer(),
                limits: &*rows.limits.pointer(),
                callbacks: &mut *rows.callbacks.pointer(),
                boards: &mut *rows.boards.pointer(),
                windows: &mut *rows.windows.pointer(),
                arrivals: &mut *arrivals.pointer(),
                cars: &mut *rows.cars.pointer(),
                large: of_length(rows.large.pointer(), cars),
                nodes: of_length(rows.nodes.pointer(), cars),
                requests: of_length(rows.requests.pointer(), cars),
                held: of_length(rows.held.pointer(), cars),
                buffers: &mut *rows.buffers.pointer(),
                supplies: &mut *rows.supplies.pointer(),
                communicators: &mut *rows.communicators.pointer(),
                endpoints: &mut *endpoints.pointer(),
                vcs: &mut *rows.vcs.pointer(),
            }
        }
    }
}

/// A column with the length of another one of its table, so that one bounds check of a row number serves both.
///
/// # Safety
/// The column has so many rows, and is used by nobody else.
#[expect(unsafe_code, reason = "columns of a borrowed store")]
#[inline(always)]
unsafe fn of_length<'w, T>(rows: *mut [T], length: usize) -> &'w mut [T] {
    // SAFETY: by this function's contract.
    unsafe { std::slice::from_raw_parts_mut(rows.cast(), length) }
}

impl Block {
    /// Finds the columns that transports add to the CAR table.
    fn take_row_states(&mut self, columns: &Columns, states: &[ComponentId], world: &World) {
        self.rows.row_states.clear();
        let Some(table) = world.storages().tables.get(columns.cars.table()) else { return };
        let rows = table.entity_count() as usize;
        for &component in states {
            let found = table.get_column(component).zip(world.components().get_info(component));
            let Some((column, info)) = found.filter(|_| rows > 0) else { continue };
            // SAFETY: the table has a row 0; only its address is taken.
            #[expect(unsafe_code, reason = "the address of a column whose type only its transport knows")]
            let first = unsafe { column.get_data_unchecked(TableRow::new(nonmax::NonMaxU32::ZERO)) };
            if let Some(first) = NonNull::new(first.as_ptr().cast_mut()) {
                self.rows.row_states.add(component, first, info.layout().size(), rows);
            }
        }
    }

    /// Number of rows of each table whose rows only the engine may spawn or move, in the order of [`super::guard::Table`].
    fn counts(&self) -> [usize; TABLES] {
        let Block { rows, arrivals, endpoints, ones } = self;
        [
            *ones,
            rows.cars.pointer().len(),
            rows.buffers.pointer().len(),
            rows.supplies.pointer().len(),
            arrivals.pointer().len(),
            rows.communicators.pointer().len(),
            endpoints.pointer().len(),
            rows.vcs.pointer().len(),
        ]
    }
}
