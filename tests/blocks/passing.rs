//! Cut-through: bytes go on as they arrive, through a window.

use crate::kit::{BOUND, Held, TAG, all_at_rest, clusters, numbers, pass_along, posted, start_chain};
use tickwire::internals::components::limits::{FORWARD_WINDOW, PASSED_WHOLE_MAX};
use tickwire::testing::{Cluster, STEP_NS, SimConfig, SimNet, rows};
use tickwire::{Builder, Engine, Limits, Persistent, Rank, Tag, Test, op};

/// The number of rounds until the last engine of a chain has all bytes.
fn rounds(cluster: &mut Cluster, bytes: &[u8]) -> u32 {
    let mut held = start_chain(cluster, bytes);
    let last = held.len() - 1;
    let Some(Held::Last(request)) = held.pop() else { panic!("the last one receives") };
    let what = "the last one has it";
    let rounds =
        cluster.tick_until(BOUND, what, |cluster| cluster.engines[last].test(&request).unwrap() != Test::Pending);
    assert!(cluster.engines[last].take(request).unwrap().0.1 == bytes);
    rounds
}

/// A cluster over a network in which a frame takes two rounds.
fn delayed(size: u32) -> Cluster {
    let config = SimConfig { delay_ns: 150_000..200_000, ..SimConfig::calm(1) };
    let mut cluster = Cluster::sim(size, &SimNet::new(size, config));
    cluster.checked = false;
    cluster
}

/// Passing 4 MiB from the first to the last of eight ranks takes less than twice as long as passing them from one rank
/// to the next. So no rank waits for the whole message. A frame takes two rounds.
#[test]
fn a_chain_of_eight_takes_less_than_twice_as_long_as_a_hop() {
    let bytes = numbers(4 << 20);
    let hop = |size: u32| {
        let mut cluster = delayed(size);
        // The short message connects the ranks.
        rounds(&mut cluster, b"hello");
        rounds(&mut cluster, &bytes)
    };
    let (one, seven) = (hop(2), hop(8));
    assert!(one > 100, "the network has a bandwidth: {one} rounds");
    assert!(seven < 2 * one, "seven hops take {seven} rounds, one takes {one}");
}

/// As above, for a broadcast to eight ranks. It goes from rank to rank in pieces.
#[test]
fn a_broadcast_to_eight_takes_less_than_twice_as_long_as_to_two() {
    let bytes = numbers(4 << 20);
    let rounds = |size: u32| {
        let mut cluster = delayed(size);
        let mut taken = 0;
        // The short broadcast connects some of the ranks.
        for length in [8, bytes.len(), bytes.len()] {
            let start = |(rank, engine): (u32, &mut Engine)| {
                let world = engine.comm_world();
                let buffer = if rank == 0 { bytes[..length].to_vec() } else { vec![0; length] };
                engine.ibcast(buffer, Rank(0), world).unwrap()
            };
            let requests: Vec<_> = (0..).zip(&mut cluster.engines).map(start).collect();
            taken = cluster.tick_until(BOUND, "all have it", |cluster| {
                let mut each = cluster.engines.iter_mut().zip(&requests);
                each.all(|(engine, request)| engine.test(request).unwrap() != Test::Pending)
            });
            for (engine, request) in cluster.engines.iter_mut().zip(requests) {
                assert!(engine.take(request).unwrap().0 == bytes[..length]);
            }
        }
        taken
    };
    let (two, eight) = (rounds(2), rounds(8));
    assert!(two > 100, "the network has a bandwidth: {two} rounds");
    assert!(eight < 2 * two, "to eight ranks it takes {eight} rounds, to two {two}");
}

