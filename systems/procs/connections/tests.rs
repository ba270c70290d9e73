mod failing;

use super::*;
use crate::procs::cards::{add_card, card_of};
use crate::procs::ending::failed_member;
use crate::testing::{Posted, TestWorld};
use tickwire_components::limits::Limits;
use tickwire_components::submission::Operation;
use tickwire_components::{Exclusive, Kept, ProcId, RequestError, RequestState, car_flags};
use tickwire_components::{Rank, Tag, Unexpected};

/// Lets the wire report events, and handles them.
fn tell(world: &mut TestWorld, events: &[LinkEvent]) {
    world.wire().events.extend_from_slice(events);
    control(&mut world.store.as_mut(), &mut Vec::new());
}

fn contact_proc(world: &mut TestWorld, proc: u32) -> Result<Row, PostError> {
    contact(&mut world.store.as_mut(), proc)
}

#[test]
fn first_contact_spawns_a_row_and_connects_once() {
    let mut world = TestWorld::new(5);
    let row = contact_proc(&mut world, 3).unwrap();
    assert_eq!((row, contact_proc(&mut world, 3)), (1, Ok(1)));
    let vc = world.vc(row);
    assert_eq!((vc.proc, vc.state, vc.link), (3, VcState::Connecting, 3));
    assert_eq!(world.all().vcs.len(), 2);
    assert_eq!(contact_proc(&mut world, 5), Err(PostError::Rank { rank: 5, last: 4 }));
}

#[test]
fn a_proc_that_nobody_reaches_has_a_failed_vc() {
    let mut world = TestWorld::new(5);
    world.wire().unreachable.push(2);
    let Err(PostError::Unreachable { proc: ProcId(2), reason }) = contact_proc(&mut world, 2) else {
        panic!("it is out of reach");
    };
    assert_eq!(reason, "fake: not on this wire");
    assert_eq!(world.vc(1).state, VcState::Failed);
}

#[test]
fn what_was_sent_while_connecting_is_listed_once_connected() {
    let mut world = TestWorld::new(3);
    let row = contact_proc(&mut world, 1).unwrap();
    world.send(1, 5, &[b"x"]);
    assert!(!world.vc(row).listed);
    tell(&mut world, &[LinkEvent::Connected { link: 1 }]);
    assert!(world.vc(row).state == VcState::Connected && world.vc(row).listed);
    assert_eq!(world.all().progress.senders.head, row);
    assert_eq!(world.wire().attached, [(1, row)]);
}

#[test]
fn a_peer_that_calls_first_gets_a_row() {
    let mut world = TestWorld::new(5);
    tell(&mut world, &[LinkEvent::Accepted { link: 9, proc: 4 }, LinkEvent::Accepted { link: 8, proc: 77 }]);
    let vc = world.vc(1);
    assert_eq!((vc.proc, vc.link, vc.state), (4, 9, VcState::Connected));
    assert_eq!((world.all().vcs.len(), contact_proc(&mut world, 4)), (2, Ok(1)), "proc 77 does not exist");
}

#[test]
fn of_two_links_the_one_that_replaces_is_used() {
    let mut world = TestWorld::new(5);
    let row = contact_proc(&mut world, 2).unwrap();
    tell(&mut world, &[LinkEvent::Replaced { link: 2, by: 6 }]);
    assert_eq!((world.vc(row).link, world.vc(row).state), (6, VcState::Connected));
    assert_eq!(world.wire().attached, [(6, row)]);
}

/// The states of operations.
fn states(world: &mut TestWorld, posted: &[Posted]) -> Vec<CarState> {
    posted.iter().map(|&p| world.car(p).state).collect()
}

