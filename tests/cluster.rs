//! Engines in one process under virtual time: what applications may rely on, whatever the transport.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

#[path = "cluster/world.rs"]
mod world;

use bevy_ecs::prelude::*;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tickwire::bootstrap::{BootstrapError, Exchange};
use tickwire::components::limits::LOOPBACK_RING_BYTES;
use tickwire::components::slots::EndpointSlot;
use tickwire::components::wire::{Header, Kind};
use tickwire::components::{TagFilter, VcState};
use tickwire::systems::views::Column;
use tickwire::testing::{
    Board, BoardExchange, Cluster, Death, Pair, ROWS, STEP_NS, SimConfig, SimNet, check_credit, rows,
};
use tickwire::transports::{Hub, Loopback, Sent, Transport};
use tickwire::{
    Bootstrap, BuildError, Comm, Engine, FinalizeError, Limits, OperationError, PostError, ProgressSystems, Rank,
    Request, RequestError, Source, Status, Tag, Test,
};
use tickwire_tests::cases::{self, BOUND, content};

mod requests;

/// An engine alone, which reaches itself.
fn solo() -> Engine {
    Engine::builder().initial_rows(32).build(Bootstrap::solo()).unwrap()
}

const ME: Rank = Rank(0);

// The same cases over every transport.

#[test]
fn all_cases_over_loopback() {
    for engines in [2, 3, 5] {
        cases::all(&mut Cluster::loopback(engines));
    }
}

#[test]
fn what_is_sent_to_an_engine_that_is_yet_to_be_built_waits_for_it() {
    let (hub, board) = (Hub::new(3, LOOPBACK_RING_BYTES), Board::new(3));
    let build = |rank| Engine::builder().hub(hub.clone()).initial_rows(32).build(board.bootstrap(rank)).unwrap();
    let mut engines = vec![build(0)];
    let world = engines[0].comm_world();
    let sent = engines[0].isend(content(1, 20_000), Rank(1), Tag(1), world).unwrap();
    let due = engines[0].irecv(vec![0; 8], Rank(2), Tag(2), world).unwrap();
    for _ in 0..100 {
        engines[0].tick();
    }
    assert_eq!(engines[0].test(&sent), Ok(Test::Pending));
    engines.extend([build(1), build(2)]);
    // One speaks to the engine that waits for it, the other listens.
    engines[2].isend(content(2, 8), Rank(0), Tag(2), world).map(drop).unwrap();
    let received = engines[1].irecv(vec![0; 20_000], Rank(0), Tag(1), world).unwrap();
    let is_done = |engines: &mut Vec<Engine>| {
        let first = engines[0].test(&sent).unwrap().is_done() && engines[0].test(&due).unwrap().is_done();
        first && engines[1].test(&received).unwrap().is_done()
    };
    for round in 0.. {
        assert!(round < BOUND, "it has joined");
        if is_done(&mut engines) {
            break;
        }
        for engine in &mut engines {
            engine.tick();
        }
    }
    assert!(engines[1].take(received).unwrap().0 == content(1, 20_000));
    assert!(engines[0].take(due).unwrap().0 == content(2, 8));
}

#[test]
fn all_cases_over_shared_memory() {
    for engines in [2, 3] {
        cases::all(&mut Cluster::shm(engines));
    }
}

#[test]
fn all_cases_over_small_rings_and_pieces() {
    let limits = Limits { ring_bytes: 4096, eager_max: 200, piece_bytes: 100, ..Limits::default() };
    cases::all(&mut Cluster::shm_with(2, |builder| builder.limits(limits.clone())));
}

/// What goes through rings that are shorter than messages may be: never longer ones, or as soon as they are wanted. Nothing is
/// read out of the sender's memory.
fn through_short_rings(engines: u32, grown_bytes_max: usize) -> Cluster {
    let limits = Limits { first_ring_bytes: 4096, grown_bytes_max, read_min: usize::MAX, ..Limits::default() };
    Cluster::shm_with(engines, |builder| builder.limits(limits.clone()))
}

#[test]
fn all_cases_over_rings_that_may_not_grow_and_over_some_that_do() {
    for grown_bytes_max in [0, 40 << 10, 8 << 20] {
        for engines in [2, 3] {
            cases::all(&mut through_short_rings(engines, grown_bytes_max));
        }
        cases::storm(&mut through_short_rings(4, grown_bytes_max), 7, 12);
    }
}

#[test]
fn messages_longer_than_a_ring_go_through_it_and_it_grows_only_if_they_go_on() {
    for grown_bytes_max in [0, 8 << 20] {
        let mut cluster = through_short_rings(2, grown_bytes_max);
        let world = cluster.engines[0].comm_world();
        let ring = |cluster: &mut Cluster| {
            let dump = cluster.engines[0].dump();
            dump.peers.iter().find(|peer| peer.proc == 1).unwrap().traffic.unwrap().ring_sent
        };
        let pass = |cluster: &mut Cluster, number: u64, length: usize| {
            let message = content(number, length);
            let receive = cluster.engines[1].irecv(vec![0; length], Rank(0), Tag(1), world).unwrap();
            // In one run or in three, which go in one frame or are asked for.
            if number.is_multiple_of(2) {
                let send = cluster.engines[0].isend(message.clone(), Rank(1), Tag(1), world).unwrap();
                assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == message, "{length}");
                cluster.finish(BOUND, 0, send).unwrap();
            } else {
                let runs: Vec<Vec<u8>> = message.chunks(length.div_ceil(3).max(1)).map(Vec::from).collect();
                let send = cluster.engines[0].isend(runs, Rank(1), Tag(1), world).unwrap();
                assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == message, "{length}");
                cluster.finish(BOUND, 0, send).unwrap();
            }
        };
        for number in 0..2 {
            pass(&mut cluster, number, 8 << 10);
        }
        assert_eq!(ring(&mut cluster), 4096, "two messages are no reason");
        for (number, length) in (2..).zip((0..9000).step_by(311).chain([1 << 16, (1 << 20) + 1])) {
            pass(&mut cluster, number, length);
        }
        match grown_bytes_max {
            0 => assert_eq!(ring(&mut cluster), 4096),
            _ => assert_eq!(ring(&mut cluster), 256 << 10),
        }
        cluster.assert_at_rest();
    }
}

#[test]
fn all_cases_over_a_simulated_network() {
    for seed in 0..6 {
        let net = SimNet::new(3, SimConfig::new(seed));
        cases::all(&mut Cluster::sim(3, &net));
    }
}

#[test]
fn a_simulated_run_is_a_function_of_its_seed() {
    let run = |seed| {
        let net = SimNet::new(3, SimConfig::new(seed));
        let mut cluster = Cluster::sim(3, &net);
        cases::storm(&mut cluster, 5, 10);
        let frames = [0, 1, 2].map(|proc| net.frames(proc));
        (cluster.now_ns, frames, cluster.engines.iter().map(|e| e.counters().runs()).collect::<Vec<_>>())
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11).0, run(12).0);
}

#[test]
fn storms_from_many_seeds() {
    for seed in 0..12 {
        cases::storm(&mut Cluster::loopback(4), seed, 8);
        cases::storm(&mut Cluster::sim(4, &SimNet::new(4, SimConfig::new(seed))), seed, 8);
    }
}

#[test]
fn a_storm_of_sixty_four() {
    cases::storm(&mut Cluster::loopback(64), 3, 1);
}

#[test]
fn a_storm_over_shared_memory_of_eight() {
    cases::storm(&mut Cluster::shm(8), 4, 6);
}

#[test]
fn large_messages_both_ways_at_once() {
    for mut cluster in [Cluster::loopback(2), Cluster::shm(2)] {
        let world = cluster.engines[0].comm_world();
        let lengths = [64 << 10, (1 << 20) + 1, 4 << 20];
        let mut open = Vec::new();
        for (number, length) in lengths.into_iter().enumerate() {
            for (from, to) in [(0usize, 1usize), (1, 0)] {
                let message = content((number * 2 + from) as u64, length);
                let send = cluster.engines[from].isend(message.clone(), Rank(to as u32), Tag(1), world).unwrap();
                let receive = cluster.engines[to].irecv(vec![0; length], Rank(from as u32), Tag(1), world).unwrap();
                open.push((from, to, send, receive, message));
            }
        }
        for (from, to, send, receive, message) in open {
            assert!(cluster.finish(BOUND, to, receive).unwrap().0 == message);
            cluster.finish(BOUND, from, send).unwrap();
        }
        cluster.assert_at_rest();
    }
}

// The kit itself.

#[test]
fn a_pair_passes_messages_and_comes_to_rest() {
    let config = SimConfig { partial_of_256: 100, credit_portion: 5, shuffled: true, ..SimConfig::new(3) };
    for mut pair in [Pair::loopback(), Pair::shm(), Pair::sim(&SimNet::new(2, config))] {
        for (from, length) in [(0, 0), (1, 100), (0, 9000), (1, 100_000)] {
            let message = content(length as u64, length);
            let (bytes, status) = pair.pass(from, 5, &message, length + 1);
            assert_eq!((status.source, status.length, &bytes[..length]), (Rank(from), length, &message[..]));
        }
        pair.assert_at_rest();
    }
    let mut pair = Pair::loopback();
    let world = pair.left().comm_world();
    let receive = pair.right().irecv(vec![0; 3], Source::Any, Tag(1), world).unwrap();
    let send = pair.left().isend(vec![1, 2, 3], Rank(1), Tag(1), world).unwrap();
    assert!(pair.drive() > 1);
    assert!(pair.right().test(&receive).unwrap().is_done() && pair.left().test(&send).unwrap().is_done());
}