/// A rank in the middle offers what it will pass on as soon as it knows of it. So the last rank hears of the message before
/// any of its bytes have come to the middle.
#[test]
fn what_is_passed_on_is_offered_before_its_bytes_have_come() {
    let bytes = numbers(1 << 20);
    for seed in 0..4 {
        let config = SimConfig { delay_ns: 400_000..500_000, ..SimConfig::calm(seed) };
        let mut cluster = Cluster::sim(3, &SimNet::new(3, config));
        // The short message connects the ranks.
        assert_eq!(pass_along(&mut cluster, b"hello"), b"hello");
        let world = cluster.engines[0].comm_world();
        let first = posted(cluster.engines[0].gather_block(Rank(1), TAG, world).send(bytes.clone()).start());
        let middle = cluster.engines[1].scatter_block(Rank(0), TAG, world).forward(bytes.len(), Rank(2));
        let middle = posted(middle.start());
        let come = |cluster: &mut Cluster| -> u64 {
            let graphs = &rows(&mut cluster.engines[1]).progress.graphs;
            let blocks = graphs.list.iter().flatten().filter_map(|graph| graph.blocks.as_ref());
            blocks.flat_map(|blocks| &blocks.inlets).map(|inlet| inlet.come).sum()
        };
        cluster.tick_until(BOUND, "the last rank knows of the message", |cluster| {
            rows(&mut cluster.engines[2]).progress.unexpected.count == 1
        });
        assert_eq!(come(&mut cluster), 0, "seed {seed}: the offer has waited for bytes");
        // The bytes come nevertheless, although the last rank has not asked for any.
        cluster.tick_until(BOUND, "bytes come to the middle", |cluster| come(cluster) > 0);
        let last = cluster.engines[2].scatter_block(Rank(1), TAG, world).recv(vec![0u8; bytes.len()]);
        let last = posted(last.start());
        assert!(cluster.finish(BOUND, 2, last).unwrap().0.1 == bytes);
        cluster.finish(BOUND, 1, middle).unwrap();
        cluster.finish(BOUND, 0, first).unwrap();
        all_at_rest(&mut cluster);
    }
}

/// With each further hop, a long message takes one more frame after another: the offer runs ahead of the bytes, and so does the answer to
/// it, so that the bytes find a place when they come. Without early offers and early answers a hop would take three: offer, answer, bytes.
#[test]
fn a_further_hop_takes_one_frame_and_not_an_offer_an_answer_and_the_bytes() {
    /// Rounds that a frame takes in the network.
    const FRAME: u32 = 20;
    let delay_ns = u64::from(FRAME) * STEP_NS;
    let bytes = numbers(PASSED_WHOLE_MAX + 30_000);
    let taken: Vec<u32> = (2..=8)
        .map(|size| {
            let config = SimConfig { delay_ns: delay_ns..delay_ns + 1, ..SimConfig::calm(1) };
            let mut cluster = Cluster::sim(size, &SimNet::new(size, config));
            cluster.checked = false;
            // The short message connects the ranks.
            rounds(&mut cluster, b"hello");
            cluster.tick_times(4 * FRAME);
            rounds(&mut cluster, &bytes)
        })
        .collect();
    assert!(taken[0] >= 3 * FRAME, "the first hop has an offer, an answer and bytes: {taken:?}");
    for pair in taken.windows(2) {
        let further = pair[1] - pair[0];
        assert!((FRAME..FRAME + FRAME / 2).contains(&further), "a hop more takes {further} rounds: {taken:?}");
    }
}

