//! A peer that sends without end does not starve other peers.

use std::time::Duration;
use tickwire::internals::components::VcState;
use tickwire::internals::components::wire::{Header, Kind};
use tickwire::internals::transports::{Hub, Loopback, Sent, Transport};
use tickwire::testing::{Board, STEP_NS, rows};
use tickwire::{Engine, Limits, Rank, Tag};
use tickwire_tests::cases::content;

/// Proc 1 keeps its ring full of messages that proc 0 waits for. Meanwhile proc 2 sends to proc 0 and finalizes. Its
/// messages must be read.
fn beside_a_flood(systems: bool) {
    const SENT: u64 = 30;
    let (hub, board) = (Hub::new(3, 8192), Board::new(3));
    let limits = Limits { tick_budget: 16, ..Limits::default() };
    let build = |rank, systems| {
        let builder = Engine::builder().include(["loopback"]).hub(hub.clone()).initial_rows(128).limits(limits.clone());
        let builder = if systems { builder.systems(|schedule| _ = schedule.add_systems(|| ())) } else { builder };
        builder.build(board.bootstrap(rank)).unwrap()
    };
    let mut raw = Loopback::join(&hub, 1).unwrap();
    let mut reader = build(0, systems);
    let mut other = build(2, false);
    let link = raw.connect(0, &[], 0).unwrap();
    let header = Header::new(Kind::Eager, 0, 1, 0, 0, 0);
    let mut flood = || while raw.send(link, &header, &Vec::<u8>::new(), &mut ()) == Sent::Done {};
    let world = reader.comm_world();
    let mut awaited = Vec::new();
    let mut tick = |reader: &mut Engine, now_ns: u64| {
        while awaited.len() < 40 {
            awaited.push(reader.irecv(Vec::<u8>::new(), Rank(1), Tag(0), world).unwrap());
        }
        reader.tick_at(now_ns);
        awaited.retain(|request| !reader.test(request).unwrap().is_done());
    };
    for now in 1..200 {
        flood();
        tick(&mut reader, now * STEP_NS);
    }
    let receive = |reader: &mut Engine| reader.irecv(vec![0u8; 100], Rank(2), Tag(1), world).unwrap();
    let mut receives: Vec<_> = (0..SENT).map(|_| receive(&mut reader)).collect();
    for number in 0..SENT {
        drop(other.isend(content(number, 100), Rank(0), Tag(1), world).unwrap());
    }
    other.finalize(Duration::from_secs(5)).unwrap();
    let mut now = 200;
    for (number, receive) in (0..).zip(receives.drain(..)) {
        while !reader.test(&receive).unwrap().is_done() {
            flood();
            tick(&mut reader, now * STEP_NS);
            now += 1;
            assert!(now < 2000, "message {number} of who has finalized is not read");
        }
        assert!(reader.take(receive).unwrap().0 == content(number, 100));
    }
    let late = reader.irecv(vec![0u8; 1], Rank(2), Tag(1), world);
    while rows(&mut reader).vcs.iter().all(|vc| vc.state != VcState::Failed) {
        flood();
        tick(&mut reader, now * STEP_NS);
        now += 1;
        assert!(now < 4000, "its end is not told");
    }
    drop(late);
}

#[test]
fn a_peer_that_sends_without_end_keeps_nobody_else_from_being_heard() {
    for systems in [false, true] {
        beside_a_flood(systems);
    }
}
