//! The transport: links, and what the engine asks of it.

mod opening;

use super::OfiConfig;
use super::answering::Visitor;
use super::calling::Call;
use super::card::Card;
use super::control;
use super::ending::{Ending, Line};
use super::frame::LINKS_MAX;
use super::mode;
use super::own::Own;
use super::pace::Pace;
use super::port::Port;
use crate::processes::Process;
use crate::watching::Token;
use crate::{Capabilities, LinkEvent, Peeked, Reach, Sent, TagLimits, Take, Traffic, Transport, Wanted};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::cell::RefCell;
use std::collections::BTreeMap;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, Pieces, Row, Span};

/// Completions that one look reads at most, or one call's more.
pub(super) const LOOK_MAX: usize = 256;

/// What a row of the table stands for.
pub(super) enum Stage {
    /// Nothing.
    Free,
    /// A connection that this side asks for.
    Calling(Box<Call>),
    /// An open connection.
    Open(Line),
    /// A connection whose peer has gone, and whose last frames are still to be read.
    Ending(Ending),
    /// Nothing any more; the number is used again once the engine has closed the link.
    Gone,
}

/// A row: one link.
pub(super) struct Peer {
    pub(super) proc: u32,
    pub(super) stage: Stage,
}

/// One endpoint over libfabric. See [`crate::ofi`].
pub struct Ofi {
    name: String,
    /// Who matches, and why, in words.
    matching: String,
    signature: u32,
    capabilities: Capabilities,
    /// Closed before the sockets are: what it still sends belongs to open connections.
    pub(super) port: RefCell<Port>,
    pub(super) pace: Pace,
    /// How often a patient look asks at most.
    looks: u32,
    pub(super) own: Own,
    pub(super) listener: Option<OwnedFd>,
    /// By link number.
    pub(super) table: Vec<Peer>,
    /// Link of each proc that has one.
    pub(super) procs: BTreeMap<u32, u32>,
    pub(super) free: Vec<u32>,
    pub(super) calls: Vec<u32>,
    pub(super) endings: Vec<u32>,
    /// Connections of peers that have not said who they are.
    pub(super) visitors: Vec<Option<Visitor>>,
    /// Whether the listener is left alone until a visitor has gone.
    pub(super) crowded: bool,
    pub(super) queued: Vec<LinkEvent>,
    /// The queue of completions is watched.
    asleep: bool,
    /// Its descriptor rings all the time, and is not watched.
    rings: bool,
    /// When processes without descriptors were asked after, ns.
    pub(super) asked_ns: u64,
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

    /// Who matches messages with receives, the provider or the engine, and why.
    pub fn matching(&self) -> &str {
        &self.matching
    }

    pub(super) fn stage(&mut self, link: u32) -> Option<&mut Stage> {
        self.table.get_mut(link as usize).map(|peer| &mut peer.stage)
    }

    /// A link number for a proc, whose frames will have to show `token`.
    pub(super) fn number(&mut self, proc: u32, token: u64) -> Option<u32> {
        if self.free.is_empty() {
            // The engine may have left failed links unclosed.
            for link in 0..self.table.len() as u32 {
                self.free_number(link);
            }
        }
        let link = match self.free.pop() {
            Some(link) => link,
            None if self.table.len() < LINKS_MAX => {
                self.table.push(Peer { proc, stage: Stage::Free });
                self.table.len() as u32 - 1
            }
            None => return None,
        };
        self.table[link as usize] = Peer { proc, stage: Stage::Free };
        self.port.get_mut().reserve(link, token);
        Some(link)
    }

    pub(super) fn has_number(&self) -> bool {
        self.table.len() < LINKS_MAX
            || !self.free.is_empty()
            || self.table.iter().any(|peer| matches!(peer.stage, Stage::Gone))
    }

    /// Lets the number of a link that is gone be used again.
    pub(super) fn free_number(&mut self, link: u32) {
        if self.port.get_mut().reuses_links()
            && let Some(stage @ Stage::Gone) = self.stage(link)
        {
            *stage = Stage::Free;
            self.free.push(link);
        }
    }

    /// Takes a link down, whatever it stands for.
    pub(super) fn take_down(&mut self, link: u32) {
        let Some(peer) = self.table.get_mut(link as usize) else { return };
        match std::mem::replace(&mut peer.stage, Stage::Gone) {
            Stage::Free => peer.stage = Stage::Free,
            Stage::Gone => {}
            Stage::Calling(call) => {
                call.hang_up(&self.own);
                self.calls.retain(|&l| l != link);
            }
            Stage::Open(line) => line.cut(&self.own),
            Stage::Ending(_) => self.endings.retain(|&l| l != link),
        }
        let proc = self.table[link as usize].proc;
        if self.procs.get(&proc) == Some(&link) {
            self.procs.remove(&proc);
        }
        self.port.get_mut().close_lane(link);
        self.count_open();
    }

