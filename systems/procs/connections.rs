//! Connections: first contact, link events, and the end of a VC. Runs between passes, on the world as a whole.
//!
//! *Reads* link events of the transports, `Progress::to_contact`, `Progress::ended`. *Writes* proc entities (spawned at
//! first contact), VCs (state, link), and every CAR, request and unexpected offer that needs a VC which has ended.
//! *Bound* the events there are; a VC that ends costs a look at each CAR row, once.
//! *Why* tables grow and procs appear only here, so that no system ever sees a row move.

use crate::procs::communicators::known;
use crate::procs::endpoint::Endpoint;
use crate::protocols::credit::{due, window};
use crate::protocols::provider_matched;
use crate::steps::finish::abort;
use crate::steps::matching::{enqueue, may_await_any, posted_to_any, remove_posted};
use crate::steps::registering::sweep;
use crate::steps::supply::hand_out;
use crate::steps::supply::pool::give_buffer;
use crate::store::{StoreMut, Tables};
use tickwire_components::limits::{ARRIVALS, CREDIT_INITIAL};
use tickwire_components::{
    Car, CarKind, CarState, Communicator, Destination, Ended, Kept, NIL, Pending, PostError, ProcId, Queue,
    RequestError, RequestState, Row, Vc, VcState, car_flags,
};
use tickwire_transports::{AnyTransport, LinkEvent};

/// Free CAR rows below which more are spawned ahead of use.
const CARS_LOW: u32 = 64;
/// Procs that [`ask_after`] asks for at most: a system call or two each.
const ASKED_A_LOOK: u32 = 64;

/// Does what systems asked for and only the world as a whole can do.
#[cold]
pub fn maintain(store: &mut StoreMut<'_>) {
    let progress = store.progress();
    progress.pending.clear(Pending::WORLD);
    let wanted = std::mem::take(&mut progress.to_contact);
    let ended = std::mem::take(&mut progress.ended);
    if !(progress.registrations.dead.is_empty() && progress.registrations.withdrawn.is_empty()) {
        let all = store.all();
        sweep(all.progress, all.endpoints);
    }
    let progress = store.progress();
    let (cars, buffers) = (progress.free_cars.count, progress.free_buffer_rows);
    // A submission that waits for no contact waits for rows, however many it needs.
    let short = wanted.is_empty() && !store.all().inbound.waiting().is_empty();
    for proc in wanted {
        // A proc that cannot be reached has a failed VC, and its submission is refused with the reason.
        let _ = contact(store, proc);
        store.progress().pending |= Pending::POST;
    }
    for (row, why) in ended {
        let mut all = store.all();
        match why {
            // What goes past its frames was sent before: it is waited for, or for the end of the link.
            Ended::Finalized if is_moved_to(&all, row) => {
                let again = (row, Ended::Finalized);
                if !all.progress.ended.contains(&again) {
                    all.progress.ended.push(again);
                }
                all.progress.pending |= Pending::WORLD;
            }
            Ended::Finalized => depart(&mut all, row, Ended::FINALIZED.to_owned()),
            Ended::Unfinished => fail(&mut all, row, Ended::UNFINISHED.to_owned()),
            Ended::Corrupt(words) => fail(&mut all, row, format!("protocol violation: {words}")),
            Ended::Link(words) => fail(&mut all, row, words),
        }
    }
    if cars < CARS_LOW || short {
        store.grow();
    }
    if buffers < ARRIVALS as u32 {
        store.grow_buffers();
    }
}

/// The row of a proc, with a VC that is at least connecting.
///
/// # Errors
/// If the number is out of range, no transport reaches it, or the world is lost by it ([`StoreMut::verify`]).
pub fn contact(store: &mut StoreMut<'_>, proc: u32) -> Result<Row, PostError> {
    let row = known_row(store, proc)?;
    let mut all = store.all();
    if all.vcs[row as usize].state == VcState::Unconnected {
        connect(&mut all, row)?;
    }
    Ok(row)
}

/// The row of a proc; spawns its entity at first contact.
fn known_row(store: &mut StoreMut<'_>, proc: u32) -> Result<Row, PostError> {
    let mut all = store.all();
    let Some(known) = all.procs.known.get(proc as usize) else {
        return Err(PostError::Rank { rank: proc, last: all.procs.known.len() as u32 - 1 });
    };
    if known.row != NIL {
        return Ok(known.row);
    }
    let endpoint = route(&mut all, proc).map_or(0, |(endpoint, _)| endpoint);
    let row = store.spawn_proc(proc, endpoint)?;
    store.all().procs.known[proc as usize].row = row;
    Ok(row)
}

/// The endpoint that reaches a proc, the highest priority first, and that proc's card for it.
fn route(all: &mut Tables<'_>, proc: u32) -> Result<(u8, Vec<u8>), String> {
    let mut refused = Vec::new();
    let mut best: Option<(u8, u8, Vec<u8>)> = None;
    for (index, endpoint) in all.endpoints.iter_mut().enumerate() {
        let transport = endpoint.transport.get();
        let card = card_of(all.procs.card(proc), transport.name()).unwrap_or_default();
        match transport.reaches(proc, card) {
            Ok(()) => {
                let priority = transport.capabilities().priority;
                if best.as_ref().is_none_or(|(p, ..)| priority > *p) {
                    best = Some((priority, index as u8, card.to_vec()));
                }
            }
            Err(reason) => refused.push(format!("{}: {reason}", transport.name())),
        }
    }
    best.map(|(_, index, card)| (index, card)).ok_or_else(|| refused.join("; "))
}