#[test]
fn credit_that_comes_of_nothing_or_is_lost_is_found() {
    type Spoil = fn(&mut tickwire::components::Vc);
    let spoils: [Spoil; 4] =
        [|vc| vc.lines += 1, |vc| vc.lines_owed += 1, |vc| vc.envelopes -= 1, |vc| vc.envelopes_left += 1];
    for spoil in spoils {
        let net = SimNet::new(2, SimConfig::calm(1));
        for (mut pair, net) in [(Pair::loopback(), None), (Pair::sim(&net), Some(&net))] {
            pair.pass(0, 1, &[1; 100], 100);
            assert_eq!(check_credit(&mut pair.engines, net), Ok(()));
            spoil(rows(pair.left()).vcs.iter_mut().find(|vc| vc.proc == 1).unwrap());
            let words = check_credit(&mut pair.engines, net).unwrap_err();
            assert!(words.starts_with("credit of proc "), "{words}");
        }
    }
}

// Failure.

#[test]
fn a_dead_peer_ends_what_needs_it_and_nothing_else() {
    for seed in 0..8 {
        let net = SimNet::new(3, SimConfig::new(seed));
        let mut cluster = Cluster::sim(3, &net);
        let world = cluster.engines[0].comm_world();
        cases::every_length(&mut cluster);
        cases::oneself(&mut cluster);
        cases::wildcards(&mut cluster);
        // Proc 2 dies somewhere within its large message.
        net.kill(2, Death::Frame(net.frames(2) + 3 + seed * 5));
        let large = cluster.engines[2].isend(content(1, 300_000), ME, Tag(1), world).unwrap();
        let from_dead = cluster.engines[0].irecv(vec![0; 300_000], Rank(2), Tag(1), world).unwrap();
        let to_dead = cluster.engines[0].isend(content(2, 100_000), Rank(2), Tag(2), world).unwrap();
        let any = cluster.engines[0].irecv(vec![0; 100], Source::Any, Tag(3), world).unwrap();
        let from_one = cluster.engines[0].irecv(vec![0; 100_000], Rank(1), Tag(1), world).unwrap();
        let to_one = cluster.engines[0].isend(content(3, 100_000), Rank(1), Tag(1), world).unwrap();
        cluster.tick_until(BOUND, "proc 2 dies", |_| net.died_ns(2).is_some());
        let died_ns = net.died_ns(2).unwrap();
        let failed = cluster.finish(BOUND, 0, from_dead).unwrap_err();
        assert!(matches!(failed.error, RequestError::PeerFailed { proc, .. } if proc.0 == 2), "{failed:?}");
        assert_eq!(failed.buffer.map(|buffer| buffer.len()), Some(300_000), "the buffer comes back");
        let failed = cluster.finish(BOUND, 0, to_dead).unwrap_err();
        assert!(matches!(failed.error, RequestError::PeerFailed { .. }), "{failed:?}");
        let noticed_ns = cluster.now_ns - died_ns;
        assert!(noticed_ns <= 1_000_000_000, "noticed after {noticed_ns} ns");
        assert_eq!(cluster.vc_state(0, 2), Some(VcState::Failed));
        let refused = cluster.engines[0].isend(vec![1], Rank(2), Tag(1), world).unwrap_err();
        assert!(matches!(refused.error, PostError::PeerFailed { .. }));

        // The others go on.
        let send = cluster.engines[1].isend(content(4, 100_000), ME, Tag(1), world).unwrap();
        let receive = cluster.engines[1].irecv(vec![0; 100_000], ME, Tag(1), world).unwrap();
        assert!(cluster.finish(BOUND, 0, from_one).unwrap().0 == content(4, 100_000));
        assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == content(3, 100_000));
        cluster.finish(BOUND, 1, send).unwrap();
        cluster.finish(BOUND, 0, to_one).unwrap();
        let told = cluster.engines[0].wait(&any).unwrap_err();
        assert!(matches!(told, RequestError::PeerFailedPending { proc, .. } if proc.0 == 2), "{told}");
        assert_eq!(cluster.engines[0].test(&any), Err(told), "whoever tests hears it too");
        cluster.engines[0].acknowledge_failures();
        assert!(cases::is_pending(&mut cluster, 0, &any), "it stays posted");
        let send = cluster.engines[1].isend(vec![9; 3], ME, Tag(3), world).unwrap();
        assert_eq!(cluster.finish(BOUND, 0, any).unwrap().1.source, Rank(1));
        cluster.finish(BOUND, 1, send).unwrap();
        drop(large);
    }
}

#[test]
fn a_look_for_messages_of_who_has_failed_says_so_and_all_failures_are_acknowledged_by_name() {
    let net = SimNet::new(3, SimConfig::calm(0));
    let mut cluster = Cluster::sim(3, &net);
    let world = cluster.engines[0].comm_world();
    for rank in [1, 2] {
        let send = cluster.engines[rank].isend(vec![rank as u8], ME, Tag(1), world).unwrap();
        cluster.finish(BOUND, rank, send).unwrap();
    }
    cluster.tick_until(BOUND, "both have come", |cluster| {
        let mut found = |rank| cluster.engines[0].iprobe(Rank(rank), Tag(1), world).unwrap().is_some();
        found(1) && found(2)
    });
    [1, 2].into_iter().for_each(|proc| net.kill(proc, Death::At(cluster.now_ns)));
    cluster.tick_until(BOUND, "both have failed", |cluster| {
        [1, 2].into_iter().all(|proc| cluster.vc_state(0, proc) == Some(VcState::Failed))
    });
    let engine = &mut cluster.engines[0];
    for rank in [1, 2] {
        // What has come before is still there.
        let found = engine.improbe(Rank(rank), TagFilter::Any, world).unwrap().unwrap();
        let mut byte = [0];
        engine.mrecv(found, &mut byte).unwrap();
        assert_eq!(u32::from(byte[0]), rank);
        let of_it = |error| matches!(error, Some(PostError::PeerFailed { proc, .. }) if proc.0 == rank);
        assert!(of_it(engine.iprobe(Rank(rank), TagFilter::Any, world).err()));
        assert!(of_it(engine.improbe(Rank(rank), Tag(1), world).err()));
    }
    assert!(matches!(engine.iprobe(Source::Any, Tag(1), world), Err(PostError::PeerFailed { .. })));
    let acknowledged = engine.acknowledge_failures();
    assert_eq!(acknowledged.iter().map(|(proc, _)| proc.0).collect::<Vec<_>>(), [1, 2]);
    assert!(acknowledged.iter().all(|(_, reason)| !reason.is_empty()));
    assert_eq!(engine.acknowledge_failures(), [], "once");
    // Others may still send.
    assert_eq!(engine.iprobe(Source::Any, Tag(1), world).unwrap(), None);
    assert!(engine.iprobe(Rank(1), Tag(1), world).is_err());
}

#[test]
fn what_was_sent_before_a_peer_finalized_arrives() {
    for mut cluster in [Cluster::loopback(2), Cluster::shm(2)] {
        let world = cluster.engines[0].comm_world();
        let warm = cluster.engines[1].irecv(vec![0; 1], ME, Tag(0), world).unwrap();
        let send = cluster.engines[0].isend(vec![1], Rank(1), Tag(0), world).unwrap();
        cluster.finish(BOUND, 1, warm).unwrap();
        cluster.finish(BOUND, 0, send).unwrap();
        for number in 0..10 {
            let _ = cluster.engines[1].isend(content(number, 100), ME, Tag(1), world).unwrap();
        }
        assert_eq!(cluster.engines[1].finalize(Duration::from_secs(1)), Ok(()));
        cluster.tick_times(20);
        for number in 0..10 {
            let receive = cluster.engines[0].irecv(vec![0; 100], Rank(1), Tag(1), world).unwrap();
            assert_eq!(cluster.finish(BOUND, 0, receive).unwrap().0, content(number, 100));
        }
        let none = cluster.engines[0].irecv(vec![0; 100], Rank(1), Tag(1), world).unwrap();
        let failed = cluster.finish(BOUND, 0, none).unwrap_err();
        assert!(matches!(failed.error, RequestError::PeerFailed { .. }), "{failed:?}");
    }
}

#[test]
fn a_rank_that_ends_before_it_is_connected_fails_what_waits_for_it() {
    let mut cluster = Cluster::shm(3);
    let world = cluster.engines[0].comm_world();
    // Its endpoint is there, but nobody ticks it.
    let receive = cluster.engines[0].irecv(vec![0; 1], Rank(2), Tag(0), world).unwrap();
    assert_eq!(cluster.vc_state(0, 2), Some(VcState::Connecting));
    cluster.board.end(2, "killed by signal 9 (SIGKILL)");
    for _ in 0..100 {
        cluster.tick(0);
        cluster.now_ns += STEP_NS;
    }
    let error = cluster.engines[0].test(&receive).unwrap_err();
    assert!(error.to_string().contains("killed by signal 9"), "{error}");
}

/// Clusters in which engines of one process reach each other in different ways.
fn ways(engines: u32) -> Vec<Cluster> {
    let net = SimNet::new(engines, SimConfig::calm(1));
    vec![Cluster::loopback(engines), Cluster::shm(engines), Cluster::sim(engines, &net)]
}

