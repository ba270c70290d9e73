//! The transport: links, and what the engine asks of it.

use super::answering::Visitor;
use super::calling::Call;
use super::card::{ADDRESS_BYTES_MAX, Card};
use super::control;
use super::ending::{Ending, Line};
use super::own::{Own, Token, random};
use super::pace::Pace;
use super::port::Port;
use super::{Info, Library, OfiConfig, OfiError, message_hints};
use crate::handshake::{Greeting, JOB_BYTES_MAX};
use crate::shm::identity;
use crate::{Capabilities, LinkEvent, Reach, Sent, Traffic, Transport};
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use tickwire_components::wire::Header;
use tickwire_components::{Arrival, Pieces, Row, Span};

/// Connections at most: numbers in 16 bits would do for any machine's descriptors.
pub(super) const LINKS_MAX: usize = 1 << 16;
/// Descriptors that one look at the sockets handles at most.
const EVENTS: usize = 64;
/// Connections that wait for an accept at most; the kernel lowers it to its own limit.
const BACKLOG: i32 = 4096;
/// Completions that one look reads at most.
const LOOK_MAX: usize = 256;

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

/// One endpoint over libfabric, in message mode. See [`crate::ofi`].
pub struct Ofi {
    name: String,
    capabilities: Capabilities,
    /// Closed before the sockets are: what it still sends belongs to open connections.
    pub(super) port: RefCell<Port>,
    pub(super) pace: Pace,
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
}

impl Ofi {
    /// Opens an endpoint for each candidate that the configuration chooses, in libfabric's order: names are `ofi:` and the
    /// provider's exact name, and `@2` and so on behind it for further devices of one provider.
    ///
    /// # Errors
    /// What is missing or wrong, and what to do.
    pub fn open(config: &OfiConfig) -> Result<Vec<Ofi>, OfiError> {
        let library = Library::get()?;
        let candidates = config.choice.candidates(&library, &message_hints())?;
        let mut opened: Vec<Ofi> = Vec::new();
        for info in config.choice.take(candidates)? {
            let name = format!("ofi:{}", info.provider());
            let same = |other: &&Ofi| other.name.split('@').next() == Some(&name);
            let before = opened.iter().filter(same).count();
            let name = if before == 0 { name } else { format!("{name}@{}", before + 1) };
            let priority = config.priority.saturating_sub(opened.len() as u8);
            opened.push(Ofi::open_one(config, info, name, priority)?);
        }
        Ok(opened)
    }

