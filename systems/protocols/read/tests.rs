use super::*;
use crate::testing::{Posted, TestWorld};
use crate::tick::transfer::tests::{numbers, piece, receiving, world};
use crate::tick::transfer::transfer;
use tickwire_components::wire::{Header, Kind};
use tickwire_components::{CarState, VcState};

/// A receive of a message of 100 bytes that proc 1 has at address 4096, as SupplyBuffers leaves it.
fn reading(world: &mut TestWorld, vc: Row, lengths: &[usize]) -> Posted {
    let posted = receiving(world, vc, lengths, 100);
    let all = world.all();
    let car = &mut all.cars[posted.car as usize];
    car.state = CarState::Reading;
    let message = &mut all.large[posted.car as usize];
    (message.peer, message.body) = (33, Body::Readable { address: 4096 });
    all.progress.reads.push(all.cars, posted.car);
    posted
}

#[test]
fn a_message_is_read_out_of_its_senders_memory_and_the_sender_is_told() {
    let (mut world, vc) = world();
    world.wire().memory.push((4000, [vec![0; 96], numbers(100)].concat()));
    let posted = [&[100][..], &[30, 0, 90], &[60]].map(|lengths| reading(&mut world, vc, lengths));
    world.step(transfer);
    world.step(crate::tick::post::post);
    let kinds: Vec<_> = world.wire().sent.iter().map(|f| (f.header.kind(), f.header.message())).collect();
    assert_eq!(kinds, [(Some(Kind::Done), 33); 3]);
    assert_eq!(posted.map(|p| world.bytes(p).len()), [100, 120, 60]);
    assert!(posted.iter().all(|&p| world.bytes(p).starts_with(&numbers(60))));
    assert_eq!(world.finished(), posted.map(|p| p.car));
    assert_eq!(posted.map(|p| world.car(p).done), [100; 3], "the length of the message, also of one cut short");
}

#[test]
fn messages_of_one_vc_are_read_by_one_call_and_one_that_cannot_be_spoils_no_other() {
    let mut world = TestWorld::new(3);
    let [vc, other] = [1, 2].map(|proc| world.contact(proc, VcState::Connected));
    world.wire().memory.push((4096, numbers(100)));
    let mut posted: Vec<_> = (0..READS_A_CALL + 2).map(|_| reading(&mut world, vc, &[40, 60])).collect();
    posted.extend([vc, vc].map(|vc| reading(&mut world, vc, &[100])));
    world.all().cars[posted[READS_A_CALL + 2].car as usize].vc = other;
    world.step(transfer);
    let calls = [READS_A_CALL, READS_A_CALL, 4, 1, 1];
    assert_eq!(world.wire().reads, calls, "a message of two parts is two reads, also in two calls");
    assert!(posted.iter().all(|&p| world.bytes(p) == numbers(100) && world.car(p).done == 100));
    assert!(world.all().progress.reads.is_empty());

    let again = [4096, 9, 4096].map(|address| {
        let posted = reading(&mut world, vc, &[100]);
        world.all().large[posted.car as usize].body = Body::Readable { address };
        posted
    });
    world.wire().sent.clear();
    world.step(transfer);
    world.step(crate::tick::post::post);
    // After a call that fails, no message is known to be whole, so all of them are asked for in pieces.
    let kinds: Vec<_> = world.wire().sent.iter().map(|frame| frame.header.kind()).collect();
    assert_eq!(kinds.iter().filter(|&&kind| kind == Some(Kind::Cts)).count(), 3);
    for posted in again {
        assert_eq!((world.car(posted).state, world.car(posted).done), (CarState::Receiving, 0));
        piece(&mut world, vc, posted, &numbers(100));
    }
    world.step(transfer);
    assert!(again.iter().all(|&p| world.bytes(p) == numbers(100)));
}

#[test]
fn what_cannot_be_read_is_asked_for_in_pieces() {
    let (mut world, vc) = world();
    world.wire().memory.push((4000, vec![1; 120]));
    let posted = reading(&mut world, vc, &[30, 70]);
    world.step(transfer);
    world.step(crate::tick::post::post);
    let answer = world.wire().sent[0].header;
    assert_eq!((answer.kind(), answer.message(), answer.length), (Some(Kind::Cts), 33, 100));
    assert_eq!((world.car(posted).state, world.car(posted).done), (CarState::Receiving, 0));
    piece(&mut world, vc, posted, &numbers(100));
    world.step(transfer);
    assert_eq!(world.bytes(posted), numbers(100), "from its first byte on");
}

#[test]
fn one_pass_reads_a_bounded_number_of_bytes() {
    let (mut world, vc) = world();
    // The answer stays in its queue until Post.
    world.all().endpoints[0].by_post = true;
    let a_pass = READ_TURNS_A_PASS * READ_BYTES_A_TURN;
    let length = a_pass + 1000;
    world.wire().memory.push((4096, vec![7; length]));
    let posted = reading(&mut world, vc, &[length]);
    world.all().large[posted.car as usize] =
        Large { body: Body::Readable { address: 4096 }, ..Large::of(length as u64) };
    world.step(transfer);
    assert_eq!(world.car(posted).done as usize, a_pass);
    assert!(world.all().progress.pending.has(Pending::TRANSFER));
    world.step(transfer);
    assert_eq!((world.bytes(posted), world.car(posted).state), (vec![7; length], CarState::Queued));
}

#[test]
fn a_turn_ends_with_a_message_whose_end_has_come_before() {
    let (mut world, vc) = world();
    let length = READ_BYTES_A_TURN;
    world.wire().memory.push((4096, vec![7; length]));
    let posted = [(); 3].map(|()| reading(&mut world, vc, &[length]));
    for Posted { car, .. } in posted {
        let (length, wanted) = (length as u64, length as u64 - 16);
        world.all().large[car as usize] = Large { wanted, body: Body::Readable { address: 4096 }, ..Large::of(length) };
    }
    world.step(transfer);
    world.step(transfer);
    assert_eq!(world.wire().reads, [1, 1, 1], "none begins with the bytes that another one leaves of its turn");
    assert!(world.all().progress.reads.is_empty());
}

#[test]
fn several_have_turns_in_one_pass_until_something_arrives() {
    let (mut world, vc) = world();
    let length = READ_TURNS_A_PASS * READ_BYTES_A_TURN;
    world.wire().memory.push((4096, vec![7; length]));
    let posted = [(); 2].map(|()| reading(&mut world, vc, &[length]));
    for Posted { car, .. } in posted {
        world.all().large[car as usize] = Large { body: Body::Readable { address: 4096 }, ..Large::of(length as u64) };
    }
    let done = |world: &mut TestWorld| posted.map(|posted| world.car(posted).done as usize / READ_BYTES_A_TURN);
    world.step(transfer);
    assert_eq!(done(&mut world), [1, 1]);
    world.wire().incoming.push_back((vc, Header::new(Kind::Eager, 0, 1, 5, 0, 0), vec![]));
    world.step(transfer);
    assert_eq!(done(&mut world), [2, 1]);
}
