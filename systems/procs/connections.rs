//! Connections: first contact, link events, and the end of VCs. Runs between passes, on the whole world.
//!
//! *Reads* link events of the transports, `Progress::to_contact`, `Progress::ended`. *Writes* proc entities (spawned at first contact), VCs
//! (state, link), and each CAR, request and unexpected offer that needs a VC which has ended.
//! *Bound* the number of events. A VC that ends costs one look at each CAR row.
//! *Why* tables grow and procs appear only here, so that no system ever sees a row move.

use crate::procs::calls::{accepted, call, call_failed, hear, opened, side_ended, side_opened};
use crate::procs::ending::{depart, fail, remind, why_ended};
use crate::procs::endpoint::Endpoint;
use crate::procs::routes::message_route;
use crate::protocols::graph::kept::forget;
use crate::steps::registering::sweep;
use crate::store::{StoreMut, Tables};
use tickwire_components::limits::{ARRIVALS, CARS_LOW, PROCS_ASKED_A_LOOK};
use tickwire_components::submission::Task;
use tickwire_components::{
    ArrivalState, Attempt, CallStage, CarKind, CarState, Ended, NIL, Pending, PostError, Row, VcState,
};
use tickwire_transports::LinkEvent;

/// Does what systems have asked for and only the owner of the whole world can do.
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
    // A submission that waits for no contact waits for free rows. A call of another thread waits for its turn.
    let short = wanted.is_empty() && matches!(store.all().inbound.waiting().front(), Some(Task::Operation(_)));
    for proc in wanted {
        // If the proc cannot be reached, its VC has failed, and the submission is refused with the reason.
        let _ = contact(store, proc);
        store.progress().pending |= Pending::POST;
    }
    // A goodbye that was read before the link failed counts, wherever it stands in the list.
    let finalized: Vec<Row> = ended.iter().filter(|(_, why)| *why == Ended::Finalized).map(|(row, _)| *row).collect();
    let mut failed: Vec<Row> = Vec::new();
    for (row, why) in ended {
        let mut all = store.all();
        match why {
            Ended::Link(_) if finalized.contains(&row) => depart(&mut all, row, Ended::FINALIZED.to_owned()),
            // The first failure may have put another link in place. The second one is not about that.
            Ended::Link(_) if failed.contains(&row) => {}
            // Messages that were read before the end, and that Match has not seen yet, are matched first.
            Ended::Link(words) if is_awaited(&all, row) => {
                all.progress.ended.push((row, Ended::Link(words)));
                all.progress.pending |= Pending::WORLD;
            }
            // A transport is still moving a message that was sent before the goodbye. Wait for that message, or for the end of the link.
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
            Ended::Link(words) if is_called(&all, row) => {
                failed.push(row);
                call_failed(&mut all, row, words);
            }
            Ended::Link(words) => fail(&mut all, row, words),
        }
    }
    let mut all = store.all();
    if !(all.progress.calls.is_empty() && all.procs.routes.attempts.is_empty() && all.procs.routes.owed.is_empty()) {
        hear(&mut all);
    }
    let has_grown = (cars < CARS_LOW || short) && store.grow();
    if short && !has_grown {
        // The last rows are those of graphs that are kept to be used again.
        store.with(|rows, _| forget(rows, |_| true));
    }
    if buffers < ARRIVALS as u32 {
        store.grow_buffers();
    }
}

/// The row of a proc. Connects its VC, if it was never connected.
///
/// # Errors
/// If the number is out of range, no transport reaches it, or the world is lost by it ([`StoreMut::verify`]).
pub fn contact(store: &mut StoreMut<'_>, proc: u32) -> Result<Row, PostError> {
    let row = known_row(store, proc)?;
    let mut all = store.all();
    if all.vcs[row as usize].state == VcState::Unconnected {
        call(&mut all, row)?;
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
    let endpoint = message_route(&mut all, proc).map_or(0, |(endpoint, _)| endpoint);
    let row = store.spawn_proc(proc, endpoint)?;
    store.all().procs.known[proc as usize].row = row;
    Ok(row)
}

/// Lets every transport manage its links, and handles the events that it reports.
#[cold]
pub fn control(store: &mut StoreMut<'_>, events: &mut Vec<LinkEvent>) {
    let count = store.endpoints().len();
    let now_ns = store.progress().now_ns;
    for index in 0..count {
        events.clear();
        // If a first contact has lost the world, there are no endpoints any more.
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
            match row_of(&all, endpoint, link) {
                Some(row) => opened(&mut all, row, link),
                None if is_side(&all, endpoint, link) => side_opened(&mut all, endpoint, link, link),
                None => {}
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
                None => side_opened(&mut all, endpoint, link, by),
            }
        }
        LinkEvent::Failed { link, reason } => {
            let mut all = store.all();
            let Some(row) = row_of(&all, endpoint, link) else { return side_ended(&mut all, endpoint, link, reason) };
            // A peer that has said goodbye has ended in order.
            match all.progress.ended.iter().position(|ended| *ended == (row, Ended::Finalized)) {
                Some(at) => {
                    all.progress.ended.remove(at);
                    depart(&mut all, row, Ended::FINALIZED.to_owned());
                }
                // Messages that were read before the end, and that Match has not seen yet, are matched first.
                None if is_awaited(&all, row) => {
                    all.progress.ended.push((row, Ended::Link(reason)));
                    all.progress.pending |= Pending::WORLD;
                }
                None if is_called(&all, row) => call_failed(&mut all, row, reason),
                None => fail(&mut all, row, reason),
            }
        }
    }
}

