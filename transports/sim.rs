//! A transport for tests: wraps another one and adds network faults, derived from a seed.
//!
//! Frames are delayed in the caller's time. Those of different VCs overtake each other. Sends are refused now and then, or for a time.
//! Frames are taken in parts. Credit is held back and given in portions. Frames are corrupted. Reads of memory, and direct moves, are
//! refused. Procs die at a given frame or moment. [`SimConfig`] controls each fault. Everything follows from the seed and from the calls
//! that are made: there is no clock and no other randomness. So a seed reproduces a run of a cluster that is ticked in a fixed order.

mod lane;
mod moving;
mod net;
mod provider;
mod random;
mod reading;
mod receiving;
mod sending;
mod state;
mod windows;

pub use net::{Death, Flight, SimConfig, SimNet};
pub use provider::{Provider, ProviderConfig};
pub use random::SplitMix;
pub use state::Corruption;

use crate::wrapping::hand_on;
use crate::{Capabilities, CreditWindows, Direct, LinkEvent, Mapped, Memory, Sent, TagLimits, Take, Transport};
use lane::Lane;
use std::collections::BTreeMap;
use tickwire_components::credit::Credit;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, NIL, Pieces, Row, Span};

/// Frames that are taken from the wrapped transport at once.
const CHUNK: usize = 64;

/// State of a CAR whose frame was taken in part.
#[derive(Debug, Default)]
pub struct SimState<S> {
    inner: S,
    /// The header of that frame: the next send must be the rest of the same frame.
    begun: Option<Header>,
}

/// State of a link.
struct LinkState {
    proc: u32,
    vc: Row,
    /// Frames that have arrived on it, not counting those that carry only credit.
    frames: u64,
    /// Why it has failed; reported once its lane is empty.
    failed: Option<String>,
    /// It refuses sends until then, in ns.
    storm_ns: u64,
    /// The payload so far of the frame that is being taken in parts.
    writing: Option<Vec<u8>>,
    /// It was never opened, or its end was reported, or it was closed.
    over: bool,
}

impl LinkState {
    fn new(proc: u32, over: bool) -> Self {
        LinkState { proc, vc: NIL, frames: 0, failed: None, storm_ns: 0, writing: None, over }
    }
}

/// A transport under simulation. See the module.
pub struct Sim<T> {
    inner: T,
    capabilities: Capabilities,
    me: u32,
    net: SimNet,
    random: SplitMix,
    links: Vec<LinkState>,
    lanes: BTreeMap<Row, Lane>,
    /// The VC whose frame was handed out last: all others are served before it.
    last: Row,
    /// Payloads of arrivals that have not been released.
    delivered: Vec<Box<[u8]>>,
    scratch: Vec<Arrival>,
    inner_events: Vec<LinkEvent>,
    now_ns: u64,
}

impl<T: Transport> Sim<T> {
    /// Puts a transport of proc `me` under simulation.
    pub fn new(mut inner: T, me: u32, net: &SimNet) -> Self {
        let whole_frames = inner.capabilities().whole_frames && net.config().partial_of_256 == 0;
        // Only frames can be delayed. So credit is sent in frames, and the wrapped transport must not match. Memory is read at once.
        if let Some(matching) = inner.matching() {
            matching.leave();
        }
        let capabilities = Capabilities {
            whole_frames,
            tags: TagLimits::NONE,
            matched_max: 0,
            directed_receive: false,
            remote_read: net.config().remote_read,
            mapped: Mapped::NONE,
            can_sleep: false,
            ..inner.capabilities().clone()
        };
        Sim {
            inner,
            capabilities,
            me,
            net: net.clone(),
            random: SplitMix::new(net.config().seed ^ (u64::from(me) << 40)),
            links: Vec::new(),
            lanes: BTreeMap::new(),
            last: NIL,
            delivered: Vec::new(),
            scratch: vec![Arrival::default(); CHUNK],
            inner_events: Vec::new(),
            now_ns: 0,
        }
    }

    fn link(&mut self, link: u32) -> &mut LinkState {
        while self.links.len() <= link as usize {
            self.links.push(LinkState::new(NIL, true));
        }
        &mut self.links[link as usize]
    }

