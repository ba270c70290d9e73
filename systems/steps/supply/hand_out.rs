//! Handing out memory between the CARs of one operation, and taking it back.
//!
//! *Reads* supplies in the queue, VCs. *Writes* supplies (granted, group, state), temporaries, what transports lend.
//! *Bound* the queue of supplies, one for each operation that passes bytes on and has not got all its space, and
//! [`GRANTS_A_PASS`] grants.
//! *Why* the order (reference: communication agent notes, "grabbing or providing buffers"). Space goes to an operation whose
//! receive is matched, when it is at the head of its VC's queue or when all operations ahead of it have all their space.
//! *Ahead* is what was started before, leaves over the same VC and is of the same context: operations of two contexts need
//! not be started in one order on all procs, so one of them must not wait for the other. At the head an operation gets up
//! to [`FORWARD_WINDOW`] bytes, behind it the agreed minimum: the pool serves first what can leave first.
//!
//! What was handed out is a group of runs in the order of the bytes. Each counts its users, the CAR that fills it and those
//! that empty it, and goes back to where it came from with the last of them.

use crate::procs::endpoint::Endpoint;
use crate::steps::supply::pool;
use smallvec::SmallVec;
use tickwire_components::limits::{FORWARD_WINDOW, GRANT_BYTES, GRANTS_A_PASS};
use tickwire_components::{
    Buffer, Granted, NIL, Need, Pending, Progress, Row, Span, Spans, Supplier, Supply, SupplyState, Vc,
};

/// The tables that memory is handed out from and taken back to.
pub struct SupplyTables<'a> {
    /// The engine's one row: the queue of operations, and the pool's bounds.
    pub progress: &'a mut Progress,
    /// Operations.
    pub supplies: &'a mut [Supply],
    /// The pool of temporaries.
    pub buffers: &'a mut [Buffer],
    /// VCs: which of them lend.
    pub vcs: &'a [Vc],
    /// What lends.
    pub endpoints: &'a mut [Endpoint],
}

/// Puts an operation into the queue. `None` if there is no free row: grow the table, or come again.
pub fn enqueue(progress: &mut Progress, supplies: &mut [Supply], supply: Supply) -> Option<Row> {
    let row = progress.free_supplies.pop(supplies)?;
    let state = if supply.state == SupplyState::Ready { SupplyState::Ready } else { SupplyState::Waiting };
    supplies[row as usize] = Supply { state, ..supply };
    progress.supplies.push(supplies, row);
    progress.pending |= Pending::SUPPLY;
    Some(row)
}

/// The receive of an operation has been matched: it is ready for space.
pub fn ready(progress: &mut Progress, supplies: &mut [Supply], row: Row) {
    let supply = &mut supplies[row as usize];
    if supply.state == SupplyState::Waiting {
        supply.state = SupplyState::Ready;
        progress.pending |= Pending::SUPPLY;
    }
}

/// The order in which CARs and contexts stand before others: (VC, context word) of an outlet.
type Key = (Row, u32);

