//! How a VC gets its link. This side calls the peer over one route after another, the peer may call too, and if there are two links, both
//! sides agree on one.
//!
//! If the peer may call at the same time over another transport, this side sends nothing over its own call until the peer has said that it
//! uses that link ([`Kind::Call`], [`Kind::Accept`]). So nothing is lost if the call fails, and the next route can be tried. A link that
//! the peer has called over is used at once if this side has no call of its own. Otherwise it waits as a side link:
//!
//! - It is used if this side's own call fails.
//! - If the peer asks for it, it is used instead of this side's call, provided that this call is not open yet or the peer's number is the
//!   lower one.
//! - Once another link is used, a side link that the peer has asked for is closed, and the peer uses the other link too. Any other side
//!   link stays open for one-sided traffic.
//!
//! *Reads* link events, `Progress::calls`. *Writes* VCs (state, endpoint, link) and [`Routes`](tickwire_components::Routes).
//! *Bound* the endpoints, for each VC that connects.
//! *Why* both sides may call at once, over different transports. They must come to the same link, and no message may be lost meanwhile.
//!
//! [`Kind::Call`]: tickwire_components::wire::Kind::Call
//! [`Kind::Accept`]: tickwire_components::wire::Kind::Accept

use crate::procs::ending::{fail, why_ended};
use crate::procs::links::{close_side, connected, has_exposed, has_lent};
use crate::procs::routes::{card_for, endpoint_for, may_cross, message_route};
use crate::store::Tables;
use tickwire_components::limits::CREDIT_INITIAL;
use tickwire_components::wire::transport_number;
use tickwire_components::{
    CallStage, CallWord, Car, CarKind, CarState, Control, NIL, Pending, PostError, ProcId, Row, SideLink, TrafficClass,
    Vc, VcState,
};

/// Calls the proc of a VC over the best route that has not failed yet. If none is left, the VC fails.
pub(crate) fn call(all: &mut Tables<'_>, row: Row) -> Result<(), PostError> {
    let proc = all.vcs[row as usize].proc;
    loop {
        let (endpoint, card) = match message_route(all, proc) {
            Ok(route) => route,
            Err(reason) if all.procs.routes.failed(row).is_empty() => {
                fail(all, row, format!("no transport reaches it: {reason}"));
                return Err(PostError::Unreachable { proc: ProcId(proc), reason });
            }
            Err(_) => return Err(no_route_is_left(all, row)),
        };
        if let Some(reason) = ended_since(all, row) {
            fail(all, row, reason.clone());
            return Err(PostError::PeerFailed { proc: ProcId(proc), reason });
        }
        let transport = all.endpoints[usize::from(endpoint)].transport.get();
        match transport.connect(proc, &card, all.progress.now_ns) {
            Ok(link) => {
                all.procs.routes.attempt_of(row).stage = CallStage::Calling;
                let vc = &mut all.vcs[row as usize];
                (vc.endpoint, vc.link, vc.state) = (endpoint, link, VcState::Connecting);
                all.progress.vc_changes += 1;
                return Ok(());
            }
            Err(reason) => all.procs.routes.note_failed(row, endpoint, reason),
        }
    }
}

/// Fails the VC. The reason names each route that was tried, and why it failed.
fn no_route_is_left(all: &mut Tables<'_>, row: Row) -> PostError {
    let proc = ProcId(all.vcs[row as usize].proc);
    let failed = all.procs.routes.failed(row).to_vec();
    let reason = match &failed[..] {
        [(_, reason)] => reason.clone(),
        _ => {
            let mut name = |endpoint: u8| all.endpoints[usize::from(endpoint)].transport.get().name().to_owned();
            let tried = failed.iter().map(|(endpoint, reason)| format!("{}: {reason}", name(*endpoint)));
            format!("no route is left: {}", tried.collect::<Vec<_>>().join("; "))
        }
    };
    fail(all, row, reason.clone());
    PostError::PeerFailed { proc, reason }
}

/// If the peer's process has ended, no other route needs to be tried: returns why the last one failed.
fn ended_since(all: &mut Tables<'_>, row: Row) -> Option<String> {
    let (_, why) = all.procs.routes.failed(row).last()?.clone();
    let proc = all.vcs[row as usize].proc;
    why_ended(all, proc).map(|_| why)
}

