//! The writing end of a ring.

use super::access::{BESIDE_HEADER, Corrupt, LINE, RingMemory};
use super::fill::{fill_past, fill_runs};
use crate::rings::atomics::{Ordering, fence};
use crate::rings::distance::Distance;
use crate::rings::mark::Mark;
use crate::rings::shortage::Shortage;
use tickwire_components::Pieces;
use tickwire_components::limits::{PACKED_PAST_MIN, RING_FIRST_LINE_MIN, RING_HANDED_OVER_MAX, RING_WRITE_AHEAD};
use tickwire_components::wire::{HEADER_BYTES, Header, frame_bytes};

/// The writing end.
#[derive(Debug)]
pub struct Writer<M> {
    memory: M,
    position: u64,
    released: u64,
    /// The room that the last refused frame needs, in bytes; 0 once there is room.
    wanted: u64,
    /// Payloads from this length on, in bytes, are written past the caches: [`u64::MAX`] while the reader is near.
    past_min: u64,
    /// The same for a reader that is far.
    past_min_far: u64,
    distance: Distance,
    shortage: Shortage,
    /// While the two ends take turns, the writer stays within this many bytes at the front of the ring.
    turns: u64,
    /// The least number of frames that the writer puts there before it returns to the front.
    turns_frames: u64,
    /// The position at which the writer next decides whether to return to the front: the ring's end, or before it.
    end: u64,
    /// Bytes that had been written at its last decision.
    decided: u64,
    /// Bytes of answers since then.
    answers: u64,
    /// Bytes of the ring that were skipped so far.
    skipped: u64,
}

impl<M: RingMemory> Writer<M> {
    /// The writing end of an empty ring.
    pub fn new(memory: M) -> Self {
        Writer {
            memory,
            position: 0,
            released: 0,
            wanted: 0,
            past_min: u64::MAX,
            past_min_far: u64::MAX,
            distance: Distance::default(),
            shortage: Shortage::default(),
            turns: u64::MAX,
            turns_frames: 1,
            end: 0,
            decided: 0,
            answers: 0,
            skipped: 0,
        }
    }

    /// This end, changed so that it stays within the first `bytes` bytes of the ring while the two ends take turns, or within the length of
    /// `frames` frames, if that is more.
    ///
    /// A writer that takes turns with its peer has few frames in flight. Their lines stay in the nearest caches if they are reused soon. A
    /// writer that sends many frames in succession needs the opposite: lines that have left the reader's caches before they are written
    /// again, since taking a line out of another processor's cache is slow.
    ///
    /// Long frames need room for many. As measured, a writer that returns to the front after one or two frames of 4 KiB takes twice as long
    /// for each. The likely reason: the lines of a frame are prefetched when the frame before it is written, at the place behind that one.
    /// If the frame starts at the front instead, the prefetch was useless.
    pub fn turning_within(self, bytes: u64, frames: u64) -> Self {
        Writer { turns: bytes, turns_frames: frames, ..self }
    }

    /// This end, changed so that it writes payloads of `bytes` bytes and more past the caches: for a reader on another processor, unless
    /// that is near.
    ///
    /// A processor reads another one's cache line by line, and waits for each as long as a short message takes. From memory it reads ahead.
    /// The writer gains too, since it need not take lines out of the reader's cache first. If the processors are near, for example with a
    /// cache in common, a line takes less time than it takes from memory.
    pub fn past_caches_from(self, bytes: u64) -> Self {
        Writer { past_min: bytes, past_min_far: bytes, ..self }
    }

    /// This end, moved to a position. The other end must be there too, and the memory must say that everything before it is released.
    #[cfg(test)]
    pub(crate) fn at(self, position: u64) -> Self {
        Writer { position, released: position, skipped: position, end: position, ..self }
    }

    /// This end, for which was decided just now whether the reader is near.
    #[cfg(test)]
    pub(crate) fn at_distance(self, near: bool) -> Self {
        Writer { distance: Distance::decided(near), ..self }
    }

    /// Payloads from this length on are written past the caches now, bytes.
    #[cfg(test)]
    pub(crate) fn past_min(&self) -> u64 {
        self.past_min
    }

    /// The memory.
    #[inline]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The writer's position: bytes of the ring that were written or skipped so far, modulo 2^64.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of all frames that were written so far.
    pub fn written(&self) -> u64 {
        self.position.wrapping_sub(self.skipped)
    }

    /// Largest frame that an empty ring always takes, bytes: a quarter of the ring. A longer one goes if it happens to fit.
    #[inline]
    pub fn frame_max(&self) -> u64 {
        self.memory.capacity() / 4
    }

