//! Bytes of messages that peers ask for, beside frames. See [`crate::rings::outlet`].

use super::row::LinkRow;
use super::table::Links;
use crate::rings::outlet::Outlet;
use std::collections::VecDeque;
use tickwire_components::{Row, Span};

impl Links {
    /// Gives a connection an outlet: from now on its peer may ask for runs that are exposed to it.
    pub fn give_outlet(&mut self, link: u32) {
        if let Some(row) = self.row(link) {
            row.outlet = Some(Box::default());
        }
    }

    /// The outlet of a connection, if it has one.
    #[inline]
    pub fn outlet(&mut self, link: u32) -> Option<&mut Outlet> {
        self.row(link)?.outlet.as_deref_mut()
    }

    /// The outlets of all connections that have one.
    pub fn outlets(&mut self) -> impl Iterator<Item = &mut Outlet> {
        self.rows.iter_mut().flatten().filter_map(|row| row.outlet.as_deref_mut())
    }

    /// Withdraws a run from all connections to a peer. Mostly there is one.
    #[cold]
    pub(super) fn withdraw_elsewhere(&mut self, vc: Row, run: Span) {
        for row in self.rows.iter_mut().flatten().filter(|row| row.vc == vc) {
            if let Some(outlet) = &mut row.outlet {
                outlet.withdraw(run);
            }
        }
    }

    /// Stages further bytes for questions that have waited for room.
    #[cold]
    pub(super) fn look_at_outlets(&mut self) {
        for at in (0..self.waiting.len()).rev() {
            let link = self.waiting[at];
            match self.row(link).is_some_and(LinkRow::look_at_outlet) {
                true => note_waiting(&mut self.waiting, &mut self.backlog, link),
                false => _ = self.waiting.swap_remove(at),
            }
        }
    }
}

/// Notes that a question of a connection waits for room, and makes the next drain visit the connection.
#[cold]
pub(super) fn note_waiting(waiting: &mut Vec<u32>, backlog: &mut VecDeque<u32>, link: u32) {
    if !waiting.contains(&link) {
        waiting.push(link);
    }
    if !backlog.contains(&link) {
        backlog.push_back(link);
    }
}
