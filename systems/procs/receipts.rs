//! Receipts: notes which stage each operation has reached, after each system and each run of Deliver. Runs only while receipts are open.
//!
//! *Reads* CARs, requests, VCs. *Writes* the open receipts; and [`Large::body`] of a receive that has no message yet, which nothing else
//! reads before a match has written it.
//! *Bound* the open receipts, after each system.
//! *Why* if stages were noted where they happen, every message would pay for it. Without open receipts this costs nothing. With open
//! receipts, messages take the same paths as without: a stage that begins and ends within one system, or within Deliver, gets the time at
//! which that was over. If a wait has polled in vain just before, whatever Deliver does then gets the time between the two polls. So the
//! clock is read while the engine waits, not between a message and the application.

use crate::rows::Rows;
use crate::store::{StoreMut, Tables};
use std::time::Instant;
use tickwire_components::{
    Body, Car, CarKind, CarState, Large, NIL, ProcId, Progress, Protocol, ROWLESS, Receipt, Receipts, Request,
    RequestState, Row, RowReceipt, SentReceipt, Vc, Way, car_flags,
};

/// How an operation with a receipt has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// It was posted or started again. Its receipt replaces the one of the start before.
    Posted,
    /// It receives a message that a probe has found.
    Found,
}

/// Opens a receipt for the operation in a row.
///
/// `start` is when the engine was built. `None` if the application gives the time itself.
pub fn open(store: &mut StoreMut<'_>, row: Row, start: Option<Instant>, came: Came) {
    let all = store.all();
    let generation = all.requests[row as usize].generation;
    let car = &all.cars[row as usize];
    let waits = car.kind == CarKind::Receive && matches!(car.state, CarState::New | CarState::Posted);
    let (was_new, vc) = (waits && car.state == CarState::New, car.vc);
    if waits {
        // No message has come yet. Whatever is found here later comes from the message's offer.
        all.large[row as usize].body = Body::default();
    }
    begin(&mut all.progress.receipts, start);
    let now_ns = time(all.progress);
    let receipts = &mut all.progress.receipts;
    if receipts.rows.len() <= row as usize {
        receipts.rows.resize_with(row as usize + 1, RowReceipt::default);
    }
    let noted = &mut receipts.rows[row as usize];
    let was_open = noted.is_open;
    let receipt = Receipt { posted_ns: now_ns, unexpected: came == Came::Found, ..Receipt::default() };
    *noted = RowReceipt { generation: Some(generation), is_open: was_open, was_new, receipt, ..RowReceipt::default() };
    let is_pending = match waits {
        true => {
            note_route(noted, all.vcs.get(vc as usize));
            true
        }
        false => {
            Seen { cars: all.cars, large: all.large, requests: all.requests, vcs: all.vcs }.note_one(noted, row, now_ns)
        }
    };
    if is_pending && !was_open {
        noted.is_open = true;
        receipts.open.push(row);
    }
}

/// Whether there is room for another receipt of a message without a row, if there may be `most`.
pub fn has_room(progress: &Progress, most: usize) -> bool {
    let Receipts { sent, sent_free, .. } = &progress.receipts;
    !sent_free.is_empty() || sent.len() < most
}

/// Opens a receipt for a message of `length` bytes that has left over a VC within the call that posted it. Returns the row and the number
/// that stand for its request. `start` is as for [`open`].
pub fn note_sent(all: &mut Tables<'_>, vc_row: Row, to: u32, length: usize, start: Option<Instant>) -> (Row, u64) {
    begin(&mut all.progress.receipts, start);
    let at_ns = time(all.progress);
    let vc = &all.vcs[vc_row as usize];
    let noted = |number| {
        let (link, endpoint, moved) = (vc.link, vc.endpoint, length != 0);
        SentReceipt { number, at_ns, vc: vc_row, link, endpoint, moved }
    };
    let Receipts { sent, sent_free, first_use, .. } = &mut all.progress.receipts;
    let place = match sent_free.pop() {
        Some(place) => {
            let number = sent[place as usize].number | u64::from(to);
            sent[place as usize] = noted(number);
            place
        }
        None => {
            sent.push(noted(u64::from(*first_use) << 32 | u64::from(to)));
            sent.len() as Row - 1
        }
    };
    (ROWLESS + place, sent[place as usize].number)
}

/// Closes the receipt of a message without a row, whose request was taken or dropped.
pub fn forget_sent(progress: &mut Progress, row: Row, number: u64) {
    let Receipts { sent, sent_free, .. } = &mut progress.receipts;
    if let Some(place) = row.checked_sub(ROWLESS)
        && let Some(noted) = sent.get_mut(place as usize)
        && noted.number == number
    {
        noted.number = (number >> 32).wrapping_add(1) << 32;
        sent_free.push(place);
    }
}

/// How many uses of a receipt without a row there were, at most. An engine that follows this one counts on from there.
pub fn uses(progress: &Progress) -> u64 {
    let Receipts { sent, first_use, .. } = &progress.receipts;
    sent.iter()
        .map(|noted| ((noted.number >> 32) as u32).wrapping_sub(*first_use))
        .max()
        .map_or(0, |last| u64::from(last) + 1)
}

