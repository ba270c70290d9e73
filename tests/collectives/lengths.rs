//! Members call an operation with such different lengths that they build different graphs. Each member that would wait
//! forever must get an error.

mod kinds;
mod offers;

use crate::kit::{all, clusters, dup, in_threads};
use std::fmt::Debug;
use std::time::{Duration, Instant};
use tickwire::internals::components::VcState;
use tickwire::testing::{Cluster, STEP_NS};
use tickwire::{Comm, Engine, Pieces, Rank, Rejected, Request, RequestError, Tag, op};

/// Longest time of an operation on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Posts an operation on all engines, waits until it has ended on all, and returns the results. Then checks that all engines still
/// work.
fn ends<B: Pieces>(
    cluster: &mut Cluster,
    words: &str,
    mut post: impl FnMut(&mut Engine, u32, Comm) -> Result<Request<B>, Rejected<B>>,
) -> Vec<Option<RequestError>> {
    let mut requests: Vec<_> = Vec::new();
    for (rank, engine) in (0..).zip(&mut cluster.engines) {
        let world = engine.comm_world();
        requests.push(post(engine, rank, world).unwrap());
    }
    let start = Instant::now();
    let is_done =
        |(engine, request): (&mut Engine, &Request<B>)| engine.test(request).map_or(true, |test| test.is_done());
    while !cluster.engines.iter_mut().zip(&requests).all(is_done) {
        assert!(start.elapsed() < PATIENCE, "{words}: not done\n{}", cluster.report());
        cluster.tick_all();
    }
    let ended: Vec<_> = cluster
        .engines
        .iter_mut()
        .zip(requests)
        .map(|(engine, request)| engine.take(request).err().map(|failed| failed.error))
        .collect();
    for error in ended.iter().flatten() {
        use RequestError::{Abandoned, Short, Truncated};
        assert!(matches!(error, Short { .. } | Truncated { .. } | Abandoned(_)), "{words}: {error}");
    }
    assert!(ended.iter().any(Option::is_some), "{words}: somebody is told");
    // Later operations are not affected.
    let size = cluster.engines.len() as u32;
    let sums = all(cluster, |engine, rank, world| engine.iallreduce(vec![rank], vec![0], op::Sum, world));
    assert!(sums.iter().all(|of| of.1 == [size * (size - 1) / 2]), "{words}");
    let shared = all(cluster, |engine, rank, world| engine.ibcast(vec![rank; 100_000], Rank(1), world));
    assert!(shared.iter().all(|of| *of == [1; 100_000]), "{words}");
    let (first, second) = cluster.engines.split_at_mut(1);
    let (first, second) = (&mut first[0], &mut second[0]);
    let world = first.comm_world();
    let send = first.isend(vec![7u8; 10], Rank(1), Tag(1), world).unwrap();
    let receive = second.irecv(vec![0u8; 10], Rank(0), Tag(1), world).unwrap();
    assert_eq!(cluster.finish(crate::kit::BOUND, 1, receive).unwrap().0, [7; 10]);
    cluster.finish(crate::kit::BOUND, 0, send).unwrap();
    cluster.tick_times(LONG);
    cluster.assert_at_rest();
    ended
}

/// Ticks in which waiting members send four inquiries: 400 ms of virtual time.
const LONG: u32 = (400_000_000 / STEP_NS) as u32;

/// All engines but one post operations. That one posts them much later. All operations succeed.
fn waits<B: Pieces + Debug>(
    cluster: &mut Cluster,
    late: usize,
    post: impl Fn(&mut Engine, u32, Comm) -> Result<Request<B>, Rejected<B>>,
) {
    let mut requests: Vec<Vec<_>> = cluster.engines.iter().map(|_| Vec::new()).collect();
    let mut posts = |cluster: &mut Cluster, rank: usize| {
        let engine = &mut cluster.engines[rank];
        let world = engine.comm_world();
        for _ in 0..3 {
            requests[rank].push(post(engine, rank as u32, world).unwrap());
        }
    };
    (0..cluster.engines.len()).filter(|&rank| rank != late).for_each(|rank| posts(cluster, rank));
    cluster.tick_times(LONG);
    posts(cluster, late);
    for (rank, requests) in requests.into_iter().enumerate() {
        for request in requests {
            cluster.finish(crate::kit::BOUND, rank, request).unwrap();
        }
    }
    cluster.assert_at_rest();
}

