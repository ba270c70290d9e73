//! What comes: completions, frames in order, and buffers that go back to the provider.

use super::{AHEAD_MAX, Buffer, Early, FAILURES_MAX, Port, Ready};
use crate::ofi::frame::{self, Lead, Preface};
use crate::ofi::{Completion, Failure, ReadError, Refused};
use crate::{Other, Take};
use libfabric_sys as sys;
use std::fmt::Display;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Arrival, ArrivalState, NIL, Row, Span};

/// How long a read waits that makes a descriptor silent, ms: the least there is.
const HUSH_MS: i32 = 1;

/// What takes no frame: all that come wait for a drain.
struct Nobody;

#[expect(unsafe_code, reason = "bytes that are addresses")]
impl Take for Nobody {
    fn now_ns(&mut self) -> u64 {
        0
    }

    #[inline(always)]
    unsafe fn message(&mut self, _: &Header, _: Span, _: Row) -> bool {
        false
    }

    unsafe fn other(&mut self, _: &Header, _: Span, _: Row) -> Other {
        Other::Left
    }

    unsafe fn matched(&mut self, _: &Header, _: Span, _: Row, _: Row) -> bool {
        false
    }
}

/// What takes so many messages more.
struct Bounded<'a, T> {
    take: &'a mut T,
    left: u32,
}

#[expect(unsafe_code, reason = "bytes that are addresses")]
impl<T: Take> Take for Bounded<'_, T> {
    fn now_ns(&mut self) -> u64 {
        self.take.now_ns()
    }

    #[inline(always)]
    unsafe fn message(&mut self, header: &Header, payload: Span, vc: Row) -> bool {
        // SAFETY: by the same contract.
        let taken = self.left > 0 && unsafe { self.take.message(header, payload, vc) };
        self.left -= u32::from(taken);
        taken
    }

    unsafe fn other(&mut self, header: &Header, payload: Span, vc: Row) -> Other {
        // SAFETY: by the same contract.
        unsafe { self.take.other(header, payload, vc) }
    }

    unsafe fn matched(&mut self, header: &Header, payload: Span, vc: Row, receive: Row) -> bool {
        // SAFETY: by the same contract.
        unsafe { self.take.matched(header, payload, vc, receive) }
    }
}

impl Port {
    /// Reads completions, as [`Port::poll`]; few of them, and of nothing but frames, are left to [`Port::deliver`] or
    /// [`Port::drain`].
    #[inline(always)]
    pub(in crate::ofi) fn look(&mut self, most: usize) -> usize {
        match self.look_plainly(1) {
            None => self.poll(most),
            Some(0) => 0,
            Some(count) => {
                self.unread = 0..count;
                // There may be more.
                if count == self.completions.len() { self.poll(most) } else { count }
            }
        }
    }

    /// Reads completions once, and so many times at most while there is none, where nothing is under way but receives;
    /// `None` where something is.
    #[inline(always)]
    pub(in crate::ofi) fn look_plainly(&mut self, looks: u32) -> Option<usize> {
        // Whoever waits for a place to send from needs it now.
        let sends = self.free.len() < self.links.len();
        if sends || self.matching.is_some() || self.is_moving() || self.broken.is_some() || self.has_frames() {
            return None;
        }
        self.begin_look();
        for _ in 0..looks {
            match self.queue.read(&mut self.completions) {
                Ok(0) => self.post(),
                Ok(count) => return Some(count),
                Err(error) => {
                    self.unreadable(error);
                    return None;
                }
            }
        }
        Some(0)
    }

    /// Goes through what [`Port::look_plainly`] has read, and delivers messages; how many, and whether there may be more
    /// completions: the read had no room for others.
    #[inline(always)]
    pub(in crate::ofi) fn take_read(&mut self, count: usize, most: u32, take: &mut impl Take) -> (u32, bool) {
        let mut take = Bounded { take, left: most };
        for index in 0..count {
            self.completed(index, sys::FI_ADDR_NOTAVAIL, &mut take);
        }
        let left = take.left;
        self.post_when_few();
        (most - left, count == self.completions.len())
    }