/// No rank on the way ever holds the whole message. It holds one window at most, and no other memory.
#[test]
fn nobody_on_the_way_holds_more_than_a_window() {
    let bytes = numbers(3 << 20);
    for mut cluster in clusters(4) {
        cluster.checked = false;
        let held = start_chain(&mut cluster, &bytes);
        for rank in 1..3 {
            let graphs = &rows(&mut cluster.engines[rank]).progress.graphs;
            let own: usize = graphs.list.iter().flatten().map(|graph| graph.bytes()).sum();
            assert_eq!(own, 0, "a window is all there is");
        }
        for (rank, held) in held.into_iter().enumerate() {
            match held {
                Held::First(request) => drop(cluster.finish(BOUND, rank, request).unwrap()),
                Held::Middle(request) => drop(cluster.finish(BOUND, rank, request).unwrap()),
                Held::Last(request) => assert!(cluster.finish(BOUND, rank, request).unwrap().0.1 == bytes),
            }
        }
        for rank in 1..3 {
            let most = rows(&mut cluster.engines[rank]).progress.forward_bytes.most;
            assert!(most > 0 && most <= FORWARD_WINDOW as u64, "rank {rank} has held {most} bytes");
        }
        all_at_rest(&mut cluster);
    }
}

/// The parts of one message share a window.
#[test]
fn parts_of_a_message_share_its_window() {
    let part = 200_000;
    for mut cluster in clusters(3) {
        cluster.checked = false;
        let world = cluster.engines[0].comm_world();
        let bytes = numbers(6 * part);
        let first = cluster.engines[0].gather_block(Rank(1), TAG, world).send(bytes.clone()).start().unwrap();
        let mut middle = cluster.engines[1].scatter_block(Rank(0), TAG, world);
        for _ in 0..6 {
            middle = middle.forward(part, Rank(2));
        }
        let middle = middle.start().unwrap();
        let last = cluster.engines[2].scatter_block(Rank(1), TAG, world).recv(vec![0u8; 6 * part]).start().unwrap();
        assert!(cluster.finish(BOUND, 2, last).unwrap().0.1 == bytes);
        cluster.finish(BOUND, 1, middle).unwrap();
        cluster.finish(BOUND, 0, first).unwrap();
        let most = rows(&mut cluster.engines[1]).progress.forward_bytes.most;
        assert!(most > 0 && most <= FORWARD_WINDOW as u64, "{most} bytes");
        all_at_rest(&mut cluster);
    }
}

/// The last rank does not receive yet. The rank before it must hold one window, and go on when the last rank
/// receives.
#[test]
fn a_rank_that_is_late_holds_up_a_window_and_no_more() {
    let bytes = numbers(3 << 20);
    for mut cluster in clusters(3) {
        let world = cluster.engines[0].comm_world();
        let first = cluster.engines[0].gather_block(Rank(1), TAG, world).send(bytes.clone()).start().unwrap();
        let middle = cluster.engines[1].scatter_block(Rank(0), TAG, world).forward(bytes.len(), Rank(2)).start();
        let middle = middle.unwrap();
        cluster.tick_until(BOUND, "the window is full", |cluster| {
            rows(&mut cluster.engines[1]).progress.forward_bytes.used == FORWARD_WINDOW as u64
        });
        cluster.tick_times(400);
        assert_eq!(rows(&mut cluster.engines[1]).progress.forward_bytes.most, FORWARD_WINDOW as u64);
        // Other messages pass meanwhile.
        let send = cluster.engines[0].isend(vec![1u8; 9], Rank(1), TAG, world).unwrap();
        let receive = cluster.engines[1].irecv(vec![0u8; 9], Rank(0), TAG, world).unwrap();
        assert_eq!(cluster.finish(BOUND, 1, receive).unwrap().0, [1; 9]);
        cluster.finish(BOUND, 0, send).unwrap();
        let last = cluster.engines[2].scatter_block(Rank(1), TAG, world).recv(vec![0u8; bytes.len()]).start().unwrap();
        assert!(cluster.finish(BOUND, 2, last).unwrap().0.1 == bytes);
        cluster.finish(BOUND, 1, middle).unwrap();
        cluster.finish(BOUND, 0, first).unwrap();
        all_at_rest(&mut cluster);
    }
}

