//! A byte ring with one writer and one reader, in memory that two processes may share.
//!
//! A frame is a header and its payload, rounded up to whole words, and never wraps. The first word of a header is
//! never 0; the word after the last frame always is. So the reader polls one word, and a small message costs one
//! transfer of one cache line: the writer first clears the word behind the new frame, then writes the frame, its
//! first word last. The reader publishes what it has consumed only now and then, and only after the bytes were used.
//!
//! The reader trusts nothing: a header is copied once, its length checked against the ring before anything is read.
//! The writer checks what the reader has published in the same way. The two ends are generic over the memory, so
//! that loom can drive them.
//!
//! A ring may go on in a larger one: the writer's last word in the old one is a mark, and what follows stands at the same
//! position of the new one, which the reader has been given before. Positions count on, so what is released of the old one is
//! released of both, and the words beside the data stay where they are.

use super::atomics::{Ordering, fence};
use super::shortage::Shortage;
use tickwire_components::limits::PACKED_PAST_MIN;
use tickwire_components::wire::{ADDRESS_BYTES, HEADER_BYTES, Header, Kind, READABLE, frame_bytes};
use tickwire_components::{Pieces, Span};

/// Memory of a ring, as both ends see it. Offsets are bytes from the start of the data, multiples of 8.
///
/// # Safety
/// What [`RingMemory::bytes`] gives is valid for reads and writes as far as the data go, as long as the value lives.
#[expect(unsafe_code, reason = "memory that another process may write")]
pub unsafe trait RingMemory {
    /// Bytes of data, a power of two.
    fn capacity(&self) -> u64;
    /// Reads a word of data.
    fn load(&self, offset: u64, order: Ordering) -> u64;
    /// Writes a word of data.
    fn store(&self, offset: u64, word: u64, order: Ordering);
    /// Writes a header, its first word last.
    #[inline(always)]
    fn store_header(&self, offset: u64, header: &Header) {
        self.store(offset + 8, header.origin, Ordering::Relaxed);
        self.store(offset + 16, header.name, Ordering::Relaxed);
        self.store(offset + 24, header.length, Ordering::Relaxed);
        self.store(offset, header.lead, Ordering::Release);
    }
    /// Writes bytes; they fit.
    ///
    /// # Safety
    /// They are valid for reads.
    unsafe fn fill(&self, offset: u64, from: Span);
    /// Where `length` bytes of data stand.
    fn bytes(&self, offset: u64, length: usize) -> Span;
    /// How far the reader has released the ring, bytes since its creation.
    fn released(&self) -> u64;
    /// Publishes how far the reader has released the ring.
    fn release(&self, position: u64);
    /// Whether the reader polls this ring directly.
    fn watched(&self) -> bool;
    /// Says whether the reader polls this ring directly.
    fn watch(&self, watched: bool);
    /// Whether the writer sleeps until there is room.
    fn starving(&self) -> bool;
    /// Says whether the writer sleeps until there is room.
    fn starve(&self, starving: bool);
    /// Reads a word of the window value. See [`super::window`].
    fn load_window(&self, word: usize, order: Ordering) -> u32;
    /// Writes a word of the window value.
    fn store_window(&self, word: usize, value: u32, order: Ordering);
    /// Writes bytes past the caches of this processor, and so without taking their lines from the reader's; they fit. They are
    /// there after [`RingMemory::settle`].
    ///
    /// # Safety
    /// As [`RingMemory::fill`].
    #[inline]
    unsafe fn fill_past(&self, offset: u64, from: Span) {
        // SAFETY: by the same contract.
        unsafe { self.fill(offset, from) }
    }
    /// Has what was written by [`RingMemory::fill_past`] come before all that is written later.
    fn settle(&self) {}
    /// Tells the cache that these bytes will be written soon.
    fn expect_write(&self, _offset: u64, _bytes: u64) {}
    /// Tells the cache that these bytes will be read by another processor next.
    fn hand_over(&self, _offset: u64, _bytes: u64) {}
    /// Tells the cache that these bytes will be read soon.
    fn expect_read(&self, _offset: u64, _bytes: u64) {}
}

