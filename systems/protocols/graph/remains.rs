//! What operations leave that have failed: receives of messages that may never come, and messages that nobody will receive.
//!
//! A receive that a failed graph has left ([`super::failure`]) ends by what its peer sends. If the peer has called the operation with
//! other lengths, that may be nothing, so it is asked ([`super::inquiry`]). Messages that have come for an operation that is over are
//! thrown away.

use super::asking::{hurry, is_time, send};
use crate::collectives::draft::{PERSISTENT_TAG, STEP_BITS};
use crate::procs::communicators::{give_back, known};
use crate::rows::Rows;
use crate::steps::dismiss::dismiss;
use crate::steps::finish::abort;
use crate::steps::posted::remove_posted;
use crate::store::Tables;
use tickwire_components::limits::{INQUIRY_FIRST_NS, OPERATIONS_LATE_MAX, STRAYS_A_LOOK};
use tickwire_components::{
    Asking, Car, CarKind, CarState, Communicator, Graphs, Inquiry, LeftReceive, NIL, RequestState, Row, Unexpected,
    VcState, car_flags, context,
};

// Half of the numbers that a tag tells apart are later ones.
const _: () = assert!(OPERATIONS_LATE_MAX <= (PERSISTENT_TAG >> STEP_BITS) / 2);

/// A failed graph has left a receive.
pub(super) fn leave(rows: &mut Rows<'_>, row: Row, (call, start): (u32, u32)) {
    let Rows { progress, requests, .. } = rows;
    let next_ns = progress.now_ns.wrapping_add(INQUIRY_FIRST_NS);
    let asking = Asking { start, interval_ns: INQUIRY_FIRST_NS, next_ns, cursor: 0 };
    let generation = requests[row as usize].generation;
    progress.graphs.left.push(LeftReceive { row, generation, call, asking });
}

/// Asks after messages for receives that were left, and forgets those that have ended.
pub(super) fn ask_for_left(rows: &mut Rows<'_>, now_ns: u64) {
    let Rows { progress, cars, requests, vcs, communicators, .. } = rows;
    let mut place = 0;
    while let Some(left) = progress.graphs.left.get_mut(place) {
        let Car { context, tag, vc, .. } = cars[left.row as usize];
        if !is_left(left, cars, requests) {
            progress.graphs.left.swap_remove(place);
            continue;
        }
        place += 1;
        let source = known(communicators, context).map_or(NIL, |communicator| communicator.rank);
        if source == NIL || vcs[vc as usize].state != VcState::Connected || !is_time(&mut left.asking, now_ns) {
            continue;
        }
        let inquiry = Inquiry { context, source, tag, message: NIL, call: left.call, start: left.asking.start };
        if !send(progress, vcs, vc, inquiry) {
            // The next look begins with this one.
            progress.graphs.left[place - 1].asking.next_ns = now_ns;
            progress.graphs.left.rotate_left(place - 1);
            return;
        }
    }
}

/// Whether a receive that was left still waits.
fn is_left(left: &LeftReceive, cars: &[Car], requests: &[tickwire_components::Request]) -> bool {
    let (car, request) = (&cars[left.row as usize], &requests[left.row as usize]);
    (request.generation, request.state) == (left.generation, RequestState::Detached)
        && car.kind == CarKind::Receive
        && matches!(car.state, CarState::New | CarState::Posted)
}

/// A peer says that a message will never come. The receive that was left for it ends, and the peer is asked after the next of the
/// operation's other messages at once.
pub(super) fn end_left(rows: &mut Rows<'_>, denied: &Inquiry, vc_row: Row) {
    let Rows { progress, cars, vcs, requests, communicators, .. } = rows;
    let now_ns = progress.now_ns;
    let (mut found, mut next) = (NIL, None);
    for left in &mut progress.graphs.left {
        let car = &cars[left.row as usize];
        let is_of_it = (left.call, left.asking.start) == (denied.call, denied.start);
        if !is_of_it || (car.vc, car.context) != (vc_row, denied.context) || !is_left(left, cars, requests) {
            continue;
        }
        hurry(&mut left.asking, now_ns);
        match car.tag == denied.tag && found == NIL {
            true => found = left.row,
            false => next = Some(car.tag),
        }
    }
    let removed = match cars.get(found as usize).map(|car| car.state) {
        None => false,
        Some(CarState::New) => progress.new_receives.remove(cars, found),
        Some(_) => remove_posted(progress, cars, vcs, found),
    };
    if !removed {
        return;
    }
    abort(progress, cars, found, car_flags::ABANDONED);
    if let (Some(tag), Some(communicator)) = (next, known(communicators, denied.context)) {
        send(progress, vcs, vc_row, Inquiry { source: communicator.rank, tag, ..*denied });
    }
}

/// Throws messages away that have come for operations that are over.
///
/// An operation ends with the last message that it expects, and members call them in one order. So a message of one that is over has no
/// receive, and will have none. An offer stays until its sender asks after it.
#[cold]
pub fn drop_strays(all: &mut Tables<'_>) {
    let Tables { progress, communicators, .. } = &mut *all;
    let progress = &mut **progress;
    if !progress.graphs.has_unexpected || progress.arrivals != 0 {
        return;
    }
    let (mut strays, mut others) = (Vec::new(), false);
    let (mut row, mut looks) = (progress.unexpected.head, 0);
    while let Some(entry) = progress.unexpected.entries.get(row as usize)
        && looks < STRAYS_A_LOOK
    {
        match is_stray(&progress.graphs, communicators, entry) {
            true => strays.push(row),
            false => others |= context::is_collective(entry.context),
        }
        (row, looks) = (entry.next, looks + 1);
    }
    progress.graphs.has_unexpected = others || row != NIL;
    let found: Vec<Unexpected> = strays.into_iter().map(|row| progress.unexpected.remove(row)).collect();
    give_back(all, &found);
    for offer in found.iter().filter(|message| message.message() != NIL) {
        dismiss(all.progress, all.vcs, offer.vc, offer.context, offer.message());
    }
}

/// Whether nobody will receive a message of a collective operation, since that is over.
fn is_stray(graphs: &Graphs, communicators: &[Communicator], entry: &Unexpected) -> bool {
    // The sender of an offer asks after it, but not of one that stands in the place of another message.
    let asks = entry.message() != NIL && context::plane(entry.context) != context::ABANDONED;
    if !context::is_collective(entry.context) || entry.tag & PERSISTENT_TAG != 0 || asks {
        return false;
    }
    let Some(communicator) = known(communicators, entry.context) else { return false };
    // A tag has only the low bits of the operation's number. If those seem longer ago than `OPERATIONS_LATE_MAX`, the message may be of a
    // much later operation, and stays.
    let numbers = PERSISTENT_TAG >> STEP_BITS;
    let call = entry.tag >> STEP_BITS;
    let late = communicator.collectives.wrapping_sub(call) & (numbers - 1);
    let is_its = |graph: &tickwire_components::Graph| {
        let runs = !graph.persistent && graph.blocks.is_none() && graph.request != NIL;
        runs && Communicator::row(graph.comm.0) == context::id(entry.context) as usize
            && graph.call & (numbers - 1) == call
    };
    (1..=OPERATIONS_LATE_MAX).contains(&late) && !graphs.list.iter().flatten().any(|graph| is_its(graph))
}
