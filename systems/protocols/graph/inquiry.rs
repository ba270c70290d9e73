//! Inquiries: a member of a collective operation asks after a message that does not come, or that its receiver does not take.
//!
//! Which messages an operation has depends on the lengths of its buffers. Different sets of messages have different tags, so no message
//! takes the place of one of another set. But members that have called an operation with different lengths may wait for messages that
//! nobody sends. A member that has waited for long asks its peer, again and again at growing intervals ([`Kind::Inquiry`]). The peer says
//! nothing if the message is still to come: it has yet to call the operation, or to come to the message. Otherwise it denies the message
//! ([`Kind::Denial`]), and the operation of the member that has asked fails. A failed operation goes on asking after what it has offered.
//! Each denial of an offer is followed by the next question at once. So an operation with many offers ends after as many round trips.
//! Frames of a connection keep their order, so what was sent before a denial arrives before it.
//!
//! [`Kind::Inquiry`]: tickwire_components::wire::Kind::Inquiry
//! [`Kind::Denial`]: tickwire_components::wire::Kind::Denial

use super::asking::{hurry, is_time, send};
use super::remains::{ask_for_left, end_left};
use crate::collectives::draft::PERSISTENT_TAG;
use crate::procs::communicators::{Unclaimed, known, unclaimed};
use crate::procs::priorities::list_sender;
use crate::rows::Rows;
use crate::steps::check::{NotTaken, answered, was_offered};
use crate::steps::credit::forget;
use crate::steps::finish::abort;
use crate::steps::posted::remove_posted;
use smallvec::SmallVec;
use tickwire_components::limits::{INQUIRIES_MAX, INQUIRY_FIRST_NS};
use tickwire_components::wire::Header;
use tickwire_components::{
    Asking, Car, CarKind, CarState, Communicator, Control, Graph, Inquiry, NIL, Row, VcState, car_flags, context,
};
use tickwire_transports::Other;

/// Asks after messages of the operations that have run for long. `now_ns` is the engine's time.
#[cold]
pub fn inquire(rows: &mut Rows<'_>, now_ns: u64) {
    // A peer is asked one question at a time, so the order changes from call to call: everybody gets to be first.
    let (rounds, count) = (rows.progress.graphs.rounds, rows.progress.graphs.list.len() as u32);
    // The abandoned receives come before the graphs in one round, and behind them in the next one.
    let left_first = rounds.is_multiple_of(2);
    if left_first {
        ask_for_left(rows, now_ns);
    }
    let mut has_asked = !rows.progress.graphs.left.is_empty();
    for place in 0..count {
        let number = (rounds / 2 % count + place) % count;
        if is_due(rows, number, now_ns) {
            has_asked = true;
            ask(rows, number, now_ns);
        }
    }
    if !left_first {
        ask_for_left(rows, now_ns);
    }
    let graphs = &mut rows.progress.graphs;
    graphs.rounds = graphs.rounds.wrapping_add(has_asked.into());
}

/// Whether it is time to ask after messages of a graph.
fn is_due(rows: &mut Rows<'_>, number: u32, now_ns: u64) -> bool {
    let Rows { progress, requests, .. } = rows;
    let Some(graph) = progress.graphs.get_mut(number) else { return false };
    let runs = requests.get(graph.request as usize).is_some_and(|request| request.counter != 0);
    // The lengths of blocks are agreed on by what their messages say.
    if !runs || graph.blocks.is_some() {
        return false;
    }
    let asking = &mut graph.asking;
    if asking.start != graph.starts {
        let next_ns = now_ns.wrapping_add(INQUIRY_FIRST_NS);
        *asking = Asking { start: graph.starts, interval_ns: INQUIRY_FIRST_NS, next_ns, cursor: 0 };
    }
    is_time(asking, now_ns)
}

/// Asks each peer after the first message that is awaited from it, and after the first offer that it has not taken. At most
/// [`INQUIRIES_MAX`] questions are asked at a time; the others follow soon.
fn ask(rows: &mut Rows<'_>, number: u32, now_ns: u64) {
    let Rows { progress, cars, vcs, communicators, .. } = rows;
    let Some(graph) = progress.graphs.get(number) else { return };
    let source = communicators[Communicator::row(graph.comm.0)].rank;
    let first = graph.asking.cursor as usize;
    let mut inquiries: SmallVec<[(usize, Row, Inquiry); INQUIRIES_MAX]> = SmallVec::new();
    for (place, &row) in graph.nodes.iter().enumerate().skip(first) {
        let Car { kind, state, context, tag, vc, .. } = cars[row as usize];
        let message = match (kind, state) {
            (CarKind::Receive, CarState::Posted) => NIL,
            (CarKind::Send, CarState::Offered) => row,
            _ => continue,
        };
        let is_like = |(_, to, other): &(usize, Row, Inquiry)| *to == vc && (other.message == NIL) == (message == NIL);
        if vcs[vc as usize].state != VcState::Connected || inquiries.iter().any(is_like) {
            continue;
        }
        inquiries.push((place, vc, Inquiry { context, source, tag, message, call: graph.call, start: graph.starts }));
        if inquiries.len() == INQUIRIES_MAX {
            break;
        }
    }
    let behind = (inquiries.len() == INQUIRIES_MAX).then(|| inquiries[INQUIRIES_MAX - 1].0 + 1);
    let not_asked = inquiries.into_iter().find(|(_, vc, inquiry)| !send(progress, vcs, *vc, *inquiry));
    let next = not_asked.map(|(place, ..)| place).or(behind);
    if let Some(Asking { interval_ns, next_ns, cursor, .. }) =
        progress.graphs.get_mut(number).map(|graph| &mut graph.asking)
    {
        *cursor = next.unwrap_or(0) as u32;
        if next.is_some() {
            // The round goes on soon, and its end sets the time of the next one.
            (*interval_ns, *next_ns) = (*interval_ns / 2, now_ns.wrapping_add(INQUIRY_FIRST_NS));
        }
    }
}

