//! One-sided calls and operations: what a sink is told of them.

use crate::format::{lines, of};
use crate::kit::events;
use crate::operations::{operations, two_of};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tickwire::internals::components::NIL;
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::internals::traces::{About, Access, Event, Ring, Sink, TraceFile};
use tickwire::internals::transports::Hub;
use tickwire::{
    Bootstrap, Datatype, Engine, LockKind, ProcId, Rank, RegionAccess, RegionKey, Tag, Typed, Window, WindowError,
    WindowReach, op,
};
use tickwire_tests::scratch;

/// A one-sided call: its name, target and bytes.
type Call = (String, u32, u64);

/// How ranks reach each other's memory.
const REACHES: [WindowReach; 2] = [WindowReach::Memory, WindowReach::Engine];

/// Runs the same function on two ranks, each on a thread of its own, that reach each other's memory so.
fn two(reach: WindowReach, run: impl Fn(&mut Engine, &Ring) + Sync) -> [Ring; 2] {
    let hub = Hub::new(2, LOOPBACK_RING_BYTES);
    let hub = if reach == WindowReach::Engine { hub.apart() } else { hub };
    two_of(|| Engine::builder().include(["loopback"]).hub(hub.clone()), run)
}

/// The calls on windows or on exposed memory, in the order of their ends, and their window. Checks that their slices are
/// nested, and that all are of one window.
#[track_caller]
fn calls(events: &[Event<'_>]) -> (u32, Vec<Call>) {
    let (mut calls, mut windows, mut spans) = (Vec::new(), Vec::new(), Vec::<(u64, u64)>::new());
    for event in events {
        let Event::Accessed { name, access: Access { window, target, bytes }, begin_ns, end_ns } = event else {
            continue;
        };
        assert!(begin_ns <= end_ns, "{event:?}");
        // A call that has ended before is within this one, or has ended before it began.
        assert!(spans.iter().all(|(begin, end)| begin_ns <= begin || end <= begin_ns), "{event:?}");
        assert!(spans.iter().all(|(_, end)| end <= end_ns), "{event:?}");
        spans.push((*begin_ns, *end_ns));
        windows.push(*window);
        calls.push((name.to_string(), *target, *bytes));
    }
    windows.dedup();
    assert!(windows.len() <= 1, "{windows:?}");
    (windows.first().map_or(NIL, |window| *window), calls)
}

fn call(name: &str, target: u32, bytes: u64) -> Call {
    (name.to_owned(), target, bytes)
}

/// All calls of a rank that move or update elements of the other one's part.
fn moves(engine: &mut Engine, window: Window<u64>) {
    let (other, mut got) = (Rank(1), [0; 3]);
    engine.put(&[1u64, 2, 3], other, 0, window).unwrap();
    engine.get(&mut got, other, 0, window).unwrap();
    assert_eq!(got, [1, 2, 3]);
    engine.accumulate(&[10u64, 10], op::Sum, other, 0, window).unwrap();
    let mut old = [0; 2];
    engine.get_accumulate(&[1u64, 1], &mut old, op::Sum, other, 0, window).unwrap();
    assert_eq!(old, [11, 12]);
    assert_eq!(engine.fetch_and_op(5u64, op::Sum, other, 2, window).unwrap(), 3);
    assert_eq!(engine.compare_and_swap(8u64, 9, other, 2, window).unwrap(), 8);
    let (number, second) = (Datatype::of::<u64>(), Datatype::vector(2, 1, 2, &Datatype::of::<u64>()).unwrap());
    let from = Typed::new(vec![7u64, 8], &number, 2).unwrap();
    engine.put_typed(&from, other, 4, (&second, 1), window).unwrap();
    let mut into = Typed::new(vec![0u64; 2], &number, 2).unwrap();
    engine.get_typed(&mut into, other, 4, (&second, 1), window).unwrap();
    engine.accumulate_typed(&from, op::Sum, other, 4, (&second, 1), window).unwrap();
    engine.get_accumulate_typed((&from, &mut into), op::Sum, other, 4, (&second, 1), window).unwrap();
    engine.win_flush(other, window).unwrap();
    engine.win_flush_local(other, window).unwrap();
    engine.win_flush_all(window).unwrap();
    engine.win_flush_local_all(window).unwrap();
    engine.get(&mut got, other, 4, window).unwrap();
    assert_eq!(got, [21, 0, 24]);
}

#[test]
fn calls_in_a_lock_are_told_with_their_targets_and_bytes() {
    for reach in REACHES {
        let rings = two(reach, |engine, _| {
            let world = engine.comm_world();
            let window = engine.win_allocate::<u64>(8, world).unwrap();
            if engine.rank() == Rank(0) {
                assert_eq!(engine.win_reach(Rank(1), window), Ok(reach));
                assert_eq!(engine.put(&[1u64], Rank(1), 0, window), Err(WindowError::NoEpoch(Rank(1))));
                engine.win_lock(LockKind::Exclusive, Rank(1), window).unwrap();
                moves(engine, window);
                engine.win_unlock(Rank(1), window).unwrap();
            }
            engine.barrier(world).unwrap();
            engine.win_free(window).unwrap();
        });
        let (window, mut told) = calls(&events(&rings[0]));
        assert_ne!(window, NIL);
        // How long a lock was waited for is told where it was not free at once: a remote one never is.
        let waits = told.iter().filter(|(name, ..)| name == "wait for lock").count();
        assert_eq!(waits, usize::from(reach == WindowReach::Engine));
        told.retain(|(name, ..)| name != "wait for lock");
        let moved = [("put", 24), ("get", 24), ("accumulate", 16), ("get_accumulate", 16), ("fetch_and_op", 8)];
        let typed = ["put_typed", "get_typed", "accumulate_typed", "get_accumulate_typed"].map(|name| (name, 16));
        let to_one = |(name, bytes): (&str, u64)| call(name, 1, bytes);
        let mut expected = vec![call("put", 1, 8), call("win_lock", 1, 0)];
        expected.extend(moved.map(to_one).into_iter().chain([call("compare_and_swap", 1, 8)]).chain(typed.map(to_one)));
        expected.extend([call("win_flush", 1, 0), call("win_flush_local", 1, 0)]);
        expected.extend([call("win_flush_all", NIL, 0), call("win_flush_local_all", NIL, 0)]);
        expected.extend([call("get", 1, 24), call("win_unlock", 1, 0)]);
        assert_eq!(told, expected, "{reach:?}");
        assert_eq!(calls(&events(&rings[1])).1, [], "the target is passive");
    }
}

#[test]
fn epochs_in_which_targets_take_part_are_told_on_both_sides() {
    for reach in REACHES {
        let rings = two(reach, |engine, _| {
            let (world, me) = (engine.comm_world(), engine.rank().0);
            let window = engine.win_allocate::<u64>(8, world).unwrap();
            let other = engine.comm_group(world).unwrap().include(&[1 - me]).unwrap();
            engine.win_fence(window).unwrap();
            engine.put(&[1u64, 2], Rank(1 - me), 0, window).unwrap();
            engine.win_fence_last(window).unwrap();
            if me == 0 {
                engine.win_start(&other, window).unwrap();
                engine.put(&[3u64], Rank(1), 0, window).unwrap();
                engine.win_complete(window).unwrap();
            } else {
                engine.win_post(&other, window).unwrap();
                engine.win_wait(window).unwrap();
                engine.win_post(&other, window).unwrap();
                while !engine.win_test(window).unwrap() {
                    engine.tick();
                }
            }
            if me == 0 {
                engine.win_start(&other, window).unwrap();
                engine.win_complete(window).unwrap();
            }
            engine.win_lock_all(window).unwrap();
            engine.win_unlock_all(window).unwrap();
            engine.barrier(world).unwrap();
            engine.win_free(window).unwrap();
        });
        let [first, second] = rings.map(|ring| {
            let (window, mut told) = calls(&events(&ring));
            told.retain(|(name, ..)| name != "wait for lock");
            (window, told)
        });
        assert!(first.0 == second.0 && first.0 != NIL, "the window has one context word");
        let on = |name: &str| call(name, NIL, 0);
        let fences = |other| [on("win_fence"), call("put", other, 16), on("win_fence_last")];
        let access = [on("win_start"), call("put", 1, 8), on("win_complete"), on("win_start"), on("win_complete")];
        let exposure = ["win_post", "win_wait", "win_post", "win_test"].map(on);
        let all = [on("win_lock_all"), on("win_unlock_all")];
        assert_eq!(first.1, [&fences(1)[..], &access, &all].concat(), "{reach:?}");
        assert_eq!(second.1, [&fences(0)[..], &exposure, &all].concat(), "{reach:?}");
    }
}

/// Begin and end of the only call of this name.
#[track_caller]
fn span(events: &[Event<'_>], called: &str) -> (u64, u64) {
    let spans = events.iter().filter_map(|event| match event {
        Event::Accessed { name, begin_ns, end_ns, .. } if name == called => Some((*begin_ns, *end_ns)),
        _ => None,
    });
    let [span] = spans.collect::<Vec<_>>()[..] else { panic!("not one {called}") };
    span
}

#[test]
fn how_long_a_lock_was_waited_for_is_told() {
    for reach in REACHES {
        let (meet, waits) = (Barrier::new(2), Arc::new(AtomicBool::new(false)));
        let rings = two(reach, |engine, _| {
            let world = engine.comm_world();
            let window = engine.win_allocate::<u64>(8, world).unwrap();
            if engine.rank() == Rank(0) {
                // The message can only be taken by the call that waits for the lock.
                let begun = engine.irecv([0u8; 1], Rank(1), Tag(1), world).unwrap();
                let waits = waits.clone();
                engine.on_complete(&begun, move |_| waits.store(true, Ordering::Relaxed)).unwrap();
                meet.wait();
                engine.win_lock(LockKind::Exclusive, Rank(1), window).unwrap();
                engine.win_unlock(Rank(1), window).unwrap();
            } else {
                engine.win_lock(LockKind::Exclusive, Rank(1), window).unwrap();
                meet.wait();
                engine.send(&[1u8], Rank(0), Tag(1), world).unwrap();
                while !waits.load(Ordering::Relaxed) {
                    engine.tick();
                }
                engine.win_unlock(Rank(1), window).unwrap();
            }
            engine.barrier(world).unwrap();
            engine.win_free(window).unwrap();
        });
        let [first, second] = rings.map(|ring| events(&ring));
        let (lock, wait, release) =
            (span(&first, "win_lock"), span(&first, "wait for lock"), span(&second, "win_unlock"));
        assert!(lock.0 <= wait.0 && wait.1 <= lock.1, "{lock:?} {wait:?}");
        assert!(
            wait.0 <= release.0 && release.0 <= wait.1,
            "{wait:?} {release:?}: it waited until the lock was released"
        );
    }
}

#[test]
fn operations_with_requests_are_told_until_they_are_done() {
    for reach in REACHES {
        let (meet, is_locked) = (Barrier::new(2), AtomicBool::new(false));
        let rings = two(reach, |engine, ring| {
            let world = engine.comm_world();
            let window = engine.win_allocate::<u64>(8, world).unwrap();
            let other = Rank(1);
            if engine.rank() == Rank(0) {
                engine.win_lock(LockKind::Shared, other, window).unwrap();
                is_locked.store(true, Ordering::Relaxed);
                // The other rank does not tick meanwhile.
                meet.wait();
                let put = engine.rput(vec![1u64, 2, 3], other, 0, window).unwrap();
                let got = engine.rget(vec![0u64; 3], other, 0, window).unwrap();
                let open = operations(&events(ring)).iter().filter(|told| told.end_ns.is_none()).count();
                assert_eq!(open, if reach == WindowReach::Engine { 2 } else { 0 }, "{reach:?}");
                meet.wait();
                engine.wait_take(put).unwrap();
                assert_eq!(engine.wait_take(got).unwrap().0, [1, 2, 3]);
                let sum = engine.raccumulate(vec![1u64], op::Sum, other, 0, window).unwrap();
                engine.wait_take(sum).unwrap();
                let both = (vec![1u64], vec![0u64]);
                let old = engine.rget_accumulate(both.0, both.1, op::Sum, other, 0, window).unwrap();
                assert_eq!(engine.wait_take(old).unwrap().0.1, [2]);
                let from = Typed::new(vec![7u64, 8], &Datatype::of::<u64>(), 2).unwrap();
                let second = Datatype::vector(2, 1, 2, &Datatype::of::<u64>()).unwrap();
                let typed = engine.rput_typed(from, other, 4, (&second, 1), window).unwrap();
                engine.wait(&typed).unwrap();
                engine.rput(vec![1u64], other, 8, window).unwrap_err();
                engine.win_unlock(other, window).unwrap();
            } else {
                // Who locks this part needs its engine for that.
                while !is_locked.load(Ordering::Relaxed) {
                    engine.tick();
                }
                meet.wait();
                meet.wait();
            }
            engine.barrier(world).unwrap();
            engine.win_free(window).unwrap();
        });
        let told = operations(&events(&rings[0]));
        let (window, of_calls) = calls(&events(&rings[0]));
        let expected =
            [("rput", 24), ("rget", 24), ("raccumulate", 8), ("rget_accumulate", 8), ("rput_typed", 16), ("rput", 8)];
        let about = |bytes| About::Memory(Access { window, target: 1, bytes });
        let brief: Vec<_> = told.iter().map(|told| (&*told.name, told.about)).collect();
        assert_eq!(brief, expected.map(|(name, bytes)| (name, about(bytes))), "{reach:?}");
        assert!(told.iter().all(|told| told.end_ns.is_some()), "{told:?}");
        assert!(of_calls.iter().all(|(name, ..)| name.contains("lock")), "each is told once: {of_calls:?}");
    }
}

#[test]
fn calls_on_exposed_memory_are_told_with_its_owner() {
    for reach in [WindowReach::Memory, WindowReach::Engine] {
        let rings = two(reach, |engine, _| {
            let (world, owner) = (engine.comm_world(), ProcId(1));
            let region = engine.expose(vec![0u64; 8], RegionAccess::ALL).unwrap();
            let mut keys = [region.key(); 2];
            engine.allgather(&[region.key()], &mut keys, world).unwrap();
            if engine.rank() == Rank(0) {
                on_region(engine, &keys[1], owner);
            }
            engine.barrier(world).unwrap();
            engine.withdraw(region).unwrap();
        });
        let told = events(&rings[0]);
        let (window, of_calls) = calls(&told);
        let expected = [
            call("region_put", 1, 16),
            call("region_get", 1, 16),
            call("region_fetch_and_op", 1, 8),
            call("region_compare_and_swap", 1, 8),
            call("region_flush", 1, 0),
            call("region_flush_local", 1, 0),
            call("region_flush_all", NIL, 0),
            call("region_flush_local_all", NIL, 0),
        ];
        assert_eq!((window, &of_calls[..]), (NIL, &expected[..]), "{reach:?}");
        let about = |bytes| About::Memory(Access { window: NIL, target: 1, bytes });
        let posted = [
            ("region_rput", about(24)),
            ("region_rget", about(24)),
            ("region_rfetch_and_op", about(8)),
            ("region_rcompare_and_swap", about(8)),
        ];
        let told = operations(&told);
        assert_eq!(told.iter().map(|told| (&*told.name, told.about)).collect::<Vec<_>>(), posted, "{reach:?}");
        assert!(told.iter().all(|told| told.end_ns.is_some()), "{told:?}");
        assert_eq!(calls(&events(&rings[1])).1, [], "the owner is passive");
    }
}

/// All calls on exposed memory of another proc.
fn on_region(engine: &mut Engine, key: &RegionKey, owner: ProcId) {
    engine.region_put(&[1u64, 2], key, 0).unwrap();
    let mut got = [0u64; 2];
    engine.region_get(&mut got, key, 0).unwrap();
    assert_eq!(got, [1, 2]);
    assert_eq!(engine.region_fetch_and_op(2u64, op::Sum, key, 8).unwrap(), 2);
    assert_eq!(engine.region_compare_and_swap(4u64, 5, key, 8).unwrap(), 4);
    engine.region_flush(owner).unwrap();
    engine.region_flush_local(owner).unwrap();
    engine.region_flush_all().unwrap();
    engine.region_flush_local_all().unwrap();
    let put = engine.region_rput(vec![1u64, 2, 3], key, 0).unwrap();
    engine.wait_take(put).unwrap();
    let got = engine.region_rget(vec![0u64; 3], key, 0).unwrap();
    assert_eq!(engine.wait_take(got).unwrap().0, [1, 2, 3]);
    let sum = engine.region_rfetch_and_op(1u64, op::Sum, key, 0).unwrap();
    assert_eq!(engine.wait_take(sum).unwrap().0.1, [1]);
    let swap = engine.region_rcompare_and_swap(2u64, 9, key, 0).unwrap();
    assert_eq!(engine.wait_take(swap).unwrap().0.1, [2]);
}

#[test]
fn a_trace_file_has_slices_of_one_sided_calls_and_of_operations() {
    let path = scratch::path("traces-one-sided");
    let mut engine = Engine::builder().trace(TraceFile::create(&path).unwrap()).build(Bootstrap::solo()).unwrap();
    let (me, world) = (engine.rank(), engine.comm_world());
    let window = engine.win_allocate::<u64>(8, world).unwrap();
    engine.win_fence(window).unwrap();
    engine.put(&[1u64, 2], me, 0, window).unwrap();
    let put = engine.rput(vec![1u64], me, 0, window).unwrap();
    engine.wait_take(put).unwrap();
    engine.win_fence_last(window).unwrap();
    let sum = engine.iallreduce(vec![1u64], vec![0u64], op::Sum, world).unwrap();
    engine.wait_take(sum).unwrap();
    engine.win_free(window).unwrap();
    engine.finalize(Duration::from_secs(10)).unwrap();
    let lines = lines(&path);
    let tracks = |line: &&Value| line["name"] == "thread_name" && line["args"]["name"] == "one-sided";
    let track = &of(&lines, "M").find(tracks).unwrap()["tid"];
    let slices: Vec<_> = of(&lines, "X").filter(|line| line["tid"] == *track).collect();
    let names: Vec<_> = slices.iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["win_fence", "put", "win_fence_last"]);
    let window = &slices[0]["args"]["window"];
    assert!(window.is_u64());
    assert_eq!(slices[1]["args"], json!({"window": window, "target": 0, "bytes": 16}));
    let [begun, ended] = ["b", "e"].map(|phase| of(&lines, phase).collect::<Vec<_>>());
    let names: Vec<_> = begun.iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!((names, ended.len()), (vec!["rput", "allreduce"], 2));
    assert_eq!(begun[0]["args"], json!({"window": window, "target": 0, "bytes": 8}));
    assert!(begun[1]["args"]["context"].is_u64());
}

/// A sink that panics when the first operation starts, and counts those that start later.
struct BreaksOnce(Arc<AtomicU32>);

impl Sink for BreaksOnce {
    fn record(&mut self, event: &Event<'_>) {
        let is_start = matches!(event, Event::Started { name, .. } if name == "rput");
        assert!(!is_start || self.0.fetch_add(1, Ordering::Relaxed) != 0, "the sink is broken");
    }
}

#[test]
fn operations_are_told_after_a_sink_has_panicked() {
    let starts = Arc::new(AtomicU32::new(0));
    let mut engine = Engine::builder().trace(BreaksOnce(starts.clone())).build(Bootstrap::solo()).unwrap();
    let window = engine.win_allocate::<u64>(1, engine.comm_world()).unwrap();
    engine.win_lock(LockKind::Shared, Rank(0), window).unwrap();
    let put =
        |engine: &mut Engine| engine.rput(vec![7u64], Rank(0), 0, window).map(|request| engine.wait_take(request));
    assert!(catch_unwind(AssertUnwindSafe(|| put(&mut engine))).is_err());
    for told in 2..4 {
        put(&mut engine).unwrap().unwrap();
        assert_eq!(starts.load(Ordering::Relaxed), told);
    }
    engine.win_unlock(Rank(0), window).unwrap();
}