/// Handles the failure of this side's call. The next route is tried, and first of all a link that the peer has called over. If a message
/// has come over the call already, the VC fails.
pub(crate) fn call_failed(all: &mut Tables<'_>, row: Row, reason: String) {
    if was_heard(all, row) {
        // The peer has sent over this link, so it was agreed on.
        return fail(all, row, reason);
    }
    let vc = &mut all.vcs[row as usize];
    let (endpoint, link) = (vc.endpoint, std::mem::replace(&mut vc.link, NIL));
    if link != NIL {
        all.endpoints[usize::from(endpoint)].transport.get().give_up(link, &reason);
    }
    all.progress.control.forget(row);
    all.procs.routes.note_failed(row, endpoint, reason);
    match all.procs.routes.sides.iter().find(|side| side.vc == row && side.is_open).copied() {
        Some(side) => take_side(all, side),
        None => drop(call(all, row)),
    }
}

/// Whether a message of the peer has come over this side's call, before the peer's answer to the call.
fn was_heard(all: &Tables<'_>, row: Row) -> bool {
    let vc = &all.vcs[row as usize];
    let has_paid = vc.lines_owed != 0 || u32::from(vc.envelopes_left) != CREDIT_INITIAL.envelopes;
    let is_arriving = |car: &Car| {
        use CarState::{Matched, Passing, Queued, Reading, Receiving};
        let is_moving = matches!(car.state, Matched | Passing | Queued | Reading | Receiving | CarState::Direct);
        car.vc == row && car.kind == CarKind::Receive && is_moving
    };
    has_paid
        || all.progress.unexpected.entries.iter().any(|kept| kept.vc == row)
        || all.progress.streams.iter().any(|stream| stream.vc == row)
        || all.cars.iter().any(is_arriving)
}

/// Handles a call of this side whose link has opened.
pub(crate) fn opened(all: &mut Tables<'_>, row: Row, link: u32) {
    let Vc { proc, endpoint, state, .. } = all.vcs[row as usize];
    if state == VcState::Connecting && may_cross(all, proc) {
        all.endpoints[usize::from(endpoint)].transport.get().attach(link, row);
        let attempt = all.procs.routes.attempt_of(row);
        if attempt.stage == CallStage::Calling {
            attempt.stage = CallStage::Open;
        }
        return say(all);
    }
    use_link(all, row, endpoint, link);
}

/// Handles a link that the peer has called over.
pub(crate) fn accepted(all: &mut Tables<'_>, row: Row, endpoint: u8, link: u32) {
    let Vc { state, endpoint: old_endpoint, link: old_link, .. } = all.vcs[row as usize];
    if state == VcState::Failed {
        // Nobody would read what the peer sends, so the peer is told at once.
        let words = format!("the connection has failed before: {}", all.procs.reason(row));
        return all.endpoints[endpoint as usize].transport.get().give_up(link, &words);
    }
    if matches!(state, VcState::Connecting | VcState::Connected) && endpoint != old_endpoint {
        return add_side(all, SideLink { vc: row, endpoint, link, is_open: true, is_asked: false });
    }
    let is_second = state == VcState::Connected && old_link != link;
    if is_second && (has_lent(all, row) || has_exposed(all, row)) {
        // Memory that was lent to or exposed on the old link belongs to that link until it ends, so the new link is closed.
        return all.endpoints[endpoint as usize].transport.get().close_link(link);
    }
    use_link(all, row, endpoint, link);
}

/// Makes a link the one that a VC's messages use.
fn use_link(all: &mut Tables<'_>, row: Row, endpoint: u8, link: u32) {
    all.endpoints[usize::from(endpoint)].transport.get().attach(link, row);
    let vc = &mut all.vcs[row as usize];
    (vc.endpoint, vc.link) = (endpoint, link);
    let routes = &mut all.procs.routes;
    routes.set_one_sided(row, None);
    routes.end_attempt(row);
    // Closing these links tells the peer that another link is used.
    let is_over = |side: &mut SideLink| side.vc == row && (side.is_asked || side.endpoint == endpoint);
    let over: Vec<SideLink> = routes.sides.extract_if(.., is_over).collect();
    for side in over.into_iter().filter(|side| side.endpoint != endpoint) {
        close_side(all, side.endpoint, side.link);
    }
    connected(all, row);
}

