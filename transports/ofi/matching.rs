//! Tagged mode: the provider pairs messages with receives (fi_tagged(3)).
//!
//! Envelopes of the application's messages are tagged messages; all other frames go as in message mode, over the same
//! endpoint. An eager message is its bytes alone: bits and CQ data say the rest ([`super::tags`]). A synchronous one and an offer
//! have their header in front. Every receive has a place of its own here for the longest message that may come, so that the
//! provider never sees one that is longer than its receive, which some providers lose or lose others by. The lower half of
//! the CQ data is the sender's rank, the upper half the length of the message that is offered, for probes, which see nothing
//! else of it. With fewer than 8 bytes of CQ data there is no length, and without 4 none at all: then only what is claimed tells
//! its length.

use super::mode::{DATA_BYTES, Tags};
use super::slab::{Contexts, Slab};
use super::tags::{Protocol, TagFormat};
use super::{Completion, Domain, Endpoint, Failure, MemoryRegion, OfiError, Refused};
use crate::{Peeked, ReceiveEnvelope, Sent, Take};
use libfabric_sys as sys;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::null_mut;
use tickwire_components::wire::{ADDRESS_BYTES, HEADER_BYTES, Header, Kind};
use tickwire_components::{Arrival, ArrivalState, NIL, Row, Span};

/// Failed receives after which the provider is given up.
const FAILURES_MAX: u32 = 256;
/// Looks for a message that waits for a receive, before that is asked back all the same: a provider that says there is one, and
/// does not pair it, keeps nobody waiting for ever.
const CHECKS_MAX: u32 = 100_000;
/// Receives that memory is taken for at once.
const CHUNK: usize = 64;

/// Receives in one piece of memory that never moves.
struct Chunk {
    /// Freed after the region is closed.
    _region: Option<MemoryRegion>,
    descriptor: *mut c_void,
    places: Slab,
    contexts: Contexts,
}

/// What a place is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Free,
    /// A receive of this row.
    Receive(Row),
    /// A look for a message, which is claimed if there is one.
    Look {
        claims: bool,
    },
    /// The receive of a message that was claimed.
    Claim,
    /// A look whether a message is there for the first of [`Matching::ending`].
    Check,
}

/// A receive that is asked back unless a message is there for it.
#[derive(Clone, Copy)]
struct EndingReceive {
    row: Row,
    place: u32,
    /// How often it is looked for one before it is asked back all the same.
    looks_left: u32,
}

#[derive(Clone, Copy)]
struct Place {
    used: Use,
    wanted: ReceiveEnvelope,
    /// The peer that it takes from; `FI_ADDR_UNSPEC` for any.
    from: sys::fi_addr_t,
    /// It was asked back.
    asked: bool,
}

const FREE: Place = Place {
    used: Use::Free,
    wanted: ReceiveEnvelope { link: NIL, context: 0, source: 0, tag: 0 },
    from: sys::FI_ADDR_UNSPEC,
    asked: false,
};

/// What the provider has said and nobody has been told.
struct Done {
    state: ArrivalState,
    row: Row,
    place: u32,
    header: Header,
    payload: Span,
    from: sys::fi_addr_t,
}

/// See the module.
pub(super) struct Matching {
    format: TagFormat,
    /// Bytes of CQ data that go with a message.
    data_bytes: usize,
    pub(super) directed: bool,
    /// Bytes of a place: header and payload.
    bytes: usize,
    chunks: Vec<Chunk>,
    places: Vec<Place>,
    free: Vec<u32>,
    /// The place of each row's receive.
    of_row: Vec<u32>,
    done: VecDeque<Done>,
    /// Places whose messages were drained.
    lent: Vec<u32>,
    seen: Peeked,
    looking: bool,
    /// Receives that were asked back and have not answered.
    asked: u32,
    /// Those of them that are left to messages that are there.
    ending: VecDeque<EndingReceive>,
    /// A look for the first of them is under way.
    checking: bool,
    failures: u32,
    /// Why the provider is of no use any more.
    pub(super) broken: Option<String>,
}