/// Who a receive from any source of an engine says has failed, if it says so.
fn told(cluster: &mut Cluster, rank: usize, request: &Request<Vec<u8>>) -> Option<(u32, String)> {
    match cluster.engines[rank].test(request) {
        Ok(Test::Pending) => None,
        Err(RequestError::PeerFailedPending { proc, reason }) => Some((proc.0, reason)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_first_send_waits_as_long_as_its_receiver_computes() {
    let mut cluster = Cluster::shm(2);
    let world = cluster.engines[0].comm_world();
    let send = cluster.engines[0].isend(vec![7; 100], Rank(1), Tag(1), world).unwrap();
    for _ in 0..3600 {
        cluster.now_ns += 1_000_000_000;
        cluster.tick(0);
    }
    assert_eq!(cluster.vc_state(0, 1), Some(VcState::Connecting));
    let dump = cluster.engines[0].dump();
    assert!(dump.to_string().contains("connecting"), "{dump}");
    assert_eq!(cluster.engines[0].test(&send), Ok(Test::Pending));
    let receive = cluster.engines[1].irecv(vec![0; 100], ME, Tag(1), world).unwrap();
    assert_eq!(cluster.finish(BOUND, 1, receive).unwrap().0, [7; 100]);
    cluster.finish(BOUND, 0, send).unwrap();
    cluster.assert_at_rest();
}

#[test]
fn a_peer_that_was_given_up_here_is_told_when_it_calls() {
    let within_1_s = 1_000_000_000 / STEP_NS as u32;
    let impatient = Cluster::build(3, |rank| {
        let connect_ms_max = (rank == 0).then_some(5);
        Engine::builder().initial_rows(ROWS).limits(Limits { connect_ms_max, ..Limits::default() })
    });
    for mut cluster in ways(3).into_iter().chain([impatient]) {
        let world = cluster.engines[0].comm_world();
        let send = match cluster.engines[0].limits().connect_ms_max {
            // Proc 1 computes for longer than proc 0 waits.
            Some(_) => Some(cluster.engines[0].isend(vec![1], Rank(1), Tag(1), world).unwrap()),
            None => {
                cluster.board.end(1, "lost from sight");
                None
            }
        };
        for _ in 0..100 {
            cluster.now_ns += STEP_NS;
            cluster.tick(0);
        }
        assert_eq!(cluster.vc_state(0, 1), Some(VcState::Failed));
        // Then it calls, for all kinds of reasons.
        let receive = cluster.engines[1].irecv(vec![0; 1], ME, Tag(1), world).unwrap();
        let large = cluster.engines[1].isend(vec![0; 1 << 20], ME, Tag(2), world).unwrap();
        let error = cluster.finish(within_1_s, 1, receive).unwrap_err().error;
        let words = error.to_string();
        assert!(words.contains("gave the connection up: the connection has failed before: "), "{words}");
        let error = cluster.finish(within_1_s, 1, large).unwrap_err().error;
        assert!(matches!(error, RequestError::PeerFailed { .. }), "{error}");
        if let Some(send) = send {
            let words = cluster.finish(1, 0, send).unwrap_err().error.to_string();
            assert!(words.contains("did not answer within 6 ms"), "{words}");
        }
        // Others have nothing to do with it.
        let send = cluster.engines[0].isend(vec![1], Rank(2), Tag(1), world).unwrap();
        let receive = cluster.engines[2].irecv(vec![0; 1], ME, Tag(1), world).unwrap();
        assert_eq!(cluster.finish(BOUND, 2, receive).unwrap().0, [1]);
        cluster.finish(BOUND, 0, send).unwrap();
    }
}

#[test]
fn a_link_that_one_side_gives_up_ends_at_the_other_whatever_it_goes_over() {
    for mut cluster in ways(2) {
        let world = cluster.engines[0].comm_world();
        cases::every_length(&mut cluster);
        let waits = cluster.engines[1].irecv(vec![0; 1], ME, Tag(1), world).unwrap();
        let mut all = rows(&mut cluster.engines[0]);
        let row = all.vcs.iter().position(|vc| vc.proc == 1).unwrap() as u32;
        tickwire::systems::procs::ending::fail(&mut all, row, "it says what cannot be".into());
        let error = cluster.finish(BOUND, 1, waits).unwrap_err().error.to_string();
        assert!(error.contains("gave the connection up: it says what cannot be"), "{error}");
    }
}

#[test]
fn a_death_is_told_to_every_receive_from_any_source_of_its_communicators() {
    for mut cluster in ways(4) {
        let world = cluster.engines[0].comm_world();
        let own = cluster.engines[0].comm_self();
        let any =
            |cluster: &mut Cluster, tag| cluster.engines[0].irecv(vec![0; 8], Source::Any, Tag(tag), world).unwrap();
        let before = any(&mut cluster, 1);
        let alone = cluster.engines[0].irecv(vec![0; 8], Source::Any, Tag(1), own).unwrap();
        // An end in order is none that they must hear of.
        cluster.board.end(3, "exited");
        cluster.tick_times(500);
        assert_eq!(told(&mut cluster, 0, &before), None);
        cluster.board.end(2, "killed by signal 9 (SIGKILL)");
        cluster.tick_times(2);
        assert_eq!(cluster.vc_state(0, 2), Some(VcState::Failed), "it was never contacted");
        let expected = Some((2, "process of rank 2 has ended: killed by signal 9 (SIGKILL)".to_owned()));
        assert_eq!(told(&mut cluster, 0, &before), expected);
        let waited = cluster.engines[0].wait(&before).unwrap_err();
        assert!(matches!(waited, RequestError::PeerFailedPending { proc, .. } if proc.0 == 2), "{waited}");
        let after = any(&mut cluster, 2);
        let mut again = cluster.engines[0].recv_init(vec![0; 8], Source::Any, Tag(3), world).unwrap();
        cluster.engines[0].start(&again).unwrap();
        let submitted = cluster.engines[0].submitter().irecv(vec![5; 8], Source::Any, Tag(4), world).unwrap();
        let bound = 50_000_000 / STEP_NS as u32;
        cluster.tick_times(bound);
        assert_eq!(told(&mut cluster, 0, &after), expected);
        assert!(cluster.engines[0].test(&again).is_err());
        let failed = submitted.wait().unwrap_err();
        assert!(matches!(failed.error, RequestError::PeerFailed { proc, .. } if proc.0 == 2), "{failed:?}");
        assert_eq!(failed.buffer, Some(vec![5; 8]), "the buffer comes back");
        assert!(cluster.engines[0].on_complete(&after, |_| ()).is_err());
        assert_eq!(told(&mut cluster, 0, &alone), None, "it is in no communicator with it");
        // Acknowledged, they go on.
        cluster.engines[0].acknowledge_failures();
        let later = any(&mut cluster, 5);
        cluster.tick_times(bound);
        assert_eq!([&before, &after, &later].map(|request| told(&mut cluster, 0, request)), [None, None, None]);
        let heard = Arc::new(Mutex::new(None));
        let hears = heard.clone();
        cluster.engines[0].on_complete(&later, move |outcome| *hears.lock().unwrap() = Some(outcome)).unwrap();
        for tag in [1, 2, 3, 5] {
            let send = cluster.engines[1].isend(vec![tag as u8; 8], ME, Tag(tag), world).unwrap();
            cluster.finish(BOUND, 1, send).unwrap();
        }
        for (tag, request) in [(1, before), (2, after), (5, later)] {
            assert_eq!(cluster.finish(BOUND, 0, request).unwrap().0, [tag; 8]);
        }
        assert_eq!(heard.lock().unwrap().take().unwrap().unwrap().source, Rank(1));
        cluster.tick_until(BOUND, "the persistent one is done", |c| c.engines[0].test(&again).unwrap().is_done());
        assert_eq!(cluster.engines[0].buffer(&mut again).unwrap()[0], 3);
        drop(alone);
    }
}

#[test]
fn without_a_launcher_a_process_is_known_by_its_card() {
    /// A world of two, of which the other one is a process that only its card names.
    struct Forged {
        board: BoardExchange,
        process: (u32, u64),
    }
    impl Exchange for Forged {
        fn rank(&self) -> u32 {
            0
        }
        fn size(&self) -> u32 {
            2
        }
        fn job(&self) -> &str {
            self.board.job()
        }
        fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
            self.board.put(key, value)
        }
        fn fence(&mut self) -> Result<(), BootstrapError> {
            Ok(())
        }
        fn get(&mut self, _: u32, key: &str) -> Result<Option<Vec<u8>>, BootstrapError> {
            self.board.get(0, key)
        }
        fn get_all(&mut self, key: &str) -> Result<Vec<Option<Vec<u8>>>, BootstrapError> {
            let own = self.board.get(0, key)?.unwrap();
            let shm = tickwire::systems::procs::cards::card_of(&own, "shm").unwrap();
            let (pid, started) = self.process;
            // As cards have it: 22 bits of number and 34 of start time, in seven bytes.
            let process = &(u64::from(pid) << 34 | started & ((1 << 34) - 1)).to_be_bytes()[1..];
            let mut theirs = Vec::new();
            let card = [&shm[..shm.len() - process.len()], process].concat();
            tickwire::systems::procs::cards::add_card(&mut theirs, "shm", &card);
            Ok(vec![Some(own), Some(theirs)])
        }
    }
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
    let exchange = Forged { board: Board::new(1).exchange(0), process: (child.id(), started) };
    let mut engine = Engine::builder().include(["loopback", "shm"]).build(Bootstrap::custom(exchange)).unwrap();
    let world = engine.comm_world();
    let any = engine.irecv(vec![0; 8], Source::Any, Tag(1), world).unwrap();
    let waited = engine.wait_for(&any, Duration::from_millis(100));
    assert_eq!(waited, Err(RequestError::Timeout), "it lives");
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    let told = engine.wait_for(&any, Duration::from_secs(10)).unwrap_err();
    assert!(matches!(&told, RequestError::PeerFailedPending { proc, .. } if proc.0 == 1), "{told}");
    assert!(told.to_string().contains(&format!("process {} has ended", child.id())), "{told}");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // So is a probe.
    let probed = engine.probe(Source::Any, Tag(1), world).unwrap_err();
    assert!(probed.to_string().contains("has ended"), "{probed}");
}

/// How an engine may go, and what its peers are told.
#[test]
fn an_engine_that_goes_says_whether_it_has_finalized() {
    type Go = fn(Engine);
    let idle: Go = |engine| drop(engine);
    let finalized: Go = |mut engine| {
        let world = engine.comm_world();
        let _never = engine.irecv(vec![0; 8], Source::Any, Tag(9), world).unwrap();
        engine.finalize(Duration::from_secs(1)).unwrap();
    };
    let panics: Go = |engine| {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _engine = engine;
            resume_unwind(Box::new("a bug of the application"));
        }));
        assert!(caught.is_err());
    };
    let half_way: Go = |mut engine| {
        let world = engine.comm_world();
        let _never = engine.irecv(vec![0; 8], Source::Any, Tag(9), world).unwrap();
        drop(engine);
    };
    let undelivered: Go = |mut engine| {
        let world = engine.comm_world();
        let _large = engine.isend(vec![0; 1 << 20], ME, Tag(9), world).unwrap();
        let ended = engine.finalize(Duration::from_millis(5)).unwrap_err();
        assert!(matches!(ended, FinalizeError::Pending { pending: 1, .. }), "{ended}");
    };
    for (what, go, orderly) in [
        ("dropped idle", idle, true),
        ("finalized", finalized, true),
        ("dropped by a panic", panics, false),
        ("dropped half way", half_way, false),
        ("finalized in vain", undelivered, false),
    ] {
        for mut cluster in ways(3) {
            let world = cluster.engines[0].comm_world();
            // They are connected, and what was sent before is read.
            let hello = cluster.engines[2].isend(vec![1], ME, Tag(0), world).unwrap();
            let receive = cluster.engines[0].irecv(vec![0], Rank(2), Tag(0), world).unwrap();
            cluster.finish(BOUND, 0, receive).unwrap();
            cluster.finish(BOUND, 2, hello).unwrap();
            let last = cluster.engines[2].isend(vec![2], ME, Tag(1), world).unwrap();
            let _ = cluster.engines[2].take(last);
            let any = cluster.engines[0].irecv(vec![0; 8], Source::Any, Tag(2), world).unwrap();
            let from = cluster.engines[0].irecv(vec![0; 8], Rank(2), Tag(2), world).unwrap();
            go(cluster.engines.pop().unwrap());
            cluster.checked = false;
            let error = cluster.finish(BOUND, 0, from).unwrap_err().error.to_string();
            let words = if orderly { "the peer has finalized" } else { "without having finalized" };
            assert!(error.contains(words), "{what}: {error}");
            cluster.tick_times(5);
            match told(&mut cluster, 0, &any) {
                None => assert!(orderly, "{what}"),
                Some((proc, reason)) => assert!(!orderly && proc == 2 && reason.contains(words), "{what}: {reason}"),
            }
            let last = cluster.engines[0].irecv(vec![0], Rank(2), Tag(1), world).unwrap();
            assert_eq!(cluster.finish(BOUND, 0, last).unwrap().0, [2], "{what}: it came before");
        }
    }
}

