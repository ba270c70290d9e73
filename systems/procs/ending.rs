//! Ends VCs: every operation that needs the peer ends too, and receives from any source are told.
//!
//! *Reads* communicators, cards. *Writes* the VC, each CAR that needs it, requests that are told, the unexpected queue, windows, side
//! links.
//! *Bound* a look at each CAR row, once for each VC that ends.
//! *Why* an operation may be in any queue when its peer goes. It must end once, and no queue may keep its row.

use crate::procs::cards::card_of;
use crate::procs::communicators::known;
use crate::procs::links::end_sides;
use crate::protocols::one_sided::fail_windows;
use crate::steps::finish::abort;
use crate::steps::posted::{may_await_any, posted_to_any, remove_posted};
use crate::steps::provider;
use crate::steps::supply::pool::give_buffer;
use crate::store::Tables;
use smallvec::SmallVec;
use tickwire_components::{
    Car, CarKind, CarState, Communicator, Destination, Kept, NIL, Pending, ProcId, Queue, RequestError, RequestState,
    Row, Vc, VcState, car_flags,
};
use tickwire_transports::AnyTransport;

/// Ends a VC by failure. Every operation that needs it gets the reason, the peer is told too, and receives from any source are told of the
/// failure.
pub fn fail(all: &mut Tables<'_>, row: Row, reason: String) {
    let words = reason.clone();
    if end(all, row, reason, |transport, link| transport.give_up(link, &words)) {
        all.progress.unacknowledged += 1;
        remind(all);
    }
}

/// Ends a VC in order, after the peer has finalized. Receives from any source go on waiting for other peers. If the peer's process is known
/// to have failed after its goodbye, the VC fails instead.
pub(crate) fn depart(all: &mut Tables<'_>, row: Row, reason: String) {
    let Some(proc) = all.vcs.get(row as usize).map(|vc| vc.proc) else { return };
    if let Some(at) = all.procs.fallen.iter().position(|(fallen, _)| *fallen == proc) {
        let (_, reason) = all.procs.fallen.swap_remove(at);
        return fail(all, row, reason);
    }
    tell_fabrics(all, row);
    if end(all, row, reason, AnyTransport::close_link) {
        all.vcs[row as usize].acknowledged = true;
        all.procs.departed.push(row);
    }
}

/// Tells the fabrics that reach a proc that it has finalized in order.
fn tell_fabrics(all: &mut Tables<'_>, row: Row) {
    for (endpoint, link) in links_of(all, row) {
        if let Some(fabric) = all.endpoints[usize::from(endpoint)].transport.get().one_sided() {
            fabric.has_left(link);
        }
    }
}

/// Whether operations of this proc on a peer's memory may still be under way by a fabric.
pub fn may_use(all: &mut Tables<'_>, row: Row) -> bool {
    links_of(all, row).into_iter().any(|(endpoint, link)| {
        let fabric = all.endpoints[usize::from(endpoint)].transport.get().one_sided();
        fabric.is_some_and(|fabric| fabric.may_use(link))
    })
}

/// The links of a VC: each with its endpoint. An ended VC has none: its numbers may be those of others.
fn links_of(all: &Tables<'_>, row: Row) -> SmallVec<[(u8, u32); 2]> {
    let vc = &all.vcs[row as usize];
    if vc.state == VcState::Failed {
        return SmallVec::new();
    }
    let sides = all.procs.routes.sides.iter().filter(|side| side.vc == row).map(|side| (side.endpoint, side.link));
    sides.chain([(vc.endpoint, vc.link)]).filter(|(_, link)| *link != NIL).collect()
}

/// Why the process of a proc has ended, if a transport knows that it has.
pub(crate) fn why_ended(all: &mut Tables<'_>, proc: u32) -> Option<String> {
    all.endpoints.iter_mut().find_map(|endpoint| {
        let transport = endpoint.transport.get();
        let card = card_of(all.procs.card(proc), transport.name()).unwrap_or_default();
        transport.has_ended(proc, card)
    })
}