impl Matching {
    pub(super) fn new(tags: Tags, directed: bool, matched_max: usize) -> Self {
        Matching {
            format: tags.format,
            data_bytes: tags.data_bytes,
            directed,
            bytes: (HEADER_BYTES + matched_max.max(ADDRESS_BYTES as usize)).next_multiple_of(64),
            chunks: Vec::new(),
            places: Vec::new(),
            free: Vec::new(),
            of_row: Vec::new(),
            done: VecDeque::new(),
            lent: Vec::new(),
            seen: Peeked::Pending,
            looking: false,
            asked: 0,
            ending: VecDeque::new(),
            checking: false,
            failures: 0,
            broken: None,
        }
    }

    /// The bits and the CQ data of an envelope, as far as the provider has some.
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

    fn grow(&mut self, endpoint: &Endpoint) -> Result<(), OfiError> {
        let domain: &Domain = endpoint.domain();
        let (places, contexts) = (Slab::new(CHUNK, self.bytes), Contexts::new(CHUNK));
        let mut region = None;
        if domain.info().domain_attr().mr_mode as u64 & sys::FI_MR_LOCAL != 0 {
            // Keys of the port's own regions are 0 and 1.
            let key = 2 + self.chunks.len() as u64;
            // SAFETY: the slab is freed after the region is closed, and both after the endpoint.
            #[expect(unsafe_code, reason = "FFI")]
            let registered =
                unsafe { MemoryRegion::register(domain, places.whole(), sys::FI_RECV, key, Some(endpoint))? };
            region = Some(registered);
        }
        let descriptor = region.as_ref().map_or(null_mut(), MemoryRegion::descriptor);
        let first = self.places.len() as u32;
        self.chunks.push(Chunk { _region: region, descriptor, places, contexts });
        self.places.extend((0..CHUNK).map(|_| FREE));
        self.free.extend((first..first + CHUNK as u32).rev());
        Ok(())
    }

    fn take_place(
        &mut self,
        endpoint: &Endpoint,
        used: Use,
        wanted: &ReceiveEnvelope,
        from: sys::fi_addr_t,
    ) -> Option<u32> {
        if self.free.is_empty()
            && let Err(error) = self.grow(endpoint)
        {
            self.broken = Some(error.to_string());
        }
        let place = self.free.pop()?;
        self.places[place as usize] = Place { used, wanted: *wanted, from, asked: false };
        Some(place)
    }

    fn give_back(&mut self, place: u32) {
        self.places[place as usize].used = Use::Free;
        self.free.push(place);
    }

    fn context(&self, place: u32) -> *mut c_void {
        self.chunks[place as usize / CHUNK].contexts.of(place as usize % CHUNK)
    }

    fn bytes_of(&self, place: u32) -> Span {
        self.chunks[place as usize / CHUNK].places.place(place as usize % CHUNK)
    }

    /// Which place an operation's context is of.
    fn place_of(&self, context: *mut c_void) -> Option<u32> {
        let found = self.chunks.iter().enumerate().find_map(|(chunk, c)| Some((chunk, c.contexts.index(context)?)));
        found.map(|(chunk, index)| (chunk * CHUNK + index) as u32)
    }

    /// Posts what a place is for.
    fn post(&mut self, endpoint: &Endpoint, place: u32, flags: u64) -> Result<(), Refused> {
        let Place { wanted, from, .. } = self.places[place as usize];
        let pattern = self.format.pattern(wanted.context, wanted.source, wanted.tag);
        let bytes = self.bytes_of(place);
        let iov = libc::iovec { iov_base: bytes.start().cast(), iov_len: bytes.len() };
        let mut descriptor = self.chunks[place as usize / CHUNK].descriptor;
        let looks = flags & (sys::FI_PEEK | sys::FI_CLAIM) == sys::FI_PEEK;
        let message = sys::fi_msg_tagged {
            msg_iov: &raw const iov,
            desc: &raw mut descriptor,
            iov_count: if looks { 0 } else { 1 },
            addr: if self.directed { from } else { sys::FI_ADDR_UNSPEC },
            tag: pattern.bits,
            ignore: pattern.ignored,
            context: self.context(place),
            data: 0,
        };
        // SAFETY: place and context are used for nothing else until the operation has completed, and are freed after the
        // endpoint is closed; the list of runs is copied by the call.
        #[expect(unsafe_code, reason = "FFI")]
        let code = unsafe { sys::ops::fi_trecvmsg(endpoint.as_ptr(), &raw const message, flags) };
        endpoint.posted("fi_trecvmsg", code)
    }

