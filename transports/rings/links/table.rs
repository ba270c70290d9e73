//! The table of connections: opening, closing and querying rows, and writing frames.

use super::ends::{Ends, InboxView, Need};
use super::places::Grown;
use super::row::{LinkRow, Watched};
use crate::rings::fences;
use crate::rings::memory::RawRing;
use crate::rings::ring::{Reader, RingMemory, Writer};
use crate::rings::window::{Granter, Spender};
use crate::{CreditWindows, Sent, Traffic};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};
use tickwire_components::credit::Credit;
use tickwire_components::limits::{TURNS_BYTES, TURNS_FRAMES, WATCHED};
use tickwire_components::wire::Header;
use tickwire_components::{Pieces, Row};

/// All connections of one transport.
pub struct Links {
    pub(super) rows: Vec<Option<Box<LinkRow>>>,
    /// Rings that are watched: the first `watched_count` places.
    pub(super) watched: [Watched; WATCHED],
    pub(super) watched_count: usize,
    /// Links that were read since the last release.
    pub(super) touched: Vec<u32>,
    /// Links that are not watched and may have frames, in the order of their turns.
    pub(super) backlog: VecDeque<u32>,
    /// Which side gets the odd frame of a drain's room: 0 the watched rings, 1 the others.
    pub(super) odd: usize,
    /// What connections need, until the transport has been told.
    pub(super) needs: Vec<(u32, Need)>,
    /// Links with questions that wait for room in the staging buffer. They are in the backlog too, so that the next drain visits them.
    pub(super) waiting: Vec<u32>,
    /// Links with a ring that is about to continue in a larger one.
    pub(super) growing: Vec<u32>,
    /// The link that [`Links::tend`] has looked at last.
    pub(super) looked_at: u32,
    /// Closed links with payloads that are not released yet. They are kept for their memory.
    pub(super) closed: Vec<LinkRow>,
    /// Bytes that closed links have sent and received.
    closed_bytes: (u64, u64),
    /// Polling the watched rings has found nothing since the last frame: so the next frame arrives alone.
    pub(super) quiet: Cell<bool>,
    pub(super) inbox: InboxView,
}

impl Links {
    /// A table without connections; `inbox` is that of this process.
    pub fn new(inbox: InboxView) -> Self {
        Links {
            rows: Vec::new(),
            watched: [Watched::NONE; WATCHED],
            watched_count: 0,
            touched: Vec::with_capacity(64),
            backlog: VecDeque::with_capacity(64),
            odd: 0,
            needs: Vec::new(),
            waiting: Vec::new(),
            growing: Vec::new(),
            looked_at: 0,
            closed: Vec::new(),
            closed_bytes: (0, 0),
            quiet: Cell::new(true),
            inbox,
        }
    }

    /// The inbox of this process.
    #[inline]
    pub fn inbox(&self) -> &InboxView {
        &self.inbox
    }

    /// Reserves a number for a new connection, under which the peer announces frames.
    pub fn reserve(&mut self) -> u32 {
        self.rows.push(None);
        self.rows.len() as u32 - 1
    }

    /// Opens a reserved connection. With `vc` [`NIL`](tickwire_components::NIL), its frames stay in the ring until [`Links::attach`].
    pub fn open(&mut self, link: u32, vc: Row, ends: Ends) {
        let is_own = ends.outgoing.address(0) == ends.incoming.address(0);
        let mut writer =
            Writer::new(ends.outgoing).past_caches_from(ends.past_min).turning_within(TURNS_BYTES, TURNS_FRAMES);
        writer.shortage().may_become(ends.ring_max as u64);
        self.rows[link as usize] = Some(Box::new(LinkRow {
            writer,
            reader: Reader::new(ends.incoming),
            granter: Granter::default(),
            spender: Spender::default(),
            wants_credit: false,
            inbox: ends.inbox,
            slot: ends.slot,
            vc,
            one_sided: ends.one_sided,
            watched: false,
            touched: false,
            answered: 0,
            turns: if is_own { 0 } else { u64::MAX },
            direct: 0,
            doorbell: ends.doorbell,
            fault: None,
            outlet: None,
            grown: Grown::none(ends.ring_max),
            _keep: ends.keep,
        }));
        self.touched.reserve(self.rows.len());
        self.backlog.reserve(self.rows.len());
        // The peer may have sent frames already. Announcements of a link that is not open are ignored, so visit it once.
        self.backlog.push_back(link);
    }

    /// Sets the VC that a connection's frames belong to.
    pub fn attach(&mut self, link: u32, vc: Row) {
        if let Some(row) = self.row(link) {
            row.vc = vc;
        }
    }

    /// Closes a connection. Frames that were not read are lost. The payloads of those that were read stay until
    /// [`Links::release`].
    pub fn close(&mut self, link: u32) {
        if let Some(place) = self.place_of(link) {
            self.unlist(place);
        }
        self.backlog.retain(|&l| l != link);
        self.needs.retain(|&(l, _)| l != link);
        self.waiting.retain(|&l| l != link);
        self.growing.retain(|&l| l != link);
        if self.touched.is_empty() {
            self.closed.clear();
        }
        // A touched link stays in `touched`: the release then finds its row gone, and frees the memory.
        if let Some(mut row) = self.rows.get_mut(link as usize).and_then(Option::take) {
            // From here on the peer may not read messages that were offered or exposed to it: their memory belongs to the application
            // again.
            row.outlet = None;
            row.writer.memory().abandon();
            self.closed_bytes.0 += row.writer.written();
            self.closed_bytes.1 += row.reader.taken();
            if row.touched {
                self.closed.push(*row);
            }
        }
    }

