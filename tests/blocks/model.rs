//! Blocks of any shape against a serial model. They have parts of all forms, elements of several sizes, and short and
//! long parts, over all transports.

use crate::kit::{BOUND, TAG, all_at_rest, clusters, posted};
use proptest::prelude::*;
use tickwire::testing::Cluster;
use tickwire::{Element, Rank};

/// The rank in the middle: all messages go to it or come from it.
const MIDDLE: u32 = 1;
/// The ranks that send to the middle, one below it and one above it. The targets are the ranks that it sends to.
const SOURCES: [u32; 2] = [0, 2];
/// See [`SOURCES`].
const TARGETS: [u32; 2] = [2, 3];

/// What the middle does with a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Take,
    TakeOp,
    TakePass,
    TakeOpPass,
    PassOp,
    Pass,
    Give,
}

/// A part of a block: its form, the source and the target of its elements, and the number of elements.
#[derive(Clone, Copy, Debug)]
struct Part {
    form: Form,
    source: usize,
    target: usize,
    count: usize,
}

fn part() -> impl Strategy<Value = Part> {
    use Form::*;
    let form = prop::sample::select(vec![Take, TakeOp, TakePass, TakeOpPass, PassOp, Pass, Give]);
    let count = prop_oneof![4 => 0usize..20, 4 => 0usize..3_000, 1 => 10_000usize..40_000];
    (form, 0usize..2, 0usize..2, count).prop_map(|(form, source, target, count)| Part { form, source, target, count })
}

/// An element made from a number. Its operation is not commutative, and its result depends on all bits of both
/// operands.
trait Number: Element + PartialEq + std::fmt::Debug {
    fn of(number: u64) -> Self;
    fn combine(left: Self, right: Self) -> Self;
}

impl Number for u16 {
    fn of(number: u64) -> Self {
        number as u16
    }

    fn combine(left: Self, right: Self) -> Self {
        left.wrapping_mul(3).wrapping_add(right)
    }
}

/// Elements of 3 bytes: pieces and windows end in the middle of an element.
impl Number for [u8; 3] {
    fn of(number: u64) -> Self {
        [number as u8, (number >> 8) as u8, (number * 7) as u8]
    }

    fn combine(left: Self, right: Self) -> Self {
        std::array::from_fn(|at| left[(at + 1) % 3].wrapping_mul(5).wrapping_add(right[at]))
    }
}

impl Number for [u64; 5] {
    fn of(number: u64) -> Self {
        std::array::from_fn(|at| number * (at as u64 + 1))
    }

    fn combine(left: Self, right: Self) -> Self {
        std::array::from_fn(|at| left[4 - at].wrapping_mul(3).wrapping_add(right[at]))
    }
}

/// What the ranks send, and what they must have in the end.
struct Outcome<T> {
    /// What each source sends.
    sent: [Vec<T>; 2],
    /// What each target gets.
    got: [Vec<T>; 2],
    /// The elements of the middle, before and after.
    own: [Vec<T>; 2],
}

/// The serial model.
fn outcome<T: Number>(parts: &[Part]) -> Outcome<T> {
    let mut number = 0;
    let mut some = |count: usize| -> Vec<T> {
        number += count as u64 + 1;
        (0..count as u64).map(|at| T::of(number * 1000 + at)).collect()
    };
    let (mut sent, mut got, mut own) = ([vec![], vec![]], [vec![], vec![]], [vec![], vec![]]);
    for part in parts {
        let (comes, mine) = (some(part.count), some(part.count));
        // The element of the lower rank is the left operand.
        let pair = |(comes, mine): (&T, &T)| match SOURCES[part.source] < MIDDLE {
            true => T::combine(*comes, *mine),
            false => T::combine(*mine, *comes),
        };
        let combined: Vec<T> = comes.iter().zip(&mine).map(pair).collect();
        own[0].extend_from_slice(&mine);
        if part.form != Form::Give {
            sent[part.source].extend_from_slice(&comes);
        }
        let (stays, leaves) = match part.form {
            Form::Take => (&comes, None),
            Form::TakeOp => (&combined, None),
            Form::TakePass => (&comes, Some(&comes)),
            Form::TakeOpPass => (&combined, Some(&combined)),
            Form::PassOp => (&mine, Some(&combined)),
            Form::Pass => (&mine, Some(&comes)),
            Form::Give => (&mine, Some(&mine)),
        };
        own[1].extend_from_slice(stays);
        got[part.target].extend(leaves.into_iter().flatten());
    }
    Outcome { sent, got, own }
}

/// Runs a block of these parts and compares the results.
fn check<T: Number>(cluster: &mut Cluster, parts: &[Part], late: u32) {
    let Outcome { sent, got, own: [own, own_after] } = outcome::<T>(parts);
    let world = cluster.engines[0].comm_world();
    let (mut graph, place) = cluster.engines[MIDDLE as usize].graph(world).with_place(own);
    let from = SOURCES.map(|rank| graph.receive(Rank(rank), TAG));
    let to = TARGETS.map(|rank| graph.send(Rank(rank), TAG));
    let mut at = 0;
    for part in parts {
        let (from, to) = (from[part.source], to[part.target]);
        let range = place.part(at..at + part.count);
        at += part.count;
        match part.form {
            Form::Take => graph.take(from, range),
            Form::TakeOp => graph.take_op(from, range, T::combine),
            Form::TakePass => graph.take_pass(from, range, to),
            Form::TakeOpPass => graph.take_op_pass(from, range, T::combine, to),
            Form::PassOp => graph.pass_op(from, range.elements(), T::combine, to),
            Form::Pass => graph.pass(from, part.count * size_of::<T>(), to),
            Form::Give => graph.give(to, range.elements()),
        }
    }
    let middle = posted(graph.start());
    cluster.tick_times(late);
    let mut targets = Vec::new();
    for (index, &rank) in TARGETS.iter().enumerate() {
        let block = cluster.engines[rank as usize].scatter_block(Rank(MIDDLE), TAG, world);
        targets.push((rank, index, posted(block.recv(vec![T::of(0); got[index].len()]).start())));
    }
    let mut sources = Vec::new();
    for (index, &rank) in SOURCES.iter().enumerate() {
        cluster.tick_times(late);
        let block = cluster.engines[rank as usize].gather_block(Rank(MIDDLE), TAG, world);
        sources.push((rank, posted(block.send(sent[index].clone()).start())));
    }
    for (rank, index, target) in targets {
        let ((_, received), _) = cluster.finish(BOUND, rank as usize, target).unwrap();
        assert!(received == got[index], "rank {rank} gets something else\n{}", cluster.report());
    }
    let ((_, own), _) = cluster.finish(BOUND, MIDDLE as usize, middle).unwrap();
    assert!(own == own_after, "something else stays\n{}", cluster.report());
    for (rank, source) in sources {
        cluster.finish(BOUND, rank as usize, source).unwrap();
    }
    all_at_rest(cluster);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_do_what_a_serial_program_would(parts in prop::collection::vec(part(), 0..10), late in 0u32..20) {
        for mut cluster in clusters(4) {
            cluster.checked = parts.iter().map(|part| part.count).sum::<usize>() < 4_000;
            check::<u16>(&mut cluster, &parts, late);
            check::<[u8; 3]>(&mut cluster, &parts, late);
            check::<[u64; 5]>(&mut cluster, &parts, late);
        }
    }
}
