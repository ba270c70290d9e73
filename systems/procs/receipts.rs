//! Receipts: sees at which stage operations are, after each system and each run of Deliver. Runs only while receipts are open.
//!
//! *Reads* CARs, requests, VCs. *Writes* the open receipts.
//! *Bound* the open receipts, after each system.
//! *Why* a stage that is noted where it happens would be paid for by every message. Without open receipts this costs nothing.
//! With some, messages go the way that they go without: a stage that begins and ends within one system, or within Deliver,
//! has the time at which that was over. Where a wait has looked in vain just before, what Deliver does has the time between
//! the two looks: the clock is read while the engine waits, not between a message and the application.

use crate::store::{StoreMut, Tables};
use std::time::Instant;
use tickwire_components::{
    Body, Car, CarKind, CarState, Large, NIL, OpenReceipt, ProcId, Progress, Protocol, Receipt, Receipts, Request,
    RequestState, Row, Way, car_flags,
};

/// Fewest receipts of operations that are done before some of them are looked through.
const DONE_MIN: usize = 64;

/// How an operation came to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// It was posted.
    Posted,
    /// It receives a message that a probe has found.
    Found,
    /// It is a persistent one that was started: its receipt takes the place of that of the start before.
    Again,
}

/// Opens a receipt for the operation in a row.
///
/// `start` is when the engine was built; `None` where its caller gives the time.
pub fn open(store: &mut StoreMut<'_>, row: Row, start: Option<Instant>, came: Came) {
    let mut all = store.all();
    let generation = all.requests[row as usize].generation;
    let car = &all.cars[row as usize];
    if car.kind == CarKind::Receive && matches!(car.state, CarState::New | CarState::Posted) {
        // No message has come yet: what is found here later, its offer has said.
        all.large[row as usize].body = Body::default();
    }
    let receipts = &mut all.progress.receipts;
    receipts.start_ns = start.map(|start| match receipts.start_ns {
        Some(start_ns) => start_ns,
        None => receipts.clock.now_ns().saturating_sub(start.elapsed().as_nanos() as u64),
    });
    if came == Came::Again {
        let is_other = |open: &OpenReceipt| (open.row, open.generation) != (row, generation);
        receipts.open.retain(is_other);
        receipts.done.retain(is_other);
    }
    let now_ns = time(all.progress);
    let receipt = Receipt { posted_ns: now_ns, unexpected: came == Came::Found, ..Receipt::default() };
    let mut open = OpenReceipt { row, generation, offered: false, was_new: false, endpoint: None, receipt };
    if note_one(&mut all, &mut open, now_ns) {
        all.progress.receipts.open.push(open);
    } else {
        keep(&mut all, open);
    }
}

/// The time, ns since the engine was built, or that which its caller gives.
fn time(progress: &mut Progress) -> u64 {
    let Receipts { clock, start_ns, .. } = &mut progress.receipts;
    start_ns.map_or(progress.now_ns, |start_ns| clock.now_ns().saturating_sub(start_ns))
}

/// A wait has looked in vain and looks again: what that finds has the time of now. So the clock is read while nothing else is
/// to be done, and not between a message and who waits for it.
pub fn look_again(progress: &mut Progress) {
    if progress.receipts.start_ns.is_some() {
        progress.receipts.looked = Some((time(progress), progress.ticks));
    }
}

/// Looks at every operation with an open receipt. Those of requests that were taken are forgotten.
pub fn note(store: &mut StoreMut<'_>) {
    let progress = store.progress();
    if !progress.receipts.open.is_empty() {
        let now_ns = time(progress);
        note_at(store, now_ns);
    }
}

/// As [`note`], after a run of Deliver.
pub fn note_delivered(store: &mut StoreMut<'_>) {
    let progress = store.progress();
    if progress.receipts.open.is_empty() {
        return;
    }
    let now_ns = match progress.receipts.looked.take() {
        Some((at_ns, tick)) if tick + 1 == progress.ticks => at_ns,
        _ => time(progress),
    };
    note_at(store, now_ns);
}

fn note_at(store: &mut StoreMut<'_>, now_ns: u64) {
    let mut all = store.all();
    let mut open = std::mem::take(&mut all.progress.receipts.open);
    let mut index = 0;
    while index < open.len() {
        if note_one(&mut all, &mut open[index], now_ns) {
            index += 1;
        } else {
            let done = open.swap_remove(index);
            keep(&mut all, done);
        }
    }
    all.progress.receipts.open = open;
}

/// Looks at an operation; `false` once it is done.
fn note_one(all: &mut Tables<'_>, open: &mut OpenReceipt, now_ns: u64) -> bool {
    let (car, request) = (&all.cars[open.row as usize], &all.requests[open.row as usize]);
    if !is_of(open, request) {
        return false;
    }
    look(open, car, &all.large[open.row as usize], request, now_ns);
    if let Some(vc) = all.vcs.get(car.vc as usize) {
        if open.endpoint.is_none() {
            open.receipt.peer = Some(ProcId(vc.proc));
            open.endpoint = Some(vc.endpoint);
        }
        if vc.link != NIL {
            open.receipt.link.get_or_insert(vc.link);
        }
    }
    open.receipt.completed_ns.is_none()
}

