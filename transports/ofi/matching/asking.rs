//! Requests to the provider: to receive, to cancel a receive, to probe for a message.

use super::Matching;
use super::places::{Place, Use};
use super::state::EndingReceive;
use crate::ofi::{Endpoint, Refused};
use crate::{Peeked, ReceiveEnvelope, Sent};
use libfabric_sys as sys;
use tickwire_components::limits::FABRIC_PROBES_MAX;
use tickwire_components::{NIL, Row};

impl Matching {
    /// Posts the receive of a row.
    pub(in crate::ofi) fn post_receive(
        &mut self,
        endpoint: &Endpoint,
        row: Row,
        wanted: &ReceiveEnvelope,
        from: sys::fi_addr_t,
    ) -> Sent {
        if self.receives >= self.receives_max {
            return Sent::Blocked;
        }
        match self.start(endpoint, Use::Receive(row), wanted, from, sys::FI_COMPLETION) {
            Ok(place) => {
                self.receives += 1;
                if self.of_row.len() <= row as usize {
                    self.of_row.resize(row as usize + 1, NIL);
                }
                self.of_row[row as usize] = place;
                Sent::Done
            }
            Err(sent) => sent,
        }
    }

    /// Cancels a receive; with `unless_message`, only if no message is there for it.
    pub(in crate::ofi) fn recall(&mut self, endpoint: &Endpoint, row: Row, unless_message: bool) {
        let Some(&place) = self.of_row.get(row as usize).filter(|&&place| place != NIL) else { return };
        if self.places[place].used != Use::Receive(row) || self.places[place].asked {
            return;
        }
        self.places[place].asked = true;
        self.asked += 1;
        match unless_message {
            // A message that is there may be matched later: `sockets` matches in a thread of its own.
            true => self.ending.push_back(EndingReceive { row, place, looks_left: FABRIC_PROBES_MAX }),
            false => self.cancel(endpoint, place),
        }
    }

    /// Probes for a message, and claims it if one is there and `claims` is set. [`Matching::peeked`] returns the answer later.
    pub(in crate::ofi) fn peek(
        &mut self,
        endpoint: &Endpoint,
        wanted: &ReceiveEnvelope,
        claims: bool,
        from: sys::fi_addr_t,
    ) -> Sent {
        if self.looking {
            return Sent::Blocked;
        }
        let flags = sys::FI_PEEK | sys::FI_COMPLETION | if claims { sys::FI_CLAIM } else { 0 };
        self.seen = Peeked::Pending;
        match self.start(endpoint, Use::Look { claims }, wanted, from, flags) {
            Ok(_) => {
                self.looking = true;
                Sent::Done
            }
            Err(sent) => sent,
        }
    }

    /// The result of the last probe. The rank in the header tells the sender, since several providers report a wrong source address for
    /// probes.
    pub(in crate::ofi) fn peeked(&mut self) -> Peeked {
        std::mem::replace(&mut self.seen, Peeked::Pending)
    }

    /// Whether [`Matching::check`] has something to do.
    #[inline]
    pub(in crate::ofi) fn may_check(&self) -> bool {
        !self.ending.is_empty() && !self.checking
    }

    /// Probes for the first receive that is to be cancelled only if no message is there for it.
    #[cold]
    pub(in crate::ofi) fn check(&mut self, endpoint: &Endpoint) {
        while let Some(&EndingReceive { row, place, looks_left }) = self.ending.front() {
            let Place { used, asked, wanted, from } = self.places[place];
            if used != Use::Receive(row) || !asked || self.of_row[row as usize] != place {
                // The receive has got its message.
                self.ending.pop_front();
                continue;
            }
            if looks_left == 0 {
                self.end_check(endpoint, false);
                continue;
            }
            let flags = sys::FI_PEEK | sys::FI_COMPLETION;
            match self.start(endpoint, Use::Check, &wanted, from, flags) {
                Ok(_) => {
                    self.checking = true;
                    return;
                }
                Err(Sent::Blocked) => return,
                Err(_) => self.end_check(endpoint, false),
            }
        }
    }

