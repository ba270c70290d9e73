//! Long messages straight between the memory of both ends.

use super::kit::{BOUND, World, config, endpoint_of, span};
use crate::ofi::direct::Direct;
use crate::ofi::registry::Registry;
use crate::ofi::wrapper_tests::library;
use crate::ofi::*;
use crate::testing::GivenPlaces;
use crate::{LinkEvent, Transport};
use std::time::{Duration, Instant};
use tickwire_components::{Arrival, ArrivalState, Row};

/// The provider that may be given memory of the application.
const PROVIDER: &str = "net";
/// Bytes of a message in several pieces, the last of them short.
const LONG: usize = (5 << 20) + 123;

/// Two that are connected and have told each other where long messages go, and the link of each.
fn ready() -> Option<(World, [u32; 2])> {
    let mut world = World::pair(PROVIDER)?;
    let links = world.connect();
    let mut place = vec![0; LONG];
    let mut first = None;
    world.until("an endpoint for long messages", |world| {
        first = world.all[1].expect_into(links[1], 0, span(&mut place));
        first.is_some()
    });
    assert_eq!(first, Some(0));
    let mut message = vec![1; LONG];
    send(&mut world, links[0], 0, 0, &mut message);
    world.until("the first message", |world| world.moved.iter().all(|moved| moved[..] == [0]));
    assert!(place == message && world.received == [[], []]);
    world.moved = vec![Vec::new(); 2];
    Some((world, links))
}

fn send(world: &mut World, link: u32, row: Row, number: u32, message: &mut [u8]) {
    assert!(world.all[0].send_out(link, row, number, span(message)));
}

/// Bytes that are nowhere the same.
fn bytes_of(seed: u32, length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8).collect()
}

/// Looks for a while, so that what is under way could arrive.
fn look_around(world: &mut World) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(50) {
        world.step();
    }
}

#[test]
fn long_messages_go_from_memory_to_memory_in_the_order_in_which_they_were_asked_for() {
    let Some((mut world, links)) = ready() else { return };
    let before = [0, 1].map(|at| world.all[at].moved());
    // Whole pieces, with and without a little more, are among them.
    let lengths = [300 << 10, LONG, 1 << 20, 1_047_696, 2 * 1_047_696 + 1, 256 << 10];
    let mut messages: Vec<_> = (0..).zip(lengths).map(|(seed, length)| bytes_of(seed, length)).collect();
    let mut places: Vec<_> = lengths.iter().map(|&length| vec![0; length]).collect();
    let numbers: Vec<_> = (10..)
        .zip(&mut places)
        .map(|(row, place)| world.all[1].expect_into(links[1], row, span(place)).expect("room"))
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    // Answers may leave, and be taken, in another order.
    for at in [2, 0, 5, 3, 1, 4] {
        send(&mut world, links[0], 20 + at as u32, numbers[at], &mut messages[at]);
    }
    world.until("all messages", |world| world.moved.iter().all(|moved| moved.len() == 6));
    assert_eq!(world.moved[1], [10, 11, 12, 13, 14, 15]);
    assert!(places == messages);
    let all = lengths.iter().sum::<usize>() as u64;
    let grown = [world.all[0].moved().0 - before[0].0, world.all[1].moved().1 - before[1].1];
    assert!(grown.iter().all(|&bytes| bytes >= all), "{grown:?} of {all}");
    assert!(world.all.iter().all(|ofi| !ofi.must_poll()), "nothing is under way any more");
}

