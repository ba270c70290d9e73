//! Column views: system parameters that give whole columns as slices by row number.
//!
//! A view remembers the table of its column, and declares its access as bevy requires. It asks bevy for the slice each time a system runs
//! (about 2 ns), so no address outlives a run.

use bevy_ecs::archetype::Archetype;
use bevy_ecs::change_detection::Tick;
use bevy_ecs::component::{Component, ComponentId, Mutable};
use bevy_ecs::query::FilteredAccess;
use bevy_ecs::storage::TableId;
use bevy_ecs::system::{ReadOnlySystemParam, SystemAccess, SystemMeta, SystemParam, SystemParamValidationError};
use bevy_ecs::world::World;
use bevy_ecs::world::unsafe_world_cell::UnsafeWorldCell;
use std::ops::{Deref, DerefMut};

/// The location of a column.
#[derive(Clone, Copy, Debug)]
pub struct ColumnState {
    table: TableId,
    component: ComponentId,
}

impl ColumnState {
    /// Finds the column of `T`.
    ///
    /// # Panics
    /// If no row with a `T` exists, or if rows with a `T` are in more than one table. So spawn the tables first.
    pub fn new<T: Component>(world: &mut World) -> Self {
        Self::find::<T>(world).unwrap_or_else(|words| panic!("{words}"))
    }

    /// As [`ColumnState::new`], with an error instead of the panic.
    ///
    /// # Errors
    /// If no row with a `T` exists, or if rows with a `T` are in more than one table.
    pub(crate) fn find<T: Component>(world: &mut World) -> Result<Self, String> {
        let (component, tables) = Self::look_for::<T>(world);
        let name = std::any::type_name::<T>();
        match tables[..] {
            [table] => Ok(ColumnState { table, component }),
            [] => Err(format!("no row has a {name}: spawn the tables before the systems that view them")),
            _ => Err(format!("{name} is in more than one table: a column view needs all rows in one")),
        }
    }

    /// As [`ColumnState::find`], but if no row has a `T`, the column is empty.
    pub(crate) fn new_or_empty<T: Component>(world: &mut World) -> Self {
        let (component, tables) = Self::look_for::<T>(world);
        ColumnState { table: tables.first().copied().unwrap_or(TableId::empty()), component }
    }

    /// Whether some entity has a `T`.
    pub(crate) fn is_used<T: Component>(world: &mut World) -> bool {
        !Self::look_for::<T>(world).1.is_empty()
    }

    /// The component of `T`, and the tables that have rows with a `T`.
    fn look_for<T: Component>(world: &mut World) -> (ComponentId, Vec<TableId>) {
        let component = world.register_component::<T>();
        let with = |a: &&Archetype| a.contains(component) && !a.is_empty();
        let mut tables: Vec<TableId> = world.archetypes().iter().filter(with).map(Archetype::table_id).collect();
        tables.sort_unstable_by_key(|table| table.as_u32());
        tables.dedup();
        (component, tables)
    }

    /// The table.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// The component of the column.
    pub(crate) fn component(&self) -> ComponentId {
        self.component
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

/// Components that systems may write. The engine's tables are not among them, since they are immutable to bevy.
///
/// ```compile_fail,E0271
/// # use tickwire_components::Car;
/// # use tickwire_systems::views::Writable;
/// fn column<T: Writable>() {}
/// column::<Car>();
/// ```
pub trait Writable: Component<Mutability = Mutable> {}
impl<T: Component<Mutability = Mutable>> Writable for T {}

view!(Column, Writable, true, slice => &mut *slice);
view!(ReadColumn, Component, false, slice => &*slice);

// SAFETY: the view gives shared access only.
#[expect(unsafe_code, reason = "a marker for read-only access")]
unsafe impl<T: Component> ReadOnlySystemParam for ReadColumn<'_, T> {}
