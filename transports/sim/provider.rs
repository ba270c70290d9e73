//! A transport for tests that wraps another one and matches as a libfabric provider does with tagged messages, derived from a seed.
//!
//! A matched message is described by its tag bits, its CQ data and its peer alone. Completions are delayed, in one order for the whole
//! endpoint. A cancelled receive stays for a while, so a message may match it first. Now and then there is no room for a receive.

mod delivering;
mod matching;

use super::random::SplitMix;
use super::{bytes, span, take_first};
use crate::ofi::tags::{Protocol, ProviderTags, TagFormat, TagMode, TagPattern};
use crate::wrapping::hand_on;
use crate::{Capabilities, Frame, LinkEvent, Mapped, Matching, Peeked, ReceiveEnvelope, Sent, Take, Transport};
use std::collections::VecDeque;
use std::ops::Range;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Arrival, ArrivalState, Destination, NIL, Pieces, Row, Span, context};

/// Frames that are taken from the wrapped transport at once.
const CHUNK: usize = 64;

/// The settings of a [`Provider`].
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// Its name among the transports of an engine.
    pub name: &'static str,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The tag mode.
    pub mode: TagMode,
    /// What the provider offers for tags.
    pub tags: ProviderTags,
    /// How long completions are delayed, in ns.
    pub completion_ns: Range<u64>,
    /// How long a cancelled receive stays, in ns.
    pub recall_ns: Range<u64>,
    /// How often of 256 times there is no room for a receive.
    pub blocked_of_256: u8,
    /// The most bytes of a message that is sent whole.
    pub matched_max: usize,
    /// The procs that it reaches; `None` for all.
    pub procs: Option<Vec<u32>>,
    /// Its priority among the transports that reach a proc.
    pub priority: u8,
}

impl ProviderConfig {
    /// A provider with a moderate amount of all delays.
    pub fn new(seed: u64) -> Self {
        ProviderConfig {
            completion_ns: 0..400_000,
            recall_ns: 0..400_000,
            blocked_of_256: 40,
            ..ProviderConfig::calm(seed)
        }
    }

    /// A provider without delays.
    pub fn calm(seed: u64) -> Self {
        ProviderConfig {
            name: "provider",
            seed,
            mode: TagMode::Auto,
            tags: ProviderTags { format: u64::MAX, data_bytes: 8, directed_receive: true },
            completion_ns: 0..0,
            recall_ns: 0..0,
            blocked_of_256: 0,
            matched_max: 4096,
            procs: None,
            priority: 200,
        }
    }
}

/// A tagged message.
struct Tagged {
    bits: u64,
    data: u64,
    proc: u32,
    vc: Row,
    /// The header, if the message has one.
    header: Option<Header>,
    payload: Box<[u8]>,
}

struct Receive {
    row: Row,
    wanted: ReceiveEnvelope,
    pattern: TagPattern,
    /// The proc whose messages it matches; [`NIL`] for any.
    proc: u32,
    /// When the cancelled receive is given back; `None` if it is not cancelled.
    back_ns: Option<u64>,
}

/// An entry of the completion queue.
enum Completed {
    Frame(Header, Box<[u8]>, Row),
    Matched(Row, Header, Box<[u8]>, Row),
    Recalled(Row),
}

struct LinkState {
    proc: u32,
    vc: Row,
}

/// A transport that matches by itself. See the module.
pub struct Provider<T> {
    inner: T,
    config: ProviderConfig,
    matches: bool,
    capabilities: Capabilities,
    format: TagFormat,
    random: SplitMix,
    links: Vec<LinkState>,
    /// Oldest first.
    receives: Vec<Receive>,
    /// Messages that no receive has matched, oldest first.
    unexpected: Vec<Tagged>,
    /// Completions with the time from which they can be read, in order.
    completed: VecDeque<(u64, Completed)>,
    look: Option<(ReceiveEnvelope, bool)>,
    seen: Peeked,
    claimed: Vec<(Header, Box<[u8]>, Row)>,
    delivered: Vec<Box<[u8]>>,
    scratch: Vec<Arrival>,
    now_ns: u64,
}

