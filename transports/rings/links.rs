//! The table of a transport's connections over rings: one row a peer, a ring each way.

mod growth;

pub use growth::Passed;

use super::fences;
use super::inbox::{Inbox, SLOTS};
use super::memory::RawRing;
use super::outlet::Outlet;
use super::ring::{BESIDE_HEADER, Corrupt, Reader, RingMemory, Writer};
use super::window::{Granter, Spender};
use crate::{Other, Sent, Take, Traffic};
use growth::Grown;
use rustix::fd::OwnedFd;
use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use tickwire_components::credit::Credit;
use tickwire_components::limits::{READS_A_CALL, SPLICE_MIN, TURN_FRAMES, WATCHED};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Arrival, ArrivalState, NIL, Pieces, Row, Span};

/// A peer's inbox, or the own one: a view of memory that `keep` keeps alive.
#[derive(Clone)]
pub struct InboxView {
    inbox: NonNull<Inbox>,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: an inbox consists of atomics, and the view keeps its memory alive.
#[expect(unsafe_code, reason = "a view of shared memory")]
unsafe impl Send for InboxView {}

impl InboxView {
    /// A view of the inbox at `base`.
    ///
    /// # Safety
    /// `base` is aligned to 128 bytes and points to an [`Inbox`] (zero bytes are an empty one) that lives as long as `keep`.
    #[expect(unsafe_code, reason = "a view of shared memory")]
    pub unsafe fn new(base: NonNull<u8>, keep: Arc<dyn Any + Send + Sync>) -> Self {
        InboxView { inbox: base.cast(), _keep: keep }
    }
}

impl std::ops::Deref for InboxView {
    type Target = Inbox;
    #[expect(unsafe_code, reason = "a view of shared memory")]
    #[inline(always)]
    fn deref(&self) -> &Inbox {
        // SAFETY: by the contract of `new`; all fields are atomics.
        unsafe { self.inbox.as_ref() }
    }
}

/// What a connection consists of once both sides have agreed.
pub struct Ends {
    /// The ring to the peer.
    pub outgoing: RawRing,
    /// The ring from the peer.
    pub incoming: RawRing,
    /// The peer's inbox.
    pub inbox: InboxView,
    /// Number of the outgoing ring in the peer's inbox.
    pub slot: u32,
    /// Rings when the peer sleeps.
    pub doorbell: Arc<OwnedFd>,
    /// Whether the peer and this process have one-sided fences.
    pub one_sided: bool,
    /// Payloads from this length on are written past the caches, bytes: for a peer on another processor.
    pub past_min: u64,
    /// Bytes that a ring may grow to at most, a power of two; 0 if it stays as it is.
    pub ring_max: usize,
    /// Keeps the rings' memory alive.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// What a connection needs its transport for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// Its ring turned out corrupt: it is to be closed.
    Closing(Corrupt),
    /// Its ring has been too small for long: it should [grow](Links::wish).
    Room,
}

/// A row: one connection.
struct LinkRow {
    writer: Writer<RawRing>,
    reader: Reader<RawRing>,
    granter: Granter,
    spender: Spender,
    /// The peer has granted nothing when it was asked last.
    wants_credit: bool,
    inbox: InboxView,
    slot: u32,
    vc: Row,
    one_sided: bool,
    watched: bool,
    touched: bool,
    /// How much had been read when the last frame was written.
    answered: u64,
    /// All bits of what has been read count; none on a connection to oneself, which waits for nobody.
    turns: u64,
    /// Bytes that were read out of the peer's memory.
    direct: u64,
    doorbell: Arc<OwnedFd>,
    fault: Option<Corrupt>,
    /// What the peer is given besides frames, where that is so.
    outlet: Option<Box<Outlet>>,
    grown: Grown,
    _keep: Arc<dyn Any + Send + Sync>,
}

/// Looks without a frame after which a watched ring gives its place to a busier one.
const IDLE_LOOKS: u32 = 1024;

/// All connections of one transport.
pub struct Links {
    rows: Vec<Option<Box<LinkRow>>>,
    watched: [u32; WATCHED],
    /// The word that the next frame of each watched ring starts with.
    words: [Word; WATCHED],
    /// Drains since the last frame of each watched ring.
    idle: [u32; WATCHED],
    watched_count: usize,
    /// Links read since the last release.
    touched: Vec<u32>,
    /// Links that are not watched and may have frames, in the order of their turns.
    backlog: VecDeque<u32>,
    /// Who has the odd frame of a drain's room: 0 the watched rings, 1 the others.
    odd: usize,
    /// What nobody was told about yet.
    needs: Vec<(u32, Need)>,
    /// Links with pieces that wait for room in a pipe. They are in the backlog too, so that a drain comes by.
    waiting: Vec<u32>,
    /// Links with a ring that is about to go on in a larger one.
    growing: Vec<u32>,
    /// The link that was looked at last by [`Links::tend`].
    looked_at: u32,
    /// Closed links with payloads that nobody has released yet: kept for their memory.
    closed: Vec<LinkRow>,
    /// Bytes that closed links have sent and received.
    closed_bytes: (u64, u64),
    /// A look at the watched rings has found nothing since the last frame: the next one comes alone.
    quiet: Cell<bool>,
    inbox: InboxView,
}

/// The address of a word that a writer will make something other than 0. Valid while its ring is watched.
#[derive(Clone, Copy)]
struct Word(NonNull<AtomicU64>);

// SAFETY: the address of an atomic in memory that the ring's row keeps alive.
#[expect(unsafe_code, reason = "an address in shared memory")]
unsafe impl Send for Word {}

/// Where words of rings that are not watched point to.
static NOTHING: AtomicU64 = AtomicU64::new(0);

impl Word {
    const NONE: Word = Word(NonNull::from_ref(&NOTHING));