    fn start(
        &mut self,
        endpoint: &Endpoint,
        used: Use,
        wanted: &ReceiveEnvelope,
        from: sys::fi_addr_t,
        flags: u64,
    ) -> Result<u32, Sent> {
        let place = self.take_place(endpoint, used, wanted, from).ok_or(Sent::Failed)?;
        match self.post(endpoint, place, flags) {
            Ok(()) => Ok(place),
            Err(refused) => {
                self.give_back(place);
                if let Refused::Failed(error) = refused {
                    self.broken = Some(error.to_string());
                    return Err(Sent::Failed);
                }
                Err(Sent::Blocked)
            }
        }
    }

    pub(super) fn post_receive(
        &mut self,
        endpoint: &Endpoint,
        row: Row,
        wanted: &ReceiveEnvelope,
        from: sys::fi_addr_t,
    ) -> Sent {
        match self.start(endpoint, Use::Receive(row), wanted, from, sys::FI_COMPLETION) {
            Ok(place) => {
                if self.of_row.len() <= row as usize {
                    self.of_row.resize(row as usize + 1, NIL);
                }
                self.of_row[row as usize] = place;
                Sent::Done
            }
            Err(sent) => sent,
        }
    }

    pub(super) fn recall(&mut self, endpoint: &Endpoint, row: Row, unless_message: bool) {
        let Some(&place) = self.of_row.get(row as usize).filter(|&&place| place != NIL) else { return };
        if self.places[place as usize].used != Use::Receive(row) || self.places[place as usize].asked {
            return;
        }
        self.places[place as usize].asked = true;
        self.asked += 1;
        match unless_message {
            // `sockets` pairs them in a thread of its own, some time after both are there.
            true => self.ending.push_back(EndingReceive { row, place, looks_left: CHECKS_MAX }),
            false => self.cancel(endpoint, place),
        }
    }

    fn cancel(&self, endpoint: &Endpoint, place: u32) {
        // SAFETY: the context of this place's receive, which has not been completed as far as is known.
        #[expect(unsafe_code, reason = "FFI")]
        unsafe {
            endpoint.cancel(self.context(place));
        }
    }

    /// Whether receives are asked back unless a message is there, and something can be done about it.
    #[inline]
    pub(super) fn may_check(&self) -> bool {
        !self.ending.is_empty() && !self.checking
    }

