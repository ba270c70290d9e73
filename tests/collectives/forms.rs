//! Operations in place, with different lengths for each rank, and with borrowed buffers.

use crate::kit::{SIZES, all, clusters, in_threads, sum, values};
use tickwire::testing::Cluster;
use tickwire::{List, PostError, Rank, RequestError, consecutive, in_place, op, reduce_local};

/// How many elements a rank has. Some ranks have none.
fn count(rank: u32) -> usize {
    (rank as usize * 7 + 3) % 11 * if rank % 4 == 1 { 0 } else { 90 }
}

#[test]
fn what_is_in_place_is_neither_sent_by_hand_nor_lost() {
    for size in SIZES {
        for mut cluster in clusters(size).into_iter().step_by(2) {
            for count in [3usize, 700] {
                in_place_all(&mut cluster, size, count);
            }
            cluster.tick_times(200);
            cluster.assert_at_rest();
        }
    }
}

fn in_place_all(cluster: &mut Cluster, size: u32, count: usize) {
    let (ranks, root) = (size as usize, size / 2);
    let joined: Vec<i64> = (0..size).flat_map(|rank| values(rank, count)).collect();
    let own_alone = |rank: u32| {
        let mut all = vec![0i64; joined.len()];
        let own = rank as usize * count;
        all[own..own + count].copy_from_slice(&joined[own..own + count]);
        all
    };
    // In place, the root has no send buffer, and the others have no receive buffer. So the calls have two types.
    let mut gathered = Vec::new();
    let results = {
        let (mut others, mut first) = (Vec::new(), None);
        for (rank, engine) in (0..size).zip(&mut cluster.engines) {
            let world = engine.comm_world();
            match rank == root {
                true => first = Some(engine.igather(in_place(), own_alone(rank), Rank(root), world).unwrap()),
                false => others.push((
                    rank as usize,
                    engine.igather(values(rank, count), Vec::<i64>::new(), Rank(root), world).unwrap(),
                )),
            }
        }
        gathered.push(cluster.finish(crate::kit::BOUND, root as usize, first.unwrap()).unwrap().0.1);
        others.into_iter().for_each(|(rank, request)| drop(cluster.finish(crate::kit::BOUND, rank, request).unwrap()));
        gathered
    };
    assert!(results[0] == joined, "gather of {count} to {size}");
    let mut requests = Vec::new();
    let mut at_root = None;
    for (rank, engine) in (0..size).zip(&mut cluster.engines) {
        let world = engine.comm_world();
        match rank == root {
            true => at_root = Some(engine.iscatter(joined.clone(), in_place(), Rank(root), world).unwrap()),
            false => {
                requests.push((rank, engine.iscatter(Vec::<i64>::new(), vec![0i64; count], Rank(root), world).unwrap()))
            }
        }
    }
    let (stayed, _) = cluster.finish(crate::kit::BOUND, root as usize, at_root.unwrap()).unwrap();
    assert!(stayed.0 == joined);
    for (rank, request) in requests {
        let received = cluster.finish(crate::kit::BOUND, rank as usize, request).unwrap().0.1;
        assert!(received == values(rank, count), "scatter of {count} to {size}");
    }
    let results = all(cluster, |engine, rank, world| engine.iallgather(in_place(), own_alone(rank), world));
    assert!(results.iter().all(|of| of.1 == joined), "allgather of {count} to {size}");
    let results = all(cluster, |engine, rank, world| {
        let both = (0..size).flat_map(|to| values(rank * 100 + to, count)).collect::<Vec<_>>();
        engine.ialltoall(in_place(), both, world)
    });
    for (rank, (_, received)) in (0..).zip(&results) {
        let expected: Vec<_> = (0..size).flat_map(|from| values(from * 100 + rank, count)).collect();
        assert!(*received == expected, "alltoall of {count} to {size}");
    }
    let results = all(cluster, |engine, rank, world| engine.iscan(in_place(), values(rank, count), op::Sum, world));
    assert!((1..).zip(&results).all(|(end, of)| of.1 == sum(0..end, count)), "scan of {count} to {size}");
    let results = all(cluster, |engine, rank, world| engine.iexscan(in_place(), values(rank, count), op::Sum, world));
    assert!((0..).zip(&results).skip(1).all(|(end, of)| of.1 == sum(0..end, count)), "exscan of {count} to {size}");
    assert!(results[0].1 == values(0, count), "nothing is before rank 0");
    let results = all(cluster, |engine, rank, world| {
        engine.ireduce_scatter_block(in_place(), values(rank, ranks * count), op::Sum, world)
    });
    let sums = sum(0..size, ranks * count);
    assert!(results.iter().flat_map(|of| &of.1[..count]).eq(&sums), "reduce_scatter_block of {count} to {size}");
}

