//! Sums of floats have the same bits on all ranks, in all forms of the operations, and over all transports.

use crate::kit::{BOUND, SIZES, all, clusters, on_threads};
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::testing::Cluster;
use tickwire::transport::Hub;
use tickwire::{Comm, Engine, Persistent, Rank, Rejected, Test, in_place, op};
use tickwire_tests::sums::{sum_in_all_forms, sum_in_order, value};

/// Numbers of ranks: those of other tests, and larger ones, of which one is no power of two.
fn sizes() -> impl Iterator<Item = u32> {
    SIZES.into_iter().chain([16, 33, 64])
}

/// Lengths in elements: one frame, and many parts.
const COUNTS: [usize; 2] = [1, 4000];

#[track_caller]
fn same_bits(sums: &[f64], expected: f64, words: &str) {
    let differs = sums.iter().find(|sum| sum.to_bits() != expected.to_bits());
    assert!(differs.is_none(), "{words}: {differs:?} is not {expected:?}");
}

/// Without this, sums in the wrong order would not be noticed. Up to three ranks, the order is the one from the left.
#[test]
fn another_order_gives_another_sum() {
    for size in sizes().filter(|&size| size > 3) {
        let expected = sum_in_order(size).to_bits();
        let add = |left, right| left + right;
        assert!((0..size).map(value).fold(0.0, add).to_bits() != expected, "{size} ranks, from the left");
        assert!((0..size).rev().map(value).fold(0.0, add).to_bits() != expected, "{size} ranks, from the right");
    }
}

/// A sum that depends on the order of its operands has the same bits on all ranks, over all transports, in place or
/// not, short or long, and at each start.
#[test]
fn sums_of_floats_have_the_same_bits_everywhere() {
    for size in sizes() {
        let clusters = if size > 13 { vec![Cluster::loopback(size)] } else { clusters(size) };
        let expected = sum_in_order(size);
        for (number, mut cluster) in clusters.into_iter().enumerate() {
            for count in COUNTS {
                let words = |what: &str| format!("{what} of {count}, {size} ranks, cluster {number}");
                let results = all(&mut cluster, |engine, rank, world| {
                    engine.iallreduce(vec![value(rank); count], vec![0f64; count], op::Sum, world)
                });
                results.iter().for_each(|of| same_bits(&of.1, expected, &words("allreduce")));
                let results = all(&mut cluster, |engine, rank, world| {
                    engine.iallreduce(in_place(), vec![value(rank); count], op::Sum, world)
                });
                results.iter().for_each(|of| same_bits(&of.1, expected, &words("allreduce in place")));
                let results = all(&mut cluster, |engine, rank, world| {
                    engine.ireduce(vec![value(rank); count], vec![0f64; count], op::Sum, Rank(0), world)
                });
                same_bits(&results[0].1, expected, &words("reduce"));
                let sums = start_twice(&mut cluster, |engine, rank, world| {
                    engine.allreduce_init(vec![value(rank); count], vec![0f64; count], op::Sum, world)
                });
                sums.iter().for_each(|of| same_bits(of, expected, &words("persistent allreduce")));
                let sums = start_twice(&mut cluster, |engine, rank, world| {
                    engine.reduce_init(vec![value(rank); count], vec![0f64; count], op::Sum, Rank(0), world)
                });
                same_bits(&sums[0], expected, &words("persistent reduce"));
                same_bits(&sums[size as usize], expected, &words("persistent reduce, started again"));
            }
        }
    }
}

/// A persistent operation of sums.
type Sums = Persistent<(Vec<f64>, Vec<f64>)>;

/// Makes a persistent operation on all engines and starts it twice. Returns the results of all engines at the first
/// start, then those at the second one.
fn start_twice(
    cluster: &mut Cluster,
    make: impl Fn(&mut Engine, u32, Comm) -> Result<Sums, Rejected<(Vec<f64>, Vec<f64>)>>,
) -> Vec<Vec<f64>> {
    let make = |(rank, engine): (u32, &mut Engine)| {
        let world = engine.comm_world();
        make(engine, rank, world).unwrap()
    };
    let mut made: Vec<Sums> = (0..).zip(&mut cluster.engines).map(make).collect();
    let mut results = Vec::new();
    for _ in 0..2 {
        for (engine, sums) in cluster.engines.iter_mut().zip(&mut made) {
            engine.buffer(sums).unwrap().1.fill(0.0);
            engine.start(sums).unwrap();
        }
        cluster.tick_until(BOUND, "all sums", |cluster| {
            let mut each = cluster.engines.iter_mut().zip(&made);
            each.all(|(engine, sums)| engine.test(sums).unwrap() != Test::Pending)
        });
        let mut each = cluster.engines.iter_mut().zip(&mut made);
        results.extend(each.by_ref().map(|(engine, sums)| engine.buffer(sums).unwrap().1.clone()));
    }
    results
}

/// Operations that wait, that begin and that are persistent have the same bits, each rank in its own thread.
#[test]
fn all_forms_give_the_same_bits() {
    for size in sizes() {
        let hub = Hub::new(size, LOOPBACK_RING_BYTES);
        let expected = sum_in_order(size);
        let mut cluster = Cluster::loopback(size);
        // The order of prefix sums has no model. They are compared with those of engines that are ticked in turn.
        let scans =
            all(&mut cluster, |engine, rank, world| engine.iscan(vec![value(rank)], vec![0f64], op::Sum, world));
        let exscans =
            all(&mut cluster, |engine, rank, world| engine.iexscan(vec![value(rank)], vec![0f64], op::Sum, world));
        on_threads(size, |rank, bootstrap| {
            let mut engine = Engine::builder().include(["loopback"]).hub(hub.clone()).build(bootstrap).unwrap();
            let world = engine.comm_world();
            for count in COUNTS {
                for of in sum_in_all_forms(&mut engine, world, count) {
                    let expected = match of.name {
                        "scan" => scans[rank as usize].1[0],
                        "exscan" => exscans[rank as usize].1[0],
                        _ => expected,
                    };
                    let words = format!("{} that {}, {count} elements, rank {rank} of {size}", of.name, of.form);
                    same_bits(&of.sums, expected, &words);
                }
            }
            engine.finalize(std::time::Duration::from_secs(20)).unwrap();
        });
    }
}
