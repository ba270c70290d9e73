//! Starts of persistent collective operations, by messages and on boards.

use crate::{allocations, entities, with_long_rings};
use std::time::Duration;
use tickwire::internals::components::limits::BOARDS_WIDE;
use tickwire::internals::systems::procs::boards::Boards;
use tickwire::testing::{Board, Cluster};
use tickwire::{
    Builder, Cartesian, Comm, Datatype, Engine, Packed, Persistent, Pieces, Rank, Rejected, Test, Topology, in_place,
    op,
};

/// Starts the operation on every engine once, and ticks until all are done.
fn start_all<B: Pieces>(cluster: &mut Cluster, made: &[Persistent<B>]) {
    for (engine, one) in cluster.engines.iter_mut().zip(made) {
        engine.start(one).unwrap();
    }
    for _ in 0..10_000 {
        let pending = |(engine, one): (&mut Engine, _)| engine.test(one).unwrap() == Test::Pending;
        if !cluster.engines.iter_mut().zip(made).any(pending) {
            return;
        }
        cluster.tick_all();
    }
    panic!("not done\n{}", cluster.report());
}

/// Makes a persistent operation on every engine, and starts it until everything is warm. Further starts must neither allocate
/// memory nor move entities. Returns the operations.
fn starts_allocate_nothing<B: Pieces>(
    cluster: &mut Cluster,
    words: &str,
    make: impl Fn(&mut Engine, Comm) -> Result<Persistent<B>, Rejected<B>>,
) -> Vec<Persistent<B>> {
    let make = |engine: &mut Engine| {
        let world = engine.comm_world();
        make(engine, world).unwrap_or_else(|rejected| panic!("{}", rejected.error))
    };
    let made: Vec<_> = cluster.engines.iter_mut().map(make).collect();
    (0..20).for_each(|_| start_all(cluster, &made));
    let before: Vec<_> = cluster.engines.iter().map(entities).collect();
    let allocated = allocations(|| (0..100).for_each(|_| start_all(cluster, &made)));
    assert_eq!(allocated, 0, "allocations of 100 starts of {words}");
    let after: Vec<_> = cluster.engines.iter().map(entities).collect();
    assert!(before == after, "entities stay where they are: {words}");
    made
}

#[test]
fn starting_a_persistent_collective_operation_allocates_nothing() {
    for (mut cluster, name) in [(Cluster::loopback(5), "loopback"), (Cluster::shm(3), "shared memory")] {
        cluster.checked = false;
        for count in [1usize, 4000] {
            let words = format!("allreduce of {count} elements over {name}");
            let mut sums = starts_allocate_nothing(&mut cluster, &words, |engine, world| {
                engine.allreduce_init(vec![1.0; count], vec![0.0; count], op::Sum, world)
            });
            let ranks = cluster.engines.len() as f64;
            for (engine, sum) in cluster.engines.iter_mut().zip(&mut sums) {
                assert!(engine.buffer(sum).unwrap().1.iter().all(|of| *of == ranks));
            }
        }
        cluster.tick_times(100);
        cluster.assert_at_rest();
    }
}

/// Other kinds of operations: from a root, to each rank, of parts of a result, and among neighbours.
#[test]
fn starting_a_persistent_operation_of_another_kind_allocates_nothing() {
    for (mut cluster, name) in [(Cluster::loopback(5), "loopback"), (Cluster::shm(3), "shared memory")] {
        cluster.checked = false;
        let size = cluster.engines.len();
        for engine in &mut cluster.engines {
            let world = engine.comm_world();
            let ring = Topology::Cartesian(Cartesian::new(&[(size as u32, true)]));
            engine.comm_set_topology(world, ring).unwrap();
        }
        for count in [1usize, 4000] {
            let words = |kind: &str| format!("{kind} of {count} elements over {name}");
            let shared = starts_allocate_nothing(&mut cluster, &words("bcast"), |engine, world| {
                let value = u64::from(engine.rank() == Rank(1));
                engine.bcast_init(vec![value; count], Rank(1), world)
            });
            let swapped = starts_allocate_nothing(&mut cluster, &words("alltoall"), |engine, world| {
                engine.alltoall_init(vec![1u64; size * count], vec![0u64; size * count], world)
            });
            let parts = starts_allocate_nothing(&mut cluster, &words("reduce_scatter"), |engine, world| {
                let counts = vec![count; size];
                engine.reduce_scatter_init(vec![1u64; size * count], vec![0u64; count], &counts, op::Sum, world)
            });
            let around = starts_allocate_nothing(&mut cluster, &words("neighbor_alltoall"), |engine, world| {
                engine.neighbor_alltoall_init(vec![1u64; 2 * count], vec![0u64; 2 * count], world)
            });
            let each = shared.into_iter().zip(swapped).zip(parts.into_iter().zip(around));
            for (engine, ((mut shared, mut swapped), (mut parts, mut around))) in cluster.engines.iter_mut().zip(each) {
                assert!(engine.buffer(&mut shared).unwrap().iter().all(|of| *of == 1));
                assert!(engine.buffer(&mut swapped).unwrap().1.iter().all(|of| *of == 1));
                assert!(engine.buffer(&mut parts).unwrap().1.iter().all(|of| *of == size as u64));
                assert!(engine.buffer(&mut around).unwrap().1.iter().all(|of| *of == 1));
            }
        }
        cluster.tick_times(100);
        cluster.assert_at_rest();
    }
}