#[test]
fn every_rank_may_have_another_length() {
    for size in SIZES {
        for mut cluster in clusters(size) {
            lengths(&mut cluster, size);
            cluster.tick_times(200);
            cluster.assert_at_rest();
        }
    }
}

fn lengths(cluster: &mut Cluster, size: u32) {
    let (root, counts) = (size / 3, (0..size).map(count).collect::<Vec<_>>());
    let places = consecutive(&counts);
    let joined: Vec<i64> = (0..size).flat_map(|rank| values(rank, count(rank))).collect();
    // The places are in reverse order, with a gap of one element before each.
    let mut scattered = vec![0..0; size as usize];
    let mut end = 0;
    for rank in (0..size as usize).rev() {
        scattered[rank] = end + 1..end + 1 + counts[rank];
        end += 1 + counts[rank];
    }
    let mut with_gaps = vec![-1i64; end];
    for (from, to) in places.iter().zip(&scattered) {
        with_gaps[to.clone()].copy_from_slice(&joined[from.clone()]);
    }
    let results = all(cluster, |engine, rank, world| {
        let room = if rank == root { vec![-1i64; end] } else { vec![] };
        let places = if rank == root { &scattered[..] } else { &[] };
        engine.igatherv(values(rank, count(rank)), room, places, Rank(root), world)
    });
    assert!(results[root as usize].1 == with_gaps, "gatherv to {size}");
    let results = all(cluster, |engine, rank, world| {
        let send = if rank == root { with_gaps.clone() } else { vec![] };
        let places = if rank == root { &scattered[..] } else { &[] };
        engine.iscatterv(send, vec![0i64; count(rank)], places, Rank(root), world)
    });
    assert!((0..).zip(&results).all(|(rank, of)| of.1 == values(rank, count(rank))), "scatterv to {size}");
    let results = all(cluster, |engine, rank, world| {
        engine.iallgatherv(values(rank, count(rank)), vec![-1i64; joined.len()], &places, world)
    });
    assert!(results.iter().all(|of| of.1 == joined), "allgatherv to {size}");
    let results = all(cluster, |engine, rank, world| {
        engine.iallgatherv(values(rank, count(rank)), vec![-1i64; end], &scattered, world)
    });
    assert!(results.iter().all(|of| of.1 == with_gaps), "allgatherv to {size}, scattered");
    // From each rank to each other rank goes a different number of elements.
    let between = |from: u32, to: u32| count(from * 5 + to * 3);
    let numbers = |from: u32, to: u32| values(from * 100 + to, between(from, to));
    let results = all(cluster, |engine, rank, world| {
        let from = consecutive(&(0..size).map(|to| between(rank, to)).collect::<Vec<_>>());
        let to = consecutive(&(0..size).map(|from| between(from, rank)).collect::<Vec<_>>());
        let send: Vec<i64> = (0..size).flat_map(|to| numbers(rank, to)).collect();
        engine.ialltoallv(send, &from, vec![0i64; to.last().unwrap().end], &to, world)
    });
    for (rank, of) in (0..).zip(&results) {
        let expected: Vec<i64> = (0..size).flat_map(|from| numbers(from, rank)).collect();
        assert!(of.1 == expected, "alltoallv to {size}");
    }
    let results = all(cluster, |engine, rank, world| {
        let send: Vec<Vec<i64>> = (0..size).map(|to| numbers(rank, to)).collect();
        let receive: Vec<Vec<i64>> = (0..size).map(|from| vec![0; between(from, rank)]).collect();
        engine.ialltoallw(List(send), List(receive), world)
    });
    for (rank, of) in (0..).zip(&results) {
        assert!((0..).zip(&of.1.0).all(|(from, part)| *part == numbers(from, rank)), "alltoallw to {size}");
    }
    let sums = sum(0..size, joined.len());
    let results = all(cluster, |engine, rank, world| {
        engine.ireduce_scatter(values(rank, joined.len()), vec![0i64; count(rank)], &counts, op::Sum, world)
    });
    assert!(results.iter().flat_map(|of| &of.1).eq(&sums), "reduce_scatter to {size}");
}