#[test]
fn a_question_that_comes_before_the_address_is_kept() {
    let Some(mut world) = World::pair(PROVIDER) else { return };
    let links = world.connect();
    let (mut place, mut message) = (vec![0; LONG], bytes_of(1, LONG));
    assert_eq!(world.all[1].expect_into(links[1], 0, span(&mut place)), None);
    // Endpoint 0 hears of the other's and answers, and asks for a message before that answer is heard.
    let start = Instant::now();
    let number = loop {
        assert!(start.elapsed() < BOUND);
        world.all[0].control(0, &mut Vec::new());
        if let Some(number) = world.all[0].expect_into(links[0], 3, span(&mut place)) {
            break number;
        }
    };
    assert!(world.all[1].send_out(links[1], 4, number, span(&mut message)));
    world.until("the message", |world| world.moved.iter().all(|moved| moved.len() == 1));
    assert!(world.moved == [[3], [4]] && place == message);
}

#[test]
fn a_peer_is_asked_for_a_bounded_number_at_a_time_and_short_messages_are_left_alone() {
    let Some((mut world, links)) = ready() else { return };
    let mut place = vec![0; LONG];
    assert_eq!(world.all[1].expect_into(links[1], 1, span(&mut place[..(256 << 10) - 1])), None);
    let taken = (0..100).filter(|&row| world.all[1].expect_into(links[1], row, span(&mut place)).is_some());
    assert_eq!(taken.count(), 32);
    assert!(world.all[1].must_poll(), "no descriptor rings for them");
    world.all[1].close_link(links[1]);
    assert!(!world.all[1].must_poll());
}

#[test]
fn messages_that_a_provider_may_keep_to_itself_go_another_way_whatever_the_limit() {
    let any = |me| endpoint_of(&OfiConfig { direct_min: 1, ..config(me, PROVIDER) });
    let Some((one, other)) = any(0).zip(any(1)) else { return };
    let mut world = World::new(vec![one, other]);
    let links = world.connect();
    let mut place = vec![0; 70_000];
    world.until("an endpoint for long messages", |world| {
        assert_eq!(world.all[1].expect_into(links[1], 0, span(&mut place[..20_000])), None);
        world.all[1].expect_into(links[1], 0, span(&mut place)).is_some()
    });
    assert_eq!(world.all[1].expect_into(links[1], 1, span(&mut place[..65_482])), None);
    world.all[1].close_link(links[1]);
}

#[test]
fn other_providers_and_whoever_does_not_want_it_are_given_no_memory() {
    let providers = ["tcp;ofi_rxm", "sockets", "shm"].map(World::pair);
    let never = |me| endpoint_of(&OfiConfig { direct_min: usize::MAX, ..config(me, PROVIDER) });
    let unwilling = never(0).zip(never(1)).map(|(one, other)| World::new(vec![one, other]));
    for mut world in providers.into_iter().flatten().chain(unwilling) {
        let links = world.connect();
        let mut place = vec![0; LONG];
        for _ in 0..20 {
            assert_eq!(world.all[1].expect_into(links[1], 0, span(&mut place)), None);
            world.step();
        }
        assert!(!world.all[0].send_out(links[0], 0, 0, span(&mut place)));
    }
}

#[test]
fn nothing_is_written_once_the_receiver_has_closed() {
    let Some((mut world, links)) = ready() else { return };
    let (mut place, mut message) = (vec![9; LONG], bytes_of(1, LONG));
    let number = world.all[1].expect_into(links[1], 5, span(&mut place)).expect("room");
    send(&mut world, links[0], 5, number, &mut message);
    world.all[1].close_link(links[1]);
    let mut left = place.clone();
    look_around(&mut world);
    assert!(place == left && world.moved[1].is_empty());
    // The sender is told, by its socket, and its message is its own again once it has closed.
    world.until("the end", |world| world.events[0].iter().any(|event| matches!(event, LinkEvent::Failed { .. })));
    world.all[0].close_link(links[0]);
    message.fill(0);
    left.fill(0);
    look_around(&mut world);
    assert!(message == left && world.moved[0].is_empty());
}

