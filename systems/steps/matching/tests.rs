use super::*;
use crate::steps::posted::remove_posted;
use crate::testing::TestWorld;
use tickwire_components::limits::{ANY, Limits, Matching, WALK_MAX};
use tickwire_components::wire::Kind;

/// The reference model: a plain list of receives in the order of posting.
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

/// Matches a message of `proc`, and checks that the queues and the model pair it with the same receive.
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

/// Receives of one source, or of any, are cancelled, the youngest first. So each look at a list walks past all the others.
#[test]
fn a_cancellation_that_walks_far_makes_an_index() {
    for (matching, source) in [Matching::Auto, Matching::Lists].into_iter().flat_map(|of| [(of, 2), (of, ANY)]) {
        let (mut world, _) = world(limits(matching, 32));
        let mut model = Model::new();
        (0..=WALK_MAX + 1).for_each(|tag| post(&mut world, &mut model, source, tag));
        cancel(&mut world, &mut model, 1);
        assert!(!world.all().progress.indexed(), "it is found soon");
        let last = model.len() - 1;
        cancel(&mut world, &mut model, last);
        assert!(!world.all().progress.indexed(), "{WALK_MAX} are before it");
        (0..3).for_each(|tag| post(&mut world, &mut model, source, tag));
        let last = model.len() - 1;
        cancel(&mut world, &mut model, last);
        assert_eq!(world.all().progress.indexed(), matching == Matching::Auto);
    }
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
    crate::procs::ending::fail(&mut all, 1, "gone".into());
    assert_eq!(all.progress.posted.count, 1);
    assert_eq!(world.finished(), [model[0].0]);
    assert!(world.all().requests[model[1].0 as usize].disturbed);
}
