//! Sending frames: each by itself, packed with others, through a ring, or as tagged messages that the peer's provider matches.

use super::Port;
use crate::Sent;
use crate::ofi::Refused;
use crate::ofi::frame;
use crate::ofi::tags::Protocol;
use tickwire_components::wire::Header;
use tickwire_components::{Pieces, context};

impl Port {
    /// Sends a frame over a link.
    #[inline(always)]
    pub(in crate::ofi) fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Sent {
        let lane = match self.lanes.get_mut(link as usize) {
            Some(lane) if lane.ready => lane,
            // The first frame has not left yet, or a send has failed, which `control` reports.
            Some(lane) if lane.open => return Sent::Blocked,
            _ => return Sent::Failed,
        };
        if self.matching.is_some() || lane.packs(self.look) {
            return self.send_otherwise(link, header, pieces);
        }
        if lane.ring.is_some() && self.send_into_ring(link, header, pieces) {
            return Sent::Done;
        }
        self.send_alone(link, header, pieces)
    }

    /// Sends a frame as a tagged message if the peer's provider is to match it, or packed with others.
    #[inline(never)]
    fn send_otherwise<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Sent {
        if let Some(matching) = &self.matching {
            if let Some(protocol) = Protocol::of(header.kind())
                && context::plane(header.context()) == context::USER
            {
                let label = matching.label(protocol, header);
                return self.send_matched(link, header, pieces, protocol, label);
            }
            if !self.lanes[link as usize].packs(self.look) {
                return self.send_alone(link, header, pieces);
            }
        }
        match self.pack(link, header, pieces) {
            Some(sent) => sent,
            None => self.send_alone(link, header, pieces),
        }
    }

    /// Sends a frame by itself.
    #[inline(always)]
    fn send_alone<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Sent {
        let lane = &mut self.lanes[link as usize];
        let length = frame::length(header);
        let outcome = if length <= self.inject_max {
            let frame = frame::write_alone(self.desk, lane.preface(), header, pieces);
            // SAFETY: an own place, just written.
            #[expect(unsafe_code, reason = "FFI")]
            unsafe {
                self.endpoint.inject(frame, lane.to)
            }
        } else {
            self.send_slot(link, header, pieces)
        };
        match outcome {
            Ok(()) => {
                let lane = &mut self.lanes[link as usize];
                lane.count(length);
                self.moved.0 += length as u64;
                (lane.traffic.full, self.blocked) = (false, false);
                Sent::Done
            }
            Err(refused) => self.refused(link, refused),
        }
    }

    /// Whether the provider has all slots, each for a peer that has gone.
    pub(in crate::ofi) fn has_lost_slots(&self) -> bool {
        self.broken.is_none() && self.free.is_empty() && self.sends_ended == self.links.len()
    }

    /// Gives the endpoint up, because the provider does not give the slots back.
    #[cold]
    pub(in crate::ofi) fn give_up_slots(&mut self) {
        let provider = self.provider();
        self.broken = Some(format!("provider {provider} has kept all sends to peers that have gone: exclude it"));
    }

    /// Behaves as if the provider had all slots, each for a peer that has gone.
    #[cfg(test)]
    pub(in crate::ofi) fn lose_slots(&mut self) {
        self.free.clear();
        self.links.fill(super::ENDED);
        self.sends_ended = self.links.len();
    }

    /// The slot for the next frame of a link; `None` if the link has its share. The last quarter of the slots is for links that have few:
    /// otherwise one peer that takes nothing would block the sends to all others.
    pub(super) fn slot_for(&self, link: u32) -> Option<u32> {
        let &slot = self.free.last()?;
        if self.free.len() > self.links.len() / 4 {
            return Some(slot);
        }
        let own = self.links.iter().filter(|&&of| of == link).count();
        (own == 0 || own < self.free.len() / 4).then_some(slot)
    }

    /// Sends a frame from a slot. The provider reads the slot until the send completes.
    #[inline(never)]
    pub(super) fn send_slot<P: Pieces + ?Sized>(
        &mut self,
        link: u32,
        header: &Header,
        pieces: &P,
    ) -> Result<(), Refused> {
        let lane = &self.lanes[link as usize];
        let slot = self.slot_for(link).ok_or(Refused::Again)?;
        let frame = frame::write_alone(self.sending.place(slot as usize), lane.preface(), header, pieces);
        let (descriptor, context) = (self.descriptors.slots[slot as usize], self.contexts.of(slot as usize));
        // SAFETY: place and context belong to the slot, which is free again only after the completion; the
        // endpoint is closed before they are freed.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            self.endpoint.send(frame, descriptor, lane.to, context)?;
        }
        self.free.pop();
        self.links[slot as usize] = link;
        Ok(())
    }

    /// Notes whether the provider has accepted an operation on a link.
    #[inline]
    pub(super) fn note_taken(&mut self, link: u32, outcome: Result<(), Refused>) -> Sent {
        match outcome {
            Ok(()) => {
                (self.lanes[link as usize].traffic.full, self.blocked) = (false, false);
                Sent::Done
            }
            Err(refused) => self.refused(link, refused),
        }
    }

    /// The provider has refused an operation on a link.
    #[cold]
    pub(super) fn refused(&mut self, link: u32, refused: Refused) -> Sent {
        let lane = &mut self.lanes[link as usize];
        let again = refused == Refused::Again;
        (lane.traffic.full, self.blocked) = (again, again);
        // `control` reports the reason, in the provider's words.
        if let Refused::Failed(error) = refused {
            (lane.failed, lane.ready) = (true, false);
            self.faults.push((link, error.to_string()));
        }
        Sent::Blocked
    }
}
