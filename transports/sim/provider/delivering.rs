//! Hands out messages of a simulated provider one by one, as a provider's completions arrive.

use super::{Completed, Provider};
use crate::sim::span;
use crate::{Take, Transport};
use tickwire_components::wire::{Header, Kind};

impl<T: Transport> Provider<T> {
    /// Hands whole messages without flags that can be read to `take`, matched or not, until another kind is next, `take` refuses one, or
    /// `most` were taken. Returns how many were taken, and whether there is something that only a drain reads.
    pub(super) fn hand_over(&mut self, most: u32, take: &mut impl Take) -> (u32, bool) {
        let mut count = 0;
        while count < most
            && self.claimed.is_empty()
            && let Some((due_ns, completed)) = self.completed.front_mut()
            && *due_ns <= self.now_ns
        {
            let is_plain = |header: &Header| header.lead == Kind::Eager as u64;
            // SAFETY: the payload is here until the message is taken out below.
            #[expect(unsafe_code, reason = "payloads are addresses")]
            let taken = unsafe {
                match completed {
                    Completed::Frame(header, payload, vc) => {
                        is_plain(header) && take.message(header, span(payload), *vc)
                    }
                    Completed::Matched(row, header, payload, vc) => {
                        is_plain(header) && take.matched(header, span(payload), *vc, *row)
                    }
                    Completed::Recalled(_) => false,
                }
            };
            if !taken {
                break;
            }
            self.completed.pop_front();
            count += 1;
        }
        (count, !(self.completed.is_empty() && self.claimed.is_empty()))
    }
}
