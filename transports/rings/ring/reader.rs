//! The reading end of a ring.

use super::access::{BESIDE_HEADER, Corrupt, LINE, RingMemory, payload_max};
use crate::rings::atomics::{Ordering, fence};
use crate::rings::mark::Mark;
use tickwire_components::Span;
use tickwire_components::limits::{RING_READ_AHEAD, RING_UNPUBLISHED_BYTES};
use tickwire_components::wire::{ADDRESS_BYTES, HEADER_BYTES, Header, Kind, READABLE, frame_bytes};

/// The result of [`Reader::peek`].
#[derive(Debug)]
pub enum Peeked {
    /// No frame has arrived.
    None,
    /// A whole message without flags, priority or credit: its header, and where its payload stands.
    Whole(Header, Span),
    /// Something else.
    Other,
}

/// The reading end.
#[derive(Debug)]
pub struct Reader<M> {
    memory: M,
    position: u64,
    /// Bytes of the ring that were skipped so far.
    skipped: u64,
    /// The position up to which released bytes are not published yet.
    kept_until: u64,
    /// The most bytes of payload that a frame in the ring can have.
    payload_max: u64,
    /// The larger ring in which the writer will continue behind its mark.
    next: Option<M>,
}

impl<M: RingMemory> Reader<M> {
    /// The reading end of an empty ring.
    pub fn new(memory: M) -> Self {
        let (payload_max, kept_until) = (payload_max(&memory), unpublished_max(memory.capacity()));
        Reader { memory, position: 0, skipped: 0, kept_until, payload_max, next: None }
    }

    /// This end, moved to a position that its writer also starts at.
    #[cfg(test)]
    pub(crate) fn at(self, position: u64) -> Self {
        let kept_until = self.kept_until.wrapping_add(position);
        Reader { position, skipped: position, kept_until, ..self }
    }

    /// The memory.
    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The reader's position: bytes of the ring that were read or skipped so far, modulo 2^64.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of all frames that were read so far.
    pub fn taken(&self) -> u64 {
        self.position.wrapping_sub(self.skipped)
    }

    /// Whether a frame has arrived.
    #[inline(always)]
    pub fn ready(&self) -> bool {
        self.memory.load(self.position & (self.memory.capacity() - 1), Ordering::Relaxed) != 0
    }

    /// Reads the next frame: its header and where its payload stands until [`Reader::release`].
    ///
    /// # Errors
    /// If what the writer has written can never be valid. The position stays, so the next call returns the same error.
    #[inline]
    pub fn read(&mut self) -> Result<Option<(Header, Span)>, Corrupt> {
        let mut lead = self.memory.load(self.position & (self.memory.capacity() - 1), Ordering::Acquire);
        if lead == 0 {
            return Ok(None);
        }
        if Mark::is_in(lead) {
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
        if payload > BESIDE_HEADER {
            // They arrive while the message is matched.
            memory.expect_read(offset + LINE, payload - BESIDE_HEADER);
        }
        let span = memory.bytes(offset + HEADER_BYTES as u64, payload as usize);
        self.position = self.position.wrapping_add(frame_bytes(payload));
        Ok(Some((header, span)))
    }

    /// Skips the marks of the ring. Returns the first word of the frame behind them, 0 if there is none yet.
    #[cold]
    #[inline(never)]
    fn pass_marks(&mut self) -> Result<u64, Corrupt> {
        let mut wrapped = false;
        loop {
            let offset = self.position & (self.memory.capacity() - 1);
            let lead = self.memory.load(offset, Ordering::Acquire);
            match lead as u8 {
                _ if lead == 0 || !Mark::is_in(lead) => return Ok(lead),
                kind if wrapped => return Err(Corrupt::Kind(kind)),
                kind if kind == Mark::Wrap as u8 && offset != 0 => {
                    wrapped = true;
                    let rest = self.memory.capacity() - offset;
                    self.position = self.position.wrapping_add(rest);
                    self.skipped = self.skipped.wrapping_add(rest);
                }
                kind if kind == Mark::Moved as u8 => {
                    let log = (lead >> 8) as u8;
                    let next = self.next.take_if(|next| next.capacity().trailing_zeros() == u32::from(log));
                    let before = unpublished_max(self.memory.capacity());
                    self.memory = next.ok_or(Corrupt::Moved(log))?;
                    let more = unpublished_max(self.memory.capacity()) - before;
                    self.kept_until = self.kept_until.wrapping_add(more);
                    self.payload_max = payload_max(&self.memory);
                }
                kind => return Err(Corrupt::Kind(kind)),
            }
        }
    }

    /// Keeps the larger ring in which the writer may continue. `false` if there is one already, or this one is not larger.
    pub fn follow_to(&mut self, larger: M) -> bool {
        let may = self.next.is_none() && larger.capacity() > self.memory.capacity();
        if may {
            self.next = Some(larger);
        }
        may
    }

    /// As [`Reader::peek`], for an offer of a message that its receiver reads, and for the receiver's completion of such a message.
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
        // Such a frame is one cache line, and frames start at cache lines.
        Some((header, memory.bytes(offset + HEADER_BYTES as u64, header.payload() as usize)))
    }

