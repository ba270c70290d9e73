//! Receipts: sees at which stage operations are, after each system and each run of Deliver. Runs only while receipts are open.
//!
//! *Reads* CARs, requests, VCs. *Writes* the open receipts.
//! *Bound* the open receipts, after each system.
//! *Why* a stage that is noted where it happens would be paid for by every message. Without open receipts this costs nothing.
//! With some, messages go the way that they go without: a stage that begins and ends within one system, or within Deliver,
//! has the time at which that was over.

use crate::store::StoreMut;
use tickwire_components::{
    Body, Car, CarKind, CarState, Large, NIL, OpenReceipt, ProcId, Progress, Protocol, Receipt, Request, RequestState,
    Row, Way, car_flags,
};

/// Opens a receipt for the operation in a row, in place of that of an earlier start; `found` if it receives a message that a
/// probe has found.
pub fn open(store: &mut StoreMut<'_>, row: Row, clock: Option<std::time::Instant>, found: bool) {
    let all = store.all();
    all.progress.receipts.clock = clock;
    let posted_ns = time(all.progress);
    let receipt = Receipt { posted_ns, unexpected: found, ..Receipt::default() };
    let generation = all.requests[row as usize].generation;
    let car = &all.cars[row as usize];
    if car.kind == CarKind::Receive && matches!(car.state, CarState::New | CarState::Posted) {
        // No message has come yet: what is found here later, its offer has said.
        all.large[row as usize].body = Body::default();
    }
    all.progress.receipts.open.retain(|open| (open.row, open.generation) != (row, generation));
    let open = OpenReceipt { row, generation, offered: false, was_new: false, receipt };
    all.progress.receipts.open.push(open);
    note(store);
}

fn time(progress: &Progress) -> u64 {
    progress.receipts.clock.map_or(progress.now_ns, |start| start.elapsed().as_nanos() as u64)
}

/// Looks at every operation with an open receipt. Those of requests that were taken are forgotten.
pub fn note(store: &mut StoreMut<'_>) {
    let all = store.all();
    let now_ns = time(all.progress);
    let mut open = std::mem::take(&mut all.progress.receipts.open);
    open.retain_mut(|open| {
        let (car, request) = (&all.cars[open.row as usize], &all.requests[open.row as usize]);
        if request.generation != open.generation || request.state == RequestState::Free {
            return false;
        }
        look(open, car, &all.large[open.row as usize], request, now_ns);
        if let Some(vc) = all.vcs.get(car.vc as usize)
            && open.receipt.transport.is_none()
        {
            open.receipt.peer = Some(ProcId(vc.proc));
            let endpoint = all.endpoints.get_mut(vc.endpoint as usize);
            open.receipt.transport = endpoint.map(|endpoint| endpoint.transport.get().name().to_owned());
        }
        if let Some(vc) = all.vcs.get(car.vc as usize).filter(|vc| vc.link != NIL) {
            open.receipt.link.get_or_insert(vc.link);
        }
        true
    });
    all.progress.receipts.unfinished = open.iter().filter(|open| open.receipt.completed_ns.is_none()).count();
    all.progress.receipts.open = open;
}

/// The receipt of the operation in a row, if one was asked for.
pub fn of(progress: &Progress, row: Row, generation: u64) -> Option<&Receipt> {
    let open = progress.receipts.open.iter().find(|open| (open.row, open.generation) == (row, generation));
    open.map(|open| &open.receipt)
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