/// A sum along a chain, started again and again.
#[test]
fn persistent_blocks_give_what_is_in_their_buffers_at_each_start() {
    for count in [5usize, 3_000, 60_000] {
        for mut cluster in clusters(3) {
            let world = cluster.engines[0].comm_world();
            let [first, middle, last] = &mut cluster.engines[..] else { panic!("three engines") };
            let mut first = first.gather_block(Rank(1), TAG, world).send(vec![0u64; count]).persistent().unwrap();
            let middle = middle.scatter_block(Rank(0), TAG, world);
            let middle = middle.recv_op_forward(vec![0u64; count], op::Sum, Rank(2)).persistent().unwrap();
            let mut last = last.scatter_block(Rank(1), TAG, world).recv(vec![0u64; count]).persistent().unwrap();
            let mut total = 0;
            for round in 1..6u64 {
                cluster.engines[0].buffer(&mut first).unwrap().1.fill(round);
                for (engine, persistent) in [(0, &first), (2, &last)] {
                    cluster.engines[engine].start(persistent).unwrap();
                }
                cluster.engines[1].start(&middle).unwrap();
                total += round;
                cluster.tick_until(BOUND, "all are done", |cluster| {
                    let is_done = |engine: &mut Engine, of: &Persistent<((), Vec<u64>)>| {
                        engine.test(of).unwrap() != Test::Pending
                    };
                    let [one, two, three] = &mut cluster.engines[..] else { panic!("three engines") };
                    is_done(one, &first) & is_done(two, &middle) & is_done(three, &last)
                });
                assert_eq!(cluster.engines[2].buffer(&mut last).unwrap().1, vec![total; count]);
            }
            drop((first, middle, last));
            all_at_rest(&mut cluster);
        }
    }
}

/// All rows of windows are in use when the blocks end, and a tick ends with them. So they are not in the list of free rows when the blocks
/// start again.
#[test]
fn as_many_windows_as_there_are_rows_can_be_asked_for_again_at_once() {
    let (part, mut were_in_use) = (8192, false);
    // With systems of the application, a tick of one pass ends with Complete, before SupplyBuffers takes the rows back.
    for (passes_max, systems) in [(1, true), (1, false), (2, true), (8, false)] {
        let change = |builder: Builder| {
            let builder = builder.limits(Limits { passes_max, ..Limits::default() });
            if systems { builder.systems(|schedule| _ = schedule.add_systems(|| ())) } else { builder }
        };
        let mut cluster = Cluster::loopback_with(3, change);
        assert_eq!(pass_along(&mut cluster, b"hello"), b"hello");
        let world = cluster.engines[0].comm_world();
        let windows = rows(&mut cluster.engines[1]).supplies.len();
        let bytes = numbers(windows * part);
        let first = cluster.engines[0].gather_block(Rank(1), TAG, world).send(bytes.clone()).persistent().unwrap();
        let mut middle = cluster.engines[1].scatter_block(Rank(0), TAG, world);
        for _ in 0..windows {
            middle = middle.forward(part, Rank(2));
        }
        let middle = middle.persistent().unwrap();
        let last = cluster.engines[2].scatter_block(Rank(1), TAG, world).recv(vec![0u8; bytes.len()]);
        let mut last = last.persistent().unwrap();
        assert_eq!(rows(&mut cluster.engines[1]).supplies.len(), windows, "the last free row is used");
        cluster.engines[1].start(&middle).unwrap();
        for _ in 0..6 {
            cluster.engines[2].buffer(&mut last).unwrap().1.fill(0);
            cluster.engines[0].start(&first).unwrap();
            cluster.engines[2].start(&last).unwrap();
            cluster.tick_until(BOUND, "the middle has passed all on", |cluster| {
                cluster.engines[1].test(&middle).unwrap() != Test::Pending
            });
            // At once: the engine has not ticked since.
            let free = rows(&mut cluster.engines[1]).progress.free_supplies.count as usize;
            were_in_use |= free == 0;
            cluster.engines[1].start(&middle).unwrap();
            cluster.tick_until(BOUND, "the others are done", |cluster| {
                let ended = [cluster.engines[0].test(&first).unwrap(), cluster.engines[2].test(&last).unwrap()];
                !ended.contains(&Test::Pending)
            });
            assert!(*cluster.engines[2].buffer(&mut last).unwrap().1 == bytes);
        }
        // The last start of the middle.
        cluster.engines[0].start(&first).unwrap();
        cluster.engines[2].start(&last).unwrap();
        cluster.tick_until(BOUND, "all are done", |cluster| {
            let ended = [
                cluster.engines[0].test(&first).unwrap(),
                cluster.engines[1].test(&middle).unwrap(),
                cluster.engines[2].test(&last).unwrap(),
            ];
            !ended.contains(&Test::Pending)
        });
        drop((first, middle, last));
        all_at_rest(&mut cluster);
    }
    assert!(were_in_use, "no start has met rows that were still to be taken back");
}