#[test]
fn buffers_come_back_only_when_peers_have_been_told_to_read_no_more() {
    for dropped in [false, true] {
        let mut cluster = Cluster::shm(2);
        let world = cluster.engines[0].comm_world();
        let offered = cluster.engines[1].isend(vec![7; 1 << 20], ME, Tag(1), world).unwrap();
        cluster.tick_until(BOUND, "it is offered", |c| c.engines[0].dump().unexpected.len() == 1);
        let (mut sender, now_ns) = (cluster.engines.pop().unwrap(), cluster.now_ns);
        let receiver = Mutex::new((cluster.engines.pop().unwrap(), now_ns));
        let outcome = Arc::new(Mutex::new(None));
        let says = outcome.clone();
        let call = move |sent: Result<Status, RequestError>| {
            assert_eq!(sent, Err(RequestError::Finalized));
            // The sender has its memory back: what is read out of it now is no message.
            let (engine, now_ns) = &mut *receiver.lock().unwrap();
            let receive = engine.irecv(vec![0; 1 << 20], Rank(1), Tag(1), Comm(0)).unwrap();
            for _ in 0..BOUND {
                *now_ns += STEP_NS;
                engine.tick_at(*now_ns);
                match engine.test(&receive) {
                    Ok(Test::Pending) => {}
                    ended => return *says.lock().unwrap() = Some(ended),
                }
            }
        };
        sender.on_complete(&offered, call).unwrap();
        drop(offered);
        match dropped {
            true => drop(sender),
            false => assert!(sender.finalize(Duration::from_millis(5)).is_err()),
        }
        let ended = outcome.lock().unwrap().take().expect("it has ended");
        assert!(matches!(ended, Err(RequestError::PeerFailed { .. })), "{ended:?}");
    }
}

// States of a VC.

#[test]
fn a_vc_goes_from_unconnected_to_failed() {
    let mut cluster = Cluster::shm(2);
    let world = cluster.engines[0].comm_world();
    assert_eq!(cluster.vc_state(0, 1), None, "never contacted");
    let send = cluster.engines[0].isend(vec![1], Rank(1), Tag(0), world).unwrap();
    assert_eq!(cluster.vc_state(0, 1), Some(VcState::Connecting));
    assert_eq!(cluster.engines[0].test(&send), Ok(Test::Pending));
    cluster.tick_until(BOUND, "connected", |c| c.vc_state(0, 1) == Some(VcState::Connected));
    assert_eq!(cluster.vc_state(1, 0), Some(VcState::Connected), "the peer knows, without a call of its own");
    cluster.finish(BOUND, 0, send).unwrap();
    drop(cluster.engines.pop());
    cluster.tick_until(BOUND, "failed", |c| c.vc_state(0, 1) == Some(VcState::Failed));
}

#[test]
fn both_sides_may_connect_at_once() {
    for mut cluster in [Cluster::loopback(4), Cluster::shm(4)] {
        let world = cluster.engines[0].comm_world();
        let mut open = Vec::new();
        for from in 0..4usize {
            for to in 0..4u32 {
                let send = cluster.engines[from].isend(vec![from as u8], Rank(to), Tag(0), world).unwrap();
                open.push((from, send));
            }
        }
        for to in 0..4usize {
            for from in 0..4u32 {
                let receive = cluster.engines[to].irecv(vec![9], Rank(from), Tag(0), world).unwrap();
                assert_eq!(cluster.finish(BOUND, to, receive).unwrap().0, [from as u8]);
            }
        }
        for (from, send) in open {
            cluster.finish(BOUND, from, send).unwrap();
        }
        cluster.assert_at_rest();
    }
}

// Calls with wrong arguments.

#[test]
fn wrong_arguments_are_refused_and_buffers_come_back() {
    let mut cluster = Cluster::loopback(2);
    let engine = &mut cluster.engines[0];
    let world = engine.comm_world();
    let refused = engine.isend(vec![7], Rank(2), Tag(0), world).unwrap_err();
    assert_eq!((refused.error, refused.buffer), (PostError::Rank { rank: 2, last: 1 }, vec![7]));
    let refused = engine.isend(vec![7], Rank(1), Tag(1 << 31), world).unwrap_err();
    assert_eq!(refused.error, PostError::Tag { tag: 1 << 31 });
    assert!(refused.error.to_string().contains("above the bound"));
    assert_eq!(engine.isend(vec![7], Rank(0), Tag(0), Comm(2)).unwrap_err().error, PostError::Communicator(2));
    let alone = engine.comm_self();
    assert_eq!(engine.isend(vec![7], Rank(1), Tag(0), alone).unwrap_err().error, PostError::Rank { rank: 1, last: 0 });
    let refused = engine.irecv(vec![7], Rank(9), Tag(0), world).unwrap_err();
    assert_eq!((refused.error, refused.buffer), (PostError::Rank { rank: 9, last: 1 }, vec![7]));
    for tag in [1 << 31, u32::MAX] {
        let refused = engine.irecv(vec![7], ME, TagFilter::Tag(tag), world).unwrap_err();
        assert!(matches!(refused.error, PostError::Tag { .. }));
    }
    assert_eq!(engine.isend(vec![7], ME, Tag::MAX, alone).map(drop).map_err(|r| r.error), Ok(()));
    let receive = engine.irecv(vec![0], Rank(0), Tag::MAX, alone).unwrap();
    assert_eq!(cluster.finish(BOUND, 0, receive).unwrap().0, [7]);
    cluster.tick_times(3);
    cluster.assert_at_rest();
}

#[test]
fn handles_of_the_past_and_of_other_engines_are_stale() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let request = cluster.engines[0].irecv(vec![0; 4], Source::Any, Tag(0), world).unwrap();
    let id = request.id();
    let other = &mut cluster.engines[1];
    assert_eq!(other.test(&request), Err(RequestError::Stale));
    assert_eq!(other.cancel(&request), Err(RequestError::Stale));
    let own = other.irecv(vec![0; 4], Source::Any, Tag(0), world).unwrap();
    assert_eq!(own.id().row, id.row, "a row of the same number");
    assert_eq!(other.wait(&request), Err(RequestError::Stale));
    let stale = || RequestError::InStatus { index: 0, error: Box::new(RequestError::Stale) };
    assert_eq!(other.wait_all(&[&request]), Err(stale()));
    assert_eq!(other.cancel(&own), Ok(true));
    cluster.finish(BOUND, 1, own).unwrap_err();
    assert_eq!(cluster.engines[0].cancel(&request), Ok(true));
    let failed = cluster.finish(BOUND, 0, request).unwrap_err();
    assert_eq!((failed.error, failed.buffer), (RequestError::Cancelled, Some(vec![0; 4])));
    assert_eq!(cluster.engines[0].wait(&id), Err(RequestError::Stale));
    assert_eq!(cluster.engines[0].wait_any(&[id]), Err(stale()));
    let request = cluster.engines[0].irecv(vec![0; 4], Source::Any, Tag(0), world).unwrap();
    let failed = cluster.engines[1].take(request).unwrap_err();
    assert_eq!(failed.error, RequestError::Stale);
    // Without its token the operation is detached; its message frees it.
    drop(failed.request);
    let send = cluster.engines[1].isend(vec![1; 4], ME, Tag(0), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    cluster.tick_times(10);
    cluster.assert_at_rest();
}