/// Whether frames of a VC have been read and are not handled yet.
fn is_awaited(all: &Tables<'_>, row: Row) -> bool {
    let arrivals = &all.arrivals[..all.progress.arrivals as usize];
    arrivals.iter().any(|arrival| arrival.vc == row && arrival.state != ArrivalState::Handled)
}

/// Whether a VC is still connecting.
fn is_called(all: &Tables<'_>, row: Row) -> bool {
    all.vcs.get(row as usize).is_some_and(|vc| vc.state == VcState::Connecting)
}

fn is_side(all: &Tables<'_>, endpoint: u8, link: u32) -> bool {
    all.procs.routes.sides.iter().any(|side| (side.endpoint, side.link) == (endpoint, link))
}

fn row_of(all: &Tables<'_>, endpoint: u8, link: u32) -> Option<Row> {
    let found = all.vcs.iter().position(|vc| vc.endpoint == endpoint && vc.link == link && vc.state != VcState::Failed);
    found.map(|row| row as Row)
}

/// Handles the launcher's report that a proc's process has ended, in order or by a failure.
pub fn process_ended(store: &mut StoreMut<'_>, proc: u32, reason: String, failed: bool) {
    let all = store.all();
    let Some(known) = all.procs.known.get(proc as usize) else { return };
    if proc == all.procs.me || known.row == NIL && !failed {
        return;
    }
    let Ok(row) = known_row(store, proc) else { return };
    let mut all = store.all();
    // A call whose link is open has frames to read, though the peer has yet to say that it uses the link.
    let is_calling = |attempt: &Attempt| attempt.stage == CallStage::Calling;
    let is_open = all.procs.routes.attempt(row).is_some_and(|attempt| !is_calling(attempt));
    match (all.vcs[row as usize].state, failed) {
        // The connection reports the end itself, after the last frame. If that is a goodbye, the launcher's report of a failure still
        // counts.
        (VcState::Connected, true) => all.procs.fallen.push((proc, reason)),
        (VcState::Connecting, true) if is_open => all.procs.fallen.push((proc, reason)),
        (VcState::Connected, false) => {}
        (VcState::Connecting, false) if is_open => {}
        (VcState::Unconnected | VcState::Connecting, true) => fail(&mut all, row, reason),
        (VcState::Unconnected | VcState::Connecting, false) => depart(&mut all, row, reason),
        (VcState::Failed, true) => {
            if let Some(at) = all.procs.departed.iter().position(|&departed| departed == row) {
                all.procs.departed.swap_remove(at);
                all.procs.reasons.push((row, reason));
                all.vcs[row as usize].acknowledged = false;
                all.progress.unacknowledged += 1;
                all.progress.pending |= Pending::COMPLETE;
                remind(&mut all);
            }
        }
        (VcState::Failed, false) => {}
    }
}

/// Asks the transports whether the processes of some procs that were never contacted have ended, beginning with proc `next`. Needed for
/// receives from any source, where no launcher reports failures.
pub fn ask_after(store: &mut StoreMut<'_>, next: &mut u32) {
    let procs = store.all().procs.known.len() as u32;
    for _ in 0..procs.min(PROCS_ASKED_A_LOOK) {
        let proc = *next % procs;
        *next = proc + 1;
        ask_after_one(store, proc);
    }
}

/// Asks the transports whether the process of a proc has ended. Does nothing if the proc was contacted, since its connection reports that.
pub fn ask_after_one(store: &mut StoreMut<'_>, proc: u32) {
    let all = store.all();
    let Some(row) = all.procs.known.get(proc as usize).map(|known| known.row) else { return };
    if proc == all.procs.me || all.vcs.get(row as usize).is_some_and(|vc| vc.state != VcState::Unconnected) {
        return;
    }
    if let Some(reason) = why_ended(&mut store.all(), proc) {
        process_ended(store, proc, reason, true);
    }
}

/// Asks the transports whether the process of a proc has ended that has an update lock or an access epoch, whatever its connection says. If
/// so, the lock may be taken over, and nothing is written in the epoch any more.
pub fn ask_whether_ended(store: &mut StoreMut<'_>, proc: u32) {
    let mut all = store.all();
    let Some(known) = all.procs.known.get(proc as usize) else { return };
    if proc == all.procs.me || all.procs.gone.contains(&known.row) {
        return;
    }
    let Some(reason) = why_ended(&mut all, proc) else { return };
    let Ok(row) = known_row(store, proc) else { return };
    let all = store.all();
    all.procs.gone.push(row);
    // Otherwise the connection reports the end.
    if all.vcs[row as usize].state == VcState::Unconnected {
        process_ended(store, proc, reason, true);
    }
}

/// Asks after the members that have the update locks that requests of other members wait for.
pub fn ask_after_holders(store: &mut StoreMut<'_>) {
    let all = store.all();
    let waiting = all.windows.busy.iter().filter_map(|&row| all.windows.list.get(row as usize)?.as_deref());
    let holders: Vec<u32> = waiting
        .flat_map(|window| window.served.iter().map(move |served| (window, served)))
        .filter(|(_, served)| !served.is_done() && served.holder != NIL)
        .filter_map(|(window, served)| window.proc_of(all.vcs, served.holder))
        .collect();
    for proc in holders {
        ask_whether_ended(store, proc);
    }
}

/// Whether a transport is moving a message of a VC into this process.
fn is_moved_to(all: &Tables<'_>, row: Row) -> bool {
    all.cars.iter().any(|car| car.state == CarState::Direct && car.kind == CarKind::Receive && car.vc == row)
}

/// Whether any endpoint needs [`control`] now.
#[inline]
pub fn wants_control(endpoints: &mut [Endpoint]) -> bool {
    endpoints.iter_mut().any(|endpoint| endpoint.transport.get().wants_control())
}

#[cfg(test)]
mod tests;
