//! The first frame of a link: an empty one.
//!
//! A provider connects to a peer when something is first sent to it, takes what is sent until then, and goes on only while
//! somebody reads its completion queue. A blocking send of the application is done once its bytes are copied: the application
//! would compute, and its first message would stay with the provider. So nothing else is sent on a link until the provider
//! says that the first frame has left.

use super::Port;
use super::lane::First;
use crate::Sent;
use crate::ofi::Refused;
use crate::ofi::frame;
use tickwire_components::NoBytes;

impl Port {
    /// Begins to send on a link that has just been opened.
    pub(super) fn begin(&mut self, link: u32) {
        self.beginning.push(link);
        self.send_first(link);
    }

    /// Gives the provider first frames that it has not taken.
    #[cold]
    pub(super) fn send_firsts(&mut self) {
        for at in (0..self.beginning.len()).rev() {
            self.send_first(self.beginning[at]);
        }
    }

    fn send_first(&mut self, link: u32) {
        let lane = &self.lanes[link as usize];
        if lane.first != First::Due || lane.failed {
            return;
        }
        let Some(&slot) = self.free.last() else { return };
        let outcome = self.send_slot(link, &frame::FIRST, &NoBytes);
        // Whoever is refused is tried again with the next look; a failure is told by `control`.
        let again = outcome == Err(Refused::Again);
        if !again && self.note_taken(link, outcome) == Sent::Done {
            let lane = &mut self.lanes[link as usize];
            lane.first = First::Sending(slot);
            let length = frame::length(&frame::FIRST);
            lane.count(length);
            self.moved.0 += length as u64;
        }
    }

    /// Whether what is sent on a link leaves.
    #[cfg(test)]
    pub(in crate::ofi) fn is_ready(&self, link: u32) -> bool {
        self.lanes.get(link as usize).is_some_and(|lane| lane.ready)
    }

    /// A frame of a link has left: the link is ready if it was the first one.
    #[cold]
    pub(super) fn first_has_left(&mut self, link: u32, slot: u32) {
        let Some(lane) = self.lanes.get_mut(link as usize) else { return };
        if lane.open && lane.first == First::Sending(slot) {
            (lane.first, lane.ready) = (First::Sent, !lane.failed);
            self.beginning.retain(|other| *other != link);
        }
    }
}