    pub(super) fn fail(&mut self, link: u32, reason: String, events: &mut Vec<LinkEvent>) {
        if let Some(Stage::Calling(call)) = self.stage(link) {
            call.refuse(&reason);
        }
        self.take_down(link);
        events.push(LinkEvent::Failed { link, reason });
    }

    /// Closes a link with a last word.
    fn close_with(&mut self, link: u32, word: &control::Message) {
        match (self.stage(link), word) {
            (Some(Stage::Open(line)), word) => line.tell(word),
            (Some(Stage::Calling(call)), control::Message::Refused(reason)) => call.refuse(reason),
            _ => {}
        }
        self.take_down(link);
        self.free_number(link);
        self.queued.retain(|event| *event != LinkEvent::Connected { link });
    }

    /// Tells the pace how many connections there are that something can come over.
    pub(super) fn count_open(&self) {
        let open = self.table.iter().filter(|peer| matches!(peer.stage, Stage::Open(_) | Stage::Ending(_))).count();
        self.pace.open(open as u32);
    }

    /// One bounded look at all descriptors.
    fn look(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        for token in self.own.watched.look() {
            match token {
                // Something has come, or can be sent: the next look asks.
                Token::Messages => self.pace.hurry(),
                Token::Listener => self.accept(now_ns, events),
                Token::Visitor(place) => self.hear_visitor(place, events),
                Token::Call(link) => self.hear_call(link, now_ns, events),
                Token::Line(link) => self.hear_line(link, now_ns),
                Token::Process(link) => self.process_ended(link, now_ns, events),
            }
        }
    }

    fn report_faults(&mut self, events: &mut Vec<LinkEvent>) {
        while let Some((link, reason)) = self.port.get_mut().take_fault() {
            if let Some(Stage::Open(line)) = self.stage(link) {
                line.tell(&control::Message::Refused(reason.clone()));
            }
            self.fail(link, reason, events);
        }
        let broken = self.port.get_mut().broken().map(str::to_owned);
        if let Some(reason) = broken {
            for link in 0..self.table.len() as u32 {
                if matches!(self.stage(link), Some(Stage::Open(_) | Stage::Ending(_) | Stage::Calling(_))) {
                    self.fail(link, reason.clone(), events);
                }
            }
        }
    }

    /// Asks the fabric.
    #[inline(never)]
    fn ask(&self) -> bool {
        ask(&self.pace, &mut self.port.borrow_mut())
    }