#[test]
fn late_members_are_waited_for() {
    for late in [0, 2] {
        for mut cluster in clusters(3) {
            for count in [1, 9000] {
                waits(&mut cluster, late, |engine, _, world| engine.ibcast(vec![1u64; count], Rank(0), world));
                waits(&mut cluster, late, |engine, rank, world| {
                    engine.iallreduce(vec![rank; count], vec![0; count], op::Sum, world)
                });
                waits(&mut cluster, late, |engine, rank, world| {
                    engine.igather(vec![rank; count], vec![0; if rank == 1 { 3 * count } else { 0 }], Rank(1), world)
                });
            }
        }
    }
}

/// One member starts a persistent operation long after the others. The others must wait for it, also for a start that
/// it has not begun yet.
#[test]
fn late_starts_are_waited_for() {
    for late in 0..3 {
        for mut cluster in clusters(3) {
            let mut made: Vec<_> = (0..3).map(|_| None).collect();
            for start in 0..3 {
                for rank in (0..3).filter(|&rank| rank != late).chain([late]) {
                    if rank == late {
                        cluster.tick_times(LONG);
                    }
                    let engine = &mut cluster.engines[rank];
                    let world = engine.comm_world();
                    let sums = made[rank].get_or_insert_with(|| {
                        engine.allreduce_init(vec![1u32; 9000], vec![0; 9000], op::Sum, world).unwrap()
                    });
                    engine.start(sums).unwrap();
                }
                for (rank, made) in made.iter().enumerate() {
                    let sums = made.as_ref().unwrap();
                    cluster.tick_until(crate::kit::BOUND, &format!("start {start} of {rank}"), |cluster| {
                        cluster.engines[rank].test(sums).unwrap().is_done()
                    });
                }
            }
        }
    }
}

/// A root waits for more members than it may ask at a time. It asks them in turn, and must wait for all of them.
#[test]
fn many_members_are_asked_in_turn() {
    let (size, count) = (48, 1000);
    let mut cluster = Cluster::loopback(size);
    let mut requests = Vec::new();
    for rank in 0..size as usize {
        if rank == 1 {
            cluster.tick_times(LONG);
        }
        let engine = &mut cluster.engines[rank];
        let (world, room) = (engine.comm_world(), if rank == 0 { size as usize * count } else { 0 });
        requests.push(engine.igather(vec![rank as u64; count], vec![0; room], Rank(0), world).unwrap());
    }
    for (rank, request) in requests.into_iter().enumerate() {
        let all = cluster.finish(crate::kit::BOUND, rank, request).unwrap().0.1;
        assert!(rank != 0 || all.chunks(count).zip(0..).all(|(block, of)| block.iter().all(|&value| value == of)));
    }
    // Here nobody sends what the root waits for. Each member that it asks tells it so.
    let mut waiting = Vec::new();
    for (rank, engine) in (0u32..).zip(&mut cluster.engines) {
        let (world, room) = (engine.comm_world(), if rank == 0 { size as usize * count } else { 0 });
        let own = if rank == 0 { count } else { 1 };
        waiting.push(engine.igather(vec![1u64; own], vec![0; room], Rank(0), world).unwrap());
    }
    for (rank, request) in waiting.into_iter().enumerate() {
        let ended = cluster.finish(crate::kit::BOUND, rank, request);
        assert!(rank != 0 || matches!(ended.unwrap_err().error, RequestError::Abandoned(_)));
    }
    cluster.tick_times(LONG);
    cluster.assert_at_rest();
}

/// Operations on a communicator that was freed meanwhile must end as usual, even if a member calls them late.
#[test]
fn what_is_pending_where_a_communicator_is_freed_is_waited_for() {
    for mut cluster in clusters(3) {
        let mut sums = Vec::new();
        for (rank, comm) in dup(&mut cluster).into_iter().enumerate() {
            if rank == 2 {
                cluster.tick_times(LONG);
            }
            let engine = &mut cluster.engines[rank];
            sums.push(engine.iallreduce(vec![1u32; 9000], vec![0; 9000], op::Sum, comm).unwrap());
            engine.comm_free(comm).unwrap();
        }
        for (rank, sum) in sums.into_iter().enumerate() {
            assert_eq!(cluster.finish(crate::kit::BOUND, rank, sum).unwrap().0.1, [3; 9000]);
        }
    }
}

