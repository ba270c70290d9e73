//! The first frame of a link, which is empty.
//!
//! A provider connects to a peer when something is first sent to it. It accepts sends before it is connected, but connects only while this
//! process reads the completion queue. A blocking send of the application returns once its bytes are copied. If the application then
//! computes without polling, its first message would stay in the provider. So nothing else is sent on a link until the provider reports
//! that the first frame has left.

use super::Port;
use super::lane::First;
use crate::Sent;
use crate::ofi::Refused;
use crate::ofi::frame;
use tickwire_components::NoBytes;

impl Port {
    /// Sends the first frame on a link that has just been opened.
    pub(super) fn begin(&mut self, link: u32) {
        self.beginning.push(link);
        self.send_first(link);
    }

    /// Offers the provider again the first frames that it has not accepted yet.
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
        // A refused frame is offered again with the next poll. `control` reports a failure.
        let again = outcome == Err(Refused::Again);
        if !again && self.note_taken(link, outcome) == Sent::Done {
            let lane = &mut self.lanes[link as usize];
            lane.first = First::Sending(slot);
            let length = frame::length(&frame::FIRST);
            lane.count(length);
            self.moved.0 += length as u64;
        }
    }

    /// Whether the first frame of a link has left, so that others may follow.
    #[cfg(test)]
    pub(in crate::ofi) fn is_ready(&self, link: u32) -> bool {
        self.lanes.get(link as usize).is_some_and(|lane| lane.ready)
    }

    /// A frame of a link has left. If it was the first one, the link is ready.
    #[cold]
    pub(super) fn first_has_left(&mut self, link: u32, slot: u32) {
        let Some(lane) = self.lanes.get_mut(link as usize) else { return };
        if lane.open && lane.first == First::Sending(slot) {
            (lane.first, lane.ready) = (First::Sent, !lane.failed);
            self.beginning.retain(|other| *other != link);
        }
    }
}