    /// Makes the next drain visit a connection, whether or not its peer announces frames.
    pub fn look(&mut self, link: u32) {
        if self.is_open(link) && !self.backlog.contains(&link) {
            self.backlog.push_back(link);
        }
    }

    /// Whether the messages that a peer has offered for reading are still valid.
    pub fn stands(&self, link: u32) -> bool {
        let row = self.rows.get(link as usize).and_then(Option::as_deref);
        row.is_some_and(|row| !row.reader.memory().abandoned())
    }

    /// The ring of a connection that this side writes (`outgoing`) or reads, for the words beside its data.
    pub fn memory(&self, link: u32, outgoing: bool) -> Option<RawRing> {
        let row = self.rows.get(link as usize).and_then(Option::as_deref)?;
        Some(if outgoing { *row.writer.memory() } else { *row.reader.memory() })
    }

    /// A connection's read position (bytes of frames and skipped bytes, modulo 2^64), and whether there is more to read.
    pub fn heard(&self, link: u32) -> (u64, bool) {
        match self.rows.get(link as usize).and_then(Option::as_deref) {
            Some(row) => (row.reader.position(), row.fault.is_none() && row.reader.ready()),
            None => (0, false),
        }
    }

    /// The traffic of a connection: through its rings, and beside them, as noted by [`Links::read_directly`].
    pub fn traffic(&self, link: u32) -> Option<Traffic> {
        let row = self.rows.get(link as usize).and_then(Option::as_deref)?;
        let (sent, received) = (row.writer.written(), row.reader.taken());
        let rings = [row.writer.memory(), row.reader.memory()].map(RingMemory::capacity);
        Some(Traffic { sent, received, read: row.direct, full: row.writer.wants_room(), rings })
    }

    /// Notes bytes that were read out of the peer's memory, not out of a ring.
    pub fn read_directly(&mut self, link: u32, bytes: u64) {
        if let Some(row) = self.row(link) {
            row.direct += bytes;
        }
    }

    /// Whether everything written into a connection to oneself has been read.
    #[inline(always)]
    pub fn is_drained(&self, link: u32) -> bool {
        match self.rows.get(link as usize) {
            Some(Some(row)) => row.writer.position() == row.reader.position(),
            _ => false,
        }
    }

    /// Bytes that were written to and read from all rings so far.
    pub fn moved(&self) -> (u64, u64) {
        self.rows.iter().flatten().fold(self.closed_bytes, |(sent, received), row| {
            (sent + row.writer.written(), received + row.reader.taken())
        })
    }

    /// Whether a connection is open.
    pub fn is_open(&self, link: u32) -> bool {
        self.rows.get(link as usize).is_some_and(Option::is_some)
    }

    /// Writes a frame, and announces it if the peer does not watch the ring.
    #[inline(never)]
    pub fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Sent {
        self.send_inline(link, header, pieces)
    }

    /// [`Links::send`], inlined: for the one place that sends most frames.
    #[inline(always)]
    pub fn send_inline<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Sent {
        let Some(row) = self.rows.get_mut(link as usize).and_then(Option::as_deref_mut) else { return Sent::Failed };
        match row.writer.push(header, pieces) {
            Ok(true) => {
                // If something was read since the last frame was written, the peer has likely sent its turn and waits for the answer. The
                // sender of an offer waits as well.
                let heard = row.reader.position() & row.turns;
                if heard != row.answered || header.is_offer() {
                    row.answered = heard;
                    row.writer.hand_over(header.payload());
                }
                fences::light(row.one_sided);
                if !row.writer.memory().watched() {
                    row.announce();
                }
                Sent::Done
            }
            Ok(false) => {
                self.note_shortage(link);
                Sent::Blocked
            }
            Err(corrupt) => {
                if row.fault.replace(corrupt).is_none() {
                    self.needs.push((link, Need::Closing(corrupt)));
                }
                Sent::Failed
            }
        }
    }

    /// Wakes a peer that has armed its doorbell before it could see what this process wrote last.
    #[inline(always)]
    pub fn wake(&mut self, link: u32) {
        if let Some(row) = self.row(link) {
            fences::light(row.one_sided);
            if row.inbox.is_armed() {
                row.ring();
            }
        }
    }

    /// Takes the next need of a connection. Each is returned once.
    pub fn take_need(&mut self) -> Option<(u32, Need)> {
        self.needs.pop()
    }

    /// Whether [`Links::take_need`] would return one.
    #[inline]
    pub fn has_need(&self) -> bool {
        !self.needs.is_empty()
    }

    #[inline(always)]
    pub(super) fn row(&mut self, link: u32) -> Option<&mut LinkRow> {
        self.rows.get_mut(link as usize)?.as_deref_mut()
    }
}

impl CreditWindows for Links {
    fn grant(&mut self, link: u32, credit: Credit) {
        let Some(row) = self.row(link) else { return };
        let memory = *row.reader.memory();
        row.granter.grant(&memory, credit);
        fence(Ordering::SeqCst);
        if memory.starving() {
            memory.starve(false);
            row.announce();
        }
    }

    fn granted(&mut self, link: u32) -> Credit {
        let Some(row) = self.row(link) else { return Credit::NONE };
        let credit = row.spender.collect(row.writer.memory());
        row.wants_credit = credit.is_none();
        credit
    }
}
