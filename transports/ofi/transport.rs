//! The transport: links, and what the engine asks of it.

mod facets;
mod opening;

use super::card::Card;
use super::control;
use super::jam::Jam;
use super::own::Own;
use super::pace::Pace;
use super::port::Port;
use super::rma::Rma;
use crate::connections::{self, Connections, Medium, Spare};
use crate::watching::Token;
use crate::{
    Capabilities, Direct, LinkEvent, Matching, OneSided, Reach, Registering, Sent, Take, Traffic, Transport, Watchers,
};
use rustix::fd::{AsFd, BorrowedFd};
use std::cell::RefCell;
use tickwire_components::limits::FABRIC_COMPLETIONS_A_POLL;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, Pieces, RegistrationCounts, Row};

/// A connection that this process asks for.
pub(super) type Call = connections::Call<Ofi>;
/// An open connection.
pub(super) type Line = connections::Line<Ofi>;

/// One endpoint over libfabric. See [`crate::ofi`].
pub struct Ofi {
    name: String,
    /// Whether the provider matches messages.
    matches: bool,
    /// Who matches, and why, in words.
    words: String,
    signature: u32,
    capabilities: Capabilities,
    /// Closed before the sockets, since the frames that it still sends belong to open connections.
    pub(super) port: RefCell<Port>,
    pub(super) pace: Pace,
    /// How often a patient poll reads the queue at most.
    looks: u32,
    pub(super) own: Own,
    pub(super) connections: Connections<Ofi>,
    /// See [`Spare`].
    pub(super) spare: Spare,
    /// How long early frames hold all receive buffers, and peers that have gone all places for sends.
    pub(super) buffers_jam: Jam,
    pub(super) slots_jam: Jam,
    /// The process sleeps on the completion queue's file descriptor.
    asleep: bool,
    /// The completion queue's descriptor is always readable, so it is not watched.
    rings: bool,
}

impl Ofi {
    /// The provider's exact name.
    pub fn provider(&self) -> &str {
        self.name.trim_start_matches("ofi:").split('@').next().unwrap_or_default()
    }

    /// Whether its receive buffers take many frames each (`FI_MULTI_RECV`).
    pub fn is_multi(&self) -> bool {
        self.port.borrow().is_multi()
    }

    /// Counts of the registration cache: regions for peers and for operations, and how often they were reused.
    pub fn registered(&self) -> RegistrationCounts {
        self.port.borrow().registry.counts()
    }

    /// Who matches messages with receives, the provider or the engine, and why.
    pub fn who_matches(&self) -> &str {
        &self.words
    }

    /// Tells the pace how many links are open. Operations of ended links count too, since their completions must still be read.
    pub(super) fn count_open(&mut self) {
        let port = self.port.get_mut();
        self.pace.open(port.open_count() + u32::from(port.is_operating()));
    }

    /// Announces to peers the rings that they may write.
    fn offer_rings(&mut self) {
        for link in self.port.get_mut().take_unrung() {
            match self.connections.line_mut(link) {
                None => self.port.get_mut().put_off_ring(link),
                Some(line) => {
                    let told = self.port.get_mut().open_ring(link);
                    told.into_iter().flatten().for_each(|words| line.tell(&control::Message::OneSided(words)));
                }
            }
        }
    }

    fn report_faults(&mut self, events: &mut Vec<LinkEvent>) {
        while let Some((link, reason)) = self.port.get_mut().take_fault() {
            connections::fail_telling(self, link, reason, events);
        }
        if let Some(reason) = self.port.get_mut().take_broken() {
            for link in self.connections.links() {
                if self.connections.is_used(link) {
                    connections::fail_telling(self, link, reason.clone(), events);
                }
            }
        }
    }

    /// Polls the fabric.
    #[inline(never)]
    fn ask(&self) -> bool {
        ask(&self.pace, &mut self.port.borrow_mut())
    }

    /// [`Transport::ready`] and [`Transport::deliver`] in one call, for an endpoint that is not shared. A `patient` call may read the queue
    /// several times.
    #[inline(always)]
    pub(crate) fn look_and_deliver(&mut self, most: u32, patient: bool, take: &mut impl Take) -> (u32, bool) {
        if !self.pace.is_due() {
            return (0, false);
        }
        let port = self.port.get_mut();
        // Each read of this queue delays peers that use exposed memory, which wait for the other queue.
        let looks = if patient && self.pace.is_eager() && !port.is_exposing() { self.looks } else { 1 };
        match port.look_plainly(looks) {
            None => self.look_and_deliver_otherwise(most, take),
            Some(0) => {
                self.pace.asked_in_vain(|| port.is_sending() || port.is_exposing());
                (0, false)
            }
            Some(found) => {
                self.pace.hurry();
                let (count, more) = port.take_read(found, most, take);
                if !more {
                    return (count, port.has_frames() || port.has_fault());
                }
                let (others, rest) = self.look_and_deliver_otherwise(most - count, take);
                (count + others, rest)
            }
        }
    }

    #[inline(never)]
    fn look_and_deliver_otherwise(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        if ask(&self.pace, self.port.get_mut()) { self.deliver(most, take) } else { (0, false) }
    }
}

/// Polls the port. Returns whether anything has arrived.
#[inline(always)]
fn ask(pace: &Pace, port: &mut Port) -> bool {
    if port.look(FABRIC_COMPLETIONS_A_POLL) > 0 {
        pace.hurry();
    } else {
        pace.asked_in_vain(|| port.is_sending() || port.is_moving() || port.is_exposing());
    }
    port.has_frames() || port.has_fault() || port.has_news()
}

