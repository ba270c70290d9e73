//! The matching facet of a simulated provider.

use super::{Provider, Receive, takes};
use crate::sim::take_first;
use crate::{Matching, Peeked, ReceiveEnvelope, Sent, TagLimits, Transport};
use tickwire_components::Row;

impl<T: Transport> Matching for Provider<T> {
    fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent {
        if self.random.happens(self.config.blocked_of_256) {
            return Sent::Blocked;
        }
        let pattern = self.format.pattern(wanted.context, wanted.source, wanted.tag);
        let (wanted, proc) = (*wanted, self.proc_of_link(wanted.link));
        let receive = Receive { row, wanted, pattern, proc, back_ns: None };
        match take_first(&mut self.unexpected, |tagged| takes(&pattern, proc, tagged)) {
            Some(tagged) => self.pair(&receive, tagged),
            None => self.receives.push(receive),
        }
        Sent::Done
    }

    /// A receive in the list has no message: each is matched as soon as a message for it is there.
    fn recall(&mut self, row: Row, _unless_message: bool) {
        let back_ns = self.now_ns + self.random.within(&self.config.recall_ns);
        if let Some(receive) = self.receives.iter_mut().find(|receive| receive.row == row) {
            receive.back_ns = Some(back_ns);
        }
    }

    fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent {
        (self.look, self.seen) = (Some((*wanted, claim)), Peeked::Pending);
        Sent::Done
    }

    fn peeked(&mut self) -> Peeked {
        std::mem::replace(&mut self.seen, Peeked::Pending)
    }

    fn leave(&mut self) {
        (self.matches, self.capabilities.tags) = (false, TagLimits::NONE);
    }
}
