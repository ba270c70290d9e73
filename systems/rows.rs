//! The columns of the tables, as the steps and the loops see them.
//!
//! [`Rows`] has the address of every column of one [`Store`](crate::store::Store). Reading a field loads an address, so a step pays only
//! for the columns that it uses. Endpoints and arrivals are separate ([`Wire`]): a step gets just the endpoint that it needs, so that a
//! transport can hand over frames while the rows are written.

use crate::procs::boards::Boards;
use crate::procs::endpoint::{Endpoint, RowStates};
use crate::procs::windows::Windows;
use crate::store::tables::Settings;
use bevy_ecs::component::ComponentId;
use bevy_ecs::ptr::PtrMut;
use std::any::Any;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use tickwire_components::submission::Inbound;
use tickwire_components::{
    Arrival, Buffer, Callbacks, Car, Communicator, Held, Large, Node, ProcTable, Progress, Request, Row, Supply, Vc,
};

/// Ties a column to its store: columns of two stores have different types, so one cannot be put in the place of another.
type Brand<'store> = PhantomData<fn(&'store ()) -> &'store ()>;

/// A column: a slice of a table's rows, indexed by row number.
pub struct Column<'store, T> {
    rows: *mut [T],
    store: Brand<'store>,
}

/// The one value of a table that has one row.
pub struct One<'store, T> {
    value: *mut T,
    store: Brand<'store>,
}

impl<T> Column<'_, T> {
    pub(crate) const fn dangling() -> Self {
        Column { rows: std::ptr::slice_from_raw_parts_mut(std::ptr::dangling_mut(), 0), store: PhantomData }
    }

    pub(crate) fn set(&mut self, rows: *mut [T]) {
        self.rows = rows;
    }

    pub(crate) fn pointer(&self) -> *mut [T] {
        self.rows
    }
}

impl<T> One<'_, T> {
    pub(crate) const fn dangling() -> Self {
        One { value: std::ptr::dangling_mut(), store: PhantomData }
    }

    pub(crate) fn set(&mut self, rows: *mut [T]) {
        self.value = rows.cast();
    }

    pub(crate) fn pointer(&self) -> *mut T {
        self.value
    }
}

impl<T> Deref for Column<'_, T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the store gives out `Rows` only while it is borrowed itself, and takes addresses anew when rows have moved.
        #[expect(unsafe_code, reason = "measured: an address costs one load where a look-up costs 16 instructions")]
        unsafe {
            &*self.rows
        }
    }
}

impl<T> DerefMut for Column<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; there is one `Column` for each column, and it is borrowed for writing.
        #[expect(unsafe_code, reason = "measured: an address costs one load where a look-up costs 16 instructions")]
        unsafe {
            &mut *self.rows
        }
    }
}

impl<T> Deref for One<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: as for `Column`: the row is there for as long as the store is.
        #[expect(unsafe_code, reason = "measured: an address costs one load where a look-up costs 16 instructions")]
        unsafe {
            &*self.value
        }
    }
}

impl<T> DerefMut for One<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and borrowed for writing.
        #[expect(unsafe_code, reason = "measured: an address costs one load where a look-up costs 16 instructions")]
        unsafe {
            &mut *self.value
        }
    }
}

/// The tables between the rows and the transports.
pub struct Wire<'w> {
    /// Endpoints.
    pub endpoints: &'w mut [Endpoint],
    /// Arrivals: the frames that DrainCq has read.
    pub arrivals: &'w mut [Arrival],
}

/// All columns except those of [`Wire`]. See the module.
pub struct Rows<'store> {
    /// The engine's singleton row.
    pub progress: One<'store, Progress>,
    /// Known procs.
    pub procs: One<'store, ProcTable>,
    /// Submissions of other threads.
    pub inbound: One<'store, Inbound>,
    /// Limits.
    pub limits: One<'store, Settings>,
    /// Callbacks to call when requests are done.
    pub callbacks: One<'store, Callbacks>,
    /// Boards of communicators.
    pub boards: One<'store, Boards>,
    /// Windows.
    pub windows: One<'store, Windows>,
    /// CARs.
    pub cars: Column<'store, Car>,
    /// Cold column of the CARs.
    pub large: Column<'store, Large>,
    /// The CARs' places in graphs.
    pub nodes: Column<'store, Node>,
    /// Requests.
    pub requests: Column<'store, Request>,
    /// Buffers of requests.
    pub held: Column<'store, Held>,
    /// Temporaries.
    pub buffers: Column<'store, Buffer>,
    /// Supplies.
    pub supplies: Column<'store, Supply>,
    /// Communicators.
    pub communicators: Column<'store, Communicator>,
    /// Contacted procs.
    pub vcs: Column<'store, Vc>,
    /// The columns that transports add to the CAR table.
    pub row_states: RowStateColumns<'store>,
}

/// The columns that transports add to the CAR table. See [`crate::procs::endpoint::RowState`].
pub struct RowStateColumns<'store> {
    columns: Vec<RowStateColumn>,
    store: Brand<'store>,
}

/// The location of one such column.
struct RowStateColumn {
    component: ComponentId,
    first: NonNull<u8>,
    /// Bytes of a value.
    stride: usize,
    rows: usize,
}

impl RowStateColumns<'_> {
    pub(crate) const fn empty() -> Self {
        RowStateColumns { columns: Vec::new(), store: PhantomData }
    }

    /// Forgets all addresses.
    pub(crate) fn clear(&mut self) {
        self.columns.clear();
    }

    /// Adds the column of a component: the address of its first value, the bytes of a value, and the number of rows.
    pub(crate) fn add(&mut self, component: ComponentId, first: NonNull<u8>, stride: usize, rows: usize) {
        self.columns.push(RowStateColumn { component, first, stride, rows });
    }

    /// The value of a transport on a CAR row.
    pub fn get(&mut self, states: RowStates, row: Row) -> Option<&mut dyn Any> {
        let column = self.columns.iter().find(|column| column.component == states.component)?;
        if row as usize >= column.rows {
            return None;
        }
        // SAFETY: the row is one of the column, whose type is the component's; `self` is borrowed while the value is.
        #[expect(unsafe_code, reason = "a column whose type only its transport knows")]
        let value = unsafe { PtrMut::new(column.first.byte_add(column.stride * row as usize)) };
        Some((states.cast)(value))
    }
}