    /// The proc at the other end of a link that is open and has not failed.
    fn peer_of(&self, link: u32) -> Option<u32> {
        let state = self.links.get(link as usize)?;
        (!state.over && state.failed.is_none()).then_some(state.proc)
    }

    fn open(&mut self, link: u32, proc: u32) {
        self.withdraw_from_peer(link);
        *self.link(link) = LinkState::new(proc, false);
    }

    /// The peer of a link may no longer read anything that was exposed to it, nor move messages into buffers of this proc.
    fn withdraw_from_peer(&mut self, link: u32) {
        let proc = self.link(link).proc;
        self.net.withdraw_from(self.me, proc);
        self.net.forget_expected(self.me, Some(proc));
    }

    fn is_dead(&self) -> bool {
        self.net.is_dead(self.me, self.now_ns)
    }

    /// Closes a link on this side. The peer is told after everything that was sent.
    fn forget(&mut self, link: u32) {
        self.withdraw_from_peer(link);
        let state = self.link(link);
        state.over = true;
        (state.failed, state.writing) = (None, None);
        let (vc, proc) = (state.vc, state.proc);
        self.lanes.remove(&vc);
        self.net.closes(self.me, proc);
    }

    /// Reports the failed links whose last frames have been handed out.
    fn tell_failures(&mut self, events: &mut Vec<LinkEvent>) {
        let dead = self.is_dead();
        for (link, state) in self.links.iter_mut().enumerate().filter(|(_, state)| !state.over) {
            let noticed = self.now_ns.checked_sub(self.net.config().notice_ns).is_some_and(|noticed_ns| {
                self.net.is_dead(state.proc, noticed_ns)
                    && self.net.died_ns(state.proc).is_some_and(|died_ns| died_ns <= noticed_ns)
            });
            if state.failed.is_none() && (dead || noticed) {
                state.failed = Some(if dead { "this proc has died".into() } else { "the proc has died".into() });
            }
            if state.failed.is_none() && state.proc != self.me && self.net.is_closed(state.proc, self.me) {
                state.failed = Some("the peer has closed the connection".into());
            }
            let mut lane = self.lanes.get_mut(&state.vc);
            if let (Some(lane), Some(_)) = (&mut lane, &state.failed) {
                lane.kept = Credit::NONE;
            }
            let empty = lane.is_none_or(|lane| lane.frames.is_empty());
            if (empty || dead)
                && let Some(reason) = state.failed.take()
            {
                state.over = true;
                events.push(LinkEvent::Failed { link: link as u32, reason });
            }
        }
    }
}