/// The operands are in a slot or go through cells of boards. Each rank is in its own thread.
#[test]
fn starting_a_persistent_collective_operation_on_boards_allocates_nothing() {
    let board = Board::new(2);
    std::thread::scope(|threads| {
        for rank in 0..2 {
            let bootstrap = board.bootstrap(rank);
            threads.spawn(move || {
                let mut engine = Engine::builder().build(bootstrap).unwrap();
                let world = engine.comm_world();
                engine.barrier(world).unwrap();
                for count in [1usize, 200, 4000, 100_000] {
                    let mut sum = engine.allreduce_init(vec![1.0; count], vec![0.0; count], op::Sum, world).unwrap();
                    let mut gather = engine.allgather_init(vec![rank; count], vec![9; 2 * count], world).unwrap();
                    let mut start = |times: u32| {
                        for _ in 0..times {
                            engine.start(&sum).unwrap();
                            engine.start(&gather).unwrap();
                            engine.wait(&gather).unwrap();
                            engine.wait(&sum).unwrap();
                        }
                    };
                    start(20);
                    let allocated = allocations(|| start(100));
                    assert_eq!(allocated, 0, "allocations of 100 starts of {count} elements");
                    assert!(engine.buffer(&mut sum).unwrap().1.iter().all(|of| *of == 2.0));
                    let all = &engine.buffer(&mut gather).unwrap().1;
                    assert!(all[..count].iter().all(|of| *of == 0) && all[count..].iter().all(|of| *of == 1));
                    let boards = engine
                        .world()
                        .try_query::<&Boards>()
                        .map(|mut all| all.iter(engine.world()).map(Boards::count).sum::<usize>());
                    assert_eq!(boards, Some(1), "it runs on boards");
                    // The other rank may still be counting, so its peer must not leave.
                    engine.barrier(world).unwrap();
                }
                engine.finalize(Duration::from_secs(20)).unwrap();
            });
        }
    });
}

/// A struct with a gap between its parts.
#[derive(Clone, Copy, Default, Datatype)]
#[repr(C)]
struct Best {
    place: u8,
    value: f64,
}

fn better(one: Best, other: Best) -> Best {
    if one.value >= other.value { one } else { other }
}

/// So many structs of a rank, packed.
fn packed(rank: u32, count: usize) -> Packed<Vec<Best>> {
    Packed::all(vec![Best { place: rank as u8, value: f64::from(rank) }; count]).unwrap()
}

/// Elements of 800 bytes, packed.
fn rows(count: usize) -> Packed<Vec<f64>> {
    let row = Datatype::contiguous(100, &Datatype::of::<f64>()).unwrap();
    Packed::new(vec![1.0; 100 * count], &row, count).unwrap()
}

/// Adds up the first number of packed rows.
fn add(left: &[u8], right: &mut [u8]) {
    let first = |row: &[u8]| f64::from_ne_bytes(row[..8].try_into().unwrap());
    let sum = first(left) + first(right);
    right[..8].copy_from_slice(&sum.to_ne_bytes());
}