/// What the other side of a ring wrote that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Corrupt {
    /// No such kind of frame.
    Kind(u8),
    /// A length that does not fit the ring.
    Length(u64),
    /// A released position that is not between the last one and the writer's.
    Released(u64),
    /// A question for so many bytes at an address which were not offered.
    Question(u64, u64),
    /// A mark that the ring goes on in a larger one, of so many bytes by its binary logarithm, which this side has not been given.
    Moved(u8),
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Corrupt::Kind(byte) => write!(f, "a frame of unknown kind {byte}"),
            Corrupt::Length(length) => write!(f, "a frame of {length} bytes that cannot fit"),
            Corrupt::Released(position) => write!(f, "an impossible released position {position}"),
            Corrupt::Question(address, length) => {
                write!(f, "a question for {length} bytes at {address:#x} that were not offered")
            }
            Corrupt::Moved(log) => write!(f, "it goes on in a ring of 2^{log} bytes that was never passed"),
        }
    }
}

/// Frames that are handed over to a reader that waits, bytes: messages of up to 4 KiB. Longer ones take longer to write than to fetch.
const HANDED_OVER_MAX: u64 = 66 * 64;

/// How far behind the word that it clears a writer of frames of one line asks for another line, bytes: a line comes in the
/// time of three or four frames. By measurement: 64 is 8 % slower at 0 B, 512 as well.
const WRITE_AHEAD: u64 = 4 * 64;

/// How far behind the next frame a reader asks for a line, bytes. By measurement: none is 8 % slower at 0 B, 128 2 %, and 256
/// a quarter, since that takes lines from their writer.
const READ_AHEAD: u64 = 3 * 64;

/// Bytes of payload in the line of their header.
pub(super) const BESIDE_HEADER: u64 = 64 - HEADER_BYTES as u64;

/// The writing end.
#[derive(Debug)]
pub struct Writer<M> {
    memory: M,
    position: u64,
    released: u64,
    /// Room that the frame which was refused last needs, bytes; 0 if it has been found.
    wanted: u64,
    /// Payloads from this length on are written past the caches, bytes.
    past_min: u64,
    shortage: Shortage,
}

impl<M: RingMemory> Writer<M> {
    /// The writing end of an empty ring.
    pub fn new(memory: M) -> Self {
        Writer { memory, position: 0, released: 0, wanted: 0, past_min: u64::MAX, shortage: Shortage::default() }
    }

    /// The same that writes payloads from a length on past the caches: for a reader on another processor.
    ///
    /// A processor reads from another one's cache line by line, each in the time of a message; memory it reads ahead. And
    /// nobody need take a line from the reader before it is written.
    pub fn past_caches_from(self, bytes: u64) -> Self {
        Writer { past_min: bytes, ..self }
    }

    /// The memory.
    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Bytes of the ring that were written so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Largest frame that a drained ring always takes, bytes: a quarter of it. Longer ones go where there is room.
    #[inline]
    pub fn frame_max(&self) -> u64 {
        self.memory.capacity() / 4
    }

    /// How much of a payload goes in one frame for certain, once the reader has read what is there, bytes. Asking for more than
    /// that counts as a shortage.
    pub fn fits(&mut self, payload: u64) -> u64 {
        let need = frame_bytes(payload);
        if need <= self.frame_max() {
            return payload;
        }
        self.shortage.note(self.position, need, self.memory.capacity());
        self.frame_max() - HEADER_BYTES as u64
    }

    /// How often the ring has been too small.
    #[inline]
    pub fn shortage(&mut self) -> &mut Shortage {
        &mut self.shortage
    }

    /// Goes on in a larger ring, whose bytes are zero, and which the reader has been given: by a mark, for which there is always
    /// room.
    pub fn go_over(&mut self, larger: M) {
        let (capacity, bytes) = (self.memory.capacity(), larger.capacity());
        debug_assert!(bytes > capacity);
        // The word behind the last frame is free.
        let mark = Kind::Moved as u64 | u64::from(bytes.trailing_zeros()) << 8;
        self.memory.store(self.position & (capacity - 1), mark, Ordering::Release);
        self.memory = larger;
        self.shortage.is_over(self.position);
    }

