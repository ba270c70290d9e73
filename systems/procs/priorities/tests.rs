//! The rules, queue by queue.

use super::*;
use crate::testing::{SentFrame, TestWorld};
use crate::tick::post::post;
use crate::tick::supply_buffers::supply_buffers;
use crate::tick::transfer::transfer;
use tickwire_components::limits::{PIECE_BYTES, PIECES_A_PASS, READ_BYTES_A_TURN, READ_TURNS_A_PASS};
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{Body, Large, VcState};

/// Puts CARs of sends, given as (context, priority), into one send queue. Returns the order in which they leave.
fn order(sends: &[(u32, u8)]) -> Vec<Row> {
    let (mut progress, mut cars, mut queue) = (Progress::default(), Vec::new(), Queue::EMPTY);
    for &(context, priority) in sends {
        cars.push(Car { kind: CarKind::Send, context, priority, ..Car::default() });
        let row = cars.len() as Row - 1;
        insert_send(&mut progress, &mut queue, &mut cars, row);
    }
    drain(&mut queue, &mut cars)
}

fn drain(queue: &mut Queue, cars: &mut [Car]) -> Vec<Row> {
    std::iter::from_fn(|| queue.pop(cars)).collect()
}

#[test]
fn envelopes_of_different_contexts_go_by_priority_and_equal_ones_in_turn() {
    assert_eq!(order(&[(1, 0), (2, 0), (3, 5), (4, 9), (5, 5), (6, 0)]), [3, 2, 4, 0, 1, 5]);
}

#[test]
fn an_urgent_envelope_lifts_those_of_its_context_in_front_of_it() {
    assert_eq!(order(&[(1, 0), (2, 0), (1, 3), (3, 4), (2, 9), (3, 0)]), [1, 4, 3, 0, 2, 5]);
    // A lifted envelope stays lifted: one with a lower priority does not pass it.
    assert_eq!(order(&[(1, 0), (2, 0), (1, 9), (3, 5)]), [0, 2, 3, 1]);
}

#[test]
fn what_is_sent_in_the_place_of_a_message_of_a_graph_is_not_overtaken_by_the_next_message() {
    let word = context::word(3, 0);
    for plane in [context::BLOCK, context::COLLECTIVE] {
        let abandoned = context::abandoned(word | plane);
        assert_eq!(order(&[(abandoned, 0), (1, 0), (word | plane, 5)]), [0, 2, 1]);
    }
    assert_eq!(order(&[(word | context::BLOCK, 0), (1, 0), (word, 5)]), [2, 0, 1], "an ordinary message");
}

#[test]
fn what_is_no_envelope_is_bound_to_no_context_and_what_a_transport_has_begun_stays_in_front() {
    let (mut progress, mut queue) = (Progress::default(), Queue::EMPTY);
    let car = |kind, priority, flags| Car { kind, priority, flags, context: 1, ..Car::default() };
    let mut cars = [
        car(CarKind::Send, 0, car_flags::STARTED),
        car(CarKind::Send, 0, 0),
        car(CarKind::Receive, 7, 0),
        car(CarKind::Send, 7, 0),
    ];
    for row in 0..4 {
        insert_send(&mut progress, &mut queue, &mut cars, row);
    }
    assert_eq!(drain(&mut queue, &mut cars), [0, 2, 1, 3]);
    // A message of which a part has gone is begun too.
    (cars[0].flags, cars[0].done) = (0, 5);
    for row in [0, 2] {
        insert_send(&mut progress, &mut queue, &mut cars, row);
    }
    assert_eq!(drain(&mut queue, &mut cars), [0, 2]);
}

#[test]
fn what_would_leave_last_has_its_turn_with_those_it_must_not_overtake() {
    let (mut progress, mut queue, mut cars) = (Progress::default(), Queue::EMPTY, Vec::new());
    for (context, priority) in [(1, 9), (2, 9), (1, 0), (3, 0)] {
        cars.push(Car { kind: CarKind::Send, context, priority, ..Car::default() });
        let row = cars.len() as Row - 1;
        insert_send(&mut progress, &mut queue, &mut cars, row);
    }
    // Another call changes nothing as long as nothing leaves.
    (0..3).for_each(|_| turn_sends(&mut queue, &mut cars));
    assert_eq!(drain(&mut queue, &mut cars), [0, 2, 1, 3]);
}