    /// How many bytes of a payload are sure to fit into one frame once the reader has emptied the ring. A longer payload counts as a
    /// shortage.
    pub fn fits(&mut self, payload: u64) -> u64 {
        let need = frame_bytes(payload);
        if need <= self.frame_max() {
            return payload;
        }
        self.shortage.note(self.written(), need, self.memory.capacity());
        self.frame_max() - HEADER_BYTES as u64
    }

    /// The record of how often the ring has been too small.
    #[inline]
    pub fn shortage(&mut self) -> &mut Shortage {
        &mut self.shortage
    }

    /// Continues in a larger ring. Its bytes are zero, and the reader has been passed it. A mark in the old ring tells the reader; there is
    /// always room for a mark.
    pub fn go_over(&mut self, larger: M) {
        let (capacity, bytes) = (self.memory.capacity(), larger.capacity());
        debug_assert!(bytes > capacity);
        // The word behind the last frame is free.
        let mark = Mark::Moved as u64 | u64::from(bytes.trailing_zeros()) << 8;
        self.memory.store(self.position & (capacity - 1), mark, Ordering::Release);
        self.memory = larger;
        self.end = self.position;
        self.shortage.is_over(self.written());
    }

    /// Writes a frame; `false` if there is no room now. For a frame longer than [`Writer::frame_max`] there may never be.
    ///
    /// `pieces` are the payload. Their total length is that in `header`.
    ///
    /// # Errors
    /// If the reader published an impossible position.
    #[inline(always)]
    pub fn push<P: Pieces + ?Sized>(&mut self, header: &Header, pieces: &P) -> Result<bool, Corrupt> {
        let payload = header.payload();
        let need = frame_bytes(payload);
        let offset = self.position & (self.memory.capacity() - 1);
        // The word behind the frame must be free too, and a frame that would wrap starts at the front instead.
        if self.must_decide(need) || !self.has_room(need) {
            return self.push_slowly(*header, pieces);
        }
        self.write(offset, need, header, payload, pieces);
        Ok(true)
    }

    /// As [`Writer::push`], if the writer must decide where the frame starts, or read how far the reader is.
    #[cold]
    #[inline(never)]
    fn push_slowly<P: Pieces + ?Sized>(&mut self, header: Header, pieces: &P) -> Result<bool, Corrupt> {
        let (payload, capacity) = (header.payload(), self.memory.capacity());
        let need = frame_bytes(payload);
        let Some(rest) = self.find_room(need)? else { return Ok(false) };
        if rest > 0 {
            self.memory.store(0, 0, Ordering::Relaxed);
            self.memory.store(self.position & (capacity - 1), Mark::Wrap as u64, Ordering::Release);
            self.position = self.position.wrapping_add(rest);
            self.skipped = self.skipped.wrapping_add(rest);
        }
        let offset = self.position & (capacity - 1);
        if rest > 0 || self.must_decide(need) {
            self.end = self.position.wrapping_add(self.turns.max(need * self.turns_frames).min(capacity - offset));
            if !self.takes_turns() {
                self.shortage.note_stream(self.written() - self.decided);
            }
            (self.decided, self.answers) = (self.written(), 0);
        }
        self.write(offset, need, &header, payload, pieces);
        Ok(true)
    }

    /// Whether a frame extends beyond the position of the next decision.
    #[inline(always)]
    fn must_decide(&self, need: u64) -> bool {
        need > self.end.wrapping_sub(self.position)
    }

    /// Whether at least half of the bytes written since the last decision were answers.
    fn takes_turns(&self) -> bool {
        2 * self.answers >= self.written() - self.decided
    }

    /// Whether `bytes` bytes, and the word behind them, were free when the writer last read the released position.
    #[inline(always)]
    fn has_room(&self, bytes: u64) -> bool {
        self.position.wrapping_sub(self.released) + bytes + 8 <= self.memory.capacity()
    }

    /// Reads how far the reader has released the ring.
    fn look(&mut self) -> Result<(), Corrupt> {
        let released = self.read_released();
        if released.wrapping_sub(self.released) > self.position.wrapping_sub(self.released) {
            return Err(Corrupt::Released(released));
        }
        self.released = released;
        Ok(())
    }

    /// The position that the reader has published. Some of the reads are timed, to find out whether the reader is near.
    fn read_released(&mut self) -> u64 {
        let memory = &self.memory;
        if self.past_min_far == u64::MAX {
            return memory.released();
        }
        let released = self.distance.look(self.released, || memory.released());
        self.past_min = if self.distance.is_near() { u64::MAX } else { self.past_min_far };
        released
    }