    /// Writes a frame; `false` if there is no room now. One that is longer than [`Writer::frame_max`] may never go.
    ///
    /// `pieces` are the payload; their total is what `header` says.
    ///
    /// # Errors
    /// If the reader published an impossible position.
    #[inline(always)]
    pub fn push<P: Pieces + ?Sized>(&mut self, header: &Header, pieces: &P) -> Result<bool, Corrupt> {
        let capacity = self.memory.capacity();
        let payload = header.payload();
        let need = frame_bytes(payload);
        let offset = self.position & (capacity - 1);
        // The word behind the frame must be free too, and a frame that would wrap starts anew at the front.
        if offset + need > capacity || !self.has_room(need) {
            return self.push_slowly(*header, pieces);
        }
        self.write(offset, need, header, payload, pieces);
        Ok(true)
    }

    /// As [`Writer::push`], at the front of the ring, or where the reader has to be asked for room.
    #[cold]
    #[inline(never)]
    fn push_slowly<P: Pieces + ?Sized>(&mut self, header: Header, pieces: &P) -> Result<bool, Corrupt> {
        let (payload, mask) = (header.payload(), self.memory.capacity() - 1);
        let need = frame_bytes(payload);
        let Some(rest) = self.find_room(need)? else { return Ok(false) };
        if rest > 0 {
            self.memory.store(0, 0, Ordering::Relaxed);
            self.memory.store(self.position & mask, Kind::Wrap as u64, Ordering::Release);
            self.position += rest;
        }
        self.write(self.position & mask, need, &header, payload, pieces);
        Ok(true)
    }

    /// Whether so many bytes, and the word behind them, were free when the reader was asked last.
    #[inline(always)]
    fn has_room(&self, bytes: u64) -> bool {
        self.position + bytes + 8 - self.released <= self.memory.capacity()
    }

    /// Finds room for a frame: how many bytes at the ring's end stay unused before it. `None` if there is none now.
    fn find_room(&mut self, need: u64) -> Result<Option<u64>, Corrupt> {
        let capacity = self.memory.capacity();
        let left = capacity - (self.position & (capacity - 1));
        let rest = if need > left { left } else { 0 };
        if !self.has_room(rest + need) {
            let released = self.memory.released();
            if released < self.released || released > self.position {
                return Err(Corrupt::Released(released));
            }
            self.released = released;
        }
        let fits = self.has_room(rest + need);
        if !fits {
            self.shortage.note(self.position, need, capacity);
        }
        // Whoever has a longer one cuts it.
        self.wanted = if fits || need > self.frame_max() { 0 } else { need };
        Ok(fits.then_some(rest))
    }

    #[inline(always)]
    fn write<P: Pieces + ?Sized>(&mut self, offset: u64, need: u64, header: &Header, payload: u64, pieces: &P) {
        let memory = &self.memory;
        let behind = (offset + need) & (memory.capacity() - 1);
        memory.store(behind, 0, Ordering::Relaxed);
        let at = offset + HEADER_BYTES as u64;
        // The reader polls the first line, and takes it away whenever it does: it is written last, and all at once.
        let past = self.is_past(payload, pieces.layout().is_some());
        if past {
            fill_past(memory, at, payload, pieces);
        } else if pieces.pieces() == 1 && pieces.layout().is_none() {
            let run = pieces.piece(0);
            if payload > BESIDE_HEADER {
                // SAFETY: the run of a buffer that is borrowed.
                #[expect(unsafe_code, reason = "bytes that are addresses")]
                unsafe {
                    memory.fill(at + BESIDE_HEADER, run.part(BESIDE_HEADER as usize, usize::MAX));
                    memory.fill(at, run.part(0, BESIDE_HEADER as usize));
                }
            } else if payload > 0 {
                // SAFETY: the run of a buffer that is borrowed.
                #[expect(unsafe_code, reason = "bytes that are addresses")]
                unsafe {
                    memory.fill(at, run);
                }
            }
        } else if payload > 0 {
            fill_runs(memory, at, payload, pieces);
        }
        memory.store_header(offset, header);
        // The next frame is likely as long as this one, and clears a word in the line behind itself: own these lines by
        // then. The first one is owned already. Short frames are written in less time than a line takes to come.
        match need {
            64 => memory.expect_write((behind + WRITE_AHEAD) & (memory.capacity() - 1), 64),
            _ if past => {}
            _ => memory.expect_write(behind + 64, need),
        }
        self.position += need;
    }