/// Uses a link that the peer has called over instead of this side's own call.
fn take_side(all: &mut Tables<'_>, side: SideLink) {
    let Vc { endpoint, link, .. } = all.vcs[side.vc as usize];
    if link != NIL {
        all.endpoints[usize::from(endpoint)].transport.get().close_link(link);
        all.progress.control.forget(side.vc);
    }
    use_link(all, side.vc, side.endpoint, side.link);
    if side.is_asked {
        owe(all, side.vc);
    }
}

fn add_side(all: &mut Tables<'_>, side: SideLink) {
    let transport = all.endpoints[usize::from(side.endpoint)].transport.get();
    transport.attach(side.link, side.vc);
    let known = |other: &mut SideLink| other.vc == side.vc && other.endpoint == side.endpoint;
    let known: Vec<SideLink> = all.procs.routes.sides.extract_if(.., known).collect();
    for other in known.into_iter().filter(|other| other.link != side.link) {
        close_side(all, other.endpoint, other.link);
    }
    all.procs.routes.sides.push(side);
}

/// Handles what peers have said of the links of calls.
pub(crate) fn hear(all: &mut Tables<'_>) {
    for CallWord { vc: row, transport: number, accepts } in std::mem::take(&mut all.progress.calls) {
        let Some(&Vc { endpoint, link, state, proc, .. }) = all.vcs.get(row as usize) else { continue };
        let is_named =
            |of: &mut crate::procs::endpoint::Endpoint| transport_number(of.transport.get().name()) == number;
        let Some(over) = all.endpoints.iter_mut().position(is_named) else { continue };
        let over = over as u8;
        match state {
            VcState::Connecting if over == endpoint && accepts => {
                let stage = all.procs.routes.attempt(row).map(|attempt| attempt.stage);
                if stage == Some(CallStage::Asked) {
                    use_link(all, row, endpoint, link);
                }
            }
            VcState::Connecting | VcState::Connected if accepts => {}
            // Both sides have called over this transport, and share one link.
            VcState::Connecting if over == endpoint => {
                use_link(all, row, endpoint, link);
                owe(all, row);
            }
            VcState::Connected if over == endpoint => owe(all, row),
            VcState::Connected => {
                let asked = |side: &mut SideLink| side.vc == row && side.endpoint == over;
                let asked: Vec<SideLink> = all.procs.routes.sides.extract_if(.., asked).collect();
                asked.into_iter().for_each(|side| close_side(all, over, side.link));
            }
            VcState::Connecting => {
                let yields = proc < all.procs.me
                    || all.procs.routes.attempt(row).is_none_or(|attempt| attempt.stage == CallStage::Calling);
                let asked = |side: &&mut SideLink| side.vc == row && side.endpoint == over;
                let Some(side) = all.procs.routes.sides.iter_mut().find(asked) else { continue };
                side.is_asked = true;
                let side = *side;
                if yields {
                    take_side(all, side);
                }
            }
            VcState::Unconnected | VcState::Failed => {}
        }
    }
    say(all);
}

/// Notes that the peer of a VC must be told that its link is used.
fn owe(all: &mut Tables<'_>, row: Row) {
    if !all.procs.routes.owed.contains(&row) {
        all.procs.routes.owed.push(row);
    }
}

/// Queues control frames for the calls and answers that peers are still to be told of, as far as there is room.
pub(crate) fn say(all: &mut Tables<'_>) {
    let routes = &mut all.procs.routes;
    if routes.attempts.is_empty() && routes.owed.is_empty() {
        return;
    }
    let mut number = |row: Row| {
        let endpoint = usize::from(all.vcs[row as usize].endpoint);
        transport_number(all.endpoints[endpoint].transport.get().name())
    };
    let control = &mut all.progress.control;
    let mut is_said = false;
    routes.owed.retain(|&row| {
        let has_room = control.push(row, Control::Accept(number(row)));
        is_said |= has_room;
        !has_room
    });
    let mut is_full = !routes.owed.is_empty();
    for (&row, attempt) in routes.attempts.iter_mut().filter(|(_, attempt)| attempt.stage == CallStage::Open) {
        match control.push(row, Control::Call(number(row))) {
            true => (attempt.stage, is_said) = (CallStage::Asked, true),
            false => is_full = true,
        }
    }
    if is_said || is_full {
        all.progress.pending |= if is_full { Pending::POST | Pending::WORLD } else { Pending::POST };
    }
}

