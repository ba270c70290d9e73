//! Blocks and graphs that an application builds: where the parts go, that bytes go on as they arrive, and what happens
//! when a member dies.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod datatypes;
mod deaths;
mod functions;
mod kit;
mod model;
mod passing;

use kit::{BOUND, TAG, all_at_rest, clusters, numbers, pass_along, posted};
use std::process::Command;
use tickwire::testing::{Cluster, SimConfig, SimNet};
use tickwire::{Comm, Engine, PostError, Rank, Tag, Test, op};
use tickwire_tests::binaries::binary;

#[test]
fn a_chain_passes_on_what_it_is_given() {
    for length in [0, 1, 100, 5_000, 9_000, 60_000, 70_000, 300_001] {
        for mut cluster in clusters(4) {
            let bytes = numbers(length);
            assert!(pass_along(&mut cluster, &bytes) == bytes, "{length} bytes\n{}", cluster.report());
            all_at_rest(&mut cluster);
        }
    }
}

/// A message is dealt out. One part stays, one part goes on to each of two ranks, and one of these ranks also gets
/// elements of the middle.
#[test]
fn a_scatter_block_deals_out_a_message() {
    for count in [3usize, 900, 40_000] {
        for mut cluster in clusters(4) {
            let world = cluster.engines[0].comm_world();
            let part = |number: u32| (0..count as u32).map(|at| number * 100_000 + at).collect::<Vec<u32>>();
            let source = cluster.engines[0].gather_block(Rank(1), TAG, world);
            let source = posted(source.send(part(1)).send(part(2)).send(part(3)).send(vec![0.5f64; count]).start());
            let middle = cluster.engines[1]
                .scatter_block(Rank(0), TAG, world)
                .recv(vec![0u32; count])
                .forward(count * 4, Rank(2))
                .recv_forward(vec![0u32; count], Rank(3))
                .send(part(4), Rank(2))
                .recv_op(vec![1.5f64; count], op::Sum);
            let middle = posted(middle.start());
            let second =
                posted(cluster.engines[2].scatter_block(Rank(1), TAG, world).recv(vec![0u32; 2 * count]).start());
            let third = posted(cluster.engines[3].scatter_block(Rank(1), TAG, world).recv(vec![0u32; count]).start());
            assert_eq!(cluster.finish(BOUND, 2, second).unwrap().0.1, [part(2), part(4)].concat());
            assert_eq!(cluster.finish(BOUND, 3, third).unwrap().0.1, part(3));
            let ((((((), first), third), sent), sums), _) = cluster.finish(BOUND, 1, middle).unwrap();
            assert_eq!((first, third, sent), (part(1), part(3), part(4)));
            assert_eq!(sums, vec![2.0; count]);
            cluster.finish(BOUND, 0, source).unwrap();
            all_at_rest(&mut cluster);
        }
    }
}

/// A combined message goes on although an earlier message to the same rank has not arrived yet.
#[test]
fn what_is_combined_goes_on_behind_a_message_that_has_not_come() {
    let count = 20_000;
    for mut cluster in clusters(4) {
        let world = cluster.engines[0].comm_world();
        let late = cluster.engines[1].scatter_block(Rank(0), TAG, world).forward(1_000_000, Rank(2));
        let late = posted(late.start());
        let add = |left: [f64; 3], right: [f64; 3]| [left[0] + right[0], left[1] + right[1], left[2] + right[2]];
        let sum = cluster.engines[1].scatter_block(Rank(3), Tag(4), world);
        let sum = posted(sum.forward_op(vec![[1.0, 2.0, 3.0]; count], add, Rank(2)).start());
        let first = posted(cluster.engines[2].scatter_block(Rank(1), TAG, world).recv(vec![0u8; 1_000_000]).start());
        let second = cluster.engines[2].scatter_block(Rank(1), Tag(4), world).recv(vec![[0f64; 3]; count]);
        let second = posted(second.start());
        let given = cluster.engines[3].gather_block(Rank(1), Tag(4), world).send(vec![[0.5, 0.25, 0.125]; count]);
        let given = posted(given.start());
        assert_eq!(cluster.finish(BOUND, 2, second).unwrap().0.1, vec![[1.5, 2.25, 3.125]; count]);
        let source = posted(cluster.engines[0].gather_block(Rank(1), TAG, world).send(numbers(1_000_000)).start());
        assert!(cluster.finish(BOUND, 2, first).unwrap().0.1 == numbers(1_000_000));
        cluster.finish(BOUND, 0, source).unwrap();
        cluster.finish(BOUND, 3, given).unwrap();
        cluster.finish(BOUND, 1, late).unwrap();
        cluster.finish(BOUND, 1, sum).unwrap();
        all_at_rest(&mut cluster);
    }
}

