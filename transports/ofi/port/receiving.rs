//! Handling of completions: sends that have left, buffers with frames, and receives that the provider matches. Also posts buffers again.

use super::lane::Buffer;
use super::{ENDED, Port};
use crate::Take;
use crate::ofi::{Completion, Failure, Refused};
use libfabric_sys as sys;
use std::fmt::Display;
use tickwire_components::NIL;
use tickwire_components::limits::FABRIC_RECEIVE_FAILURES_MAX;

impl Port {
    /// Handles a completion, whose context tells which operation it belongs to. A frame whose predecessors have all arrived goes to `take`,
    /// unless other frames wait.
    // Field by field: the provider has just written the completion in single words. A copy in wider words would wait until those
    // have left the store buffer, behind all that the provider has written to the peer.
    #[inline(always)]
    pub(super) fn completed(&mut self, index: usize, source: sys::fi_addr_t, take: &mut impl Take) {
        let Some(&Completion { op_context, flags, len, buf, .. }) = self.completions.get(index) else { return };
        let Some(index) = self.contexts.index(op_context) else {
            return self.matched(index, source);
        };
        let slots = self.links.len();
        if index < slots {
            let link = std::mem::replace(&mut self.links[index], NIL);
            self.free.push(index as u32);
            self.blocked = false;
            self.sends_ended -= usize::from(link == ENDED);
            if !self.beginning.is_empty() {
                self.first_has_left(link, index as u32);
            }
            return;
        }
        self.failures = 0;
        let buffer = index - slots;
        // Hold the buffer during the call, so that it is given back only once.
        let bytes = if self.receive_flags != 0 {
            // The completion reports a frame in a buffer for many, or that the buffer is full, or both.
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

    /// Handles a completion of an operation of tagged mode.
    #[inline]
    fn matched(&mut self, index: usize, source: sys::fi_addr_t) {
        if let Some(matching) = &mut self.matching {
            matching.completed(&self.endpoint, &self.completions[index], source);
        }
    }

    /// Handles the failure of a send or a receive.
    #[cold]
    pub(super) fn operation_failed(&mut self, failure: &Failure) {
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
            self.sends_ended -= usize::from(link == ENDED);
            if let Some(lane) = self.lanes.get_mut(link as usize).filter(|lane| lane.open && !lane.failed) {
                (lane.failed, lane.ready) = (true, false);
                self.faults.push((link, format!("provider {}: {}", self.provider(), failure.words)));
            }
            return;
        }
        let buffer = &mut self.buffers[index - slots];
        // A buffer for many frames may receive further ones after a failed one.
        let over = self.receive_flags == 0 || failure.flags & sys::FI_MULTI_RECV != 0;
        if over && !std::mem::replace(&mut buffer.done, true) && buffer.held == 0 {
            self.idle.push((index - slots) as u32);
        }
        self.strays += 1;
        // Anybody may send more than there is room for. That is no failure of the provider.
        if failure.code != sys::FI_ETRUNC as i32 {
            self.receive_failed(&failure.words);
        }
    }

    /// A receive could not be posted, or has failed.
    #[cold]
    pub(super) fn receive_failed(&mut self, words: &dyn Display) {
        self.failures += 1;
        if self.failures > FABRIC_RECEIVE_FAILURES_MAX {
            self.broken = Some(format!("provider {} fails to receive: {words}", self.provider()));
        }
    }

    /// A frame of a buffer is no longer used. After the last one, the buffer is free.
    #[inline]
    pub(super) fn give_back(&mut self, index: u32) {
        let buffer = &mut self.buffers[index as usize];
        buffer.held -= 1;
        if buffer.held == 0 && buffer.done {
            match (index as usize).checked_sub(self.posted) {
                None => self.idle.push(index),
                Some(copy) => self.free_copies.push(copy as u32),
            }
        }
    }

    /// Whether all buffers are in use, so that nothing can be received. `false` for a link that causes this itself: its frames hold the
    /// buffers while they wait for an earlier frame.
    pub(in crate::ofi) fn is_starved(&self, link: u32) -> bool {
        let blamed = self.frames.is_empty() && self.has_gap(link);
        !blamed && self.buffers[..self.posted].iter().all(|buffer| buffer.held > 0)
    }

    /// The link whose early frames hold the most buffers, if frames that wait for earlier ones hold all of them: the earlier ones cannot
    /// arrive then, nor anything else.
    pub(in crate::ofi) fn choked_by(&self) -> Option<u32> {
        let is_choked =
            !self.early.is_empty() && self.frames.is_empty() && self.lent.is_empty() && self.unread.is_empty();
        if !is_choked || !self.buffers[..self.posted].iter().all(|buffer| buffer.held > 0) {
            return None;
        }
        let held_for = |link: u32| self.early.iter().filter(|early| early.frame.link == link).count();
        self.early.iter().map(|early| early.frame.link).max_by_key(|&link| held_for(link))
    }

    /// Posts the idle buffers if at least half of all are idle. If fewer are, a poll that finds nothing posts them, so that posting delays
    /// no answer.
    #[inline]
    pub(super) fn post_when_few(&mut self) {
        if 2 * self.idle.len() >= self.posted {
            self.post();
        }
    }

    /// Posts all idle buffers.
    #[inline]
    pub(in crate::ofi) fn post(&mut self) {
        while let Some(&index) = self.idle.last() {
            let context = self.contexts.of(self.links.len() + index as usize);
            let place = self.receiving.place(index as usize);
            // SAFETY: place and context belong to the buffer, which nobody uses; it is used again only after the
            // completion, and the endpoint is closed before they are freed.
            #[expect(unsafe_code, reason = "FFI")]
            let posted = unsafe { self.endpoint.receive(place, self.descriptors.buffers, self.receive_flags, context) };
            match posted {
                Ok(()) => {
                    self.idle.pop();
                    self.buffers[index as usize] = Buffer::default();
                }
                Err(Refused::Again) => return,
                // With `ofi_rxm`, posting a receive fails if it matches a message of a peer that has died. The next one may succeed.
                Err(Refused::Failed(error)) => return self.receive_failed(&error),
            }
        }
    }
}
