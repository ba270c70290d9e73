//! Once warm, the message path neither allocates memory nor spawns, despawns or moves an entity.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use bevy_ecs::prelude::Entity;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;
use tickwire::internals::systems::procs::boards::Boards;
use tickwire::internals::traces::{Depths, Event, Message, Ring, Trace, TraceFile};
use tickwire::testing::{Board, Cluster};
use tickwire::{
    Builder, Cartesian, Comm, Datatype, Engine, Limits, Persistent, Pieces, Rank, Rejected, Request, Tag, Test,
    Topology, Typed, op,
};

/// Counts the allocations of a test's thread, while the test asks for it.
struct Counting;

thread_local! {
    static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
}

// SAFETY: everything is handed on to the system's allocator; the counter is a plain cell of the thread.
#[expect(unsafe_code, reason = "an allocator that counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: by the caller's contract.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

fn count() {
    let _ = COUNT.try_with(|count| count.set(count.get().map(|n| n + 1)));
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of allocations and reallocations in a call.
fn allocations(call: impl FnOnce()) -> u64 {
    COUNT.set(Some(0));
    call();
    COUNT.take().unwrap_or(0)
}

/// The entities of every table, in the order of their rows.
fn entities(engine: &Engine) -> Vec<Vec<Entity>> {
    engine.world().storages().tables.iter().map(|table| table.entities().to_vec()).collect()
}

/// Ticks until a request is done.
fn drive<B: tickwire::internals::components::Pieces>(cluster: &mut Cluster, rank: usize, request: &Request<B>) {
    for _ in 0..10_000 {
        if !matches!(cluster.engines[rank].test(request), Ok(Test::Pending)) {
            return;
        }
        cluster.tick_all();
    }
    panic!("not done\n{}", cluster.report());
}

/// Passes one message from 0 to 1 and one back. The buffers are used again for the next round.
fn round(cluster: &mut Cluster, buffers: &mut Vec<Vec<u8>>, expected: bool) {
    let world = cluster.engines[0].comm_world();
    for (from, to) in [(0usize, 1usize), (1, 0)] {
        let (out, into) = (buffers.pop().unwrap(), buffers.pop().unwrap());
        let (source, target) = (Rank(from as u32), Rank(to as u32));
        let (send, receive);
        if expected {
            receive = cluster.engines[to].irecv(into, source, Tag(1), world).unwrap();
            send = cluster.engines[from].isend(out, target, Tag(1), world).unwrap();
        } else {
            send = cluster.engines[from].isend(out, target, Tag(1), world).unwrap();
            for _ in 0..3 {
                cluster.tick_all();
            }
            receive = cluster.engines[to].irecv(into, source, Tag(1), world).unwrap();
        }
        drive(cluster, to, &receive);
        drive(cluster, from, &send);
        buffers.push(cluster.engines[to].take(receive).unwrap().0);
        buffers.push(cluster.engines[from].take(send).unwrap().0);
    }
}

fn check(mut cluster: Cluster, name: &str) {
    // The invariant checks allocate, so they are off.
    cluster.checked = false;
    for (kind, length, expected) in [
        ("eager, expected", 64, true),
        ("eager, unexpected", 64, false),
        ("eager of 3 KiB, expected", 3 << 10, true),
        ("eager of 3 KiB, unexpected", 3 << 10, false),
        ("large, expected", 200_000, true),
        ("large, unexpected", 200_000, false),
    ] {
        let mut buffers = vec![vec![1u8; length], vec![0u8; length]];
        (0..20).for_each(|_| round(&mut cluster, &mut buffers, expected));
        let before: Vec<_> = cluster.engines.iter().map(entities).collect();
        let count = allocations(|| (0..100).for_each(|_| round(&mut cluster, &mut buffers, expected)));
        assert_eq!(count, 0, "allocations of 200 messages over {name}, {kind}");
        let after: Vec<_> = cluster.engines.iter().map(entities).collect();
        assert!(before == after, "entities stay where they are over {name}, {kind}");
    }
    cluster.assert_at_rest();
}

#[test]
fn the_message_path_over_loopback_allocates_nothing() {
    check(Cluster::loopback(2), "loopback");
}

#[test]
fn the_message_path_over_shared_memory_allocates_nothing() {
    check(Cluster::shm(2), "shared memory");
}

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

#[test]
fn starting_a_persistent_block_allocates_nothing() {
    // Rings have their full size from the start, because growing allocates.
    let long = |builder: Builder| {
        let limits = Limits::default();
        builder.limits(Limits { first_ring_bytes: limits.ring_bytes, ..limits })
    };
    for (mut cluster, name) in [(Cluster::loopback(3), "loopback"), (Cluster::shm_with(3, long), "shared memory")] {
        cluster.checked = false;
        let world = cluster.engines[0].comm_world();
        for count in [1usize, 4000, 100_000] {
            let [first, middle, last] = &mut cluster.engines[..] else { panic!("three engines") };
            let first = first.gather_block(Rank(1), Tag(1), world).send(vec![1u64; count]).send(vec![2u8; 8 * count]);
            let middle =
                middle.scatter_block(Rank(0), Tag(1), world).recv_op_forward(vec![1u64; count], op::Sum, Rank(2));
            let middle = middle.forward(8 * count, Rank(2)).persistent().unwrap();
            let last = last.scatter_block(Rank(1), Tag(1), world).recv(vec![0u64; count]).recv(vec![0u8; 8 * count]);
            let (first, mut last) = (first.persistent().unwrap(), last.persistent().unwrap());
            let mut start = || {
                cluster.engines[2].start(&last).unwrap();
                cluster.engines[1].start(&middle).unwrap();
                cluster.engines[0].start(&first).unwrap();
                for _ in 0..10_000 {
                    let [one, two, three] = &mut cluster.engines[..] else { panic!("three engines") };
                    let pending = [one.test(&first).unwrap(), two.test(&middle).unwrap(), three.test(&last).unwrap()];
                    if !pending.contains(&Test::Pending) {
                        return;
                    }
                    cluster.tick_all();
                }
                panic!("not done\n{}", cluster.report());
            };
            (0..20).for_each(|_| start());
            let allocated = allocations(|| (0..100).for_each(|_| start()));
            assert_eq!(allocated, 0, "allocations of 100 starts over {name}, {count} elements");
            let ((_, sums), bytes) = cluster.engines[2].buffer(&mut last).unwrap();
            assert!(bytes.iter().all(|of| *of == 2) && sums.iter().all(|of| *of == 121), "each start adds one");
        }
        cluster.tick_times(100);
        cluster.assert_at_rest();
    }
}

/// Writes events of ticks that move bytes.
fn tell(trace: &mut Trace, ticks: std::ops::Range<u64>) {
    for at_ns in ticks {
        let work = tickwire::Work::default();
        trace.record(&Event::Delivered { begin_ns: at_ns, read_ns: at_ns, end_ns: at_ns, work });
        trace.record(&Event::TickBegan { at_ns });
        trace.record(&Event::SystemRan { system: 1, rows: 1, begin_ns: at_ns, end_ns: at_ns });
        let message = Message { proc: 1, context: 2, tag: 3, bytes: 4, number: at_ns, begin_ns: at_ns, end_ns: at_ns };
        trace.record(&Event::Sent(message));
        let transport = if at_ns % 2 == 0 { "loopback" } else { "shm" }.into();
        trace.record(&Event::Moved { transport, sent_bytes: at_ns, received_bytes: 0, at_ns });
        let depths = Depths { cars: at_ns, ..Depths::default() };
        trace.record(&Event::TickEnded { at_ns, work, passes: 1, depths });
        trace.record(&Event::Received(message));
        trace.record(&Event::Waiting { depths, at_ns });
    }
}

#[test]
fn events_in_memory_and_in_a_file_allocate_nothing() {
    let path = tickwire_tests::scratch::path("allocations");
    let file = Trace::new(TraceFile::create_part(&path).unwrap());
    for mut trace in [Trace::new(Ring::new(500)), file] {
        tell(&mut trace, 0..200);
        assert_eq!(allocations(|| tell(&mut trace, 200..5000)), 0);
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn the_datatype_of_a_struct_is_made_once() {
    #[derive(Clone, Copy, Default, Datatype)]
    struct Particle {
        place: [f64; 3],
        #[datatype(skip)]
        _mark: bool,
        number: u32,
    }
    let particles = [Particle::default(); 4];
    let typed = || Typed::all(&particles[..]).unwrap().size();
    assert_eq!(typed(), 4 * 28);
    assert_eq!(allocations(|| assert_eq!(typed(), 4 * 28)), 1, "where the elements of this buffer are");
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))), 1);
}
