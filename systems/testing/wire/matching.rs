//! The matching facet of a wire.

use super::{FakeWire, lock};
use tickwire_components::Row;
use tickwire_transports::{Matching, Peeked, ReceiveEnvelope, Sent};

impl Matching for FakeWire {
    fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent {
        let mut state = lock(&self.state);
        if state.room_for_receives == Some(0) {
            return Sent::Blocked;
        }
        state.room_for_receives = state.room_for_receives.map(|room_for_receives| room_for_receives - 1);
        state.posted_receives.push((row, *wanted));
        Sent::Done
    }

    fn recall(&mut self, row: Row, _unless_message: bool) {
        lock(&self.state).recalled.push(row);
    }

    fn peek(&mut self, _: &ReceiveEnvelope, _: bool) -> Sent {
        Sent::Failed
    }

    fn peeked(&mut self) -> Peeked {
        Peeked::Pending
    }

    fn leave(&mut self) {
        self.matches = false;
    }
}
