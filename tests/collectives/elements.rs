//! Elements that are no numbers of Rust: truth values, exact sums, and elements that a datatype describes.

use crate::kit::{all, clusters, in_threads};
use tickwire::testing::Cluster;
use tickwire::{Bool, Comm, Datatype, Engine, ExactSum, Packed, Rank, in_place, op};

/// The truth values of a rank.
fn flags(rank: u32) -> Vec<bool> {
    (0..70).map(|at| (at * 7 + rank) % 5 < 2 + at % 4).collect()
}

#[test]
fn logical_operations_take_truth_values() {
    for size in [1, 2, 3, 5] {
        let expected = |combine: fn(bool, bool) -> bool| -> Vec<bool> {
            (0..70).map(|at| (0..size).map(|rank| flags(rank)[at]).reduce(combine).unwrap()).collect()
        };
        for mut cluster in clusters(size) {
            let own = |rank: u32| Bool::slice(&flags(rank)).to_vec();
            let room = || vec![Bool::FALSE; 70];
            let and =
                all(&mut cluster, |engine, rank, world| engine.iallreduce(own(rank), room(), op::LogicalAnd, world));
            let or =
                all(&mut cluster, |engine, rank, world| engine.iallreduce(in_place(), own(rank), op::LogicalOr, world));
            let xor = all(&mut cluster, |engine, rank, world| engine.iscan(own(rank), room(), op::LogicalXor, world));
            assert!(and.iter().all(|of| of.1 == expected(|left, right| left && right)[..]));
            assert!(or.iter().all(|of| of.1 == expected(|left, right| left || right)[..]));
            assert_eq!(xor[size as usize - 1].1, expected(|left, right| left != right)[..]);
        }
    }
}

/// Numbers of all orders of magnitude that cancel each other. Their sum in floats depends on the order of addition.
fn numbers() -> Vec<f64> {
    let mut state = 7u64;
    let mut numbers = Vec::new();
    for _ in 0..480 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = f64::from_bits(state >> 12 | (state % 2000) << 52);
        numbers.extend([number, number * 3.0, -number]);
    }
    numbers.extend(numbers.clone().iter().step_by(3).map(|number| number * -3.0));
    numbers.extend([1e-300, 0.1, f64::MIN_POSITIVE / 8.0]);
    numbers
}

/// The share of a rank in the numbers. All ranks together have all numbers.
fn share(rank: u32, size: u32) -> impl Iterator<Item = f64> {
    numbers().into_iter().skip(rank as usize).step_by(size as usize)
}

/// The sum that must result for any number of ranks. Its last bits come from the smallest numbers.
fn expected() -> u64 {
    let exact: ExactSum<f64> = numbers().into_iter().collect();
    exact.value().to_bits()
}

/// Runs every operation that can give the sum of all ranks.
fn sums(engine: &mut Engine, rank: u32, world: Comm) {
    let size = engine.size();
    let own: ExactSum<f64> = share(rank, size).collect();
    // The operand fits a line, or a slot, or takes several chunks.
    for count in [1, 5, 90] {
        let mut total = vec![ExactSum::new(); count];
        engine.allreduce(&vec![own; count], &mut total, op::Sum, world).unwrap();
        assert!(total.iter().all(|sum| sum.value().to_bits() == expected()), "allreduce of {size}");
        let mut prefix = vec![own; count];
        engine.scan(in_place(), &mut prefix, op::Sum, world).unwrap();
        let up_to: ExactSum<f64> = (0..=rank).flat_map(|rank| share(rank, size)).collect();
        assert!(prefix.iter().all(|sum| sum.value().to_bits() == up_to.value().to_bits()), "scan of {size}");
        let mut reduced = vec![ExactSum::new(); count];
        engine.reduce(&vec![own; count], &mut reduced, op::Sum, Rank(size - 1), world).unwrap();
        assert!(rank + 1 < size || reduced == total, "reduce of {size}");
    }
}

#[test]
fn exact_sums_do_not_depend_on_the_number_of_ranks() {
    let plain: Vec<u64> =
        (1..=16u32).map(|size| (0..size).map(|rank| share(rank, size).sum::<f64>()).sum::<f64>().to_bits()).collect();
    assert!(plain.windows(2).any(|pair| pair[0] != pair[1]), "these numbers would show it");
    for size in 1..=16 {
        in_threads(size, sums);
    }
}

#[test]
fn exact_sums_have_the_same_bits_over_every_transport() {
    for size in [1, 2, 3, 5, 8, 13] {
        for mut cluster in clusters(size) {
            let totals = all(&mut cluster, |engine, rank, world| {
                let own: ExactSum<f64> = share(rank, size).collect();
                engine.iallreduce(vec![own; 20], vec![ExactSum::new(); 20], op::Sum, world)
            });
            let is_expected = |sum: &ExactSum<f64>| sum.value().to_bits() == expected();
            assert!(totals.iter().all(|(_, sums)| sums.iter().all(is_expected)), "{size} ranks");
            let float = all(&mut cluster, |engine, rank, world| {
                let own: ExactSum<f32> = share(rank, size).map(|number| number as f32).collect();
                engine.iallreduce(vec![own], vec![ExactSum::new()], op::Sum, world)
            });
            let serial: ExactSum<f32> = numbers().into_iter().map(|number| number as f32).collect();
            assert!(float.iter().all(|(_, sums)| sums[0] == serial), "{size} ranks, f32");
        }
    }
}

