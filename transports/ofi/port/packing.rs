//! Packing: several short frames in one send.
//!
//! Each send costs the provider system calls or locks, however short the frame is. The first few frames to a peer between two polls are
//! sent at once, each by itself. Later ones are written one behind the other into a slot. The slot is sent when the next frame does not
//! fit, and at the latest with the next poll.

use super::Port;
use super::lane::Lane;
use crate::Sent;
use crate::ofi::Refused;
use crate::ofi::frame::{self, FRAME_ALIGN, LEAD_BYTES};
use tickwire_components::limits::FABRIC_FRAMES_AT_ONCE;
use tickwire_components::wire::Header;
use tickwire_components::{NIL, Pieces};

impl Lane {
    /// Counts a frame that is to be sent. `true` if [`Port::pack`] is to send it together with others.
    #[inline]
    pub(super) fn packs(&mut self, look: u32) -> bool {
        let pack = &mut self.pack;
        if pack.look != look {
            (pack.look, pack.frames) = (look, 0);
        }
        pack.frames = pack.frames.saturating_add(1);
        pack.frames > FABRIC_FRAMES_AT_ONCE || pack.slot != NIL
    }
}

impl Port {
    /// Appends a frame to those that wait, or starts a new pack with it. `None` if the frame is to be sent by itself.
    #[inline(never)]
    pub(super) fn pack<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Option<Sent> {
        let length = LEAD_BYTES + header.payload() as usize;
        let pack = self.lanes[link as usize].pack;
        if pack.slot != NIL && pack.bytes as usize + length > self.pack_bytes && !self.send_pack(link) {
            return Some(Sent::Blocked);
        }
        if self.lanes[link as usize].pack.slot == NIL {
            if length > self.pack_bytes / 2 {
                return None;
            }
            let Some(slot) = self.slot_for(link) else { return Some(self.note_taken(link, Err(Refused::Again))) };
            self.free.pop();
            let lane = &mut self.lanes[link as usize];
            (lane.pack.slot, lane.pack.bytes) = (slot, 0);
            self.packs.push(link);
        }
        let lane = &mut self.lanes[link as usize];
        let at = lane.pack.bytes as usize;
        let place = self.sending.place(lane.pack.slot as usize).part(at, usize::MAX);
        frame::write(place, lane.preface(), header, pieces);
        lane.pack.bytes = (at + length).next_multiple_of(FRAME_ALIGN) as u32;
        lane.count(length);
        self.moved.0 += length as u64;
        Some(Sent::Done)
    }

    /// Sends the packed frames for a peer. `true` if the provider has accepted them.
    fn send_pack(&mut self, link: u32) -> bool {
        let lane = &self.lanes[link as usize];
        let (slot, length) = (lane.pack.slot as usize, lane.pack.bytes as usize);
        let frames = self.sending.place(slot).part(0, length);
        let injected = length <= self.inject_max;
        let (descriptor, context) = (self.descriptors.slots[slot], self.contexts.of(slot));
        // SAFETY: place and context belong to the slot, which is free again only after the completion, or at once where
        // the frames are copied; the endpoint is closed before they are freed.
        #[expect(unsafe_code, reason = "FFI")]
        let outcome = unsafe {
            match injected {
                true => self.endpoint.inject(frames, lane.to),
                false => self.endpoint.send(frames, descriptor, lane.to, context),
            }
        };
        if self.note_taken(link, outcome) == Sent::Done {
            self.lanes[link as usize].pack.slot = NIL;
            self.packs.retain(|other| *other != link);
            if injected {
                self.free.push(slot as u32);
            } else {
                self.links[slot] = link;
            }
            return true;
        }
        if self.lanes[link as usize].failed {
            self.drop_pack(link);
        }
        false
    }

    /// Sends all packed frames, as far as the provider accepts them.
    #[inline]
    pub(in crate::ofi) fn flush(&mut self) {
        if !self.packs.is_empty() {
            self.send_packs();
        }
    }

    #[cold]
    fn send_packs(&mut self) {
        for at in (0..self.packs.len()).rev() {
            self.send_pack(self.packs[at]);
        }
    }

    /// Whether packed frames wait to be sent.
    #[inline]
    pub(in crate::ofi) fn has_packs(&self) -> bool {
        !self.packs.is_empty()
    }

    /// Discards the packed frames for a peer that has gone.
    pub(super) fn drop_pack(&mut self, link: u32) {
        let pack = &mut self.lanes[link as usize].pack;
        if pack.slot != NIL {
            self.free.push(pack.slot);
            pack.slot = NIL;
            self.packs.retain(|other| *other != link);
        }
    }
}