#[test]
fn whatever_is_let_go_first_and_when_envelopes_of_one_context_keep_their_order() {
    let mut state = 1u64;
    let mut random = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % below
    };
    for round in 0..3000 {
        let (mut progress, mut queue, mut cars) = (Progress::default(), Queue::EMPTY, Vec::<Car>::new());
        let mut gone: Vec<Row> = Vec::new();
        while cars.len() < 30 || !queue.is_empty() {
            match random(if cars.len() < 30 { 8 } else { 3 }) {
                // The head leaves or is begun, the last one has its turn, or a new one is added.
                0 => gone.extend(queue.pop(&mut cars)),
                1 if !queue.is_empty() => cars[queue.head as usize].flags |= car_flags::STARTED,
                2 if !queue.is_empty() => {
                    let begun = cars[queue.head as usize].flags & car_flags::STARTED != 0;
                    let head = queue.head;
                    turn_sends(&mut queue, &mut cars);
                    assert!(!begun || queue.head == head, "{round}: what is begun stays in front");
                }
                1 | 2 => {}
                _ => {
                    let (context, priority) = (random(3), [0, 0, 1, 128, 255][random(5) as usize]);
                    cars.push(Car { kind: CarKind::Send, context, priority, ..Car::default() });
                    let row = cars.len() as Row - 1;
                    insert_send(&mut progress, &mut queue, &mut cars, row);
                }
            }
        }
        for context in 0..3 {
            let of_context = gone.iter().filter(|row| cars[**row as usize].context == context);
            assert!(of_context.is_sorted(), "round {round}, context {context}: {gone:?}");
        }
    }
}

/// Posts large sends of these priorities to proc 1, and lets the receiver ask for them.
fn sending(world: &mut TestWorld, vc: Row, priorities: &[u8], length: usize) -> Vec<Row> {
    let bytes = vec![1; length];
    let posted: Vec<Row> = priorities.iter().map(|_| world.send(1, 5, &[&bytes]).car).collect();
    let all = world.all();
    all.vcs[vc as usize].sends = Queue::EMPTY;
    for (&row, &priority) in posted.iter().zip(priorities) {
        let car = &mut all.cars[row as usize];
        (car.state, car.priority) = (CarState::Sending, priority);
        all.large[row as usize].peer = row;
        insert(&mut all.vcs[vc as usize].data, all.cars, row);
    }
    all.progress.senders = Queue { head: vc, tail: vc };
    all.progress.urgent = true;
    posted
}

/// The sends whose pieces have left, in order.
fn pieces(world: &TestWorld) -> Vec<Row> {
    world.wire().sent.iter().map(|frame: &SentFrame| frame.header.message()).collect()
}

#[test]
fn pieces_leave_by_priority_and_the_last_has_a_piece_in_each_fair_turn() {
    let mut world = TestWorld::new(2);
    let vc = world.contact(1, VcState::Connected);
    let rows = sending(&mut world, vc, &[0, 9, 9], 100 * PIECE_BYTES);
    let passes = 2 * FAIR_TURN as usize;
    (0..passes).for_each(|_| world.step(transfer));
    let sent = pieces(&world);
    let count = |row| sent.iter().filter(|&&other| other == row).count();
    assert_eq!([count(rows[0]), count(rows[1]), count(rows[2])], [2, passes * PIECES_A_PASS - 2, 0]);
    assert!(sent[..2 * PIECES_A_PASS].iter().all(|&row| row == rows[1]));
    let data = world.vc(vc).data;
    assert_eq!(world.cars_in(data), [rows[1], rows[2], rows[0]]);
}