/// A part goes on to several ranks. It also stays, or is combined, or neither. One of the ranks receives late.
#[test]
fn a_part_goes_on_to_several_ranks() {
    for count in [3usize, 900, 60_000] {
        for mut cluster in clusters(4) {
            let world = cluster.engines[0].comm_world();
            let part = |number: u32| (0..count as u32).map(|at| number * 100_000 + at).collect::<Vec<u32>>();
            let sum =
                |one: u32, other: u32| part(one).iter().zip(part(other)).map(|(one, other)| one + other).collect();
            let all = [Rank(0), Rank(2), Rank(3)];
            let source = cluster.engines[0].gather_block(Rank(1), TAG, world);
            let source = posted(source.send(part(1)).send(part(2)).send(part(3)).send(part(4)).start());
            let middle = cluster.engines[1]
                .scatter_block(Rank(0), TAG, world)
                .recv_forward(vec![0u32; count], all)
                .send(part(9), Rank(3))
                .recv_op_forward(part(5), op::Sum, &all[1..])
                .forward(count * 4, vec![Rank(2), Rank(3)])
                .forward_op(part(6), op::Sum, all);
            let middle = posted(middle.start());
            let expected = |rank: usize| -> Vec<u32> {
                let ninth = if rank == 3 { part(9) } else { vec![] };
                let (fifth, third) = if rank == 0 { (vec![], vec![]) } else { (sum(2, 5), part(3)) };
                [part(1), ninth, fifth, third, sum(4, 6)].concat()
            };
            let mut targets = Vec::new();
            for rank in [2, 0, 3] {
                cluster.tick_times(100);
                let block = cluster.engines[rank].scatter_block(Rank(1), TAG, world);
                targets.push((rank, posted(block.recv(vec![0u32; expected(rank).len()]).start())));
            }
            for (rank, target) in targets {
                let received = cluster.finish(BOUND, rank, target).unwrap().0.1;
                assert!(received == expected(rank), "rank {rank} of {count}\n{}", cluster.report());
            }
            let (((((), first), _), sums), own) = cluster.finish(BOUND, 1, middle).unwrap().0;
            assert!((first, sums, own) == (part(1), sum(2, 5), part(6)));
            cluster.finish(BOUND, 0, source).unwrap();
            all_at_rest(&mut cluster);
        }
    }
}

/// In a tree, bytes go on as they arrive to all ranks below. So the height of the tree hardly matters.
#[test]
fn a_tree_takes_hardly_longer_than_a_hop() {
    let bytes = numbers(2 << 20);
    let rounds = |size: u32| {
        let config = SimConfig { delay_ns: 150_000..200_000, ..SimConfig::calm(1) };
        let mut cluster = Cluster::sim(size, &SimNet::new(size, config));
        cluster.checked = false;
        let mut rounds = 0;
        for _ in 0..2 {
            let mut requests = Vec::new();
            for (rank, engine) in (0..size).zip(&mut cluster.engines) {
                let world = engine.comm_world();
                let below: Vec<Rank> =
                    [2 * rank + 1, 2 * rank + 2].into_iter().filter(|&rank| rank < size).map(Rank).collect();
                if rank == 0 {
                    let mut graph = engine.graph(world).with(bytes.clone());
                    below.into_iter().for_each(|to| {
                        let message = graph.0.send(to, TAG);
                        graph.0.give(message, graph.1);
                    });
                    requests.push(posted(graph.0.start()));
                } else {
                    let block = engine.scatter_block(Rank((rank - 1) / 2), TAG, world);
                    requests.push(posted(block.recv_forward(vec![0u8; bytes.len()], below).start()));
                }
            }
            rounds = cluster.tick_until(BOUND, "all have it", |cluster| {
                cluster.engines.iter_mut().zip(&requests).all(|(engine, of)| engine.test(of).unwrap() != Test::Pending)
            });
            for (engine, request) in cluster.engines.iter_mut().zip(requests) {
                assert!(engine.take(request).unwrap().0.1 == bytes);
            }
        }
        rounds
    };
    let (one, three) = (rounds(3), rounds(15));
    assert!(three < one + one / 2, "three levels take {three} rounds, one takes {one}");
}