/// A message passes on what another one has brought, but only once that one has ended. There must be room for all of it, however long it is.
#[test]
fn what_waits_for_the_end_of_the_message_that_it_passes_on_needs_no_window() {
    for (length, through) in [1000, 1 << 20].into_iter().flat_map(|length| [(length, false), (length, true)]) {
        for mut cluster in clusters(3) {
            let world = cluster.engines[0].comm_world();
            let bytes = numbers(length);
            let source = posted(cluster.engines[0].gather_block(Rank(1), TAG, world).send(bytes.clone()).start());
            let (mut graph, place) = cluster.engines[1].graph(world).with_place(vec![1u32, 2]);
            let (from, to) = (graph.receive(Rank(0), TAG), graph.send(Rank(2), TAG));
            graph.pass(from, length, to);
            match through {
                false => graph.after(from, to),
                true => {
                    let sum = graph.reduce(place.part(0..1), place.part(1..2).elements(), op::Sum);
                    graph.after(from, sum);
                    graph.after(sum, to);
                }
            }
            let middle = posted(graph.start());
            let last = cluster.engines[2].scatter_block(Rank(1), TAG, world).recv(vec![0u8; length]);
            let last = posted(last.start());
            assert!(cluster.finish(BOUND, 2, last).unwrap().0.1 == bytes, "{length} bytes");
            let sums = cluster.finish(BOUND, 1, middle).unwrap().0.1;
            assert_eq!(sums, [if through { 3 } else { 1 }, 2]);
            cluster.finish(BOUND, 0, source).unwrap();
            all_at_rest(&mut cluster);
        }
    }
}

/// Two messages are passed on, and each leaves only when the other one has come.
#[test]
fn messages_that_wait_for_each_other_crosswise_need_no_window() {
    for mut cluster in clusters(3) {
        let world = cluster.engines[0].comm_world();
        let (bytes, tags) = (numbers(300_000), [TAG, Tag(TAG.0 + 1)]);
        let sources =
            tags.map(|tag| posted(cluster.engines[0].gather_block(Rank(1), tag, world).send(bytes.clone()).start()));
        let mut graph = cluster.engines[1].graph(world);
        let [first, second] = tags.map(|tag| {
            let (from, to) = (graph.receive(Rank(0), tag), graph.send(Rank(2), tag));
            graph.pass(from, bytes.len(), to);
            (from, to)
        });
        graph.after(first.0, second.1);
        graph.after(second.0, first.1);
        let middle = posted(graph.start());
        for tag in tags {
            let last = cluster.engines[2].scatter_block(Rank(1), tag, world).recv(vec![0u8; bytes.len()]);
            let last = posted(last.start());
            assert!(cluster.finish(BOUND, 2, last).unwrap().0.1 == bytes);
        }
        cluster.finish(BOUND, 1, middle).unwrap();
        for source in sources {
            cluster.finish(BOUND, 0, source).unwrap();
        }
        all_at_rest(&mut cluster);
    }
}