    /// Whether a payload is written past the caches.
    #[inline(always)]
    fn is_past(&self, payload: u64, packed: bool) -> bool {
        // A frame without payload may be told of more bytes than it takes.
        payload > 0 && payload >= self.past_min && (!packed || payload >= PACKED_PAST_MIN as u64)
    }

    /// The next frame is likely to have so much payload, and to be written soon: asks for all its lines and the one behind it.
    /// They were asked for when the frame before was written, but for the first one, and whoever polls that may have been given
    /// its neighbour, too. Stores become visible in their order: a line that has yet to come holds up all behind it, and the
    /// first one is taken away by a look of the reader meanwhile.
    #[inline(always)]
    pub fn expect(&self, payload: u64) {
        let first = self.position & (self.memory.capacity() - 1);
        if payload < self.past_min {
            self.memory.expect_write(first + 64, frame_bytes(payload));
        }
        self.memory.expect_write(first, 64);
    }

    /// Has the last frame, with so much payload, where the reader finds it sooner: for a reader that waits for it. A writer
    /// that goes on writing is slowed down by more than the reader gains.
    #[inline(always)]
    pub fn hand_over(&self, payload: u64) {
        let bytes = frame_bytes(payload);
        if bytes <= HANDED_OVER_MAX && payload < self.past_min {
            let mask = self.memory.capacity() - 1;
            self.memory.hand_over(self.position.wrapping_sub(bytes) & mask, bytes);
        }
    }

    /// Whether a frame was refused for want of room.
    pub fn wants_room(&self) -> bool {
        self.wanted != 0
    }

    /// Whether the frame that was refused last still does not fit. If so, the reader will announce itself to the
    /// writer when it has released space: it is asked to before the last look.
    pub fn starve(&mut self) -> bool {
        if self.wanted == 0 {
            return false;
        }
        self.memory.starve(true);
        fence(Ordering::SeqCst);
        // What cannot be is found again by the next push, and reported there.
        let still = matches!(self.find_room(self.wanted), Ok(None));
        if !still {
            self.memory.starve(false);
        }
        still
    }
}

/// Writes a long payload past the caches, but for what is in the line of its header.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[inline(never)]
fn fill_past<M: RingMemory, P: Pieces + ?Sized>(memory: &M, at: u64, payload: u64, pieces: &P) {
    let beside = BESIDE_HEADER as usize;
    // SAFETY: a buffer that is borrowed, local bytes, and place in the ring that was found free.
    unsafe {
        if let Some(layout) = pieces.layout() {
            let mut packed = [0; PACKED_BYTES];
            let mut done = beside;
            while done < payload as usize {
                let place = Span::new(packed.as_mut_ptr(), PACKED_BYTES.min(payload as usize - done));
                layout.part(done, place.len()).pack(place);
                memory.fill_past(at + done as u64, place);
                done += place.len();
            }
            layout.part(0, beside).pack(memory.bytes(at, beside));
        } else if pieces.pieces() == 1 {
            let run = pieces.piece(0);
            memory.fill_past(at + BESIDE_HEADER, run.part(beside, usize::MAX));
            memory.fill(at, run.part(0, beside));
        } else {
            fill_runs(memory, at, payload, pieces);
        }
    }
    memory.settle();
}

/// Bytes that are packed at a time: they stay in the nearest cache.
const PACKED_BYTES: usize = 4096;

/// Writes a payload that is not one run.
#[expect(unsafe_code, reason = "bytes that are addresses")]
#[inline(never)]
fn fill_runs<M: RingMemory, P: Pieces + ?Sized>(memory: &M, mut at: u64, payload: u64, pieces: &P) {
    // SAFETY: a buffer that is borrowed, and place in the ring that was found free.
    unsafe {
        if let Some(layout) = pieces.layout() {
            layout.pack(memory.bytes(at, payload as usize));
        }
        for index in 0..pieces.pieces() {
            let span = pieces.piece(index);
            memory.fill(at, span);
            at += span.len() as u64;
        }
    }
}

/// The first word of an offer to read a message, without any other flag, priority or credit.
const READABLE_RTS: u64 = Kind::Rts as u64 | (READABLE as u64) << 8;
const _: () = assert!(frame_bytes(ADDRESS_BYTES) == 64);

