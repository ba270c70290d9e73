//! Waits over libfabric. They sleep if the provider can wake them, and poll if it cannot.

use crate::kit::{cluster, direct_cluster, exchange};
use std::time::{Duration, Instant};
use tickwire::internals::transports::ofi::Choice;
use tickwire::testing::Board;
use tickwire::{Engine, Rank, RequestError, Tag};
use tickwire_tests::cases::{BOUND, content};
use tickwire_tests::clocks::thread_time;
use tickwire_tests::needs::has_libfabric;

#[test]
fn whoever_has_waited_for_sends_may_stay_away() {
    if !has_libfabric() {
        return;
    }
    for provider in ["net", "shm"] {
        let mut cluster = cluster(2, provider);
        exchange(&mut cluster, 0, 1);
        let world = cluster.engines[0].comm_world();
        let [sender, receiver] = &mut cluster.engines[..] else { unreachable!() };
        for way in 0..3 {
            let receives: Vec<_> =
                (0..20).map(|tag| receiver.irecv(vec![0u8; 8], Rank(0), Tag(tag), world).unwrap()).collect();
            let sends: Vec<_> =
                (0..19).map(|tag| sender.isend(vec![tag as u8; 8], Rank(1), Tag(tag), world).unwrap()).collect();
            match way {
                0 => drop((sender.send(&[19u8; 8], Rank(1), Tag(19), world).unwrap(), sends)),
                1 => {
                    let last = sender.isend(vec![19u8; 8], Rank(1), Tag(19), world).unwrap();
                    sender.wait(&last).unwrap();
                }
                _ => {
                    let last = sender.isend(vec![19u8; 8], Rank(1), Tag(19), world).unwrap();
                    sender.wait_all(&sends).unwrap();
                    drop(last);
                }
            }
            // The sender makes no more calls.
            for receive in &receives {
                receiver.wait_for(receive, Duration::from_secs(10)).unwrap();
            }
        }
    }
}

/// Engine 0 waits 300 ms for a message. Returns the processor time of the wait, and whether the engine has to poll.
fn wait_for_a_late_message(provider: &str, polls: bool) -> (Duration, bool) {
    let choice = Choice { include: vec![provider.into()], polls, ..Choice::default() };
    let board = Board::new(2);
    let build = |rank| {
        let builder = Engine::builder().ofi(choice.clone()).exclude(["shm"]);
        builder.build(board.bootstrap(rank)).unwrap()
    };
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let mut engine = build(1);
            let world = engine.comm_world();
            engine.send(&[1u8; 100], Rank(0), Tag(1), world).unwrap();
            engine.recv(&mut [0u8; 1], Rank(0), Tag(1), world).unwrap();
            // The test measures what engine 0 spends while nothing arrives, so this time has to pass.
            std::thread::sleep(Duration::from_millis(300));
            engine.send(&[2u8; 100], Rank(0), Tag(2), world).unwrap();
            engine.finalize(Duration::from_secs(5)).unwrap();
        });
        let mut engine = build(0);
        let world = engine.comm_world();
        engine.recv(&mut [0u8; 100], Rank(1), Tag(1), world).unwrap();
        engine.send(&[1u8], Rank(1), Tag(1), world).unwrap();
        let (start, before) = (Instant::now(), thread_time());
        engine.recv(&mut [0u8; 100], Rank(1), Tag(2), world).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(250), "it was waited for");
        let (spent, polls) = (thread_time() - before, engine.must_poll());
        engine.finalize(Duration::from_secs(5)).unwrap();
        late.join().unwrap();
        (spent, polls)
    })
}

#[test]
fn a_wait_sleeps_where_the_provider_wakes_it_and_polls_where_not_or_asked_to() {
    if has_libfabric() {
        for (provider, asked) in
            [("tcp;ofi_rxm", false), ("tcp;ofi_rxm", true), ("net", false), ("sockets", false), ("udp;ofi_rxd", false)]
        {
            let (spent, polls) = wait_for_a_late_message(provider, asked);
            let has_none = ["sockets", "udp;ofi_rxd"].contains(&provider);
            assert_eq!(polls, asked || has_none, "{provider}");
            assert!(spent < Duration::from_millis(150), "{provider}: {spent:?} of processor time");
        }
    }
}

#[test]
fn a_wait_for_a_long_message_sleeps_while_its_sender_is_away() {
    if !has_libfabric() {
        return;
    }
    let mut cluster = direct_cluster();
    let world = cluster.engines[0].comm_world();
    let send = cluster.engines[0].isend(content(1, 1 << 20), Rank(1), Tag(1), world).unwrap();
    cluster.engines[0].tick();
    let receiver = &mut cluster.engines[1];
    let receive = receiver.irecv(vec![0u8; 1 << 20], Rank(0), Tag(1), world).unwrap();
    let before = thread_time();
    let late = receiver.wait_for(&receive, Duration::from_millis(500)).unwrap_err();
    assert!(matches!(late, RequestError::Timeout), "{late}");
    let spent = thread_time() - before;
    assert!(spent < Duration::from_millis(250), "{spent:?} of processor time");
    assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == content(1, 1 << 20));
    cluster.finish(BOUND, 0, send).unwrap();
}