#[test]
fn wrong_places_are_errors() {
    let mut cluster = Cluster::loopback(2);
    let engine = &mut cluster.engines[0];
    let world = engine.comm_world();
    let error =
        |rejected: Result<_, tickwire::Rejected<(Vec<u8>, Vec<u8>)>>| rejected.map(drop).unwrap_err().error.to_string();
    let to_self = Rank(0);
    let said = error(engine.igatherv(vec![1], vec![0; 3], &[0..1, 2..4], to_self, world).map(drop));
    assert_eq!(said, "the receive buffer has 3 elements, and 4 are needed");
    let said = error(engine.igatherv(vec![1], vec![0; 3], &consecutive(&[1]), to_self, world).map(drop));
    assert_eq!(said, "the list of places has 1 elements, and 2 are needed");
    let said = error(engine.igatherv(vec![1], vec![0; 3], &[0..2, 2..3], to_self, world).map(drop));
    assert_eq!(said, "the send buffer has 1 elements, and 2 are needed");
    let said = error(engine.iallgatherv(vec![1, 1], vec![0; 3], &[0..2, 1..3], world).map(drop));
    assert!(said.contains("twice") || said.contains("overlap"), "{said}");
    let said = error(engine.ialltoallv(vec![1], &[0..1, 0..0], vec![0; 2], &[0..2, 0..0], world).map(drop));
    assert_eq!(said, "the own part has 2 elements, and 1 are needed");
    let rejected = engine.igather(in_place(), vec![0u8; 2], Rank(1), world).unwrap_err();
    assert_eq!(rejected.error, PostError::InPlace { who: "the root" });
    let error = reduce_local(&[1u8], &mut [1, 2], op::Sum).unwrap_err();
    assert_eq!(error, PostError::Elements { what: "right buffer", given: 2, needed: 1 });
    let results = all(&mut cluster, |engine, rank, world| engine.iallreduce(vec![rank], vec![0], op::Sum, world));
    assert!(results.iter().all(|of| of.1 == [1]), "no operation was counted");
    cluster.assert_at_rest();
}

/// If two ranks call with different lengths, both get an error.
#[test]
fn lengths_that_differ_are_told() {
    let mut cluster = Cluster::loopback(2);
    let results: Vec<_> = (0..2u32)
        .map(|rank| {
            let engine = &mut cluster.engines[rank as usize];
            let world = engine.comm_world();
            let places = if rank == 0 { [0..2, 2..5] } else { [0..2, 2..4] };
            let own = places[rank as usize].len();
            engine.iallgatherv(vec![rank; own], vec![9; places[1].end], &places, world).unwrap()
        })
        .collect();
    let mut results = results.into_iter();
    let error = cluster.finish(crate::kit::BOUND, 0, results.next().unwrap()).unwrap_err().error;
    assert!(matches!(error, RequestError::Short { .. }), "{error}");
    let buffers = cluster.finish(crate::kit::BOUND, 1, results.next().unwrap()).unwrap().0;
    assert_eq!(buffers.1, [0, 0, 1, 1], "its own view was right");
}

/// In a scope, all forms take borrowed buffers. An operation that the application does not wait for is completed at the
/// end of the scope.
#[test]
fn buffers_may_be_borrowed() {
    in_threads(3, |engine, rank, world| {
        let (send, mut sums, mut all) = ([rank; 4], [0; 4], vec![0; 3]);
        engine.scope(|scope| {
            let sum = scope.iallreduce(&send, &mut sums, op::Sum, world).unwrap();
            let again = scope.allgather_init(&send[..1], &mut all[..], world).unwrap();
            for _ in 0..3 {
                scope.start(&again).unwrap();
                scope.wait(&again).unwrap();
            }
            scope.barrier(world).unwrap();
            scope.wait_take(sum).unwrap();
        });
        assert_eq!((sums, &all[..]), ([3; 4], &[0, 1, 2][..]));
        engine.barrier(world).unwrap();
        let mut forgotten = [7u32; 1000];
        engine.scope(|scope| drop(scope.ibcast(&mut forgotten[..], Rank(0), world).unwrap()));
    });
}

/// Two ranks exchange data in place. Both directions have the same length, and each pair has a different length.
#[test]
fn exchanges_with_a_length_for_each_pair_may_be_in_place() {
    let length = |one: u32, other: u32| ((one * other + one + other) % 4 * 60) as usize;
    let part = |from: u32, to: u32| values(from * 20 + to, length(from, to));
    for size in [1, 2, 3, 5] {
        for mut cluster in clusters(size) {
            let sent = |rank: u32| -> Vec<Vec<i64>> { (0..size).map(|to| part(rank, to)).collect() };
            let expected = |rank: u32| -> Vec<Vec<i64>> { (0..size).map(|from| part(from, rank)).collect() };
            let results = all(&mut cluster, |engine, rank, world| {
                let places = consecutive(&(0..size).map(|other| length(rank, other)).collect::<Vec<_>>());
                engine.ialltoallv(in_place(), &[], sent(rank).concat(), &places, world)
            });
            assert!((0..).zip(&results).all(|(rank, of)| of.1 == expected(rank).concat()), "{size} ranks");
            let results = all(&mut cluster, |engine, rank, world| {
                engine.ialltoallw(List(vec![in_place::<i64>(); size as usize]), List(sent(rank)), world)
            });
            assert!((0..).zip(&results).all(|(rank, of)| of.1.0 == expected(rank)), "{size} ranks, a buffer each");
            cluster.tick_times(200);
            cluster.assert_at_rest();
        }
    }
}
