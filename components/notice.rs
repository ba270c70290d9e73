//! Whom to call when a request is done.

use crate::{Exclusive, RequestError, Row, Status};
use bevy_ecs::component::Component;
use std::fmt;

/// How a request ended.
pub type Outcome = Result<Status, RequestError>;

/// A function that is called once, with how its request ended.
pub type Notice = Box<dyn FnOnce(Outcome) + Send>;

/// The callbacks of requests. On the engine's one row; written by the application's calls, emptied by Complete.
#[derive(Component, Default)]
#[component(on_remove = crate::car::refuse_removal)]
pub struct Notices(Exclusive<Inner>);

#[derive(Default)]
struct Inner {
    /// By row of the request, those that are not done.
    rows: Vec<Vec<Notice>>,
    /// Of requests that were done before.
    late: Vec<(Notice, Outcome)>,
}

impl Notices {
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

    /// Those of a row, in the order in which they were added.
    pub fn take(&mut self, row: Row) -> Vec<Notice> {
        self.0.get().rows.get_mut(row as usize).map(std::mem::take).unwrap_or_default()
    }

    /// Those that are due, and what each is to be told.
    pub fn take_late(&mut self) -> Vec<(Notice, Outcome)> {
        std::mem::take(&mut self.0.get().late)
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").finish_non_exhaustive()
    }
}