    /// [`Transport::ready`] and [`Transport::deliver`] in one, where nobody shares it. A `patient` look may ask several times.
    #[inline(always)]
    pub(crate) fn look_and_deliver(&mut self, most: u32, patient: bool, take: &mut impl Take) -> (u32, bool) {
        if !self.pace.is_due() {
            return (0, false);
        }
        let port = self.port.get_mut();
        let looks = if patient && self.pace.is_eager() { self.looks } else { 1 };
        match port.look_plainly(looks) {
            None => self.look_and_deliver_otherwise(most, take),
            Some(0) => {
                self.pace.asked_in_vain(|| port.is_sending());
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

/// Looks for what has come; whether there is something.
#[inline(always)]
fn ask(pace: &Pace, port: &mut Port) -> bool {
    if port.look(LOOK_MAX) > 0 {
        pace.hurry();
    } else {
        pace.asked_in_vain(|| port.is_sending() || port.is_moving());
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
        let OfiConfig { me, procs, .. } = self.own.config;
        if proc == me {
            return Err("a proc reaches itself by loopback".into());
        }
        if proc >= procs {
            return Err(format!("there are {procs} procs"));
        }
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
        self.call(proc, Card::decode(card)?, now_ns)
    }

    fn attach(&mut self, link: u32, vc: Row) {
        self.port.get_mut().attach(link, vc);
    }

    #[inline]
    fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P, _state: &mut ()) -> Sent {
        let port = self.port.get_mut();
        let sent = port.send(link, header, pieces);
        if sent != Sent::Done || port.has_packs() {
            // Room comes with progress, and what waits goes with it.
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
        // What a look has found is taken first: to ask again takes a system call or two.
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

    unsafe fn expect(&mut self, link: u32, row: Row, into: Span) -> Option<u32> {
        if into.len() < self.own.config.direct_min {
            return None;
        }
        let turn = self.port.get_mut().expect(link, row, into);
        if turn.is_some() {
            self.pace.hurry();
            return turn;
        }
        // The first one goes in pieces, while both sides make themselves ready for the next ones.
        if matches!(self.stage(link), Some(Stage::Open(_)))
            && let Some(address) = self.port.get_mut().open_direct(link)
            && let Some(Stage::Open(line)) = self.stage(link)
        {
            line.tell(&control::Message::Direct(address));
        }
        None
    }

    unsafe fn send_direct(&mut self, link: u32, row: Row, number: u32, from: Span) -> bool {
        self.pace.hurry();
        self.port.get_mut().send_direct(link, row, number, from)
    }

    fn end_direct(&mut self) {
        for link in 0..self.table.len() as u32 {
            self.port.get_mut().end_direct(link);
        }
    }

    fn lodge(&mut self, row: Row, wanted: &Wanted) -> Sent {
        let sent = self.port.get_mut().lodge(row, wanted);
        self.pace.hurry();
        sent
    }

    fn recall(&mut self, row: Row, unless_message: bool) {
        self.port.get_mut().recall(row, unless_message);
    }

    fn peek(&mut self, wanted: &Wanted, claim: bool) -> Sent {
        self.port.get_mut().peek(wanted, claim)
    }

    fn peeked(&mut self) -> Peeked {
        self.port.get_mut().peeked()
    }

    fn leave_matching(&mut self) {
        self.port.get_mut().leave_matching();
        (self.capabilities.matches_tags, self.capabilities.tags) = (false, TagLimits::NONE);
        (self.capabilities.directed_receive, self.capabilities.completion_data) = (false, 0);
        self.matching = "message mode: another endpoint of the engine matches".into();
        self.signature = mode::signature(None);
        let at = self.own.card.len() - size_of::<u32>();
        self.own.card[at..].copy_from_slice(&self.signature.to_be_bytes());
    }

    #[inline]
    fn release(&mut self) {
        self.port.get_mut().release();
    }

    #[inline]
    fn wants_control(&self) -> bool {
        !self.calls.is_empty() || !self.endings.is_empty() || !self.queued.is_empty() || self.port.borrow().has_fault()
    }

    fn control(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        events.append(&mut self.queued);
        if self.listener.is_none() {
            return;
        }
        self.report_faults(events);
        self.look(now_ns, events);
        self.ask_after_processes(now_ns, events);
        self.hurry_calls(now_ns, events);
        self.dismiss_visitors(now_ns);
        self.report_endings(now_ns, events);
        self.report_losses(now_ns, events);
    }

    fn close_link(&mut self, link: u32) {
        self.port.get_mut().flush();
        let closed = self.closed(link);
        self.close_with(link, &closed);
    }

    fn give_up(&mut self, link: u32, reason: &str) {
        self.close_with(link, &control::Message::Refused(reason.to_owned()));
    }

    fn has_ended(&self, proc: u32, card: &[u8]) -> Option<String> {
        self.reaches(proc, card).ok()?;
        let Card { host, process: (pid, start_time), .. } = Card::decode(card).ok()?;
        (host == self.own.host).then(|| Process::find(pid, start_time).err()).flatten()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().filter(|_| self.capabilities.can_sleep).map(|_| self.own.watched.as_fd())
    }

    fn arm(&mut self) -> bool {
        let port = self.port.get_mut();
        let quiet = self.queued.is_empty()
            && self.endings.is_empty()
            && !port.has_fault()
            && !port.has_frames()
            && !port.has_news();
        // What is under way progresses only while somebody asks.
        if !quiet || port.is_sending() || !port.queue().may_sleep() {
            return false;
        }
        if port.queue().wait_fd().is_none() || self.asleep {
            return true;
        }
        self.rings = false;
        if port.queue().is_ringing() {
            if port.poll(LOOK_MAX) > 0 {
                return false;
            }
            self.rings = !port.hush();
            if port.has_arrivals() || port.has_fault() {
                return false;
            }
        }
        // Only now: watched, each packet would wake one set after the other, which takes half a microsecond.
        if !self.rings
            && let Some(queue) = port.queue().wait_fd()
        {
            self.asleep = self.own.watched.add(&queue, Token::Messages).is_ok();
            return self.asleep;
        }
        true
    }

    fn must_poll(&self) -> bool {
        // What comes straight into the application's memory rings no descriptor.
        self.rings || self.port.borrow().is_moving()
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
        if self.listener.is_none() {
            return;
        }
        self.close_all();
        for link in 0..self.table.len() as u32 {
            self.take_down(link);
        }
        for visitor in self.visitors.drain(..).flatten() {
            self.own.hang_up(&visitor.socket);
        }
        self.queued.clear();
        if let Some(listener) = self.listener.take() {
            self.own.watched.forget(&listener);
        }
    }
}

impl Drop for Ofi {
    fn drop(&mut self) {
        self.close();
    }
}
