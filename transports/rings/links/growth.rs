//! Rings that grow with what goes through them, each direction by itself.
//!
//! 1. The writer's ring has been [too small](crate::rings::shortage) for long. The writer's transport makes a larger place for the
//!    data, and passes it to the reader's transport in its own way.
//! 2. The reader maps the place. In a word beside the ring it says that it has, or that it cannot.
//! 3. Then the writer puts a mark into the old place and goes on in the new one. Until then it uses the old place as ever.
//!
//! So nothing waits for a ring to grow, frames keep their order, and nothing is lost wherever either side stops. Only the data
//! move: the words before them are shared by all places.
//!
//! A reader takes one place at a time. Each is larger than the one before, up to what both sides have agreed upon. A mark without a
//! place means that the ring is corrupt.

use super::ends::Need;
use super::places::Passed;
use super::table::Links;
use crate::rings::memory::Answer;
use crate::rings::ring::RingMemory;

impl Links {
    /// How much of a payload surely goes in one frame of a connection once the peer has emptied the ring, bytes.
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
        let written = row.writer.written();
        if row.writer.shortage().wish(capacity, written).is_some()
            && row.grown.outgoing.next(capacity).is_none()
            && !self.needs.contains(&(link, Need::Room))
        {
            self.needs.push((link, Need::Room));
        }
    }

    /// Bytes that the ring to the peer has, and how many it should have by what has gone through it. `None` if it should stay.
    pub fn wish(&mut self, link: u32) -> Option<(usize, usize)> {
        let row = self.row(link)?;
        let capacity = row.writer.memory().capacity();
        let written = row.writer.written();
        let wish =
            row.writer.shortage().wish(capacity, written).filter(|_| row.grown.outgoing.next(capacity).is_none())?;
        // Forget what the peer has said of an earlier place.
        row.writer.memory().say(Answer::None);
        Some((capacity as usize, wish as usize))
    }

    /// A larger place for the data of the ring to the peer was passed to it.
    pub fn go_over(&mut self, link: u32, to: Passed) {
        let Some(row) = self.row(link) else { return };
        row.grown.outgoing.push(to);
        self.growing.push(link);
    }

    /// There is no larger place for now. It is asked for again once it has been missed for longer.
    pub fn stay(&mut self, link: u32) {
        if let Some(row) = self.row(link) {
            let written = row.writer.written();
            row.writer.shortage().wait_longer(written);
        }
    }

    /// The peer has passed a larger place for the data of the ring from it. `None` if this side had no room to map it.
    ///
    /// # Errors
    /// Why the peer may not pass this place, in words.
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
        row.grown.incoming.push(to);
        self.growing.push(link);
        memory.say(Answer::Taken);
        Ok(())
    }

    /// Goes over to larger rings that the peers have taken, and lets go of places that are not used any more. Also looks at one
    /// connection in turn, whether so much goes through it that its ring should grow. To be called now and then.
    pub fn tend(&mut self) {
        self.looked_at = if self.looked_at as usize + 1 < self.rows.len() { self.looked_at + 1 } else { 0 };
        self.note_shortage(self.looked_at);
        for at in (0..self.growing.len()).rev() {
            if !self.tend_link(self.growing[at]) {
                self.growing.swap_remove(at);
            }
        }
    }

    /// As [`Links::tend`], for one connection whose rings grow. `true` if it is not done yet.
    fn tend_link(&mut self, link: u32) -> bool {
        let Some(row) = self.row(link) else { return false };
        let memory = *row.writer.memory();
        let places = &mut row.grown.outgoing;
        match (places.next(memory.capacity()), memory.answer()) {
            (None, _) | (_, Answer::None) => {}
            (Some(next), Answer::Taken) => row.writer.go_over(next.ring(&memory)),
            (Some(_), Answer::Refused) => {
                row.writer.shortage().give_up();
                places.pop();
            }
        }
        let capacity = row.writer.memory().capacity();
        places.forget_before(capacity);
        let is_going = places.next(capacity).is_some();
        // What was read and not released yet is still in the old place.
        let places = &mut row.grown.incoming;
        let capacity = row.reader.memory().capacity();
        if !row.touched {
            places.forget_before(capacity);
        }
        is_going || row.touched || places.next(capacity).is_some()
    }
}