impl<T: Transport> Provider<T> {
    /// Wraps a transport of proc `me` in one that matches.
    ///
    /// # Errors
    /// If the tag mode is not possible, in words.
    pub fn new(inner: T, me: u32, config: ProviderConfig) -> Result<Self, String> {
        let format = TagFormat::new(config.mode, &config.tags)?;
        let capabilities = Capabilities {
            tags: format.limits(),
            matched_max: config.matched_max.min(inner.capabilities().frame_max),
            directed_receive: config.tags.directed_receive,
            completion_data: config.tags.data_bytes,
            priority: config.priority,
            remote_read: false,
            mapped: Mapped::NONE,
            can_sleep: false,
            cheap_poll: false,
            ..inner.capabilities().clone()
        };
        Ok(Provider {
            inner,
            matches: true,
            capabilities,
            format,
            random: SplitMix::new(config.seed ^ (u64::from(me) << 40) ^ 1),
            config,
            links: Vec::new(),
            receives: Vec::new(),
            unexpected: Vec::new(),
            completed: VecDeque::new(),
            look: None,
            seen: Peeked::Pending,
            claimed: Vec::new(),
            delivered: Vec::new(),
            scratch: vec![Arrival::default(); CHUNK],
            now_ns: 0,
        })
    }

    fn open(&mut self, link: u32, proc: u32) {
        while self.links.len() <= link as usize {
            self.links.push(LinkState { proc: NIL, vc: NIL });
        }
        self.links[link as usize].proc = proc;
    }

    fn proc_of_link(&self, link: u32) -> u32 {
        self.links.get(link as usize).map_or(NIL, |state| state.proc)
    }

    fn is_matched(&self, header: &Header) -> bool {
        self.matches && Protocol::of(header.kind()).is_some() && context::plane(header.context()) == context::USER
    }

    /// Completions are read in the order in which they were made.
    fn complete(&mut self, completed: Completed) {
        let last_ns = self.completed.back().map_or(0, |(due_ns, _)| *due_ns);
        let due_ns = self.now_ns.saturating_add(self.random.within(&self.config.completion_ns));
        self.completed.push_back((due_ns.max(last_ns), completed));
    }

    /// The envelope of a message that has matched `wanted`.
    fn envelope(&self, tagged: &Tagged, wanted: &ReceiveEnvelope) -> Header {
        let (source, tag) = (self.format.source(tagged.bits, tagged.data), self.format.tag(tagged.bits));
        let length = tagged.payload.len() as u64;
        tagged.header.unwrap_or_else(|| Header::eager(wanted.context, source, tag, length))
    }

    fn pair(&mut self, receive: &Receive, tagged: Tagged) {
        let header = self.envelope(&tagged, &receive.wanted);
        self.complete(Completed::Matched(receive.row, header, tagged.payload, tagged.vc));
    }

    /// Takes all frames of the wrapped transport, and matches.
    fn take_in(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.give_back();
        loop {
            let count = self.inner.drain(now_ns, &mut self.scratch);
            for index in 0..count {
                let Arrival { header, payload, vc, .. } = self.scratch[index];
                self.take_frame(header, bytes(payload), vc);
            }
            self.inner.release();
            if count < self.scratch.len() {
                break;
            }
        }
        self.look_around();
    }

    fn take_frame(&mut self, header: Header, payload: Box<[u8]>, vc: Row) {
        let protocol = Protocol::of(header.kind());
        let Some(protocol) = protocol.filter(|_| self.is_matched(&header)) else {
            return self.complete(Completed::Frame(header, payload, vc));
        };
        let bits = self.format.message(protocol, header.context(), header.source(), header.tag());
        let data = self.format.data(header.source()).unwrap_or(0);
        let proc = self.links.iter().find(|link| link.vc == vc).map_or(NIL, |link| link.proc);
        let tagged = Tagged { bits, data, proc, vc, header: (protocol != Protocol::Eager).then_some(header), payload };
        match take_first(&mut self.receives, |receive| takes(&receive.pattern, receive.proc, &tagged)) {
            Some(receive) => self.pair(&receive, tagged),
            None => self.unexpected.push(tagged),
        }
    }

    /// Receives that were asked back, once it is time.
    fn give_back(&mut self) {
        let now_ns = self.now_ns;
        let due = |receive: &Receive| receive.back_ns.is_some_and(|back_ns| back_ns <= now_ns);
        while let Some(receive) = take_first(&mut self.receives, due) {
            self.complete(Completed::Recalled(receive.row));
        }
    }