    #[expect(unsafe_code, reason = "an address in shared memory")]
    #[inline(always)]
    fn load(self) -> u64 {
        // SAFETY: only words of watched rings are asked, and a ring stops being watched before its row goes.
        unsafe { self.0.as_ref() }.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn ready(self) -> bool {
        self.load() != 0
    }
}

impl Links {
    /// No connections; `inbox` is the own one.
    pub fn new(inbox: InboxView) -> Self {
        Links {
            rows: Vec::new(),
            watched: [NIL; WATCHED],
            words: [Word::NONE; WATCHED],
            idle: [0; WATCHED],
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

    /// The own inbox.
    #[inline]
    pub fn inbox(&self) -> &InboxView {
        &self.inbox
    }

    /// A number for a new connection; peers announce their frames under it.
    pub fn reserve(&mut self) -> u32 {
        self.rows.push(None);
        self.rows.len() as u32 - 1
    }

    /// Opens a reserved connection.
    pub fn open(&mut self, link: u32, vc: Row, ends: Ends) {
        let is_own = ends.outgoing.address(0) == ends.incoming.address(0);
        let mut writer = Writer::new(ends.outgoing).past_caches_from(ends.past_min);
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
        // What the peer has sent before this point was announced; look once, whatever the inbox says.
        self.backlog.push_back(link);
    }

    /// Says which VC a connection's frames belong to.
    pub fn attach(&mut self, link: u32, vc: Row) {
        if let Some(row) = self.row(link) {
            row.vc = vc;
        }
    }

    /// Closes a connection. Frames that were not read are lost; the payloads of those that were stay until
    /// [`Links::release`].
    pub fn close(&mut self, link: u32) {
        if let Some(place) = self.watched[..self.watched_count].iter().position(|&l| l == link) {
            self.unlist(place);
        }
        self.backlog.retain(|&l| l != link);
        self.needs.retain(|&(l, _)| l != link);
        self.waiting.retain(|&l| l != link);
        self.growing.retain(|&l| l != link);
        if self.touched.is_empty() {
            self.closed.clear();
        }
        // A touched link stays in the list, so that the release finds its place empty and lets the memory go.
        if let Some(mut row) = self.rows.get_mut(link as usize).and_then(Option::take) {
            // What was offered is the application's again after this, what was exposed too.
            row.outlet = None;
            row.writer.memory().abandon();
            self.closed_bytes.0 += row.writer.position();
            self.closed_bytes.1 += row.reader.position();
            if row.touched {
                self.closed.push(*row);
            }
        }
    }

    /// Gives the peer of a connection an outlet: from now on it may ask for what is exposed to it.
    pub fn give_outlet(&mut self, link: u32) {
        if let Some(row) = self.row(link) {
            row.outlet = Some(Box::default());
        }
    }

    /// What the peer of a connection is given besides frames.
    #[inline]
    pub fn outlet(&mut self, link: u32) -> Option<&mut Outlet> {
        self.row(link)?.outlet.as_deref_mut()
    }

    /// The outlets of all connections that have one.
    pub fn outlets(&mut self) -> impl Iterator<Item = &mut Outlet> {
        self.rows.iter_mut().flatten().filter_map(|row| row.outlet.as_deref_mut())
    }

    /// Looks at a connection with the next drain, whether or not its peer announces itself.
    pub fn look(&mut self, link: u32) {
        if self.is_open(link) && !self.backlog.contains(&link) {
            self.backlog.push_back(link);
        }
    }

    /// Whether a connection's peer still stands by what it has offered.
    pub fn stands(&self, link: u32) -> bool {
        let row = self.rows.get(link as usize).and_then(Option::as_deref);
        row.is_some_and(|row| !row.reader.memory().abandoned())
    }

    /// The ring of a connection that is written (`outgoing`) or read, for what goes beside it.
    pub fn memory(&self, link: u32, outgoing: bool) -> Option<RawRing> {
        let row = self.rows.get(link as usize).and_then(Option::as_deref)?;
        Some(if outgoing { *row.writer.memory() } else { *row.reader.memory() })
    }

    /// How much of a connection has been read so far, bytes of its ring, and whether there is more to read.
    pub fn heard(&self, link: u32) -> (u64, bool) {
        match self.rows.get(link as usize).and_then(Option::as_deref) {
            Some(row) => (row.reader.position(), row.fault.is_none() && row.reader.ready()),
            None => (0, false),
        }
    }

    /// What a connection has carried: the rings' positions, and what was noted by [`Links::read_directly`].
    pub fn traffic(&self, link: u32) -> Option<Traffic> {
        let row = self.rows.get(link as usize).and_then(Option::as_deref)?;
        let (sent, received) = (row.writer.position(), row.reader.position());
        let rings = [row.writer.memory(), row.reader.memory()].map(RingMemory::capacity);
        Some(Traffic { sent, received, read: row.direct, full: row.writer.wants_room(), rings })
    }

    /// Notes bytes that came past the rings.
    pub fn read_directly(&mut self, link: u32, bytes: u64) {
        if let Some(row) = self.row(link) {
            row.direct += bytes;
        }
    }

    /// Whether all that was written into a connection to oneself has been read.
    #[inline(always)]
    pub fn is_drained(&self, link: u32) -> bool {
        match self.rows.get(link as usize) {
            Some(Some(row)) => row.writer.position() == row.reader.position(),
            _ => false,
        }
    }

    /// Bytes of all rings that were written and read so far.
    pub fn moved(&self) -> (u64, u64) {
        self.rows.iter().flatten().fold(self.closed_bytes, |(sent, received), row| {
            (sent + row.writer.position(), received + row.reader.position())
        })
    }

    /// Whether a connection is open.
    pub fn is_open(&self, link: u32) -> bool {
        self.rows.get(link as usize).is_some_and(Option::is_some)
    }

    #[inline(always)]
    fn row(&mut self, link: u32) -> Option<&mut LinkRow> {
        self.rows.get_mut(link as usize)?.as_deref_mut()
    }

    /// Writes a frame and tells the peer.
    #[inline(never)]
    pub fn send<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Sent {
        self.send_inline(link, header, pieces)
    }

    /// [`Links::send`], for the one place that sends most.
    #[inline(always)]
    pub fn send_inline<P: Pieces + ?Sized>(&mut self, link: u32, header: &Header, pieces: &P) -> Sent {
        let Some(row) = self.rows.get_mut(link as usize).and_then(Option::as_deref_mut) else { return Sent::Failed };
        match row.writer.push(header, pieces) {
            Ok(true) => {
                // Something has been read since the last frame was written: the peer has had its turn, and waits.
                let heard = row.reader.position() & row.turns;
                if heard != row.answered || header.lead as u8 == Kind::Rts as u8 {
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

    /// See [`crate::Transport::grant`].
    pub fn grant(&mut self, link: u32, credit: Credit) {
        let Some(row) = self.row(link) else { return };
        let memory = *row.reader.memory();
        row.granter.grant(&memory, credit);
        fence(Ordering::SeqCst);
        if memory.starving() {
            memory.starve(false);
            row.announce();
        }
    }

    /// See [`crate::Transport::granted`].
    pub fn granted(&mut self, link: u32) -> Credit {
        let Some(row) = self.row(link) else { return Credit::NONE };
        let credit = row.spender.collect(row.writer.memory());
        row.wants_credit = credit.is_none();
        credit
    }

    /// Whether [`Links::drain`] would find something.
    #[inline(always)]
    pub fn ready(&self) -> bool {
        // All places, watched or not: the others point to a word that stays 0.
        let any = self.words.iter().fold(0, |any, word| any | word.load()) != 0;
        self.quiet.set(self.quiet.get() | !any);
        any | self.inbox.ready() | !self.backlog.is_empty()
    }

    /// Reads frames into `out`; returns how many. Their payloads stay until [`Links::release`].
    #[inline]
    pub fn drain(&mut self, out: &mut [Arrival]) -> usize {
        let mut count = 0;
        // Looking behind a frame that came alone would fetch a cache line that the writer is about to need, and wait
        // for it before the frame is handled. After a frame that was there at once, more are likely.
        let alone = self.quiet.replace(false);
        let others = !self.backlog.is_empty() || self.inbox.ready();
        // Rings that are always full leave half of the room to the others, and room for one frame every other time.
        self.odd ^= usize::from(others);
        let most = if others { (out.len() + self.odd) / 2 } else { out.len() };
        let share = if others { most.div_ceil(WATCHED) } else { most };
        for place in 0..self.watched_count {
            if !self.words[place].ready() {
                self.idle[place] = self.idle[place].saturating_add(1);
                continue;
            }
            let end = most.min(count + share);
            count += self.read(self.watched[place], &mut out[count..end], alone);
            self.words[place] = self.word_of(self.watched[place]);
            self.idle[place] = 0;
        }
        if count == most {
            self.pass_turn(1);
        }
        if others {
            count += self.drain_announced(&mut out[count..]);
        }
        count
    }

    /// Hands the whole messages of the watched rings, and what belongs to those that are read, to `take` one by one, each with
    /// its VC, and gives their space back, until there is another kind of frame, one is not taken, or there have been `most`:
    /// the next call begins with the ring behind the one that had the last of them. Nothing that [`Links::drain`] has read may
    /// be unreleased.
    ///
    /// Returns how many were taken, and whether there is something that only a drain reads, or for which `most` was 0.
    #[inline(always)]
    pub fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        let alone = self.quiet.get();
        let mut count = 0;
        let mut refused = false;
        for place in 0..self.watched_count.min(WATCHED) {
            if !self.words[place].ready() {
                self.idle[place] = self.idle[place].saturating_add(1);
                continue;
            }
            let link = self.watched[place];
            let Some(row) = self.rows.get_mut(link as usize).and_then(Option::as_deref_mut) else { continue };
            let first = count;
            loop {
                if count >= most {
                    return self.is_spent(place, first, count, refused);
                }
                if let Some((header, payload)) = row.reader.peek_whole() {
                    // SAFETY: the ring keeps it until it is released, which comes after it was skipped.
                    #[expect(unsafe_code, reason = "a payload that is there until it is skipped")]
                    let taken = unsafe { take.message(&header, payload, row.vc) };
                    if !taken {
                        refused = true;
                        break;
                    }
                    row.reader.skip(payload.len());
                    count += 1;
                    if alone {
                        // It may be answered by one of its kind. As in `drain`: nobody looks behind a frame that came alone.
                        row.writer.expect(payload.len() as u64);
                        break;
                    }
                    if payload.len() as u64 <= BESIDE_HEADER {
                        row.reader.expect();
                    }
                } else if !row.reader.ready() {
                    break;
                } else {
                    match row.take_other(take) {
                        Next::Left => {
                            refused = true;
                            break;
                        }
                        Next::Taken => count += 1,
                        Next::Stray(run) => {
                            let vc = row.vc;
                            self.withdraw_elsewhere(vc, run);
                            return self.is_spent(place, first, count + 1, refused);
                        }
                        Next::Waits => {
                            count += 1;
                            note_waiting(&mut self.waiting, &mut self.backlog, link);
                        }
                    }
                    if alone {
                        break;
                    }
                }
            }
            if count > first {
                self.idle[place] = 0;
                self.words[place] = Word(row.reader.memory().address(row.reader.position()));
                if row.reader.release() {
                    row.announce();
                }
            }
        }
        self.quiet.set(alone & (count == 0));
        (count, refused | self.inbox.ready() | !self.backlog.is_empty())
    }

    /// Withdraws a run from all connections to a peer, which is one, most often.
    #[cold]
    fn withdraw_elsewhere(&mut self, vc: Row, run: Span) {
        for row in self.rows.iter_mut().flatten().filter(|row| row.vc == vc) {
            if let Some(outlet) = &mut row.outlet {
                outlet.withdraw(run);
            }
        }
    }

    /// A delivery has had all that it may while it was at a watched ring, of which it has had those after `first`.
    #[cold]
    #[inline(never)]
    fn is_spent(&mut self, place: usize, first: u32, count: u32, refused: bool) -> (u32, bool) {
        let link = self.watched[place];
        if count > first
            && let Some(row) = self.rows.get_mut(link as usize).and_then(Option::as_deref_mut)
        {
            self.idle[place] = 0;
            self.words[place] = Word(row.reader.memory().address(row.reader.position()));
            if row.reader.release() {
                row.announce();
            }
        }
        self.pass_turn(place + usize::from(count > first));
        self.quiet.set(self.quiet.get() & (count == 0));
        (count, refused | (count == 0) | self.inbox.ready() | !self.backlog.is_empty())
    }

    /// The first of the watched rings, so many, go behind the others.
    fn pass_turn(&mut self, served: usize) {
        let count = self.watched_count;
        let served = served.min(count);
        self.watched[..count].rotate_left(served);
        self.words[..count].rotate_left(served);
        self.idle[..count].rotate_left(served);
    }

    /// As [`Links::drain`], from one connection only.
    pub fn drain_link(&mut self, link: u32, out: &mut [Arrival]) -> usize {
        let read = self.read(link, out, false);
        self.rewatch(link);
        read
    }

    #[cold]
    #[inline(never)]
    fn drain_announced(&mut self, out: &mut [Arrival]) -> usize {
        // As often as there are words: peers that announce without end must not keep the reader here.
        for _ in 0..SLOTS / 64 {
            let Some((first, bits)) = self.inbox.take() else { break };
            for bit in 0..64 {
                let link = first + bit;
                // A peer can set bits that are not its own; only open connections are looked at.
                if bits & (1 << bit) != 0 && self.is_open(link) && !self.backlog.contains(&link) {
                    self.backlog.push_back(link);
                }
            }
        }
        let mut count = 0;
        while count < out.len()
            && let Some(link) = self.backlog.pop_front()
        {
            let room = out.len() - count;
            let most = if self.backlog.is_empty() { room } else { room.min(TURN_FRAMES) };
            let read = self.read(link, &mut out[count..count + most], false);
            self.rewatch(link);
            count += read;
            if read == most {
                // There may be more: its next turn comes after those of the others.
                self.backlog.push_back(link);
            } else if self.row(link).is_some_and(|row| row.touched) {
                self.start_watching(link);
            }
        }
        if !self.waiting.is_empty() {
            self.look_at_outlets();
        }
        count
    }

    /// Goes on with what peers have asked for and what had no room so far.
    #[cold]
    fn look_at_outlets(&mut self) {
        for at in (0..self.waiting.len()).rev() {
            let link = self.waiting[at];
            match self.row(link).is_some_and(LinkRow::look_at_outlet) {
                true => note_waiting(&mut self.waiting, &mut self.backlog, link),
                false => _ = self.waiting.swap_remove(at),
            }
        }
    }

    /// Reads one ring until it is empty or `out` is full, or one frame of it.
    #[inline]
    fn read(&mut self, link: u32, out: &mut [Arrival], alone: bool) -> usize {
        let Some(row) = self.rows.get_mut(link as usize).and_then(Option::as_deref_mut) else { return 0 };
        if row.fault.is_some() {
            return 0;
        }
        let (mut count, mut touched) = (0, false);
        for arrival in out {
            match row.reader.read() {
                Ok(Some((header, payload))) => {
                    *arrival = Arrival { header, payload, vc: row.vc, car: NIL, buffer: NIL, state: ArrivalState::New };
                    count += 1;
                    if alone {
                        break;
                    }
                }
                Ok(None) => break,
                Err(corrupt) => {
                    match row.take_questions(corrupt) {
                        Ok(waits) => {
                            touched = true;
                            if waits {
                                note_waiting(&mut self.waiting, &mut self.backlog, link);
                            } else if !self.backlog.contains(&link) {
                                // Other frames may stand behind them.
                                self.backlog.push_back(link);
                            }
                        }
                        Err(corrupt) => {
                            row.fault = Some(corrupt);
                            self.needs.push((link, Need::Closing(corrupt)));
                        }
                    }
                    break;
                }
            }
        }
        if (count > 0 || touched) && !row.touched {
            row.touched = true;
            self.touched.push(link);
        }
        count
    }

    /// Hands the space of what was read back to the writers.
    #[inline]
    pub fn release(&mut self) {
        while let Some(link) = self.touched.pop() {
            if let Some(row) = self.rows[link as usize].as_deref_mut() {
                row.touched = false;
                if row.reader.release() {
                    row.announce();
                }
            } else {
                self.closed.clear();
            }
        }
    }

    /// What a connection needs, each once.
    pub fn take_need(&mut self) -> Option<(u32, Need)> {
        self.needs.pop()
    }

    /// Whether [`Links::take_need`] has one.
    #[inline]
    pub fn has_need(&self) -> bool {
        !self.needs.is_empty()
    }

    fn start_watching(&mut self, link: u32) {
        if self.row(link).is_none_or(|row| row.watched || row.fault.is_some()) {
            return;
        }
        if self.watched_count == WATCHED {
            let idlest = (0..WATCHED).max_by_key(|&p| self.idle_looks(p)).unwrap_or(0);
            if self.idle_looks(idlest) < IDLE_LOOKS {
                return;
            }
            self.stop_watching(idlest);
        }
        if let Some(row) = self.row(link) {
            row.watched = true;
            row.reader.memory().watch(true);
        }
        self.words[self.watched_count] = self.word_of(link);
        self.idle[self.watched_count] = 0;
        self.watched[self.watched_count] = link;
        self.watched_count += 1;
    }

    fn idle_looks(&self, place: usize) -> u32 {
        self.idle[place]
    }

    fn unlist(&mut self, place: usize) {
        self.watched_count -= 1;
        self.watched[place] = self.watched[self.watched_count];
        self.watched[self.watched_count] = NIL;
        self.words[place] = self.words[self.watched_count];
        self.idle[place] = self.idle[self.watched_count];
        self.words[self.watched_count] = Word::NONE;
    }

    /// Where the next frame of a connection will start.
    #[inline]
    fn word_of(&self, link: u32) -> Word {
        match &self.rows[link as usize] {
            Some(row) => Word(row.reader.memory().address(row.reader.position())),
            None => Word::NONE,
        }
    }

    /// A ring was read outside of the watch: its next word is another one.
    fn rewatch(&mut self, link: u32) {
        if let Some(place) = self.watched[..self.watched_count].iter().position(|&l| l == link) {
            self.words[place] = self.word_of(link);
        }
    }

    fn stop_watching(&mut self, place: usize) {
        let link = self.watched[place];
        if let Some(row) = self.row(link) {
            row.watched = false;
            row.reader.memory().watch(false);
        }
        self.unlist(place);
        fences::heavy();
        // Whoever has not seen the flag before the fence has written before it: look once more.
        self.backlog.push_back(link);
    }

    /// Prepares to sleep: from now on every frame announces itself and rings the bell. `false` if something is there.
    pub fn arm(&mut self) -> bool {
        // Nobody rings when a pipe has room again.
        if !self.waiting.is_empty() {
            return false;
        }
        if self.watched_count > 0 {
            for place in 0..self.watched_count {
                let link = self.watched[place];
                if let Some(row) = self.row(link) {
                    row.watched = false;
                    row.reader.memory().watch(false);
                }
            }
            fences::heavy();
            while self.watched_count > 0 {
                let link = self.watched[self.watched_count - 1];
                self.unlist(self.watched_count - 1);
                if self.row(link).is_some_and(|row| row.reader.ready()) {
                    self.backlog.push_back(link);
                }
            }
        }
        self.inbox.arm();
        fence(Ordering::SeqCst);
        let mut quiet = !self.ready();
        for row in self.rows.iter_mut().flatten() {
            // A refused frame that fits by now is something to wake up for; else the peer will ring.
            quiet &= !row.writer.wants_room() || row.writer.starve();
            quiet &= !row.wants_credit || row.starve_for_credit();
        }
        quiet
    }
}

/// What became of the next frame of a ring that is no whole message.
enum Next {
    /// It is for a drain.
    Left,
    Taken,
    /// It was taken and has ended a send whose bytes are not exposed here: to the same peer over another link, if at all.
    Stray(Span),
    /// It was a question, and something that was asked for waits for room.
    Waits,
}

/// A piece of a connection waits for room: a drain is to come by.
#[cold]
fn note_waiting(waiting: &mut Vec<u32>, backlog: &mut VecDeque<u32>, link: u32) {
    if !waiting.contains(&link) {
        waiting.push(link);
    }
    if !backlog.contains(&link) {
        backlog.push_back(link);
    }
}

impl LinkRow {
    /// Has the next frame taken, if it belongs to a message that is read.
    #[inline(never)]
    fn take_other(&mut self, take: &mut impl Take) -> Next {
        let Some((header, payload)) = self.reader.peek_read() else {
            return match self.take_question() {
                Ok(Some(false)) => Next::Taken,
                Ok(Some(true)) => Next::Waits,
                // A drain finds out what is wrong.
                Ok(None) | Err(_) => Next::Left,
            };
        };
        // SAFETY: the ring keeps it until it is released, which comes after it was skipped.
        #[expect(unsafe_code, reason = "a payload that is there until it is skipped")]
        let taken = unsafe { take.other(&header, payload, self.vc) };
        match taken {
            Other::Left => return Next::Left,
            Other::Taken => {}
            Other::Ended(run) => {
                self.reader.skip(payload.len());
                let withdrawn = match &mut self.outlet {
                    Some(outlet) if run.len() >= SPLICE_MIN => outlet.withdraw(run),
                    _ => true,
                };
                return if withdrawn { Next::Taken } else { Next::Stray(run) };
            }
        }
        self.reader.skip(payload.len());
        Next::Taken
    }

    /// Takes the next frame if it is a question, and answers it as far as there is room: whether something waits for room then.
    ///
    /// # Errors
    /// If there can be no such question. It stays.
    #[cold]
    fn take_question(&mut self) -> Result<Option<bool>, Corrupt> {
        let Some(question) = self.reader.peek_question() else { return Ok(None) };
        let Some(outlet) = &mut self.outlet else { return Err(Corrupt::Kind(Kind::Question as u8)) };
        outlet.ask(&question)?;
        self.reader.skip(0);
        Ok(Some(self.look_at_outlet()))
    }

    /// Takes the questions that stand where a frame was found that is not handed on, a few of them: whether something waits for
    /// room then.
    ///
    /// # Errors
    /// If the frame is no question, but what was `found`, or a question that cannot be.
    #[cold]
    fn take_questions(&mut self, found: Corrupt) -> Result<bool, Corrupt> {
        let mut waits = self.take_question()?.ok_or(found)?;
        for _ in 1..READS_A_CALL {
            match self.take_question()? {
                Some(more) => waits = more,
                None => break,
            }
        }
        Ok(waits)
    }

    /// Goes on with what the peer has asked for: whether something waits for room then.
    fn look_at_outlet(&mut self) -> bool {
        let memory = *self.writer.memory();
        self.outlet.as_mut().is_some_and(|outlet| outlet.look(&memory))
    }

    /// Asks the peer to announce its next grant; `false` if there may be one already.
    fn starve_for_credit(&mut self) -> bool {
        let memory = self.writer.memory();
        memory.starve(true);
        fence(Ordering::SeqCst);
        let still = self.spender.is_current(memory);
        // Whoever wants room in the ring is still to be told.
        if !still && !self.writer.wants_room() {
            memory.starve(false);
        }
        still
    }

    #[cold]
    #[inline(never)]
    fn announce(&self) {
        if self.inbox.announce(self.slot) {
            ring(&self.doorbell);
        }
    }
}

/// Rings a doorbell. A bell that is full rings already.
pub fn ring(doorbell: &OwnedFd) {
    let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
}
