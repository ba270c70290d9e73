//! Column views: system parameters that give whole columns as slices by row number.
//!
//! A view remembers in which table its column is and declares its access as bevy asks for it; the slice itself it
//! asks bevy for each time a system runs (about 2 ns), so no address outlives a run.

use bevy_ecs::change_detection::Tick;
use bevy_ecs::component::{Component, ComponentId, Mutable};
use bevy_ecs::query::FilteredAccess;
use bevy_ecs::storage::TableId;
use bevy_ecs::system::{ReadOnlySystemParam, SystemAccess, SystemMeta, SystemParam, SystemParamValidationError};
use bevy_ecs::world::World;
use bevy_ecs::world::unsafe_world_cell::UnsafeWorldCell;
use std::ops::{Deref, DerefMut};

/// Where a column is.
#[derive(Clone, Copy, Debug)]
pub struct ColumnState {
    table: TableId,
    component: ComponentId,
}

impl ColumnState {
    /// Finds the column of `T`.
    ///
    /// # Panics
    /// If no row with a `T` exists, or if rows with it are in more than one table: the tables are spawned first.
    pub fn new<T: Component>(world: &mut World) -> Self {
        let component = world.register_component::<T>();
        let mut tables: Vec<TableId> = world
            .archetypes()
            .iter()
            .filter(|a| a.contains(component) && !a.is_empty())
            .map(|a| a.table_id())
            .collect();
        tables.dedup();
        let name = std::any::type_name::<T>();
        match tables[..] {
            [table] => ColumnState { table, component },
            [] => panic!("no row has a {name}: spawn the tables before the systems that view them"),
            _ => panic!("{name} is in more than one table: a column view needs all rows in one"),
        }
    }

    /// The table.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// The column as a slice.
    ///
    /// # Safety
    /// `T` is the type the state was made for; the cell may access the column, for writing if the slice is written.
    #[expect(unsafe_code, reason = "measured: a view costs 2 ns where a query costs 7")]
    #[inline(always)]
    pub unsafe fn slice<'w, T: Component>(&self, world: UnsafeWorldCell<'w>) -> *mut [T] {
        // SAFETY: the caller may access the column; bevy's tables are never removed.
        let column = unsafe { world.storages() }
            .tables
            .get(self.table)
            // SAFETY: `T` matches the component, by the caller's promise.
            .and_then(|table| unsafe { table.get_data_slice_for::<T>(self.component) });
        match column {
            Some(column) => std::ptr::slice_from_raw_parts_mut(column.as_ptr().cast_mut().cast::<T>(), column.len()),
            None => std::ptr::slice_from_raw_parts_mut(std::ptr::dangling_mut(), 0),
        }
    }

    pub(crate) fn declare<P>(&self, write: bool, access: &mut SystemAccess) {
        let mut filter = FilteredAccess::default();
        if write {
            filter.add_write(self.component);
        } else {
            filter.add_read(self.component);
        }
        if access.try_add(filter).is_err() {
            panic!("{} conflicts with another parameter of the same system", std::any::type_name::<P>());
        }
    }
}

/// A column by row number, for reading and writing.
pub struct Column<'w, T>(pub &'w mut [T]);

/// A column by row number, for reading.
pub struct ReadColumn<'w, T>(pub &'w [T]);

/// The one row of a table that has one.
pub struct One<'w, T>(pub &'w mut T);

impl<T> Deref for Column<'_, T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        self.0
    }
}

impl<T> DerefMut for Column<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        self.0
    }
}

impl<T> Deref for ReadColumn<'_, T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        self.0
    }
}

impl<T> Deref for One<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        self.0
    }
}

impl<T> DerefMut for One<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.0
    }
}

macro_rules! view {
    ($view:ident, $bound:path, $write:literal, $slice:ident => $get:expr) => {
        // SAFETY: the access to the column is declared in `init_access`, and nothing else is accessed.
        #[expect(unsafe_code, reason = "measured: a view costs 2 ns where a query costs 7")]
        unsafe impl<'a, T: $bound> SystemParam for $view<'a, T> {
            type State = ColumnState;
            type Item<'w, 's> = $view<'w, T>;

            fn init_state(world: &mut World) -> ColumnState {
                ColumnState::new::<T>(world)
            }

            fn init_access(state: &ColumnState, _: &mut SystemMeta, access: &mut SystemAccess, _: &mut World) {
                state.declare::<Self>($write, access);
            }

            #[inline(always)]
            unsafe fn get_param<'w>(
                state: &mut ColumnState,
                _: &SystemMeta,
                world: UnsafeWorldCell<'w>,
                _: Tick,
            ) -> Result<$view<'w, T>, SystemParamValidationError> {
                // SAFETY: `T` is the state's type, and the executor grants the declared access.
                let $slice = unsafe { state.slice::<T>(world) };
                // SAFETY: as above; rows stay where they are while a system runs.
                Ok($view(unsafe { $get }))
            }
        }
    };
}

/// Components that may be written.
pub trait Writable: Component<Mutability = Mutable> {}
impl<T: Component<Mutability = Mutable>> Writable for T {}

view!(Column, Writable, true, slice => &mut *slice);
view!(ReadColumn, Component, false, slice => &*slice);
view!(One, Writable, true, slice => &mut *slice.cast::<T>());

// SAFETY: the view gives shared access only.
#[expect(unsafe_code, reason = "a marker for read-only access")]
unsafe impl<T: Component> ReadOnlySystemParam for ReadColumn<'_, T> {}