/// A peer asks after a message.
///
/// # Errors
/// If it cannot be the peer's to ask.
#[cold]
pub(crate) fn take_inquiry(rows: &mut Rows<'_>, header: &Header, vc_row: Row) -> Result<(), NotTaken> {
    let inquiry = Inquiry::of(header);
    check(rows, &inquiry, vc_row)?;
    let owed =
        |frame: &tickwire_components::ControlFrame| frame.vc == vc_row && matches!(frame.what, Control::Denial(_));
    let control = &rows.progress.control;
    // One denial at a time: a peer that asks but does not read must not make more work than that.
    if !control.has_room(false) || control.frames.iter().any(owed) || !is_denied(rows, &inquiry, vc_row) {
        return Ok(());
    }
    if inquiry.message != NIL && !take_back(rows, &inquiry, vc_row) {
        return Ok(());
    }
    let source = known(&rows.communicators, inquiry.context).map_or(NIL, |communicator| communicator.rank);
    let Rows { progress, vcs, .. } = rows;
    if progress.control.push(vc_row, Control::Denial(Inquiry { source, ..inquiry })) {
        list_sender(progress, vcs, vc_row);
    }
    Ok(())
}

/// What a peer says is compared with what is known of it.
fn check(rows: &Rows<'_>, inquiry: &Inquiry, vc_row: Row) -> Result<(), NotTaken> {
    let Inquiry { context, source, .. } = *inquiry;
    let Some(vc) = rows.vcs.get(vc_row as usize) else {
        return Err(NotTaken::Wrong("a frame on a link that belongs to no proc"));
    };
    if context::plane(context) != context::COLLECTIVE {
        return Err(NotTaken::Wrong("an inquiry that is about no collective operation"));
    }
    match known(&rows.communicators, context) {
        Some(communicator) if communicator.proc(source) != Some(vc.proc) => {
            Err(NotTaken::Wrong("an inquiry whose source is not the sender's rank"))
        }
        None if unclaimed(&rows.communicators, context) == Unclaimed::Impossible => {
            Err(NotTaken::Wrong("an inquiry of an unknown context"))
        }
        _ => Ok(()),
    }
}

/// Whether the message that a peer asks after will never come to it, or never be taken.
fn is_denied(rows: &Rows<'_>, inquiry: &Inquiry, vc_row: Row) -> bool {
    let Inquiry { context, tag, message, call, start, .. } = *inquiry;
    let Rows { progress, cars, requests, vcs, .. } = rows;
    let Some(communicator) = known(&rows.communicators, context) else {
        // One that has been freed, or one that is still to be made.
        return unclaimed(&rows.communicators, context) == Unclaimed::Drop;
    };
    // A member that has failed replaces each message by one that says so. If that one is still queued, it will answer the question.
    let says_so = |car: &Car| car.tag == tag && car.context == context::abandoned(context);
    let mut queued = vcs[vc_row as usize].sends.head;
    while queued != NIL {
        let car = &cars[queued as usize];
        if says_so(car) {
            return false;
        }
        queued = car.next;
    }
    let persistent = tag & PERSISTENT_TAG != 0;
    let Some(graph) = rows.progress.graphs.list.iter().flatten().find(|graph| is_of(graph, cars, inquiry)) else {
        let made = progress.graphs.made.iter().find(|(word, _)| *word == communicator.context);
        let called = if persistent { made.map_or(0, |(_, count)| *count) } else { communicator.collectives };
        return called.wrapping_sub(call).cast_signed() > 0;
    };
    let runs = requests[graph.request as usize].counter != 0;
    if persistent && graph.starts != start {
        let is_over = graph.starts.wrapping_sub(start).cast_signed() > 0;
        return is_over || graph.failed && !runs;
    }
    let kind = if message == NIL { CarKind::Send } else { CarKind::Receive };
    let will_be = |&row: &Row| {
        let car = &cars[row as usize];
        (car.kind, car.vc, car.tag) == (kind, vc_row, tag) && car.state != CarState::Resting
    };
    !runs || !graph.nodes.iter().any(will_be)
}