/// The endpoint that messages of a proc go over, or would; `None` if none reaches it.
pub fn endpoint_of(all: &mut Tables<'_>, proc: u32) -> Option<u8> {
    let row = all.procs.known.get(proc as usize)?.row;
    match all.vcs.get(row as usize) {
        Some(vc) if matches!(vc.state, VcState::Connecting | VcState::Connected) => Some(vc.endpoint),
        _ => route(all, proc).ok().map(|(endpoint, _)| endpoint),
    }
}

/// Bytes of a transport's name, and of its part of a card, at most: each has a length of one byte.
pub const CARD_PART_MAX: usize = u8::MAX as usize;

/// One transport's part of a proc's card, which is a list of name length, name, length, bytes.
pub fn card_of<'a>(mut card: &'a [u8], name: &str) -> Option<&'a [u8]> {
    loop {
        let (&length, rest) = card.split_first()?;
        if length == 0 {
            return None;
        }
        let (found, rest) = rest.split_at_checked(length as usize)?;
        let (&length, rest) = rest.split_first()?;
        let (bytes, rest) = rest.split_at_checked(length as usize)?;
        if found == name.as_bytes() {
            return Some(bytes);
        }
        card = rest;
    }
}

/// Puts one transport's part into a card: name and bytes within [`CARD_PART_MAX`]. See [`card_of`].
pub fn add_card(card: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    debug_assert!(name.len() <= CARD_PART_MAX && bytes.len() <= CARD_PART_MAX);
    card.push(name.len() as u8);
    card.extend_from_slice(name.as_bytes());
    card.push(bytes.len() as u8);
    card.extend_from_slice(bytes);
}

/// Starts to connect a VC over the best route.
fn connect(all: &mut Tables<'_>, row: Row) -> Result<(), PostError> {
    let proc = all.vcs[row as usize].proc;
    let (endpoint, card) = match route(all, proc) {
        Ok(route) => route,
        Err(reason) => {
            fail(all, row, format!("no transport reaches it: {reason}"));
            return Err(PostError::Unreachable { proc: ProcId(proc), reason });
        }
    };
    let transport = all.endpoints[endpoint as usize].transport.get();
    match transport.connect(proc, &card, all.progress.now_ns) {
        Ok(link) => {
            let vc = &mut all.vcs[row as usize];
            vc.endpoint = endpoint;
            vc.link = link;
            vc.state = VcState::Connecting;
            all.progress.vc_changes += 1;
            Ok(())
        }
        Err(reason) => {
            fail(all, row, reason.clone());
            Err(PostError::PeerFailed { proc: ProcId(proc), reason })
        }
    }
}

/// Lets every transport look after its links, and takes over what happened to them.
#[cold]
pub fn control(store: &mut StoreMut<'_>, events: &mut Vec<LinkEvent>) {
    let count = store.endpoints().len();
    let now_ns = store.progress().now_ns;
    for index in 0..count {
        events.clear();
        // None is there any more if a first contact has lost the world.
        let Some(endpoint) = store.endpoints().get_mut(index) else { return };
        endpoint.transport.get().control(now_ns, events);
        for event in events.drain(..) {
            handle(store, index as u8, event);
        }
    }
}

fn handle(store: &mut StoreMut<'_>, endpoint: u8, event: LinkEvent) {
    match event {
        LinkEvent::Connected { link } => {
            let mut all = store.all();
            if let Some(row) = row_of(&all, endpoint, link) {
                accepted(&mut all, row, endpoint, link);
            }
        }
        LinkEvent::Accepted { link, proc } => match known_row(store, proc) {
            Ok(row) => accepted(&mut store.all(), row, endpoint, link),
            Err(error) => {
                let endpoint = &mut store.endpoints()[endpoint as usize];
                endpoint.transport.get().give_up(link, &error.to_string());
            }
        },
        LinkEvent::Replaced { link, by } => {
            let mut all = store.all();
            match row_of(&all, endpoint, link) {
                Some(row) => accepted(&mut all, row, endpoint, by),
                None => {
                    all.endpoints[endpoint as usize].transport.get().give_up(by, "the connection has failed before")
                }
            }
        }
        LinkEvent::Failed { link, reason } => {
            let mut all = store.all();
            let Some(row) = row_of(&all, endpoint, link) else { return };
            // One that has said goodbye before has ended in order.
            match all.progress.ended.iter().position(|ended| *ended == (row, Ended::Finalized)) {
                Some(at) => {
                    all.progress.ended.remove(at);
                    depart(&mut all, row, Ended::FINALIZED.to_owned());
                }
                None => fail(&mut all, row, reason),
            }
        }
    }
}

fn row_of(all: &Tables<'_>, endpoint: u8, link: u32) -> Option<Row> {
    let found = all.vcs.iter().position(|vc| vc.endpoint == endpoint && vc.link == link && vc.state != VcState::Failed);
    found.map(|row| row as Row)
}