    /// Looks whether a message is there for the first receive that is asked back unless there is one.
    #[cold]
    pub(super) fn check(&mut self, endpoint: &Endpoint) {
        while let Some(&EndingReceive { row, place, looks_left }) = self.ending.front() {
            let Place { used, asked, wanted, from } = self.places[place as usize];
            if used != Use::Receive(row) || !asked || self.of_row[row as usize] != place {
                // It has its message.
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

    /// A look for the first receive that is asked back is over.
    fn end_check(&mut self, endpoint: &Endpoint, found: bool) {
        self.checking = false;
        let Some(mut ending) = self.ending.pop_front() else { return };
        let Place { used, asked, .. } = self.places[ending.place as usize];
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

    pub(super) fn peek(
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

    /// What was seen. Whose it is its rank says: sources of looks are wrong on several providers.
    pub(super) fn peeked(&mut self) -> Peeked {
        std::mem::replace(&mut self.seen, Peeked::Pending)
    }

    /// The envelope that bits and data say, without a length where the data has none.
    fn envelope(&self, place: u32, completion: &Completion) -> Header {
        let context = self.places[place as usize].wanted.context;
        // What is sent with data has it, whatever the flags say: those of a look do not on several providers.
        let (bits, data) = (completion.tag, completion.data);
        let source = self.format.source(bits, data);
        let length = if self.data_bytes >= DATA_BYTES { data >> 32 } else { 0 };
        let kind = if self.format.protocol(bits) == Protocol::Rts { Kind::Rts } else { Kind::Eager };
        Header::new(kind, context, source, self.format.tag(bits), 0, length)
    }

    /// A completion, if it is of an operation here; `false` if not.
    pub(super) fn completed(&mut self, endpoint: &Endpoint, completion: &Completion, from: sys::fi_addr_t) -> bool {
        let Some(place) = self.place_of(completion.op_context) else { return false };
        let used = self.answered(place);
        let from = if from == sys::FI_ADDR_NOTAVAIL { self.places[place as usize].from } else { from };
        match used {
            Use::Free => {}
            Use::Receive(row) => {
                self.of_row[row as usize] = NIL;
                self.finished(ArrivalState::Matched, row, place, completion, from);
            }
            Use::Claim => self.finished(ArrivalState::Claimed, NIL, place, completion, from),
            Use::Check => {
                self.give_back(place);
                self.end_check(endpoint, true);
            }
            Use::Look { claims } => {
                self.looking = false;
                self.seen = Peeked::Found(self.envelope(place, completion), NIL);
                if claims {
                    self.places[place as usize].used = Use::Claim;
                    if self.post(endpoint, place, sys::FI_CLAIM | sys::FI_COMPLETION).is_err() {
                        self.broken = Some("the provider does not give a message that it has claimed".into());
                    }
                } else {
                    self.give_back(place);
                }
            }
        }
        true
    }

    /// An operation is over: what it was for.
    fn answered(&mut self, place: u32) -> Use {
        let place = &mut self.places[place as usize];
        self.asked -= u32::from(std::mem::take(&mut place.asked));
        place.used
    }

    fn finished(&mut self, state: ArrivalState, row: Row, place: u32, completion: &Completion, from: sys::fi_addr_t) {
        let mut header = self.envelope(place, completion);
        let bytes = self.bytes_of(place).part(0, completion.len);
        let mut payload = bytes;
        if self.format.protocol(completion.tag) == Protocol::Eager {
            header.length = bytes.len() as u64;
        } else {
            payload = bytes.part(HEADER_BYTES, usize::MAX);
            // One that is too short to have a header keeps a kind that Match refuses.
            header = read_header(bytes, payload).unwrap_or(Header { lead: Kind::Wrap as u64, ..header });
        }
        self.done.push_back(Done { state, row, place, header, payload, from });
    }

    /// An operation that has failed, if it is one of these.
    pub(super) fn failed(&mut self, endpoint: &Endpoint, failure: &Failure) -> bool {
        let Some(place) = self.place_of(failure.context) else { return false };
        match self.answered(place) {
            Use::Free => return true,
            Use::Receive(row) => {
                if failure.code != sys::FI_ECANCELED {
                    self.failures += 1;
                    if self.failures > FAILURES_MAX {
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
        self.give_back(place);
        true
    }

    /// The provider is of no use any more: no receive waits for it. Their places stay taken, since it may still write to them.
    #[cold]
    pub(super) fn give_all_back(&mut self) {
        for (number, place) in (0..).zip(&mut self.places) {
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

    /// Whether something has been said that nobody has been told, or a look is under way.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        !self.done.is_empty() || self.looking || self.asked > 0
    }

    /// Tells what has been said; `vc_of` knows the VC of a peer, [`NIL`] if it is not known yet.
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
            arrivals[count] = Arrival { header, payload, vc, car: row, state, ..Arrival::default() };
            count += 1;
        }
        count
    }

    /// Gives messages that are paired to whom they are for, one after another, while they are taken; `vc_of` as for
    /// [`Matching::drain`].
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
            self.give_back(place);
            count += 1;
        }
        count
    }

    /// Whether something has been said that nobody has been told.
    #[inline]
    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    #[inline]
    pub(super) fn release(&mut self) {
        while let Some(place) = self.lent.pop() {
            if place != NIL {
                self.give_back(place);
            }
        }
    }
}

/// The header in front of a message; `None` if that is no envelope with a header.
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
