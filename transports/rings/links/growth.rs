//! Rings that grow with their traffic, each direction by itself.
//!
//! 1. The writer's ring has been [too small](crate::rings::shortage) for long. The writer's transport allocates a larger place for the
//!    data, and passes it to the reader's transport in its own way.
//! 2. The reader maps the place. In a word beside the ring, it says whether that succeeded.
//! 3. Then the writer puts a mark into the old place and continues in the new one. Until then it uses the old place as before.
//!
//! So nothing waits for a ring to grow, frames keep their order, and nothing is lost wherever either side stops. Only the data move: the
//! control words before them stay where they are.
//!
//! A reader takes one place at a time. Each is larger than the one before, up to what both sides have agreed upon. A mark without a
//! place means that the ring is corrupt.

use super::ends::Need;
use super::places::Passed;
use super::table::Links;
use crate::rings::memory::Answer;
use crate::rings::ring::RingMemory;

impl Links {
    /// How many bytes of a payload are sure to fit into one frame of a connection once the peer has emptied the ring.
    pub fn fits(&mut self, link: u32, payload: u64) -> u64 {
        let Some(row) = self.row(link) else { return payload };
        let fits = row.writer.fits(payload);
        if fits < payload {
            self.note_shortage(link);
        }
        fits
    }

    /// Asks for a larger ring if the ring to the peer has been too small for long.
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

    /// Bytes that the ring to the peer has, and bytes that it should have for its traffic. `None` if it should stay as it is.
    pub fn wish(&mut self, link: u32) -> Option<(usize, usize)> {
        let row = self.row(link)?;
        let capacity = row.writer.memory().capacity();
        let written = row.writer.written();
        let wish =
            row.writer.shortage().wish(capacity, written).filter(|_| row.grown.outgoing.next(capacity).is_none())?;
        // Reset the peer's answer to an earlier place.
        row.writer.memory().say(Answer::None);
        Some((capacity as usize, wish as usize))
    }

    /// The transport has passed the peer a larger place for the data of the ring to the peer.
    pub fn go_over(&mut self, link: u32, to: Passed) {
        let Some(row) = self.row(link) else { return };
        row.grown.outgoing.push(to);
        self.growing.push(link);
    }

    /// There is no larger place for now. The ring asks again once it has lacked room for longer.
    pub fn stay(&mut self, link: u32) {
        if let Some(row) = self.row(link) {
            let written = row.writer.written();
            row.writer.shortage().wait_longer(written);
        }
    }

    /// The peer has passed a larger place for the data of the ring from the peer. `None` if this process could not map it.
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

    /// Switches to larger rings that the peers have mapped, and frees places that are no longer used. Also checks one connection in turn,
    /// whether its traffic needs a larger ring. To be called now and then.
    pub fn tend(&mut self) {
        self.looked_at = if self.looked_at as usize + 1 < self.rows.len() { self.looked_at + 1 } else { 0 };
        self.note_shortage(self.looked_at);
        // A word in the inbox may be lost: all peers can write there. Then the frames of a ring that is not watched would wait for the next one.
        if self.row(self.looked_at).is_some_and(|row| !row.watched && row.fault.is_none() && row.reader.ready()) {
            self.look(self.looked_at);
        }
        for at in (0..self.growing.len()).rev() {
            if !self.tend_link(self.growing[at]) {
                self.growing.swap_remove(at);
            }
        }
    }

    /// As [`Links::tend`], for one connection whose rings grow. `true` if it is not finished yet.
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
        // Frames that were read and not released yet are still in the old place.
        let places = &mut row.grown.incoming;
        let capacity = row.reader.memory().capacity();
        if !row.touched {
            places.forget_before(capacity);
        }
        is_going || row.touched || places.next(capacity).is_some()
    }
}