#[test]
fn starting_a_persistent_reduction_of_packed_elements_allocates_nothing() {
    let long = |builder: Builder| builder.limits(with_long_rings());
    for (mut cluster, name) in [(Cluster::loopback(5), "loopback"), (Cluster::shm_with(3, long), "shared memory")] {
        cluster.checked = false;
        let last = cluster.engines.len() as u32 - 1;
        for count in [1usize, 4000] {
            let words = |kind: &str| format!("{kind} of {count} structs over {name}");
            let best = starts_allocate_nothing(&mut cluster, &words("allreduce"), |engine, world| {
                let own = packed(engine.rank().0, count);
                engine.allreduce_init(own, packed(0, count), op::on_structs(better), world)
            });
            let scanned = starts_allocate_nothing(&mut cluster, &words("scan in place"), |engine, world| {
                engine.scan_init(in_place(), packed(engine.rank().0, count), op::on_structs(better), world)
            });
            for (engine, (mut best, mut scanned)) in cluster.engines.iter_mut().zip(best.into_iter().zip(scanned)) {
                let own = engine.rank().0 as u8;
                let best = engine.buffer(&mut best).unwrap().1.unpack();
                assert!(best.len() == count && best.iter().all(|of| of.place == last as u8));
                let scanned = engine.buffer(&mut scanned).unwrap().1.unpack();
                assert!(scanned.len() == count && scanned.iter().all(|of| of.place == own));
            }
        }
        let row = Datatype::contiguous(100, &Datatype::of::<f64>()).unwrap();
        let sums = starts_allocate_nothing(&mut cluster, &format!("rows over {name}"), |engine, world| {
            engine.allreduce_init(rows(30), rows(30), op::on_packed(&row, add), world)
        });
        for (engine, mut sum) in cluster.engines.iter_mut().zip(sums) {
            let sum = engine.buffer(&mut sum).unwrap().1.unpack();
            assert!(sum.iter().step_by(100).all(|of| *of == f64::from(last + 1)));
        }
        cluster.tick_times(100);
        cluster.assert_at_rest();
    }
}

/// Starts a persistent operation of a rank on boards until everything is warm. Further starts must not allocate.
fn starts_on_boards_allocate_nothing<B: Pieces>(
    engine: &mut Engine,
    words: &str,
    made: Result<Persistent<B>, Rejected<B>>,
) -> Persistent<B> {
    let persistent = made.unwrap_or_else(|rejected| panic!("{}", rejected.error));
    let mut start = |times: u32| {
        for _ in 0..times {
            engine.start(&persistent).unwrap();
            engine.wait(&persistent).unwrap();
        }
    };
    // An odd number of starts in all, so that what goes to the other rank and back at each start is there.
    start(21);
    let allocated = allocations(|| start(50));
    assert_eq!(allocated, 0, "allocations of 50 starts of {words}");
    persistent
}

/// Operations in place. On narrow boards, the others read a long operand of such an operation from a copy, since the result overwrites the
/// operand. Each rank is in its own thread.
#[test]
fn starting_a_persistent_operation_in_place_on_boards_allocates_nothing() {
    for is_narrow in [false, true] {
        let board = Board::new(2);
        std::thread::scope(|threads| {
            for rank in 0..2 {
                let bootstrap = board.bootstrap(rank);
                threads.spawn(move || {
                    let mut engine = Engine::builder().build(bootstrap).unwrap();
                    let world = engine.comm_world();
                    // The first communicators get wide boards.
                    for _ in 0..if is_narrow { BOARDS_WIDE } else { 0 } {
                        let other = engine.comm_dup(world).unwrap();
                        engine.barrier(other).unwrap();
                    }
                    engine.barrier(world).unwrap();
                    in_place_on_boards(&mut engine, world, is_narrow);
                    // The other rank may still be counting, so its peer must not leave.
                    engine.barrier(world).unwrap();
                    engine.finalize(Duration::from_secs(20)).unwrap();
                });
            }
        });
    }
}

fn in_place_on_boards(engine: &mut Engine, world: Comm, is_narrow: bool) {
    let own = engine.rank().0;
    for count in [1usize, 200, 4000, 100_000] {
        let words = |kind: &str| format!("{kind} of {count} elements, on narrow boards: {is_narrow}");
        let made = engine.allreduce_init(in_place(), vec![own; count], op::Max, world);
        let mut greatest = starts_on_boards_allocate_nothing(engine, &words("allreduce"), made);
        assert_eq!(engine.buffer(&mut greatest).unwrap().1, vec![1; count]);
        let made = engine.scan_init(in_place(), vec![own; count], op::Max, world);
        let mut scanned = starts_on_boards_allocate_nothing(engine, &words("scan"), made);
        assert_eq!(engine.buffer(&mut scanned).unwrap().1, vec![own; count]);
        let made = engine.alltoall_init(in_place(), vec![own; 2 * count], world);
        let mut swapped = starts_on_boards_allocate_nothing(engine, &words("alltoall"), made);
        assert_eq!(engine.buffer(&mut swapped).unwrap().1, [vec![0; count], vec![1; count]].concat());
        let made = engine.allreduce_init(packed(own, count), packed(0, count), op::on_structs(better), world);
        let mut best = starts_on_boards_allocate_nothing(engine, &words("allreduce of packed structs"), made);
        assert!(engine.buffer(&mut best).unwrap().1.unpack().iter().all(|of| of.place == 1));
    }
}
