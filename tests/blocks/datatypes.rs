//! Elements that a datatype describes can be combined and passed on like others: by functions of structs, and by
//! functions of packed bytes.

use crate::kit::{BOUND, TAG, all_at_rest, clusters, posted};
use tickwire::{Datatype, Engine, Packed, Persistent, PostError, Rank, Test, op};

/// Elements of a message: it fits a frame, or several frames, or goes through one window, or through many.
const COUNTS: [usize; 4] = [1, 200, 9_000, 60_000];

/// A struct with padding. It has nine bytes when it is packed, so pieces and windows end in the middle of an element.
#[derive(Clone, Copy, PartialEq, Debug, Default, Datatype)]
#[repr(C)]
struct Reading {
    place: u8,
    value: f64,
}

fn readings(rank: u32, count: usize) -> Vec<Reading> {
    let value = |at: usize| f64::from((rank * 7 + at as u32 * 3) % 11);
    (0..count).map(|at| Reading { place: (rank as usize + at) as u8, value: value(at) }).collect()
}

/// An operation that is not commutative, and whose result depends on both operands.
fn weigh(left: Reading, right: Reading) -> Reading {
    let place = left.place.wrapping_mul(3).wrapping_add(right.place);
    Reading { place, value: left.value * 0.5 + right.value }
}

/// The result of combining received elements with own ones. The left operand is that of the lower rank.
fn combined<T: Copy>(by: fn(T, T) -> T, (from, comes): (u32, &[T]), (rank, own): (u32, &[T])) -> Vec<T> {
    let pair = |(&comes, &own): (&T, &T)| if from < rank { by(comes, own) } else { by(own, comes) };
    comes.iter().zip(own).map(pair).collect()
}