/// Keeps the receipt of an operation that is done, until its request is taken.
fn keep(all: &mut Tables<'_>, open: OpenReceipt) {
    let Receipts { done, done_most, .. } = &mut all.progress.receipts;
    if done.len() >= (*done_most).max(DONE_MIN) {
        done.retain(|done| is_of(done, &all.requests[done.row as usize]));
        *done_most = 2 * done.len();
    }
    done.push(open);
}

/// Whether the request of a receipt was not taken.
fn is_of(open: &OpenReceipt, request: &Request) -> bool {
    request.generation == open.generation && request.state != RequestState::Free
}

/// The receipt of the operation in a row, if one was asked for and its request was not taken.
pub fn of(store: &mut StoreMut<'_>, row: Row, generation: u64) -> Option<Receipt> {
    let all = store.all();
    let request = all.requests.get(row as usize)?;
    let Receipts { open, done, .. } = &all.progress.receipts;
    let wanted = |open: &&OpenReceipt| (open.row, open.generation) == (row, generation) && is_of(open, request);
    let found = open.iter().chain(done.iter().rev()).find(wanted)?;
    let mut receipt = found.receipt.clone();
    let endpoint = found.endpoint.and_then(|endpoint| all.endpoints.get_mut(endpoint as usize));
    receipt.transport = endpoint.map(|endpoint| endpoint.transport.get().name().to_owned());
    Some(receipt)
}

fn look(open: &mut OpenReceipt, car: &Car, large: &Large, request: &Request, now_ns: u64) {
    if open.receipt.completed_ns.is_some() {
        return;
    }
    let receive = car.kind == CarKind::Receive;
    let over = matches!(car.state, CarState::Finished | CarState::Done);
    let failed = over && car.flags & car_flags::ERRORS & !car_flags::TRUNCATED != 0;
    let receipt = &mut open.receipt;
    let mut matched = false;
    match car.state {
        CarState::New => open.was_new = true,
        CarState::Posted => open.was_new = false,
        CarState::Offered => open.offered = true,
        // A message in a temporary has its length here and the temporary's row as its peer; an offer has no bytes yet.
        CarState::Matched => {
            matched = true;
            receipt.unexpected |= receive && open.was_new;
            if receive && matches!(large.body, Body::Kept { .. }) && car.done > 0 {
                receipt.copies = 2;
            }
        }
        CarState::Reading => (matched, receipt.protocol) = (true, Some(Protocol::Read)),
        CarState::Direct => (matched, receipt.protocol) = (true, Some(Protocol::Direct)),
        CarState::Sending if large.is_moving() => matched = true,
        // Nothing was asked for.
        CarState::Receiving if large.wanted == 0 => (matched, receipt.protocol) = (true, Some(Protocol::Parts)),
        CarState::Receiving | CarState::Sending => (matched, receipt.protocol) = (true, Some(Protocol::Pieces)),
        CarState::Queued => matched = receive,
        _ => {}
    }
    if (matched || (over && !failed)) && (receive || open.offered) {
        receipt.matched_ns.get_or_insert(now_ns);
    }
    let moving = !matches!(car.state, CarState::Matched) && car.done > 0;
    if moving && !failed && (over || receipt.protocol.is_some()) {
        receipt.first_byte_ns.get_or_insert(now_ns);
    }
    if over && !failed {
        receipt.last_byte_ns.get_or_insert(now_ns);
        if car.done > 0 {
            let protocol = match open.offered {
                true if large.is_moving() => Protocol::Direct,
                true => Protocol::Read,
                false if receive && matches!(large.body, Body::Readable { .. }) => Protocol::Read,
                false if !receive && large.way == Way::Parts => Protocol::Parts,
                false => Protocol::Eager,
            };
            let protocol = *receipt.protocol.get_or_insert(protocol);
            // What a peer reads, this process copies nowhere.
            let copies = match protocol {
                Protocol::Direct => 0,
                Protocol::Read => u32::from(receive),
                _ => 1,
            };
            receipt.copies = receipt.copies.max(copies);
        }
    }
    if car.state == CarState::Done || request.state.is_over() {
        receipt.completed_ns = Some(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestWorld;
    use tickwire_components::VcState;

    /// What a receive that is done so many ticks after a look in vain has in its receipt: the time of that look, and its own.
    fn completed(ticks: u64) -> (u64, Option<u64>) {
        let mut world = TestWorld::new(2);
        world.contact(1, VcState::Connected);
        let row = world.receive(Some(1), None, &[16]).car;
        open(&mut world.store.as_mut(), row, Some(Instant::now()), Came::Posted);
        let all = world.all();
        look_again(all.progress);
        let looked_ns = all.progress.receipts.looked.map_or(0, |(at_ns, _)| at_ns);
        all.progress.ticks += ticks;
        all.cars[row as usize].state = CarState::Done;
        all.requests[row as usize].state = RequestState::Done;
        note_delivered(&mut world.store.as_mut());
        (looked_ns, world.all().progress.receipts.done[0].receipt.completed_ns)
    }

    #[test]
    fn only_what_the_next_look_finds_has_the_time_of_a_look_in_vain() {
        let (looked_ns, completed_ns) = completed(1);
        assert_eq!(completed_ns, Some(looked_ns));
        let (looked_ns, completed_ns) = completed(2);
        assert!(completed_ns > Some(looked_ns));
    }
}