/// Ends a VC: every operation that needs it gets the reason, and all others go on. `false` if the VC had ended before.
fn end(all: &mut Tables<'_>, row: Row, reason: String, close: impl FnOnce(&mut AnyTransport, u32)) -> bool {
    let Some(vc) = all.vcs.get_mut(row as usize) else { return false };
    if vc.state == VcState::Failed {
        return false;
    }
    let proc = vc.proc;
    all.procs.fallen.retain(|(fallen, _)| *fallen != proc);
    let (link, endpoint) = (vc.link, vc.endpoint);
    vc.state = VcState::Failed;
    all.progress.starved_peers -= u32::from(vc.envelopes_left == 0);
    vc.envelopes_left = 1;
    all.progress.vc_changes += 1;
    // Whoever waits looks again before it sleeps: what it waits for may have failed without a CAR that ends.
    all.progress.pending |= Pending::COMPLETE;
    (vc.sends, vc.data, vc.posted) = (Queue::EMPTY, Queue::EMPTY, Queue::EMPTY);
    all.procs.reasons.push((row, reason));
    if link != NIL {
        close(all.endpoints[endpoint as usize].transport.get(), link);
        all.windows.forget_link(endpoint, link);
    }
    end_sides(all, row);
    cut_off(all, row);
    fail_windows(all, row);
    all.progress.control.forget(row);
    let mut replies = std::mem::replace(&mut all.progress.replies, Queue::EMPTY);
    while let Some(reply) = replies.pop(all.cars) {
        // Replies to this VC are ended below.
        if all.cars[reply as usize].vc != row {
            all.progress.replies.push(all.cars, reply);
        }
    }
    use CarState::{
        AtProvider, Direct, Offered, Parked, Passing, Posted, Queued, Reading, Recalled, Receiving, Sending, ToProvider,
    };
    let needs = [Queued, Offered, Sending, Parked, Posted, ToProvider, Receiving, Passing, Reading, Direct];
    for car in 0..all.cars.len() {
        let state = all.cars[car].state;
        if all.cars[car].vc == row && needs.contains(&state) && all.cars[car].kind != CarKind::Data {
            if state == Reading {
                all.progress.reads.remove(all.cars, car as Row);
            }
            if state == ToProvider {
                all.progress.provider.queue.remove(all.cars, car as Row);
            }
            if state == CarState::Posted && all.progress.indexed() {
                remove_posted(all.progress, all.cars, all.vcs, car as Row);
            }
            abort(all.progress, all.cars, car as Row, car_flags::PEER_FAILED);
        } else if all.cars[car].vc == row && state == AtProvider {
            // A message that arrived earlier can still be received.
            provider::recall(all.progress, all.cars, car as Row, car_flags::PEER_FAILED);
        } else if all.cars[car].vc == row && state == Recalled {
            all.cars[car].flags |= car_flags::PEER_FAILED;
        }
    }
    all.progress.provider.acknowledgements.retain(|(vc, _)| *vc != row);
    // The data of these offers is lost with the peer. Eager messages that have arrived can still be received.
    all.progress.unexpected.drain(|u| u.vc == row && u.message() != NIL);
    all.progress.offered.retain(|(vc, _), _| *vc != row);
    true
}

/// Ends a message of which parts have arrived: the rest will not come.
fn cut_off(all: &mut Tables<'_>, row: Row) {
    let Some(at) = all.progress.streams.iter().position(|stream| stream.vc == row) else { return };
    let stream = all.progress.streams.swap_remove(at);
    let entry = match stream.to {
        Destination::Unexpected(entry) => entry,
        Destination::Receive(receive) => return fail_taken_over(all, receive),
        Destination::Temporary(_) | Destination::Nobody => return,
    };
    // A probe may have claimed the message. Then its receive is told.
    all.progress.unexpected.entries[entry as usize].cut_off();
    for left in all.progress.unexpected.drain(|u| u.vc == row && matches!(u.kept, Kept::CutOff { .. })) {
        if left.buffer() != NIL {
            give_buffer(all.progress, all.buffers, left.buffer());
        }
    }
}

/// Fails a receive whose first bytes are still in a temporary. Transfer gives the temporary back and ends the receive.
fn fail_taken_over(all: &mut Tables<'_>, receive: Row) {
    let mut at = all.progress.copies.head;
    while at != NIL {
        let car = &mut all.cars[at as usize];
        if at == receive {
            car.state = CarState::Matched;
            car.flags |= car_flags::PEER_FAILED;
        }
        at = car.next;
    }
}

/// A failed member of a communicator whose failure nobody has acknowledged: a receive from any source there must be told of it.
pub fn failed_member(comms: &[Communicator], vcs: &[Vc], context: u32) -> Option<Row> {
    let comm = known(comms, context)?;
    let failed = |vc: &Vc| vc.state == VcState::Failed && !vc.acknowledged && comm.rank_of(vc.proc).is_some();
    vcs.iter().position(failed).map(|row| row as Row)
}

/// Tells receives from any source of failures that nobody has acknowledged, even if they were posted after the failure. The receives stay
/// posted, except for those of other threads: these can only be told by ending them.
#[cold]
pub fn remind(all: &mut Tables<'_>) {
    if all.progress.unacknowledged == 0 || !may_await_any(all.progress) {
        return;
    }
    for row in posted_to_any(all.cars).collect::<Vec<Row>>() {
        let Car { request, context, .. } = all.cars[row as usize];
        let entry = &mut all.requests[request as usize];
        if entry.disturbed || entry.state != RequestState::Active {
            continue;
        }
        let Some(vc) = failed_member(all.communicators, all.vcs, context) else { continue };
        if entry.notified && all.callbacks.slot(request).is_some() {
            withdraw(all, row, vc);
            continue;
        }
        entry.disturbed = true;
        all.progress.pending |= Pending::COMPLETE;
        if std::mem::take(&mut entry.notified) {
            let (proc, reason) = (ProcId(all.vcs[vc as usize].proc), all.procs.reason(vc).to_owned());
            all.callbacks.tell_later(request, &Err(RequestError::PeerFailedPending { proc, reason }));
            all.progress.late = true;
        }
    }
}

/// Ends a receive from any source because a member, that of a VC, has failed that might have sent its message.
fn withdraw(all: &mut Tables<'_>, row: Row, vc: Row) {
    let car = &all.cars[row as usize];
    let removed = match car.state {
        CarState::New => all.progress.new_receives.remove(all.cars, row),
        _ if provider::is_at_provider(car) => {
            return provider::recall(all.progress, all.cars, row, car_flags::PEER_FAILED);
        }
        _ => remove_posted(all.progress, all.cars, all.vcs, row),
    };
    if removed {
        // The error names that member.
        all.cars[row as usize].vc = vc;
        abort(all.progress, all.cars, row, car_flags::PEER_FAILED);
    }
}