    /// The next frame, if it is a question. The position stays before it. To be called where [`Reader::read`] has found a kind of frame
    /// that it does not hand on.
    #[cold]
    pub fn peek_question(&self) -> Option<Header> {
        let memory = &self.memory;
        let offset = self.position & (memory.capacity() - 1);
        let lead = memory.load(offset, Ordering::Acquire);
        let [origin, name, length] = [8, 16, 24].map(|at| memory.load(offset + at, Ordering::Relaxed));
        (lead as u8 == Mark::Question as u8).then_some(Header { lead, origin, name, length })
    }

    /// Skips the frame that [`Reader::peek`] has returned, which has `payload` bytes of payload.
    #[inline(always)]
    pub fn skip(&mut self, payload: usize) {
        self.position = self.position.wrapping_add(frame_bytes(payload as u64));
    }

    /// Prefetches the line of a later frame, since more one-line frames are likely to have arrived.
    #[inline(always)]
    pub fn expect(&self) {
        self.memory.expect_read(self.position.wrapping_add(RING_READ_AHEAD) & (self.memory.capacity() - 1), LINE);
    }

    /// Lets the writer reuse the space of the frames that were read. Publishing it costs both ends a cache miss, so it is done only now and
    /// then: see `unpublished_max`. `true` if the writer sleeps until there is room, and must be woken.
    #[inline(always)]
    pub fn release(&mut self) -> bool {
        self.kept_until.wrapping_sub(self.position).cast_signed() < 0 && self.publish()
    }

    #[inline(never)]
    fn publish(&mut self) -> bool {
        self.kept_until = self.position.wrapping_add(unpublished_max(self.memory.capacity()));
        self.memory.release(self.position);
        fence(Ordering::SeqCst);
        let starving = self.memory.starving();
        if starving {
            self.memory.starve(false);
        }
        starving
    }
}

impl<M: RingMemory + Copy> Reader<M> {
    /// The next frame. The position stays before it. Corrupt frames, and all others that are no whole messages, are left to
    /// [`Reader::read`].
    #[inline(always)]
    pub fn peek(&self) -> Peeked {
        // Copy the view, so that it is not reloaded after an access to the ring, which another process may have written.
        let memory = self.memory;
        let offset = self.position & (memory.capacity() - 1);
        let lead = memory.load(offset, Ordering::Acquire);
        if lead != Kind::Eager as u64 {
            return if lead == 0 { Peeked::None } else { Peeked::Other };
        }
        let length = memory.load(offset + 24, Ordering::Relaxed);
        // Check only that the payload itself lies within the ring. Its padding is not checked: a writer whose padding goes beyond the
        // ring's end only misplaces its own next frame.
        if length > memory.capacity() - offset - HEADER_BYTES as u64 {
            return Peeked::Other;
        }
        if length > BESIDE_HEADER {
            // They arrive while the message is matched.
            memory.expect_read(offset + LINE, length - BESIDE_HEADER);
        }
        let origin = memory.load(offset + 8, Ordering::Relaxed);
        let name = memory.load(offset + 16, Ordering::Relaxed);
        Peeked::Whole(
            Header { lead, origin, name, length },
            memory.bytes(offset + HEADER_BYTES as u64, length as usize),
        )
    }
}

/// The most bytes that a reader has read and not released: three messages of 1 KiB, or in a short ring three eighths of it. A writer at the
/// end of a ring needs room for two frames of a quarter each, which this leaves.
#[inline(always)]
const fn unpublished_max(capacity: u64) -> u64 {
    if capacity / 8 * 3 < RING_UNPUBLISHED_BYTES { capacity / 8 * 3 } else { RING_UNPUBLISHED_BYTES }
}

/// The first word of an offer of a message that may be read in place, without any other flag, priority or credit.
const READABLE_RTS: u64 = Kind::Rts as u64 | (READABLE as u64) << 8;
const _: () = assert!(frame_bytes(ADDRESS_BYTES) == LINE);

/// Whether a frame belongs to a message that its receiver reads, judged by the frame's first word and length. Such frames go to
/// [`Take::other`](crate::Take::other). The length is as [`Header::check`] requires it.
#[inline]
pub(crate) fn is_of_read(lead: u64, length: u64) -> bool {
    match lead {
        lead if lead == Kind::Done as u64 => length == 0,
        lead => lead == READABLE_RTS,
    }
}