#[test]
fn at_the_limit_posting_says_full_and_loses_nothing() {
    let limits = Limits { cars_max: 8, ..Limits::default() };
    let mut cluster = Cluster::loopback_with(2, |builder| builder.limits(limits.clone()));
    let world = cluster.engines[0].comm_world();
    let posted: Vec<_> =
        (0..8).map(|tag| cluster.engines[0].irecv(vec![0; 4], Rank(1), Tag(tag), world).unwrap()).collect();
    let full = cluster.engines[0].irecv(vec![3; 5], Rank(1), Tag(9), world).unwrap_err();
    assert!(matches!(full.error, PostError::Full { rows: 8, .. }), "{full:?}");
    assert_eq!(full.buffer, [3; 5]);
    assert!(full.error.to_string().contains("raise the limit"), "{full}");
    for tag in 0..8 {
        let send = cluster.engines[1].isend(vec![tag as u8; 4], ME, Tag(tag), world).unwrap();
        cluster.finish(BOUND, 1, send).unwrap();
    }
    for (tag, request) in posted.into_iter().enumerate() {
        assert_eq!(cluster.finish(BOUND, 0, request).unwrap().0, [tag as u8; 4]);
    }
    let again = cluster.engines[0].irecv(full.buffer, Rank(1), Tag(9), world).unwrap();
    let send = cluster.engines[1].isend(vec![8; 5], ME, Tag(9), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    assert_eq!(cluster.finish(BOUND, 0, again).unwrap().0, [8; 5]);
    // More runs than rows can ever be.
    let runs: Vec<Vec<u8>> = vec![vec![0]; 9];
    assert!(matches!(cluster.engines[0].irecv(runs, ME, Tag(0), world).unwrap_err().error, PostError::Full { .. }));
    cluster.assert_at_rest();
}

#[test]
fn a_finalized_engine_refuses_and_gives_buffers_back() {
    let mut engine = solo();
    let world = engine.comm_world();
    let open = engine.irecv(vec![1, 2], ME, Tag(0), world).unwrap();
    assert_eq!(engine.finalize(Duration::from_secs(1)), Ok(()));
    assert_eq!(engine.finalize(Duration::from_secs(1)), Ok(()), "again is nothing");
    assert_eq!(engine.isend(vec![1], ME, Tag(0), world).unwrap_err().error, PostError::Finalized);
    assert_eq!(engine.irecv(vec![1], ME, Tag(0), world).unwrap_err().error, PostError::Finalized);
    assert_eq!(engine.test(&open), Err(RequestError::Finalized));
    let failed = engine.take(open).unwrap_err();
    assert_eq!((failed.error, failed.buffer), (RequestError::Finalized, Some(vec![1, 2])));
    assert!(engine.tick().is_idle());
    assert!(matches!(engine.recv(&mut [0], ME, Tag(0), world), Err(OperationError::Post(PostError::Finalized))));
}

// Waiting, cancelling, dropping.

#[test]
fn cancel_ends_receives_that_have_no_message_and_nothing_else() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let posted: Vec<_> = [Source::Rank(1), Source::Any, Source::Rank(1)]
        .map(|source| cluster.engines[0].irecv(vec![0; 8], source, Tag(0), world).unwrap())
        .into_iter()
        .collect();
    let [first, second, third] = posted.try_into().unwrap();
    assert_eq!(cluster.engines[0].cancel(&first), Ok(true));
    assert_eq!(cluster.engines[0].cancel(&second), Ok(true));
    let send = cluster.engines[1].isend(vec![5; 8], ME, Tag(0), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    assert_eq!(cluster.finish(BOUND, 0, third).unwrap().0, [5; 8], "the message goes to the next receive");
    for cancelled in [first, second] {
        assert_eq!(cluster.finish(BOUND, 0, cancelled).unwrap_err().error, RequestError::Cancelled);
    }
    // Of a large message whose transfer has begun, and of a send: too late.
    let send = cluster.engines[1].isend(vec![6; 200_000], ME, Tag(0), world).unwrap();
    assert_eq!(cluster.engines[1].cancel(&send), Ok(false));
    cluster.tick_times(3);
    let large = cluster.engines[0].irecv(vec![0; 200_000], Source::Any, Tag(0), world).unwrap();
    cluster.tick_times(1);
    assert_eq!(cluster.engines[0].cancel(&large), Ok(false));
    assert!(cluster.finish(BOUND, 0, large).unwrap().0 == [6; 200_000]);
    cluster.finish(BOUND, 1, send).unwrap();
    cluster.assert_at_rest();
}

#[test]
fn waits_for_any_some_all_and_a_time() {
    let mut engine = solo();
    let world = engine.comm_world();
    assert_eq!(engine.wait_any::<tickwire::RequestId>(&[]), Ok(None));
    assert_eq!(engine.wait_some::<tickwire::RequestId>(&[]), Ok(vec![]));
    let requests: Vec<_> = (0..4).map(|tag| engine.irecv(vec![0; 4], ME, Tag(tag), world).unwrap()).collect();
    assert_eq!(engine.wait_for(&requests[0], Duration::from_millis(2)), Err(RequestError::Timeout));
    engine.send(&[1; 4], ME, Tag(2), world).unwrap();
    assert_eq!(engine.wait_any(&requests), Ok(Some(2)));
    engine.send(&[1; 2], ME, Tag(0), world).unwrap();
    assert_eq!(engine.wait(&requests[0]).map(|status| status.length), Ok(2));
    assert_eq!(engine.wait_some(&requests), Ok(vec![0, 2]));
    assert_eq!(engine.test(&requests[1]), Ok(Test::Pending));
    engine.send(&[1; 9], ME, Tag(1), world).unwrap();
    engine.send(&[1; 4], ME, Tag(3), world).unwrap();
    let told = engine.wait_all(&requests).unwrap_err();
    assert!(matches!(&told, RequestError::InStatus { index: 1, .. }), "{told}");
    assert!(engine.test(&requests[3]).unwrap().is_done(), "all are done");
    assert!(matches!(engine.test(&requests[1]), Err(RequestError::Truncated { capacity: 4, .. })));
    assert!(matches!(engine.wait(&requests[1]), Err(RequestError::Truncated { capacity: 4, .. })));
    let results: Vec<bool> = requests.into_iter().map(|request| engine.take(request).is_ok()).collect();
    assert_eq!(results, [true, false, true, true]);
}

#[test]
fn dropped_tokens_free_their_rows_and_buffers() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let shared: Arc<[u8]> = vec![1; 20_000].into();
    drop(cluster.engines[1].isend(shared.clone(), ME, Tag(0), world).unwrap());
    drop(cluster.engines[0].irecv(vec![0; 20_000], Rank(1), Tag(0), world).unwrap());
    let done = cluster.engines[0].irecv(vec![0; 4], Rank(1), Tag(1), world).unwrap();
    let send = cluster.engines[1].isend(vec![1; 4], ME, Tag(1), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    cluster.tick_times(100);
    assert!(cluster.engines[0].test(&done).unwrap().is_done());
    drop(done);
    cluster.tick_times(3);
    cluster.assert_at_rest();
    assert_eq!(Arc::strong_count(&shared), 1);
}

// Scopes.

#[test]
fn a_scope_lends_slices_and_cells() {
    let mut engine = solo();
    let world = engine.comm_world();
    let out = content(1, 30_000);
    let (mut into, mut cells) = (vec![0; 30_000], vec![0u8; 8]);
    let shared = Cell::from_mut(&mut cells[..]).as_slice_of_cells();
    engine.scope(|scope| {
        let receive = scope.irecv(&mut into[..], ME, Tag(1), world).unwrap();
        let halves = [scope.irecv(&shared[..4], ME, Tag(2), world), scope.irecv(&shared[4..], ME, Tag(2), world)];
        let sends = [&out[..], &out[..4], &out[4..8]]
            .map(|bytes| scope.isend(bytes, ME, if bytes.len() == 4 { Tag(2) } else { Tag(1) }, world).unwrap());
        scope.wait_all(&sends).unwrap();
        for half in halves {
            let half = half.unwrap();
            scope.wait(&half).unwrap();
            scope.take(half).unwrap();
        }
        scope.wait(&receive).unwrap();
        let (bytes, status) = scope.take(receive).unwrap();
        assert!(bytes == out && status.length == out.len());
    });
    assert!(into == out && cells == out[..8]);
}

#[test]
fn leaving_a_scope_early_cancels_receives_and_drives_sends() {
    let mut engine = solo();
    let world = engine.comm_world();
    let out = content(1, 100_000);
    let incoming = engine.irecv(vec![0; 100_000], ME, Tag(1), world).unwrap();
    let mut into = vec![7; 8];
    engine.scope(|scope| {
        let _ = scope.irecv(&mut into[..], ME, Tag(2), world).unwrap();
        let _ = scope.isend(&out[..], ME, Tag(1), world).unwrap();
    });
    into.fill(8);
    engine.wait(&incoming).unwrap();
    assert!(engine.take(incoming).unwrap().0 == out, "the send has been driven to its end");
    engine.send(&[1; 8], ME, Tag(2), world).unwrap();
    engine.tick();
    assert_eq!(into, [8; 8], "the cancelled receive takes nothing");
}

#[test]
fn a_panic_inside_a_scope_ends_its_loans() {
    let mut engine = solo();
    let world = engine.comm_world();
    let (out, mut into) = (content(1, 50_000), vec![7; 8]);
    let incoming = engine.irecv(vec![0; 50_000], ME, Tag(1), world).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        engine.scope(|scope| {
            let _receive = scope.irecv(&mut into[..], ME, Tag(2), world).unwrap();
            let _send = scope.isend(&out[..], ME, Tag(1), world).unwrap();
            panic!("inside");
        })
    }));
    assert!(panic.is_err());
    engine.wait(&incoming).unwrap();
    assert!(engine.take(incoming).unwrap().0 == out, "the send has been driven to its end");
    engine.send(&[1; 8], ME, Tag(2), world).unwrap();
    engine.tick();
    assert_eq!(into, [7; 8]);
    let mut again = [0; 8];
    assert_eq!(engine.recv(&mut again, ME, Tag(2), world).unwrap().length, 8);
}