impl SupplyTables<'_> {
    /// Hands out what there is, in order.
    #[cold]
    pub fn hand_out(&mut self) {
        let mut ahead: SmallVec<[Key; 32]> = SmallVec::new();
        let (mut previous, mut row, mut left) = (NIL, self.progress.supplies.head, GRANTS_A_PASS);
        while row != NIL && left > 0 {
            let supply = &self.supplies[row as usize];
            let next = supply.next;
            let keys: SmallVec<[Key; 2]> = supply.outlets.iter().map(|outlet| (outlet.vc, supply.context)).collect();
            let waits = keys.iter().any(|key| ahead.contains(key));
            let head = !keys.iter().any(|(vc, _)| ahead.iter().any(|(other, _)| other == vc));
            if supply.state == SupplyState::Ready && !waits {
                let window = if head { FORWARD_WINDOW as u64 } else { supply.minimum };
                while left > 0 && self.grant(row, window) {
                    left -= 1;
                }
            }
            let supply = &mut self.supplies[row as usize];
            if supply.granted == supply.bytes && supply.state == SupplyState::Ready {
                supply.state = SupplyState::Satisfied;
                self.progress.supplies.unlink(self.supplies, previous, row);
            } else {
                ahead.extend(keys);
                previous = row;
            }
            row = next;
        }
        if left == 0 {
            self.progress.pending |= Pending::SUPPLY;
        }
    }

    /// Hands out the next runs to an operation that may hold `window` bytes. `false` if there are none now.
    fn grant(&mut self, row: Row, window: u64) -> bool {
        let supply = &mut self.supplies[row as usize];
        let missing = supply.bytes - supply.granted;
        let users = 1 + supply.outlets.len() as u32;
        if supply.supplier == Supplier::Segment {
            if missing > 0 {
                supply.group.push(Granted { span: supply.segment, buffer: NIL, users });
                supply.granted = supply.bytes;
            }
            return false;
        }
        let held = supply.granted - supply.returned;
        let most = window.max(supply.minimum).saturating_sub(held).min(missing).min(GRANT_BYTES as u64);
        // No grant is smaller than the minimum that was agreed, but the last.
        let least = supply.minimum.min(missing);
        if most < least || most == 0 {
            return false;
        }
        if supply.supplier == Supplier::Temporary {
            let taken = pool::take(self.progress, self.buffers, Need::Forward, most as usize);
            let Some(buffer) = taken else { return false };
            let span = pool::span(&mut self.buffers[buffer as usize]);
            supply.group.push(Granted { span, buffer, users });
            supply.granted += most;
            return true;
        }
        let Some(vc) = self.vcs.get(lender(supply) as usize) else { return false };
        let (mut spans, link) = (Spans::new(), vc.link);
        let lending = self.endpoints[vc.endpoint as usize].transport.get().lending();
        let lent = lending.map_or(0, |lending| lending.lend(link, least, most, &mut spans));
        supply.group.extend(spans.into_iter().map(|span| Granted { span, buffer: NIL, users }));
        supply.granted += lent;
        if lent == 0 {
            // Its buffers come back by themselves, so it is asked again.
            self.progress.pending |= Pending::SUPPLY;
        }
        lent > 0
    }

    /// So many bytes have arrived in [`space`]: the outlets may go on with them.
    pub fn filled(&mut self, row: Row, bytes: u64) -> bool {
        let supply = &mut self.supplies[row as usize];
        let before = supply.filled;
        supply.filled += bytes;
        debug_assert!(supply.filled <= supply.granted, "bytes arrive in space that was handed out");
        let after = supply.filled;
        pass(supply, before, after);
        self.settle(row)
    }

    /// So many bytes of [`outgoing`] have left through an outlet. `true` if that was the end of the operation; its row is free
    /// then.
    pub fn emptied(&mut self, row: Row, outlet: usize, bytes: u64) -> bool {
        let supply = &mut self.supplies[row as usize];
        let before = supply.outlets[outlet].emptied;
        let after = before + bytes;
        debug_assert!(after <= supply.filled, "bytes leave after they have arrived");
        supply.outlets[outlet].emptied = after;
        pass(supply, before, after);
        self.settle(row)
    }

    /// One outlet needs no more: its peer has failed. `true` if the operation has come to its end with it.
    pub fn leave(&mut self, row: Row, outlet: usize) -> bool {
        let supply = &mut self.supplies[row as usize];
        let emptied = supply.outlets.remove(outlet).emptied;
        pass(supply, emptied, u64::MAX);
        self.settle(row)
    }

    /// Ends an operation before its time: all that it holds goes back.
    pub fn abandon(&mut self, row: Row) {
        self.progress.supplies.remove(self.supplies, row);
        let supply = &mut self.supplies[row as usize];
        supply.group.iter_mut().for_each(|granted| granted.users = 0);
        (supply.bytes, supply.granted) = (0, 0);
        (supply.filled, supply.state) = (0, SupplyState::Satisfied);
        supply.outlets.clear();
        self.settle(row);
    }

    /// A VC has ended: operations that got their bytes over it end, the others go on without the outlets that it was.
    #[cold]
    pub fn forget(&mut self, vc: Row) {
        for row in 0..self.supplies.len() as Row {
            if self.supplies[row as usize].state == SupplyState::Free {
                continue;
            }
            if self.supplies[row as usize].vc == vc {
                self.abandon(row);
                continue;
            }
            while let Some(outlet) = self.supplies[row as usize].outlets.iter().position(|outlet| outlet.vc == vc) {
                if self.leave(row, outlet) {
                    break;
                }
            }
        }
    }

    /// Gives back the runs that nobody uses any more, and the row after the last byte.
    fn settle(&mut self, row: Row) -> bool {
        let supply = &mut self.supplies[row as usize];
        let lender = self.vcs.get(lender(supply) as usize).map(|vc| vc.endpoint);
        let free = supply.group.iter().take_while(|granted| granted.users == 0).count();
        for granted in supply.group.drain(..free) {
            supply.returned += granted.span.len() as u64;
            if granted.buffer != NIL {
                pool::give(self.progress, self.buffers, Need::Forward, granted.buffer);
            } else if supply.supplier != Supplier::Segment
                && let Some(endpoint) = lender
                && let Some(lending) = self.endpoints[endpoint as usize].transport.get().lending()
            {
                lending.take_back(granted.span);
            }
        }
        if free > 0 && !self.progress.supplies.is_empty() {
            self.progress.pending |= Pending::SUPPLY;
        }
        let over = supply.filled == supply.bytes && supply.outlets.iter().all(|outlet| outlet.emptied == supply.bytes);
        if over && supply.state == SupplyState::Satisfied {
            *supply = Supply::default();
            self.progress.free_supplies.push(self.supplies, row);
            return true;
        }
        false
    }
}

/// The VC whose method lends.
fn lender(supply: &Supply) -> Row {
    match supply.supplier {
        Supplier::Receiver => supply.vc,
        _ => supply.outlets.first().map_or(NIL, |outlet| outlet.vc),
    }
}

/// Where the next bytes go; empty if there is no space now.
pub fn space(supply: &Supply) -> Span {
    part(supply, supply.filled)
}

/// Bytes that have arrived and have not left through an outlet: the next run of them, at most `most`.
pub fn outgoing(supply: &Supply, outlet: usize, most: u64) -> Span {
    let emptied = supply.outlets[outlet].emptied;
    part(supply, emptied).part(0, most.min(supply.filled - emptied) as usize)
}

/// The rest of the run that the byte number `from` is in; empty past what was handed out.
fn part(supply: &Supply, from: u64) -> Span {
    let mut start = supply.returned;
    for granted in &supply.group {
        let end = start + granted.span.len() as u64;
        if from < end {
            return granted.span.part((from - start) as usize, usize::MAX);
        }
        start = end;
    }
    Span::EMPTY
}

/// A user has gone on from byte `before` to byte `after`: it is done with the runs that end between them.
fn pass(supply: &mut Supply, before: u64, after: u64) {
    let mut end = supply.returned;
    for granted in &mut supply.group {
        end += granted.span.len() as u64;
        if before < end && end <= after {
            granted.users -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
