//! What peers are given besides frames: pieces of messages that they ask for. See [`crate::rings::outlet`].

use super::row::LinkRow;
use super::table::Links;
use crate::rings::outlet::Outlet;
use std::collections::VecDeque;
use tickwire_components::{Row, Span};

impl Links {
    /// Gives the peer of a connection an outlet: from now on it may ask for what is exposed to it.
    pub fn give_outlet(&mut self, link: u32) {
        if let Some(row) = self.row(link) {
            row.outlet = Some(Box::default());
        }
    }

    /// What the peer of a connection is given besides frames.
    #[inline]
    pub fn outlet(&mut self, link: u32) -> Option<&mut Outlet> {
        self.row(link)?.outlet.as_deref_mut()
    }

    /// The outlets of all connections that have one.
    pub fn outlets(&mut self) -> impl Iterator<Item = &mut Outlet> {
        self.rows.iter_mut().flatten().filter_map(|row| row.outlet.as_deref_mut())
    }

    /// Withdraws a run from all connections to a peer. Most often there is one.
    #[cold]
    pub(super) fn withdraw_elsewhere(&mut self, vc: Row, run: Span) {
        for row in self.rows.iter_mut().flatten().filter(|row| row.vc == vc) {
            if let Some(outlet) = &mut row.outlet {
                outlet.withdraw(run);
            }
        }
    }

    /// Goes on with what peers have asked for, where there was no room for it.
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

/// Notes that a piece of a connection waits for room, so that a drain comes by.
#[cold]
pub(super) fn note_waiting(waiting: &mut Vec<u32>, backlog: &mut VecDeque<u32>, link: u32) {
    if !waiting.contains(&link) {
        waiting.push(link);
    }
    if !backlog.contains(&link) {
        backlog.push_back(link);
    }
}
