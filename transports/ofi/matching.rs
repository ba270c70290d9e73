//! Tagged mode: the provider matches messages with receives (fi_tagged(3)).
//!
//! Envelopes of the application's messages are sent as tagged messages. All other frames are sent as in message mode, over the same
//! endpoint. An eager message consists of its payload alone: tag bits and CQ data carry its envelope ([`super::tags`]). A synchronous
//! message and a rendezvous offer (RTS) begin with their header.
//!
//! Every receive has a buffer of its own here, a *place*, with room for the longest message that may arrive. So the provider never sees a
//! message that is longer than its receive; some providers lose such a message, or others with it.
//!
//! The lower half of the CQ data is the sender's rank. The upper half is the length of the offered message, for probes, which see nothing
//! else of the message. With fewer than 8 bytes of CQ data there is no length, and with fewer than 4 no CQ data at all. Then the length is
//! known only once the message is claimed.

mod answers;
mod asking;
mod places;
mod state;

use self::places::{Places, Use};
use self::state::{Done, EndingReceive};
use super::mode::{DATA_BYTES, Tags};
use super::tags::{Protocol, TagFormat};
use crate::{Peeked, Take};
use libfabric_sys as sys;
use std::collections::VecDeque;
use tickwire_components::wire::{ADDRESS_BYTES, HEADER_BYTES, Header, Kind};
use tickwire_components::{Arrival, ArrivalState, Destination, NIL, Row, Span};

/// How many operations the provider's queue of receives keeps free for probes and claims.
const KEPT_FREE: usize = 4;

/// Tagged mode of one endpoint. See the module.
pub(super) struct Matching {
    format: TagFormat,
    /// Bytes of CQ data that go with a message.
    data_bytes: usize,
    pub(super) directed: bool,
    places: Places,
    /// The place of each row's receive; [`NIL`] if it has none.
    of_row: Vec<u32>,
    done: VecDeque<Done>,
    /// Places whose messages were drained and are not released yet.
    lent: Vec<u32>,
    seen: Peeked,
    looking: bool,
    /// How many cancelled receives the provider has not answered yet, including those in `ending`.
    asked: u32,
    /// Receives that are cancelled only if no message is there for them.
    ending: VecDeque<EndingReceive>,
    /// A probe for the first of them is in flight.
    checking: bool,
    failures: u32,
    /// Receives that are posted, and the most that may be: a probe and the claim after it take room of the same queue.
    receives: usize,
    receives_max: usize,
    /// The place of a claim that the provider has not accepted yet. The provider keeps the message for it.
    unclaimed: Option<u32>,
    /// Why the provider is unusable, if it is.
    pub(super) broken: Option<String>,
}

impl Matching {
    /// `depth` is the number of receives that the provider takes; 0 if it does not say.
    pub(super) fn new(tags: Tags, directed: bool, matched_max: usize, depth: usize) -> Self {
        Matching {
            format: tags.format,
            data_bytes: tags.data_bytes,
            directed,
            places: Places::new((HEADER_BYTES + matched_max.max(ADDRESS_BYTES as usize)).next_multiple_of(64)),
            of_row: Vec::new(),
            done: VecDeque::new(),
            lent: Vec::new(),
            seen: Peeked::Pending,
            looking: false,
            asked: 0,
            ending: VecDeque::new(),
            checking: false,
            failures: 0,
            receives: 0,
            receives_max: if depth > KEPT_FREE { depth - KEPT_FREE } else { usize::MAX },
            unclaimed: None,
            broken: None,
        }
    }

    /// The tag bits of an envelope, and its CQ data if the provider has any.
    pub(super) fn label(&self, protocol: Protocol, header: &Header) -> (u64, Option<u64>) {
        let bits = self.format.message(protocol, header.context(), header.source(), header.tag());
        let (source, length) = (u64::from(header.source()), header.length.min(u32::MAX.into()));
        let data = match self.data_bytes {
            DATA_BYTES.. => Some(source | length << 32),
            4.. => Some(source),
            _ => None,
        };
        (bits, data)
    }

    /// The provider is unusable: gives back all receives. Their places stay taken, since the provider may still write to them.
    #[cold]
    pub(super) fn give_all_back(&mut self) {
        self.unclaimed = None;
        for (number, place) in self.places.all() {
            if let Use::Receive(row) = place.used
                && self.of_row[row as usize] == number
            {
                place.used = Use::Free;
                self.of_row[row as usize] = NIL;
                let (state, header) = (ArrivalState::Recalled, Header::default());
                let (payload, from) = (Span::EMPTY, sys::FI_ADDR_UNSPEC);
                self.done.push_back(Done { state, row, place: NIL, header, payload, from });
            }
        }
        if std::mem::take(&mut self.looking) {
            self.seen = Peeked::Nothing;
        }
        self.asked = 0;
        self.ending.clear();
    }

    /// Whether a receive is over and not handed out, or the provider still owes an answer.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        !self.done.is_empty() || self.looking || self.asked > 0 || self.unclaimed.is_some()
    }

    /// Hands out receives that are over. `vc_of` returns the VC of a peer, or [`NIL`] if it is not known yet.
    pub(super) fn drain(&mut self, arrivals: &mut [Arrival], vc_of: impl Fn(sys::fi_addr_t) -> Row) -> usize {
        let (mut count, mut at) = (0, 0);
        while count < arrivals.len()
            && let Some(done) = self.done.get(at)
        {
            let vc = if done.state == ArrivalState::Matched { vc_of(done.from) } else { NIL };
            if vc == NIL && done.state == ArrivalState::Matched {
                // Its connection is not open on this side yet.
                at += 1;
                continue;
            }
            let Some(Done { state, row, place, header, payload, .. }) = self.done.remove(at) else { break };
            self.lent.push(place);
            let to = if row == NIL { Destination::Nobody } else { Destination::Receive(row) };
            arrivals[count] = Arrival { header, payload, vc, to, state };
            count += 1;
        }
        count
    }

    /// Hands whole messages without flags to `take`, in order, until `take` refuses one. `vc_of` is as for [`Matching::drain`].
    #[inline]
    pub(super) fn deliver(&mut self, most: u32, take: &mut impl Take, vc_of: impl Fn(sys::fi_addr_t) -> Row) -> u32 {
        let mut count = 0;
        while count < most
            && let Some(Done { state, row, place, header, payload, from }) = self.done.front()
        {
            let plain = *state == ArrivalState::Matched && header.lead == Kind::Eager as u64;
            // SAFETY: its place is given back below.
            #[expect(unsafe_code, reason = "a payload that is there until it is given back")]
            let taken = plain && unsafe { take.matched(header, *payload, vc_of(*from), *row) };
            if !taken {
                break;
            }
            let place = *place;
            self.done.pop_front();
            self.places.give_back(place);
            count += 1;
        }
        count
    }

    /// Whether a receive is over and was not handed out yet.
    #[inline]
    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    #[inline]
    pub(super) fn release(&mut self) {
        while let Some(place) = self.lent.pop() {
            if place != NIL {
                self.places.give_back(place);
            }
        }
    }
}