// SAFETY: what it gives out is its own, and stays as long as is said.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl<T: Transport> Transport for Sim<T> {
    type RowState = SimState<T::RowState>;

    hand_on! {
        card reaches moved traffic lending registering watchers shared_bytes flush
        disarm
    }

    fn name(&self) -> &str {
        "sim"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        let link = self.inner.connect(proc, card, now_ns)?;
        self.open(link, proc);
        Ok(link)
    }

    fn memory(&mut self) -> Option<&mut dyn Memory> {
        if self.capabilities.remote_read { Some(self) } else { None }
    }

    fn direct(&mut self) -> Option<&mut dyn Direct> {
        if self.net.config().moves { Some(self) } else { None }
    }

    fn credit_windows(&mut self) -> Option<&mut dyn CreditWindows> {
        if self.net.config().credit_windows { Some(self) } else { None }
    }

    fn fits(&mut self, link: u32, payload: u64) -> u64 {
        match self.capabilities.whole_frames {
            true => self.inner.fits(link, payload),
            // The rest of a frame must belong to the same frame, whatever room the link has by then.
            false => payload.min(self.capabilities.frame_sure as u64),
        }
    }

    fn attach(&mut self, link: u32, vc: Row) {
        self.link(link).vc = vc;
        self.inner.attach(link, vc);
    }

    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, state: &mut Self::RowState) -> Sent {
        if self.refuses(link) {
            return Sent::Blocked;
        }
        if !self.net.may_send(self.me, self.now_ns) {
            return Sent::Failed;
        }
        let sent = self.send_parts(link, header, pieces, state);
        if sent == Sent::Done {
            let proc = self.link(link).proc;
            self.net.leaves(self.me, proc, header);
        }
        sent
    }

    fn ready(&self) -> bool {
        let has_frames = || self.inner.ready() || self.lanes.values().any(|lane| !lane.is_empty());
        !self.is_dead() && (has_frames() || self.net.has_told(self.me, u64::MAX))
    }

    fn drain(&mut self, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.now_ns = self.now_ns.max(now_ns);
        if self.is_dead() {
            return 0;
        }
        self.take_in(now_ns);
        let moved = self.deliver_moved(now_ns, arrivals);
        moved + self.deliver(now_ns, &mut arrivals[moved..], None)
    }

    fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        let now_ns = take.now_ns();
        self.now_ns = self.now_ns.max(now_ns);
        if self.is_dead() {
            return (0, false);
        }
        self.take_in(now_ns);
        let (count, is_left) = self.hand_over(now_ns, most, take);
        (count, is_left || self.net.has_told(self.me, now_ns))
    }

    fn drain_link(&mut self, link: u32, now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.now_ns = self.now_ns.max(now_ns);
        if self.is_dead() {
            return 0;
        }
        self.take_in(now_ns);
        let vc = self.link(link).vc;
        self.deliver(now_ns, arrivals, Some(vc))
    }

    fn release(&mut self) {
        self.delivered.clear();
    }

    fn wants_control(&self) -> bool {
        self.inner.wants_control() || self.links.iter().any(|state| !state.over && state.failed.is_some())
    }

    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        self.now_ns = self.now_ns.max(now_ns);
        // Frames that were written are read before the end is reported.
        self.take_in(now_ns);
        let mut inner = std::mem::take(&mut self.inner_events);
        self.inner.control(now_ns, &mut inner);
        for event in inner.drain(..) {
            match event {
                LinkEvent::Failed { link, reason } => {
                    self.link(link).failed = Some(reason);
                    continue;
                }
                LinkEvent::Accepted { link, proc } => self.open(link, proc),
                LinkEvent::Replaced { link, by } => {
                    let proc = self.link(link).proc;
                    self.withdraw_from_peer(link);
                    self.link(link).over = true;
                    self.open(by, proc);
                }
                LinkEvent::Connected { .. } => {}
            }
            events.push(event);
        }
        self.inner_events = inner;
        self.tell_failures(events);
    }

    fn close_link(&mut self, link: u32) {
        self.forget(link);
        self.inner.close_link(link);
    }

    fn give_up(&mut self, link: u32, reason: &str) {
        self.forget(link);
        self.inner.give_up(link, reason);
    }

    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        let died_ns = self.net.died_ns(proc);
        let told = died_ns.is_some_and(|died_ns| died_ns.saturating_add(self.net.config().notice_ns) <= self.now_ns);
        if told { Some("the proc has died".into()) } else { self.inner.has_ended(proc, card) }
    }

    fn wait_fd(&self) -> Option<rustix::fd::BorrowedFd<'_>> {
        // No descriptor reports when a delayed frame is due.
        None
    }

    fn arm(&mut self) -> bool {
        !self.ready() && self.inner.arm()
    }

    fn close(&mut self) {
        self.net.withdraw_all(self.me);
        self.net.forget_expected(self.me, None);
        self.inner.close();
    }
}

impl<T> Drop for Sim<T> {
    fn drop(&mut self) {
        self.net.withdraw_all(self.me);
        self.net.forget_expected(self.me, None);
    }
}

/// A copy of a payload.
#[expect(unsafe_code, reason = "a payload that the wrapped transport lends until it is told to release")]
fn bytes(payload: Span) -> Box<[u8]> {
    // SAFETY: the wrapped transport keeps the payload until its `release`, which is called after this.
    unsafe { std::slice::from_raw_parts(payload.start(), payload.len()) }.into()
}

/// A payload as a span.
#[expect(unsafe_code, reason = "a span over storage that stays until release")]
fn span(payload: &mut [u8]) -> Span {
    // SAFETY: the storage is on the heap and is kept in `delivered` until `release`.
    unsafe { Span::new(payload.as_mut_ptr(), payload.len()) }
}

/// Takes the first entry that fits out of a list.
fn take_first<T>(list: &mut Vec<T>, fits: impl FnMut(&T) -> bool) -> Option<T> {
    let place = list.iter().position(fits)?;
    Some(list.remove(place))
}

#[cfg(test)]
mod tests;
