//! Posted receives: how they are queued, found by an envelope, and taken back. Used by posting, Match and Deliver.
//!
//! Two implementations behind one set of functions, chosen by [`Limits::matching`]. *Lists* (reference: communication
//! agent notes): a queue for each VC and one for receives from any source, with a counter that is incremented only on
//! enqueue into the latter; a message takes the older of the two candidates, and ties go to the wildcard. *Index*: by
//! what the receives ask for, ordered by a 64-bit sequence. Short queues are walked, which is what applications have;
//! deep ones are looked up.
//!
//! [`Limits::matching`]: tickwire_components::limits::Limits::matching

use crate::protocols::provider_matched;
use crate::steps::finish::abort;
use tickwire_components::index::EnvelopeKey;
use tickwire_components::limits::{ANY, Matching, WALK_MAX};
use tickwire_components::wire::Header;
use tickwire_components::{Car, CarKind, CarState, NIL, Progress, Queue, Row, Vc, VcState, car_flags};

/// What a receive asks for.
#[inline(always)]
pub fn key(car: &Car) -> EnvelopeKey {
    EnvelopeKey { context: car.context, source: car.source, tag: car.tag }
}

/// Puts a receive among the posted ones, as the youngest.
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

/// As [`enqueue`], of a receive from any source, into the index, or where a transport matches by itself.
#[inline(never)]
fn enqueue_otherwise(progress: &mut Progress, cars: &mut [Car], vcs: &mut [Vc], row: Row) {
    if progress.has_provider() && provider_matched::enqueue(progress, cars, vcs, row) {
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
        // More receives from any source than the counter can tell apart.
        make_index(progress, cars, vcs);
        return progress.posted.push(key(&cars[row as usize]), row);
    }
    progress.counter += 1;
    cars[row as usize].counter = progress.counter;
    progress.wildcard.push(cars, row);
}

/// Takes the oldest posted receive that takes an envelope.
#[inline(always)]
pub fn find_posted(
    progress: &mut Progress,
    vc_row: Row,
    header: &Header,
    cars: &mut [Car],
    vcs: &mut [Vc],
) -> Option<Row> {
    let vc = &mut vcs[vc_row as usize];
    let message = EnvelopeKey { context: header.context(), source: header.source(), tag: header.tag() };
    // The frequent case: receives from this source only, and the first one takes it.
    if let Some(first) = cars.get(vc.posted.head as usize)
        && progress.wildcard.is_empty()
        && key(first).takes(&message)
    {
        let row = vc.posted.head;
        vc.posted.unlink(cars, NIL, row);
        return Some(row);
    }
    find_otherwise(progress, vc_row, &message, cars, vcs)
}