// Systems of the application.

#[derive(Resource, Default)]
struct Runs(Arc<AtomicU64>);

#[test]
fn a_system_of_the_application_runs_once_a_pass_beside_its_set() {
    let runs = Arc::new(AtomicU64::new(0));
    let (after, seen) = (runs.clone(), Arc::new(AtomicU64::new(0)));
    let before = seen.clone();
    let builder = Engine::builder().world(move |world| world.insert_resource(Runs(after))).systems(move |schedule| {
        let count = |runs: Res<Runs>| {
            runs.0.fetch_add(1, Ordering::Relaxed);
        };
        let look = move || {
            before.fetch_add(1, Ordering::Relaxed);
        };
        schedule.add_systems((
            count.after(ProgressSystems::Complete),
            look.after(ProgressSystems::Transfer).before(ProgressSystems::DrainCq),
        ));
    });
    let mut engine = builder.build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    assert_eq!(runs.load(Ordering::Relaxed), engine.counters().runs()[5]);
    for length in [0, 100, 20_000] {
        let receive = engine.irecv(vec![0; length], ME, Tag(0), world).unwrap();
        engine.send(&content(1, length), ME, Tag(0), world).unwrap();
        engine.wait(&receive).unwrap();
        engine.take(receive).unwrap();
    }
    let complete = engine.counters().runs()[ProgressSystems::Complete as usize];
    assert!(complete > 0);
    assert_eq!(runs.load(Ordering::Relaxed), complete, "as often as Complete");
    assert!(seen.load(Ordering::Relaxed) > 0);
}

/// An engine with one more system after Complete.
fn with_system<M>(system: impl IntoSystem<(), (), M> + Send + 'static) -> Engine {
    let add = move |schedule: &mut Schedule| {
        schedule.add_systems(IntoSystem::into_system(system).after(ProgressSystems::Complete));
    };
    Engine::builder().systems(add).build(Bootstrap::solo()).unwrap()
}

/// The engine is poisoned at its first message, says so in every call, and still cleans up.
fn assert_poisoned(mut engine: Engine, words: &str) {
    let world = engine.comm_world();
    let open = engine.irecv(vec![1; 4], ME, Tag(5), world).unwrap();
    let receive = engine.irecv(vec![0; 4], ME, Tag(0), world).unwrap();
    let submitter = engine.submitter();
    let submitted = submitter.irecv(vec![0; 4], ME, Tag(6), world).unwrap();
    engine.tick();
    let _ = engine.isend(vec![1; 4], ME, Tag(0), world);
    engine.tick();
    assert!(matches!(engine.test(&open), Err(RequestError::Poisoned(_))));
    let error = engine.wait(&open).unwrap_err();
    assert!(matches!(&error, RequestError::Poisoned(why) if why.contains(words)), "{error}");
    let refused = engine.isend(vec![1], ME, Tag(0), world).unwrap_err();
    assert!(matches!(refused.error, PostError::Poisoned(_)), "{refused}");
    assert!(matches!(engine.irecv(vec![1], ME, Tag(0), world).unwrap_err().error, PostError::Poisoned(_)));
    assert!(matches!(engine.cancel(&open), Err(RequestError::Poisoned(_))));
    assert!(matches!(engine.wait_any(&[&open]), Err(RequestError::Poisoned(_))));
    assert!(engine.tick().is_idle());
    assert!(matches!(submitted.wait().unwrap_err().error, RequestError::Poisoned(_)));
    assert!(submitter.isend(vec![1], ME, Tag(0), world).is_err());
    let ended = engine.finalize(Duration::from_secs(1)).unwrap_err();
    assert!(matches!(&ended, FinalizeError::Poisoned(why) if why.contains(words)), "{ended}");
    assert_eq!(engine.finalize(Duration::from_secs(1)), Ok(()));
    drop((open, receive));
}

#[test]
fn a_panic_in_a_system_poisons_the_engine() {
    fn boom() {
        panic!("the application has a bug");
    }
    assert_poisoned(with_system(boom), "the application has a bug");
}

#[test]
fn systems_that_touch_the_engines_rows_poison_it() {
    use tickwire::components::{Buffer, Car, Held, Large, Request};
    #[derive(Component)]
    struct Mark;
    let spawn = |world: &mut World| {
        world.spawn((Car::default(), Large::default(), Request::default(), Held::default()));
    };
    assert_poisoned(with_system(spawn), "spawned, despawned or moved rows");
    let despawn = |mut commands: Commands, rows: Query<Entity, With<Car>>| {
        commands.entity(rows.iter().next().unwrap()).despawn();
    };
    assert_poisoned(with_system(despawn), "recycled, never despawned");
    let strip = |mut commands: Commands, rows: Query<Entity, With<Buffer>>| {
        commands.entity(rows.iter().next().unwrap()).remove::<Buffer>();
    };
    assert_poisoned(with_system(strip), "nor stripped");
    let extend = |mut commands: Commands, rows: Query<Entity, With<Car>>| {
        commands.entity(rows.iter().next().unwrap()).insert(Mark);
    };
    assert_poisoned(with_system(extend), "spawned, despawned or moved rows");
    let procs = |mut commands: Commands, rows: Query<Entity, With<tickwire::components::Vc>>| {
        commands.entity(rows.iter().next().unwrap()).insert(Mark);
    };
    assert_poisoned(with_system(procs), "spawned, despawned or moved rows");
    let own = |mut commands: Commands, rows: Query<Entity, With<tickwire::components::Progress>>| {
        commands.entity(rows.iter().next().unwrap()).insert(Mark);
    };
    assert_poisoned(with_system(own), "spawned, despawned or moved rows");
    // Many rows before the panic, so that the tables have moved in memory.
    fn many(world: &mut World) {
        for _ in 0..10_000 {
            world.spawn((Car::default(), Large::default(), Request::default(), Held::default()));
        }
        panic!("after a mess");
    }
    assert_poisoned(with_system(many), "after a mess");
}

#[test]
fn systems_that_cannot_be_ordered_or_seen_are_refused() {
    let build = |add: fn(&mut Schedule)| match Engine::builder().slot::<Seen>().systems(add).build(Bootstrap::solo()) {
        Err(BuildError::Schedule(words)) => words,
        other => panic!("{:?}", other.map(drop)),
    };
    fn bump(mut slots: Column<Seen>) {
        slots[0].0 += 1;
    }
    fn double(mut slots: Column<Seen>) {
        slots[0].0 *= 2;
    }
    let words = build(|schedule| {
        schedule.add_systems((bump, double));
    });
    assert!(words.contains("conflicting data access") && words.contains("before"), "{words}");
    let words = build(|schedule| {
        schedule.add_systems((|| {}).run_if(|| true).after(ProgressSystems::Complete));
    });
    assert!(words.contains("run condition"), "{words}");
    let words = build(|schedule| {
        schedule.configure_sets(ProgressSystems::Match.run_if(|| false));
    });
    assert!(words.contains("run condition") && words.contains("Match"), "{words}");
    let words = build(|schedule| {
        schedule.configure_sets(ProgressSystems::Complete.before(ProgressSystems::Post));
    });
    assert!(words.contains("cycle"), "{words}");
}

#[test]
fn tables_may_grow_beside_systems_of_the_application() {
    let add = |schedule: &mut Schedule| {
        schedule.add_systems((|| {}).after(ProgressSystems::Complete));
    };
    let mut engine = Engine::builder().initial_rows(8).systems(add).build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    let posted: Vec<_> = (0..100).map(|tag| engine.irecv(vec![0; 4], ME, Tag(tag), world).unwrap()).collect();
    for tag in 0..100 {
        engine.send(&[1; 4], ME, Tag(tag), world).unwrap();
    }
    engine.wait_all(&posted).unwrap();
    // Entities of the application are its own affair.
    let spawn = |mut commands: Commands| {
        commands.spawn(Name);
    };
    let mut engine = with_system(spawn);
    for _ in 0..3 {
        engine.send(&[1; 4], ME, Tag(0), world).unwrap();
        engine.recv(&mut [0; 4], ME, Tag(0), world).unwrap();
    }
}

#[derive(Component)]
struct Name;

// Endpoint slots.

/// What two users share about each proc.
#[derive(Component, Default)]
struct Seen(u64);

impl EndpointSlot for Seen {
    const NAME: &'static str = "seen";
}

