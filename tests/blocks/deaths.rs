//! Members die. Whoever waits for them gets an error, all resources are given back, and the survivors can still
//! communicate.

use crate::kit::{BOUND, TAG, numbers, posted};
use tickwire::internals::components::credit::cost;
use tickwire::internals::components::limits::FORWARD_WINDOW;
use tickwire::internals::transports::sim::Death;
use tickwire::testing::{Cluster, SimConfig, SimNet, rows};
use tickwire::{Limits, Rank, Request, RequestError, Tag, op};
use tickwire_tests::survivors::check_given_back;

/// Lengths that are passed along, bytes: one is short, one goes through windows, one through many windows.
const LENGTHS: [usize; 3] = [600, 100_000, 2 << 20];

fn check(error: &RequestError) {
    assert!(matches!(error, RequestError::PeerFailed { .. } | RequestError::Abandoned(_)), "{error}");
}

/// Passes messages and a block between the survivors.
fn talk_on(cluster: &mut Cluster, living: &[usize]) {
    for pair in living.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let world = cluster.engines[from].comm_world();
        for length in [9, 200_000] {
            let send = cluster.engines[from].isend(numbers(length), Rank(to as u32), TAG, world).unwrap();
            let receive = cluster.engines[to].irecv(vec![0u8; length], Rank(from as u32), TAG, world).unwrap();
            assert!(cluster.finish(BOUND, to, receive).unwrap().0 == numbers(length));
            cluster.finish(BOUND, from, send).unwrap();
            let other = Tag(TAG.0 + 1);
            let send = cluster.engines[from].gather_block(Rank(to as u32), other, world).send(numbers(length)).start();
            let receive =
                cluster.engines[to].scatter_block(Rank(from as u32), other, world).recv(vec![0u8; length]).start();
            assert!(cluster.finish(BOUND, to, posted(receive)).unwrap().0.1 == numbers(length));
            cluster.finish(BOUND, from, posted(send)).unwrap();
        }
    }
}

/// In a chain of five, one member dies sooner or later. Members behind it get an error. Members before it are done or
/// get an error. Nobody hangs.
#[test]
fn a_dead_member_of_a_chain_fails_those_that_wait_for_it() {
    let size = 5u32;
    for (victim, stage) in (0..size).flat_map(|victim| [0, 2, 5, 9, 14, 30, 80].map(|stage| (victim, stage))) {
        for (length, faults) in LENGTHS.iter().flat_map(|&length| [(length, false), (length, true)]) {
            let seed = u64::from(stage) * 10 + u64::from(victim);
            let calm = SimConfig::calm(seed);
            let partial = SimConfig { partial_of_256: 60, delay_ns: 0..300_000, ..SimConfig::calm(seed) };
            let net = SimNet::new(size, if faults { partial } else { calm });
            let mut cluster = Cluster::sim(size, &net);
            let bytes = numbers(length);
            let world = cluster.engines[0].comm_world();
            let rank = |rank: u32| rank as usize;
            let first = posted(cluster.engines[0].gather_block(Rank(1), TAG, world).send(bytes.clone()).start());
            let mut middle: Vec<(u32, Request<()>)> = Vec::new();
            for own in 1..size - 1 {
                let block = cluster.engines[rank(own)].scatter_block(Rank(own - 1), TAG, world);
                middle.push((own, posted(block.forward(length, Rank(own + 1)).start())));
            }
            let last = cluster.engines[rank(size - 1)].scatter_block(Rank(size - 2), TAG, world);
            let last = posted(last.recv(vec![0u8; length]).start());
            cluster.tick_times(stage);
            net.kill(victim, Death::At(cluster.now_ns));
            if victim != 0 {
                cluster.finish(BOUND, 0, first).map_or_else(|failed| check(&failed.error), drop);
            } else {
                std::mem::forget(first);
            }
            for (own, request) in middle {
                match own {
                    own if own == victim => std::mem::forget(request),
                    _ => cluster.finish(BOUND, rank(own), request).map_or_else(|failed| check(&failed.error), drop),
                }
            }
            if victim != size - 1 {
                match cluster.finish(BOUND, rank(size - 1), last) {
                    Ok((buffers, _)) => assert!(buffers.1 == bytes, "what is said to have come has come"),
                    Err(failed) => check(&failed.error),
                }
            } else {
                std::mem::forget(last);
            }
            let living: Vec<usize> = (0..size).filter(|&own| own != victim).map(rank).collect();
            check_given_back(&mut cluster, &living);
            talk_on(&mut cluster, &living);
        }
    }
}

