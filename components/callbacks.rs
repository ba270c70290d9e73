//! Whom to tell when a request is done.

use crate::{Exclusive, NIL, RequestError, Row, Status};
use bevy_ecs::component::Component;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a request ended.
pub type Outcome = Result<Status, RequestError>;

/// A function that is called once, with how its request ended.
pub type Notice = Box<dyn FnOnce(Outcome) + Send>;

/// What somebody who was told has panicked with.
pub type Panic = Box<dyn Any + Send>;

/// The callbacks of requests, and the other threads that await some. On the engine's one row; written by the application's
/// calls and by Post, emptied by Complete.
#[derive(Component, Default)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Callbacks(Exclusive<Inner>);

#[derive(Default)]
struct Inner {
    /// By row of the request, those that are not done.
    rows: Vec<Vec<Notice>>,
    /// Of requests that were done before.
    late: Vec<(Notice, Outcome)>,
    /// By row of the request, the slot of another thread that awaits it, or [`NIL`].
    slots: Vec<u32>,
    /// The first panic of those who were told, until Complete passes it on.
    panicked: Option<Panic>,
}

impl Callbacks {
    /// Calls when the request in a row is done.
    pub fn add(&mut self, row: Row, notice: Notice) {
        let rows = &mut self.0.get().rows;
        if rows.len() <= row as usize {
            rows.resize_with(row as usize + 1, Vec::new);
        }
        rows[row as usize].push(notice);
    }

    /// Calls with the next run of Complete.
    pub fn add_late(&mut self, notice: Notice, outcome: Outcome) {
        self.0.get().late.push((notice, outcome));
    }

    /// Another thread awaits the request in a row, in this slot.
    pub fn await_in(&mut self, row: Row, slot: u32) {
        let slots = &mut self.0.get().slots;
        if slots.len() <= row as usize {
            slots.resize(row as usize + 1, NIL);
        }
        slots[row as usize] = slot;
    }

    /// The slot of another thread that awaits the request in a row.
    pub fn slot(&mut self, row: Row) -> Option<u32> {
        self.0.get().slots.get(row as usize).copied().filter(|&slot| slot != NIL)
    }

    /// As [`Callbacks::slot`]; nobody awaits it any more.
    pub fn take_slot(&mut self, row: Row) -> Option<u32> {
        let slot = self.0.get().slots.get_mut(row as usize)?;
        Some(std::mem::replace(slot, NIL)).filter(|&slot| slot != NIL)
    }

    /// Calls all of a row, in the order in which they were added. A panic of one keeps no other from being called.
    pub fn tell(&mut self, row: Row, outcome: &Outcome) {
        let callbacks = self.0.get().rows.get_mut(row as usize).map(std::mem::take).unwrap_or_default();
        callbacks.into_iter().for_each(|notice| self.call(notice, outcome.clone()));
    }

    /// Calls all of a row with the next run of Complete.
    pub fn tell_later(&mut self, row: Row, outcome: &Outcome) {
        let inner = self.0.get();
        let callbacks = inner.rows.get_mut(row as usize).map(std::mem::take).unwrap_or_default();
        inner.late.extend(callbacks.into_iter().map(|notice| (notice, outcome.clone())));
    }

    /// Calls those of requests that were done before.
    pub fn tell_late(&mut self) {
        // What one of them adds is for the next run.
        let late = std::mem::take(&mut self.0.get().late);
        late.into_iter().for_each(|(notice, outcome)| self.call(notice, outcome));
    }

    /// Calls all that are left, and forgets who awaits what: no request is completed any more.
    pub fn tell_all(&mut self, outcome: &Outcome) {
        self.tell_late();
        self.0.get().slots.clear();
        for row in 0..self.0.get().rows.len() {
            self.tell(row as Row, outcome);
        }
    }

    fn call(&mut self, notice: Notice, outcome: Outcome) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| notice(outcome))) {
            self.note_panic(panic);
        }
    }

    /// Keeps the first panic of those who were told.
    pub fn note_panic(&mut self, panic: Panic) {
        self.0.get().panicked.get_or_insert(panic);
    }

    /// The panic that was kept.
    pub fn take_panic(&mut self) -> Option<Panic> {
        self.0.get().panicked.take()
    }

    /// Whether one is kept.
    pub fn has_panic(&mut self) -> bool {
        self.0.get().panicked.is_some()
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").finish_non_exhaustive()
    }
}
