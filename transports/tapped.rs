//! A transport that reports its messages to a sink: wraps another one, and changes nothing of its behaviour.
//!
//! Only traced engines use it, so tracing costs the others nothing on the message path. Both ends count the envelopes from one proc to
//! another, and frames of a connection keep their order. So the number of an envelope is the same at both ends, without being sent.

use crate::wrapping::hand_on;
use crate::{Frame, LinkEvent, Other, Sent, Take, Transport};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Arrival, NIL, Pieces, Row, Span};
use tickwire_traces::{Event, Message, Trace};

/// A traced transport.
pub struct Tapped<T> {
    inner: T,
    trace: Trace,
    /// Envelopes to and from each proc that was connected.
    peers: Vec<Peer>,
    /// The place in `peers` of each link, and of each VC.
    links: Vec<u32>,
    vcs: Vec<u32>,
}

struct Peer {
    proc: u32,
    sent: u64,
    received: u64,
}

impl<T: Transport> Tapped<T> {
    /// Traces a transport.
    pub fn new(inner: T, trace: Trace) -> Self {
        Tapped { inner, trace, peers: Vec::new(), links: Vec::new(), vcs: Vec::new() }
    }

    /// Notes the proc of a link.
    fn open(&mut self, link: u32, proc: u32) {
        let place = self.peers.iter().position(|peer| peer.proc == proc).unwrap_or_else(|| {
            self.peers.push(Peer { proc, sent: 0, received: 0 });
            self.peers.len() - 1
        });
        set(&mut self.links, link, place as u32);
    }

    fn proc_of_link(&self, link: u32) -> u32 {
        let place = self.links.get(link as usize).copied().unwrap_or(NIL);
        self.peers.get(place as usize).map_or(NIL, |peer| peer.proc)
    }

    /// The time at which a frame is sent, if the frame is traced.
    fn begin_of(&mut self, header: &Header) -> u64 {
        if is_envelope(header) { self.trace.now_ns() } else { 0 }
    }

    /// Reports a frame that was sent.
    fn tell_sent(&mut self, link: u32, header: &Header, begin_ns: u64) {
        let Some(peer) = peer(&mut self.peers, &self.links, link).filter(|_| is_envelope(header)) else { return };
        let end_ns = if header.payload() >= Message::TIMED_BYTES { self.trace.now_ns() } else { begin_ns };
        let message = message(peer.proc, header, peer.sent, begin_ns, end_ns);
        peer.sent += 1;
        self.trace.record(&Event::Sent(message));
    }

    /// Reports a message that bypassed the transport and is in its receive already.
    pub(crate) fn tell_own(&mut self, link: u32, header: &Header, begin_ns: u64) {
        let Some(peer) = peer(&mut self.peers, &self.links, link) else { return };
        let sent = message(peer.proc, header, peer.sent, begin_ns, begin_ns);
        let received = message(peer.proc, header, peer.received, begin_ns, self.trace.now_ns());
        (peer.sent, peer.received) = (peer.sent + 1, peer.received + 1);
        self.trace.record(&Event::Sent(sent));
        self.trace.record(&Event::Received(received));
    }

    pub(crate) fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    fn tell_received(&mut self, arrivals: &[Arrival]) {
        let Tapped { trace, peers, vcs, .. } = self;
        let mut heard = Heard { trace, peers, vcs };
        arrivals.iter().for_each(|arrival| heard.tell(&arrival.header, arrival.vc));
    }
}

/// The state for reporting frames that have arrived.
struct Heard<'a> {
    trace: &'a mut Trace,
    peers: &'a mut [Peer],
    vcs: &'a [u32],
}

impl Heard<'_> {
    fn tell(&mut self, header: &Header, vc: Row) {
        let Some(peer) = peer(self.peers, self.vcs, vc).filter(|_| is_envelope(header)) else { return };
        let (before_ns, end_ns) = (self.trace.last_ns(), self.trace.now_ns());
        let begin_ns = if before_ns == 0 { end_ns } else { before_ns };
        let message = message(peer.proc, header, peer.received, begin_ns, end_ns);
        peer.received += 1;
        self.trace.record(&Event::Received(message));
    }
}

/// Wraps another `Take`, and reports what it takes.
struct Telling<'a, T> {
    take: &'a mut T,
    heard: Heard<'a>,
}