/// A struct with padding, which is no plain data.
#[derive(Clone, Copy, PartialEq, Debug, Default, tickwire::Datatype)]
#[repr(C)]
struct Best {
    place: u8,
    value: f64,
}

fn best(rank: u32, count: usize) -> Vec<Best> {
    (0..count).map(|at| Best { place: rank as u8, value: f64::from((rank * 7 + at as u32 * 3) % 11) }).collect()
}

/// The operand with the greater value. Of equal ones it is the left one, that of the lower rank.
fn greater(left: Best, right: Best) -> Best {
    if right.value > left.value { right } else { left }
}

fn best_of(ranks: std::ops::Range<u32>, count: usize) -> Vec<Best> {
    let all: Vec<Vec<Best>> = ranks.map(|rank| best(rank, count)).collect();
    (0..count).map(|at| all.iter().map(|of| of[at]).reduce(greater).unwrap()).collect()
}

/// A function of structs with a datatype, in all operations that reduce, short and long.
#[test]
fn elements_of_a_datatype_are_reduced_by_functions_of_structs() {
    let packed = |of: Vec<Best>| Packed::all(of).unwrap();
    for size in [1, 2, 3, 5, 13] {
        for mut cluster in clusters(size) {
            for count in [1usize, 2_000] {
                let room = |count: usize| packed(vec![Best::default(); count]);
                let (all_of, last) = (best_of(0..size, count), size - 1);
                let results = all(&mut cluster, |engine, rank, world| {
                    engine.iallreduce(packed(best(rank, count)), room(count), op::on_structs(greater), world)
                });
                assert!(results.into_iter().all(|(_, mut of)| *of.unpack() == all_of), "allreduce of {count}");
                let results = all(&mut cluster, |engine, rank, world| {
                    let room = room(if rank == last { count } else { 0 });
                    engine.ireduce(packed(best(rank, count)), room, op::on_structs(greater), Rank(last), world)
                });
                assert!(*results.into_iter().next_back().unwrap().1.unpack() == all_of, "reduce of {count}");
                let results = all(&mut cluster, |engine, rank, world| {
                    engine.iscan(in_place(), packed(best(rank, count)), op::on_structs(greater), world)
                });
                for (rank, (_, mut of)) in (0..).zip(results) {
                    assert!(*of.unpack() == best_of(0..rank + 1, count), "scan of {count}");
                }
                let counts: Vec<usize> = (0..size as usize).map(|rank| count * (rank % 3)).collect();
                let total = counts.iter().sum();
                let results = all(&mut cluster, |engine, rank, world| {
                    let room = room(counts[rank as usize]);
                    engine.ireduce_scatter(packed(best(rank, total)), room, &counts, op::on_structs(greater), world)
                });
                let found: Vec<Best> = results.into_iter().flat_map(|(_, mut of)| of.unpack().clone()).collect();
                assert!(found == best_of(0..size, total), "reduce_scatter of {count}");
            }
        }
    }
}

/// A function of bytes, for a datatype that belongs to no Rust type: every other number of a buffer. Buffers and
/// operation must have the same datatype.
#[test]
fn elements_of_a_datatype_are_reduced_by_functions_of_bytes() {
    let element = Datatype::vector(2, 1, 2, &Datatype::of::<u16>()).unwrap().resized(0, 8).unwrap();
    // An element has two numbers. The result has the left first number and the sum of the second numbers.
    let function = |left: &[u8], right: &mut [u8]| {
        let second = |bytes: &[u8]| u16::from_ne_bytes([bytes[2], bytes[3]]);
        let sum = second(left) + second(right);
        right[..2].copy_from_slice(&left[..2]);
        right[2..].copy_from_slice(&sum.to_ne_bytes());
    };
    let numbers = |rank: u16| vec![rank, 100, 10 + rank, 101, rank + 1, 102, 20 + rank, 103];
    for size in [2u16, 3, 9] {
        for mut cluster in clusters(size.into()) {
            let results = all(&mut cluster, |engine, rank, world| {
                let operand = Packed::new(numbers(rank as u16), &element, 2).unwrap();
                engine.iallreduce(in_place(), operand, op::on_packed(&element, function), world)
            });
            let sum = (0..size).sum::<u16>();
            for (rank, (_, mut of)) in (0..).zip(results) {
                let expected = [0, 100, 10 * size + sum, 101, 1, 102, 20 * size + sum, 103];
                assert_eq!(of.unpack()[..], expected, "rank {rank}, numbers in between stay");
            }
        }
    }
    let mut cluster = Cluster::loopback(1);
    let engine = &mut cluster.engines[0];
    let world = engine.comm_world();
    let operand = || Packed::new(numbers(0), &Datatype::of::<u16>(), 8).unwrap();
    let rejected = engine.iallreduce(operand(), operand(), op::on_packed(&element, function), world).unwrap_err();
    assert_eq!(rejected.error.to_string(), "the element of the send buffer, bytes, has 2 elements, and 4 are needed");
}