/// Starts the clock of receipts with the first receipt.
fn begin(receipts: &mut Receipts, start: Option<Instant>) {
    receipts.start_ns = start.map(|start| match receipts.start_ns {
        Some(start_ns) => start_ns,
        None => receipts.clock.now_ns().saturating_sub(start.elapsed().as_nanos() as u64),
    });
}

/// The time now, ns since the engine was built; or the time that the application has given.
fn time(progress: &mut Progress) -> u64 {
    let Receipts { clock, start_ns, .. } = &mut progress.receipts;
    start_ns.map_or(progress.now_ns, |start_ns| clock.now_ns().saturating_sub(start_ns))
}

/// Notes that a wait has polled in vain and polls again. What the next poll finds gets the time of now, in receipts and traces. So the
/// clock is read while there is nothing else to do, not between a message and the application that waits for it.
pub fn look_again(progress: &mut Progress) {
    progress.looked = Some((progress.receipts.clock.stamp(), progress.ticks));
}

/// Looks at every operation with an open receipt. Receipts of requests that were taken are closed.
pub fn note(store: &mut StoreMut<'_>) {
    let Tables { progress, cars, large, requests, vcs, .. } = store.all();
    if !progress.receipts.open.is_empty() {
        let now_ns = time(progress);
        Seen { cars, large, requests, vcs }.note(&mut progress.receipts, now_ns);
    }
}

/// As [`note`], after a run of Deliver. `false` if no receipt is open.
#[inline(always)]
pub fn note_delivered(rows: &mut Rows<'_>) -> bool {
    let Rows { progress, cars, large, requests, vcs, .. } = rows;
    let (looked, ticks) = (progress.looked.take(), progress.ticks);
    let Receipts { open, clock, start_ns, .. } = &mut progress.receipts;
    if open.is_empty() {
        return false;
    }
    let now_ns = match (looked, *start_ns) {
        (Some((stamp, tick)), Some(start_ns)) if tick + 1 == ticks => clock.ns_of(stamp).saturating_sub(start_ns),
        _ => time(progress),
    };
    Seen { cars, large, requests, vcs }.note(&mut progress.receipts, now_ns);
    true
}

/// The columns in which the stages of operations can be seen.
struct Seen<'a> {
    cars: &'a [Car],
    large: &'a [Large],
    requests: &'a [Request],
    vcs: &'a [Vc],
}

impl Seen<'_> {
    /// Looks at every operation with an open receipt.
    #[inline(always)]
    fn note(&self, receipts: &mut Receipts, now_ns: u64) {
        let mut index = 0;
        while let Some(&row) = receipts.open.get(index) {
            let noted = &mut receipts.rows[row as usize];
            if self.note_one(noted, row, now_ns) {
                index += 1;
            } else {
                noted.is_open = false;
                receipts.open.swap_remove(index);
            }
        }
    }

    /// Looks at the operation in a row; `false` once it is done.
    #[inline(always)]
    fn note_one(&self, noted: &mut RowReceipt, row: Row, now_ns: u64) -> bool {
        let row = row as usize;
        let (car, large, request) = (&self.cars[row], &self.large[row], &self.requests[row]);
        if !is_of(noted, request) {
            return false;
        }
        if !has_come(noted, car, large, request, now_ns) {
            look(noted, car, large, request, now_ns);
        }
        note_route(noted, self.vcs.get(car.vc as usize));
        noted.receipt.completed_ns.is_none()
    }
}

/// Notes the route of an operation whose VC is known.
#[inline(always)]
fn note_route(noted: &mut RowReceipt, vc: Option<&Vc>) {
    let Some(vc) = vc else { return };
    if noted.endpoint.is_none() {
        noted.receipt.peer = Some(ProcId(vc.proc));
        noted.endpoint = Some(vc.endpoint);
    }
    if vc.link != NIL {
        noted.receipt.link.get_or_insert(vc.link);
    }
}

/// The frequent case of [`look`]: an awaited message has come as a whole. Returns whether this is the case.
#[inline(always)]
fn has_come(open: &mut RowReceipt, car: &Car, large: &Large, request: &Request, now_ns: u64) -> bool {
    let receipt = &mut open.receipt;
    let is_first = receipt.matched_ns.is_none() && receipt.completed_ns.is_none();
    let has_come = is_first
        && (car.kind, car.state, request.state) == (CarKind::Receive, CarState::Done, RequestState::Done)
        && car.flags & car_flags::ERRORS == 0
        && !matches!(large.body, Body::Readable { .. });
    if has_come {
        let at_ns = Some(now_ns);
        (receipt.matched_ns, receipt.last_byte_ns, receipt.completed_ns) = (at_ns, at_ns, at_ns);
        if car.done > 0 {
            (receipt.first_byte_ns, receipt.protocol) = (at_ns, Some(Protocol::Eager));
            receipt.copies = receipt.copies.max(1);
        }
    }
    has_come
}

