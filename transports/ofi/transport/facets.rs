//! The facets of the transport that have no file of their own.

use super::Ofi;
use crate::ofi::{control, mode};
use crate::{Direct, Matching, Peeked, ReceiveEnvelope, Registering, Sent, TagLimits};
use tickwire_components::{Access, Registration, Row, Span};

// SAFETY: places are used only until the arrival that says so, or until the link is closed.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Direct for Ofi {
    unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32> {
        if into.len() < self.own.config.direct_min {
            return None;
        }
        let turn = self.port.get_mut().expect(link, row, into);
        if turn.is_some() {
            self.pace.hurry();
            return turn;
        }
        // The first long message goes in pieces, while both sides open their endpoints for the next ones.
        if let Some(line) = self.connections.line_mut(link)
            && let Some(address) = self.port.get_mut().open_direct(link)
        {
            line.tell(&control::Message::Direct(address));
        }
        None
    }

    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        self.pace.hurry();
        self.port.get_mut().send_direct(link, row, number, from)
    }

    fn end(&mut self) {
        for link in self.connections.links() {
            self.port.get_mut().end_direct(link);
        }
    }
}

impl Matching for Ofi {
    fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent {
        let sent = self.port.get_mut().post_receive(row, wanted);
        self.pace.hurry();
        sent
    }

    fn recall(&mut self, row: Row, unless_message: bool) {
        self.port.get_mut().recall(row, unless_message);
    }

    fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent {
        self.port.get_mut().peek(wanted, claim)
    }

    fn peeked(&mut self) -> Peeked {
        self.port.get_mut().peeked()
    }

    fn leave(&mut self) {
        self.port.get_mut().leave_matching();
        (self.matches, self.capabilities.tags) = (false, TagLimits::NONE);
        (self.capabilities.directed_receive, self.capabilities.completion_data) = (false, 0);
        self.words = "message mode: another endpoint of the engine matches".into();
        self.signature = mode::signature(None);
        let at = self.own.card.len() - size_of::<u32>();
        self.own.card[at..].copy_from_slice(&self.signature.to_be_bytes());
    }
}

impl Registering for Ofi {
    /// Registers nothing yet, since domains come with connections. An operation later registers the whole of the kept memory.
    fn register(&mut self, span: Span, access: Access) -> Result<Registration, String> {
        Ok(Registration(self.port.get_mut().registry.keep(span, access)))
    }

    fn deregister(&mut self, registration: Registration) {
        self.port.get_mut().registry.drop_kept(registration.0);
    }
}
