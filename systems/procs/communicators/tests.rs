//! Rows in, one transform, rows out.

use super::*;
use crate::procs::communicators::ids::first_free;
use crate::steps::activate::take_rows;
use crate::steps::arguments::{check_receive, check_send};
use crate::steps::posting::{queue_receive, receive_car};
use crate::testing::TestWorld;
use crate::tick::match_cars::match_cars;
use crate::tick::post::post;
use crate::tick::supply_buffers::supply_buffers;
use crate::tick::transfer::transfer;
use tickwire_components::context::INCARNATIONS;
use tickwire_components::limits::ANY;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{ArrivalState, NoBytes, Rank, Source, Tag, TagFilter, VcState};

/// A world of four procs, of which 1 and 2 are connected, and id 2 is reserved: (world, VC of 1, VC of 2).
fn world() -> (TestWorld, Row, Row) {
    let mut world = TestWorld::new(4);
    let one = world.contact(1, VcState::Connected);
    let two = world.contact(2, VcState::Connected);
    assert_eq!(take(&mut world, 2), Some(0));
    (world, one, two)
}

fn take(world: &mut TestWorld, id: u32) -> Option<u32> {
    reserve(&mut world.store.as_mut(), id, INCARNATIONS)
}

/// Makes a communicator of procs 2, 0 and 1, in this order.
fn make_of(world: &mut TestWorld, id: u32, incarnation: u32) -> u32 {
    make(&mut world.all(), id, incarnation, &Group::from_procs(&[2, 0, 1]).unwrap(), 0)
}

/// An eager message under a context word.
fn arrive(world: &mut TestWorld, vc: Row, word: u32, source: u32, bytes: &[u8]) -> Row {
    let row = world.arrive(vc, Header::new(Kind::Eager, word, source, 5, 0, bytes.len() as u64), bytes);
    world.step(match_cars);
    row
}

/// Moves arrivals to their destinations.
fn settle(world: &mut TestWorld) {
    world.step(supply_buffers);
    world.step(transfer);
}

/// Posts a receive from any source and of any tag; its CAR.
fn receive(world: &mut TestWorld, handle: u32) -> Row {
    let all = world.all();
    let envelope = check_receive(all.communicators, handle, Source::Any, TagFilter::Any).unwrap();
    let car = receive_car(all.progress, &envelope, NIL);
    // SAFETY: there are no bytes.
    #[expect(unsafe_code, reason = "bytes that are addresses")]
    let car = unsafe { take_rows(all.progress, all.cars, all.requests, &NoBytes, car) }.unwrap();
    queue_receive(all.progress, all.cars, all.vcs, car);
    car
}

#[test]
fn an_id_is_reserved_once_and_the_table_grows_to_it() {
    let (world, ..) = &mut world();
    assert_eq!((take(world, 0), take(world, 2)), (None, None), "in use, and reserved");
    assert_eq!(take(world, 100), Some(0));
    assert!(world.all().communicators.len() > 100);
    release(&mut world.all(), 100, true);
    assert_eq!(take(world, 100), Some(1), "others may have made a communicator of it");
    release(&mut world.all(), 100, false);
    assert_eq!(take(world, 100), Some(1), "nobody has");
    assert!(world.all().communicators.len() <= 256, "rows are there for ids that were in use");
    let last = CONTEXTS_MAX as u32 - 1;
    assert_eq!(take(world, last), Some(0));
    assert_eq!(world.all().communicators.len(), CONTEXTS_MAX);
    let made = make_of(world, last, INCARNATIONS - 1);
    assert!(live(world.all().communicators, made).is_ok_and(|comm| comm.context != context::base(NIL)));
    assert!(
        live(world.all().communicators, NIL).is_err(),
        "free rows have this handle, and it is that of no communicator"
    );
}

#[test]
fn an_id_is_not_used_again_once_it_has_had_all_incarnations() {
    let (world, ..) = &mut world();
    let mut words = std::collections::BTreeSet::new();
    release(&mut world.all(), 2, true);
    while let Some(known) = take(world, 2) {
        let handle = make_of(world, 2, known + 1);
        let comm = live(world.all().communicators, handle).unwrap();
        assert!(words.insert((comm.context, handle)), "neither a word nor a handle comes twice");
        close(&mut world.all(), 2);
        assert!(reap(&mut world.all(), 2));
    }
    assert_eq!(words.len() as u32, INCARNATIONS - 2, "but for the first one, and the one that was given up");
    assert_eq!(first_free(world.all().communicators, 0, INCARNATIONS), 3);
}