/// Whether the request of a receipt still exists, and was not taken.
fn is_of(noted: &RowReceipt, request: &Request) -> bool {
    noted.generation == Some(request.generation) && request.state != RequestState::Free
}

/// The receipt of a request, if it has one and was not taken.
pub fn of(store: &mut StoreMut<'_>, row: Row, generation: u64) -> Option<Receipt> {
    let all = store.all();
    let Receipts { rows, sent, .. } = &all.progress.receipts;
    let (mut receipt, endpoint) = match row.checked_sub(ROWLESS) {
        None => {
            let noted = rows.get(row as usize).filter(|noted| noted.generation == Some(generation))?;
            is_of(noted, all.requests.get(row as usize)?).then(|| (noted.receipt.clone(), noted.endpoint))?
        }
        Some(place) => {
            let noted = sent.get(place as usize).filter(|noted| noted.number == generation)?;
            (left(noted, ProcId(all.vcs[noted.vc as usize].proc)), Some(noted.endpoint))
        }
    };
    let endpoint = endpoint.and_then(|endpoint| all.endpoints.get_mut(endpoint as usize));
    receipt.transport = endpoint.map(|endpoint| endpoint.transport.get().name().to_owned());
    Some(receipt)
}

/// The receipt of a message that left as a whole within the call that posted it.
fn left(noted: &SentReceipt, peer: ProcId) -> Receipt {
    let at_ns = Some(noted.at_ns);
    Receipt {
        peer: Some(peer),
        link: Some(noted.link),
        protocol: noted.moved.then_some(Protocol::Eager),
        copies: u32::from(noted.moved),
        posted_ns: noted.at_ns,
        first_byte_ns: at_ns.filter(|_| noted.moved),
        last_byte_ns: at_ns,
        completed_ns: at_ns,
        ..Receipt::default()
    }
}

fn look(open: &mut RowReceipt, car: &Car, large: &Large, request: &Request, now_ns: u64) {
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
        // A message in a temporary is copied a second time. An offer has no bytes yet.
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
        CarState::Receiving | CarState::Sending => {
            let in_parts = receive && matches!(large.body, Body::InParts | Body::Kept { .. });
            (matched, receipt.protocol) = (true, Some(if in_parts { Protocol::Parts } else { Protocol::Pieces }));
        }
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
            // What the peer reads out of memory, this process does not copy.
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
    use tickwire_components::{Clock, VcState};

    /// A receive ends `ticks` after a poll in vain. Returns the time of that poll, and the time in the receipt.
    fn completed(ticks: u64) -> (u64, Option<u64>) {
        let mut world = TestWorld::new(2);
        world.contact(1, VcState::Connected);
        let row = world.receive(Some(1), None, &[16]).car;
        // The kernel's clock needs no calibration: its stamps are times from the start.
        world.all().progress.receipts.clock = Clock::new(false);
        open(&mut world.store.as_mut(), row, Some(Instant::now()), Came::Posted);
        let all = world.all();
        look_again(all.progress);
        let Receipts { clock, start_ns, .. } = &mut all.progress.receipts;
        let looked_ns = all.progress.looked.map_or(0, |(stamp, _)| clock.ns_of(stamp)) - start_ns.unwrap_or(0);
        all.progress.ticks += ticks;
        all.cars[row as usize].state = CarState::Done;
        all.requests[row as usize].state = RequestState::Done;
        world.store.as_mut().with(|rows, _| note_delivered(rows));
        let generation = world.all().requests[row as usize].generation;
        let receipt = of(&mut world.store.as_mut(), row, generation);
        (looked_ns, receipt.and_then(|receipt| receipt.completed_ns))
    }

    #[test]
    fn uses_of_receipts_without_a_row_are_counted_from_the_first_one_on() {
        let mut world = TestWorld::new(2);
        let vc = world.contact(1, VcState::Connected);
        // Close to the end, behind which it begins anew.
        world.all().progress.receipts.first_use = u32::MAX;
        assert_eq!(uses(world.all().progress), 0);
        for number in [u64::from(u32::MAX) << 32 | 1, 1, 1 << 32 | 1] {
            let noted = note_sent(&mut world.all(), vc, 1, 8, None);
            assert_eq!(noted, (ROWLESS, number));
            forget_sent(world.all().progress, noted.0, noted.1);
        }
        assert!(uses(world.all().progress) >= 3);
        let held = [(); 2].map(|()| note_sent(&mut world.all(), vc, 1, 8, None));
        assert_eq!((held[0].0, held[1]), (ROWLESS, (ROWLESS + 1, u64::from(u32::MAX) << 32 | 1)));
        assert_eq!(uses(world.all().progress), 4);
    }

    #[test]
    fn only_what_the_next_look_finds_has_the_time_of_a_look_in_vain() {
        let (looked_ns, completed_ns) = completed(1);
        assert_eq!(completed_ns, Some(looked_ns));
        let (looked_ns, completed_ns) = completed(2);
        assert!(completed_ns > Some(looked_ns));
    }
}
