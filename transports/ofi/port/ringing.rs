//! Short frames by remote writes into a ring at the peer. See [`crate::ofi::ring`].
//!
//! They share their numbering with all other frames of their link, so the order in which the receiver finds them does not matter. A frame
//! is sent without the ring if it is long, if the ring has no room, or if it is packed with others.

use super::Port;
use super::lane::Buffer;
use super::ring::Ring;
use crate::ofi::frame;
use crate::ofi::ring::{
    FRAME_MAX, HEAD_BYTES, RING_BYTES, RingMemory, SLOTS, WINDOW_BYTES, enclose, slot_at, write_window,
};
use crate::ofi::rma::Introduction;
use crate::remote::{RemoteAccess, RemoteKey, RemoteRun};
use crate::take::Nobody;
use tickwire_components::Pieces;
use tickwire_components::wire::Header;

/// The peer is told how many frames were taken out after each such number of them.
const TELL: u64 = SLOTS / 4;

impl Port {
    /// Takes the links that may still get a ring.
    pub(in crate::ofi) fn take_unrung(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unrung)
    }

    /// Puts a link back whose peer cannot be told of a ring yet.
    pub(in crate::ofi) fn put_off_ring(&mut self, link: u32) {
        self.unrung.push(link);
    }

    /// Makes a ring for the peer of a link, unless there are too many. Returns what to tell the peer.
    pub(in crate::ofi) fn open_ring(&mut self, link: u32) -> Option<Vec<Introduction>> {
        let lane = self.lanes.get(link as usize).filter(|lane| lane.open && lane.ring.is_none())?;
        let theirs = lane.their_ring;
        if self.ringing.len() >= self.rings_max {
            return None;
        }
        let rma = self.open_rma().ok()?;
        let memory = RingMemory::new();
        // SAFETY: the memory is freed after the region is dropped.
        #[expect(unsafe_code, reason = "memory that peers use")]
        let (region, base) = unsafe { rma.expose_ring(memory.whole()).ok()? };
        let told = [rma.introduce(link), Some(Introduction::Ring { key: region.key(), base })];
        let ring = Ring { _region: region, memory, theirs, written: 0, limit: 0, taken: 0, told: 0, counter: 0 };
        self.lanes[link as usize].ring = Some(Box::new(ring));
        self.ringing.push(link);
        Some(told.into_iter().flatten().collect())
    }

    /// The peer of a link has announced its ring.
    ///
    /// # Errors
    /// What is wrong with that, in words.
    pub(in crate::ofi) fn meet_ring(&mut self, link: u32, key: u64, base: u64) -> Result<(), String> {
        let Some(lane) = self.lanes.get_mut(link as usize) else { return Ok(()) };
        if base.checked_add(RING_BYTES as u64).is_none() {
            return Err("a ring that is at no address".into());
        }
        let theirs = RemoteKey { key, base, length: RING_BYTES as u64, access: RemoteAccess::WRITE };
        if lane.their_ring.replace(theirs).is_some() {
            return Err("its ring again".into());
        }
        lane.ring.iter_mut().for_each(|ring| ring.theirs = Some(theirs));
        Ok(())
    }

    /// Whether peers may write into rings.
    pub(in crate::ofi) fn has_rings(&self) -> bool {
        !self.ringing.is_empty()
    }

    /// Frames written to the ring of the link's peer, and frames taken out of this process's ring.
    #[cfg(test)]
    pub(in crate::ofi) fn rung(&self, link: u32) -> (u64, u64) {
        self.lanes[link as usize].ring.as_ref().map_or((0, 0), |ring| (ring.written, ring.taken))
    }

    /// The memory that the peer of a link may write.
    #[cfg(test)]
    pub(in crate::ofi) fn own_ring(&self, link: u32) -> Option<tickwire_components::Span> {
        self.lanes[link as usize].ring.as_ref().map(|ring| ring.memory.whole())
    }

    pub(super) fn drop_ring(&mut self, link: u32) {
        let lane = &mut self.lanes[link as usize];
        lane.their_ring = None;
        if let Some(ring) = lane.ring.take() {
            let Ring { _region, memory, .. } = *ring;
            drop(_region);
            // The peer may not know yet that the link has ended. A provider that checks keys does so at the beginning of a write, so a
            // write that has begun goes on.
            self.old_rings.push(memory);
        }
        self.ringing.retain(|other| *other != link);
        self.unrung.retain(|other| *other != link);
    }

    /// Writes a frame into the peer's ring. `false` if the frame must be sent without the ring.
    #[inline(never)]
    pub(super) fn send_into_ring<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> bool {
        let length = frame::length(header);
        let lane = &mut self.lanes[link as usize];
        let preface = lane.preface();
        let Some(Ring { theirs: Some(theirs), written, limit, memory, .. }) = lane.ring.as_deref_mut() else {
            return false;
        };
        if length > FRAME_MAX {
            return false;
        }
        if *written >= *limit {
            *limit = memory.limit(*written).map_or(*limit, |found| found.max(*limit));
        }
        let Some(rma) = self.rma.as_deref_mut().filter(|_| *written < *limit) else { return false };
        let number = *written + 1;
        frame::write_alone(self.desk.part(HEAD_BYTES, usize::MAX), preface, header, pieces);
        let bytes = enclose(self.desk, number, length);
        let to = RemoteRun { key: *theirs, offset: slot_at(number) as u64 };
        if !rma.write_ring(link, to, bytes) {
            return false;
        }
        *written = number;
        lane.count(length);
        self.moved.0 += length as u64;
        lane.traffic.full = false;
        true
    }

    /// Takes frames out of all rings, and tells the peers how many. Returns how many there were.
    #[cold]
    pub(super) fn poll_rings(&mut self) -> usize {
        let failed = self.rma.as_mut().map(|rma| std::mem::take(&mut rma.rings_failed));
        for (link, reason) in failed.into_iter().flatten() {
            if let Some(lane) = self.lanes.get_mut(link as usize).filter(|lane| lane.open && !lane.failed) {
                (lane.failed, lane.ready) = (true, false);
                self.faults.push((link, reason));
            }
        }
        let mut found = 0;
        for at in 0..self.ringing.len() {
            let link = self.ringing[at];
            while let Some(&copy) = self.free_copies.last()
                && let place = self.copies.place(copy as usize)
                && let Some(ring) = self.lanes[link as usize].ring.as_deref_mut()
                && let Some(length) = ring.memory.take(ring.taken + 1, place)
            {
                ring.taken += 1;
                self.free_copies.pop();
                let index = self.posted + copy as usize;
                // Hold the buffer during the call, so that it is given back only once.
                self.buffers[index] = Buffer { held: 1, done: true };
                self.arrived(index as u32, place.part(0, length), &mut Nobody);
                self.give_back(index as u32);
                found += 1;
            }
            self.tell_window(link);
        }
        found
    }

    /// Tells the peer of a link how many frames were taken out, if an update is due.
    fn tell_window(&mut self, link: u32) {
        let Some(Ring { theirs: Some(theirs), taken, told, counter, .. }) =
            self.lanes[link as usize].ring.as_deref_mut()
        else {
            return;
        };
        // The first update tells the peer that it may begin to write.
        let due = *counter == 0 || *taken - *told >= TELL;
        if let Some(rma) = self.rma.as_deref_mut().filter(|_| due) {
            let bytes = write_window(self.desk.part(0, WINDOW_BYTES), *counter + 1, *taken);
            if rma.write_ring(link, RemoteRun { key: *theirs, offset: 0 }, bytes) {
                (*counter, *told) = (*counter + 1, *taken);
            }
        }
    }
}