impl<T: Take> Telling<'_, T> {
    fn told(&mut self, taken: bool, header: &Header, vc: Row) -> bool {
        if taken {
            self.heard.tell(header, vc);
        }
        taken
    }
}

#[expect(unsafe_code, reason = "payloads are addresses")]
impl<T: Take> Take for Telling<'_, T> {
    fn now_ns(&mut self) -> u64 {
        self.take.now_ns()
    }

    unsafe fn message(&mut self, header: &Header, payload: Span, vc: Row) -> bool {
        // SAFETY: by the same contract.
        let taken = unsafe { self.take.message(header, payload, vc) };
        self.told(taken, header, vc)
    }

    unsafe fn other(&mut self, header: &Header, payload: Span, vc: Row) -> Other {
        // SAFETY: by the same contract.
        let taken = unsafe { self.take.other(header, payload, vc) };
        self.told(!matches!(taken, Other::Left), header, vc);
        taken
    }

    unsafe fn matched(&mut self, header: &Header, payload: Span, vc: Row, receive: Row) -> bool {
        // SAFETY: by the same contract.
        let taken = unsafe { self.take.matched(header, payload, vc, receive) };
        self.told(taken, header, vc)
    }
}

fn set(places: &mut Vec<u32>, at: u32, place: u32) {
    if places.len() <= at as usize {
        places.resize(at as usize + 1, NIL);
    }
    places[at as usize] = place;
}

fn peer<'a>(peers: &'a mut [Peer], places: &[u32], at: u32) -> Option<&'a mut Peer> {
    peers.get_mut(*places.get(at as usize)? as usize)
}

/// Whether a frame is the first of a message.
fn is_envelope(header: &Header) -> bool {
    matches!(header.kind(), Some(Kind::Eager | Kind::Sync | Kind::Rts | Kind::Head))
}

fn message(proc: u32, header: &Header, number: u64, begin_ns: u64, end_ns: u64) -> Message {
    let (context, tag, bytes) = (header.context(), header.tag(), header.length);
    Message { proc, context, tag, bytes, number, begin_ns, end_ns }
}

// SAFETY: what it gives out is its own, and stays as long as is said.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl<T: Transport> Transport for Tapped<T> {
    type RowState = T::RowState;

    hand_on! {
        name capabilities card reaches moved traffic memory direct one_sided
        matching lending registering credit_windows shared_memory watchers fits shared_bytes flush ready
        release wants_control close_link give_up has_ended wait_fd arm must_poll
        disarm close
    }

    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        let link = self.inner.connect(proc, card, now_ns)?;
        self.open(link, proc);
        Ok(link)
    }

    fn attach(&mut self, link: u32, vc: Row) {
        if let Some(&place) = self.links.get(link as usize) {
            set(&mut self.vcs, vc, place);
        }
        self.inner.attach(link, vc);
    }

    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, state: &mut T::RowState) -> Sent {
        let begin_ns = self.begin_of(header);
        let sent = self.inner.send(link, header, pieces, state);
        if sent == Sent::Done {
            self.tell_sent(link, header, begin_ns);
        }
        sent
    }

    unsafe fn send_batch(&mut self, link: u32, frames: &[Frame], state: &mut T::RowState) -> (usize, Sent) {
        let begin_ns = frames.first().map_or(0, |frame| self.begin_of(&frame.header));
        // SAFETY: by the same contract.
        let (sent, outcome) = unsafe { self.inner.send_batch(link, frames, state) };
        frames[..sent].iter().for_each(|frame| self.tell_sent(link, &frame.header, begin_ns));
        (sent, outcome)
    }

    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        let count = self.inner.drain(now_ns, arrivals);
        self.tell_received(&arrivals[..count]);
        count
    }

    fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        let Tapped { inner, trace, peers, vcs, .. } = self;
        inner.deliver(most, &mut Telling { take, heard: Heard { trace, peers, vcs } })
    }

    fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        let count = self.inner.drain_link(link, now_ns, arrivals);
        self.tell_received(&arrivals[..count]);
        count
    }

    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        let before = events.len();
        self.inner.control(now_ns, events);
        for event in &events[before..] {
            if let Some((link, proc)) = event.opened(|link| self.proc_of_link(link)) {
                self.open(link, proc);
            }
        }
    }
}
