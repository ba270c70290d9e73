//! Answers of the provider: messages that have arrived, probes that are over, operations that have failed.

use super::Matching;
use super::places::Use;
use super::state::Done;
use crate::Peeked;
use crate::ofi::mode::DATA_BYTES;
use crate::ofi::tags::Protocol;
use crate::ofi::{Completion, Endpoint, Failure};
use libfabric_sys as sys;
use tickwire_components::limits::FABRIC_MATCHED_FAILURES_MAX;
use tickwire_components::wire::{HEADER_BYTES, Header, Kind, TRANSPORTS_OWN};
use tickwire_components::{ArrivalState, NIL, Row, Span};

impl Matching {
    /// Handles a completion, if it is of an operation of tagged mode; `false` if not.
    pub(in crate::ofi) fn completed(
        &mut self,
        endpoint: &Endpoint,
        completion: &Completion,
        from: sys::fi_addr_t,
    ) -> bool {
        let Some(place) = self.places.of(completion.op_context) else { return false };
        let used = self.answered(place);
        let from = if from == sys::FI_ADDR_NOTAVAIL { self.places[place].from } else { from };
        match used {
            Use::Free => {}
            Use::Receive(row) => {
                self.failures = 0;
                self.of_row[row as usize] = NIL;
                self.finished(ArrivalState::Matched, row, place, completion, from);
            }
            Use::Claim => self.finished(ArrivalState::Claimed, NIL, place, completion, from),
            Use::Check => {
                self.places.give_back(place);
                self.end_check(endpoint, true);
            }
            Use::Look { claims } => {
                self.looking = false;
                self.seen = Peeked::Found(self.envelope(place, completion), NIL);
                if claims {
                    self.places[place].used = Use::Claim;
                    self.claim(endpoint, place);
                } else {
                    self.places.give_back(place);
                }
            }
        }
        true
    }

    /// Handles an operation that has failed, if it is one of tagged mode; `false` if not.
    pub(in crate::ofi) fn failed(&mut self, endpoint: &Endpoint, failure: &Failure) -> bool {
        let Some(place) = self.places.of(failure.context) else { return false };
        match self.answered(place) {
            Use::Free => return true,
            Use::Receive(row) => {
                // Anybody may send more than there is room for. That is no failure of the provider.
                if ![sys::FI_ECANCELED, sys::FI_ETRUNC as i32].contains(&failure.code) {
                    self.failures += 1;
                    if self.failures > FABRIC_MATCHED_FAILURES_MAX {
                        self.broken = Some(format!("the provider fails to receive: {}", failure.words));
                    }
                }
                self.of_row[row as usize] = NIL;
                let (state, header) = (ArrivalState::Recalled, Header::default());
                let (payload, from) = (Span::EMPTY, sys::FI_ADDR_UNSPEC);
                self.done.push_back(Done { state, row, place, header, payload, from });
                return true;
            }
            Use::Look { .. } => {
                self.looking = false;
                self.seen = Peeked::Nothing;
            }
            Use::Claim => self.broken = Some(format!("a message that was claimed has been lost: {}", failure.words)),
            Use::Check => self.end_check(endpoint, false),
        }
        self.places.give_back(place);
        true
    }

    /// Notes that an operation is over. Returns what its place was used for.
    fn answered(&mut self, place: u32) -> Use {
        let place = &mut self.places[place];
        self.asked -= u32::from(std::mem::take(&mut place.asked));
        self.receives -= usize::from(matches!(place.used, Use::Receive(_)));
        place.used
    }

    /// A message has arrived in a place.
    fn finished(&mut self, state: ArrivalState, row: Row, place: u32, completion: &Completion, from: sys::fi_addr_t) {
        let mut header = self.envelope(place, completion);
        let bytes = self.places.bytes_of(place).part(0, completion.len);
        let mut payload = bytes;
        if self.format.protocol(completion.tag) == Protocol::Eager {
            header.length = bytes.len() as u64;
        } else {
            payload = bytes.part(HEADER_BYTES, usize::MAX);
            // A message that is too short to have a header gets a kind that Match refuses.
            header = read_header(bytes, payload).unwrap_or(Header { lead: TRANSPORTS_OWN.into(), ..header });
        }
        self.done.push_back(Done { state, row, place, header, payload, from });
    }

    /// The envelope of a completion, from its tag bits and CQ data. Its length is 0 if the CQ data has none.
    fn envelope(&self, place: u32, completion: &Completion) -> Header {
        let context = self.places[place].wanted.context;
        // Messages sent with CQ data always have it. The completion's flags are no guide: several providers leave out `FI_REMOTE_CQ_DATA`
        // for probes.
        let (bits, data) = (completion.tag, completion.data);
        let source = self.format.source(bits, data);
        let length = if self.data_bytes >= DATA_BYTES { data >> 32 } else { 0 };
        let tag = self.format.tag(bits);
        match self.format.protocol(bits) {
            Protocol::Rts => Header::offer(context, source, tag, 0, length),
            _ => Header::eager(context, source, tag, length),
        }
    }
}

/// The header in front of a message. `None` if the message is no synchronous message and no offer, or its length contradicts the header.
fn read_header(bytes: Span, payload: Span) -> Option<Header> {
    if bytes.len() < HEADER_BYTES {
        return None;
    }
    // SAFETY: so many bytes of an own place, which the provider has finished writing.
    #[expect(unsafe_code, reason = "memory that a provider is given")]
    let [lead, origin, name, length] = unsafe { bytes.start().cast::<[u64; 4]>().read_unaligned() };
    let header = Header { lead, origin, name, length };
    let fits = match header.kind() {
        Some(Kind::Sync) => length == payload.len() as u64,
        Some(Kind::Rts) => header.payload() == payload.len() as u64,
        _ => false,
    };
    fits.then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tickwire_components::wire::READABLE;

    #[test]
    fn only_an_envelope_as_long_as_it_says_has_a_header() {
        let offer = Header::new(Kind::Rts, 0, 1, 5, 33, 9000);
        let readable = offer.with_flags(READABLE);
        let found = |header: Header, payload: usize| {
            let mut words = [header.lead, header.origin, header.name, header.length, 0, 0, 0, 0];
            // SAFETY: local words, read in this function only.
            #[expect(unsafe_code, reason = "a span over a test's words")]
            let bytes = unsafe { Span::new(words.as_mut_ptr().cast(), HEADER_BYTES + payload) };
            read_header(bytes, bytes.part(HEADER_BYTES, payload)) == Some(header)
        };
        assert!(found(offer, 0) && found(readable, 8));
        assert!(!found(offer, 8) && !found(readable, 0));
        assert!(!found(readable, 7) && !found(readable, 32), "not what it says");
        assert!(found(Header::new(Kind::Sync, 0, 1, 5, 33, 8).with_flags(READABLE), 8));
        assert!(!found(Header::new(Kind::Eager, 0, 1, 5, 33, 8), 8), "that goes without a header");
    }
}
