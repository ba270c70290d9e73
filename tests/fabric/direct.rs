//! Long messages that go straight from memory to memory.

use crate::kit::{DIRECT, direct_cluster, receipted};
use std::time::{Duration, Instant};
use tickwire::internals::transports::ofi::Choice;
use tickwire::testing::Board;
use tickwire::{Engine, Protocol, Rank, Tag};
use tickwire_tests::cases::{self, content};
use tickwire_tests::needs::has_libfabric;

#[test]
fn long_messages_over_net_go_straight_from_memory_to_memory() {
    if !has_libfabric() {
        return;
    }
    let mut cluster = direct_cluster();
    for bytes in [256 << 10, (1 << 20) - 1, (3 << 20) + 7, 20 << 20] {
        assert_eq!(receipted(&mut cluster, bytes, bytes), DIRECT, "{bytes}");
    }
    let pieces = (Some(Protocol::Pieces), Some(Protocol::Pieces), 1);
    assert_eq!(receipted(&mut cluster, (256 << 10) - 1, (256 << 10) - 1), pieces);
    // A message that is cut short also goes straight, up to the length that the receive takes.
    assert_eq!(receipted(&mut cluster, 2 << 20, 1 << 20), DIRECT);
    cases::all(&mut cluster);
}

#[test]
fn what_went_straight_is_received_although_its_sender_has_said_goodbye() {
    if !has_libfabric() {
        return;
    }
    let choice = Choice { include: vec!["net".into()], ..Choice::default() };
    let bytes = 8 << 20;
    for round in 0..5 {
        let board = Board::new(2);
        let build = |rank| {
            let builder = Engine::builder().ofi(choice.clone()).exclude(["shm"]);
            builder.build(board.bootstrap(rank)).unwrap()
        };
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut engine = build(1);
                let world = engine.comm_world();
                let mut more = [1u8];
                while more == [1] {
                    engine.send(vec![1u8; 1 << 20], Rank(0), Tag(1), world).unwrap();
                    engine.recv(&mut more, Rank(0), Tag(1), world).unwrap();
                }
                let last = engine.isend(content(round, bytes), Rank(0), Tag(2), world).unwrap();
                engine.wait(&last).unwrap();
                engine.finalize(Duration::from_secs(5)).unwrap();
            });
            let mut engine = build(0);
            let world = engine.comm_world();
            let (start, mut more) = (Instant::now(), [1]);
            while more == [1] {
                let receive = engine.receipted().irecv(vec![0u8; 1 << 20], Rank(1), Tag(1), world).unwrap();
                engine.wait(&receive).unwrap();
                let way = engine.receipt(&receive).unwrap().protocol;
                engine.take(receive).unwrap();
                more = [u8::from(way != Some(Protocol::Direct) && start.elapsed() < Duration::from_secs(20))];
                engine.send(&more, Rank(1), Tag(1), world).unwrap();
            }
            let receive = engine.receipted().irecv(vec![0u8; bytes], Rank(1), Tag(2), world).unwrap();
            engine.wait(&receive).unwrap();
            assert_eq!(engine.receipt(&receive).unwrap().protocol, Some(Protocol::Direct));
            assert!(engine.take(receive).unwrap().0 == content(round, bytes));
            engine.finalize(Duration::from_secs(5)).unwrap();
            sender.join().unwrap();
        });
    }
}