    /// Reads completions until there is none or `most` have been read, and goes through them; returns how many there were.
    pub(in crate::ofi) fn poll(&mut self, most: usize) -> usize {
        self.begin_look();
        if let Some(matching) = self.matching.as_mut().filter(|matching| matching.may_check()) {
            matching.check(&self.endpoint);
        }
        let mut found = self.unread.len();
        self.go_through();
        let mut sources = std::mem::take(&mut self.sources);
        while found < most && self.broken.is_none() {
            let read = match self.matching {
                None => self.queue.read(&mut self.completions),
                Some(_) => self.queue.read_from(&mut self.completions, &mut sources),
            };
            match read {
                Ok(count) => {
                    found += count;
                    for index in 0..count {
                        self.completed(index, sources[index], &mut Nobody);
                    }
                    if count < self.completions.len() {
                        break;
                    }
                }
                Err(error) => found += self.unreadable(error),
            }
        }
        self.sources = sources;
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

    /// What was held back until this look goes.
    #[inline]
    fn begin_look(&mut self) {
        self.flush();
        if !self.beginning.is_empty() {
            self.send_firsts();
        }
        self.look = self.look.wrapping_add(1);
    }

    /// An operation has failed, or the whole queue; returns how many completions that are.
    #[cold]
    fn unreadable(&mut self, error: ReadError) -> usize {
        match error {
            ReadError::Failed(failure) => {
                self.operation_failed(&failure);
                1
            }
            ReadError::Broken(error) => {
                self.broken = Some(error.to_string());
                0
            }
        }
    }

    /// Goes through the completions that a look has left: what has come is counted then.
    #[inline]
    pub(in crate::ofi) fn go_through(&mut self) {
        while let Some(index) = self.unread.next() {
            self.completed(index, sys::FI_ADDR_NOTAVAIL, &mut Nobody);
        }
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
        self.go_through();
        match self.queue.wait_read(&mut self.completions, HUSH_MS) {
            Ok(count) => {
                self.unread = 0..count;
                self.go_through();
                count == 0 && !self.queue.is_ringing()
            }
            Err(error) => {
                self.unreadable(error);
                false
            }
        }
    }

    /// A completion goes to what it is of, by its context; a frame whose turn it is to `take`, unless others wait.
    // Word by word: a copy of all in wider words than the provider has just written them in waits until those have left the
    // store buffer, behind what it has written to the peer.
    #[inline(always)]
    fn completed(&mut self, index: usize, source: sys::fi_addr_t, take: &mut impl Take) {
        let Some(&Completion { op_context, flags, len, buf, .. }) = self.completions.get(index) else { return };
        let Some(index) = self.contexts.index(op_context) else {
            return self.matched(index, source);
        };
        let slots = self.links.len();
        if index < slots {
            let link = std::mem::replace(&mut self.links[index], NIL);
            self.free.push(index as u32);
            self.blocked = false;
            if !self.beginning.is_empty() {
                self.first_has_left(link, index as u32);
            }
            return;
        }
        self.failures = 0;
        let buffer = index - slots;
        // Held until this is done, so that it is given back once.
        let bytes = if self.receive_flags != 0 {
            // A frame in a buffer for many, or the word that the buffer is full, or both.
            let state = &mut self.buffers[buffer];
            state.held += 1;
            state.done |= flags & sys::FI_MULTI_RECV != 0;
            let bytes = self.receiving.part(buffer, buf, len);
            bytes.filter(|bytes| !bytes.is_empty())
        } else {
            self.buffers[buffer] = Buffer { held: 1, done: true };
            Some(self.receiving.place(buffer).part(0, len))
        };
        if let Some(bytes) = bytes {
            self.arrived(buffer as u32, bytes, take);
        }
        self.give_back(buffer as u32);
    }

    /// A completion of an operation that the provider matches.
    #[inline]
    fn matched(&mut self, index: usize, source: sys::fi_addr_t) {
        if let Some(matching) = &mut self.matching {
            matching.completed(&self.endpoint, &self.completions[index], source);
        }
    }

    /// Bytes have come: a short frame, or another one, or several of those.
    #[inline(always)]
    fn arrived(&mut self, buffer: u32, bytes: Span, take: &mut impl Take) {
        match frame::short_lead(bytes) {
            Some(lead) => self.arrived_one(lead, frame::payload(bytes, &lead).0, buffer, take),
            None => self.arrived_long(buffer, bytes, take),
        }
    }

    #[inline(never)]
    fn arrived_long(&mut self, buffer: u32, mut bytes: Span, take: &mut impl Take) {
        loop {
            let Some(lead) = frame::long_lead(bytes) else {
                self.strays += 1;
                return;
            };
            let (payload, rest) = frame::payload(bytes, &lead);
            self.arrived_one(lead, payload, buffer, take);
            if rest.is_empty() {
                return;
            }
            bytes = rest;
        }
    }

    /// A frame has come.
    #[inline(always)]
    fn arrived_one(&mut self, lead: Lead, payload: Span, buffer: u32, take: &mut impl Take) {
        let Preface { link, token, .. } = lead.preface;
        let Some(lane) = self.lanes.get_mut(link as usize).filter(|lane| lane.mine == token && token != 0) else {
            self.strays += 1;
            return;
        };
        if !lane.open || !lead.is_number(lane.received) {
            return self.out_of_turn(lead, payload, buffer);
        }
        let bytes = lead.length(payload);
        lane.receive(bytes);
        self.moved.1 += bytes;
        // Only what is plain, and that nothing waits before.
        let plain = lead.header.lead == Kind::Eager as u64 && lead.header.length == payload.len() as u64;
        // SAFETY: its buffer is not given back before.
        #[expect(unsafe_code, reason = "a payload that is there until it is given back")]
        let taken = plain && self.frames.is_empty() && unsafe { take.message(&lead.header, payload, lane.vc) };
        if !taken {
            self.keep(Ready { header: lead.header, payload, link, buffer, bytes });
        }
        if !self.early.is_empty() {
            self.settle(link);
        }
    }

    /// A frame that an earlier one is missing before, or that has no business here.
    #[cold]
    fn out_of_turn(&mut self, lead: Lead, payload: Span, buffer: u32) {
        let link = lead.preface.link;
        let due = self.lanes[link as usize].received;
        let number = lead.number(due);
        if number.wrapping_sub(due) < AHEAD_MAX {
            self.buffers[buffer as usize].held += 1;
            let frame = Ready { header: lead.header, payload, link, buffer, bytes: lead.length(payload) };
            return self.early.push(Early { frame, number });
        }
        self.faults.push((link, format!("frame {number} again, {due} is due")));
    }

    /// A frame whose turn it is waits until it is drained; its buffer is held for it.
    #[inline]
    fn keep(&mut self, frame: Ready) {
        if frame.header == frame::FIRST {
            return;
        }
        match frame::check(&frame.header, frame.payload) {
            Ok(()) => {
                self.buffers[frame.buffer as usize].held += 1;
                self.frames.push_back(frame);
            }
            Err(words) => self.faults.push((frame.link, format!("corrupt bytes: {words}"))),
        }
    }

    /// Takes frames whose turn has come.
    #[cold]
    pub(super) fn settle(&mut self, link: u32) {
        loop {
            let lane = &mut self.lanes[link as usize];
            let due = |early: &Early| early.frame.link == link && early.number == lane.received;
            let Some(found) = self.early.iter().position(due) else { return };
            let Early { frame, .. } = self.early.swap_remove(found);
            lane.receive(frame.bytes);
            self.moved.1 += frame.bytes;
            let buffer = frame.buffer;
            self.keep(frame);
            self.give_back(buffer);
        }
    }

    #[cold]
    fn operation_failed(&mut self, failure: &Failure) {
        let Some(index) = self.contexts.index(failure.context) else {
            if let Some(matching) = &mut self.matching {
                matching.failed(&self.endpoint, failure);
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
                (lane.failed, lane.ready) = (true, false);
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
    ///
    /// Of frames that wait for an earlier one, the link that misses that is to blame.
    pub(in crate::ofi) fn is_starved(&self, link: u32) -> bool {
        let blamed = self.frames.is_empty() && self.has_gap(link);
        !blamed && self.buffers.iter().all(|buffer| buffer.held > 0)
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
        self.go_through();
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
            let Some(Ready { header, payload, link, buffer, .. }) = self.frames.remove(at) else { break };
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
            && let Some(Ready { header, payload, link, buffer, .. }) = self.frames.front()
        {
            let plain = header.lead == Kind::Eager as u64;
            // SAFETY: its buffer is given back below.
            #[expect(unsafe_code, reason = "a payload that is there until it is given back")]
            let taken = plain && unsafe { take.message(header, *payload, self.lanes[*link as usize].vc) };
            if !taken {
                break;
            }
            let buffer = *buffer;
            self.frames.pop_front();
            self.give_back(buffer);
            count += 1;
        }
        let mut next = Bounded { take: &mut *take, left: most - count };
        while self.frames.is_empty()
            && let Some(index) = self.unread.next()
        {
            self.completed(index, sys::FI_ADDR_NOTAVAIL, &mut next);
        }
        count = most - next.left;
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

    /// Drops what has come: all links are being closed.
    pub(in crate::ofi) fn forget_frames(&mut self) {
        self.release();
        self.go_through();
        while let Some(frame) = self.frames.pop_front() {
            self.give_back(frame.buffer);
        }
        self.post();
    }
}