#[test]
fn a_handle_is_good_for_one_life() {
    let (world, ..) = &mut world();
    let first = make_of(world, 2, 1);
    assert!(live(world.all().communicators, first).is_ok());
    let refused = |world: &mut TestWorld, handle| {
        let comms = world.all().communicators;
        let sent = check_send(comms, handle, 0, 0, 0).unwrap_err();
        assert_eq!(check_receive(comms, handle, Source::Any, TagFilter::Any).unwrap_err(), sent);
        assert_eq!(live(comms, handle).unwrap_err(), sent);
        sent
    };
    close(&mut world.all(), 2);
    assert_eq!(refused(world, first), PostError::Freed(first));
    assert!(reap(&mut world.all(), 2));
    assert_eq!(refused(world, first), PostError::Freed(first));
    assert_eq!(take(world, 2), Some(1));
    let second = make_of(world, 2, 2);
    assert_ne!(first, second);
    assert!(live(world.all().communicators, second).is_ok());
    assert_eq!(refused(world, first), PostError::Freed(first));
    let next = world.all().communicators[2].next_handle(2);
    for never in [next, 3, 77, NIL, NIL - 1] {
        assert_eq!(refused(world, never), PostError::Communicator(never));
    }
}

#[test]
fn what_was_promised_of_wildcards_is_held() {
    let (world, ..) = &mut world();
    let handle = make_of(world, 2, 1);
    world.all().communicators[2].no_wildcard = true;
    let comms = world.all().communicators;
    assert_eq!(
        check_receive(comms, handle, Source::Any, TagFilter::Tag(Tag(5))).unwrap_err(),
        PostError::Wildcard(handle)
    );
    assert_eq!(
        check_receive(comms, handle, Source::Rank(Rank(1)), TagFilter::Any).unwrap_err(),
        PostError::Wildcard(handle)
    );
    assert_eq!(
        check_receive(comms, handle, Source::Rank(Rank(1)), TagFilter::Tag(Tag(ANY))).unwrap_err(),
        PostError::Tag { tag: ANY }
    );
    assert_eq!(check_receive(comms, handle, Source::Rank(Rank(2)), TagFilter::Tag(Tag(5))).unwrap().proc, 1);
    assert_eq!(check_receive(comms, 0, Source::Any, TagFilter::Any).unwrap().proc, NIL, "others go on");
}

#[test]
fn a_message_may_come_before_its_communicator() {
    let (mut world, one, _) = world();
    let word = context::word(2, 1);
    let row = arrive(&mut world, one, word, 2, b"early");
    assert_eq!(world.arrival(row).state, ArrivalState::Unexpected);
    settle(&mut world);
    let handle = make_of(&mut world, 2, 1);
    assert_eq!(world.all().progress.unexpected.count, 1);
    let car = receive(&mut world, handle);
    world.step(match_cars);
    let car = world.all().cars[car as usize];
    assert_eq!((car.state, car.source, car.tag, car.vc), (CarState::Matched, 2, 5, one));
    assert!(world.take_ended().is_empty());
}

#[test]
fn who_lies_about_itself_before_the_communicator_exists_fails_when_it_does() {
    let (mut world, one, two) = world();
    let word = context::word(2, 1);
    arrive(&mut world, one, word, 2, b"true");
    // Proc 2 says that it is rank 2, which proc 1 will be; proc 1 names a rank that will not exist.
    arrive(&mut world, two, word, 2, b"lie");
    arrive(&mut world, one, word, 3, b"lie");
    settle(&mut world);
    let free = world.free_buffers();
    make_of(&mut world, 2, 1);
    let ended: Vec<Row> = world.take_ended().into_iter().map(|(row, _)| row).collect();
    assert_eq!(ended, [two, one]);
    assert_eq!((world.all().progress.unexpected.count, world.free_buffers()), (1, free + 2));
}

#[test]
fn a_context_that_this_proc_has_nothing_to_do_with_is_a_violation() {
    let (mut world, one, two) = world();
    for (vc, id) in [(one, 3), (two, 8000)] {
        let row = arrive(&mut world, vc, context::word(id, 0), 0, b"");
        assert_eq!(world.arrival(row).state, ArrivalState::Handled);
        let ended = world.take_ended();
        assert!(matches!(&ended[..], [(row, Ended::Corrupt(why))] if *row == vc && why.contains("unknown context")));
    }
    let row = arrive(&mut world, one, context::word(0, 0), 2, b"");
    assert_eq!(world.arrival(row).state, ArrivalState::Handled);
    assert_eq!(world.take_ended().len(), 1, "a known context with the rank of another proc");
}

