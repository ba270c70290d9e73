//! Larger rings: how they are made and passed. [`crate::rings::links`] decides when, and does the work of both ends.

use super::Shm;
use super::segment::{self, Map, Share};
use crate::handshake::Packet;
use crate::rings::links::Passed;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tickwire_components::limits::ROOMY_RING_BYTES;

impl Shm {
    /// Makes and passes a larger ring to a peer, since the present one has been too small for long. If there is no memory, the ring stays
    /// as it is and everything else continues.
    pub(super) fn grow(&mut self, link: u32) {
        let Some((bytes, wish)) = self.links.wish(link) else { return };
        let grown_max = self.own.config.grown_bytes_max as u64;
        let grown = self.own.grown.load(Ordering::Relaxed);
        let within =
            |most: u64| most.saturating_sub(grown).checked_ilog2().map_or(0, |log| 1 << log.min(usize::BITS - 2));
        // Rings longer than [`ROOMY_RING_BYTES`] may use half of the memory only. The other half is for shorter ones.
        let most = within(grown_max / 2).max(within(grown_max).min(ROOMY_RING_BYTES));
        let larger = wish.min(most);
        match self.connections.line(link).is_some() && larger > bytes {
            true => match self.pass_larger(link, larger) {
                Some(passed) => self.links.go_over(link, passed),
                None => self.links.stay(link),
            },
            false => self.links.stay(link),
        }
    }

    fn pass_larger(&self, link: u32, bytes: usize) -> Option<Passed> {
        let share = Share::of(&self.own.grown, bytes);
        let (file, map) = segment::create(self.own.place(), bytes).ok()?;
        self.connections.line(link)?.pass(&Packet::Ring(bytes as u64), &[file.as_fd()]).ok()?;
        let data = map.base();
        // SAFETY: a new segment of this length, zeroed and aligned to a page, which is kept; nobody but the two ends has it.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        Some(unsafe { Passed::new(data, bytes, Arc::new((map, share))) })
    }

    /// Handles a larger place for the peer's ring, which the peer has passed.
    ///
    /// # Errors
    /// Why the place is invalid, in words.
    pub(super) fn follow(&mut self, link: u32, bytes: u64, passed: Vec<OwnedFd>) -> Result<(), String> {
        if self.connections.line(link).is_none() {
            return Ok(());
        }
        let most = self.own.config.ring_bytes;
        let bytes = usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two() && *bytes <= most);
        let Some(bytes) = bytes else { return Err(format!("it passed a ring that is none of at most {most} bytes")) };
        let Ok([file]) = <[OwnedFd; 1]>::try_from(passed) else {
            // There was no free descriptor number for it.
            return self.links.follow(link, None);
        };
        segment::check(&file, bytes, self.own.files)?;
        let Ok(map) = Map::new(&file, bytes) else { return self.links.follow(link, None) };
        let data = map.base();
        // SAFETY: a mapping of this length, aligned to a page and allocated, which is kept. Its bytes are zero unless the peer is
        // hostile, which the ends survive.
        #[expect(unsafe_code, reason = "a view of shared memory")]
        let passed = unsafe { Passed::new(data, bytes, Arc::new(map)) };
        self.links.follow(link, Some(passed))
    }
}
