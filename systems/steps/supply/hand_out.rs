//! Hands out memory between a receive and a send of a graph, and takes it back.
//!
//! *Reads* supplies in the queue, VCs. *Writes* supplies (granted, returned, group, state), temporaries, what transports lend.
//! *Bound* the queue of supplies, one for each part of a message that is passed on through a window, and [`GRANTS_A_PASS`] grants.
//! *Why* this order (reference: communication agent notes, "grabbing or providing buffers"). An operation gets space once its receive is
//! matched. It gets all that it may hold if it is at the head of its VC's queue, or if all operations ahead of it have all their space.
//! *Ahead* means started earlier and leaving over the same VC. Behind an unsatisfied operation of the same message it gets nothing, since
//! its bytes could not leave first. Behind one of another message it gets the agreed minimum, so that neither message waits for the other.
//! At the head, all operations of one message together hold up to [`FORWARD_WINDOW`] bytes: the pool serves first what can leave first.
//!
//! The memory that an operation holds is a group of runs in the order of its bytes. Each run goes back to its owner once all of its bytes
//! have left. Only this file returns runs, since only here both methods are at hand: Transfer just counts.

use crate::procs::endpoint::Endpoint;
use crate::steps::supply::pool;
use smallvec::SmallVec;
use tickwire_components::limits::{FORWARD_WINDOW, GRANT_BYTES, GRANTS_A_PASS};
use tickwire_components::{
    Buffer, Granted, NIL, Need, Pending, Progress, Row, Span, Spans, Supplier, Supply, SupplyState, Vc,
};

/// The tables that memory is handed out from and taken back to.
pub struct SupplyTables<'a> {
    /// The engine's singleton row: the queue of operations, and the pool's bounds.
    pub progress: &'a mut Progress,
    /// Operations.
    pub supplies: &'a mut [Supply],
    /// The pool of temporaries.
    pub buffers: &'a mut [Buffer],
    /// VCs, by which the lending endpoint is found.
    pub vcs: &'a [Vc],
    /// Endpoints, whose transports may lend memory.
    pub endpoints: &'a mut [Endpoint],
}

/// Puts an operation into the queue. `None` if there is no free row.
pub fn enqueue(progress: &mut Progress, supplies: &mut [Supply], supply: Supply) -> Option<Row> {
    let row = progress.free_supplies.pop(supplies)?;
    supplies[row as usize] = Supply { state: SupplyState::Waiting, ..supply };
    progress.supplies.push(supplies, row);
    Some(row)
}

/// Marks an operation as ready for space: its receive has been matched.
pub fn ready(progress: &mut Progress, supplies: &mut [Supply], row: Row) {
    let supply = &mut supplies[row as usize];
    if supply.state == SupplyState::Waiting {
        supply.state = SupplyState::Ready;
        progress.pending |= Pending::SUPPLY;
    }
}

/// Marks an operation as over: nobody uses its memory any more.
pub fn release(progress: &mut Progress, supplies: &mut [Supply], row: Row) {
    supplies[row as usize].state = SupplyState::Over;
    progress.pending |= Pending::SUPPLY;
}

/// Counts bytes that have arrived in [`space`].
pub fn filled(supply: &mut Supply, bytes: u64) {
    supply.filled += bytes;
    debug_assert!(supply.filled <= supply.granted, "bytes arrive in space that was handed out");
}

/// Counts bytes of [`outgoing`] that have left.
pub fn emptied(progress: &mut Progress, supply: &mut Supply, bytes: u64) {
    supply.emptied += bytes;
    debug_assert!(supply.emptied <= supply.filled, "bytes leave after they have arrived");
    let first = supply.group.first().map_or(0, |granted| granted.span.len() as u64);
    if supply.emptied >= supply.returned + first {
        progress.pending |= Pending::SUPPLY;
    }
}

/// Operations that have got space, named by the rows of their receives.
pub type Served = SmallVec<[Row; 16]>;

/// Where the bytes of an operation leave: the VC and the message.
type Way = (Row, Row);

