//! Frames of one VC in flight: when they are due, the credit that is held back from them, and their corruption.

use super::random::SplitMix;
use super::state::Corruption;
use std::collections::VecDeque;
use tickwire_components::NIL;
use tickwire_components::credit::Credit;
use tickwire_components::wire::{Header, Kind};

/// Time between two frames that carry only held-back credit, in ns.
const REMINDER_NS: u64 = 500_000;

/// The fields of credit in the first word of a header.
const CREDIT_BITS: u64 = 0xFFFF_FFFF << 32;

/// A frame in flight.
pub(super) struct Late {
    pub(super) due_ns: u64,
    pub(super) header: Header,
    pub(super) payload: Box<[u8]>,
}

/// Frames of one VC in flight, in their order.
pub(super) struct Lane {
    /// The sender.
    pub(super) proc: u32,
    pub(super) frames: VecDeque<Late>,
    /// When the last of them is due. No later frame is due before that.
    due_ns: u64,
    /// Credit that was taken from frames and not given to others yet.
    pub(super) kept: Credit,
    /// No frame that carries only credit is made before this, in ns.
    reminded_ns: u64,
}

impl Lane {
    pub(super) fn new(proc: u32) -> Self {
        Lane { proc, frames: VecDeque::new(), due_ns: 0, kept: Credit::NONE, reminded_ns: 0 }
    }

    /// Adds a frame that is due at `due_ns`, but not before the frame before it.
    pub(super) fn push(&mut self, due_ns: u64, header: Header, payload: Box<[u8]>) {
        self.due_ns = self.due_ns.max(due_ns);
        self.frames.push_back(Late { due_ns: self.due_ns, header, payload });
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.frames.front().is_some_and(|late| late.due_ns <= now_ns)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.kept.is_none()
    }

    /// Takes the credit out of a frame, and puts a portion of all held-back credit into it.
    pub(super) fn portion(&mut self, header: Header, portion: u16, random: &mut SplitMix) -> Header {
        let credit = header.credit();
        self.kept.lines += credit.lines;
        self.kept.envelopes += credit.envelopes;
        let bare = Header { lead: header.lead & !CREDIT_BITS, ..header };
        let mut part = |all: u32| random.below(u64::from(portion) + 1).min(all.into()) as u32;
        let part = Credit { lines: part(self.kept.lines), envelopes: part(self.kept.envelopes) };
        self.kept.lines -= part.lines;
        self.kept.envelopes -= part.envelopes;
        bare.with_credit(part).0
    }

    /// Adds, now and then, a frame with a portion of the held-back credit, once no other frame can carry any.
    pub(super) fn remind(&mut self, now_ns: u64, due_ns: u64, portion: u16, random: &mut SplitMix) {
        if self.frames.is_empty() && !self.kept.is_none() && self.reminded_ns <= now_ns {
            self.reminded_ns = now_ns + REMINDER_NS;
            let header = self.portion(Header::new(Kind::Credit, 0, 0, 0, 0, 0), portion, random);
            self.push(due_ns, header, Box::default());
        }
    }
}

/// Corrupts a frame. `false` if there is nothing to change.
pub(super) fn corrupt(how: Corruption, header: &mut Header, payload: &mut [u8], random: &mut SplitMix) -> bool {
    match how {
        Corruption::Refused => refused(header, random),
        Corruption::Header => {
            let bit = random.below(256);
            let words = [&mut header.lead, &mut header.origin, &mut header.name, &mut header.length];
            for (index, word) in (0..).zip(words) {
                *word ^= u64::from(bit / 64 == index) << (bit % 64);
            }
        }
        // The payload of an offer is an address, and a wrong address is refused anyway.
        Corruption::Payload if payload.is_empty() || header.kind() == Some(Kind::Rts) => return false,
        Corruption::Payload => {
            let place = random.below(payload.len() as u64) as usize;
            payload[place] ^= 1 << random.below(8);
        }
    }
    true
}

/// Makes a header impossible: an unknown kind, an invalid tag, or a CAR that does not exist.
fn refused(header: &mut Header, random: &mut SplitMix) {
    match header.kind() {
        Some(Kind::Eager | Kind::Rts) if random.below(2) == 0 => header.name |= 1 << 31,
        Some(Kind::Cts | Kind::Piece | Kind::Done | Kind::Nack | Kind::Stop) if random.below(2) == 0 => {
            header.name |= u64::from(NIL) << 32;
        }
        _ => header.lead = header.lead & !0xFF | (64 + random.below(128)),
    }
}