/// The member that sends has made a gather of other messages than the root waits for. A receive of its own keeps the communicator, which it
/// has freed, half alive: the root must be told all the same.
#[test]
fn a_root_is_told_by_a_member_whose_freed_communicator_something_still_needs() {
    let mut cluster = Cluster::loopback(2);
    let comms = dup(&mut cluster);
    let mut gathers: Vec<_> = (0..2)
        .map(|rank| {
            let (engine, comm) = (&mut cluster.engines[rank], comms[rank]);
            // Short blocks come by a tree, long ones directly.
            let block = [1, 512][rank];
            let gather = engine.gather_init(vec![1u64; block], vec![0u64; [2, 0][rank]], Rank(0), comm).unwrap();
            engine.start(&gather).unwrap();
            gather
        })
        .collect();
    cluster.tick_times(3);
    let last = gathers.pop().unwrap();
    assert!(cluster.engines[1].test(&last).unwrap().is_done(), "it only sends");
    let waits = cluster.engines[1].irecv(vec![0u8; 1], Rank(0), Tag(1), comms[1]).unwrap();
    cluster.engines[1].free(last).unwrap();
    cluster.engines[1].comm_free(comms[1]).unwrap();
    let mut told = Ok(());
    cluster.tick_until(crate::kit::BOUND, "the root is told", |cluster| match cluster.engines[0].test(&gathers[0]) {
        Ok(test) => test.is_done(),
        Err(error) => {
            told = Err(error);
            true
        }
    });
    assert_eq!(told, Err(RequestError::Abandoned(Rank(1))));
    let send = cluster.engines[0].isend(vec![5u8; 1], Rank(1), Tag(1), comms[0]).unwrap();
    assert_eq!(cluster.finish(crate::kit::BOUND, 1, waits).unwrap().0, [5]);
    cluster.finish(crate::kit::BOUND, 0, send).unwrap();
}

/// A member does not tick while another member asks it for a message. Then it sends the message, is done, and frees the
/// communicator, and only then reads the question. It answers that nothing more will come. The answer must do no harm.
#[test]
fn a_member_that_has_sent_its_part_and_freed_the_communicator_does_no_harm() {
    for mut cluster in [Cluster::loopback(3), Cluster::shm(3)] {
        let comms = dup(&mut cluster);
        let mut parts: Vec<Option<Request<_>>> = vec![None, None, None];
        let mut post = |cluster: &mut Cluster, rank: usize| {
            let room = vec![0u32; if rank == 0 { 3 } else { 0 }];
            let part = cluster.engines[rank].igather(vec![rank as u32], room, Rank(0), comms[rank]).unwrap();
            parts[rank] = Some(part);
        };
        post(&mut cluster, 0);
        for _ in 0..LONG {
            cluster.tick(0);
            cluster.tick(2);
            cluster.now_ns += STEP_NS;
        }
        post(&mut cluster, 1);
        cluster.engines[1].comm_free(comms[1]).unwrap();
        cluster.tick_times(LONG);
        for rank in 0..3 {
            assert!(cluster.vc_state(0, rank).is_none_or(|state| state == VcState::Connected), "to rank {rank}");
        }
        post(&mut cluster, 2);
        for (rank, part) in parts.into_iter().enumerate() {
            let all = cluster.finish(crate::kit::BOUND, rank, part.unwrap()).unwrap().0.1;
            assert!(rank != 0 || all == [0, 1, 2]);
        }
    }
}

/// Two operations wait for one member, which has not called one of them yet. It must be asked about both in turn.
#[test]
fn operations_that_wait_for_one_member_are_asked_after_in_turn() {
    let mut cluster = Cluster::loopback(2);
    let comms = dup(&mut cluster);
    // The receiver of the broadcast expects more pieces than the root has, and waits for the first one.
    let lengths = [64 << 10, 128 << 10];
    let mut shared = Vec::new();
    // An operation on another communicator is in front of the broadcast: a barrier that the other member calls only
    // in the end.
    let barrier = cluster.engines[1].ibarrier(comms[1]).unwrap();
    for (engine, length) in cluster.engines.iter_mut().zip(lengths) {
        let world = engine.comm_world();
        shared.push(engine.ibcast(vec![1u8; length], Rank(0), world).unwrap());
    }
    let ended = cluster.finish(crate::kit::BOUND, 1, shared.pop().unwrap());
    assert!(matches!(ended.unwrap_err().error, RequestError::Abandoned(_)));
    let last = cluster.engines[0].ibarrier(comms[0]).unwrap();
    cluster.finish(crate::kit::BOUND, 0, last).unwrap();
    cluster.finish(crate::kit::BOUND, 1, barrier).unwrap();
    // No member takes the message that the root has offered.
    let offered = cluster.finish(crate::kit::BOUND, 0, shared.pop().unwrap());
    assert!(matches!(offered.unwrap_err().error, RequestError::Abandoned(_)));
}