impl SupplyTables<'_> {
    /// Takes back memory whose bytes have left, and hands out free memory, in order. Returns the operations that have got some.
    #[cold]
    pub fn hand_out(&mut self) -> Served {
        // All of it first: what the last operation gives back may be what the first one waits for.
        self.take_all_back();
        let (mut ahead, mut served): (SmallVec<[Way; 32]>, Served) = (SmallVec::new(), SmallVec::new());
        // Bytes that the operations of one message hold. They follow each other in the queue.
        let (mut message, mut held) = ((NIL, NIL), 0);
        let (mut row, mut left) = (self.progress.supplies.head, GRANTS_A_PASS);
        while row != NIL {
            let Supply { state, to, to_vc, minimum, granted, from, next, .. } = self.supplies[row as usize];
            if message != (to_vc, to) {
                (message, held) = ((to_vc, to), 0);
            }
            if state == SupplyState::Ready && !ahead.contains(&(to_vc, to)) {
                let head = !ahead.iter().any(|(vc, _)| *vc == to_vc);
                let window = if head { minimum.max(FORWARD_WINDOW as u64) } else { minimum };
                let window = window.saturating_sub(held);
                while left > 0 && self.grant(row, window) {
                    left -= 1;
                }
            }
            let supply = &mut self.supplies[row as usize];
            held += supply.granted - supply.returned;
            if supply.granted > granted && !served.contains(&from) {
                served.push(from);
            }
            if supply.granted == supply.bytes {
                supply.state = SupplyState::Satisfied;
            } else {
                ahead.push((to_vc, to));
            }
            row = next;
        }
        if left == 0 {
            self.progress.pending |= Pending::SUPPLY;
        }
        served
    }

    /// Takes back all memory whose bytes have left, and removes the operations that are over.
    pub(crate) fn take_all_back(&mut self) {
        let (mut previous, mut row) = (NIL, self.progress.supplies.head);
        while row != NIL {
            let next = self.supplies[row as usize].next;
            self.take_back(row);
            if self.supplies[row as usize].state == SupplyState::Over {
                self.progress.supplies.unlink(self.supplies, previous, row);
                self.supplies[row as usize] = Supply::default();
                self.progress.free_supplies.push(self.supplies, row);
            } else {
                previous = row;
            }
            row = next;
        }
    }

    /// Hands out the next run to an operation that may hold `window` bytes. `false` if there is no memory for it now.
    fn grant(&mut self, row: Row, window: u64) -> bool {
        let supply = &mut self.supplies[row as usize];
        let missing = supply.bytes - supply.granted;
        let held = supply.granted - supply.returned;
        let most = window.saturating_sub(held).min(missing).min(GRANT_BYTES as u64);
        // Except for the last one, no grant is smaller than the agreed minimum.
        let least = supply.minimum.min(missing);
        if most < least || most == 0 {
            return false;
        }
        if supply.supplier == Supplier::Temporary {
            let taken = pool::take(self.progress, self.buffers, Need::Forward, most as usize);
            // Only other operations hold the missing memory. When its bytes have left, they set `pending`, and it is taken back before any
            // is handed out.
            let Some(buffer) = taken else { return false };
            let span = pool::span(&mut self.buffers[buffer as usize]);
            supply.group.push(Granted { span, buffer });
            supply.granted += most;
            return true;
        }
        let Some(vc) = self.vcs.get(lender(supply) as usize) else { return false };
        let (mut spans, link) = (Spans::new(), vc.link);
        let lending = self.endpoints[vc.endpoint as usize].transport.get().lending();
        let lent = lending.map_or(0, |lending| lending.lend(link, least, most, &mut spans));
        supply.group.extend(spans.into_iter().map(|span| Granted { span, buffer: NIL }));
        supply.granted += lent;
        if lent == 0 {
            // The method's buffers become free without notice, so it must be asked again.
            self.progress.pending |= Pending::SUPPLY;
        }
        lent > 0
    }

    /// Takes back the runs whose bytes have all left, or all runs if the operation is over.
    fn take_back(&mut self, row: Row) {
        let supply = &mut self.supplies[row as usize];
        let endpoint = self.vcs.get(lender(supply) as usize).map(|vc| vc.endpoint);
        let (over, mut end, mut free) = (supply.state == SupplyState::Over, supply.returned, 0);
        for granted in &supply.group {
            end += granted.span.len() as u64;
            if !over && end > supply.emptied {
                break;
            }
            free += 1;
        }
        for granted in supply.group.drain(..free) {
            supply.returned += granted.span.len() as u64;
            if granted.buffer != NIL {
                pool::give(self.progress, self.buffers, Need::Forward, granted.buffer);
            } else if let Some(endpoint) = endpoint
                && let Some(lending) = self.endpoints[endpoint as usize].transport.get().lending()
            {
                lending.take_back(granted.span);
            }
        }
    }
}

/// The VC whose method lends the memory.
fn lender(supply: &Supply) -> Row {
    match supply.supplier {
        Supplier::Receiver => supply.from_vc,
        _ => supply.to_vc,
    }
}

/// Where the next bytes go; empty if there is no space now.
pub fn space(supply: &Supply) -> Span {
    part(supply, supply.filled)
}

/// The next run of bytes that have arrived and not left yet.
pub fn outgoing(supply: &Supply) -> Span {
    part(supply, supply.emptied).part(0, (supply.filled - supply.emptied) as usize)
}

/// The rest of the run that contains byte number `from`. Empty if `from` is past the memory that was handed out.
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

#[cfg(test)]
mod tests;