/// The last rank does not receive. So each rank before it holds a full window and waits for room when the first rank
/// dies. From then on, nobody waits for the last rank.
#[test]
fn those_that_wait_for_room_are_told_too() {
    let net = SimNet::new(4, SimConfig::calm(3));
    let mut cluster = Cluster::sim(4, &net);
    cluster.checked = false;
    let (world, length) = (cluster.engines[0].comm_world(), 4 << 20);
    let first = posted(cluster.engines[0].gather_block(Rank(1), TAG, world).send(numbers(length)).start());
    let mut middle = Vec::new();
    for rank in 1..3u32 {
        let block = cluster.engines[rank as usize].scatter_block(Rank(rank - 1), TAG, world);
        middle.push((rank as usize, posted(block.forward(length, Rank(rank + 1)).start())));
    }
    cluster.tick_until(BOUND, "both windows are full", |cluster| {
        (1..3).all(|rank| rows(&mut cluster.engines[rank]).progress.forward_bytes.used == FORWARD_WINDOW as u64)
    });
    cluster.tick_times(300);
    net.kill(0, Death::At(cluster.now_ns));
    std::mem::forget(first);
    for (rank, request) in middle {
        check(&cluster.finish(BOUND, rank, request).unwrap_err().error);
    }
    // The last rank asks for the data of the offer that it still has. Then the offer is withdrawn.
    let last = cluster.engines[3].scatter_block(Rank(2), TAG, world).recv(vec![0u8; length]).start();
    assert_eq!(cluster.finish(BOUND, 3, posted(last)).unwrap_err().error, RequestError::Abandoned(Rank(2)));
    check_given_back(&mut cluster, &[1, 2, 3]);
    talk_on(&mut cluster, &[1, 2, 3]);
}

/// A member that cannot go on has no credit left for a message: its peer does not receive others. It says that nothing will come all the
/// same, as an offer. Whether the receive is posted before or later, it ends, and so does the send.
#[test]
fn who_has_no_credit_for_a_message_says_too_that_nothing_will_come() {
    for is_late in [false, true] {
        let net = SimNet::new(3, SimConfig::calm(5));
        let limits = Limits { unexpected_bytes_max: 64 << 10, ..Limits::default() };
        let mut cluster = Cluster::sim_with(3, &net, |builder| builder.limits(limits.clone()));
        let world = cluster.engines[0].comm_world();
        let count = rows(&mut cluster.engines[1]).progress.window.lines / cost(0) + 1;
        let other = Tag(TAG.0 + 7);
        let sends: Vec<_> =
            (0..count).map(|_| cluster.engines[1].isend(vec![0u8; 0], Rank(2), other, world).unwrap()).collect();
        cluster.tick_times(300);
        let vcs = rows(&mut cluster.engines[1]).vcs;
        assert!(vcs.iter().any(|vc| vc.proc == 2 && vc.lines < cost(0)), "the credit is used up");
        let forward = cluster.engines[1].scatter_block(Rank(0), TAG, world).forward(600, Rank(2));
        let forward = posted(forward.start());
        let receive = |cluster: &mut Cluster| {
            posted(cluster.engines[2].scatter_block(Rank(1), TAG, world).recv(vec![0u8; 600]).start())
        };
        let posted_before = (!is_late).then(|| receive(&mut cluster));
        cluster.tick_times(20);
        net.kill(0, Death::At(cluster.now_ns));
        check(&cluster.finish(BOUND, 1, forward).unwrap_err().error);
        cluster.tick_times(300);
        let last = posted_before.unwrap_or_else(|| receive(&mut cluster));
        assert_eq!(cluster.finish(BOUND, 2, last).unwrap_err().error, RequestError::Abandoned(Rank(1)));
        for send in sends {
            let receive = cluster.engines[2].irecv(vec![0u8; 0], Rank(1), other, world).unwrap();
            cluster.finish(BOUND, 2, receive).unwrap();
            cluster.finish(BOUND, 1, send).unwrap();
        }
        check_given_back(&mut cluster, &[1, 2]);
        talk_on(&mut cluster, &[1, 2]);
    }
}

/// If a source of a gather block dies, the block fails as a whole. Its target gets an error. The living source gets rid
/// of its message.
#[test]
fn a_dead_source_of_a_gather_block_fails_it_as_a_whole() {
    for (victim, stage) in [0usize, 1].into_iter().flat_map(|victim| [0, 3, 8, 20, 60].map(|stage| (victim, stage))) {
        for length in LENGTHS {
            let net = SimNet::new(4, SimConfig::calm(7));
            let mut cluster = Cluster::sim(4, &net);
            let world = cluster.engines[0].comm_world();
            let count = length / 8;
            let source = |cluster: &mut Cluster, rank: usize| {
                posted(cluster.engines[rank].gather_block(Rank(2), TAG, world).send(vec![1u64; count]).start())
            };
            let sources = [source(&mut cluster, 0), source(&mut cluster, 1)];
            let block = cluster.engines[2].gather_block(Rank(3), TAG, world);
            let block = block.forward(8 * count, Rank(0)).forward_op(vec![2u64; count], op::Sum, Rank(1));
            let block = posted(block.recv_op(vec![0u64; 0], op::Sum, Rank(1)).start());
            let last = cluster.engines[3].scatter_block(Rank(2), TAG, world).recv(vec![0u64; 2 * count]);
            let last = posted(last.start());
            cluster.tick_times(stage);
            net.kill(victim as u32, Death::At(cluster.now_ns));
            cluster.finish(BOUND, 2, block).map_or_else(|failed| check(&failed.error), drop);
            match cluster.finish(BOUND, 3, last) {
                Ok((buffers, _)) => assert_eq!(buffers.1, [vec![1; count], vec![3; count]].concat()),
                Err(failed) => check(&failed.error),
            }
            for (rank, source) in sources.into_iter().enumerate() {
                match rank == victim {
                    true => std::mem::forget(source),
                    false => cluster.finish(BOUND, rank, source).map_or_else(|failed| check(&failed.error), drop),
                }
            }
            let living: Vec<usize> = (0..4).filter(|&rank| rank != victim).collect();
            check_given_back(&mut cluster, &living);
            talk_on(&mut cluster, &living);
        }
    }
}

