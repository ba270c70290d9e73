//! The tables of posted receives: lists or an index.
//!
//! Two implementations behind one set of functions, chosen by [`Limits::matching`]. *Lists* (reference: communication agent notes): a queue
//! for each VC and one for receives from any source. A counter is incremented only when a receive is put into the latter. A message takes
//! the older of the two candidates, and the receive from any source on a tie. *Index*: a hash by context, source and tag, ordered by a
//! 64-bit sequence. Applications mostly have short queues, which are walked; deep queues are looked up in the index.
//!
//! [`Limits::matching`]: tickwire_components::limits::Limits::matching

use tickwire_components::index::EnvelopeKey;
use tickwire_components::limits::{Matching, WALK_MAX};
use tickwire_components::{Car, CarKind, CarState, NIL, Progress, Queue, Row, Vc, car_flags};

/// The envelope that a receive matches.
#[inline(always)]
pub fn key(car: &Car) -> EnvelopeKey {
    EnvelopeKey { context: car.context, source: car.source, tag: car.tag }
}

/// The first receive of a queue that matches an envelope, with the row before it. Adds the rows that were walked past to `walked`.
pub(crate) fn first_match(queue: &Queue, cars: &[Car], message: &EnvelopeKey, walked: &mut u32) -> Option<(Row, Row)> {
    let (mut previous, mut row) = (NIL, queue.head);
    while row != NIL {
        let car = &cars[row as usize];
        if key(car).takes(message) {
            return Some((previous, row));
        }
        *walked += 1;
        (previous, row) = (row, car.next);
    }
    None
}

/// Removes a receive from the posted ones. `false` if it is not posted.
pub fn remove_posted(progress: &mut Progress, cars: &mut [Car], vcs: &mut [Vc], row: Row) -> bool {
    let car = &cars[row as usize];
    if car.state != CarState::Posted {
        return false;
    }
    if progress.indexed() {
        progress.posted.remove(&key(car), row);
        if progress.has_provider() {
            progress.provider.queue.remove(cars, row);
        }
        leave_index(progress);
        return true;
    }
    let removed = match car.flags & car_flags::ANY_SOURCE {
        0 => vcs[car.vc as usize].posted.walk_and_remove(cars, row),
        _ => progress.wildcard.walk_and_remove(cars, row),
    };
    index_after(progress, cars, vcs, removed.unwrap_or(0));
    removed.is_some()
}

/// Moves all posted receives into the index, if a look at a list has walked past too many of them.
#[inline(always)]
pub(crate) fn index_after(progress: &mut Progress, cars: &mut [Car], vcs: &mut [Vc], walked: u32) {
    if walked > WALK_MAX && progress.matching == Matching::Auto {
        make_index(progress, cars, vcs);
    }
}

/// Goes back to lists if the index is empty, since short queues are faster to walk.
#[inline]
pub(crate) fn leave_index(progress: &mut Progress) {
    // While messages are deferred, every look-up must use the index.
    if progress.posted.count == 0 && progress.matching != Matching::Index && progress.provider.deferred.is_empty() {
        progress.posted.clear();
        progress.posting &= !tickwire_components::posting::INDEXED;
        progress.counter = 0;
    }
}

/// Renumbers the counters of all posted receives in their order, from 1 for the oldest one from any source. `false` if there are more
/// receives from any source than the counter can tell apart.
///
/// This is the high overhead that the notes mention: a walk of all posted receives. It occurs once in as many receives from any source as
/// the counter has values.
#[cold]
pub fn renumber(progress: &mut Progress, cars: &mut [Car], vcs: &mut [Vc]) -> bool {
    let mut wild = Vec::new();
    let mut row = progress.wildcard.head;
    while row != NIL {
        wild.push(cars[row as usize].counter);
        cars[row as usize].counter = wild.len() as u32;
        row = cars[row as usize].next;
    }
    for vc in vcs {
        let mut before = 0;
        let mut row = vc.posted.head;
        while row != NIL {
            let car = &mut cars[row as usize];
            // Both orders are ascending.
            while wild.get(before).is_some_and(|&counter| counter <= car.counter) {
                before += 1;
            }
            car.counter = before as u32;
            row = car.next;
        }
    }
    progress.counter = wild.len() as u32;
    progress.counter < progress.counter_max
}

/// Moves all posted receives from the lists into the index.
#[cold]
pub(crate) fn make_index(progress: &mut Progress, cars: &mut [Car], vcs: &mut [Vc]) {
    // Renumbering keeps the order, and small counters leave room in the 64-bit sequence.
    renumber(progress, cars, vcs);
    progress.posting |= tickwire_components::posting::INDEXED;
    let place = |car: &Car, after: u64| u64::from(car.counter) << 32 | after;
    while let Some(row) = progress.wildcard.pop(cars) {
        let car = &cars[row as usize];
        progress.posted.push_at(key(car), row, place(car, 0));
    }
    for vc in vcs {
        let mut after = 0;
        while let Some(row) = vc.posted.pop(cars) {
            let car = &cars[row as usize];
            after += 1;
            progress.posted.push_at(key(car), row, place(car, after));
        }
    }
}

/// Whether receives from any source may be posted. Only `false` is certain.
pub fn may_await_any(progress: &Progress) -> bool {
    !(progress.wildcard.is_empty() && progress.new_receives.is_empty()) || progress.indexed()
}

/// The receives from any source that are posted, or will be by the next Match, in no order.
pub fn posted_to_any(cars: &[Car]) -> impl Iterator<Item = Row> {
    let any = |car: &Car| {
        let posted = matches!(car.state, CarState::Posted | CarState::New);
        car.kind == CarKind::Receive && posted && car.flags & car_flags::ANY_SOURCE != 0
    };
    (0..).zip(cars).filter(move |(_, car)| any(car)).map(|(row, _)| row)
}
