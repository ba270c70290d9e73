//! What comes: completions, frames in order, and buffers that go back to the provider.

use super::{AHEAD_MAX, Buffer, Early, FAILURES_MAX, Port, Ready};
use crate::Take;
use crate::ofi::frame;
use crate::ofi::{Completion, Failure, ReadError, Refused};
use libfabric_sys as sys;
use std::fmt::Display;
use tickwire_components::wire::Kind;
use tickwire_components::{Arrival, ArrivalState, NIL, Span};

/// How long a read waits that makes a descriptor silent, ms: the least there is.
const HUSH_MS: i32 = 1;

impl Port {
    /// Reads completions until there is none or `most` have been read; returns how many there were.
    pub(in crate::ofi) fn poll(&mut self, most: usize) -> usize {
        self.flush();
        self.look = self.look.wrapping_add(1);
        let mut found = 0;
        let mut completions = std::mem::take(&mut self.completions);
        let mut sources = std::mem::take(&mut self.sources);
        while found < most && self.broken.is_none() {
            let read = match self.matching {
                None => self.queue.read(&mut completions),
                Some(_) => self.queue.read_from(&mut completions, &mut sources),
            };
            match read {
                Ok(count) => {
                    found += count;
                    for (completion, source) in completions[..count].iter().zip(&sources) {
                        self.completed(completion, *source);
                    }
                    if count < completions.len() {
                        break;
                    }
                }
                Err(ReadError::Failed(failure)) => {
                    found += 1;
                    self.operation_failed(&failure);
                }
                Err(ReadError::Broken(error)) => self.broken = Some(error.to_string()),
            }
        }
        (self.completions, self.sources) = (completions, sources);
        if self.is_moving() {
            found += self.poll_moving();
        }
        if let Some(words) = self.matching.as_mut().and_then(|matching| matching.broken.take()) {
            self.broken = Some(words);
        }
        if self.broken.is_some()
            && let Some(matching) = &mut self.matching
        {
            matching.give_all_back();
        }
        match found {
            0 => self.post(),
            _ => self.post_when_few(),
        }
        found
    }

    /// Makes the queue's descriptor silent that rings although there is nothing; `false` if it does not become so, or if there
    /// was something.
    ///
    /// With `net` of libfabric 1.17 it rings from the first completion on: `fi_trywait` leaves it as it is, and only a read that
    /// waits does not.
    #[cold]
    pub(in crate::ofi) fn hush(&mut self) -> bool {
        if self.matching.is_some() {
            return false;
        }
        let mut completions = std::mem::take(&mut self.completions);
        let read = self.queue.wait_read(&mut completions, HUSH_MS);
        if let Ok(count) = read {
            for completion in &completions[..count] {
                self.completed(completion, sys::FI_ADDR_NOTAVAIL);
            }
        }
        self.completions = completions;
        match read {
            Ok(count) => count == 0 && !self.queue.is_ringing(),
            Err(ReadError::Failed(failure)) => {
                self.operation_failed(&failure);
                false
            }
            Err(ReadError::Broken(error)) => {
                self.broken = Some(error.to_string());
                false
            }
        }
    }

    /// A completion goes to what it is of, by its context.
    #[inline]
    fn completed(&mut self, completion: &Completion, source: sys::fi_addr_t) {
        let Some(index) = self.contexts.index(completion.op_context) else {
            if let Some(matching) = &mut self.matching {
                matching.completed(&self.endpoint, completion, source);
            }
            return;
        };
        let slots = self.links.len();
        if index < slots {
            self.links[index] = NIL;
            self.free.push(index as u32);
            self.blocked = false;
            return;
        }
        self.failures = 0;
        let buffer = index - slots;
        if self.receive_flags != 0 {
            return self.completed_multi(buffer, completion);
        }
        self.buffers[buffer] = Buffer { held: 1, done: true };
        let place = self.receiving.place(buffer);
        self.arrived(buffer as u32, place.part(0, completion.len));
    }

