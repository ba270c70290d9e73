//! What tests inspect: the rows, what is pending as text, and the invariants that hold after every tick.

use crate::Engine;
use std::fmt::Write;
use tickwire_components::{
    ArrivalState, Body, Car, CarKind, CarState, Destination, FreeList, Link, NIL, Progress, Queue, Request,
    RequestState, Row, SupplyState, Unexpected, UnexpectedQueue, car_flags,
};
use tickwire_systems::protocols::graph::kept::forget;
use tickwire_systems::steps::provider::is_at_provider;
use tickwire_systems::store::Tables;

/// Most rows of a kind that a dump shows.
const SHOWN: usize = 40;

/// All tables of an engine.
pub fn rows(engine: &mut Engine) -> Tables<'_> {
    engine.store.all()
}

/// What is pending in an engine, as text.
pub fn dump(engine: &mut Engine) -> String {
    let all = engine.store.all();
    let progress = all.progress;
    let mut out = format!(
        "pending {:#b}, {} active, {} scoped, {} unexpected, {} arrivals, {:?}\n",
        progress.pending.0,
        progress.active,
        progress.scoped,
        progress.unexpected.count,
        progress.arrivals,
        progress.work.get()
    );
    for (row, vc) in all.vcs.iter().enumerate() {
        let reason = all.procs.reason(row as Row);
        let reason = if vc.state == tickwire_components::VcState::Failed { reason } else { "" };
        let _ = writeln!(
            out,
            "  vc {row}: proc {} {:?} {reason} link {} sends {:?} data {:?} posted {:?}",
            vc.proc, vc.state, vc.link as i32, vc.sends.head as i32, vc.data.head as i32, vc.posted.head as i32
        );
        let _ = writeln!(
            out,
            "    may send {} lines, {} offers; owes {} lines, keeps {} offers, {} may come",
            vc.lines, vc.envelopes, vc.lines_owed, vc.offers_kept, vc.envelopes_left
        );
    }
    let used = |(_, car): &(usize, &Car)| !matches!(car.kind, CarKind::None | CarKind::Data);
    for (row, car) in all.cars.iter().enumerate().filter(used).take(SHOWN) {
        let (source, tag) = (car.source as i32, car.tag as i32);
        let _ = writeln!(
            out,
            "  car {row}: {:?} {:?} source {source} tag {tag} vc {} done {} of {} request {} flags {:#b}",
            car.kind, car.state, car.vc as i32, car.done, all.large[row].length, car.request, car.flags
        );
    }
    let used = |(_, request): &(usize, &Request)| request.state != RequestState::Free;
    for (row, request) in all.requests.iter().enumerate().filter(used).take(SHOWN) {
        let _ = writeln!(out, "  request {row}: {:?} counter {}", request.state, request.counter);
    }
    out
}

pub(super) fn walk<L: Link>(rows: &mut [L], head: Row, name: &str) -> Result<Vec<Row>, String> {
    let (mut found, mut row) = (Vec::new(), head);
    while row != NIL {
        found.push(row);
        if found.len() > rows.len() {
            return Err(format!("the list {name} goes in a circle"));
        }
        row = *rows.get_mut(row as usize).ok_or_else(|| format!("the list {name} leads to row {row}"))?.next_mut();
    }
    Ok(found)
}

fn free<L: Link>(rows: &mut [L], list: FreeList, name: &str) -> Result<Vec<Row>, String> {
    let found = walk(rows, list.head, name)?;
    match found.len() == list.count as usize {
        true => Ok(found),
        false => Err(format!("the list {name} counts {} and has {}", list.count, found.len())),
    }
}

/// Checks the invariants that hold between two ticks, whatever has happened.
///
/// # Errors
/// The first invariant that does not hold, as text.
pub fn check_invariants(engine: &mut Engine) -> Result<(), String> {
    let mut all = engine.store.all();
    let place = check_lists(&mut all)?;
    check_free_cars(&mut all)?;
    check_places(&all, &place)?;
    check_requests(&all)?;
    check_provider(all.progress, all.cars)?;
    check_counts(engine)
}

/// The lists of CARs in use, and the state that a CAR has in each.
fn lists(all: &Tables<'_>) -> Vec<(&'static str, Queue, CarState)> {
    let progress = &*all.progress;
    let mut lists = vec![
        ("new_receives", progress.new_receives, CarState::New),
        ("to_provider", progress.provider.queue, CarState::ToProvider),
        ("wildcard", progress.wildcard, CarState::Posted),
        ("offers", progress.offers, CarState::Matched),
        ("copies", progress.copies, CarState::Matched),
        ("reads", progress.reads, CarState::Reading),
        ("replies", progress.replies, CarState::Queued),
        ("finished", progress.finished, CarState::Finished),
        ("startable", progress.graphs.startable, CarState::Startable),
    ];
    for vc in all.vcs.iter() {
        lists.push(("sends", vc.sends, CarState::Queued));
        lists.push(("data", vc.data, CarState::Sending));
        lists.push(("posted", vc.posted, CarState::Posted));
    }
    lists
}