#[test]
fn nothing_more_is_sent_once_the_sender_has_closed_and_the_receiver_is_told() {
    let Some((mut world, links)) = ready() else { return };
    // More than sockets hold.
    let (mut place, mut message) = (vec![9; 64 << 20], vec![1; 64 << 20]);
    let number = world.all[1].expect_into(links[1], 5, span(&mut place)).expect("room");
    send(&mut world, links[0], 5, number, &mut message);
    world.all[0].close_link(links[0]);
    message.fill(2);
    world.until("the end", |world| world.events[1].iter().any(|event| matches!(event, LinkEvent::Failed { .. })));
    assert!(world.moved[1].is_empty() && !place.contains(&2));
    world.all[1].close_link(links[1]);
}

#[test]
fn what_was_sent_before_a_close_in_order_still_arrives() {
    let Some((mut world, links)) = ready() else { return };
    let (mut place, mut message) = (vec![0; LONG], bytes_of(3, LONG));
    let number = world.all[1].expect_into(links[1], 5, span(&mut place)).expect("room");
    send(&mut world, links[0], 6, number, &mut message);
    // The receiver does not look until the sender has sent all, and then closed.
    let (start, mut arrivals) = (Instant::now(), [Arrival::default(); 8]);
    let mut done = 0;
    while done == 0 {
        assert!(start.elapsed() < BOUND);
        world.all[0].ready();
        done = world.all[0].drain(0, &mut arrivals);
        if start.elapsed() > Duration::from_millis(5) {
            world.all[1].ready();
        }
    }
    assert_eq!((arrivals[0].state, arrivals[0].receive()), (ArrivalState::Moved, 6));
    world.all[0].close_link(links[0]);
    world.until("the message", |world| world.moved[1] == [5]);
    assert!(place == message);
}

#[test]
fn strangers_and_wrong_pieces_end_the_connection_and_nothing_else() {
    let Some((mut world, links)) = ready() else { return };
    let mut place = vec![0; LONG];
    world.all[1].expect_into(links[1], 5, span(&mut place)).expect("room");
    let at = world.all[1].port.get_mut().direct_name(links[1]).expect("an address");
    let candidates = config(2, PROVIDER).choice.candidates(&library().unwrap(), &message_hints()).unwrap();
    let info = config(2, PROVIDER).choice.take(candidates).unwrap().remove(0);
    let mut stranger = Direct::open(&info, 1, 2, &Registry::default()).unwrap();
    stranger.meet(&at).unwrap();
    let mut message = bytes_of(1, LONG);
    assert_eq!(stranger.send(0, 0, span(&mut message)), Ok(()));
    let words = "not the piece that was due";
    world.until("the end", |world| {
        let _ = stranger.poll(|_| {});
        let failed = |event: &LinkEvent| matches!(event, LinkEvent::Failed { reason, .. } if reason.contains(words));
        world.events[1].iter().any(failed)
    });
    assert!(world.moved[1].is_empty());
    // Who says twice where its messages go, or that it is nowhere, is out of order.
    let Some((mut world, links)) = ready() else { return };
    assert!(world.all[0].port.get_mut().meet_direct(links[0], &at).is_err());
    let mut other = World::pair(PROVIDER).unwrap();
    let links = other.connect();
    assert!(other.all[0].port.get_mut().meet_direct(links[0], &[1, 2, 3]).is_err());
}

#[test]
fn a_message_that_is_complete_is_told_before_a_fault_ends_its_link() {
    let Some((mut world, links)) = ready() else { return };
    let mut message = bytes_of(5, LONG);
    let mut place = vec![0; LONG];
    assert!(world.all[1].expect_into(links[1], 5, span(&mut place)).is_some());
    send(&mut world, links[0], 5, 1, &mut message);
    let start = Instant::now();
    while !(world.all[1].ready() && world.all[1].port.get_mut().has_frames()) {
        world.step_those(|rank| rank == 0);
        assert!(start.elapsed() < BOUND, "it does not arrive");
    }
    world.all[1].port.get_mut().fault(links[1], "a send has failed");
    world.until("an end", |world| world.events[1].len() == 2);
    assert_eq!(world.moved[1], [5]);
    assert!(place == message);
}
