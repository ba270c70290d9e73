//! Watching: rings that have had frames are polled directly, a few of them at a time. All others announce theirs in the inbox.

use super::row::{Watched, Word};
use super::table::Links;
use crate::rings::fences;
use crate::rings::ring::RingMemory;
use std::sync::atomic::{Ordering, fence};
use tickwire_components::limits::{WATCHED, WATCHED_IDLE_POLLS};

impl Links {
    /// The place of a connection's ring among the watched rings.
    pub(super) fn place_of(&self, link: u32) -> Option<usize> {
        self.watched[..self.watched_count].iter().position(|watched| watched.link == link)
    }

    /// Polls a ring directly from now on, if there is a place for it.
    pub(super) fn start_watching(&mut self, link: u32) {
        if self.row(link).is_none_or(|row| row.watched || row.fault.is_some()) {
            return;
        }
        if self.watched_count == WATCHED {
            let idlest = (0..WATCHED).max_by_key(|&place| self.watched[place].idle).unwrap_or(0);
            if self.watched[idlest].idle < WATCHED_IDLE_POLLS {
                return;
            }
            self.stop_watching(idlest);
        }
        if let Some(row) = self.row(link) {
            row.watched = true;
            row.reader.memory().watch(true);
        }
        self.watched[self.watched_count] = Watched { word: self.word_of(link), link, idle: 0 };
        self.watched_count += 1;
    }

    /// Stops watching a ring: from now on its writer announces frames.
    fn stop_watching(&mut self, place: usize) {
        let link = self.watched[place].link;
        if let Some(row) = self.row(link) {
            row.watched = false;
            row.reader.memory().watch(false);
        }
        self.unlist(place);
        fences::heavy();
        // A writer that did not see the cleared flag has written before the fence, without announcing. So visit the ring once more.
        self.backlog.push_back(link);
    }

    /// A ring was read outside the polling of watched rings. If it is watched, updates the word to poll.
    pub(super) fn rewatch(&mut self, link: u32) {
        if let Some(place) = self.place_of(link) {
            self.watched[place].word = self.word_of(link);
        }
    }

    /// Prepares to sleep: from now on every frame is announced and rings the doorbell. With `peers_wake`, so does [`Links::wake`], for
    /// peers that call it. `false` if there is something to read already.
    pub fn arm(&mut self, peers_wake: bool) -> bool {
        // No doorbell rings when a staging buffer has room again.
        if !self.waiting.is_empty() {
            return false;
        }
        for place in 0..self.watched_count {
            let link = self.watched[place].link;
            if let Some(row) = self.row(link) {
                row.watched = false;
                row.reader.memory().watch(false);
            }
        }
        self.inbox.arm();
        // A peer that saw the ring as watched, or the doorbell as not armed, has written before this fence. What it wrote is visible now.
        if self.watched_count > 0 || peers_wake {
            fences::heavy();
        } else {
            fence(Ordering::SeqCst);
        }
        while self.watched_count > 0 {
            let link = self.watched[self.watched_count - 1].link;
            self.unlist(self.watched_count - 1);
            if self.row(link).is_some_and(|row| row.reader.ready()) {
                self.backlog.push_back(link);
            }
        }
        let mut quiet = !self.ready();
        for row in self.rows.iter_mut().flatten() {
            // A refused frame that fits by now is a reason to stay awake. If it does not fit yet, the peer will ring the doorbell.
            quiet &= !row.writer.wants_room() || row.writer.starve();
            // A send that waits for credit collects the grant in the next tick, and asks again if it is too small. So one look is
            // enough, and what has come without being needed does not keep the engine awake.
            if row.wants_credit && !row.starve_for_credit() {
                row.wants_credit = false;
                quiet = false;
            }
        }
        quiet
    }

    /// The word at which the next frame of a connection will start.
    #[inline]
    pub(super) fn word_of(&self, link: u32) -> Word {
        match &self.rows[link as usize] {
            Some(row) => row.next_word(),
            None => Word::NONE,
        }
    }

    /// Frees a place in the list of watched rings.
    pub(super) fn unlist(&mut self, place: usize) {
        self.watched_count -= 1;
        self.watched[place] = self.watched[self.watched_count];
        self.watched[self.watched_count] = Watched::NONE;
    }
}