    /// The look for a message, which is over at once.
    fn look_around(&mut self) {
        let Some((wanted, claim)) = self.look.take() else { return };
        let pattern = self.format.pattern(wanted.context, wanted.source, wanted.tag);
        let proc = self.proc_of_link(wanted.link);
        let Some(place) = self.unexpected.iter().position(|tagged| takes(&pattern, proc, tagged)) else {
            self.seen = Peeked::Nothing;
            return;
        };
        let header = self.envelope(&self.unexpected[place], &wanted);
        // The length is in the CQ data, and nowhere else before the message itself.
        let length = if self.config.tags.data_bytes >= size_of::<u64>() { header.length } else { 0 };
        self.seen = Peeked::Found(Header { length, ..header }, self.unexpected[place].vc);
        if claim {
            let tagged = self.unexpected.remove(place);
            self.claimed.push((header, tagged.payload, tagged.vc));
        }
    }

    fn hand_out(&mut self, out: &mut [Arrival]) -> usize {
        let mut count = 0;
        while count < out.len() {
            let (header, payload, vc, to, state) = if let Some((header, payload, vc)) = self.claimed.pop() {
                (header, payload, vc, Destination::Nobody, ArrivalState::Claimed)
            } else if self.completed.front().is_some_and(|(due_ns, _)| *due_ns <= self.now_ns)
                && let Some((_, completed)) = self.completed.pop_front()
            {
                match completed {
                    Completed::Frame(header, payload, vc) => {
                        (header, payload, vc, Destination::Nobody, ArrivalState::New)
                    }
                    Completed::Matched(row, header, payload, vc) => {
                        (header, payload, vc, Destination::Receive(row), ArrivalState::Matched)
                    }
                    Completed::Recalled(row) => {
                        (Header::default(), Box::default(), NIL, Destination::Receive(row), ArrivalState::Recalled)
                    }
                }
            } else {
                break;
            };
            self.delivered.push(payload);
            let payload = self.delivered.last_mut().map_or(Span::EMPTY, |payload| span(payload));
            out[count] = Arrival { header, payload, vc, to, state };
            count += 1;
        }
        count
    }
}

/// Whether a receive of a pattern, from a proc or any, takes a message.
fn takes(pattern: &TagPattern, proc: u32, tagged: &Tagged) -> bool {
    pattern.takes(tagged.bits) && (proc == NIL || proc == tagged.proc)
}

// SAFETY: what it gives out is its own, and stays as long as is said.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl<T: Transport> Transport for Provider<T> {
    type RowState = T::RowState;

    hand_on! {
        card moved traffic lending registering watchers fits shared_bytes flush
        wants_control close_link give_up has_ended disarm close
    }

    fn name(&self) -> &str {
        self.config.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        match &self.config.procs {
            Some(procs) if !procs.contains(&proc) => Err("it is not on this network".into()),
            _ => self.inner.reaches(proc, card),
        }
    }

    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        let link = self.inner.connect(proc, card, now_ns)?;
        self.open(link, proc);
        Ok(link)
    }

    fn attach(&mut self, link: u32, vc: Row) {
        if let Some(state) = self.links.get_mut(link as usize) {
            state.vc = vc;
        }
        self.inner.attach(link, vc);
    }

    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, state: &mut Self::RowState) -> Sent {
        debug_assert!(
            header.kind() != Some(Kind::Eager) || !self.is_matched(header) || header.credit().is_none(),
            "what has no header on its way cannot bring credit"
        );
        self.inner.send(link, header, pieces, state)
    }

    unsafe fn send_batch(&mut self, link: u32, frames: &[Frame], state: &mut Self::RowState) -> (usize, Sent) {
        // SAFETY: by the same contract.
        unsafe { self.inner.send_batch(link, frames, state) }
    }

    fn matching(&mut self) -> Option<&mut dyn Matching> {
        self.matches.then_some(self)
    }

    fn ready(&self) -> bool {
        self.inner.ready()
            || !self.completed.is_empty()
            || self.look.is_some()
            || self.receives.iter().any(|receive| receive.back_ns.is_some())
    }

    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.take_in(now_ns);
        self.hand_out(arrivals)
    }

    fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        let now_ns = take.now_ns();
        self.take_in(now_ns);
        self.hand_over(most, take)
    }

    fn drain_link(&mut self, _: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.drain(now_ns, arrivals)
    }

    fn release(&mut self) {
        self.delivered.clear();
    }

    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        self.now_ns = self.now_ns.max(now_ns);
        let before = events.len();
        self.inner.control(now_ns, events);
        for event in &events[before..] {
            if let Some((link, proc)) = event.opened(|link| self.proc_of_link(link)) {
                self.open(link, proc);
            }
        }
    }

    fn arm(&mut self) -> bool {
        !self.ready() && self.inner.arm()
    }
}
