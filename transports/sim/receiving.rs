//! Incoming frames: what happens to them, when they are due, and how they are handed out.

use super::lane::{Lane, Late, corrupt};
use super::{Corruption, Sim, SplitMix, bytes, span};
use crate::rings::ring::is_of_read;
use crate::{Other, Take, Transport};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Arrival, ArrivalState, Row, Span};

impl<T: Transport> Sim<T> {
    /// Takes all frames of the wrapped transport, and decides when they are due.
    pub(super) fn take_in(&mut self, now_ns: u64) {
        loop {
            let count = self.inner.drain(now_ns, &mut self.scratch);
            for index in 0..count {
                let Arrival { header, payload, vc, .. } = self.scratch[index];
                self.take_frame(now_ns, header, bytes(payload), vc);
            }
            self.inner.release();
            if count < self.scratch.len() {
                break;
            }
        }
        let config = self.net.config();
        if config.credit_portion > 0 {
            for lane in self.lanes.values_mut() {
                let due_ns = now_ns.saturating_add(self.random.within(&config.delay_ns));
                lane.remind(now_ns, due_ns, config.credit_portion, &mut self.random);
            }
        }
    }

    /// Decides what happens to a frame of the wrapped transport, and when.
    fn take_frame(&mut self, now_ns: u64, mut header: Header, mut payload: Box<[u8]>, vc: Row) {
        let config = self.net.config();
        let Some(link) = self.links.iter_mut().find(|link| link.vc == vc && !link.over) else { return };
        if link.failed.is_some() {
            return;
        }
        // What happens to a frame follows from its number on its way from sender to receiver. It does not depend on when it was polled, nor
        // on how much credit went in frames of its own.
        link.frames += u64::from(header.kind() != Some(Kind::Credit));
        let way = u64::from(link.proc) << 48 ^ u64::from(self.me) << 32 ^ link.frames;
        let mut random = SplitMix::new(config.seed ^ way.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let due_ns = now_ns.saturating_add(random.within(&config.delay_ns));
        if config.corrupt_of_65536 > 0
            && header.kind() != Some(Kind::Credit)
            && random.below(65536) < config.corrupt_of_65536.into()
            && corrupt(config.corruption, &mut header, &mut payload, &mut random)
        {
            self.net.corrupts(link.proc, self.me);
            if config.corruption == Corruption::Header && header.payload() != payload.len() as u64 {
                link.failed = Some("a frame of another length than it says".into());
                return;
            }
        }
        let lane = self.lanes.entry(vc).or_insert_with(|| Lane::new(link.proc));
        if config.credit_portion > 0 {
            header = lane.portion(header, config.credit_portion, &mut random);
        }
        lane.push(due_ns, header, payload);
    }

    /// The VC whose frame is handed out next.
    fn next_lane(&mut self, now_ns: u64, only: Option<Row>) -> Option<Row> {
        let due = |(vc, lane): &(&Row, &Lane)| only.is_none_or(|only| only == **vc) && lane.is_due(now_ns);
        let mut due = self.lanes.iter().filter(due).map(|(vc, _)| *vc);
        if !self.net.config().shuffled {
            let last = self.last;
            return due.clone().find(|vc| *vc > last).or_else(|| due.next());
        }
        let count = due.clone().count() as u64;
        if count == 0 { None } else { due.nth(self.random.below(count) as usize) }
    }

    /// Hands out the frames that are due.
    pub(super) fn deliver(&mut self, now_ns: u64, out: &mut [Arrival], only: Option<Row>) -> usize {
        let mut count = 0;
        while count < out.len()
            && let Some(vc) = self.next_lane(now_ns, only)
        {
            self.last = vc;
            let Some(lane) = self.lanes.get_mut(&vc) else { break };
            let Some(late) = lane.frames.pop_front() else { break };
            self.net.lands(lane.proc, self.me, &late.header);
            // Take its address only now that it will not move.
            self.delivered.push(late.payload);
            let payload = self.delivered.last_mut().map_or(Span::EMPTY, |payload| span(payload));
            let state = ArrivalState::New;
            out[count] = Arrival { header: late.header, payload, vc, state, ..Arrival::default() };
            count += 1;
        }
        count
    }

    /// Hands frames that are due to `take`, one by one, as long as `take` accepts them. Returns how many, and whether any may be left.
    pub(super) fn hand_over(&mut self, now_ns: u64, most: u32, take: &mut impl Take) -> (u32, bool) {
        for count in 0..most {
            let Some(vc) = self.next_lane(now_ns, None) else { return (count, !self.lanes.is_empty()) };
            let Some(lane) = self.lanes.get_mut(&vc) else { break };
            let from = lane.proc;
            let Some(late) = lane.frames.pop_front() else { break };
            let Late { header, mut payload, due_ns } = late;
            // SAFETY: the payload is of this call until the frame is put back or dropped.
            #[expect(unsafe_code, reason = "payloads are addresses")]
            let taken = unsafe {
                match header.lead {
                    lead if lead == Kind::Eager as u64 => take.message(&header, span(&mut payload), vc),
                    lead if is_of_read(lead, header.length) => match take.other(&header, span(&mut payload), vc) {
                        Other::Left => false,
                        Other::Taken => true,
                        Other::Ended(run) => {
                            self.net.withdraw(self.me, from, run);
                            true
                        }
                    },
                    _ => false,
                }
            };
            let Some(lane) = self.lanes.get_mut(&vc) else { break };
            if !taken {
                lane.frames.push_front(Late { header, payload, due_ns });
                return (count, true);
            }
            self.last = vc;
            self.net.lands(lane.proc, self.me, &header);
        }
        (most, true)
    }
}