/// Messages of several ranks are put together, in whatever order they arrive. Their sums are sent on, and kept where
/// the block asks for it.
#[test]
fn a_gather_block_puts_messages_together() {
    for count in [3usize, 900, 40_000] {
        for (turn, mut cluster) in clusters(4).into_iter().enumerate() {
            let world = cluster.engines[0].comm_world();
            let of = |rank: u32| vec![u64::from(rank) + 1; count];
            let middle = cluster.engines[1]
                .gather_block(Rank(3), TAG, world)
                .recv_op_forward(of(1), op::Sum, Rank(0))
                .send(vec![9u8; 5])
                .forward_op(vec![10u64; count], op::Product, Rank(2))
                .forward(8 * count, Rank(0))
                .recv(vec![0u64; count], Rank(2));
            let middle = posted(middle.start());
            let mut sources = Vec::new();
            for rank in if turn % 2 == 0 { [0, 2] } else { [2, 0] } {
                cluster.tick_times(50);
                let block = cluster.engines[rank].gather_block(Rank(1), TAG, world);
                sources.push((rank, posted(block.send(of(rank as u32)).send(of(rank as u32)).start())));
            }
            let last = cluster.engines[3]
                .scatter_block(Rank(1), TAG, world)
                .recv(vec![0u64; count])
                .recv(vec![0u8; 5])
                .recv(vec![0u64; 2 * count]);
            let last = posted(last.start());
            let (((((), sums), bytes), rest), _) = cluster.finish(BOUND, 3, last).unwrap();
            assert_eq!((sums, bytes), (vec![3; count], vec![9; 5]));
            assert_eq!(rest, [vec![30; count], vec![1; count]].concat());
            let (((((), sums), _), own), received) = cluster.finish(BOUND, 1, middle).unwrap().0;
            assert_eq!((sums, own, received), (vec![3; count], vec![10; count], of(2)));
            for (rank, source) in sources {
                cluster.finish(BOUND, rank, source).unwrap();
            }
            all_at_rest(&mut cluster);
        }
    }
}

/// Blocks do not match point-to-point messages with the same tag or collective operations.
#[test]
fn blocks_meet_blocks_alone() {
    for mut cluster in clusters(2) {
        let world = cluster.engines[0].comm_world();
        let receive = cluster.engines[1].irecv(vec![0u8; 4], Rank(0), TAG, world).unwrap();
        let block = posted(cluster.engines[1].scatter_block(Rank(0), TAG, world).recv(vec![0u8; 4]).start());
        let sums: Vec<_> = cluster
            .engines
            .iter_mut()
            .map(|engine| engine.iallreduce(vec![1u8], vec![0], op::Sum, world).unwrap())
            .collect();
        let source = posted(cluster.engines[0].gather_block(Rank(1), TAG, world).send(vec![2u8; 4]).start());
        let send = cluster.engines[0].isend(vec![1u8; 4], Rank(1), TAG, world).unwrap();
        assert_eq!(cluster.finish(BOUND, 1, block).unwrap().0.1, [2; 4]);
        assert_eq!(cluster.finish(BOUND, 1, receive).unwrap().0, [1; 4]);
        for (rank, sum) in sums.into_iter().enumerate() {
            assert_eq!(cluster.finish(BOUND, rank, sum).unwrap().0.1, [2]);
        }
        cluster.finish(BOUND, 0, source).unwrap();
        cluster.finish(BOUND, 0, send).unwrap();
        all_at_rest(&mut cluster);
    }
}

/// A graph with computations between messages, and a message to oneself.
#[test]
fn a_graph_computes_between_its_messages() {
    for count in [2usize, 5_000, 50_000] {
        for mut cluster in clusters(2) {
            let world = cluster.engines[0].comm_world();
            let mut requests = Vec::new();
            for rank in 0..2u32 {
                let engine = &mut cluster.engines[rank as usize];
                let (graph, own) = engine.graph(world).with_place(vec![u64::from(rank) + 1; count]);
                let (graph, other) = graph.with_place(vec![0u64; count]);
                let (mut graph, copy) = graph.with_place(vec![0u64; count]);
                let (out, back) = (graph.send(Rank(1 - rank), Tag(4)), graph.receive(Rank(1 - rank), Tag(4)));
                graph.give(out, own.elements());
                graph.take(back, other);
                let product = graph.reduce(own, other.elements(), |left, right| 10 * left + right);
                graph.after(out, product);
                graph.after(back, product);
                let (to_me, from_me) = (graph.send(Rank(rank), Tag(4)), graph.receive(Rank(rank), Tag(4)));
                graph.after(product, to_me);
                graph.give(to_me, own.elements());
                graph.take(from_me, copy);
                requests.push(posted(graph.start()));
            }
            for (rank, request) in (0..2u64).zip(requests) {
                let (((((), own), _), copy), _) = cluster.finish(BOUND, rank as usize, request).unwrap();
                assert_eq!(own, vec![10 * (rank + 1) + 2 - rank; count]);
                assert_eq!(own, copy);
            }
            all_at_rest(&mut cluster);
        }
    }
}

