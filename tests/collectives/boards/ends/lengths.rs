//! One member calls an operation on boards with another number of elements than the others. Whoever needs what differs gets
//! an error, and what follows is intact.

use crate::boards::{each_rank, with_boards};
use tickwire::{Comm, Engine, OperationError, Rank, RequestError, op};

/// Number of ranks.
const SIZE: u32 = 3;
const RANKS: usize = SIZE as usize;
/// The root of operations that have one. It has the usual number of elements.
const ROOT: Rank = Rank(1);

/// A call with this number of elements.
type Called = fn(&mut Engine, usize, Comm) -> Result<(), OperationError>;
/// Whether a rank (the second number) needs what differs on another one (the first).
type Needs = fn(u32, u32) -> bool;

/// All operations that use boards, and who needs what differs.
const CALLS: [(&str, Needs, Called); 10] = [
    ("bcast", |odd, rank| odd == rank, |engine, count, world| engine.bcast(parts(count, 1), ROOT, world)),
    (
        "gather",
        |_, rank| Rank(rank) == ROOT,
        |engine, count, world| {
            let mut room = parts(count, at_root(engine, RANKS));
            engine.gather(&parts(count, 1), &mut room, ROOT, world)
        },
    ),
    (
        "scatter",
        |odd, rank| odd == rank,
        |engine, count, world| {
            let send = parts(count, at_root(engine, RANKS));
            engine.scatter(&send, &mut parts(count, 1), ROOT, world)
        },
    ),
    (
        "allgather",
        |_, _| true,
        |engine, count, world| engine.allgather(&parts(count, 1), &mut parts(count, RANKS), world),
    ),
    (
        "alltoall",
        |_, _| true,
        |engine, count, world| engine.alltoall(&parts(count, RANKS), &mut parts(count, RANKS), world),
    ),
    (
        "reduce",
        |_, rank| Rank(rank) == ROOT,
        |engine, count, world| {
            let mut room = parts(count, at_root(engine, 1));
            engine.reduce(&parts(count, 1), &mut room, op::Sum, ROOT, world)
        },
    ),
    (
        "allreduce",
        |_, _| true,
        |engine, count, world| engine.allreduce(&parts(count, 1), &mut parts(count, 1), op::Sum, world),
    ),
    (
        "reduce_scatter_block",
        |_, _| true,
        |engine, count, world| engine.reduce_scatter_block(&parts(count, RANKS), &mut parts(count, 1), op::Sum, world),
    ),
    ("scan", is_behind, |engine, count, world| engine.scan(&parts(count, 1), &mut parts(count, 1), op::Sum, world)),
    ("exscan", is_behind, |engine, count, world| engine.exscan(&parts(count, 1), &mut parts(count, 1), op::Sum, world)),
];

/// A prefix depends on the ranks before.
fn is_behind(odd: u32, rank: u32) -> bool {
    rank >= odd.max(1)
}

/// Elements for this many parts.
fn parts(count: usize, parts: usize) -> Vec<u64> {
    vec![1; count * parts]
}

/// The number at the root, and none elsewhere.
fn at_root(engine: &Engine, number: usize) -> usize {
    if engine.rank() == ROOT { number } else { 0 }
}

/// The numbers fit a cache line, a slot or the cells, or are longer than all cells.
#[test]
fn lengths_that_differ_are_told_to_whoever_needs_them() {
    for (name, needs, call) in CALLS {
        for (odd, of_odd, usual) in [(0, 1, 3), (2, 3, 1), (2, 3, 500), (0, 5_000, 500), (2, 50_000, 40_000)] {
            each_rank(SIZE, true, |engine, rank, world| {
                engine.barrier(world).unwrap();
                assert_eq!(with_boards(engine), 1);
                let words = format!("{name} of {usual}, but {of_odd} on rank {odd}, rank {rank}");
                match call(engine, if rank == odd { of_odd } else { usual }, world) {
                    Ok(()) => assert!(!needs(odd, rank), "{words}: it is not told"),
                    Err(OperationError::Request(error)) => {
                        use RequestError::{Abandoned, Short, Truncated};
                        assert!(matches!(error, Abandoned(_) | Short { .. } | Truncated { .. }), "{words}: {error}");
                    }
                    Err(error) => panic!("{words}: {error}"),
                }
                let mut total = [0];
                engine.allreduce(&[rank + 1], &mut total, op::Sum, world).unwrap();
                assert_eq!(total, [6], "{words}");
            });
        }
    }
}
