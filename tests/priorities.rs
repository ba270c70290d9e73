//! Urgent messages go first, although each transport is already carrying less urgent ones. But a message never
//! overtakes an earlier one of the same communicator.

use super::{Streams, cases, content, streams};
use proptest::prelude::*;
use std::sync::Mutex;
use tickwire::internals::components::Large;
use tickwire::testing::{Cluster, ROWS, rows};
use tickwire::{Comm, Engine, Rank, SendOptions, Source, Tag, TagFilter};
use tickwire_tests::agreements;

const BOUND: u32 = cases::BOUND;

/// A cluster in which proc 0 reaches each other proc over a separate transport.
fn star(procs: u32) -> Cluster {
    let made: Vec<Vec<Streams>> = (1..procs)
        .map(|other| {
            let mut all = streams(procs);
            for streams in &mut all {
                let ends = [(0, other), (other, 0)];
                let me = streams.me;
                for (to, line) in streams.lines.iter_mut().enumerate() {
                    if !ends.contains(&(me, to as u32)) {
                        *line = None;
                    }
                }
                streams.name = ["one", "two", "three"][other as usize - 1];
            }
            all
        })
        .collect();
    let made = Mutex::new(made);
    Cluster::build(procs, |rank| {
        let mut made = made.lock().unwrap();
        let mut builder = Engine::builder().exclude(["shm"]).initial_rows(ROWS);
        for all in made.iter_mut() {
            let index = all.iter().position(|streams| streams.me == rank).unwrap();
            builder = builder.transport(all.remove(index));
        }
        builder
    })
}

/// Makes a duplicate of the world.
fn dup(cluster: &mut Cluster) -> Comm {
    let world = cluster.engines[0].comm_world();
    agreements::dup(cluster, world)[0]
}

#[test]
fn an_urgent_message_overtakes_64_mib_of_others_over_two_transports() {
    overtake(star(3));
}

#[test]
fn an_urgent_message_overtakes_64_mib_of_others_in_rings() {
    overtake(Cluster::loopback(3));
}

fn overtake(mut cluster: Cluster) {
    const LOW: usize = 8 << 20;
    let (world, urgent) = (cluster.engines[0].comm_world(), dup(&mut cluster));
    let mut open = Vec::new();
    for other in 1..3usize {
        for _ in 0..4 {
            let receive = cluster.engines[other].irecv(vec![0u8; LOW], Rank(0), Tag(1), world).unwrap();
            let send = cluster.engines[0].isend(vec![1u8; LOW], Rank(other as u32), Tag(1), world).unwrap();
            open.push((send, receive));
        }
    }
    let arrived = |cluster: &mut Cluster| -> u64 {
        let low = |large: &Large| large.length == LOW as u64;
        let all = cluster.engines[1..].iter_mut().map(rows);
        all.map(|all| {
            all.cars.iter().zip(&*all.large).filter(|(_, large)| low(large)).map(|(car, _)| car.done).sum::<u64>()
        })
        .sum()
    };
    cluster.tick_until(BOUND, "the first pieces arrive", |cluster| arrived(cluster) > 100_000);
    let before = arrived(&mut cluster);
    let mut first = Vec::new();
    // One message is sent as a whole. The other is as long as many pieces.
    for (length, tag) in [(100, 2), (100_000, 3)] {
        for other in 1..3usize {
            let receive = cluster.engines[other].irecv(vec![0u8; length], Rank(0), Tag(tag), urgent).unwrap();
            let options = SendOptions::new().priority(200);
            let to = Rank(other as u32);
            let send = cluster.engines[0].isend_with(content(9, length), to, Tag(tag), urgent, options).unwrap();
            first.push((other, send, receive, length));
        }
    }
    for (other, send, receive, length) in first {
        assert!(cluster.finish(BOUND, other, receive).unwrap().0 == content(9, length));
        cluster.finish(BOUND, 0, send).unwrap();
    }
    let (after, all) = (arrived(&mut cluster), 8 * LOW as u64);
    assert!(after < all / 64, "{} of {all} bytes went before them", after - before);
    assert!(after > before, "and some went all the same");
}

