//! Once warm, the message path neither allocates memory nor spawns, despawns or moves an entity.

#![allow(clippy::unwrap_used, clippy::result_large_err, reason = "what cannot be done fails the test")]

use bevy_ecs::prelude::Entity;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tickwire::internals::traces::{Depths, Event, Message, Ring, Trace, TraceFile};
use tickwire::testing::Cluster;
use tickwire::{Builder, Datatype, Engine, Limits, Rank, Request, Tag, Test, Typed, op};

mod collectives;

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

/// An engine also counts its rows for other processes now and then. The first counts after a connection allocate nothing either.
#[test]
fn ticks_of_engines_that_have_just_connected_allocate_nothing() {
    for mut cluster in [Cluster::loopback(3), Cluster::shm(3)] {
        cluster.checked = false;
        let begin = |engine: &mut Engine| {
            let world = engine.comm_world();
            engine.ibarrier(world).unwrap()
        };
        let begun: Vec<_> = cluster.engines.iter_mut().map(begin).collect();
        begun.iter().enumerate().for_each(|(rank, request)| drive(&mut cluster, rank, request));
        assert_eq!(allocations(|| cluster.tick_times(10_000)), 0, "in a second of virtual time");
    }
}

/// Limits with rings that have their full size from the start, because growing allocates.
fn with_long_rings() -> Limits {
    let limits = Limits::default();
    Limits { first_ring_bytes: limits.ring_bytes, ..limits }
}

#[test]
fn starting_a_persistent_block_allocates_nothing() {
    let long = |builder: Builder| builder.limits(with_long_rings());
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