/// As [`find_posted`], in all cases.
#[inline(never)]
fn find_otherwise(
    progress: &mut Progress,
    vc_row: Row,
    message: &EnvelopeKey,
    cars: &mut [Car],
    vcs: &mut [Vc],
) -> Option<Row> {
    if progress.indexed() {
        let row = progress.posted.find(message)?;
        if progress.has_provider() && provider_matched::keeps(progress, cars, vc_row, row) {
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
    // A receive that was posted before the wildcard has a smaller counter, one after it has its counter or a greater one.
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
    if walked > WALK_MAX && progress.matching == Matching::Auto {
        make_index(progress, cars, vcs);
    }
    found.map(|(_, row)| row)
}

/// The first receive of a queue that takes an envelope, and the row before it; counts those it walks past.
fn first_match(queue: &Queue, cars: &[Car], message: &EnvelopeKey, walked: &mut u32) -> Option<(Row, Row)> {
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

/// Takes a posted receive back; `false` if it is not posted.
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
    match car.flags & car_flags::ANY_SOURCE {
        0 => vcs[car.vc as usize].posted.remove(cars, row),
        _ => progress.wildcard.remove(cars, row),
    }
}

/// An empty index gives way to lists again: short queues are walked.
#[inline]
pub(crate) fn leave_index(progress: &mut Progress) {
    // While messages are held, each look-up must go by the index.
    if progress.posted.count == 0 && progress.matching != Matching::Index && progress.provider.held.is_empty() {
        progress.posted.clear();
        progress.posting &= !tickwire_components::posting::INDEXED;
        progress.counter = 0;
    }
}

/// Gives all posted receives counters anew, in the same order, from 1 for the oldest one from any source. `false` if there
/// are more of these than the counter can tell apart.
///
/// The high overhead of the notes: a walk of all that is posted, once in as many receives from any source as the counter
/// has values.
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
    // The order is there already; small counters leave room in the sequence.
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

/// Whether receives from any source may be posted: `false` is certain.
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

/// A receive was paired with an envelope: it learns who has sent its message, as far as it did not know.
// What is not written here has long left the store buffer when the status is read, which may be in wider words.
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
mod tests {
    use super::*;
    use crate::testing::TestWorld;
    use tickwire_components::limits::{ANY, Limits};
    use tickwire_components::wire::Kind;

    /// The obvious: receives in the order in which they were posted.
    type Model = Vec<(Row, EnvelopeKey)>;

    fn limits(matching: Matching, wildcard_bits: u32) -> Limits {
        Limits { matching, wildcard_bits, ..Limits::default() }
    }

    fn world(limits: Limits) -> (TestWorld, [Row; 3]) {
        let mut world = TestWorld::with(4, limits, 4096);
        let vcs = [1, 2, 3].map(|proc| world.contact(proc, VcState::Connected));
        (world, vcs)
    }

    fn post(world: &mut TestWorld, model: &mut Model, source: u32, tag: u32) {
        let some = |number| (number != ANY).then_some(number);
        let row = world.receive(some(source), some(tag), &[0]).car;
        model.push((row, key(&world.all().cars[row as usize])));
    }

    /// A message of proc `vc` + 1: whom the queues and the model give it to.
    fn arrive(world: &mut TestWorld, model: &mut Model, vcs: &[Row; 3], proc: u32, tag: u32) {
        let header = Header::new(Kind::Eager, 0, proc, tag, 0, 0);
        let message = EnvelopeKey { context: 0, source: proc, tag };
        let expected = model.iter().position(|(_, key)| key.takes(&message)).map(|place| model.remove(place).0);
        let all = world.all();
        let found = find_posted(all.progress, vcs[proc as usize - 1], &header, all.cars, all.vcs);
        assert_eq!(found, expected, "proc {proc}, tag {tag}");
        if let Some(row) = found {
            all.cars[row as usize].state = CarState::Matched;
        }
    }

    fn cancel(world: &mut TestWorld, model: &mut Model, place: usize) {
        let (row, _) = model.remove(place);
        let all = world.all();
        assert!(remove_posted(all.progress, all.cars, all.vcs, row));
        all.cars[row as usize].state = CarState::Matched;
        assert!(!remove_posted(all.progress, all.cars, all.vcs, row), "it is posted no more");
    }

    /// A stream of numbers from a seed.
    fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        }
    }

    /// Posts, messages and cancellations at random; `deep` posts are made first.
    fn storm(limits: Limits, seed: u64, deep: usize) -> TestWorld {
        let (mut world, vcs) = world(limits);
        let (mut model, mut number) = (Model::new(), numbers(seed));
        let source = |n: u64| if n == 0 { ANY } else { n as u32 };
        for step in 0..3000 + deep {
            match number(if step < deep { 4 } else { 10 }) {
                0..=3 => {
                    let tag = if number(8) == 0 { ANY } else { number(5) as u32 };
                    post(&mut world, &mut model, source(number(4)), tag);
                }
                4 if !model.is_empty() => {
                    let place = number(model.len() as u64) as usize;
                    cancel(&mut world, &mut model, place);
                }
                _ => arrive(&mut world, &mut model, &vcs, 1 + number(3) as u32, number(5) as u32),
            }
        }
        world
    }

    #[test]
    fn lists_and_index_give_messages_to_whom_the_standard_says() {
        for (seed, matching) in (0..).zip([Matching::Lists, Matching::Index, Matching::Auto]) {
            storm(limits(matching, 32), seed, 0);
            storm(limits(matching, 32), seed + 10, 200);
        }
    }

    #[test]
    fn the_counter_may_end_and_start_anew_at_any_time() {
        for seed in 0..4 {
            storm(limits(Matching::Lists, 8), seed, 0);
            storm(limits(Matching::Auto, 8), seed, 40);
        }
    }

    #[test]
    fn more_receives_from_any_source_than_the_counter_has_values() {
        let (mut world, vcs) = world(limits(Matching::Lists, 4));
        let mut model = Model::new();
        for round in 0..40 {
            post(&mut world, &mut model, 1 + round % 3, 5);
            post(&mut world, &mut model, ANY, 5);
        }
        assert!(world.all().progress.indexed(), "the index has 64 bits");
        for message in 0..80 {
            arrive(&mut world, &mut model, &vcs, 1 + message % 3, 5);
        }
    }

    #[test]
    fn a_deep_queue_is_indexed_until_it_is_empty() {
        let (mut world, vcs) = world(limits(Matching::Auto, 32));
        let mut model = Model::new();
        for tag in 0..100 {
            post(&mut world, &mut model, 1, tag);
        }
        arrive(&mut world, &mut model, &vcs, 1, 0);
        assert!(!world.all().progress.indexed(), "the first one is found without a walk");
        arrive(&mut world, &mut model, &vcs, 1, 99);
        assert!(world.all().progress.indexed());
        post(&mut world, &mut model, ANY, ANY);
        for tag in (0..99).rev() {
            arrive(&mut world, &mut model, &vcs, 1, tag);
        }
        assert!(!world.all().progress.indexed());
        post(&mut world, &mut model, 2, 7);
        arrive(&mut world, &mut model, &vcs, 2, 7);
    }

    #[test]
    fn receives_of_a_proc_that_fails_leave_the_index() {
        let (mut world, _) = world(limits(Matching::Index, 32));
        let mut model = Model::new();
        post(&mut world, &mut model, 1, 5);
        post(&mut world, &mut model, ANY, 5);
        let mut all = world.all();
        crate::procs::connections::fail(&mut all, 1, "gone".into());
        assert_eq!(all.progress.posted.count, 1);
        assert_eq!(world.finished(), [model[0].0]);
        assert!(world.all().requests[model[1].0 as usize].disturbed);
    }
}
