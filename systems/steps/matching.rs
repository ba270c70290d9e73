//! Matching: adds receives to the posted ones, and finds the posted receive for the envelope of a message. Used by posting, Match and
//! Deliver. The [tables](crate::steps::posted) are lists or an index.

use crate::steps::finish::abort;
use crate::steps::posted::{first_match, index_after, key, leave_index, make_index, renumber};
use crate::steps::provider;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::limits::ANY;
use tickwire_components::wire::Header;
use tickwire_components::{Car, CarState, Progress, Row, Vc, VcState, car_flags};

/// Adds a receive to the posted ones, as the youngest.
#[inline(always)]
pub fn enqueue(progress: &mut Progress, cars: &mut [Car], vcs: &mut [Vc], row: Row) {
    let car = &mut cars[row as usize];
    car.state = CarState::Posted;
    if progress.posting != 0 || car.flags & car_flags::ANY_SOURCE != 0 {
        return enqueue_otherwise(progress, cars, vcs, row);
    }
    car.counter = progress.counter;
    let vc = &mut vcs[car.vc as usize];
    if vc.state == VcState::Failed {
        return abort(progress, cars, row, car_flags::PEER_FAILED);
    }
    vc.posted.push(cars, row);
}

/// The other cases of [`enqueue`]: receives from any source, receives while the index is in use, and transports that match by themselves.
#[inline(never)]
fn enqueue_otherwise(progress: &mut Progress, cars: &mut [Car], vcs: &mut [Vc], row: Row) {
    if progress.has_provider() && provider::enqueue(progress, cars, vcs, row) {
        return;
    }
    let car = &mut cars[row as usize];
    if vcs.get(car.vc as usize).is_some_and(|vc| vc.state == VcState::Failed) {
        return abort(progress, cars, row, car_flags::PEER_FAILED);
    }
    if progress.indexed() {
        return progress.posted.push(key(car), row);
    }
    if car.flags & car_flags::ANY_SOURCE == 0 {
        car.counter = progress.counter;
        return vcs[car.vc as usize].posted.push(cars, row);
    }
    if progress.counter == progress.counter_max && !renumber(progress, cars, vcs) {
        // There are more receives from any source than the counter can tell apart.
        make_index(progress, cars, vcs);
        return progress.posted.push(key(&cars[row as usize]), row);
    }
    progress.counter += 1;
    cars[row as usize].counter = progress.counter;
    progress.wildcard.push(cars, row);
}

/// Finds the oldest posted receive that matches an envelope, and removes it from the posted ones.
#[inline(always)]
pub fn find_posted(
    progress: &mut Progress,
    vc_row: Row,
    header: &Header,
    cars: &mut [Car],
    vcs: &mut [Vc],
) -> Option<Row> {
    match find_first(progress, vc_row, header, cars, vcs) {
        None => find_otherwise(progress, vc_row, header, cars, vcs),
        first => first,
    }
}

/// The frequent case of [`find_posted`]: no receive from any source is posted, and the first receive from this source matches. After
/// `None`, [`find_otherwise`] must still look.
#[inline(always)]
pub(crate) fn find_first(
    progress: &mut Progress,
    vc_row: Row,
    header: &Header,
    cars: &mut [Car],
    vcs: &mut [Vc],
) -> Option<Row> {
    let vc = &mut vcs[vc_row as usize];
    let row = vc.posted.head;
    let first = cars.get_mut(row as usize)?;
    if !progress.wildcard.is_empty() || !key(first).takes(&sought(header)) {
        return None;
    }
    vc.posted.pop_first(first);
    Some(row)
}

/// The key by which a message is matched.
#[inline(always)]
fn sought(header: &Header) -> EnvelopeKey {
    EnvelopeKey { context: header.context(), source: header.source(), tag: header.tag() }
}

/// The rest of [`find_posted`], after [`find_first`] has found nothing.
#[inline(never)]
pub(crate) fn find_otherwise(
    progress: &mut Progress,
    vc_row: Row,
    header: &Header,
    cars: &mut [Car],
    vcs: &mut [Vc],
) -> Option<Row> {
    let message = &sought(header);
    if progress.indexed() {
        let row = progress.posted.find(message)?;
        if progress.has_provider() && provider::keeps(progress, cars, vc_row, row) {
            return None;
        }
        progress.posted.remove(&key(&cars[row as usize]), row);
        leave_index(progress);
        return Some(row);
    }
    let vc = &mut vcs[vc_row as usize];
    let mut walked = 0;
    let known = first_match(&vc.posted, cars, message, &mut walked);
    let wild = first_match(&progress.wildcard, cars, message, &mut walked);
    // A receive that was posted before the wildcard receive has a smaller counter. One that was posted after it has an equal or a greater
    // one.
    let wild_first = match (known, wild) {
        (Some((_, k)), Some((_, w))) => cars[k as usize].counter >= cars[w as usize].counter,
        (None, Some(_)) => true,
        _ => false,
    };
    let found = if wild_first { wild } else { known };
    if let Some((previous, row)) = found {
        let queue = if wild_first { &mut progress.wildcard } else { &mut vc.posted };
        queue.unlink(cars, previous, row);
    }
    index_after(progress, cars, vcs, walked);
    found.map(|(_, row)| row)
}

/// Notes in a receive the sender and the tag of the message it was paired with, where the receive had wildcards.
// Fields that are known already are not written again. The status may be read soon after, in wider words, and a load of a word that was
// just written in part waits for the store buffer.
#[inline(always)]
pub(crate) fn meet(progress: &mut Progress, car: &mut Car, header: &Header, vc_row: Row) {
    progress.work.matched += 1;
    if car.tag == ANY {
        car.tag = header.tag();
    }
    if car.source == ANY {
        car.source = header.source();
        car.vc = vc_row;
    }
    debug_assert_eq!(car.vc, vc_row, "a receive from one proc knows its row");
}

#[cfg(test)]
mod tests;