#[test]
fn a_message_whose_piece_was_refused_stays_in_front_until_it_has_gone() {
    let mut world = TestWorld::new(2);
    let vc = world.contact(1, VcState::Connected);
    let low = sending(&mut world, vc, &[0], 10 * PIECE_BYTES)[0];
    world.wire().room = Some(1);
    world.step(transfer);
    let high = {
        let posted = world.send(1, 5, &[&vec![2; 3 * PIECE_BYTES]]).car;
        let all = world.all();
        all.vcs[vc as usize].sends = Queue::EMPTY;
        let car = &mut all.cars[posted as usize];
        (car.state, car.priority) = (CarState::Sending, 9);
        all.large[posted as usize].peer = posted;
        insert(&mut all.vcs[vc as usize].data, all.cars, posted);
        posted
    };
    world.wire().room = None;
    world.step(transfer);
    let sent = pieces(&world);
    // The wire may have taken a part of the frame that it refused.
    assert_eq!(sent, [low, low, high, high, high, low, low, low, low]);
}

#[test]
fn vcs_are_served_by_the_highest_priority_that_waits_on_them() {
    let mut world = TestWorld::new(4);
    for proc in 1..4 {
        world.contact(proc, VcState::Connecting);
    }
    for (proc, priority) in [(1, 0), (2, 3), (3, 200)] {
        let posted = world.send(proc, proc, &[b"x"]).car;
        let all = world.all();
        let vc_row = all.procs.known[proc as usize].row;
        all.vcs[vc_row as usize].sends = Queue::EMPTY;
        all.cars[posted as usize].priority = priority;
        insert_send(all.progress, &mut all.vcs[vc_row as usize].sends, all.cars, posted);
        all.vcs[vc_row as usize].state = VcState::Connected;
        crate::procs::priorities::list_sender(all.progress, all.vcs, vc_row);
    }
    world.step(post);
    assert_eq!(world.wire().sent.iter().map(|frame| frame.link).collect::<Vec<_>>(), [3, 2, 1]);
}

#[test]
fn offers_are_answered_by_priority_whether_they_were_awaited_or_not() {
    let mut world = TestWorld::new(2);
    let vc = world.contact(1, VcState::Connected);
    let offer = |tag, priority| Header::new(Kind::Rts, 0, 1, tag, 70 + tag, 9000).with_priority(priority);
    // Two offers without a posted receive, and two with one.
    world.arrive(vc, offer(0, 0), &[]);
    world.arrive(vc, offer(1, 50), &[]);
    world.step(crate::tick::match_cars::match_cars);
    world.all().progress.arrivals = 0;
    let posted: Vec<Row> = [2, 3, 0, 1].map(|tag| world.receive(Some(1), Some(tag), &[9000]).car).to_vec();
    world.arrive(vc, offer(2, 0), &[]);
    world.arrive(vc, offer(3, 200), &[]);
    world.step(crate::tick::match_cars::match_cars);
    world.step(supply_buffers);
    let replies = world.all().progress.replies;
    assert_eq!(world.cars_in(replies), [posted[1], posted[3], posted[2], posted[0]]);
    assert!(world.all().progress.offered.is_empty());
}

#[test]
fn reads_go_by_priority_and_the_last_has_a_share_in_each_fair_turn() {
    let mut world = TestWorld::new(2);
    let vc = world.contact(1, VcState::Connected);
    let a_pass = READ_TURNS_A_PASS * READ_BYTES_A_TURN;
    let length = FAIR_TURN as usize * a_pass;
    world.wire().memory.push((1 << 20, vec![3; length]));
    let [low, high] = [0, 9].map(|priority| {
        let row = world.receive(Some(1), Some(5), &[length]).car;
        let all = world.all();
        all.vcs[vc as usize].posted.remove(all.cars, row);
        let car = &mut all.cars[row as usize];
        (car.state, car.vc, car.priority) = (CarState::Reading, vc, priority);
        all.large[row as usize] = Large { body: Body::Readable { address: 1 << 20 }, ..Large::of(length as u64) };
        insert(&mut all.progress.reads, all.cars, row);
        all.progress.urgent = true;
        row
    });
    (0..FAIR_TURN).for_each(|_| world.step(transfer));
    let done = [low, high].map(|row| world.all().cars[row as usize].done as usize);
    let share = READ_BYTES_A_TURN / PIECES_A_PASS;
    assert_eq!(done, [share, length - share]);
}
