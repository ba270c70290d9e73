//! Rings that grow with what goes through them, one direction by itself.
//!
//! The writer decides, once its ring has been [too small](crate::rings::shortage) for long: its transport makes a larger place for
//! the data and passes it to the reader's, by its own ways. The reader maps it and says so in a word beside the ring, or that
//! it cannot. Only then does the writer go on there, behind a mark in the old place; what it writes meanwhile goes through the old one as
//! ever. So nothing waits for a ring to grow, order is kept, and nothing is lost wherever either side stops. Only the data
//! move: what stands before them is shared by all places.
//!
//! A reader takes one place at a time, each larger than the one before, up to what both sides have agreed upon; a mark without one
//! is a corrupt ring.

use super::{Links, Need};
use crate::rings::memory::{Answer, RawRing};
use crate::rings::ring::RingMemory;
use smallvec::SmallVec;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// Keeps memory alive.
type Keep = Arc<dyn Any + Send + Sync>;

/// A larger place for the data of a ring: as many zero bytes as the ring shall have, for ring ends only.
pub struct Passed {
    data: NonNull<u8>,
    bytes: usize,
    _keep: Keep,
}

impl Passed {
    /// `bytes` zero bytes, a power of two.
    ///
    /// # Safety
    /// `data` is aligned to 128 bytes; `bytes` from there on are mapped for reading and writing as long as `keep` lives, and
    /// are accessed by the ends of one ring only.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub unsafe fn new(data: NonNull<u8>, bytes: usize, keep: Keep) -> Self {
        Passed { data, bytes, _keep: keep }
    }

    /// The ring with its data here.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    fn ring(&self, of: &RawRing) -> RawRing {
        // SAFETY: by the contract of `new`; the row keeps the memory with the ring.
        unsafe { of.grown(self.data, self.bytes) }
    }
}

// SAFETY: an address of memory that is kept with it, and accessed through atomics and raw copies only.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Send for Passed {}

/// What a connection's rings have beside the memory that it was opened with.
pub(super) struct Grown {
    ring_max: usize,
    outgoing: Places,
    incoming: Places,
}

/// Where the data of one ring are, unless they are where they were at first, and where they will be.
#[derive(Default)]
struct Places(SmallVec<[Passed; 1]>);

impl Grown {
    pub(super) fn none(ring_max: usize) -> Self {
        Grown { ring_max, outgoing: Places::default(), incoming: Places::default() }
    }
}

impl Places {
    /// Where a ring of so many bytes will go on.
    fn next(&self, capacity: u64) -> Option<&Passed> {
        self.0.iter().find(|place| place.bytes as u64 > capacity)
    }

    /// Lets go of those before the one of a ring of so many bytes.
    fn forget_before(&mut self, capacity: u64) {
        self.0.retain(|place| place.bytes as u64 >= capacity);
    }
}

impl Links {
    /// How much of a payload goes in one frame of a connection for certain, once the peer has read what is there, bytes.
    pub fn fits(&mut self, link: u32, payload: u64) -> u64 {
        let Some(row) = self.row(link) else { return payload };
        let fits = row.writer.fits(payload);
        if fits < payload {
            self.note_shortage(link);
        }
        fits
    }

    /// A frame had no room: the ring may have to grow.
    #[cold]
    #[inline(never)]
    pub(super) fn note_shortage(&mut self, link: u32) {
        let Some(row) = self.row(link) else { return };
        let capacity = row.writer.memory().capacity();
        let position = row.writer.position();
        if row.writer.shortage().wish(capacity, position).is_some()
            && row.grown.outgoing.next(capacity).is_none()
            && !self.needs.contains(&(link, Need::Room))
        {
            self.needs.push((link, Need::Room));
        }
    }

    /// Bytes that the ring to a connection's peer has, and how many it should have by what has gone through it.
    pub fn wish(&mut self, link: u32) -> Option<(usize, usize)> {
        let row = self.row(link)?;
        let capacity = row.writer.memory().capacity();
        let position = row.writer.position();
        let wish =
            row.writer.shortage().wish(capacity, position).filter(|_| row.grown.outgoing.next(capacity).is_none())?;
        // What the peer has said of an earlier one.
        row.writer.memory().say(Answer::None);
        Some((capacity as usize, wish as usize))
    }

    /// A larger place for the data of the ring to the peer was passed to it.
    pub fn go_over(&mut self, link: u32, to: Passed) {
        let Some(row) = self.row(link) else { return };
        row.grown.outgoing.0.push(to);
        self.growing.push(link);
    }

    /// There is no larger place for now: it is asked for again when it has been missed for longer.
    pub fn stay(&mut self, link: u32) {
        if let Some(row) = self.row(link) {
            let position = row.writer.position();
            row.writer.shortage().wait_longer(position);
        }
    }

    /// The peer has passed a larger place for the data of the ring from it, or what should have been one: none if there was
    /// no room for it here.
    ///
    /// # Errors
    /// If it may not, in words.
    pub fn follow(&mut self, link: u32, to: Option<Passed>) -> Result<(), String> {
        let Some(row) = self.row(link) else { return Ok(()) };
        let memory = *row.reader.memory();
        let Some(to) = to else {
            memory.say(Answer::Refused);
            return Ok(());
        };
        if to.bytes > row.grown.ring_max || !row.reader.follow_to(to.ring(&memory)) {
            let (bytes, ring_max) = (to.bytes, row.grown.ring_max);
            return Err(format!(
                "it passed a ring of {bytes} bytes out of turn, from one of {} bytes with {ring_max} at most",
                memory.capacity()
            ));
        }
        row.grown.incoming.0.push(to);
        self.growing.push(link);
        memory.say(Answer::Taken);
        Ok(())
    }

    /// Goes over to larger rings that the peers have taken, and lets go of those that are behind; looks at one connection at a
    /// time whether much goes through it. To be called now and then.
    pub fn tend(&mut self) {
        self.looked_at = if self.looked_at as usize + 1 < self.rows.len() { self.looked_at + 1 } else { 0 };
        self.note_shortage(self.looked_at);
        for at in (0..self.growing.len()).rev() {
            if !self.tend_link(self.growing[at]) {
                self.growing.swap_remove(at);
            }
        }
    }

    /// `true` if something of a connection is still to come.
    fn tend_link(&mut self, link: u32) -> bool {
        let Some(row) = self.row(link) else { return false };
        let memory = *row.writer.memory();
        let places = &mut row.grown.outgoing;
        match (places.next(memory.capacity()), memory.answer()) {
            (None, _) | (_, Answer::None) => {}
            (Some(next), Answer::Taken) => row.writer.go_over(next.ring(&memory)),
            (Some(_), Answer::Refused) => {
                row.writer.shortage().give_up();
                places.0.pop();
            }
        }
        let capacity = row.writer.memory().capacity();
        places.forget_before(capacity);
        let is_going = places.next(capacity).is_some();
        // What was read and not released yet is in the old place.
        let places = &mut row.grown.incoming;
        let capacity = row.reader.memory().capacity();
        if !row.touched {
            places.forget_before(capacity);
        }
        is_going || row.touched || places.next(capacity).is_some()
    }
}
