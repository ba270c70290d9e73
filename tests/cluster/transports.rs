//! The same cases over every transport, in rings of every size.

use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::internals::transports::Hub;
use tickwire::tables::CarState;
use tickwire::testing::{Board, Cluster, SimConfig, SimNet, rows};
use tickwire::{Engine, Limits, List, Rank, Tag, Test};
use tickwire_tests::cases::{self, BOUND, content};

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
    let due = engines[0].irecv(vec![0u8; 8], Rank(2), Tag(2), world).unwrap();
    for _ in 0..100 {
        engines[0].tick();
    }
    assert_eq!(engines[0].test(&sent), Ok(Test::Pending));
    engines.extend([build(1), build(2)]);
    // Engine 2 sends to engine 0, which waits for it. Engine 1 receives.
    engines[2].isend(content(2, 8), Rank(0), Tag(2), world).map(drop).unwrap();
    let received = engines[1].irecv(vec![0u8; 20_000], Rank(0), Tag(1), world).unwrap();
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

#[test]
fn long_eager_messages_of_growing_length_are_kept_whole() {
    let limits = Limits { eager_max: 256 << 10, read_min: usize::MAX, ..Limits::default() };
    for mut cluster in [
        Cluster::loopback_with(2, |builder| builder.limits(limits.clone())),
        Cluster::shm_with(2, |builder| builder.limits(limits.clone())),
    ] {
        let world = cluster.engines[0].comm_world();
        // The first credit of a connection is for less.
        drop(cluster.engines[0].isend(vec![0u8; 8], Rank(1), Tag(0), world).unwrap());
        cluster.tick_times(100);
        // The temporary of each message is used again for the next one, which is longer.
        for (tag, bytes) in [(1u32, 70_000), (2, 200_000), (3, 66_000), (4, 256 << 10)] {
            let sent = cluster.engines[0].isend(content(u64::from(tag), bytes), Rank(1), Tag(tag), world).unwrap();
            cluster.tick_until(2000, "all of it is there", |c| c.engines[0].test(&sent).unwrap().is_done());
            let received = cluster.engines[1].irecv(vec![0; bytes], Rank(0), Tag(tag), world).unwrap();
            cluster.tick_until(2000, "it is received", |c| c.engines[1].test(&received).unwrap().is_done());
            let (got, status) = cluster.engines[1].take(received).unwrap();
            assert_eq!(status.length, bytes);
            assert!(got == content(u64::from(tag), bytes), "{bytes} B");
            cluster.engines[0].take(sent).unwrap();
        }
    }
}

/// A cluster whose first rings are shorter than some messages. The rings grow up to `grown_bytes_max`, or never if it
/// is 0. No message is read out of its sender's memory.
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
            let receive = cluster.engines[1].irecv(vec![0u8; length], Rank(0), Tag(1), world).unwrap();
            // The message has one run or three, and is eager or goes by rendezvous.
            if number.is_multiple_of(2) {
                let send = cluster.engines[0].isend(message.clone(), Rank(1), Tag(1), world).unwrap();
                assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == message, "{length}");
                cluster.finish(BOUND, 0, send).unwrap();
            } else {
                let runs: Vec<Vec<u8>> = message.chunks(length.div_ceil(3).max(1)).map(Vec::from).collect();
                let send = cluster.engines[0].isend(List(runs), Rank(1), Tag(1), world).unwrap();
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
        let config = SimConfig { remote_read: seed > 2, unread_of_256: 50 * (seed % 3) as u8, ..SimConfig::new(seed) };
        let net = SimNet::new(3, config);
        cases::all(&mut Cluster::sim(3, &net));
    }
}

#[test]
fn over_a_simulated_network_messages_leave_within_the_call_as_over_others() {
    for (partial_of_256, expected) in [(0, CarState::Offered), (128, CarState::Queued)] {
        let net = SimNet::new(2, SimConfig { partial_of_256, ..SimConfig::calm(7) });
        let mut cluster = Cluster::sim(2, &net);
        let world = cluster.engines[0].comm_world();
        for number in 0..3u8 {
            let receive = cluster.engines[1].irecv(vec![0u8; 20_000], Rank(0), Tag(1), world).unwrap();
            let send = cluster.engines[0].isend(vec![number; 20_000], Rank(1), Tag(1), world).unwrap();
            // The first message waits for its connection.
            let states: Vec<_> = rows(&mut cluster.engines[0]).cars.iter().map(|car| car.state).collect();
            assert!(number == 0 || states.contains(&expected), "{states:?}");
            assert_eq!(cluster.finish(BOUND, 1, receive).unwrap().0, vec![number; 20_000]);
            cluster.finish(BOUND, 0, send).unwrap();
        }
        cluster.assert_at_rest();
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
        let config =
            SimConfig { remote_read: seed % 2 == 1, unread_of_256: 40 * (seed % 4) as u8, ..SimConfig::new(seed) };
        cases::storm(&mut Cluster::sim(4, &SimNet::new(4, config)), seed, 8);
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
                let receive = cluster.engines[to].irecv(vec![0u8; length], Rank(from as u32), Tag(1), world).unwrap();
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

#[test]
#[ignore = "a long search, for a person: TICKWIRE_SEEDS=FIRST..END"]
fn storms_from_as_many_seeds_as_asked_for() {
    let seeds = std::env::var("TICKWIRE_SEEDS").unwrap_or_else(|_| "100..400".into());
    let (first, end) = seeds.split_once("..").unwrap();
    for seed in first.parse().unwrap()..end.parse().unwrap() {
        let engines = 2 + (seed % 4) as u32;
        let delay_ns = 0..[1, 100_000, 1_000_000, 5_000_000][seed as usize / 4 % 4];
        let blocked_of_256 = (seed % 7 * 30) as u8;
        let (remote_read, unread_of_256) = (seed % 3 > 0, (seed % 3 / 2 * 80) as u8);
        let config = SimConfig { delay_ns, blocked_of_256, remote_read, unread_of_256, ..SimConfig::new(seed) };
        cases::storm(&mut Cluster::sim(engines, &SimNet::new(engines, config)), seed, 12);
    }
}