fn accepted(all: &mut Tables<'_>, row: Row, endpoint: u8, link: u32) {
    let Vc { state, endpoint: old_endpoint, link: old_link, .. } = all.vcs[row as usize];
    if state == VcState::Failed {
        // What the peer sends would be read by nobody: it must not wait.
        let words = format!("the connection has failed before: {}", all.procs.reason(row));
        return all.endpoints[endpoint as usize].transport.get().give_up(link, &words);
    }
    if state == VcState::Connected && (old_endpoint, old_link) != (endpoint, link) && has_lent(all, row) {
        // What the transport of the other one has been lent comes back only with that.
        return all.endpoints[endpoint as usize].transport.get().close_link(link);
    }
    all.endpoints[endpoint as usize].transport.get().attach(link, row);
    let vc = &mut all.vcs[row as usize];
    vc.endpoint = endpoint;
    vc.link = link;
    connected(all, row);
}

/// Frames may flow: what was sent while connecting goes first, in order.
fn connected(all: &mut Tables<'_>, row: Row) {
    let vc = &mut all.vcs[row as usize];
    if vc.state != VcState::Connected {
        // The rest of the window.
        vc.lines_owed = window(all.progress, vc).lines.saturating_sub(CREDIT_INITIAL.lines);
        if all.progress.has_provider() {
            move_posted(all, row);
        }
    }
    let vc = &mut all.vcs[row as usize];
    vc.state = VcState::Connected;
    all.progress.vc_changes += 1;
    if !vc.sends.is_empty() || !vc.data.is_empty() || !due(all.progress, vc, row, false).is_none() {
        crate::steps::posting::list_sender(all.progress, all.vcs, row);
    }
    all.progress.pending |= Pending::DRAIN;
}

/// A VC that is connected over another endpoint than it was routed over: its receives go where its messages do.
fn move_posted(all: &mut Tables<'_>, row: Row) {
    let mut posted = std::mem::replace(&mut all.vcs[row as usize].posted, Queue::EMPTY);
    while let Some(receive) = posted.pop(all.cars) {
        enqueue(all.progress, all.cars, all.vcs, receive);
    }
    if u32::from(all.vcs[row as usize].endpoint) == all.progress.provider.endpoint {
        return;
    }
    for car in 0..all.cars.len() {
        match all.cars[car].state {
            CarState::ToProvider if all.cars[car].vc == row => {
                all.progress.provider.queue.remove(all.cars, car as Row);
                enqueue(all.progress, all.cars, all.vcs, car as Row);
            }
            CarState::AtProvider if all.cars[car].vc == row => {
                provider_matched::recall(all.progress, all.cars, car as Row, 0)
            }
            _ => {}
        }
    }
}

/// Ends a VC by failure: every operation that needs it gets the reason, so does the peer, and receives from any source are told.
pub fn fail(all: &mut Tables<'_>, row: Row, reason: String) {
    let words = reason.clone();
    if end(all, row, reason, |transport, link| transport.give_up(link, &words)) {
        all.progress.unacknowledged += 1;
        remind(all);
    }
}

/// Ends a VC in order: receives from any source go on waiting for the others. One whose process has failed, though its engine
/// has said goodbye, has not ended in order.
fn depart(all: &mut Tables<'_>, row: Row, reason: String) {
    let Some(proc) = all.vcs.get(row as usize).map(|vc| vc.proc) else { return };
    if let Some(at) = all.procs.fallen.iter().position(|(fallen, _)| *fallen == proc) {
        let (_, reason) = all.procs.fallen.swap_remove(at);
        return fail(all, row, reason);
    }
    if end(all, row, reason, AnyTransport::close_link) {
        all.vcs[row as usize].acknowledged = true;
        all.procs.departed.push(row);
    }
}

/// The launcher says that a proc's process has ended, in order or by a failure.
pub fn process_ended(store: &mut StoreMut<'_>, proc: u32, reason: String, failed: bool) {
    let all = store.all();
    let Some(known) = all.procs.known.get(proc as usize) else { return };
    if proc == all.procs.me || known.row == NIL && !failed {
        return;
    }
    let Ok(row) = known_row(store, proc) else { return };
    let mut all = store.all();
    match (all.vcs[row as usize].state, failed) {
        // It tells by itself, after its last frame; and if that is a goodbye, it is not true.
        (VcState::Connected, true) => all.procs.fallen.push((proc, reason)),
        (VcState::Connected, false) => {}
        (VcState::Unconnected | VcState::Connecting, true) => fail(&mut all, row, reason),
        (VcState::Unconnected | VcState::Connecting, false) => depart(&mut all, row, reason),
        (VcState::Failed, true) => {
            if let Some(at) = all.procs.departed.iter().position(|&departed| departed == row) {
                all.procs.departed.swap_remove(at);
                all.procs.reasons.push((row, reason));
                all.vcs[row as usize].acknowledged = false;
                all.progress.unacknowledged += 1;
                remind(&mut all);
            }
        }
        (VcState::Failed, false) => {}
    }
}