#[test]
fn a_failure_reaches_receives_that_match_has_not_seen_yet() {
    let mut world = TestWorld::new(4);
    let (_, two) = (world.contact(1, VcState::Connected), world.contact(2, VcState::Connected));
    let header = tickwire_components::wire::Header::new(tickwire_components::wire::Kind::Eager, 0, 2, 9, 0, 0);
    world.arrive(two, header, &[]);
    let [own, any, other] = [Some(1), None, Some(2)].map(|source| world.receive(source, Some(5), &[1]));
    assert_eq!(states(&mut world, &[own, any, other]), [CarState::New; 3]);
    tell(&mut world, &[LinkEvent::Failed { link: 1, reason: "gone".into() }]);
    world.step(crate::tick::match_cars::match_cars);
    assert_eq!(states(&mut world, &[own, any, other]), [CarState::Finished, CarState::Posted, CarState::Posted]);
    assert_eq!(world.car(own).flags, car_flags::PEER_FAILED);
    assert_eq!([any, other].map(|posted| world.request(posted).disturbed), [true, false]);
}

#[test]
fn a_failed_vc_ends_exactly_its_own_operations() {
    let mut world = TestWorld::new(4);
    let (one, two) = (world.contact(1, VcState::Connected), world.contact(2, VcState::Connected));
    let own = [
        world.send(1, 1, &[b"x"]),
        world.send(1, 2, &[b"y", b"z"]),
        world.receive(Some(1), None, &[1]),
        world.receive(Some(1), Some(3), &[1, 2, 3]),
        world.receive(Some(1), Some(4), &[1]),
    ];
    world.all().cars[own[3].car as usize].state = CarState::Receiving;
    world.all().cars[own[4].car as usize].state = CarState::Direct;
    let others = [world.send(2, 1, &[b"x"]), world.receive(Some(2), None, &[1]), world.receive(None, None, &[1])];
    let before = states(&mut world, &others);
    for (vc, message) in [(one, NIL), (one, 7), (two, 8)] {
        let (next, previous) = (NIL, NIL);
        let entry = Unexpected {
            context: 0,
            source: 1,
            tag: 0,
            vc,
            length: 0,
            kept: if message == NIL { Kept::Whole { buffer: NIL } } else { Kept::Offered { message } },
            next,
            previous,
        };
        world.all().progress.unexpected.push(entry);
    }
    tell(&mut world, &[LinkEvent::Failed { link: 1, reason: "gone".into() }]);
    assert_eq!(states(&mut world, &own), [CarState::Finished; 5]);
    assert!(own.iter().all(|&p| world.car(p).flags == car_flags::PEER_FAILED));
    assert_eq!(states(&mut world, &others), before);
    assert_eq!(others.map(|p| world.request(p).disturbed), [false, false, true]);
    assert_eq!((world.vc(one).state, world.vc(two).state), (VcState::Failed, VcState::Connected));
    assert!(world.vc(one).sends.is_empty() && world.vc(one).posted.is_empty());
    assert_eq!(world.all().procs.reason(one), "gone");
    assert_eq!(world.wire().closed_links, [1]);
    let left: Vec<Row> = world.all().progress.unexpected.drain(|_| true).iter().map(|u| u.message()).collect();
    assert_eq!(left, [NIL, 8], "what has arrived can still be received");
    world.step(crate::tick::complete::complete);
    assert!(own.iter().all(|&p| world.request(p).counter == 0 && world.car(p).flags != 0));
}

#[test]
fn a_second_link_does_not_take_over_while_a_transport_has_places_of_the_first() {
    let mut world = TestWorld::new(2);
    let one = world.contact(1, VcState::Connected);
    let direct = world.receive(Some(1), Some(2), &[1]);
    world.all().cars[direct.car as usize].state = CarState::Direct;
    tell(&mut world, &[LinkEvent::Accepted { link: 9, proc: 1 }]);
    assert_eq!((world.vc(one).link, world.wire().closed_links.clone()), (1, vec![9]));
    world.all().cars[direct.car as usize].state = CarState::Posted;
    tell(&mut world, &[LinkEvent::Accepted { link: 9, proc: 1 }]);
    assert_eq!(world.vc(one).link, 9);
}