// SAFETY: what it gives out is its own, and stays as long as is said.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Transport for Ofi {
    type RowState = ();

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn card(&self) -> Vec<u8> {
        self.own.card.clone()
    }

    fn moved(&self) -> (u64, u64) {
        self.port.borrow().moved()
    }

    fn traffic(&self, link: u32) -> Option<Traffic> {
        self.port.borrow().traffic(link)
    }

    fn reaches(&self, proc: u32, card: &[u8]) -> Result<(), String> {
        connections::is_peer(self, proc)?;
        let card = Card::decode(card)?;
        if card.matching != self.signature {
            return Err("it matches messages in another way: set the same tag mode and eager_max for all procs".into());
        }
        match self.capabilities.reach {
            Reach::Host if card.host != self.own.host => Err(format!("proc {proc} runs on another host")),
            _ => Ok(()),
        }
    }

    fn connect(&mut self, proc: u32, card: &[u8], now_ns: u64) -> Result<u32, String> {
        self.reaches(proc, card)?;
        if let Some(reason) = self.port.get_mut().broken() {
            return Err(reason.to_owned());
        }
        connections::call(self, proc, Card::decode(card)?, now_ns)
    }

    fn attach(&mut self, link: u32, vc: Row) {
        self.port.get_mut().attach(link, vc);
    }

    fn direct(&mut self) -> Option<&mut dyn Direct> {
        Some(self)
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSided> {
        self.port.get_mut().has_rma().then_some(self)
    }

    fn registering(&mut self) -> Option<&mut dyn Registering> {
        self.port.get_mut().registers().then_some(self)
    }

    fn matching(&mut self) -> Option<&mut dyn Matching> {
        self.matches.then_some(self)
    }

    fn watchers(&mut self) -> Option<&mut dyn Watchers> {
        Some(self)
    }

    #[inline]
    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, _state: &mut ()) -> Sent {
        let port = self.port.get_mut();
        let sent = port.send(link, header, pieces);
        if sent != Sent::Done || port.has_packs() || port.has_rings() {
            // Polling makes room, and sends the packed frames.
            self.pace.hurry();
        }
        sent
    }

    #[inline(always)]
    fn ready(&self) -> bool {
        (self.pace.is_due() || self.port.borrow().has_news()) && self.ask()
    }

    #[inline]
    fn flush(&mut self) {
        self.port.get_mut().flush();
    }

    fn drain(&mut self, _now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        // Hand out first what an earlier poll has found, since another poll takes a system call or two.
        if !self.port.get_mut().has_arrivals() && (self.pace.is_due() || self.port.get_mut().has_news()) {
            self.ask();
        }
        let port = self.port.get_mut();
        let count = port.drain(arrivals, None);
        if port.has_frames() {
            self.pace.hurry();
        }
        count
    }

    fn drain_link(&mut self, link: u32, _now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        self.ask();
        self.port.get_mut().drain(arrivals, Some(link))
    }

    #[inline(always)]
    fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        let port = self.port.get_mut();
        if port.has_arrivals() { port.deliver(most, take) } else { (0, port.has_news()) }
    }

    #[inline]
    fn release(&mut self) {
        self.port.get_mut().release();
    }

    #[inline]
    fn wants_control(&self) -> bool {
        self.connections.wants_control() || self.port.borrow().has_fault()
    }

    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        self.connections.report_queued(events);
        if !self.connections.is_open() {
            return;
        }
        self.report_faults(events);
        connections::look(self, now_ns, events);
        connections::tend(self, now_ns, events);
        self.report_losses(now_ns, events);
        self.offer_rings();
        self.wake_targets();
        self.answer_withdrawals();
        self.part_from_peers();
    }

    fn close_link(&mut self, link: u32) {
        self.port.get_mut().flush();
        connections::close_link(self, link);
    }

    fn give_up(&mut self, link: u32, reason: &str) {
        connections::give_up(self, link, reason);
    }

    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        self.reaches(proc, card).ok()?;
        self.find_process(&Card::decode(card).ok()?).err()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        (self.connections.is_open() && self.capabilities.can_sleep).then(|| self.own.watched.as_fd())
    }

    fn arm(&mut self) -> bool {
        let port = self.port.get_mut();
        let quiet = !self.connections.has_news() && !port.has_fault() && !port.has_frames() && !port.has_news();
        // Operations in flight progress only while this process polls.
        if !quiet || port.is_sending() || !port.queue().may_sleep() {
            return false;
        }
        if port.queue().wait_fd().is_none() || self.asleep {
            return true;
        }
        if port.has_rings() && port.poll(FABRIC_COMPLETIONS_A_POLL) > 0 {
            return false;
        }
        self.rings = false;
        if port.queue().is_ringing() {
            if port.poll(FABRIC_COMPLETIONS_A_POLL) > 0 {
                return false;
            }
            self.rings = !port.hush();
            if port.has_arrivals() || port.has_fault() {
                return false;
            }
        }
        // The queue is watched only while the process sleeps: otherwise each packet would wake one descriptor set after the other, which
        // takes half a microsecond.
        if !self.rings
            && let Some(queue) = port.queue().wait_fd()
        {
            self.asleep = self.own.watched.add(&queue, Token::Messages).is_ok();
            return self.asleep;
        }
        true
    }

    fn must_poll(&self) -> bool {
        // No file descriptor reports what arrives directly in the application's memory, or in a ring.
        let port = self.port.borrow();
        self.rings || port.is_moving() || port.has_rings()
    }

    fn disarm(&mut self) {
        if std::mem::take(&mut self.asleep)
            && let Some(queue) = self.port.get_mut().queue().wait_fd()
        {
            self.own.watched.forget(&queue);
        }
        self.pace.hurry();
    }

    fn close(&mut self) {
        self.finish_operations();
        connections::close(self);
        self.port.get_mut().rma().into_iter().for_each(Rma::close);
    }
}