/// Whether a frame belongs to a message that its receiver reads, by its first word and its length: what
/// [`Take::other`](crate::Take::other) is for. Lengths are as [`Header::check`] wants them.
#[inline]
pub(crate) fn is_of_read(lead: u64, length: u64) -> bool {
    match lead {
        lead if lead == Kind::Done as u64 => length == 0,
        lead => lead == READABLE_RTS,
    }
}

/// Bytes that a reader keeps to itself at most after it has read them. Each word of it to the writer costs both a cache line, so in a short ring it is up to three
/// eighths: with the two frames of a quarter each that a writer at the end of the ring needs room for, that is less than all.
#[inline(always)]
const fn unpublished_max(capacity: u64) -> u64 {
    let (eighth, some) = (capacity / 8, if capacity / 8 * 3 < UNPUBLISHED { capacity / 8 * 3 } else { UNPUBLISHED });
    if eighth > some { eighth } else { some }
}

/// Bytes that are worth a word in any case: three messages of 1 KiB.
const UNPUBLISHED: u64 = 4 << 10;

/// Payload of a frame at most that a ring can hold, bytes.
fn payload_max<M: RingMemory>(memory: &M) -> u64 {
    memory.capacity() - HEADER_BYTES as u64
}

/// Whether a first word that is not 0 is a mark of the ring's own, or of no kind.
#[inline(always)]
fn is_mark(lead: u64) -> bool {
    (lead as u8).wrapping_sub(1) >= Kind::Wrap as u8 - 1
}

/// The reading end.
#[derive(Debug)]
pub struct Reader<M> {
    memory: M,
    position: u64,
    published: u64,
    /// No frame in the ring can have more.
    payload_max: u64,
    /// Where the ring goes on behind the writer's mark.
    next: Option<M>,
}

impl<M: RingMemory> Reader<M> {
    /// The reading end of an empty ring.
    pub fn new(memory: M) -> Self {
        let payload_max = payload_max(&memory);
        Reader { memory, position: 0, published: 0, payload_max, next: None }
    }

    /// The memory.
    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// How much was read, bytes since the ring's creation.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether a frame has arrived.
    #[inline(always)]
    pub fn ready(&self) -> bool {
        self.memory.load(self.position & (self.memory.capacity() - 1), Ordering::Relaxed) != 0
    }

    /// Reads the next frame: its header and where its payload stands until [`Reader::release`].
    ///
    /// # Errors
    /// If the writer wrote what cannot be; the position stays, so asking again gives the same.
    #[inline]
    pub fn read(&mut self) -> Result<Option<(Header, Span)>, Corrupt> {
        let mut lead = self.memory.load(self.position & (self.memory.capacity() - 1), Ordering::Acquire);
        if lead == 0 {
            return Ok(None);
        }
        if is_mark(lead) {
            lead = self.pass_marks()?;
            if lead == 0 {
                return Ok(None);
            }
        }
        let memory = &self.memory;
        let offset = self.position & (memory.capacity() - 1);
        // Frames start at multiples of a cache line, so a header never wraps.
        let header = Header {
            lead,
            origin: memory.load(offset + 8, Ordering::Relaxed),
            name: memory.load(offset + 16, Ordering::Relaxed),
            length: memory.load(offset + 24, Ordering::Relaxed),
        };
        let payload = header.payload();
        if payload > self.payload_max || offset + frame_bytes(payload) > memory.capacity() {
            return Err(Corrupt::Length(header.length));
        }
        if payload > 32 {
            // On their way while the message is matched.
            memory.expect_read(offset + 64, payload - 32);
        }
        let span = memory.bytes(offset + HEADER_BYTES as u64, payload as usize);
        self.position += frame_bytes(payload);
        Ok(Some((header, span)))
    }