/// A chain through all ranks, in several orders. The second rank combines and keeps the result, the third combines and
/// only passes the result on, and the last keeps it.
#[test]
fn structs_are_combined_along_a_chain() {
    let packed = |of: Vec<Reading>| Packed::all(of).unwrap();
    for count in COUNTS {
        for mut cluster in clusters(4) {
            cluster.checked = count < 1_000;
            let world = cluster.engines[0].comm_world();
            for order in [[0u32, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
                let own = |place: usize| readings(order[place], count);
                let at = |place: usize| Rank(order[place]);
                let [first, second, third, last] = order.map(|rank| rank as usize);
                let source = cluster.engines[first].gather_block(at(1), TAG, world).send(packed(own(0)));
                let source = posted(source.start());
                let keeps = cluster.engines[second].scatter_block(at(0), TAG, world);
                let keeps = posted(keeps.recv_op_forward(packed(own(1)), op::on_structs(weigh), at(2)).start());
                let passes = cluster.engines[third].scatter_block(at(1), TAG, world);
                let passes = posted(passes.forward_op(packed(own(2)), op::on_structs(weigh), at(3)).start());
                let ends = cluster.engines[last].scatter_block(at(2), TAG, world);
                let ends = posted(ends.recv_op(packed(own(3)), op::on_structs(weigh)).start());

                let mut expected = own(0);
                let mut results = Vec::new();
                for place in 1..4 {
                    expected = combined(weigh, (order[place - 1], &expected), (order[place], &own(place)));
                    results.push(expected.clone());
                }
                let ((_, mut kept), _) = cluster.finish(BOUND, last, ends).unwrap();
                assert!(*kept.unpack() == results[2], "{count} at the end of {order:?}");
                let ((_, mut kept), _) = cluster.finish(BOUND, second, keeps).unwrap();
                assert!(*kept.unpack() == results[0], "{count} at the second of {order:?}");
                let ((_, mut kept), _) = cluster.finish(BOUND, third, passes).unwrap();
                assert!(*kept.unpack() == own(2), "what is only on the way stays as it was");
                let ((_, mut sent), _) = cluster.finish(BOUND, first, source).unwrap();
                assert!(*sent.unpack() == own(0));
            }
            all_at_rest(&mut cluster);
        }
    }
}

/// The first and third of every five numbers, so that there are gaps within and between elements.
fn pairs() -> Datatype {
    Datatype::vector(2, 1, 2, &Datatype::of::<u16>()).unwrap().resized(0, 10).unwrap()
}

/// The numbers of a buffer: five for each element.
fn numbers(rank: u16, count: usize) -> Vec<u16> {
    (0..5 * count).map(|at| (at as u16).wrapping_mul(31).wrapping_add(rank * 1000)).collect()
}

/// Works on packed elements. The first number is three times the left one plus the right one. For the second number
/// left and right are exchanged.
fn mix(left: &[u8], right: &mut [u8]) {
    let number = |bytes: &[u8], at: usize| u16::from_ne_bytes([bytes[2 * at], bytes[2 * at + 1]]);
    let first = number(left, 0).wrapping_mul(3).wrapping_add(number(right, 0));
    let second = number(right, 1).wrapping_mul(3).wrapping_add(number(left, 1));
    right[..2].copy_from_slice(&first.to_ne_bytes());
    right[2..].copy_from_slice(&second.to_ne_bytes());
}

/// The serial result. Numbers in gaps stay those of `into`.
fn mixed(left: &[u16], right: &[u16], into: &[u16]) -> Vec<u16> {
    let mut result = into.to_vec();
    for at in (0..into.len()).step_by(5) {
        result[at] = left[at].wrapping_mul(3).wrapping_add(right[at]);
        result[at + 2] = right[at + 2].wrapping_mul(3).wrapping_add(left[at + 2]);
    }
    result
}

/// The numbers of elements from `from`, and the numbers in gaps from `into`.
fn placed(from: &[u16], into: &[u16]) -> Vec<u16> {
    let is_element = |at: usize| matches!(at % 5, 0 | 2);
    (0..into.len()).map(|at| if is_element(at) { from[at] } else { into[at] }).collect()
}

/// The middle rank combines parts of two messages. It keeps one result and passes it on, passes one on without keeping
/// it, and keeps one without passing it on.
#[test]
fn elements_with_gaps_are_combined_by_a_function_of_bytes() {
    let element = pairs();
    for count in COUNTS {
        let packed = |rank: u16| Packed::new(numbers(rank, count), &element, count).unwrap();
        for mut cluster in clusters(4) {
            cluster.checked = count < 1_000;
            let world = cluster.engines[0].comm_world();
            let below = cluster.engines[0].gather_block(Rank(1), TAG, world).send(packed(0));
            let below = posted(below.start());
            let above = cluster.engines[2].gather_block(Rank(1), TAG, world).send(packed(2)).send(packed(3));
            let above = posted(above.start());
            let by = || op::on_packed(&element, mix);
            let middle = cluster.engines[1].gather_block(Rank(3), TAG, world);
            let middle = middle.recv_op_forward(packed(4), by(), Rank(0)).forward_op(packed(5), by(), Rank(2));
            let middle = posted(middle.recv_op(packed(6), by(), Rank(2)).start());
            let target = cluster.engines[3].scatter_block(Rank(1), TAG, world).recv(packed(7)).recv(packed(8));
            let target = posted(target.start());

            let own = |rank: u16| numbers(rank, count);
            let stays = mixed(&own(0), &own(4), &own(4));
            let passes = mixed(&own(5), &own(2), &own(5));
            let ((((), mut first), mut second), _) = cluster.finish(BOUND, 3, target).unwrap();
            assert!(*first.unpack() == placed(&stays, &own(7)), "{count} from below");
            assert!(*second.unpack() == placed(&passes, &own(8)), "{count} from above");
            let (((((), mut first), mut second), mut third), _) = cluster.finish(BOUND, 1, middle).unwrap();
            assert!(*first.unpack() == stays && *second.unpack() == own(5), "{count} in the middle");
            assert!(*third.unpack() == mixed(&own(6), &own(3), &own(6)), "{count}, what does not go on");
            cluster.finish(BOUND, 0, below).unwrap();
            cluster.finish(BOUND, 2, above).unwrap();
            all_at_rest(&mut cluster);
        }
    }
}

/// Persistent blocks are started again with elements that were packed in between.
#[test]
fn persistent_blocks_combine_what_is_packed_at_each_start() {
    for count in [5usize, 20_000] {
        for mut cluster in clusters(3) {
            cluster.checked = count < 1_000;
            let packed = || Packed::all(readings(0, count)).unwrap();
            let world = cluster.engines[0].comm_world();
            let [first, middle, last] = &mut cluster.engines[..] else { panic!("three engines") };
            let mut first = first.gather_block(Rank(1), TAG, world).send(packed()).persistent().unwrap();
            let middle = middle.scatter_block(Rank(0), TAG, world);
            let mut middle = middle.recv_op_forward(packed(), op::on_structs(weigh), Rank(2)).persistent().unwrap();
            let last = last.scatter_block(Rank(1), TAG, world);
            let mut last = last.recv_op(packed(), op::on_structs(weigh)).persistent().unwrap();
            for round in 1..4u32 {
                let own = [0, 1, 2].map(|rank| readings(rank + 10 * round, count));
                let fill = |engine: &mut Engine, of: &mut Persistent<((), Packed<Vec<Reading>>)>, with: &[Reading]| {
                    let packed = &mut engine.buffer(of).unwrap().1;
                    packed.elements_mut().copy_from_slice(with);
                    packed.pack();
                    engine.start(of).unwrap();
                };
                let all = [&mut first, &mut middle, &mut last];
                for ((engine, of), with) in cluster.engines.iter_mut().zip(all).zip(&own) {
                    fill(engine, of, with);
                }
                let all = [&first, &middle, &last];
                cluster.tick_until(BOUND, "all are done", |cluster| {
                    let mut each = cluster.engines.iter_mut().zip(all);
                    each.all(|(engine, of)| engine.test(of).unwrap() != Test::Pending)
                });
                let second = combined(weigh, (0, &own[0]), (1, &own[1]));
                let third = combined(weigh, (1, &second), (2, &own[2]));
                assert!(*cluster.engines[1].buffer(&mut middle).unwrap().1.unpack() == second, "start {round}");
                assert!(*cluster.engines[2].buffer(&mut last).unwrap().1.unpack() == third, "start {round}");
            }
            drop((first, middle, last));
            all_at_rest(&mut cluster);
        }
    }
}

#[test]
fn an_operation_on_elements_of_another_length_is_refused() {
    let mut cluster = tickwire::testing::Cluster::loopback(2);
    let engine = &mut cluster.engines[0];
    let world = engine.comm_world();
    let packed = || Packed::all(readings(0, 6)).unwrap();
    let wrong = |error: PostError| matches!(error, PostError::Elements { given: 9, needed: 8, .. });
    let shorter = || op::on_structs::<f64, _>(|left, right| left + right);
    // 54 bytes are no whole number of eight, 72 are.
    let refused = engine.scatter_block(Rank(1), TAG, world).recv_op(packed(), shorter()).start().unwrap_err();
    assert!(wrong(refused.error));
    let packed = || Packed::all(readings(0, 8)).unwrap();
    let refused = engine.scatter_block(Rank(1), TAG, world).recv_op(packed(), shorter()).start().unwrap_err();
    assert!(wrong(refused.error));
    let nothing = Datatype::contiguous(0, &Datatype::of::<u8>()).unwrap();
    let refused = engine
        .scatter_block(Rank(1), TAG, world)
        .recv_op(packed(), op::on_packed(&nothing, |_, _| {}))
        .start()
        .unwrap_err();
    assert!(matches!(refused.error, PostError::Elements { given: 9, needed: 0, .. }));
    cluster.assert_at_rest();
}
