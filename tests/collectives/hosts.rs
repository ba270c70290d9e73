//! Ranks on several hosts: operations go by the leaders of the hosts.

use crate::kit::{all, hosts, on_hosts, on_threads_on, take_all, values};
use std::sync::Arc;
use std::time::Duration;
use tickwire::internals::components::Span;
use tickwire::internals::systems::collectives::draft::{Act, Draft};
use tickwire::internals::systems::collectives::hosts::Hosts;
use tickwire::internals::systems::collectives::{exchange, reduce, spread};
use tickwire::testing::{Board, Cluster, SimConfig};
use tickwire::{Comm, Engine, Limits, Pieces, Rank, Rejected, Request, in_place, op};

/// Bytes of an element.
const ELEMENT: usize = 8;

/// Addresses that are only counted with.
fn room(elements: usize) -> Span {
    // SAFETY: nobody reads or writes these bytes.
    #[expect(unsafe_code, reason = "addresses that are only counted with")]
    unsafe {
        Span::new(std::ptr::dangling_mut(), elements * ELEMENT)
    }
}

/// Runs an operation twice: the first time engines connect, the second time each sends the messages of its draft for these hosts.
fn compare<B: Pieces>(
    cluster: &mut Cluster,
    name: &str,
    draw: impl Fn(&mut Draft),
    mut post: impl FnMut(&mut Engine, u32, Comm) -> Result<Request<B>, Rejected<B>>,
) -> Vec<B> {
    let size = cluster.engines.len() as u32;
    let known = Arc::new(Hosts::of(hosts(size).into_iter().map(Some)).unwrap());
    let sends = |rank| {
        let mut draft = Draft { hosts: Some(known.clone()), only_counted: true, ..Draft::new(rank, size) };
        draw(&mut draft);
        draft.acts.iter().filter(|act| matches!(act, Act::Send { .. })).count() as u32
    };
    let expected: Vec<u32> = (0..size).map(sends).collect();
    all(cluster, &mut post);
    let start = |(rank, engine): (u32, &mut Engine)| {
        let world = engine.comm_world();
        post(engine, rank, world).unwrap()
    };
    let requests: Vec<_> = (0..).zip(&mut cluster.engines).map(start).collect();
    let mut sent = vec![0; size as usize];
    for _ in 0..1000 {
        for (rank, sent) in sent.iter_mut().enumerate() {
            *sent += cluster.tick(rank).sent;
        }
        cluster.now_ns += 1000;
    }
    assert_eq!(sent, expected, "{name} of {size}");
    take_all(cluster, requests)
}

/// Engines send what was drawn for their hosts, and nothing else.
#[test]
fn clusters_on_hosts_send_what_leaders_need() {
    for size in [3, 4, 6, 12, 32] {
        let mut cluster = on_hosts(size, &SimConfig::calm(1));
        let ranks = size as usize;
        compare(&mut cluster, "barrier", spread::barrier, |engine, _, world| engine.ibarrier(world));
        let results = compare(
            &mut cluster,
            "bcast",
            |draft| spread::broadcast(draft, room(3), 1),
            |engine, rank, world| engine.ibcast(values(if rank == 1 { 9 } else { 0 }, 3), Rank(1), world),
        );
        assert!(results.iter().all(|of| *of == values(9, 3)));
        let results = compare(
            &mut cluster,
            "allgather",
            |draft| {
                let (all, own) = (room(draft.size as usize), draft.copy(Span::EMPTY, Span::EMPTY, &[]));
                let place = |first, end| all.part(first as usize * ELEMENT, (end - first) as usize * ELEMENT);
                exchange::allgather(draft, &place, own);
            },
            |engine, rank, world| engine.iallgather(values(rank, 1), vec![0i64; ranks], world),
        );
        let joined: Vec<i64> = (0..size).flat_map(|rank| values(rank, 1)).collect();
        assert!(results.iter().all(|of| of.1 == joined));
        // A difference depends on the order of its operands, and on where their brackets are.
        let results = compare(
            &mut cluster,
            "allreduce",
            |draft| reduce::allreduce(draft, room(2), room(2), ELEMENT),
            |engine, rank, world| engine.iallreduce(halves(rank), vec![0.0; 2], op::Sum, world),
        );
        let mut one = Cluster::loopback(size);
        let same = all(&mut one, |engine, rank, world| engine.iallreduce(halves(rank), vec![0.0; 2], op::Sum, world));
        let bits = |of: &[f64]| of.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert!(results.iter().chain(&same).all(|of| bits(&of.1) == bits(&same[0].1)), "the same bits on any hosts");
    }
}

/// Elements that do not add associatively.
fn halves(rank: u32) -> Vec<f64> {
    (0..2).map(|at| (f64::from(rank) * 1e10 + 0.1 * f64::from(at)).sin() * 10f64.powi(rank as i32 % 17)).collect()
}

/// Members of a part of the world are on hosts, too; and persistent operations go by leaders at each start.
#[test]
fn parts_of_the_world_know_their_hosts() {
    let board = |size| Board::on_hosts(size, (0..size).map(|rank| rank / 3).collect::<Vec<_>>());
    on_threads_on(&board(9), |rank, bootstrap| {
        let limits = Limits { boards: false, ..Limits::default() };
        let mut engine = Engine::builder().limits(limits).build(bootstrap).unwrap();
        let world = engine.comm_world();
        // Ranks 0, 2, 4, 6, 8 are on hosts 0, 0, 1, 2, 2. In reverse order their hosts are consecutive, too.
        let key = if rank < 5 { rank as i32 } else { -(rank as i32) };
        let part = engine.comm_split(world, Some(rank % 2), key).unwrap().unwrap();
        for (comm, members) in [(world, 0..9), (part, rank % 2..9)] {
            let step = if comm == world { 1 } else { 2 };
            let members: Vec<i64> = members.step_by(step).map(i64::from).collect();
            let (mut all, mut sum) = (vec![0i64; members.len()], [0]);
            let mut persistent = engine.allreduce_init(in_place(), vec![0i64], op::Sum, comm).unwrap();
            for round in 0..4 {
                engine.barrier(comm).unwrap();
                engine.allgather(&[i64::from(rank)], &mut all[..], comm).unwrap();
                all.sort_unstable();
                assert_eq!(all, members);
                engine.allreduce(&[i64::from(rank) + round], &mut sum, op::Sum, comm).unwrap();
                let expected = members.iter().sum::<i64>() + members.len() as i64 * round;
                assert_eq!(sum, [expected]);
                engine.buffer(&mut persistent).unwrap().1[0] = i64::from(rank) + round;
                engine.start(&persistent).unwrap();
                engine.wait(&persistent).unwrap();
                assert_eq!(engine.buffer(&mut persistent).unwrap().1[..], [expected]);
                let mut told = [if engine.comm_rank(comm).unwrap() == Rank(1) { 70 + round } else { 0 }];
                engine.bcast(&mut told, Rank(1), comm).unwrap();
                assert_eq!(told, [70 + round]);
            }
        }
        engine.finalize(Duration::from_secs(20)).unwrap();
    });
}
