//! Frames that have arrived. Each is checked, and kept until all earlier frames of its link have arrived.

use super::Port;
use super::lane::{Early, Ready};
use crate::Take;
use crate::ofi::frame::{self, Lead, Preface};
use tickwire_components::Span;
use tickwire_components::wire::Kind;

/// How far a frame's number may be ahead of the next expected number. A short frame carries only 15 bits of its number, so it may be a
/// quarter of that ahead. Credit keeps frames below both bounds.
const AHEAD_MAX: u32 = 1 << 16;

impl Port {
    /// Handles bytes that have arrived: one short frame, or one or several long frames.
    #[inline(always)]
    pub(super) fn arrived(&mut self, buffer: u32, bytes: Span, take: &mut impl Take) {
        match frame::short_lead(bytes) {
            Some(lead) => self.arrived_one(lead, frame::payload(bytes, &lead).0, buffer, take),
            None => self.arrived_long(buffer, bytes, take),
        }
    }

    /// As [`Port::arrived`], for frames that are not short. They lie one behind the other.
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

    /// Handles one frame that has arrived. `take` gets it at once if possible; otherwise it is kept.
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
        // `take` gets only a whole message without flags, and only if no other frame waits.
        let plain = lead.header.lead == Kind::Eager as u64 && lead.header.length == payload.len() as u64;
        // SAFETY: the buffer is given back after this.
        #[expect(unsafe_code, reason = "a payload that is there until it is given back")]
        let taken = plain && self.frames.is_empty() && unsafe { take.message(&lead.header, payload, lane.vc) };
        if !taken {
            self.keep(Ready { header: lead.header, payload, link, buffer, bytes });
        }
        if !self.early.is_empty() {
            self.keep_due(link);
        }
    }

    /// Handles a frame that arrived before an earlier one, or whose number is wrong. The first is kept; the second is a fault of the link.
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

    /// Keeps a frame, whose predecessors have all arrived, until it is drained. Its buffer is held for it.
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

    /// Moves the early frames of a link to `frames` once their predecessors have arrived.
    #[cold]
    pub(super) fn keep_due(&mut self, link: u32) {
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
}