#[test]
fn a_late_message_meets_no_receive_of_the_next_communicator() {
    let (mut world, one, _) = world();
    let old = context::word(2, 1);
    make_of(&mut world, 2, 1);
    close(&mut world.all(), 2);
    assert!(reap(&mut world.all(), 2));
    // Free, reserved anew, and in use by the next communicator.
    for stage in 0..3 {
        let row = arrive(&mut world, one, old, 2, b"late");
        let kept = stage == 1;
        let state = if kept { ArrivalState::Unexpected } else { ArrivalState::Handled };
        assert_eq!(world.arrival(row).state, state, "stage {stage}");
        settle(&mut world);
        assert_eq!(world.all().progress.unexpected.count, u32::from(kept));
        match stage {
            0 => assert_eq!(take(&mut world, 2), Some(1)),
            1 => {
                let handle = make_of(&mut world, 2, 2);
                assert_eq!(world.all().progress.unexpected.count, 0, "what was kept in case it was early is dropped");
                receive(&mut world, handle);
            }
            _ => {}
        }
    }
    let wildcard = world.all().progress.wildcard;
    assert_eq!(world.cars_in(wildcard).len(), 1, "the receive still waits");
    assert!(world.take_ended().is_empty(), "being late is no violation");
    let all = world.all();
    assert_eq!(all.progress.free_buffer_rows as usize, all.buffers.len(), "no temporary is lost");
}

#[test]
fn freeing_waits_for_what_is_pending_and_drops_what_nobody_can_receive() {
    let (mut world, one, _) = world();
    let handle = make_of(&mut world, 2, 1);
    let word = context::word(2, 1);
    let posted = receive(&mut world, handle);
    close(&mut world.all(), 2);
    assert!(!reap(&mut world.all(), 2));
    assert_eq!(first_free(world.all().communicators, 0, INCARNATIONS), 3, "its id is not free");
    let row = arrive(&mut world, one, word, 2, b"");
    assert_eq!(world.arrival(row).receive(), posted, "what is pending ends as it would have");
    let row = arrive(&mut world, one, word, 2, b"nobody's");
    assert_eq!(world.arrival(row).state, ArrivalState::Handled);
    let row = arrive(&mut world, one, word | context::AGREEMENT, 2, b"");
    assert_eq!(world.all().progress.unexpected.count, 1, "the engine's own is kept until the end");
    assert_eq!(world.arrival(row).state, ArrivalState::Handled);
    settle(&mut world);
    world.step(crate::tick::complete::complete);
    world.all().communicators[2].agreements = 1;
    assert!(!reap(&mut world.all(), 2), "an agreement is in progress on it");
    world.all().communicators[2].agreements = 0;
    assert!(reap(&mut world.all(), 2));
    assert_eq!(first_free(world.all().communicators, 0, INCARNATIONS), 2);
    assert_eq!(world.all().progress.unexpected.count, 0);
}

#[test]
fn offers_that_nobody_will_receive_are_bounded_while_their_sender_reads_nothing() {
    let (mut world, one, _) = world();
    make_of(&mut world, 2, 1);
    close(&mut world.all(), 2);
    assert!(reap(&mut world.all(), 2));
    // A receive waits, so a peer whose messages are only kept would get credit beyond its window.
    receive(&mut world, 0);
    let (window, link) = (world.all().progress.window.envelopes as usize, world.vc(one).link);
    let offer = |world: &mut TestWorld| {
        while world.vc(one).envelopes_left > 0 {
            let header = Header::offer(context::word(2, 1), 2, 5, 3, 1 << 20);
            let row = world.arrive(one, header, &[]);
            world.step(match_cars);
            assert_eq!(world.arrival(row).state, ArrivalState::Handled);
            world.all().progress.arrivals = 0;
        }
        world.step(post);
    };
    world.wire().full.push(link);
    for _ in 0..20 {
        offer(&mut world);
    }
    let waiting = world.all().progress.control.acknowledgements_to(one) as usize;
    assert!((1..=window).contains(&waiting), "{waiting} of at most {window}");
    world.wire().full.clear();
    for _ in 0..3 {
        offer(&mut world);
    }
    let sent = world.wire().sent.iter().filter(|frame| frame.header.kind() == Some(Kind::Done)).count();
    assert!(sent > 2 * waiting, "it goes on once it reads: {sent}");
    assert!(world.all().progress.control.is_empty() && world.take_ended().is_empty());
}