#[test]
fn a_second_link_does_not_take_over_while_the_peer_may_read_what_was_offered_over_the_first() {
    let mut world = TestWorld::new(2);
    let one = world.contact(1, VcState::Connected);
    let sends = [&[&[7; 900][..]][..], &[&[7; 450], &[8; 450]]].map(|runs| world.send(1, 5, runs));
    for posted in sends {
        world.all().cars[posted.car as usize].state = CarState::Offered;
    }
    let mut link = |read_min: u64, link: u32| {
        world.all().endpoints[0].read_min = read_min;
        tell(&mut world, &[LinkEvent::Accepted { link, proc: 1 }]);
        world.vc(one).link
    };
    assert_eq!([link(900, 9), link(901, 9), link(900, 8)], [1, 9, 9]);
    world.all().cars[sends[0].car as usize].state = CarState::Sending;
    tell(&mut world, &[LinkEvent::Accepted { link: 8, proc: 1 }]);
    assert_eq!((world.vc(one).link, world.wire().closed_links.clone()), (8, vec![9, 8]));
}

#[test]
fn a_peer_that_has_said_goodbye_is_there_until_what_it_has_sent_past_its_frames_has_come() {
    let mut world = TestWorld::new(2);
    let one = world.contact(1, VcState::Connected);
    let [direct, other] = [2, 3].map(|tag| world.receive(Some(1), Some(tag), &[1]));
    world.all().cars[direct.car as usize].state = CarState::Direct;
    world.all().progress.ended.push((one, Ended::Finalized));
    for _ in 0..3 {
        world.all().progress.pending = Pending::WORLD;
        // The peer says goodbye several times.
        world.all().progress.ended.push((one, Ended::Finalized));
        maintain(&mut world.store.as_mut());
        assert!(world.all().progress.pending.has(Pending::WORLD));
        assert_eq!((world.vc(one).state, world.car(other).state), (VcState::Connected, CarState::Posted));
        assert_eq!(world.all().progress.ended.len(), 1);
    }
    world.all().cars[direct.car as usize].state = CarState::Finished;
    maintain(&mut world.store.as_mut());
    assert_eq!((world.vc(one).state, world.car(other).flags), (VcState::Failed, car_flags::PEER_FAILED));
}

#[test]
fn maintenance_ends_vcs_contacts_procs_and_grows_tables() {
    let mut world = TestWorld::with(4, Limits { cars_max: 100, ..Limits::default() }, 8);
    let one = world.contact(1, VcState::Connected);
    let progress = world.all().progress;
    progress.to_contact.push(2);
    progress.ended.push((one, Ended::Corrupt("a strange frame".into())));
    progress.pending = Pending::WORLD;
    maintain(&mut world.store.as_mut());
    assert_eq!(world.all().procs.reason(one), "protocol violation: a strange frame");
    assert_eq!((world.vc(2).proc, world.vc(2).state), (2, VcState::Connecting));
    let all = world.all();
    let rows = (all.cars.len(), all.requests.len(), all.progress.free_cars.count);
    assert_eq!(rows, (16, 16, 16));
    assert!(all.progress.pending.has(Pending::POST) && !all.progress.pending.has(Pending::WORLD));
    for _ in 0..5 {
        maintain(&mut world.store.as_mut());
    }
    assert_eq!(world.all().cars.len(), CARS_LOW as usize, "that is enough");
    for _ in 0..2 {
        world.store.as_mut().grow();
    }
    let all = world.all();
    let rows = (all.cars.len(), all.progress.free_cars.count, all.progress.rows_exhausted);
    assert_eq!(rows, (100, 100, true));
}

#[test]
fn rows_grow_for_a_submission_that_needs_more_than_are_kept_ahead() {
    let mut world = TestWorld::with(2, Limits::default(), CARS_LOW as usize);
    world.submit(Operation::Send { to: Rank(0), tag: Tag(5) }, vec![1], 0);
    let all = world.all();
    let waits = all.inbound.shared().queue.pop().unwrap();
    all.inbound.waiting().push_back(waits);
    all.progress.pending = Pending::WORLD;
    maintain(&mut world.store.as_mut());
    assert_eq!(world.all().cars.len(), 2 * CARS_LOW as usize);
}