    /// Handles the answer to that probe: without a message, cancels the receive.
    pub(super) fn end_check(&mut self, endpoint: &Endpoint, found: bool) {
        self.checking = false;
        let Some(mut ending) = self.ending.pop_front() else { return };
        let Place { used, asked, .. } = self.places[ending.place];
        if used != Use::Receive(ending.row) || !asked {
            return;
        }
        if found {
            ending.looks_left -= 1;
            self.ending.push_back(ending);
        } else {
            self.cancel(endpoint, ending.place);
        }
    }

    /// Takes the message that a probe has found and reserved. A provider without room takes the claim later.
    pub(super) fn claim(&mut self, endpoint: &Endpoint, place: u32) {
        self.unclaimed = None;
        match self.post(endpoint, place, sys::FI_CLAIM | sys::FI_COMPLETION) {
            Ok(()) => {}
            Err(Refused::Again) => self.unclaimed = Some(place),
            Err(Refused::Failed(error)) => {
                self.broken = Some(format!("the provider does not give a message that it has claimed: {error}"));
            }
        }
    }

    /// Claims again what the provider had no room for.
    #[inline]
    pub(in crate::ofi) fn claim_again(&mut self, endpoint: &Endpoint) {
        if let Some(place) = self.unclaimed {
            self.claim(endpoint, place);
        }
    }

    /// Asks the provider to cancel the receive at a place.
    fn cancel(&self, endpoint: &Endpoint, place: u32) {
        // SAFETY: the context of this place's receive, which has not been completed as far as is known.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            endpoint.cancel(self.places.context(place));
        }
    }

    /// Takes a place and posts the operation that it is for.
    fn start(
        &mut self,
        endpoint: &Endpoint,
        used: Use,
        wanted: &ReceiveEnvelope,
        from: sys::fi_addr_t,
        flags: u64,
    ) -> Result<u32, Sent> {
        if self.unclaimed.is_some() {
            return Err(Sent::Blocked);
        }
        let place = self.places.take(endpoint, used, wanted, from).map_err(|error| {
            self.broken = Some(error.to_string());
            Sent::Failed
        })?;
        match self.post(endpoint, place, flags) {
            Ok(()) => Ok(place),
            Err(refused) => {
                self.places.give_back(place);
                if let Refused::Failed(error) = refused {
                    self.broken = Some(error.to_string());
                    return Err(Sent::Failed);
                }
                Err(Sent::Blocked)
            }
        }
    }

    /// Posts the operation of a place, with these flags.
    pub(super) fn post(&mut self, endpoint: &Endpoint, place: u32, flags: u64) -> Result<(), Refused> {
        let Place { wanted, from, .. } = self.places[place];
        let pattern = self.format.pattern(wanted.context, wanted.source, wanted.tag);
        let bytes = self.places.bytes_of(place);
        let iov = libc::iovec { iov_base: bytes.start().cast(), iov_len: bytes.len() };
        let mut descriptor = self.places.descriptor(place);
        let looks = flags & (sys::FI_PEEK | sys::FI_CLAIM) == sys::FI_PEEK;
        let message = sys::fi_msg_tagged {
            msg_iov: &raw const iov,
            desc: &raw mut descriptor,
            iov_count: if looks { 0 } else { 1 },
            addr: if self.directed { from } else { sys::FI_ADDR_UNSPEC },
            tag: pattern.bits,
            ignore: pattern.ignored,
            context: self.places.context(place),
            data: 0,
        };
        // SAFETY: place and context are used for nothing else until the operation has completed, and are freed after the
        // endpoint is closed; the list of runs is copied by the call.
        #[expect(unsafe_code, reason = "FFI")]
        let code = unsafe { sys::ops::fi_trecvmsg(endpoint.as_ptr(), &raw const message, flags) };
        endpoint.posted("fi_trecvmsg", code)
    }
}