/// Whether a graph is that of the operation that is asked after, and belongs to a call.
fn is_of(graph: &Graph, cars: &[Car], inquiry: &Inquiry) -> bool {
    let persistent = inquiry.tag & PERSISTENT_TAG != 0;
    // Not by the communicator's handle: one that is being freed has none any more, and its operations go on.
    let request = cars.get(graph.request as usize);
    request.is_some_and(|request| request.context == inquiry.context)
        && (graph.call, graph.persistent) == (inquiry.call, persistent)
        && graph.blocks.is_none()
}

/// Takes an offer that nobody will take out of the unexpected messages; `false` if it is not there.
fn take_back(rows: &mut Rows<'_>, inquiry: &Inquiry, vc_row: Row) -> bool {
    let Rows { progress, vcs, communicators, .. } = rows;
    if known(communicators, inquiry.context).is_none() {
        // It was dropped when it came.
        return true;
    }
    let mut found = false;
    let is_it = |entry: &tickwire_components::Unexpected| {
        let named = (entry.context, entry.tag, entry.vc) == (inquiry.context, inquiry.tag, vc_row);
        let is_it = named && entry.message() == inquiry.message && !found;
        found |= is_it;
        is_it
    };
    for entry in progress.unexpected.drain(is_it) {
        forget(progress, vcs, &entry);
    }
    found
}

/// A peer says that a message will never come, or never be taken: the operation fails. The bytes of an offer are to be withdrawn.
///
/// # Errors
/// If it cannot be the peer's to say.
#[cold]
pub(crate) fn take_denial(rows: &mut Rows<'_>, header: &Header, vc_row: Row) -> Result<Other, NotTaken> {
    let denied = Inquiry::of(header);
    let Rows { progress, cars, vcs, communicators, .. } = rows;
    let Some(communicator) = known(communicators, denied.context) else { return Ok(Other::Taken) };
    let source = vcs.get(vc_row as usize).and_then(|vc| communicator.rank_of(vc.proc));
    // A peer that has freed the communicator has no rank in it any more.
    let Some(source) = source.filter(|&source| denied.source == source || denied.source == NIL) else {
        return Err(NotTaken::Wrong("a denial whose source is not the sender's rank"));
    };
    // The message may have come, and be held back until an earlier one comes. Then this member asks again later.
    if denied.message == NIL && progress.has_provider() && progress.provider.defers(vc_row) {
        return Ok(Other::Taken);
    }
    let is_it = |&row: &Row| {
        let car = &cars[row as usize];
        let waits = match denied.message {
            NIL => (car.kind, car.state) == (CarKind::Receive, CarState::Posted),
            message => row == message && (car.kind, car.state) == (CarKind::Send, CarState::Offered),
        };
        waits && (car.vc, car.tag) == (vc_row, denied.tag)
    };
    let is_its = |graph: &Graph| is_of(graph, cars, &denied) && graph.starts == denied.start;
    let graph = progress.graphs.list.iter().flatten().find(|graph| is_its(graph));
    let row = graph.and_then(|graph| graph.nodes.iter().copied().find(is_it));
    // It may have come meanwhile, or the operation has failed.
    let Some(row) = row else {
        if denied.message == NIL {
            end_left(rows, &denied, vc_row);
        }
        return Ok(Other::Taken);
    };
    let mut over = Other::Taken;
    if denied.message == NIL {
        remove_posted(progress, cars, vcs, row);
    } else {
        over = answered(cars, header, vc_row);
    }
    cars[row as usize].source = source;
    abort(progress, cars, row, car_flags::ABANDONED);
    if denied.message != NIL {
        ask_for_next_offer(rows, rows.nodes[row as usize].graph, &denied, vc_row);
    }
    Ok(over)
}

/// A peer that has not taken one offer of a graph will hardly take the others, so it is asked after the next one at once. An offer ends
/// only by its own denial: others may still be on their way.
fn ask_for_next_offer(rows: &mut Rows<'_>, number: u32, denied: &Inquiry, vc_row: Row) {
    let Rows { progress, cars, vcs, communicators, .. } = rows;
    let now_ns = progress.now_ns;
    let Some(graph) = progress.graphs.get_mut(number) else { return };
    let is_open = |car: &Car| car.kind == CarKind::Send && was_offered(car, vc_row);
    let next = graph.nodes.iter().find(|&&row| is_open(&cars[row as usize]));
    let (Some(&message), Some(communicator)) = (next, known(communicators, denied.context)) else { return };
    // A peer that cannot answer just now is asked again soon.
    hurry(&mut graph.asking, now_ns);
    let (source, tag) = (communicator.rank, cars[message as usize].tag);
    send(progress, vcs, vc_row, Inquiry { source, tag, message, ..*denied });
}
