//! Random programs of collective operations against a serial model: of all kinds, in all three forms, with elements of several types
//! and lengths, in place or not, on several communicators, wherever the ranks are. Each rank is an engine in a thread of its own.

mod operate;
mod place;

use operate::{Members, Planned, operate};
use place::Placement;
use proptest::prelude::*;
use std::time::Duration;
use tickwire::testing::Board;
use tickwire::{Element, Engine, Rank};

/// Elements, and an operation on them that is associative and does not commute, or that is not associative: whose result shows the
/// order in which operands meet.
pub(crate) trait Number: Element + PartialEq + std::fmt::Debug {
    /// Whether it is associative: then results do not depend on where parentheses are.
    const ASSOCIATIVE: bool;

    fn of(number: u64) -> Self;
    fn combine(left: Self, right: Self) -> Self;
}

impl Number for u8 {
    const ASSOCIATIVE: bool = true;

    fn of(number: u64) -> Self {
        number as u8
    }

    fn combine(left: Self, right: Self) -> Self {
        left.wrapping_add(right)
    }
}

/// Of an odd length: the first byte of the left one, the greater second one, and the last one of the right one.
impl Number for [u8; 3] {
    const ASSOCIATIVE: bool = true;

    fn of(number: u64) -> Self {
        [number as u8, (number >> 8) as u8, (number >> 16) as u8]
    }

    fn combine(left: Self, right: Self) -> Self {
        [left[0], left[1].max(right[1]), right[2]]
    }
}

/// An affine map, and one behind another.
impl Number for [u64; 2] {
    const ASSOCIATIVE: bool = true;

    fn of(number: u64) -> Self {
        [number | 1, number.rotate_left(20)]
    }

    fn combine(left: Self, right: Self) -> Self {
        [left[0].wrapping_mul(right[0]), left[1].wrapping_mul(right[0]).wrapping_add(right[1])]
    }
}

impl Number for f64 {
    const ASSOCIATIVE: bool = false;

    fn of(number: u64) -> Self {
        (number as f64).sin() * 10f64.powi((number % 19) as i32)
    }

    fn combine(left: Self, right: Self) -> Self {
        left + right
    }
}

fn planned() -> impl Strategy<Value = Planned> {
    let count = prop_oneof![1 => Just(0usize), 4 => 1usize..20, 4 => 20usize..700, 2 => 2_000usize..9_000];
    let of = (0usize..17, 0usize..4, 0usize..3, 0usize..4, count, any::<u32>(), any::<bool>());
    of.prop_map(|(kind, element, form, comm, count, root, in_place)| Planned {
        kind,
        element,
        form,
        comm,
        count,
        root,
        in_place,
        number: 0,
    })
}

/// Runs a program on all ranks.
fn run(placement: Placement, size: u32, program: &[Planned]) {
    let (board, place) = (Board::new(size), place::Place::new(placement, size));
    std::thread::scope(|threads| {
        for rank in 0..size {
            let (board, place) = (&board, &place);
            threads.spawn(move || {
                let mut engine = place.builder(rank).build(board.bootstrap(rank)).unwrap();
                let communicators = communicators(&mut engine);
                for (number, planned) in (0..).zip(program) {
                    let (planned, members) = (Planned { number, ..*planned }, &communicators[planned.comm]);
                    match planned.element {
                        0 => operate::<u8>(&mut engine, members, planned),
                        1 => operate::<[u8; 3]>(&mut engine, members, planned),
                        2 => operate::<[u64; 2]>(&mut engine, members, planned),
                        _ => operate::<f64>(&mut engine, members, planned),
                    }
                }
                engine.barrier(engine.comm_world()).unwrap();
                engine.finalize(Duration::from_secs(20)).unwrap();
            });
        }
    });
}

/// The world, its even and odd ranks, its ranks the other way round, and the first two thirds beside the rest.
fn communicators(engine: &mut Engine) -> Vec<Members> {
    let (world, size, Rank(rank)) = (engine.comm_world(), engine.size(), engine.rank());
    let first = (2 * size).div_ceil(3);
    let mut split = |color: u32, key: i32, members: Vec<u32>| {
        let comm = engine.comm_split(world, Some(color), key).unwrap().unwrap();
        let own = members.iter().position(|&member| member == rank).unwrap() as u32;
        Members { comm, world: members, own }
    };
    vec![
        split(0, 0, (0..size).collect()),
        split(rank % 2, 0, (rank % 2..size).step_by(2).collect()),
        split(0, -(rank as i32), (0..size).rev().collect()),
        split((rank < first).into(), 0, if rank < first { (0..first).collect() } else { (first..size).collect() }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, max_shrink_iters: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn operations_do_what_a_serial_program_would_wherever_ranks_are(
        program in prop::collection::vec(planned(), 20..40),
        size in 1u32..8,
    ) {
        for placement in Placement::ALL {
            run(placement, size, &program);
        }
    }
}

/// Each kind in each form, at least once, short and long.
#[test]
fn all_kinds_in_all_forms_do_what_a_serial_program_would() {
    let each = |count: usize, in_place: bool| {
        let kinds = (0..17).flat_map(|kind| (0..3).map(move |form| (kind, form)));
        let planned = move |(kind, form): (usize, usize)| {
            let (element, comm, root) = ((kind + form) % 4, form % 4, (kind * 5 + form) as u32);
            Planned { kind, element, form, comm, count, root, in_place, number: 0 }
        };
        kinds.map(planned)
    };
    let program: Vec<Planned> = [(3, false), (900, true), (2_500, false)]
        .into_iter()
        .flat_map(|(count, in_place)| each(count, in_place))
        .collect();
    for (placement, size) in Placement::ALL.into_iter().zip([5, 4, 3, 6, 10]) {
        run(placement, size, &program);
    }
}