/// Handles the end of a side link. Operations over it fail; the VC does not.
pub(crate) fn side_ended(all: &mut Tables<'_>, endpoint: u8, link: u32, reason: String) {
    let is_it = |side: &mut SideLink| (side.endpoint, side.link) == (endpoint, link);
    let over: Vec<SideLink> = all.procs.routes.sides.extract_if(.., is_it).collect();
    for side in over {
        all.procs.routes.set_one_sided(side.vc, None);
        close_side(all, endpoint, side.link);
        // A call of this side that the peer never answered.
        if !side.is_open {
            all.procs.routes.note_failed(side.vc, endpoint, reason.clone());
        }
    }
}

/// Handles a side link of this side that has opened, or that the transport has replaced by the peer's link (`by`).
pub(crate) fn side_opened(all: &mut Tables<'_>, endpoint: u8, link: u32, by: u32) {
    let Some(side) = all.procs.routes.sides.iter().find(|side| (side.endpoint, side.link) == (endpoint, link)) else {
        return all.endpoints[usize::from(endpoint)].transport.get().give_up(by, "the connection has failed before");
    };
    let row = side.vc;
    all.endpoints[usize::from(endpoint)].transport.get().attach(by, row);
    for side in all.procs.routes.sides.iter_mut().filter(|side| (side.endpoint, side.link) == (endpoint, link)) {
        (side.link, side.is_open) = (by, true);
    }
}

/// Whether a VC is connected for one-sided traffic, or never will be. If the route of one-sided traffic differs from that of messages,
/// calls the VC's proc over it.
pub fn reach_one_sided(all: &mut Tables<'_>, row: Row) -> bool {
    let Some(&Vc { proc, endpoint, state, .. }) = all.vcs.get(row as usize) else { return true };
    if state != VcState::Connected {
        return state == VcState::Failed;
    }
    if all.procs.routes.one_sided(row).is_some() {
        return true;
    }
    let wanted = endpoint_for(all, proc, TrafficClass::OneSided).unwrap_or(endpoint);
    let link = link_over(all, row, wanted);
    all.procs.routes.set_one_sided(row, link.map(|link| (wanted, link)));
    link.is_some()
}

/// The open link of a connected VC over an endpoint. If there is none, calls the VC's proc over that endpoint.
pub fn link_over(all: &mut Tables<'_>, row: Row, over: u8) -> Option<u32> {
    let &Vc { proc, endpoint, link, .. } = all.vcs.get(row as usize)?;
    if over == endpoint {
        return Some(link);
    }
    if let Some(side) = all.procs.routes.side(row, over) {
        return side.is_open.then_some(side.link);
    }
    let card = card_for(all, proc, over);
    match all.endpoints[usize::from(over)].transport.get().connect(proc, &card, all.progress.now_ns) {
        Ok(link) => {
            all.procs.routes.sides.push(SideLink { vc: row, endpoint: over, link, is_open: false, is_asked: false });
        }
        Err(reason) => all.procs.routes.note_failed(row, over, reason),
    }
    None
}

/// Gives up the calls of a VC over side links that nobody has answered for too long.
pub fn give_up_one_sided(all: &mut Tables<'_>, row: Row, reason: &str) {
    let silent = |side: &mut SideLink| side.vc == row && !side.is_open;
    let sides: Vec<SideLink> = all.procs.routes.sides.extract_if(.., silent).collect();
    for side in sides {
        all.endpoints[usize::from(side.endpoint)].transport.get().close_link(side.link);
        all.procs.routes.note_failed(row, side.endpoint, reason.to_owned());
    }
}
