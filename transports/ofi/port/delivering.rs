//! Hands frames that have arrived to the engine, and returns their buffers afterwards.

use super::Port;
use super::lane::Ready;
use super::taking::Bounded;
use crate::Take;
use libfabric_sys as sys;
use tickwire_components::wire::Kind;
use tickwire_components::{Arrival, ArrivalState, NIL};

impl Port {
    /// Hands out frames that have arrived, as arrivals: those of all links, or of one link. Their payloads stay valid until
    /// [`Port::release`].
    pub(in crate::ofi) fn drain(&mut self, arrivals: &mut [Arrival], only: Option<u32>) -> usize {
        self.go_through();
        // Completed long messages come first, since the goodbye of their link may be among the frames.
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

    /// Hands whole messages without flags to `take`, in order, until `take` refuses one or `most` were taken. Returns how many were taken,
    /// and whether anything is left that only [`Port::drain`] can hand out.
    #[inline]
    pub(in crate::ofi) fn deliver(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        let mut count = 0;
        while count < most
            && let Some(Ready { header, payload, link, buffer, .. }) = self.frames.front()
        {
            let plain = header.lead == Kind::Eager as u64;
            // SAFETY: the buffer is given back below.
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

    /// The engine no longer uses the payloads that [`Port::drain`] has handed out: their buffers are free.
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

    /// Drops all frames that have arrived, because all links are being closed.
    pub(in crate::ofi) fn forget_frames(&mut self) {
        self.release();
        self.go_through();
        while let Some(frame) = self.frames.pop_front() {
            self.give_back(frame.buffer);
        }
        self.post();
    }
}