/// The sends of one proc to another: communicator, length in bytes, priority, and ticks after the send.
fn sends() -> impl Strategy<Value = Vec<(usize, usize, u8, u32)>> {
    let length = prop_oneof![3 => 0usize..300, 1 => 4_000usize..8_200, 1 => 20_000usize..90_000];
    let priority = prop_oneof![Just(0u8), Just(1), Just(128), Just(255)];
    let ticks = prop_oneof![3 => Just(0u32), 1 => 1u32..4];
    proptest::collection::vec((0usize..3, length, priority, ticks), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn envelopes_of_one_context_never_reorder(sends in sends(), loopback in any::<bool>()) {
        let mut cluster = if loopback { Cluster::loopback(2) } else { super::cluster(2) };
        let comms = [cluster.engines[0].comm_world(), dup(&mut cluster), dup(&mut cluster)];
        let mut open = Vec::new();
        for (number, &(comm, length, priority, ticks)) in (0u32..).zip(&sends) {
            let (buffer, options) = (content(number.into(), length), SendOptions::new().priority(priority));
            open.push(cluster.engines[0].isend_with(buffer, Rank(1), Tag(number), comms[comm], options).unwrap());
            cluster.tick_times(ticks);
        }
        for (index, &comm) in comms.iter().enumerate() {
            for (number, &(_, length, ..)) in (0u32..).zip(&sends).filter(|(_, send)| send.0 == index) {
                let receive = cluster.engines[1].irecv(vec![0u8; length], Source::Any, TagFilter::Any, comm).unwrap();
                let (buffer, status) = cluster.finish(BOUND, 1, receive).unwrap();
                prop_assert_eq!(status.tag, Tag(number));
                prop_assert!(buffer == content(number.into(), length));
            }
        }
        for send in open {
            cluster.finish(BOUND, 0, send).unwrap();
        }
        cluster.assert_at_rest();
    }
}

#[test]
fn a_communicator_has_a_priority_for_messages_that_have_none() {
    let mut cluster = star(2);
    let (world, urgent) = (cluster.engines[0].comm_world(), dup(&mut cluster));
    cluster.engines[0].comm_set_priority(urgent, 9).unwrap();
    let long = |engine: &mut Engine, comm| engine.isend(vec![1u8; 100_000], Rank(1), Tag(1), comm).unwrap();
    let sends = [world, urgent].map(|comm| long(&mut cluster.engines[0], comm));
    let mut persistent = cluster.engines[0].send_init(vec![1u8; 100_000], Rank(1), Tag(1), urgent).unwrap();
    cluster.engines[0].start(&persistent).unwrap();
    let priorities =
        |cluster: &mut Cluster, ids: [u32; 3]| ids.map(|row| rows(&mut cluster.engines[0]).cars[row as usize].priority);
    let ids = [sends[0].id().row, sends[1].id().row, persistent.id().row];
    assert_eq!(priorities(&mut cluster, ids), [0, 9, 9]);
    for comm in [world, urgent, urgent] {
        let receive = cluster.engines[1].irecv(vec![0u8; 100_000], Rank(0), Tag(1), comm).unwrap();
        cluster.finish(BOUND, 1, receive).unwrap();
    }
    cluster.tick_until(BOUND, "it is sent", |cluster| cluster.engines[0].test(&persistent).unwrap().is_done());
    persistent = persistent.with_priority(77);
    cluster.engines[0].start(&persistent).unwrap();
    assert_eq!(priorities(&mut cluster, ids)[2], 77);
    let operation = cluster.engines[0].bcast_init(vec![1u8; 100_000], Rank(0), urgent).unwrap();
    cluster.engines[0].comm_set_priority(urgent, 5).unwrap();
    cluster.engines[0].start(&operation).unwrap();
    let all = rows(&mut cluster.engines[0]);
    let graph = all.progress.graphs.list.iter().flatten().find(|graph| graph.persistent).unwrap();
    assert!(graph.nodes.iter().all(|&row| all.cars[row as usize].priority == 5), "that of the start");
    cluster.engines[0].comm_set_priority(urgent, 9).unwrap();
    let again = agreements::dup(&mut cluster, urgent)[0];
    let send = long(&mut cluster.engines[0], again);
    assert_eq!(rows(&mut cluster.engines[0]).cars[send.id().row as usize].priority, 9, "duplicates keep it");
}
