//! Reading: the order in which rings are served, and how frames reach the engine.

use super::ends::Need;
use super::outlets::note_waiting;
use super::row::{Next, Watched};
use super::table::Links;
use crate::Take;
use crate::rings::inbox::SLOTS;
use crate::rings::ring::{BESIDE_HEADER, Peeked};
use tickwire_components::limits::{TURN_FRAMES, WATCHED};
use tickwire_components::{Arrival, ArrivalState, Destination, NIL};

impl Links {
    /// Whether [`Links::drain`] would find something.
    #[inline(always)]
    pub fn ready(&self) -> bool {
        // Reads all places, to avoid a branch: those without a ring point to a word that stays 0.
        let any = self.watched.iter().fold(0, |any, watched| any | watched.word.load()) != 0;
        self.quiet.set(self.quiet.get() | !any);
        any | self.inbox.ready() | !self.backlog.is_empty()
    }

    /// Reads frames into `out`; returns how many. Their payloads stay until [`Links::release`].
    #[inline]
    pub fn drain(&mut self, out: &mut [Arrival]) -> usize {
        let mut count = 0;
        // Behind a frame that arrived alone there is likely none yet. Polling there would fetch a cache line that the writer is about to
        // need, and would wait for it before the frame is handled. If a frame had already arrived when the poll began, more are likely.
        let alone = self.quiet.replace(false);
        let others = !self.backlog.is_empty() || self.inbox.ready();
        // Watched rings, even if always full, leave half of the room to the others. If the room is odd, the odd frame goes to either side
        // in turn.
        self.odd ^= usize::from(others);
        let most = if others { (out.len() + self.odd) / 2 } else { out.len() };
        let share = if others { most.div_ceil(WATCHED) } else { most };
        for place in 0..self.watched_count {
            let Watched { word, link, idle } = self.watched[place];
            if !word.ready() {
                self.watched[place].idle = idle.saturating_add(1);
                continue;
            }
            let end = most.min(count + share);
            count += self.read(link, &mut out[count..end], alone);
            self.watched[place] = Watched { word: self.word_of(link), link, idle: 0 };
        }
        if count == most {
            self.pass_turn(1);
        }
        if others {
            count += self.drain_announced(&mut out[count..]);
        }
        count
    }

    /// Hands frames of the watched rings to `take`, one by one and each with its VC, and releases their space. Only whole messages are
    /// handed out, and frames of messages that their receiver reads. A ring is left at any other kind of frame, and at a frame that `take`
    /// refuses. After `most` frames all rings are left; the next call begins behind the ring that had the last of them. All frames that
    /// [`Links::drain`] has read must have been released.
    ///
    /// Returns how many frames were taken, and whether there are frames that only a drain reads, or that remain because `most` was 0.
    // Not inlined: its loops need all registers. Longer than other functions: it is one loop, and each way out of it leaves the cursors of
    // the ring, the count and the turn in a state of its own.
    #[inline(never)]
    pub fn deliver(&mut self, mut most: u32, take: &mut impl Take) -> (u32, bool) {
        let mut count = 0;
        let mut refused = false;
        for watched in &mut self.watched[..self.watched_count] {
            if !watched.word.ready() {
                watched.idle = watched.idle.saturating_add(1);
                continue;
            }
            let Some(row) = self.rows.get_mut(watched.link as usize).and_then(Option::as_deref_mut) else { continue };
            let first = count;
            loop {
                if count >= most {
                    let link = watched.link;
                    return self.is_spent(link, first, count, refused);
                }
                match row.reader.peek() {
                    Peeked::Whole(header, payload) => {
                        // SAFETY: the ring keeps the payload until it is released, which comes after it was skipped.
                        #[expect(unsafe_code, reason = "a payload that is there until it is skipped")]
                        let taken = unsafe { take.message(&header, payload, row.vc) };
                        if !taken {
                            refused = true;
                            break;
                        }
                        row.reader.skip(payload.len());
                        count += 1;
                        if self.quiet.get() {
                            // The answer is likely as long as this message. As in `drain`, do not poll behind a frame that arrived alone.
                            row.writer.expect(payload.len() as u64);
                            break;
                        }
                        if payload.len() as u64 <= BESIDE_HEADER {
                            row.reader.expect();
                        }
                    }
                    Peeked::None => break,
                    Peeked::Other => {
                        match row.take_other(take) {
                            Next::Left => {
                                refused = true;
                                break;
                            }
                            Next::Taken => count += 1,
                            Next::Stray(run) => {
                                let (vc, link) = (row.vc, watched.link);
                                self.withdraw_elsewhere(vc, run);
                                return self.is_spent(link, first, count + 1, refused);
                            }
                            Next::Asked(waits) => {
                                // It counts as a frame only here, where a peer could send questions without end.
                                most -= 1;
                                (watched.idle, watched.word) = (0, row.next_word());
                                if row.reader.release() {
                                    row.announce();
                                }
                                let link = watched.link;
                                if waits {
                                    note_waiting(&mut self.waiting, &mut self.backlog, link);
                                }
                                if count >= most {
                                    let spent = self.is_spent(link, first, count, refused);
                                    // A ring that had nothing but questions goes behind the others, too.
                                    self.pass_turn(usize::from(count == first));
                                    return spent;
                                }
                            }
                        }
                        if self.quiet.get() {
                            break;
                        }
                    }
                }
            }
            if count > first {
                (watched.idle, watched.word) = (0, row.next_word());
                if row.reader.release() {
                    row.announce();
                }
            }
        }
        self.quiet.set(self.quiet.get() & (count == 0));
        (count, refused | self.inbox.ready() | !self.backlog.is_empty())
    }