#[test]
fn a_call_of_another_thread_that_waits_needs_no_rows() {
    let mut world = TestWorld::with(2, Limits::default(), CARS_LOW as usize);
    world.all().inbound.waiting().push_back(Task::Call(Exclusive::new(Box::new(|_| ()))));
    for _ in 0..2 {
        world.all().progress.pending = Pending::WORLD;
        maintain(&mut world.store.as_mut());
    }
    assert_eq!(world.all().cars.len(), CARS_LOW as usize);
}

#[test]
fn cards_are_found_by_name_and_broken_ones_are_empty() {
    let mut card = Vec::new();
    add_card(&mut card, "shm", &[1, 2, 3]);
    add_card(&mut card, "tcp", &[]);
    assert_eq!(card_of(&card, "shm"), Some(&[1, 2, 3][..]));
    assert_eq!((card_of(&card, "tcp"), card_of(&card, "udp")), (Some(&[][..]), None));
    card.extend([0; 20]);
    assert_eq!(card_of(&card, "udp"), None);
    for cut in 0..8 {
        let _ = card_of(&card[..cut], "tcp");
    }
    assert_eq!(card_of(&[200, 1], "x"), None);
    assert_eq!(card_of(&[1, b'x', 200, 1], "x"), None);
}

#[test]
fn a_link_that_is_open_reports_the_end_of_its_peer_itself() {
    for failed in [false, true] {
        let mut world = TestWorld::new(3);
        let row = contact_proc(&mut world, 1).unwrap();
        let end = |world: &mut TestWorld| process_ended(&mut world.store.as_mut(), 1, "over".into(), failed);
        // Its link has opened, and the peer has yet to say that it uses it: what it has sent is there to be read.
        world.all().procs.routes.attempt_of(row).stage = CallStage::Asked;
        end(&mut world);
        assert_eq!(world.vc(row).state, VcState::Connecting);
        assert_eq!(world.all().procs.fallen.len(), usize::from(failed));
        world.all().procs.routes.attempt_of(row).stage = CallStage::Calling;
        end(&mut world);
        assert_eq!(world.vc(row).state, VcState::Failed, "nobody has answered");
    }
}

#[test]
fn what_was_read_before_a_send_has_failed_is_matched_first() {
    let mut world = TestWorld::new(2);
    let row = world.contact(1, VcState::Connected);
    let posted = world.receive(Some(1), Some(5), &[4]);
    world.step(crate::tick::match_cars::match_cars);
    let header = tickwire_components::wire::Header::new(tickwire_components::wire::Kind::Eager, 0, 1, 5, 0, 4);
    world.arrive(row, header, b"abcd");
    world.all().progress.ended.push((row, Ended::Link("gone".into())));
    maintain(&mut world.store.as_mut());
    assert_eq!(world.vc(row).state, VcState::Connected);
    assert!(world.all().progress.pending.has(Pending::WORLD));
    world.step(crate::tick::match_cars::match_cars);
    world.step(crate::tick::transfer::transfer);
    maintain(&mut world.store.as_mut());
    assert_eq!(world.vc(row).state, VcState::Failed);
    assert_eq!((world.bytes(posted), world.car(posted).flags), (b"abcd".to_vec(), 0));
}

#[test]
fn a_side_link_that_is_closed_is_used_for_nothing_more() {
    let mut world = TestWorld::new(3);
    let rows = [1, 2].map(|proc| world.contact(proc, VcState::Connected));
    let mut all = world.all();
    for (row, link) in rows.into_iter().zip([7, 8]) {
        all.procs.routes.set_one_sided(row, Some((0, link)));
    }
    crate::procs::links::close_side(&mut all, 0, 7);
    assert_eq!(rows.map(|row| all.procs.routes.one_sided(row)), [None, Some((0, 8))]);
}