#[test]
fn two_users_share_a_static_slot() {
    let mut cluster = Cluster::loopback_with(3, |builder| {
        builder.slot::<Seen>().systems(|schedule| {
            let count = |mut slots: Column<Seen>| slots.iter_mut().for_each(|seen| seen.0 += 1);
            schedule.add_systems(count.after(ProgressSystems::Complete));
        })
    });
    cases::wildcards(&mut cluster);
    let engine = &mut cluster.engines[0];
    let slots: Vec<_> = engine.slots().iter().map(|slot| (slot.name.clone(), slot.bytes, slot.dynamic)).collect();
    assert_eq!(slots, [("seen".to_owned(), 8, false)]);
    for proc in 0..3 {
        let row = engine.proc_slot_row(tickwire::ProcId(proc)).unwrap();
        let seen = engine.slot::<Seen>(tickwire::ProcId(proc)).unwrap();
        assert!(seen.0 > 0, "the system counts at every proc");
        seen.0 += 1_000_000;
        assert!(rows(engine).vcs[row as usize].proc == proc, "slots are found by the proc's row");
    }
    cases::storm(&mut cluster, 1, 3);
    for proc in 0..3 {
        assert!(cluster.engines[0].slot::<Seen>(tickwire::ProcId(proc)).unwrap().0 > 1_000_001);
    }
    assert!(cluster.engines[0].slot::<Seen>(tickwire::ProcId(3)).is_none());
}

#[test]
fn a_dynamic_slot_costs_nothing_until_it_is_used_and_moves_no_row() {
    use std::alloc::Layout;
    let mut cluster = Cluster::loopback(3);
    cases::wildcards(&mut cluster);
    let engine = &mut cluster.engines[0];
    let slot = engine.register_slot("credits", Layout::new::<[u32; 5]>()).unwrap();
    assert_eq!(engine.register_slot("credits", Layout::new::<[u32; 5]>()), Ok(slot), "by name, shared");
    let refused = engine.register_slot("credits", Layout::new::<u64>()).unwrap_err();
    assert!(refused.contains("20 bytes aligned to 4"), "{refused}");
    assert_eq!((engine.dynamic_slot_uses(slot), slot.bytes()), (0, 20));
    let proc = tickwire::ProcId(2);
    let where_is = |engine: &mut Engine| {
        let procs: Vec<u32> = rows(engine).vcs.iter().map(|vc| vc.proc).collect();
        (engine.proc_slot_row(proc), procs)
    };
    let before = where_is(engine);
    assert_eq!(engine.dynamic_slot(proc, slot).unwrap(), [0; 20]);
    engine.dynamic_slot(proc, slot).unwrap()[3] = 77;
    assert_eq!((engine.dynamic_slot(proc, slot).unwrap()[3], engine.dynamic_slot_uses(slot)), (77, 1));
    assert_eq!(where_is(engine), before);
    cases::storm(&mut cluster, 2, 3);
    assert_eq!(cluster.engines[0].dynamic_slot(proc, slot).unwrap()[3], 77);
}

#[test]
#[ignore = "a long search, for a person: TICKWIRE_SEEDS=FIRST..END"]
fn storms_from_as_many_seeds_as_asked_for() {
    let seeds = std::env::var("TICKWIRE_SEEDS").unwrap_or_else(|_| "100..400".into());
    let (first, end) = seeds.split_once("..").unwrap();
    for seed in first.parse().unwrap()..end.parse().unwrap() {
        let engines = 2 + (seed % 4) as u32;
        let delay_ns = 0..[1, 100_000, 1_000_000, 5_000_000][seed as usize / 4 % 4];
        let config = SimConfig { delay_ns, blocked_of_256: (seed % 7 * 30) as u8, ..SimConfig::new(seed) };
        cases::storm(&mut Cluster::sim(engines, &SimNet::new(engines, config)), seed, 12);
    }
}

// Credit.

/// How to make a cluster of two with limits.
type Make = fn(&Limits) -> Cluster;

/// A window of the smallest size for each of two engines, over transports that grant in memory and in frames.
fn of_little_credit() -> [(&'static str, Cluster); 3] {
    let limits = Limits { unexpected_bytes_max: 0, cars_max: 1 << 14, ..Limits::default() };
    let over: [(&'static str, Make); 3] = [
        ("loopback", |limits| Cluster::loopback_with(2, |builder| builder.limits(limits.clone()))),
        ("shared memory", |limits| Cluster::shm_with(2, |builder| builder.limits(limits.clone()))),
        ("frames", |limits| Cluster::sim_with(2, &SimNet::new(2, SimConfig::new(7)), |b| b.limits(limits.clone()))),
    ];
    over.map(|(name, make)| (name, make(&limits)))
}

/// What an engine keeps of messages before their receives: lines, offers.
fn kept(engine: &mut Engine) -> (u64, u32) {
    let all = rows(engine);
    (all.progress.unexpected.lines, all.vcs.iter().map(|vc| vc.offers_kept).sum())
}

#[test]
fn a_receiver_that_posts_nothing_keeps_a_bounded_part_and_loses_nothing() {
    const MESSAGES: u32 = 3000;
    for (name, mut cluster) in of_little_credit() {
        let world = cluster.engines[0].comm_world();
        let window = rows(&mut cluster.engines[1]).progress.window;
        let length = |n: u32| 100 + (n as usize * 37) % 1500;
        let mut sends: Vec<_> = (0..MESSAGES)
            .map(|n| cluster.engines[0].isend(content(n.into(), length(n)), Rank(1), Tag(n), world).unwrap())
            .collect();
        for _ in 0..300 {
            cluster.tick_all();
            let (lines, offers) = kept(&mut cluster.engines[1]);
            assert!(lines <= window.lines.into() && offers <= window.envelopes, "{name}: {lines} {offers}");
        }
        assert!(sends.iter().any(|send| !cluster.engines[0].test(send).unwrap().is_done()), "{name}");
        let (lines, offers) = kept(&mut cluster.engines[1]);
        assert!(lines > u64::from(window.lines) / 2 && offers > 0, "{name}: {lines} {offers}");

        // The receive of the last one lets all others come in, and takes it out of the middle of nothing.
        let last = MESSAGES - 1;
        let receive = cluster.engines[1].irecv(vec![0; 2000], Rank(0), Tag(last), world).unwrap();
        let (bytes, status) = cluster.finish(BOUND * 20, 1, receive).unwrap();
        assert!(bytes[..status.length] == content(last.into(), length(last)), "{name}");
        for n in 0..last {
            let receive = cluster.engines[1].irecv(vec![0; 2000], Rank(0), TagFilter::Any, world).unwrap();
            let (bytes, status) = cluster.finish(BOUND, 1, receive).unwrap();
            assert_eq!((status.tag, status.length), (Tag(n), length(n)), "{name}");
            assert!(bytes[..status.length] == content(n.into(), length(n)), "{name}: message {n}");
        }
        for send in sends.drain(..) {
            cluster.finish(BOUND, 0, send).unwrap();
        }
        cluster.tick_times(50);
        cluster.assert_at_rest();
        let credit = rows(&mut cluster.engines[1]).vcs.iter().find(|vc| vc.proc == 0).map(|vc| vc.offers_kept);
        assert_eq!(credit, Some(0), "{name}");
    }
}

#[test]
fn a_probe_finds_what_is_behind_more_than_may_be_kept() {
    for (name, mut cluster) in of_little_credit() {
        let world = cluster.engines[0].comm_world();
        for n in 0..600 {
            drop(cluster.engines[0].isend(vec![n as u8; 1000], Rank(1), Tag(n), world).unwrap());
        }
        cluster.tick_times(100);
        let mut found = None;
        cluster.tick_until(BOUND, "the probe has found it", |cluster| {
            found = cluster.engines[1].iprobe(Source::Any, Tag(599), world).unwrap();
            found.is_some()
        });
        assert_eq!(found.map(|status| status.length), Some(1000), "{name}");
        for _ in 0..600 {
            let receive = cluster.engines[1].irecv(vec![0; 1000], Rank(0), TagFilter::Any, world).unwrap();
            cluster.finish(BOUND, 1, receive).unwrap();
        }
        cluster.tick_times(50);
        cluster.assert_at_rest();
    }
}

#[test]
fn with_all_credit_spent_answers_still_go_both_ways() {
    for (name, mut cluster) in of_little_credit() {
        let world = cluster.engines[0].comm_world();
        // Each floods the other; both then exchange large messages, whose answers must pass what waits for credit.
        let mut flood = Vec::new();
        for rank in 0..2usize {
            let to = Rank(1 - rank as u32);
            for n in 0..500u32 {
                flood.push((rank, cluster.engines[rank].isend(vec![1; 1000], to, Tag(n), world).unwrap()));
            }
            flood.push((rank, cluster.engines[rank].isend(vec![2; 100_000], to, Tag(900), world).unwrap()));
        }
        cluster.tick_times(100);
        let large: Vec<_> = (0..2usize)
            .map(|rank| {
                let from = Rank(1 - rank as u32);
                (rank, cluster.engines[rank].irecv(vec![0; 100_000], from, Tag(900), world).unwrap())
            })
            .collect();
        for (rank, receive) in large {
            let (bytes, _) = cluster.finish(BOUND * 5, rank, receive).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 2), "{name}");
        }
        for rank in 0..2usize {
            for n in 0..500 {
                let from = Rank(1 - rank as u32);
                let receive = cluster.engines[rank].irecv(vec![0; 1000], from, Tag(n), world).unwrap();
                cluster.finish(BOUND, rank, receive).unwrap();
            }
        }
        for (rank, send) in flood {
            cluster.finish(BOUND, rank, send).unwrap();
        }
        cluster.tick_times(50);
        cluster.assert_at_rest();
    }
}

