//! Spawns the tables: the rows that an engine begins with, and the rows of a table that grows.

use super::tables::{Settings, Tables};
use crate::procs::boards::Boards;
use crate::procs::windows::Windows;
use bevy_ecs::bundle::NoBundleEffect;
use bevy_ecs::prelude::*;
use std::sync::Arc;
use tickwire_components::limits::{self, Limits};
use tickwire_components::submission::{Inbound, Submissions};
use tickwire_components::{
    Arrival, Buffer, Callbacks, Car, Communicator, FreeList, Held, KnownProc, Large, Link, Members, NIL, Node,
    ProcTable, Progress, Request, Routes, Row, Supply,
};

/// What the tables are spawned from.
#[derive(Clone)]
pub struct Plan {
    /// Limits and budgets.
    pub limits: Limits,
    /// Number of procs in the world.
    pub procs: u32,
    /// Number of this proc.
    pub me: u32,
    /// Cards of all procs, `card_bytes` each.
    pub cards: Vec<u8>,
    /// Bytes of a card.
    pub card_bytes: usize,
    /// CAR rows to begin with.
    pub rows: usize,
    /// First generation of requests, and in its lower half the first use of receipts without a row.
    pub generation: u64,
}

/// Initial communicators: that of all procs, and that of this proc alone.
pub(super) const COMMUNICATORS_INITIAL: usize = 2;

impl Plan {
    pub(super) fn car_rows(&self) -> usize {
        self.rows.clamp(1, self.limits.cars_max)
    }

    pub(super) fn buffer_rows(&self) -> usize {
        limits::BUFFERS_INITIAL.min(self.limits.buffers_max)
    }
}

/// Marks the engine's singleton row. The mark is not cloned with the row, and no other code can make one.
#[derive(Component)]
#[component(immutable, on_discard = tickwire_components::refuse_removal)]
pub(super) struct Mark;

/// Spawns all tables except those of contacted procs and endpoints. Returns the engine's singleton row.
pub(super) fn spawn(world: &mut World, plan: &Plan, submissions: Arc<Submissions>) -> Entity {
    let mut progress = Progress::new(&plan.limits, plan.procs);
    progress.receipts.first_use = plan.generation as u32;
    let one = world.spawn((
        Mark,
        progress,
        ProcTable {
            known: vec![KnownProc { row: NIL }; plan.procs as usize],
            cards: plan.cards.clone(),
            card_bytes: plan.card_bytes,
            me: plan.me,
            reasons: Vec::new(),
            departed: Vec::new(),
            fallen: Vec::new(),
            gone: Vec::new(),
            routes: Routes::default(),
        },
        Inbound::new(submissions),
        Settings(plan.limits.clone()),
        Callbacks::default(),
        Boards::default(),
        Windows::default(),
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

/// Puts all free rows into their free lists.
pub(super) fn link_all(all: &mut Tables<'_>) {
    link_free(&mut all.progress.free_cars, all.cars, 0);
    all.progress.stamps.grow(all.cars.len());
    link_free(&mut all.progress.free_buffers[0], all.buffers, 0);
    all.progress.count_free_buffers(all.buffers.len());
    link_free(&mut all.progress.free_supplies, all.supplies, 0);
    all.procs.known[all.procs.me as usize].row = 0;
}

/// Puts the rows from `first` on into a free list, the lowest on top.
pub(super) fn link_free<L: Link>(list: &mut FreeList, rows: &mut [L], first: usize) {
    for row in (first..rows.len()).rev() {
        list.push(rows, row as Row);
    }
}

/// Spawns CAR rows, each with a free request.
pub(super) fn spawn_cars(world: &mut World, count: usize, generation: u64) {
    let request = Request { generation, ..Request::FREE };
    spawn_rows(world, count, |_| (Car::default(), Large::default(), Node::NONE, request, Held::default()));
}

pub(super) fn spawn_rows<B: Bundle<Effect: NoBundleEffect>>(
    world: &mut World,
    count: usize,
    mut make: impl FnMut(usize) -> B,
) {
    world.spawn_batch((0..count).map(&mut make).collect::<Vec<B>>()).for_each(drop);
}