/// If lengths differ, the rank that notices it gets an error, and so do the ranks behind it. Later messages are
/// intact.
#[test]
fn lengths_that_differ_are_errors_and_what_follows_is_intact() {
    for (sent, expected) in
        [(10usize, 20usize), (20, 10), (100_000, 90_000), (90_000, 100_000), (10, 100_000), (100_000, 10)]
    {
        for mut cluster in crate::kit::clusters(3) {
            let world = cluster.engines[0].comm_world();
            let first = posted(cluster.engines[0].gather_block(Rank(1), TAG, world).send(vec![1u8; sent]).start());
            let block = cluster.engines[1].scatter_block(Rank(0), TAG, world);
            let middle = posted(block.forward(expected, Rank(2)).start());
            let last = cluster.engines[2].scatter_block(Rank(1), TAG, world);
            let last = posted(last.recv(vec![0u8; expected]).start());
            let error = cluster.finish(BOUND, 1, middle).unwrap_err().error;
            match sent < expected {
                true => assert!(matches!(error, RequestError::Short { .. }), "{error}"),
                false => assert!(matches!(error, RequestError::Truncated { .. }), "{error}"),
            }
            assert_eq!(cluster.finish(BOUND, 2, last).unwrap_err().error, RequestError::Abandoned(Rank(1)));
            cluster.finish(BOUND, 0, first).unwrap();
            crate::kit::all_at_rest(&mut cluster);
            talk_on(&mut cluster, &[0, 1, 2]);
            crate::kit::all_at_rest(&mut cluster);
        }
    }
}

/// An engine is finalized. Its own part ends, and the parts of its peers fail.
#[test]
fn a_member_that_ends_fails_those_that_wait_for_it() {
    for mut cluster in crate::kit::clusters(3) {
        let world = cluster.engines[0].comm_world();
        let block = cluster.engines[1].scatter_block(Rank(0), TAG, world);
        let middle = posted(block.forward(1 << 20, Rank(2)).start());
        let last = cluster.engines[2].scatter_block(Rank(1), TAG, world);
        let last = posted(last.recv(vec![0u8; 1 << 20]).start());
        let first = posted(cluster.engines[0].gather_block(Rank(1), TAG, world).send(vec![1u8; 1 << 20]).start());
        cluster.tick_times(6);
        let _ = cluster.engines[0].finalize(std::time::Duration::ZERO);
        drop(first);
        match cluster.finish(BOUND, 1, middle) {
            Ok(_) => drop(cluster.finish(BOUND, 2, last).unwrap()),
            Err(failed) => {
                check(&failed.error);
                check(&cluster.finish(BOUND, 2, last).unwrap_err().error);
            }
        }
        check_given_back(&mut cluster, &[1, 2]);
        talk_on(&mut cluster, &[1, 2]);
    }
}

/// A rank has sent the message of a first block, and cannot send that of a second one with the same tag. The receiver starts late. The first
/// block gets its message, and only the second one fails.
#[test]
fn a_message_that_has_come_goes_before_the_news_that_a_later_one_does_not() {
    for seed in 0..4 {
        let net = SimNet::new(3, SimConfig::calm(seed));
        let mut cluster = Cluster::sim(3, &net);
        let world = cluster.engines[0].comm_world();
        // All know each other.
        for (from, to) in [(2usize, 0usize), (0, 1)] {
            let send = cluster.engines[from].isend(vec![1u8], Rank(to as u32), TAG, world).unwrap();
            let receive = cluster.engines[to].irecv(vec![0u8], Rank(from as u32), TAG, world).unwrap();
            cluster.finish(BOUND, to, receive).unwrap();
            cluster.finish(BOUND, from, send).unwrap();
        }
        let first = posted(cluster.engines[0].gather_block(Rank(1), TAG, world).send(numbers(100)).start());
        cluster.finish(BOUND, 0, first).unwrap();
        let second = cluster.engines[0].scatter_block(Rank(2), TAG, world).forward(100, Rank(1));
        let second = posted(second.start());
        net.kill(2, Death::At(cluster.now_ns));
        check(&cluster.finish(BOUND, 0, second).unwrap_err().error);
        cluster.tick_times(50);
        let mut receive = || posted(cluster.engines[1].scatter_block(Rank(0), TAG, world).recv(vec![0u8; 100]).start());
        let (first, second) = (receive(), receive());
        assert!(cluster.finish(BOUND, 1, first).unwrap().0.1 == numbers(100), "seed {seed}");
        check(&cluster.finish(BOUND, 1, second).unwrap_err().error);
    }
}
