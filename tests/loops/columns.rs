//! The content of an engine's tables, in lines that do not depend on the numbers of rows.

use tickwire::Engine;
use tickwire::internals::components::{
    Car, CarKind, CarState, NIL, Queue, Request, RequestState, Row, car_flags, context,
};
use tickwire::testing::rows;

/// A CAR without its row numbers. The length is shown only for sends that have started. Otherwise the field may hold an
/// old value: a send of a graph that left within its call has never written it.
fn show(car: &Car, length: u64) -> String {
    let length = if car.kind == CarKind::Send && !matches!(car.state, CarState::Waiting | CarState::Resting) {
        length
    } else {
        0
    };
    let Car { kind, state, source, tag, done, flags, priority, .. } = *car;
    let flags = flags & !car_flags::STARTED;
    format!("{kind:?} {state:?} source {source} tag {tag} {done} of {length}, flags {flags:#x}, priority {priority}")
}

/// The tables of an engine. `credit` adds the credit of its VCs. `graphs` adds operations of graphs.
pub(crate) fn columns(engine: &mut Engine, credit: bool, graphs: bool) -> Vec<String> {
    let is_shown = |word: u32| graphs || context::plane(word) == context::USER;
    let all = rows(engine);
    let queue = |queue: Queue| {
        let mut shown = Vec::new();
        let mut row: Row = queue.head;
        while row != NIL && shown.len() <= all.cars.len() {
            shown.push(show(&all.cars[row as usize], all.large[row as usize].length));
            row = all.cars[row as usize].next;
        }
        shown
    };
    let mut lines = Vec::new();
    for vc in all.vcs.iter() {
        let queues = [vc.sends, vc.data, vc.posted].map(queue);
        lines.push(format!("vc to {} {:?}, acknowledged {}: {queues:?}", vc.proc, vc.state, vc.acknowledged));
        if credit {
            let (lines_left, envelopes) = (vc.lines, vc.envelopes);
            let (owed, kept, left) = (vc.lines_owed, vc.offers_kept, vc.envelopes_left);
            lines.push(format!("  may send {lines_left}, {envelopes}; owes {owed}, keeps {kept}, {left} may come"));
        }
    }
    let entries = &all.progress.unexpected.entries;
    let mut row = all.progress.unexpected.head;
    while let Some(entry) = entries.get(row as usize) {
        let (offered, source) = (entry.message() != NIL, entry.source);
        if is_shown(entry.context) {
            lines.push(format!("unexpected from {source}, tag {}: {} B, offered {offered}", entry.tag, entry.length));
        }
        row = entry.next;
    }
    // Rows of kept graphs are not shown where frames may be late. A graph is kept if it has ended when the next equal
    // one begins, and that differs between the sides.
    let is_kept = |car: &Car| !credit && car.state == CarState::Resting;
    let used = all.cars.iter().zip(all.large.iter());
    let used = used.filter(|(car, _)| car.state != CarState::Free && is_shown(car.context));
    let used = used.filter(|(car, _)| !is_kept(car));
    let mut cars: Vec<String> = used.map(|(car, large)| show(car, large.length)).collect();
    cars.sort();
    lines.extend(cars);
    let states = [RequestState::Active, RequestState::Done, RequestState::Detached, RequestState::Inactive];
    let counts = states.map(|state| all.requests.iter().filter(|request| request.state == state).count());
    let is_told = |request: &&Request| request.disturbed && request.state == RequestState::Active;
    let told = all.requests.iter().filter(is_told).count();
    let (active, scoped) = (all.progress.active, all.progress.scoped);
    lines.push(format!("requests {counts:?}, {active} active, {scoped} scoped, {told} told of a failure"));
    lines
}