#[test]
fn with_every_buffer_and_row_taken_answers_still_go_both_ways() {
    let limits = Limits { buffers_max: 16, cars_max: 16, ..Limits::default() };
    let net = SimNet::new(2, SimConfig::new(3));
    let clusters = [
        ("loopback", Cluster::loopback_with(2, |builder| builder.limits(limits.clone()).initial_rows(16))),
        ("shared memory", Cluster::shm_with(2, |builder| builder.limits(limits.clone()).initial_rows(16))),
        ("frames", Cluster::sim_with(2, &net, |builder| builder.limits(limits.clone()).initial_rows(16))),
    ];
    for (name, mut cluster) in clusters {
        let world = cluster.engines[0].comm_world();
        // Each sends the other messages that nobody receives yet, as many as it takes, and a large one among them.
        let (mut sends, mut last) = (Vec::new(), [0; 2]);
        let mut receives = Vec::new();
        for rank in 0..2usize {
            let peer = Rank(1 - rank as u32);
            receives.push((rank, cluster.engines[rank].irecv(vec![0; 100_000], peer, Tag(900), world).unwrap()));
        }
        for n in 0..300 {
            if n == 1 {
                // Connected by then.
                cluster.tick_times(100);
            }
            for (rank, last) in last.iter_mut().enumerate() {
                let peer = Rank(1 - rank as u32);
                if n == 10 {
                    sends.push((rank, cluster.engines[rank].isend(vec![2; 100_000], peer, Tag(900), world).unwrap()));
                }
                match cluster.engines[rank].isend(vec![1; 100], peer, Tag(n), world) {
                    Ok(send) => {
                        sends.push((rank, send));
                        *last = n;
                    }
                    Err(full) => assert!(n > 4 && matches!(full.error, PostError::Full { .. }), "{name}: {full}"),
                }
            }
        }
        for (rank, receive) in receives {
            let (bytes, _) = cluster.finish(BOUND, rank, receive).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 2), "{name}");
        }
        for rank in 0..2usize {
            let kept = rows(&mut cluster.engines[rank]).progress.unexpected.count;
            assert!(kept > 13, "{name}: {kept}, which is what 16 rows have room for");
            let peer = Rank(1 - rank as u32);
            for n in (0..=last[1 - rank]).rev() {
                let receive = cluster.engines[rank].irecv(vec![0; 100], peer, Tag(n), world).unwrap();
                cluster.finish(BOUND, rank, receive).unwrap();
            }
        }
        for (rank, send) in sends {
            cluster.finish(BOUND, rank, send).unwrap();
        }
        cluster.tick_times(50);
        cluster.assert_at_rest();
    }
}

// Messages in parts.

/// Two engines whose eager messages leave in parts of 1000 bytes, and a small ring that holds four of them or so.
fn in_parts() -> Cluster {
    let limits = Limits { part_bytes: 1000, piece_bytes: 1000, ring_bytes: 8192, ..Limits::default() };
    Cluster::shm_with(2, |builder| builder.limits(limits.clone()))
}

#[test]
fn all_cases_in_parts() {
    cases::all(&mut in_parts());
    let limits = Limits { part_bytes: 64, ..Limits::default() };
    for seed in 0..3 {
        let net = SimNet::new(3, SimConfig::new(seed));
        cases::all(&mut Cluster::sim_with(3, &net, |builder| builder.limits(limits.clone())));
    }
}

#[test]
fn a_receive_takes_a_message_over_that_is_arriving() {
    for capacity in [8000, 5000, 2000] {
        let mut cluster = in_parts();
        let world = cluster.engines[0].comm_world();
        let message = content(3, 8000);
        // The connection first, so that the engines tick as this test says.
        let hello = cluster.engines[0].isend(vec![1], Rank(1), Tag(0), world).unwrap();
        let receive = cluster.engines[1].irecv(vec![0], Rank(0), Tag(0), world).unwrap();
        cluster.finish(BOUND, 1, receive).unwrap();
        cluster.finish(BOUND, 0, hello).unwrap();
        cluster.tick_times(5);

        let send = cluster.engines[0].isend(message.clone(), Rank(1), Tag(7), world).unwrap();
        cluster.tick(0);
        cluster.tick(1);
        let stream = rows(&mut cluster.engines[1]).progress.streams[0];
        assert!(stream.seen > 0 && stream.seen < 8000, "{stream:?}");
        let before = rows(&mut cluster.engines[1]).progress.kept_copied;
        let receive = cluster.engines[1].irecv(vec![0; capacity], Source::Any, TagFilter::Any, world).unwrap();
        let ended = cluster.finish(BOUND, 1, receive);
        cluster.finish(BOUND, 0, send).unwrap();
        match capacity {
            8000 => assert!(ended.unwrap().0 == message),
            _ => assert!(matches!(ended.unwrap_err().error, RequestError::Truncated { .. })),
        }
        let copied = rows(&mut cluster.engines[1]).progress.kept_copied - before;
        assert_eq!(copied, stream.seen, "only what had arrived went through a temporary");
        cluster.tick_times(20);
        cluster.assert_at_rest();
    }
}

#[test]
fn a_matched_probe_may_take_a_message_that_is_arriving_and_nobody_else_gets_it() {
    let mut cluster = in_parts();
    let world = cluster.engines[0].comm_world();
    let sends = [5u8, 6].map(|n| cluster.engines[0].isend(vec![n; 8000], Rank(1), Tag(n.into()), world).unwrap());
    let mut found = None;
    cluster.tick_until(BOUND, "a part has arrived", |cluster| {
        found = cluster.engines[1].improbe(Rank(0), TagFilter::Any, world).unwrap();
        found.is_some()
    });
    let receive = cluster.engines[1].imrecv(found.unwrap(), vec![0; 8000]).unwrap();
    let second = cluster.engines[1].irecv(vec![0; 8000], Rank(0), TagFilter::Any, world).unwrap();
    assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == [5; 8000]);
    assert!(cluster.finish(BOUND, 1, second).unwrap().0 == [6; 8000]);
    for send in sends {
        cluster.finish(BOUND, 0, send).unwrap();
    }
    cluster.tick_times(20);
    cluster.assert_at_rest();
}

#[test]
fn a_message_whose_sender_dies_half_way_is_never_received() {
    let net = SimNet::new(2, SimConfig::new(11));
    let limits = Limits { part_bytes: 64, ..Limits::default() };
    let mut cluster = Cluster::sim_with(2, &net, |builder| builder.limits(limits.clone()));
    let world = cluster.engines[0].comm_world();
    for n in 0..400u32 {
        drop(cluster.engines[0].isend(vec![n as u8; 4000], Rank(1), Tag(n), world).unwrap());
    }
    cluster.tick_until(BOUND, "a message is half there", |cluster| {
        let progress = rows(&mut cluster.engines[1]).progress;
        progress.unexpected.count > 2 && !progress.streams.is_empty()
    });
    net.kill(0, Death::Frame(net.frames(0) + 1));
    cluster.tick_until(BOUND, "the death is noticed", |cluster| cluster.vc_state(1, 0) == Some(VcState::Failed));
    assert!(rows(&mut cluster.engines[1]).progress.streams.is_empty());
    let mut whole = 0;
    loop {
        let receive = match cluster.engines[1].irecv(vec![0; 4000], Source::Any, Tag(whole), world) {
            Ok(receive) => receive,
            Err(rejected) => panic!("{}", rejected.error),
        };
        cluster.tick_times(2);
        match cluster.engines[1].test(&receive) {
            Ok(Test::Done(status)) => assert_eq!(status.length, 4000),
            _ => break,
        }
        let (bytes, _) = cluster.engines[1].take(receive).unwrap();
        assert!(bytes == vec![whole as u8; 4000], "message {whole}");
        whole += 1;
    }
    assert!(whole < 400, "it died before the end");
}

#[test]
fn what_a_matched_probe_has_taken_of_a_message_that_was_cut_off_is_given_back() {
    let net = SimNet::new(2, SimConfig::new(5));
    let limits = Limits { part_bytes: 64, ..Limits::default() };
    let mut cluster = Cluster::sim_with(2, &net, |builder| builder.limits(limits.clone()));
    let world = cluster.engines[0].comm_world();
    drop(cluster.engines[0].isend(vec![1; 8000], Rank(1), Tag(1), world).unwrap());
    let free = rows(&mut cluster.engines[1]).progress.free_buffer_rows;
    let mut found = None;
    cluster.tick_until(BOUND, "a part has arrived", |cluster| {
        found = cluster.engines[1].improbe(Rank(0), TagFilter::Any, world).unwrap();
        found.is_some()
    });
    assert!(!rows(&mut cluster.engines[1]).progress.streams.is_empty(), "the rest is still to come");
    net.kill(0, Death::Frame(net.frames(0) + 1));
    cluster.tick_until(BOUND, "the death is noticed", |cluster| cluster.vc_state(1, 0) == Some(VcState::Failed));
    let receive = cluster.engines[1].imrecv(found.unwrap(), vec![0; 8000]).unwrap();
    let ended = cluster.finish(BOUND, 1, receive);
    assert!(matches!(ended.unwrap_err().error, RequestError::PeerFailed { .. }));
    assert_eq!(rows(&mut cluster.engines[1]).progress.free_buffer_rows, free);
}

// Fairness.

/// A proc that keeps its ring full for ever of messages that are awaited, while another one sends and finalizes.
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
    let step_ns = tickwire::testing::STEP_NS;
    for now in 1..200 {
        flood();
        tick(&mut reader, now * step_ns);
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
            tick(&mut reader, now * step_ns);
            now += 1;
            assert!(now < 2000, "message {number} of who has finalized is not read");
        }
        assert!(reader.take(receive).unwrap().0 == content(number, 100));
    }
    let late = reader.irecv(vec![0u8; 1], Rank(2), Tag(1), world);
    while rows(&mut reader).vcs.iter().all(|vc| vc.state != VcState::Failed) {
        flood();
        tick(&mut reader, now * step_ns);
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