    fn open_one(config: &OfiConfig, info: Info, name: String, priority: u8) -> Result<Ofi, OfiError> {
        let provider = info.provider().to_owned();
        let control = |what: &str, error: Errno| OfiError::Control {
            provider: provider.clone(),
            reason: format!("{what}: {error}"),
        };
        let near = super::choice::is_named(&provider, "shm");
        let ip = match info.ip() {
            Some(ip) => ip,
            None if near => Ipv4Addr::LOCALHOST.into(),
            None => own_ip().ok_or_else(|| control("no network interface is up", Errno::ADDRNOTAVAIL))?,
        };
        let identity =
            |error: crate::ShmError| OfiError::Control { provider: provider.clone(), reason: error.to_string() };
        let boot_id = identity::boot_id().map_err(identity)?;
        let host = identity::host_card(boot_id, Path::new("/dev/shm")).map_err(identity)?;
        let port = Port::open(info, config.frame_max, config.progress_event_count, config.multi_receive)?;
        let address = port.name()?;
        if address.len() > ADDRESS_BYTES_MAX {
            return Err(control("its address is too long for a card", Errno::NAMETOOLONG));
        }
        let (listener, at) = control::listen(ip, BACKLOG).map_err(|e| control(&format!("cannot listen at {ip}"), e))?;
        let secret = random().map_err(|e| control("no random numbers", e))?;
        let pid = std::process::id();
        let own = Own {
            card: Card { control: at, secret, host, address: address.clone() }.encode(),
            host,
            secret,
            address,
            greeting: Greeting {
                capabilities: 0,
                slot: 0,
                proc: config.me,
                procs: config.procs,
                ring_bytes: 0,
                frame_max: config.frame_max as u64,
                pid,
                start_time: identity::start_time(pid).unwrap_or(0),
                boot_id,
                job: config.job.chars().take(JOB_BYTES_MAX).collect(),
                heap_base: 0,
                heap_bytes: 0,
            },
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| control("no descriptor", e))?,
            config: config.clone(),
        };
        own.watch(&listener, Token::Listener, false).map_err(|e| control("no descriptor", e))?;
        if let Some(queue) = port.queue().wait_fd() {
            own.watch(&queue, Token::Queue, false).map_err(|e| control("no descriptor", e))?;
        }
        let capabilities = Capabilities {
            whole_frames: true,
            inject_max: config.frame_max,
            can_sleep: port.queue().wait_fd().is_some(),
            // It decides by itself how often the fabric is asked.
            cheap_poll: true,
            ..Capabilities::least(if near { Reach::Host } else { Reach::Network }, priority, config.frame_max)
        };
        Ok(Ofi {
            name,
            capabilities,
            port: RefCell::new(port),
            pace: Pace::default(),
            own,
            listener: Some(listener),
            table: Vec::new(),
            procs: BTreeMap::new(),
            free: Vec::new(),
            calls: Vec::new(),
            endings: Vec::new(),
            visitors: Vec::new(),
            crowded: false,
            queued: Vec::new(),
        })
    }

    /// The provider's exact name.
    pub fn provider(&self) -> &str {
        self.name.trim_start_matches("ofi:").split('@').next().unwrap_or_default()
    }

    /// Whether its receive buffers take many frames each (`FI_MULTI_RECV`).
    pub fn is_multi(&self) -> bool {
        self.port.borrow().is_multi()
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
        if let Some(stage @ Stage::Gone) = self.stage(link) {
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
        self.take_down(link);
        events.push(LinkEvent::Failed { link, reason });
    }

    /// Tells the pace how many connections there are that something can come over.
    pub(super) fn count_open(&self) {
        let open = self.table.iter().filter(|peer| matches!(peer.stage, Stage::Open(_) | Stage::Ending(_))).count();
        self.pace.open(open as u32);
    }

    /// One bounded look at all descriptors.
    fn look(&mut self, now_ns: u64, events: &mut Vec<LinkEvent>) {
        let mut buffer = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((found, _)) = epoll::wait(&self.own.epoll, &mut buffer[..], Some(&now)) else { return };
        for event in found {
            let data = event.data;
            match Token::unpack(data.u64()) {
                // Something has come, or can be sent: the next look asks.
                Token::Queue => self.pace.hurry(),
                Token::Listener => self.accept(now_ns, events),
                Token::Visitor(place) => self.hear_visitor(place, events),
                Token::Call(link) => self.hear_call(link, now_ns, events),
                Token::Line(link) => self.hear_line(link, now_ns),
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
        let mut port = self.port.borrow_mut();
        let found = port.poll(LOOK_MAX) > 0;
        self.pace.asked(found, port.is_sending());
        port.has_frames() || port.has_fault()
    }
}

impl Transport for Ofi {
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
        let sent = self.port.get_mut().send(link, header, pieces);
        if sent != Sent::Done {
            // Room comes with progress.
            self.pace.hurry();
        }
        sent
    }

    #[inline(always)]
    fn ready(&self) -> bool {
        self.pace.is_due() && self.ask()
    }

    fn drain(&mut self, _now_ns: u64, arrivals: &mut [Arrival]) -> usize {
        if self.pace.is_due() {
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

    #[inline]
    fn deliver(&mut self, most: u32, take: impl FnMut(&Header, Span, Row) -> bool) -> (u32, bool) {
        let port = self.port.get_mut();
        if port.has_frames() { port.deliver(most, take) } else { (0, false) }
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
        self.hurry_calls(now_ns, events);
        self.dismiss_visitors(now_ns);
        self.report_endings(now_ns, events);
        self.report_gaps(now_ns, events);
    }

    fn close_link(&mut self, link: u32) {
        let closed = self.closed(link);
        if let Some(Stage::Open(line)) = self.stage(link) {
            line.tell(&closed);
        }
        self.take_down(link);
        self.free_number(link);
        self.queued.retain(|event| *event != LinkEvent::Connected { link });
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().filter(|_| self.capabilities.can_sleep).map(|_| self.own.epoll.as_fd())
    }

    fn arm(&mut self) -> bool {
        let port = self.port.get_mut();
        let quiet = self.queued.is_empty() && self.endings.is_empty() && !port.has_fault() && !port.has_frames();
        // What is under way progresses only while somebody asks.
        quiet && !port.is_sending() && port.queue().may_sleep()
    }

    fn disarm(&mut self) {
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
            self.own.forget(&listener);
        }
    }
}

impl Drop for Ofi {
    fn drop(&mut self) {
        self.close();
    }
}

/// An address of this host that others may reach, for fabrics whose own addresses are no Internet addresses.
fn own_ip() -> Option<IpAddr> {
    let mut first = std::ptr::null_mut();
    let mut found = None;
    // SAFETY: the list is read before it is freed; addresses are as long as their families say.
    #[expect(unsafe_code, reason = "FFI")]
    unsafe {
        if libc::getifaddrs(&raw mut first) != 0 {
            return None;
        }
        let mut at = first;
        while let Some(entry) = at.as_ref() {
            at = entry.ifa_next;
            let up = entry.ifa_flags & libc::IFF_UP as u32 != 0 && entry.ifa_flags & libc::IFF_LOOPBACK as u32 == 0;
            let Some(address) = entry.ifa_addr.as_ref().filter(|_| up) else { continue };
            if i32::from(address.sa_family) == libc::AF_INET {
                let address = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                found = Some(IpAddr::from(address.sin_addr.s_addr.to_ne_bytes()));
                break;
            }
        }
        libc::freeifaddrs(first);
    }
    found
}