#[test]
fn wrong_arguments_are_errors_and_nothing_is_left() {
    let mut cluster = Cluster::loopback(2);
    let engine = &mut cluster.engines[0];
    let world = engine.comm_world();
    let rejected = engine.scatter_block(Rank(2), TAG, world).recv(vec![1u8]).start().unwrap_err();
    assert_eq!((rejected.error, rejected.buffer), (PostError::Rank { rank: 2, last: 1 }, ((), vec![1])));
    let rejected = engine.gather_block(Rank(1), Tag(1 << 31), world).send(vec![1u8]).start().unwrap_err();
    assert_eq!(rejected.error, PostError::Tag { tag: 1 << 31 });
    assert!(engine.gather_block(Rank(1), TAG, Comm(77)).persistent().is_err());
    let foreign = {
        let (_, place) = engine.graph(world).with_place(vec![1u8; 4]);
        place
    };
    let mut graph = engine.graph(world);
    let message = graph.receive(Rank(1), TAG);
    graph.take(message, foreign);
    assert_eq!(graph.start().unwrap_err().error, PostError::OtherGraph);
    let (mut graph, own) = engine.graph(world).with_place(vec![1u8; 4]);
    let one = graph.reduce(own.part(0..2), own.part(1..3).elements(), op::Sum);
    let _ = one;
    assert_eq!(graph.start().unwrap_err().error, PostError::Overlap);
    let (mut graph, own) = engine.graph(world).with_place(vec![1u8; 4]);
    graph.copy(own.part(0..1).elements(), own.part(2..4));
    assert!(matches!(graph.start().unwrap_err().error, PostError::Elements { given: 1, needed: 2, .. }));
    let mut graph = engine.graph(world);
    let (from, to) = (graph.receive(Rank(1), TAG), graph.send(Rank(1), TAG));
    graph.pass(from, 10, to);
    graph.after(to, from);
    assert_eq!(graph.start().unwrap_err().error, PostError::Circle);
    // Lengths that no memory has.
    let forward = |engine: &mut Engine, lengths: &[usize]| {
        let mut graph = engine.graph(world);
        let (from, to) = (graph.receive(Rank(1), TAG), [graph.send(Rank(0), TAG), graph.send(Rank(1), TAG)]);
        lengths.iter().for_each(|&length| graph.pass(from, length, to));
        graph.start().unwrap_err().error
    };
    for lengths in [&[1 << 60][..], &[usize::MAX, usize::MAX]] {
        assert!(matches!(forward(engine, lengths), PostError::Length { .. }), "{lengths:?}");
    }
    // The second one is beyond all addresses that a process has.
    let mut graph = engine.graph(world);
    for _ in 0..2 {
        let (from, to) = (graph.receive(Rank(1), TAG), [graph.send(Rank(0), TAG), graph.send(Rank(1), TAG)]);
        graph.pass(from, 1 << 46, to);
    }
    assert_eq!(graph.start().unwrap_err().error, PostError::NoMemory { bytes: 1 << 46 });
    let empty = posted(engine.graph(world).start());
    cluster.finish(BOUND, 0, empty).unwrap();
    cluster.assert_at_rest();
}

#[test]
fn buffers_may_be_borrowed() {
    let mut engine = tickwire::Engine::builder().build(tickwire::Bootstrap::solo()).unwrap();
    let (me, world) = (engine.rank(), engine.comm_world());
    let (from, mut to) = (vec![7u32; 30_000], vec![0u32; 30_000]);
    engine.scope(|scope| {
        let source = posted(scope.gather_block(me, TAG, world).send(&from[..]).start());
        let target = posted(scope.scatter_block(me, TAG, world).recv(&mut to[..]).start());
        scope.wait(&target).unwrap();
        drop(source);
    });
    assert_eq!(from, to);
}

/// Chains through all ranks, several at once, between processes.
#[test]
fn processes_weather_storms_of_blocks() {
    for (seed, ranks, batches) in [("1", "2", "60"), ("2", "3", "40"), ("3", "5", "20"), ("4", "8", "10")] {
        let mut job = Command::new(binary("tickwire"));
        job.args([
            "run",
            "-n",
            ranks,
            "--timeout",
            "60",
            "--",
            env!("CARGO_BIN_EXE_tests-storm"),
            "blocks",
            seed,
            batches,
        ]);
        let output = job.output().unwrap();
        assert!(output.status.success(), "{ranks} ranks: {}", String::from_utf8_lossy(&output.stderr));
    }
}