    /// Finds room for a frame. Returns how many bytes up to the ring's end stay unused before it; `None` if there is no room now.
    fn find_room(&mut self, need: u64) -> Result<Option<u64>, Corrupt> {
        let capacity = self.memory.capacity();
        let offset = self.position & (capacity - 1);
        let left = capacity - offset;
        if self.must_decide(need) && self.takes_turns() {
            self.look()?;
            if self.has_room(left + need) {
                self.note_room(need, true);
                return Ok(Some(left));
            }
        }
        let rest = if need > left { left } else { 0 };
        if !self.has_room(rest + need) {
            self.look()?;
        }
        let fits = self.has_room(rest + need);
        if !fits {
            self.shortage.note(self.written(), need, capacity);
        }
        self.note_room(need, fits);
        Ok(fits.then_some(rest))
    }

    /// Notes whether there was room for a frame. A longer frame that waits is not forgotten because a shorter one went. A frame longer than
    /// any that fits is cut by the sender, so it does not wait.
    fn note_room(&mut self, need: u64, fits: bool) {
        if !fits && need <= self.frame_max() {
            self.wanted = self.wanted.max(need);
        } else if need >= self.wanted {
            self.wanted = 0;
        }
    }

    #[inline(always)]
    fn write<P: Pieces + ?Sized>(&mut self, offset: u64, need: u64, header: &Header, payload: u64, pieces: &P) {
        let memory = &self.memory;
        let behind = (offset + need) & (memory.capacity() - 1);
        memory.store(behind, 0, Ordering::Relaxed);
        let at = offset + HEADER_BYTES as u64;
        // The reader polls the first line and fetches it with each poll. So this line is written last, and all at once.
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
        // The next frame is likely as long as this one, and also clears a word in the line behind itself. Prefetch these lines now, except
        // for the first one, which is here already. Short frames are written in less time than a line takes to arrive, so their lines are
        // prefetched further ahead.
        match need {
            LINE => memory.expect_write((behind + RING_WRITE_AHEAD) & (memory.capacity() - 1), LINE),
            _ if past => {}
            _ => memory.expect_write(behind + LINE, need),
        }
        self.position = self.position.wrapping_add(need);
    }

    /// Whether a payload is written past the caches.
    #[inline(always)]
    fn is_past(&self, payload: u64, packed: bool) -> bool {
        // The length in the header may exceed the payload that the frame really has.
        payload > 0 && payload >= self.past_min && (!packed || payload >= PACKED_PAST_MIN as u64)
    }

    /// Prefetches the lines of the next frame, which is likely to have `payload` bytes of payload and to be written soon, and the line
    /// behind it. Most of them were prefetched when the last frame was written. The first was not, since the reader polls it, and the
    /// reader's processor may have fetched the neighbouring line with it. Stores become visible in order, so one missing line delays all
    /// stores behind it.
    ///
    /// A short frame's first line is not prefetched. It would arrive too late to help, and the reader, which polls it, would only fetch it
    /// once more before the frame is in it. Measured: that costs 10 % of the latency of 8 B, and 20 % of that of 64 B between distant
    /// processors.
    #[inline(always)]
    pub fn expect(&self, payload: u64) {
        let first = self.position & (self.memory.capacity() - 1);
        if payload < self.past_min {
            self.memory.expect_write(first + LINE, frame_bytes(payload));
        }
        if payload > RING_FIRST_LINE_MIN {
            self.memory.expect_write(first, LINE);
        }
    }

    /// Notes that the last frame, which has `payload` bytes of payload, is an answer: something was read since the frame before it. Unless
    /// it is long, it is also moved out of this processor's caches, so that a waiting reader gets it sooner. A writer that continues to
    /// write would lose more by that than the reader gains, so it is done for answers only.
    #[inline(always)]
    pub fn hand_over(&mut self, payload: u64) {
        let bytes = frame_bytes(payload);
        self.answers += bytes;
        if bytes <= RING_HANDED_OVER_MAX && payload < self.past_min {
            let mask = self.memory.capacity() - 1;
            self.memory.hand_over(self.position.wrapping_sub(bytes) & mask, bytes);
        }
    }

    /// Whether the last frame was refused for lack of room.
    pub fn wants_room(&self) -> bool {
        self.wanted != 0
    }

    /// Whether the last refused frame still does not fit. If so, the reader will tell the writer when it has released space. The writer
    /// requests that before it checks for room a last time, so that no release is missed.
    pub fn starve(&mut self) -> bool {
        if self.wanted == 0 {
            return false;
        }
        self.memory.starve(true);
        fence(Ordering::SeqCst);
        // The next push finds an impossible position again, and reports it.
        let still = matches!(self.find_room(self.wanted), Ok(None));
        if !still {
            self.memory.starve(false);
        }
        still
    }
}
