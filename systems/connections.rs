//! Connections: first contact, link events, and the end of a VC. Runs between passes, on the world as a whole.
//!
//! *Reads* link events of the transports, `Progress::wanted`, `Progress::ended`. *Writes* proc entities (spawned at
//! first contact), VCs (state, link), and every CAR, request and unexpected offer that needs a VC which has ended.
//! *Bound* the events there are; a VC that ends costs a look at each CAR row, once.
//! *Why* tables grow and procs appear only here, so that no system ever sees a row move.

use crate::complete::abort;
use crate::endpoint::Endpoint;
use crate::tables::{AllTables, Tables};
use bevy_ecs::world::World;
use tickwire_components::limits::ARRIVALS;
use tickwire_components::{
    CarKind, CarState, Ended, NIL, Pending, PostError, ProcId, Queue, RequestState, Row, Vc, VcState, car_flags,
};
use tickwire_transports::LinkEvent;

/// Free CAR rows below which more are spawned ahead of use.
const CARS_LOW: u32 = 64;

/// Does what systems asked for and only the world as a whole can do.
#[cold]
pub fn maintain(world: &mut World, tables: &Tables) {
    let progress = tables.progress(world);
    progress.pending.clear(Pending::WORLD);
    let wanted = std::mem::take(&mut progress.wanted);
    let ended = std::mem::take(&mut progress.ended);
    let (cars, buffers) = (progress.free_cars.count.min(progress.free_requests.count), progress.free_buffer_rows());
    for proc in wanted {
        // A proc that cannot be reached has a failed VC, and its submission is refused with the reason.
        let _ = contact(world, tables, proc);
        tables.progress(world).pending |= Pending::POST;
    }
    for (row, why) in ended {
        let words = match why {
            Ended::Finalized => "the peer has finalized".to_owned(),
            Ended::Corrupt(words) => format!("protocol violation: {words}"),
            Ended::Link(words) => words,
        };
        fail(&mut tables.all(world), row, words);
    }
    if cars < CARS_LOW {
        tables.grow(world);
    }
    if buffers < ARRIVALS as u32 {
        tables.grow_buffers(world);
    }
}

/// The row of a proc, with a VC that is at least connecting.
///
/// # Errors
/// If the number is out of range, or no transport reaches it.
pub fn contact(world: &mut World, tables: &Tables, proc: u32) -> Result<Row, PostError> {
    let row = known_row(world, tables, proc)?;
    let mut all = tables.all(world);
    if all.vcs[row as usize].state == VcState::Unconnected {
        connect(&mut all, row)?;
    }
    Ok(row)
}

/// The row of a proc; spawns its entity at first contact.
fn known_row(world: &mut World, tables: &Tables, proc: u32) -> Result<Row, PostError> {
    let mut all = tables.all(world);
    let Some(known) = all.procs.known.get(proc as usize) else {
        return Err(PostError::Rank { rank: proc, last: all.procs.known.len() as u32 - 1 });
    };
    if known.row != NIL {
        return Ok(known.row);
    }
    let endpoint = route(&mut all, proc).map_or(0, |(endpoint, _)| endpoint);
    let row = spawn_proc(world, proc, endpoint);
    tables.refresh(world);
    tables.all(world).procs.known[proc as usize].row = row;
    Ok(row)
}

/// Spawns a proc's entity; its row is the number of procs before it.
pub fn spawn_proc(world: &mut World, proc: u32, endpoint: u8) -> Row {
    let entity = world.spawn(Vc::new(proc, endpoint)).id();
    world.entity(entity).location().table_row.index() as Row
}