    /// A frame in a buffer for many, or the word that the buffer is full, or both.
    #[inline]
    fn completed_multi(&mut self, buffer: usize, completion: &Completion) {
        // Held until this is done, so that it is given back once.
        self.buffers[buffer].held += 1;
        self.buffers[buffer].done |= completion.flags & sys::FI_MULTI_RECV != 0;
        if completion.len > 0
            && let Some(bytes) = self.receiving.part(buffer, completion.buf, completion.len)
        {
            self.buffers[buffer].held += 1;
            self.arrived(buffer as u32, bytes);
        }
        self.give_back(buffer as u32);
    }

    /// Bytes have come: frames that their buffer is held for once by now.
    #[inline]
    fn arrived(&mut self, buffer: u32, mut bytes: Span) {
        loop {
            let (frame, rest) = frame::split(bytes);
            self.buffers[buffer as usize].held += u32::from(!rest.is_empty());
            self.arrived_one(buffer, frame);
            if rest.is_empty() {
                return;
            }
            bytes = rest;
        }
    }

    /// A frame has come.
    #[inline]
    fn arrived_one(&mut self, buffer: u32, bytes: Span) {
        let said = frame::preface(bytes);
        let lane =
            said.and_then(|said| self.lanes.get(said.link as usize).filter(|l| l.mine == said.token && l.mine != 0));
        let (Some(said), Some(lane)) = (said, lane) else {
            self.strays += 1;
            return self.give_back(buffer);
        };
        let ahead = said.number.wrapping_sub(lane.received);
        if lane.open && ahead == 0 {
            self.accept(said.link, buffer, bytes);
            if !self.early.is_empty() {
                self.settle(said.link);
            }
        } else if ahead < AHEAD_MAX {
            self.early.push(Early { link: said.link, number: said.number, bytes, buffer });
        } else {
            self.give_back(buffer);
            self.faults
                .push((said.link, format!("frame {} again, {} is due", said.number, said.number.wrapping_sub(ahead))));
        }
    }

    /// Takes the frame that is due.
    #[inline]
    fn accept(&mut self, link: u32, buffer: u32, bytes: Span) {
        let lane = &mut self.lanes[link as usize];
        lane.received = lane.received.wrapping_add(1);
        lane.traffic.received += bytes.len() as u64;
        self.moved.1 += bytes.len() as u64;
        match frame::content(bytes) {
            Ok((header, payload)) => self.frames.push_back(Ready { header, payload, link, buffer }),
            Err(words) => {
                self.give_back(buffer);
                self.faults.push((link, format!("corrupt bytes: {words}")));
            }
        }
    }

    /// Takes frames whose turn has come.
    #[cold]
    pub(super) fn settle(&mut self, link: u32) {
        loop {
            let due = self.lanes[link as usize].received;
            let found = self.early.iter().position(|early| early.link == link && early.number == due);
            let Some(found) = found else { return };
            let early = self.early.swap_remove(found);
            self.accept(link, early.buffer, early.bytes);
        }
    }

    #[cold]
    fn operation_failed(&mut self, failure: &Failure) {
        let Some(index) = self.contexts.index(failure.context) else {
            if let Some(matching) = &mut self.matching {
                matching.failed(failure);
            }
            return;
        };
        let slots = self.links.len();
        if index < slots {
            let link = std::mem::replace(&mut self.links[index], NIL);
            if link == NIL {
                return;
            }
            self.free.push(index as u32);
            self.blocked = false;
            if let Some(lane) = self.lanes.get_mut(link as usize).filter(|lane| lane.open && !lane.failed) {
                lane.failed = true;
                self.faults.push((link, format!("provider {}: {}", self.provider(), failure.words)));
            }
            return;
        }
        let buffer = &mut self.buffers[index - slots];
        // A buffer for many frames may take others after one that failed.
        let over = self.receive_flags == 0 || failure.flags & sys::FI_MULTI_RECV != 0;
        if over && !std::mem::replace(&mut buffer.done, true) && buffer.held == 0 {
            self.idle.push((index - slots) as u32);
        }
        self.strays += 1;
        self.receive_failed(&failure.words);
    }

    #[cold]
    fn receive_failed(&mut self, words: &dyn Display) {
        self.failures += 1;
        if self.failures > FAILURES_MAX {
            self.broken = Some(format!("provider {} fails to receive: {words}", self.provider()));
        }
    }

