//! Credit that is written into the peer's memory, as transports with window values do. It needs no frame, and takes time as frames do.

use super::net::{SimNet, combine};
use super::{Sim, SplitMix};
use crate::{CreditWindows, Transport};
use tickwire_components::credit::Credit;

impl SimNet {
    /// A proc grants credit to another one, which may collect it from `due_ns` on.
    fn grants(&self, from: u32, to: u32, due_ns: u64, credit: Credit) {
        let mut state = self.lock();
        let pair = state.pairs.entry((from, to)).or_default();
        // A total that is written later cannot be read earlier.
        let due_ns = pair.grants.back().map_or(due_ns, |&(before_ns, _)| due_ns.max(before_ns));
        pair.grants.push_back((due_ns, credit));
        pair.flight.granted = combine(pair.flight.granted, credit, u32::wrapping_add);
    }

    /// Takes the credit that is due; of the last grant perhaps only a portion, if portions are bounded.
    fn collects(&self, from: u32, to: u32, now_ns: u64, random: &mut SplitMix) -> Credit {
        let mut state = self.lock();
        let Some(pair) = state.pairs.get_mut(&(from, to)) else { return Credit::NONE };
        let (portion, mut taken) = (u64::from(self.config().credit_portion), Credit::NONE);
        while let Some((due_ns, credit)) = pair.grants.front_mut().filter(|(due_ns, _)| *due_ns <= now_ns) {
            let mut part = |all: u32| if portion == 0 { all } else { random.below(portion + 1).min(all.into()) as u32 };
            let part = Credit { lines: part(credit.lines), envelopes: part(credit.envelopes) };
            taken = combine(taken, part, u32::wrapping_add);
            *credit = combine(*credit, part, u32::wrapping_sub);
            if !credit.is_none() {
                *due_ns = now_ns.saturating_add(1);
                break;
            }
            pair.grants.pop_front();
        }
        pair.flight.granted = combine(pair.flight.granted, taken, u32::wrapping_sub);
        taken
    }
}

impl<T: Transport> CreditWindows for Sim<T> {
    fn grant(&mut self, link: u32, credit: Credit) {
        let Some(state) = self.links.get(link as usize).filter(|state| !state.over) else { return };
        // What a dead proc writes is never read; it counts as on its way, as frames of the dead do.
        let due_ns = match self.net.is_dead(self.me, self.now_ns) {
            true => u64::MAX,
            false => self.now_ns.saturating_add(self.random.within(&self.net.config().delay_ns)),
        };
        self.net.grants(self.me, state.proc, due_ns, credit);
    }

    fn granted(&mut self, link: u32) -> Credit {
        let Some(state) = self.links.get(link as usize).filter(|state| !state.over) else { return Credit::NONE };
        match self.net.is_dead(self.me, self.now_ns) {
            true => Credit::NONE,
            false => self.net.collects(state.proc, self.me, self.now_ns, &mut self.random),
        }
    }
}