    /// Goes past the writer's own marks; returns the first word of the frame behind them, 0 if there is none yet.
    #[cold]
    #[inline(never)]
    fn pass_marks(&mut self) -> Result<u64, Corrupt> {
        let mut wrapped = false;
        loop {
            let offset = self.position & (self.memory.capacity() - 1);
            let lead = self.memory.load(offset, Ordering::Acquire);
            match lead as u8 {
                _ if lead == 0 || !is_mark(lead) => return Ok(lead),
                kind if wrapped => return Err(Corrupt::Kind(kind)),
                kind if kind == Kind::Wrap as u8 && offset != 0 => {
                    wrapped = true;
                    self.position += self.memory.capacity() - offset;
                }
                kind if kind == Kind::Moved as u8 => {
                    let log = (lead >> 8) as u8;
                    let next = self.next.take_if(|next| next.capacity().trailing_zeros() == u32::from(log));
                    self.memory = next.ok_or(Corrupt::Moved(log))?;
                    self.payload_max = payload_max(&self.memory);
                }
                kind => return Err(Corrupt::Kind(kind)),
            }
        }
    }

    /// Takes the ring that the writer may go on in. `false` if there is one already, or it is not larger.
    pub fn follow_to(&mut self, larger: M) -> bool {
        let may = self.next.is_none() && larger.capacity() > self.memory.capacity();
        if may {
            self.next = Some(larger);
        }
        may
    }

    /// The next frame if it is a message as a whole without flags, priority or credit; stays before it. For anything else,
    /// frames that cannot be included, there is [`Reader::read`].
    #[inline(always)]
    pub fn peek_whole(&self) -> Option<(Header, Span)> {
        let memory = &self.memory;
        let offset = self.position & (memory.capacity() - 1);
        let lead = memory.load(offset, Ordering::Acquire);
        if lead != Kind::Eager as u64 {
            return None;
        }
        let length = memory.load(offset + 24, Ordering::Relaxed);
        if length > self.payload_max || offset + frame_bytes(length) > memory.capacity() {
            return None;
        }
        if length > 32 {
            // On their way while the message is matched.
            memory.expect_read(offset + 64, length - 32);
        }
        let origin = memory.load(offset + 8, Ordering::Relaxed);
        let name = memory.load(offset + 16, Ordering::Relaxed);
        Some((Header { lead, origin, name, length }, memory.bytes(offset + HEADER_BYTES as u64, length as usize)))
    }

    /// As [`Reader::peek_whole`], of an offer to read a message, or what its reader answers.
    #[inline(never)]
    pub fn peek_read(&self) -> Option<(Header, Span)> {
        let memory = &self.memory;
        let offset = self.position & (memory.capacity() - 1);
        let lead = memory.load(offset, Ordering::Acquire);
        let [origin, name, length] = [8, 16, 24].map(|at| memory.load(offset + at, Ordering::Relaxed));
        if !is_of_read(lead, length) {
            return None;
        }
        let header = Header { lead, origin, name, length };
        // All are one line, and frames start at lines.
        Some((header, memory.bytes(offset + HEADER_BYTES as u64, header.payload() as usize)))
    }

    /// The next frame if it is a question, which is not handed on; stays before it. Where [`Reader::read`] has said that a frame
    /// is of no kind that it hands on, this tells whether it is one.
    #[cold]
    pub fn peek_question(&self) -> Option<Header> {
        let memory = &self.memory;
        let offset = self.position & (memory.capacity() - 1);
        let lead = memory.load(offset, Ordering::Acquire);
        let [origin, name, length] = [8, 16, 24].map(|at| memory.load(offset + at, Ordering::Relaxed));
        (lead as u8 == Kind::Question as u8).then_some(Header { lead, origin, name, length })
    }

    /// Goes past the frame that [`Reader::peek_whole`] has shown, whose payload has so many bytes.
    #[inline(always)]
    pub fn skip(&mut self, payload: usize) {
        self.position += frame_bytes(payload as u64);
    }

    /// More frames of one line are likely to be here: asks for one of them, to have it when its turn comes.
    #[inline(always)]
    pub fn expect(&self) {
        self.memory.expect_read((self.position + READ_AHEAD) & (self.memory.capacity() - 1), 64);
    }

    /// Lets the writer use what was read, once that is worth a cache line: an eighth of the ring, or more of a short one. `true` if the writer
    /// sleeps until there is room, and must be told.
    #[inline]
    pub fn release(&mut self) -> bool {
        if self.position - self.published <= unpublished_max(self.memory.capacity()) {
            return false;
        }
        self.published = self.position;
        self.memory.release(self.position);
        fence(Ordering::SeqCst);
        let starving = self.memory.starving();
        if starving {
            self.memory.starve(false);
        }
        starving
    }
}