/// Asks the transports after some procs that were never contacted, from `next` on: whether their processes have ended. For
/// receives from any source, where no launcher tells.
pub fn ask_after(store: &mut StoreMut<'_>, next: &mut u32) {
    let procs = store.all().procs.known.len() as u32;
    for _ in 0..procs.min(ASKED_A_LOOK) {
        let proc = *next % procs;
        *next = proc + 1;
        let all = store.all();
        let row = all.procs.known[proc as usize].row;
        if proc == all.procs.me || all.vcs.get(row as usize).is_some_and(|vc| vc.state != VcState::Unconnected) {
            continue;
        }
        let ended = all.endpoints.iter_mut().find_map(|endpoint| {
            let transport = endpoint.transport.get();
            let card = card_of(all.procs.card(proc), transport.name()).unwrap_or_default();
            transport.has_ended(proc, card)
        });
        if let Some(reason) = ended {
            process_ended(store, proc, reason, true);
        }
    }
}

/// Ends a VC: every operation that needs it gets the reason, all others go on. `false` if it has ended before.
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
    (vc.sends, vc.data, vc.posted) = (Queue::EMPTY, Queue::EMPTY, Queue::EMPTY);
    all.procs.reasons.push((row, reason));
    if link != NIL {
        close(all.endpoints[endpoint as usize].transport.get(), link);
    }
    cut_off(all, row);
    let mut replies = std::mem::replace(&mut all.progress.replies, Queue::EMPTY);
    while let Some(reply) = replies.pop(all.cars) {
        // Those to this VC are ended below.
        if all.cars[reply as usize].vc != row {
            all.progress.replies.push(all.cars, reply);
        }
    }
    use CarState::{AtProvider, Direct, Offered, Posted, Queued, Reading, Recalled, Receiving, Sending, ToProvider};
    let needs = [Queued, Offered, Sending, Posted, ToProvider, Receiving, Reading, Direct];
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
            // What had arrived before can still be received.
            provider_matched::recall(all.progress, all.cars, car as Row, car_flags::PEER_FAILED);
        } else if all.cars[car].vc == row && state == Recalled {
            all.cars[car].flags |= car_flags::PEER_FAILED;
        }
    }
    all.progress.provider.receipts.retain(|(vc, _)| *vc != row);
    if all.progress.free_supplies.count as usize != all.supplies.len() {
        hand_out::forget(all.progress, all.supplies, all.buffers, all.vcs, all.endpoints, row);
    }
    // Offers whose data is gone with the peer. Eager messages that have arrived can still be received.
    all.progress.unexpected.drain(|u| u.vc == row && u.message() != NIL);
    true
}

/// Whether a transport has been lent places of messages of a VC.
fn has_lent(all: &Tables<'_>, row: Row) -> bool {
    all.cars.iter().zip(&*all.large).any(|(car, large)| car.vc == row && large.is_lent(car.state))
}

/// Whether a transport is moving a message of a VC to here.
fn is_moved_to(all: &Tables<'_>, row: Row) -> bool {
    all.cars.iter().any(|car| car.state == CarState::Direct && car.kind == CarKind::Receive && car.vc == row)
}

/// The rest of a message that was arriving will not come.
fn cut_off(all: &mut Tables<'_>, row: Row) {
    let Some(at) = all.progress.streams.iter().position(|stream| stream.vc == row) else { return };
    let stream = all.progress.streams.swap_remove(at);
    let entry = match stream.to {
        Destination::Temporary(entry) => entry,
        Destination::Receive(receive) => return fail_taken_over(all, receive),
        Destination::Nobody => return,
    };
    // A probe may have taken it: whoever receives it is told.
    all.progress.unexpected.entries[entry as usize].cut_off();
    for left in all.progress.unexpected.drain(|u| u.vc == row && matches!(u.kept, Kept::CutOff { .. })) {
        if left.buffer() != NIL {
            give_buffer(all.progress, all.buffers, left.buffer());
        }
    }
}

/// A receive whose first bytes are still in a temporary is ended by Transfer, which gives that back.
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

/// Whose failure a receive from any source has to be told of, if nobody has acknowledged it: a member of its communicator.
pub fn failed_member(comms: &[Communicator], vcs: &[Vc], context: u32) -> Option<Row> {
    let comm = known(comms, context)?;
    let failed = |vc: &Vc| vc.state == VcState::Failed && !vc.acknowledged && comm.rank_of(vc.proc).is_some();
    vcs.iter().position(failed).map(|row| row as Row)
}

/// Tells receives from any source of failures that nobody has acknowledged, also those that were posted after them. They stay
/// posted, but those of other threads, which hear of nothing else than an end.
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
            withdraw(all, row);
            continue;
        }
        entry.disturbed = true;
        if std::mem::take(&mut entry.notified) {
            let (proc, reason) = (ProcId(all.vcs[vc as usize].proc), all.procs.reason(vc).to_owned());
            all.callbacks.tell_later(request, &Err(RequestError::PeerFailedPending { proc, reason }));
            all.progress.late = true;
            all.progress.pending |= Pending::COMPLETE;
        }
    }
}

