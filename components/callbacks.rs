//! Callbacks, and other threads, that are notified when a request is done.

use crate::{Exclusive, NIL, RequestError, Row, Status};
use bevy_ecs::component::Component;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a request ended.
pub type Outcome = Result<Status, RequestError>;

/// A function that is called once, with how its request ended.
pub type Notice = Box<dyn FnOnce(Outcome) + Send>;

/// The payload of a callback's panic.
pub type Panic = Box<dyn Any + Send>;

/// The callbacks of requests, and the slots of other threads that await requests. On the engine's one row. Written by the application's
/// calls and by Post; emptied by Complete.
#[derive(Component, Default)]
#[component(immutable, on_discard = crate::car::refuse_removal)]
pub struct Callbacks(Exclusive<Inner>);

#[derive(Default)]
struct Inner {
    /// Callbacks of requests that are not done, indexed by the row of the request.
    rows: Vec<Vec<Notice>>,
    /// Callbacks that were added after their request was done, and the outcome. Complete calls them.
    late: Vec<(Notice, Outcome)>,
    /// The slot of the thread that awaits a request, indexed by the row of the request; [`NIL`] if no other thread awaits it.
    slots: Vec<u32>,
    /// The first panic of a callback, until Complete propagates it.
    panicked: Option<Panic>,
}

impl Callbacks {
    /// Adds a callback to the request in a row. It is called when the request is done.
    pub fn add(&mut self, row: Row, notice: Notice) {
        let rows = &mut self.0.get().rows;
        if rows.len() <= row as usize {
            rows.resize_with(row as usize + 1, Vec::new);
        }
        rows[row as usize].push(notice);
    }

    /// Adds a callback whose request is already done. The next run of Complete calls it.
    pub fn add_late(&mut self, notice: Notice, outcome: Outcome) {
        self.0.get().late.push((notice, outcome));
    }

    /// Notes that another thread awaits the request in this row, and the thread's slot.
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

    /// As [`Callbacks::slot`], and forgets the slot: no thread awaits the request any more.
    pub fn take_slot(&mut self, row: Row) -> Option<u32> {
        let slot = self.0.get().slots.get_mut(row as usize)?;
        Some(std::mem::replace(slot, NIL)).filter(|&slot| slot != NIL)
    }

    /// Calls all callbacks of a row, in the order in which they were added. If one panics, the others are still called.
    pub fn tell(&mut self, row: Row, outcome: &Outcome) {
        let callbacks = self.0.get().rows.get_mut(row as usize).map(std::mem::take).unwrap_or_default();
        callbacks.into_iter().for_each(|notice| self.call(notice, outcome.clone()));
    }

    /// Leaves all callbacks of a row to the next run of Complete.
    pub fn tell_later(&mut self, row: Row, outcome: &Outcome) {
        let inner = self.0.get();
        let callbacks = inner.rows.get_mut(row as usize).map(std::mem::take).unwrap_or_default();
        inner.late.extend(callbacks.into_iter().map(|notice| (notice, outcome.clone())));
    }

    /// Calls the callbacks that were left to this run of Complete.
    pub fn tell_late(&mut self) {
        // A callback that is added by one of these callbacks is called in the next run.
        let late = std::mem::take(&mut self.0.get().late);
        late.into_iter().for_each(|(notice, outcome)| self.call(notice, outcome));
    }

    /// Calls all callbacks that are left, and forgets which threads await which requests. For the end of the engine, after which no
    /// request completes.
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

    /// Keeps a callback's panic, unless an earlier one is kept.
    pub fn note_panic(&mut self, panic: Panic) {
        self.0.get().panicked.get_or_insert(panic);
    }

    /// Takes out the panic that was kept.
    pub fn take_panic(&mut self) -> Option<Panic> {
        self.0.get().panicked.take()
    }

    /// Whether a panic is kept.
    pub fn has_panic(&mut self) -> bool {
        self.0.get().panicked.is_some()
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").finish_non_exhaustive()
    }
}