/// The endpoint that reaches a proc, the highest priority first, and that proc's card for it.
fn route(all: &mut AllTables<'_>, proc: u32) -> Result<(u8, Vec<u8>), String> {
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

/// Puts one transport's part into a card. See [`card_of`].
pub fn add_card(card: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    card.push(name.len() as u8);
    card.extend_from_slice(name.as_bytes());
    card.push(bytes.len() as u8);
    card.extend_from_slice(bytes);
}

/// Starts to connect a VC over the best route.
fn connect(all: &mut AllTables<'_>, row: Row) -> Result<(), PostError> {
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
pub fn control(world: &mut World, tables: &Tables, events: &mut Vec<LinkEvent>) {
    let count = tables.endpoints(world).len();
    let now_ns = tables.progress(world).now_ns;
    for index in 0..count {
        events.clear();
        tables.endpoints(world)[index].transport.get().control(now_ns, events);
        for event in events.drain(..) {
            handle(world, tables, index as u8, event);
        }
    }
}

fn handle(world: &mut World, tables: &Tables, endpoint: u8, event: LinkEvent) {
    match event {
        LinkEvent::Connected { link } => {
            let mut all = tables.all(world);
            if let Some(row) = row_of(&all, endpoint, link) {
                accepted(&mut all, row, endpoint, link);
            }
        }
        LinkEvent::Accepted { link, proc } => {
            let Ok(row) = known_row(world, tables, proc) else { return };
            let mut all = tables.all(world);
            accepted(&mut all, row, endpoint, link);
        }
        LinkEvent::Replaced { link, by } => {
            let mut all = tables.all(world);
            if let Some(row) = row_of(&all, endpoint, link) {
                accepted(&mut all, row, endpoint, by);
            }
        }
        LinkEvent::Failed { link, reason } => {
            let mut all = tables.all(world);
            if let Some(row) = row_of(&all, endpoint, link) {
                fail(&mut all, row, reason);
            }
        }
    }
}

fn row_of(all: &AllTables<'_>, endpoint: u8, link: u32) -> Option<Row> {
    let found = all.vcs.iter().position(|vc| vc.endpoint == endpoint && vc.link == link && vc.state != VcState::Failed);
    found.map(|row| row as Row)
}

fn accepted(all: &mut AllTables<'_>, row: Row, endpoint: u8, link: u32) {
    all.endpoints[endpoint as usize].transport.get().attach(link, row);
    let vc = &mut all.vcs[row as usize];
    if vc.state == VcState::Failed {
        return;
    }
    vc.endpoint = endpoint;
    vc.link = link;
    connected(all, row);
}

/// Frames may flow: what was sent while connecting goes first, in order.
fn connected(all: &mut AllTables<'_>, row: Row) {
    let vc = &mut all.vcs[row as usize];
    vc.state = VcState::Connected;
    if !vc.sends.is_empty() || !vc.data.is_empty() {
        crate::posting::list_sender(all.progress, all.vcs, row);
    }
    all.progress.pending |= Pending::DRAIN;
}

/// Ends a VC: every operation that needs it gets the reason, all others go on.
pub fn fail(all: &mut AllTables<'_>, row: Row, reason: String) {
    let Some(vc) = all.vcs.get_mut(row as usize) else { return };
    if vc.state == VcState::Failed {
        return;
    }
    let (link, endpoint, proc) = (vc.link, vc.endpoint, vc.proc);
    vc.state = VcState::Failed;
    (vc.sends, vc.data, vc.posted) = (Queue::EMPTY, Queue::EMPTY, Queue::EMPTY);
    all.procs.reasons.push((row, reason));
    if link != NIL {
        all.endpoints[endpoint as usize].transport.get().close_link(link);
    }
    let needs = [CarState::Queued, CarState::Offered, CarState::Sending, CarState::Posted, CarState::Receiving];
    for car in 0..all.cars.len() {
        let state = all.cars[car].state;
        if all.cars[car].vc == row && needs.contains(&state) && all.cars[car].kind != CarKind::Data {
            abort(all.progress, all.cars, car as Row, car_flags::PEER_FAILED);
        }
    }
    // Offers whose data is gone with the peer. Eager messages that have arrived can still be received.
    while all.progress.unexpected.take(|u| u.vc == row && u.message != NIL).is_some() {}
    disturb(all, proc);
}

/// Receives from any source that the proc might have matched are told; they stay posted.
fn disturb(all: &mut AllTables<'_>, proc: u32) {
    let mut car = all.progress.wildcard.head;
    while let Some(row) = all.cars.get(car as usize) {
        let comm = all.progress.contexts.get(row.context as usize).and_then(|&c| all.communicators.get(c as usize));
        if comm.is_some_and(|comm| comm.rank_of(proc).is_some()) {
            let request = &mut all.requests[row.request as usize];
            request.disturbed |= request.state == RequestState::Active;
        }
        car = row.next;
    }
}

/// Whether an endpoint needs [`control`] now.
#[inline]
pub fn wants_control(endpoints: &mut [Endpoint]) -> bool {
    endpoints.iter_mut().any(|endpoint| endpoint.transport.get().wants_control())
}