/// Ends a receive from any source, since a member has failed that it might have waited for.
fn withdraw(all: &mut Tables<'_>, row: Row) {
    let car = &all.cars[row as usize];
    let removed = match car.state {
        CarState::New => all.progress.new_receives.remove(all.cars, row),
        _ if provider_matched::is_at_provider(car) => {
            return provider_matched::recall(all.progress, all.cars, row, car_flags::PEER_FAILED);
        }
        _ => remove_posted(all.progress, all.cars, all.vcs, row),
    };
    if removed {
        abort(all.progress, all.cars, row, car_flags::PEER_FAILED);
    }
}

/// Whether an endpoint needs [`control`] now.
#[inline]
pub fn wants_control(endpoints: &mut [Endpoint]) -> bool {
    endpoints.iter_mut().any(|endpoint| endpoint.transport.get().wants_control())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Posted, TestWorld};
    use tickwire_components::limits::{CONTROL_ROWS, Limits};
    use tickwire_components::submission::Operation;
    use tickwire_components::{Rank, Tag, Unexpected};

    /// Lets the wire tell events, and handles them.
    fn tell(world: &mut TestWorld, events: &[LinkEvent]) {
        world.wire().events.extend_from_slice(events);
        control(&mut world.store.as_mut(), &mut Vec::new());
    }

    fn contact_proc(world: &mut TestWorld, proc: u32) -> Result<Row, PostError> {
        contact(&mut world.store.as_mut(), proc)
    }

    #[test]
    fn first_contact_spawns_a_row_and_connects_once() {
        let mut world = TestWorld::new(5);
        let row = contact_proc(&mut world, 3).unwrap();
        assert_eq!((row, contact_proc(&mut world, 3)), (1, Ok(1)));
        let vc = world.vc(row);
        assert_eq!((vc.proc, vc.state, vc.link), (3, VcState::Connecting, 3));
        assert_eq!(world.all().vcs.len(), 2);
        assert_eq!(contact_proc(&mut world, 5), Err(PostError::Rank { rank: 5, last: 4 }));
    }

    #[test]
    fn a_proc_that_nobody_reaches_has_a_failed_vc() {
        let mut world = TestWorld::new(5);
        world.wire().unreachable.push(2);
        let Err(PostError::Unreachable { proc: ProcId(2), reason }) = contact_proc(&mut world, 2) else {
            panic!("it is out of reach");
        };
        assert_eq!(reason, "fake: not on this wire");
        assert_eq!(world.vc(1).state, VcState::Failed);
    }

    #[test]
    fn what_was_sent_while_connecting_is_listed_once_connected() {
        let mut world = TestWorld::new(3);
        let row = contact_proc(&mut world, 1).unwrap();
        world.send(1, 5, &[b"x"]);
        assert!(!world.vc(row).listed);
        tell(&mut world, &[LinkEvent::Connected { link: 1 }]);
        assert!(world.vc(row).state == VcState::Connected && world.vc(row).listed);
        assert_eq!(world.all().progress.senders.head, row);
        assert_eq!(world.wire().attached, [(1, row)]);
    }

    #[test]
    fn a_peer_that_calls_first_gets_a_row() {
        let mut world = TestWorld::new(5);
        tell(&mut world, &[LinkEvent::Accepted { link: 9, proc: 4 }, LinkEvent::Accepted { link: 8, proc: 77 }]);
        let vc = world.vc(1);
        assert_eq!((vc.proc, vc.link, vc.state), (4, 9, VcState::Connected));
        assert_eq!((world.all().vcs.len(), contact_proc(&mut world, 4)), (2, Ok(1)), "proc 77 does not exist");
    }

    #[test]
    fn of_two_links_the_one_that_replaces_is_used() {
        let mut world = TestWorld::new(5);
        let row = contact_proc(&mut world, 2).unwrap();
        tell(&mut world, &[LinkEvent::Replaced { link: 2, by: 6 }]);
        assert_eq!((world.vc(row).link, world.vc(row).state), (6, VcState::Connected));
        assert_eq!(world.wire().attached, [(6, row)]);
    }

    /// The states of operations.
    fn states(world: &mut TestWorld, posted: &[Posted]) -> Vec<CarState> {
        posted.iter().map(|&p| world.car(p).state).collect()
    }

    #[test]
    fn a_failure_reaches_receives_that_match_has_not_seen_yet() {
        let mut world = TestWorld::new(4);
        let (_, two) = (world.contact(1, VcState::Connected), world.contact(2, VcState::Connected));
        let header = tickwire_components::wire::Header::new(tickwire_components::wire::Kind::Eager, 0, 2, 9, 0, 0);
        world.arrive(two, header, &[]);
        let [own, any, other] = [Some(1), None, Some(2)].map(|source| world.receive(source, Some(5), &[1]));
        assert_eq!(states(&mut world, &[own, any, other]), [CarState::New; 3]);
        tell(&mut world, &[LinkEvent::Failed { link: 1, reason: "gone".into() }]);
        world.step(crate::tick::match_cars::match_cars);
        assert_eq!(states(&mut world, &[own, any, other]), [CarState::Finished, CarState::Posted, CarState::Posted]);
        assert_eq!(world.car(own).flags, car_flags::PEER_FAILED);
        assert_eq!([any, other].map(|posted| world.request(posted).disturbed), [true, false]);
    }

    #[test]
    fn a_failed_vc_ends_exactly_its_own_operations() {
        let mut world = TestWorld::new(4);
        let (one, two) = (world.contact(1, VcState::Connected), world.contact(2, VcState::Connected));
        let own = [
            world.send(1, 1, &[b"x"]),
            world.send(1, 2, &[b"y", b"z"]),
            world.receive(Some(1), None, &[1]),
            world.receive(Some(1), Some(3), &[1, 2, 3]),
            world.receive(Some(1), Some(4), &[1]),
        ];
        world.all().cars[own[3].car as usize].state = CarState::Receiving;
        world.all().cars[own[4].car as usize].state = CarState::Direct;
        let others = [world.send(2, 1, &[b"x"]), world.receive(Some(2), None, &[1]), world.receive(None, None, &[1])];
        let before = states(&mut world, &others);
        for (vc, message) in [(one, NIL), (one, 7), (two, 8)] {
            let (next, previous) = (NIL, NIL);
            let entry = Unexpected {
                context: 0,
                source: 1,
                tag: 0,
                vc,
                length: 0,
                kept: if message == NIL { Kept::Whole { buffer: NIL } } else { Kept::Offered { message } },
                next,
                previous,
            };
            world.all().progress.unexpected.push(entry);
        }
        tell(&mut world, &[LinkEvent::Failed { link: 1, reason: "gone".into() }]);
        assert_eq!(states(&mut world, &own), [CarState::Finished; 5]);
        assert!(own.iter().all(|&p| world.car(p).flags == car_flags::PEER_FAILED));
        assert_eq!(states(&mut world, &others), before);
        assert_eq!(others.map(|p| world.request(p).disturbed), [false, false, true]);
        assert_eq!((world.vc(one).state, world.vc(two).state), (VcState::Failed, VcState::Connected));
        assert!(world.vc(one).sends.is_empty() && world.vc(one).posted.is_empty());
        assert_eq!(world.all().procs.reason(one), "gone");
        assert_eq!(world.wire().closed_links, [1]);
        let left: Vec<Row> = world.all().progress.unexpected.drain(|_| true).iter().map(|u| u.message()).collect();
        assert_eq!(left, [NIL, 8], "what has arrived can still be received");
        world.step(crate::tick::complete::complete);
        assert!(own.iter().all(|&p| world.request(p).counter == 0 && world.car(p).flags != 0));
    }

    #[test]
    fn a_second_link_does_not_take_over_while_a_transport_has_places_of_the_first() {
        let mut world = TestWorld::new(2);
        let one = world.contact(1, VcState::Connected);
        let direct = world.receive(Some(1), Some(2), &[1]);
        world.all().cars[direct.car as usize].state = CarState::Direct;
        tell(&mut world, &[LinkEvent::Accepted { link: 9, proc: 1 }]);
        assert_eq!((world.vc(one).link, world.wire().closed_links.clone()), (1, vec![9]));
        world.all().cars[direct.car as usize].state = CarState::Posted;
        tell(&mut world, &[LinkEvent::Accepted { link: 9, proc: 1 }]);
        assert_eq!(world.vc(one).link, 9);
    }

    #[test]
    fn a_peer_that_has_said_goodbye_is_there_until_what_it_has_sent_past_its_frames_has_come() {
        let mut world = TestWorld::new(2);
        let one = world.contact(1, VcState::Connected);
        let [direct, other] = [2, 3].map(|tag| world.receive(Some(1), Some(tag), &[1]));
        world.all().cars[direct.car as usize].state = CarState::Direct;
        world.all().progress.ended.push((one, Ended::Finalized));
        for _ in 0..3 {
            world.all().progress.pending = Pending::WORLD;
            // However often it says so.
            world.all().progress.ended.push((one, Ended::Finalized));
            maintain(&mut world.store.as_mut());
            assert!(world.all().progress.pending.has(Pending::WORLD));
            assert_eq!((world.vc(one).state, world.car(other).state), (VcState::Connected, CarState::Posted));
            assert_eq!(world.all().progress.ended.len(), 1);
        }
        world.all().cars[direct.car as usize].state = CarState::Finished;
        maintain(&mut world.store.as_mut());
        assert_eq!((world.vc(one).state, world.car(other).flags), (VcState::Failed, car_flags::PEER_FAILED));
    }

    #[test]
    fn a_vc_fails_once_and_does_not_come_back() {
        let mut world = TestWorld::new(4);
        let one = world.contact(1, VcState::Connected);
        let failed = |reason: &str| LinkEvent::Failed { link: 1, reason: reason.into() };
        tell(&mut world, &[failed("first"), failed("second"), LinkEvent::Connected { link: 1 }]);
        tell(&mut world, &[LinkEvent::Accepted { link: 5, proc: 1 }]);
        assert_eq!((world.vc(one).state, world.all().procs.reason(one)), (VcState::Failed, "first"));
        assert_eq!(world.all().procs.reasons.len(), 1);
    }

    #[test]
    fn a_link_that_nobody_will_use_is_given_up_at_once_and_its_peer_told_why() {
        let mut world = TestWorld::new(4);
        world.contact(1, VcState::Connecting);
        tell(&mut world, &[LinkEvent::Failed { link: 1, reason: "no answer".into() }]);
        world.wire().given_up.clear();
        let events = [
            LinkEvent::Accepted { link: 5, proc: 1 },
            LinkEvent::Replaced { link: 1, by: 6 },
            LinkEvent::Accepted { link: 7, proc: 77 },
        ];
        tell(&mut world, &events);
        let given_up = std::mem::take(&mut world.wire().given_up);
        assert_eq!(given_up.iter().map(|(link, _)| *link).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(given_up[0].1, "the connection has failed before: no answer");
        assert!(world.wire().attached.is_empty(), "nothing of them is read");
    }

    #[test]
    fn a_peer_is_told_why_its_link_is_given_up_and_of_a_goodbye_nothing() {
        let mut world = TestWorld::new(4);
        let (one, two) = (world.contact(1, VcState::Connected), world.contact(2, VcState::Connected));
        let ended = &mut world.all().progress.ended;
        ended.extend([(one, Ended::Corrupt("a strange frame".into())), (two, Ended::Finalized)]);
        world.all().progress.pending = Pending::WORLD;
        maintain(&mut world.store.as_mut());
        assert_eq!(world.wire().given_up, [(1, "protocol violation: a strange frame".to_owned())]);
        assert_eq!(world.wire().closed_links, [1, 2]);
    }

    /// What a request from any source is told of: the proc that has failed.
    fn told(world: &mut TestWorld, posted: Posted) -> Option<u32> {
        let context = world.car(posted).context;
        let disturbed = world.request(posted).disturbed;
        let all = world.all();
        disturbed.then(|| all.vcs[failed_member(all.communicators, all.vcs, context).unwrap() as usize].proc)
    }

    #[test]
    fn the_death_of_a_proc_that_was_never_contacted_is_told_to_receives_from_any_source() {
        let mut world = TestWorld::new(5);
        let any = world.receive(None, None, &[1]);
        process_ended(&mut world.store.as_mut(), 3, "exited".into(), false);
        assert_eq!((told(&mut world, any), world.all().vcs.len()), (None, 1), "an end in order");
        process_ended(&mut world.store.as_mut(), 0, "killed".into(), true);
        process_ended(&mut world.store.as_mut(), 77, "killed".into(), true);
        assert_eq!((told(&mut world, any), world.all().vcs.len()), (None, 1), "the own one, and none");
        process_ended(&mut world.store.as_mut(), 4, "killed".into(), true);
        assert_eq!(told(&mut world, any), Some(4));
        assert_eq!(world.all().procs.reason(1), "killed");
        // One that is posted while nobody has acknowledged it.
        let later = world.receive(None, Some(7), &[1]);
        assert_eq!(told(&mut world, later), None);
        remind(&mut world.all());
        assert_eq!(told(&mut world, later), Some(4));
    }

    #[test]
    fn a_goodbye_counts_for_nothing_if_the_process_fails() {
        for order in 0..4 {
            let mut world = TestWorld::new(3);
            let one = world.contact(1, VcState::Connected);
            let any = world.receive(None, None, &[1]);
            let goodbye = |world: &mut TestWorld| {
                world.all().progress.ended.push((one, Ended::Finalized));
                world.all().progress.pending = Pending::WORLD;
            };
            match order {
                0 => {
                    goodbye(&mut world);
                    maintain(&mut world.store.as_mut());
                    assert_eq!(told(&mut world, any), None);
                    process_ended(&mut world.store.as_mut(), 1, "exit status 3".into(), true);
                }
                1 => {
                    process_ended(&mut world.store.as_mut(), 1, "exit status 3".into(), true);
                    assert_eq!(world.vc(one).state, VcState::Connected, "its last frames are read first");
                    goodbye(&mut world);
                    maintain(&mut world.store.as_mut());
                }
                // What the transport says after a goodbye does not make it another end.
                _ => {
                    goodbye(&mut world);
                    tell(&mut world, &[LinkEvent::Failed { link: 1, reason: "closed".into() }]);
                    maintain(&mut world.store.as_mut());
                    assert_eq!((world.vc(one).state, world.vc(one).acknowledged), (VcState::Failed, true));
                    if order == 2 {
                        assert_eq!(told(&mut world, any), None);
                        continue;
                    }
                    process_ended(&mut world.store.as_mut(), 1, "exit status 3".into(), true);
                }
            }
            assert_eq!((told(&mut world, any), world.all().procs.reason(one)), (Some(1), "exit status 3"), "{order}");
            assert_eq!(world.all().progress.unacknowledged, 1);
            process_ended(&mut world.store.as_mut(), 1, "exit status 3".into(), true);
            assert_eq!(world.all().progress.unacknowledged, 1, "once");
        }
    }

    #[test]
    fn an_end_half_way_is_a_failure() {
        let mut world = TestWorld::new(3);
        let one = world.contact(1, VcState::Connected);
        let any = world.receive(None, None, &[1]);
        world.all().progress.ended.push((one, Ended::Unfinished));
        world.all().progress.pending = Pending::WORLD;
        maintain(&mut world.store.as_mut());
        assert_eq!((told(&mut world, any), world.all().procs.reason(one)), (Some(1), Ended::UNFINISHED));
    }

    #[test]
    fn procs_that_were_never_contacted_are_asked_after_and_no_others() {
        let mut world = TestWorld::new(200);
        world.contact(7, VcState::Connected);
        let any = world.receive(None, None, &[1]);
        world.wire().ended.extend([0, 7, 150]);
        let mut next = 0;
        ask_after(&mut world.store.as_mut(), &mut next);
        assert_eq!((next, told(&mut world, any)), (ASKED_A_LOOK, None), "so many in one look");
        for _ in 0..3 {
            ask_after(&mut world.store.as_mut(), &mut next);
        }
        assert_eq!(told(&mut world, any), Some(150));
        assert_eq!(world.all().progress.unacknowledged, 1);
    }

    #[test]
    fn callbacks_and_submissions_of_receives_from_any_source_hear_of_a_failure() {
        let mut world = TestWorld::new(3);
        let [awaited, submitted] = [1, 2].map(|tag| world.receive(None, Some(tag), &[1]));
        let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let all = world.all();
        all.callbacks.await_in(submitted.car, 3);
        all.requests[submitted.car as usize].notified = true;
        all.requests[awaited.car as usize].notified = true;
        let hears = heard.clone();
        all.callbacks.add(awaited.car, Box::new(move |outcome| hears.lock().unwrap().push(outcome)));
        process_ended(&mut world.store.as_mut(), 2, "killed".into(), true);
        world.step(crate::tick::complete::complete);
        let (proc, reason) = (ProcId(2), "killed".to_owned());
        let error = RequestError::PeerFailedPending { proc, reason: reason.clone() };
        assert_eq!(*heard.lock().unwrap(), [Err(error)]);
        assert_eq!(world.car(awaited).state, CarState::Posted, "it stays posted");
        assert_eq!(world.request(submitted).state, RequestState::Done);
        let all = world.all();
        assert_eq!(all.progress.answers, [submitted.car]);
        let outcome = crate::steps::finish::outcome(all.cars, all.large, all.vcs, all.procs, submitted.car);
        assert_eq!(outcome, Err(RequestError::PeerFailed { proc, reason }));
    }

    #[test]
    fn maintenance_ends_vcs_contacts_procs_and_grows_tables() {
        let mut world = TestWorld::with(4, Limits { cars_max: 100, ..Limits::default() }, 8);
        let one = world.contact(1, VcState::Connected);
        let progress = world.all().progress;
        progress.to_contact.push(2);
        progress.ended.push((one, Ended::Corrupt("a strange frame".into())));
        progress.pending = Pending::WORLD;
        maintain(&mut world.store.as_mut());
        assert_eq!(world.all().procs.reason(one), "protocol violation: a strange frame");
        assert_eq!((world.vc(2).proc, world.vc(2).state), (2, VcState::Connecting));
        let all = world.all();
        let rows = (all.cars.len() - CONTROL_ROWS, all.requests.len() - CONTROL_ROWS, all.progress.free_cars.count);
        assert_eq!(rows, (16, 16, 16));
        assert!(all.progress.pending.has(Pending::POST) && !all.progress.pending.has(Pending::WORLD));
        for _ in 0..5 {
            maintain(&mut world.store.as_mut());
        }
        assert_eq!(world.all().cars.len() - CONTROL_ROWS, CARS_LOW as usize, "that is enough");
        for _ in 0..2 {
            world.store.as_mut().grow();
        }
        let all = world.all();
        let rows = (all.cars.len() - CONTROL_ROWS, all.progress.free_cars.count, all.progress.rows_exhausted);
        assert_eq!(rows, (100, 100, true));
    }

    #[test]
    fn rows_grow_for_a_submission_that_needs_more_than_are_kept_ahead() {
        let mut world = TestWorld::with(2, Limits::default(), CARS_LOW as usize);
        world.submit(Operation::Send { to: Rank(0), tag: Tag(5) }, vec![1], 0);
        let all = world.all();
        let waits = all.inbound.shared().queue.pop().unwrap();
        all.inbound.waiting().push_back(waits);
        all.progress.pending = Pending::WORLD;
        maintain(&mut world.store.as_mut());
        assert_eq!(world.all().cars.len() - CONTROL_ROWS, 2 * CARS_LOW as usize);
    }

    #[test]
    fn cards_are_found_by_name_and_broken_ones_are_empty() {
        let mut card = Vec::new();
        add_card(&mut card, "shm", &[1, 2, 3]);
        add_card(&mut card, "tcp", &[]);
        assert_eq!(card_of(&card, "shm"), Some(&[1, 2, 3][..]));
        assert_eq!((card_of(&card, "tcp"), card_of(&card, "udp")), (Some(&[][..]), None));
        card.extend([0; 20]);
        assert_eq!(card_of(&card, "udp"), None);
        for cut in 0..8 {
            let _ = card_of(&card[..cut], "tcp");
        }
        assert_eq!(card_of(&[200, 1], "x"), None);
        assert_eq!(card_of(&[1, b'x', 200, 1], "x"), None);
    }
}