    /// A frame has been used.
    #[inline]
    pub(super) fn give_back(&mut self, index: u32) {
        let buffer = &mut self.buffers[index as usize];
        buffer.held -= 1;
        if buffer.held == 0 && buffer.done {
            self.idle.push(index);
        }
    }

    /// Whether all buffers are in use, so that nothing can come.
    pub(in crate::ofi) fn is_starved(&self) -> bool {
        self.buffers.iter().all(|buffer| buffer.held > 0)
    }

    /// As [`Port::post`], where many are due: else that waits for a look that finds nothing, and not an answer for it.
    #[inline]
    fn post_when_few(&mut self) {
        if 2 * self.idle.len() >= self.buffers.len() {
            self.post();
        }
    }

    /// Gives buffers to the provider.
    #[inline]
    pub(in crate::ofi) fn post(&mut self) {
        while let Some(&index) = self.idle.last() {
            let context = self.contexts.of(self.links.len() + index as usize);
            let place = self.receiving.place(index as usize);
            // SAFETY: place and context belong to the buffer, which nobody uses; it is used again only after the
            // completion, and the endpoint is closed before they are freed.
            #[expect(unsafe_code, reason = "FFI")]
            let posted = unsafe { self.endpoint.receive(place, self.descriptors[1], self.receive_flags, context) };
            match posted {
                Ok(()) => {
                    self.idle.pop();
                    self.buffers[index as usize] = Buffer::default();
                }
                Err(Refused::Again) => return,
                // A receive that meets a message of a peer that has died fails with `ofi_rxm`. The next one may not.
                Err(Refused::Failed(error)) => return self.receive_failed(&error),
            }
        }
    }

    /// Frames that have come, as arrivals; their payloads stay until [`Port::release`].
    pub(in crate::ofi) fn drain(&mut self, arrivals: &mut [Arrival], only: Option<u32>) -> usize {
        // First: a goodbye may be among the frames.
        let mut count = self.drain_done(arrivals, only);
        let mut at = 0;
        while count < arrivals.len()
            && let Some(frame) = self.frames.get(at)
        {
            if only.is_some_and(|link| link != frame.link) {
                at += 1;
                continue;
            }
            let Some(Ready { header, payload, link, buffer }) = self.frames.remove(at) else { break };
            self.lent.push(buffer);
            let vc = self.lanes[link as usize].vc;
            arrivals[count] = Arrival { header, payload, vc, state: ArrivalState::New, ..Arrival::default() };
            count += 1;
        }
        if let Some(matching) = &mut self.matching {
            let vcs = &self.vcs;
            count += matching.drain(&mut arrivals[count..], |from| vcs.get(from as usize).copied().unwrap_or(NIL));
        }
        count
    }

    /// Whole messages without further signs, one after another, while they are taken.
    #[inline]
    pub(in crate::ofi) fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        let mut count = 0;
        while count < most
            && let Some(Ready { header, payload, link, buffer }) = self.frames.front()
        {
            let plain = header.lead == Kind::Eager as u64;
            if !plain || !take.message(header, *payload, self.lanes[*link as usize].vc) {
                break;
            }
            let buffer = *buffer;
            self.frames.pop_front();
            self.give_back(buffer);
            count += 1;
        }
        if let Some(matching) = &mut self.matching {
            let vcs = &self.vcs;
            count += matching.deliver(most - count, take, |from| vcs.get(from as usize).copied().unwrap_or(NIL));
        }
        if count > 0 {
            self.post_when_few();
        }
        (count, self.has_frames() || self.has_news())
    }

    #[inline]
    pub(in crate::ofi) fn release(&mut self) {
        if let Some(matching) = &mut self.matching {
            matching.release();
        }
        if self.lent.is_empty() {
            return;
        }
        while let Some(buffer) = self.lent.pop() {
            self.give_back(buffer);
        }
        self.post_when_few();
    }

    /// Drops what has come: its link is being closed.
    pub(in crate::ofi) fn forget_frames(&mut self) {
        self.release();
        while let Some(frame) = self.frames.pop_front() {
            self.give_back(frame.buffer);
        }
        self.post();
    }
}