/// A receiver that gets no message is told so, also if it waits in a blocking call.
#[test]
fn ranks_that_wait_are_told() {
    in_threads(3, |engine, rank, world| {
        let bytes = if rank == 0 { 192 << 10 } else { 128 << 10 };
        let shared = engine.ibcast(vec![1u8; bytes], Rank(0), world).unwrap();
        let ended = engine.wait_take(shared);
        assert!(rank == 0 || matches!(&ended.unwrap_err().error, RequestError::Abandoned(_)));
        let sum = engine.iallreduce(vec![rank], vec![0], op::Sum, world).unwrap();
        assert_eq!(engine.wait_take(sum).unwrap().0.1, [3]);
    });
}

#[test]
fn broadcasts_of_different_lengths_are_errors() {
    for (size, root, others) in [
        (2, 192 << 10, 128 << 10),
        (4, 192 << 10, 128 << 10),
        (4, 100, 200 << 10),
        (3, 200 << 10, 100),
        (9, 80 << 10, 100),
    ] {
        for mut cluster in clusters(size) {
            let words = format!("{root} of {others} bytes to {size}");
            let ended = ends(&mut cluster, &words, |engine, rank, world| {
                engine.ibcast(vec![1u8; if rank == 0 { root } else { others }], Rank(0), world)
            });
            assert!(ended[1].is_some(), "{words}: it has not got what it has asked for");
        }
    }
}

#[test]
fn gathers_and_scatters_of_different_lengths_are_errors() {
    for (usual, of_last) in [(1 << 10, 4 << 10), (4 << 10, 1 << 10)] {
        for mut cluster in clusters(4) {
            let own = |rank: u32| if rank == 3 { of_last } else { usual };
            ends(&mut cluster, "gather", |engine, rank, world| {
                let room = vec![0u8; if rank == 0 { 4 * usual } else { 0 }];
                engine.igather(vec![rank as u8; own(rank)], room, Rank(0), world)
            });
            ends(&mut cluster, "scatter", |engine, rank, world| {
                let all = vec![1u8; if rank == 0 { 4 * usual } else { 0 }];
                engine.iscatter(all, vec![0; own(rank)], Rank(0), world)
            });
        }
    }
}

#[test]
fn reductions_of_different_lengths_are_errors() {
    for (of_first, others) in [(100, 4_000), (4_000, 100)] {
        for mut cluster in clusters(4) {
            let count = |rank: u32| if rank == 0 { of_first } else { others };
            ends(&mut cluster, "reduce", |engine, rank, world| {
                let room = vec![0u64; if rank == 0 { of_first } else { 0 }];
                engine.ireduce(vec![1u64; count(rank)], room, op::Sum, Rank(0), world)
            });
            ends(&mut cluster, "allreduce", |engine, rank, world| {
                engine.iallreduce(vec![1u64; count(rank)], vec![0; count(rank)], op::Sum, world)
            });
        }
    }
}

/// A persistent operation that has failed cannot be started again.
#[test]
fn persistent_operations_of_different_lengths_are_errors() {
    for mut cluster in clusters(3) {
        let mut made = Vec::new();
        for (rank, engine) in (0u32..).zip(&mut cluster.engines) {
            let world = engine.comm_world();
            let bytes = if rank == 0 { 192 << 10 } else { 128 << 10 };
            let bcast = engine.bcast_init(vec![1u8; bytes], Rank(0), world).unwrap();
            engine.start(&bcast).unwrap();
            made.push(bcast);
        }
        let start = Instant::now();
        let mut ended = vec![None; made.len()];
        while ended.contains(&None) {
            assert!(start.elapsed() < PATIENCE, "not done\n{}", cluster.report());
            for ((engine, bcast), ended) in cluster.engines.iter_mut().zip(&made).zip(&mut ended) {
                match engine.test(bcast) {
                    Ok(test) if !test.is_done() => {}
                    test => *ended = Some(test.is_ok()),
                }
            }
            cluster.tick_all();
        }
        // The root only sends, so its operation may also end well.
        assert_eq!(ended[1..], [Some(false); 2]);
        for ((engine, bcast), ended) in cluster.engines.iter_mut().zip(&made).zip(ended) {
            if ended == Some(false) {
                assert!(engine.start(bcast).is_err(), "it has failed");
            }
        }
        let sums = all(&mut cluster, |engine, rank, world| engine.iallreduce(vec![rank], vec![0], op::Sum, world));
        assert!(sums.iter().all(|of| of.1 == [3]));
    }
}