    /// Ends a delivery that has handed out as many frames as it may. Those after the `first` ones came from the watched ring of this
    /// connection.
    #[cold]
    #[inline(never)]
    fn is_spent(&mut self, link: u32, first: u32, count: u32, refused: bool) -> (u32, bool) {
        let place = self.place_of(link).unwrap_or(0);
        if count > first
            && let Some(row) = self.rows.get_mut(link as usize).and_then(Option::as_deref_mut)
        {
            self.watched[place] = Watched { word: row.next_word(), link, idle: 0 };
            if row.reader.release() {
                row.announce();
            }
        }
        self.pass_turn(place + usize::from(count > first));
        self.quiet.set(self.quiet.get() & (count == 0));
        (count, refused | (count == 0) | self.inbox.ready() | !self.backlog.is_empty())
    }

    /// Moves the first `served` watched rings behind the others.
    pub(super) fn pass_turn(&mut self, served: usize) {
        let count = self.watched_count;
        let served = served.min(count);
        self.watched[..count].rotate_left(served);
    }

    /// As [`Links::drain`], of one connection only.
    pub fn drain_link(&mut self, link: u32, out: &mut [Arrival]) -> usize {
        if self.row(link).is_none_or(|row| row.vc == NIL) {
            return 0;
        }
        let read = self.read(link, out, false);
        self.rewatch(link);
        read
    }

    /// Reads rings that are not watched: those announced in the inbox, and those of the backlog.
    #[cold]
    #[inline(never)]
    fn drain_announced(&mut self, out: &mut [Arrival]) -> usize {
        // Read as many words as the inbox has: peers that announce without end must not keep the reader here.
        for _ in 0..SLOTS / 64 {
            let Some((first, bits)) = self.inbox.take() else { break };
            for bit in 0..64 {
                let link = first + bit;
                // A peer can set bits that do not belong to it, so only open connections are visited.
                if bits & (1 << bit) != 0 && self.is_open(link) && !self.backlog.contains(&link) {
                    self.backlog.push_back(link);
                }
            }
        }
        let (mut count, mut unknown) = (0, 0);
        // A peer can fill its ring with questions, which are no frames, and need room for none. So visits are bounded too; links that are left
        // are visited by the next call. They also end where no link is left but those without a VC (`unknown`).
        let mut visits = self.backlog.len() + out.len();
        while count < out.len()
            && visits > 0
            && unknown < self.backlog.len()
            && let Some(link) = self.backlog.pop_front()
        {
            visits -= 1;
            match self.row(link) {
                Some(row) if row.vc != NIL => {}
                // The engine is about to hear of this link. Its frames stay in the ring until they have a VC.
                Some(_) => {
                    self.backlog.push_back(link);
                    unknown += 1;
                    continue;
                }
                None => continue,
            }
            let room = out.len() - count;
            let most = if self.backlog.is_empty() { room } else { room.min(TURN_FRAMES) };
            let read = self.read(link, &mut out[count..count + most], false);
            self.rewatch(link);
            count += read;
            if read == most {
                // There may be more frames: the ring is served again after the others.
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

    /// Reads one ring until it is empty or `out` is full. With `alone`, reads one frame only.
    #[inline]
    pub(super) fn read(&mut self, link: u32, out: &mut [Arrival], alone: bool) -> usize {
        let Some(row) = self.rows.get_mut(link as usize).and_then(Option::as_deref_mut) else { return 0 };
        if row.fault.is_some() {
            return 0;
        }
        let (mut count, mut asked) = (0, false);
        for arrival in out {
            match row.reader.read() {
                Ok(Some((header, payload))) => {
                    *arrival =
                        Arrival { header, payload, vc: row.vc, to: Destination::Nobody, state: ArrivalState::New };
                    count += 1;
                    if alone {
                        break;
                    }
                }
                Ok(None) => break,
                Err(corrupt) => {
                    match row.take_questions().and_then(|asked| asked.ok_or(corrupt)) {
                        Ok(waits) => {
                            asked = true;
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
        if row.touched {
            return count;
        }
        if count > 0 {
            row.touched = true;
            self.touched.push(link);
        } else if asked && row.reader.release() {
            // Only frames are released later, by the caller. Questions are none.
            row.announce();
        }
        count
    }

    /// Releases the space of the frames that were read.
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
}