/// Checks that every list is whole, that its CARs have its state, and that no CAR is in two lists. Returns the list of each CAR.
fn check_lists(all: &mut Tables<'_>) -> Result<Vec<Option<&'static str>>, String> {
    let mut place = vec![None; all.cars.len()];
    for (name, queue, state) in lists(all) {
        let found = walk(all.cars, queue.head, name)?;
        if found.last().copied().unwrap_or(NIL) != queue.tail {
            return Err(format!("the tail of {name} is not its last row"));
        }
        for row in found {
            let car = &all.cars[row as usize];
            if state == CarState::ToProvider && is_any(car) {
                // It is in the index too.
                continue;
            }
            // A call can pair a receive with a message that is still arriving, or that was cut off. The next tick copies what has arrived.
            let cut_off = car.flags & car_flags::PEER_FAILED != 0;
            let arriving = || cut_off || all.progress.streams.iter().any(|s| s.to == Destination::Receive(row));
            let taken_over = name == "copies" && car.state == CarState::Receiving && arriving();
            if car.state != state && !taken_over {
                return Err(format!("CAR {row} in {name} is {:?}", car.state));
            }
            if let Some(other) = place[row as usize].replace(name) {
                return Err(format!("CAR {row} is in {name} and in {other}"));
            }
        }
    }
    Ok(place)
}

/// Checks that exactly the free CARs are in the free list.
fn check_free_cars(all: &mut Tables<'_>) -> Result<(), String> {
    let free_cars = free(all.cars, all.progress.free_cars, "free CARs")?;
    if let Some(row) = free_cars.iter().find(|&&row| all.cars[row as usize].state != CarState::Free) {
        return Err(format!("CAR {row} is in the free list and {:?}", all.cars[*row as usize].state));
    }
    let busy = all.cars.iter().filter(|car| car.state != CarState::Free).count();
    if busy + free_cars.len() != all.cars.len() {
        return Err(format!("{busy} CARs are used and {} free, of {}", free_cars.len(), all.cars.len()));
    }
    Ok(())
}

/// Checks that every CAR whose state requires it is in a list or in the index of posted receives, and that the index counts its CARs.
fn check_places(all: &Tables<'_>, place: &[Option<&str>]) -> Result<(), String> {
    let in_list = |state| {
        use CarState::{
            AtProvider, Chained, Direct, Done, Matched, Offered, Parked, Passing, Recalled, Receiving, Resting, Waiting,
        };
        let in_none = matches!(state, Offered | Receiving | Passing | Parked | Direct | Chained | Matched | Done);
        !in_none && !matches!(state, AtProvider | Recalled | Waiting | Resting)
    };
    let mut indexed = 0;
    for (row, car) in all.cars.iter().enumerate().filter(|(_, car)| car.state != CarState::Free) {
        let in_index = all.progress.indexed() && car.state == CarState::Posted;
        indexed += u32::from(in_index);
        if place[row].is_none() != in_index && in_list(car.state) {
            return Err(format!("CAR {row} is {:?} and in no list", car.state));
        }
    }
    match all.progress.posted.count {
        count if count == indexed => Ok(()),
        count => Err(format!("{indexed} CARs are posted, the index has {count}")),
    }
}

/// Checks that a CAR is done exactly if its request is, and that a CAR in use has a request unless it belongs to another one.
fn check_requests(all: &Tables<'_>) -> Result<(), String> {
    for (row, (car, request)) in all.cars.iter().zip(all.requests.iter()).enumerate() {
        let over = matches!(request.state, RequestState::Done | RequestState::Inactive);
        let in_graph = all.nodes[row].graph != NIL;
        let needs_none = matches!(car.state, CarState::Free | CarState::Chained) || in_graph;
        if (car.state == CarState::Done) != over || (request.state == RequestState::Free && !needs_none) {
            return Err(format!("CAR {row} is {:?} and its request {:?}", car.state, request.state));
        }
    }
    Ok(())
}

fn is_any(car: &Car) -> bool {
    car.state == CarState::Posted && car.flags & car_flags::ANY_SOURCE != 0
}

/// Checks the counts of receives at a transport that matches messages itself.
fn check_provider(progress: &Progress, cars: &[Car]) -> Result<(), String> {
    let there = cars.iter().filter(|car| is_at_provider(car) || car.state == CarState::Recalled).count();
    // A receive that has come back for a message is no longer at a transport.
    let back = progress.provider.deferred.iter().filter(|message| message.came_back).count();
    if there - back != progress.provider.count as usize {
        return Err(format!("{there} receives are at a transport, {} are counted", progress.provider.count));
    }
    let recalled = |row: u32| cars.get(row as usize).is_some_and(|car| car.state == CarState::Recalled);
    match progress.provider.deferred.iter().find(|message| message.receive != NIL && !recalled(message.receive)) {
        Some(held) => Err(format!("CAR {} is not asked back, and a message is held for it", held.receive)),
        None => Ok(()),
    }
}

fn check_counts(engine: &mut Engine) -> Result<(), String> {
    let all = engine.store.all();
    let progress = all.progress;
    let open = |request: &&Request| matches!(request.state, RequestState::Active | RequestState::Detached);
    let active = all.requests.iter().filter(open).count();
    if active != progress.active as usize {
        return Err(format!("{active} requests are active, {} are counted", progress.active));
    }
    if let Some(row) = all.requests.iter().position(|r| open(&r) && r.counter == 0) {
        return Err(format!("request {row} is active with counter 0"));
    }
    let mut held = 0;
    for class in 0..progress.free_buffers.len() {
        held += free(all.buffers, progress.free_buffers[class], "free buffers")?.len();
    }
    held += waiting_messages(&progress.unexpected)?.iter().filter(|unexpected| unexpected.buffer() != NIL).count();
    for row in walk(all.cars, progress.copies.head, "copies")? {
        held += usize::from(matches!(all.large[row as usize].body, Body::Kept { buffer } if buffer != NIL));
    }
    held += all.supplies.iter().flat_map(|supply| &supply.group).filter(|granted| granted.buffer != NIL).count();
    let free_supplies = free(all.supplies, progress.free_supplies, "free supplies")?;
    if let Some(row) = free_supplies.iter().find(|&&row| all.supplies[row as usize].state != SupplyState::Free) {
        return Err(format!("supply {row} is in the free list and {:?}", all.supplies[*row as usize].state));
    }
    let waiting = all.arrivals[..progress.arrivals as usize].iter().any(|a| a.state != ArrivalState::Handled);
    if held != all.buffers.len() && !waiting {
        return Err(format!("{held} buffers are free or hold a message, of {}", all.buffers.len()));
    }
    Ok(())
}

/// The entries in the unexpected queue, and those that a matched probe has claimed.
pub(super) fn waiting_messages(queue: &UnexpectedQueue) -> Result<Vec<Unexpected>, String> {
    let (mut entries, mut free) = (queue.entries.clone(), queue.free);
    let mut used = vec![true; entries.len()];
    while free != NIL {
        if !std::mem::replace(&mut used[free as usize], false) {
            return Err("the free list of unexpected entries goes in a circle".into());
        }
        free = entries[free as usize].next;
    }
    let (mut queued, mut previous, mut row) = (0, NIL, queue.head);
    while let Some(entry) = entries.get(row as usize) {
        if entry.previous != previous || !used[row as usize] || queued == queue.count {
            return Err(format!("the unexpected queue is broken at entry {row}"));
        }
        (previous, row, queued) = (row, entry.next, queued + 1);
    }
    if (queued, previous) != (queue.count, queue.tail) {
        return Err(format!("{queued} unexpected messages are queued, {} are counted", queue.count));
    }
    let mut used = used.into_iter();
    entries.retain(|_| used.next().unwrap_or(false));
    Ok(entries)
}

/// Checks that every row is free again, and that nothing is kept for operations that are over.
pub(super) fn at_rest(engine: &mut Engine) -> Result<(), String> {
    check_invariants(engine)?;
    // Graphs that are kept for similar calls are not operations, so they are removed first.
    engine.store.with(|rows, _| forget(rows, |_| true));
    let all = engine.store.all();
    let progress = &*all.progress;
    // Credit in flight belongs to no operation.
    let used = all.cars.iter().filter(|car| car.state != CarState::Free).count();
    let requests = all.requests.iter().filter(|request| request.state != RequestState::Free).count();
    if (used, requests, progress.unexpected.count, progress.scoped) != (0, 0, 0, 0) {
        let unexpected = progress.unexpected.count;
        return Err(format!("{used} CARs, {requests} requests, {unexpected} unexpected, {} scoped", progress.scoped));
    }
    let (registered, offered) = (progress.registrations.users(), progress.offered.len());
    if (registered, offered) != (0, 0) {
        return Err(format!("{registered} operations with registered memory, {offered} offers with priorities"));
    }
    Ok(())
}
