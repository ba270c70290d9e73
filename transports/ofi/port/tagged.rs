//! Additions of tagged mode: peers by number, receives, probes, and messages that the provider matches.

use super::Port;
use crate::ofi::frame;
use crate::ofi::tags::Protocol;
use crate::{Peeked, ReceiveEnvelope, Sent};
use libfabric_sys as sys;
use tickwire_components::wire::{HEADER_BYTES, Header};
use tickwire_components::{NIL, Pieces, Row};

/// Peers' numbers are below this: they count from 0 (`FI_AV_TABLE`).
const PEERS_MAX: usize = 1 << 24;

impl Port {
    /// The number in the address vector of the peer with this fabric address.
    pub(super) fn number_of(&mut self, address: &[u8]) -> Result<sys::fi_addr_t, String> {
        if let Some((_, number)) = self.peers.iter().find(|(known, _)| known == address) {
            return Ok(*number);
        }
        let number = self.addresses.insert(address).map_err(|error| error.to_string())?;
        if self.matching.is_some() {
            self.peers.push((address.to_vec(), number));
        }
        Ok(number)
    }

    /// In tagged mode, notes the peer of a link that is not open yet, since its messages may arrive before the link is open.
    pub(in crate::ofi) fn expect_peer(&mut self, link: u32, address: &[u8]) -> Result<(), String> {
        if self.matching.is_some() {
            let number = self.number_of(address)?;
            self.lanes[link as usize].to = number;
        }
        Ok(())
    }

    /// Whether the provider can restrict a receive to one sender (`FI_DIRECTED_RECV`).
    pub(in crate::ofi) fn is_directed(&self) -> bool {
        self.matching.as_ref().is_some_and(|matching| matching.directed)
    }

    /// Leaves matching to the engine. Nothing has been sent or posted yet.
    pub(in crate::ofi) fn leave_matching(&mut self) {
        self.matching = None;
    }

    /// Whether link numbers may be reused. In tagged mode they may not: receives at the provider name a peer by its link number.
    pub(in crate::ofi) fn reuses_links(&self) -> bool {
        self.matching.is_none() && self.rma.as_ref().is_none_or(|rma| rma.may_reuse_links())
    }

    /// The peer of a link; any peer for [`NIL`]. `None` if the peer is not known yet.
    fn peer(&self, link: u32) -> Option<sys::fi_addr_t> {
        if link == NIL {
            return Some(sys::FI_ADDR_UNSPEC);
        }
        self.lanes.get(link as usize).map(|lane| lane.to).filter(|&to| to != sys::FI_ADDR_NOTAVAIL)
    }

    pub(in crate::ofi) fn post_receive(&mut self, row: Row, wanted: &ReceiveEnvelope) -> Sent {
        let Some(from) = self.peer(wanted.link) else { return Sent::Failed };
        match &mut self.matching {
            _ if self.broken.is_some() => Sent::Failed,
            Some(matching) => matching.post_receive(&self.endpoint, row, wanted, from),
            None => Sent::Failed,
        }
    }

    pub(in crate::ofi) fn recall(&mut self, row: Row, unless_message: bool) {
        if let Some(matching) = &mut self.matching {
            matching.recall(&self.endpoint, row, unless_message);
        }
    }

    pub(in crate::ofi) fn peek(&mut self, wanted: &ReceiveEnvelope, claim: bool) -> Sent {
        let Some(from) = self.peer(wanted.link) else { return Sent::Failed };
        match &mut self.matching {
            Some(matching) => matching.peek(&self.endpoint, wanted, claim, from),
            None => Sent::Failed,
        }
    }

    pub(in crate::ofi) fn peeked(&mut self) -> Peeked {
        self.matching.as_mut().map_or(Peeked::Pending, |matching| matching.peeked())
    }

    /// Whether receives of tagged mode are over, or the provider still owes an answer.
    #[inline]
    pub(in crate::ofi) fn has_news(&self) -> bool {
        self.matching.as_ref().is_some_and(|matching| matching.has_news())
    }

    /// Sends a message that the peer's provider matches.
    #[inline]
    pub(super) fn send_matched<P: Pieces + ?Sized>(
        &mut self,
        link: u32,
        header: &Header,
        pieces: &P,
        protocol: Protocol,
        (bits, data): (u64, Option<u64>),
    ) -> Sent {
        let lane = &self.lanes[link as usize];
        let with_header = protocol != Protocol::Eager;
        let length = header.payload() as usize + if with_header { HEADER_BYTES } else { 0 };
        let (to, endpoint) = (lane.to, self.endpoint.as_ptr());
        let code = if length <= self.inject_max {
            let message = frame::write_matched(self.desk, header, with_header, pieces);
            // SAFETY: an open endpoint, and an own place, just written.
            #[expect(unsafe_code, reason = "FFI")]
            unsafe {
                let (start, length) = (message.start().cast(), message.len());
                match data {
                    Some(data) => sys::ops::fi_tinjectdata(endpoint, start, length, data, to, bits),
                    None => sys::ops::fi_tinject(endpoint, start, length, to, bits),
                }
            }
        } else if let Some(slot) = self.slot_for(link) {
            let message = frame::write_matched(self.sending.place(slot as usize), header, with_header, pieces);
            let (descriptor, context) = (self.descriptors.slots[slot as usize], self.contexts.of(slot as usize));
            let (start, length) = (message.start().cast(), message.len());
            // SAFETY: as in `send`: place and context belong to the slot.
            #[expect(unsafe_code, reason = "FFI")]
            let code = unsafe {
                match data {
                    Some(data) => sys::ops::fi_tsenddata(endpoint, start, length, descriptor, data, to, bits, context),
                    None => sys::ops::fi_tsend(endpoint, start, length, descriptor, to, bits, context),
                }
            };
            if code == 0 {
                self.free.pop();
                self.links[slot as usize] = link;
            }
            code
        } else {
            -(sys::FI_EAGAIN as isize)
        };
        let sent = self.note_taken(link, self.endpoint.posted("fi_tsenddata", code));
        if sent == Sent::Done {
            self.lanes[link as usize].traffic.sent += length as u64;
            self.moved.0 += length as u64;
        }
        sent
    }

    /// Notes the VC of a peer, which its messages are delivered with.
    pub(super) fn know_peer(&mut self, number: sys::fi_addr_t, vc: Row) {
        let number = number as usize;
        if self.matching.is_none() || number >= PEERS_MAX {
            return;
        }
        if self.vcs.len() <= number {
            self.vcs.resize(number + 1, NIL);
        }
        self.vcs[number] = vc;
    }
}
