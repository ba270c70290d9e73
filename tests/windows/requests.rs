//! Requests of one-sided operations work like all other requests: they have callbacks, wake futures, and can be waited
//! for together with others.

use crate::kit::{ALL, FABRICS, Over, PATIENCE, each_of, each_rank, over_fabric, values};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;
use tickwire::internals::components::NIL;
use tickwire::internals::components::limits::LOOPBACK_RING_BYTES;
use tickwire::transport::Hub;
use tickwire::{
    Comm, Datatype, Engine, ProcId, Rank, RegionAccess, Request, RequestError, Status, Tag, Typed, WindowReach, op,
};
use tickwire_tests::one_sided::{KINDS, Parts};
use tickwire_tests::systems::SeenEnds;

/// Elements of an operation. If it goes in frames, it takes several.
const COUNT: usize = 3_000;

/// Counts how often it is called.
#[derive(Default)]
struct Bell(AtomicU32);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// How requests have ended, with their index in the test's list.
type Ends = Arc<Mutex<Vec<(usize, Result<Status, RequestError>)>>>;

/// Ticks until a condition holds.
fn until(engine: &mut Engine, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        engine.tick();
        std::thread::yield_now();
    }
}

/// Waits for requests in all ways that exist. All of them must succeed. Returns their buffers.
fn heard(engine: &mut Engine, requests: Vec<Request<Vec<u64>>>) -> Vec<Vec<u64>> {
    let calls = Ends::default();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    let mut futures = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        let calls = calls.clone();
        engine.on_complete(request, move |end| calls.lock().unwrap().push((place, end))).unwrap();
        futures.push(engine.completion(request).unwrap());
    }
    let sleeping =
        futures.iter_mut().filter_map(|future| Pin::new(future).poll(&mut context).is_pending().then_some(()));
    let sleeping = sleeping.count() as u32;
    assert!(calls.lock().unwrap().is_empty(), "by a tick, not by a call");
    until(engine, "all are called", || calls.lock().unwrap().len() == requests.len());
    until(engine, "all are woken", || bell.0.load(Ordering::Relaxed) == sleeping);
    for future in &mut futures {
        assert!(matches!(Pin::new(future).poll(&mut context), Poll::Ready(Ok(_))));
    }
    let mut called: Vec<usize> =
        calls.lock().unwrap().drain(..).map(|(place, end)| end.map(|_| place).unwrap()).collect();
    called.sort_unstable();
    assert!(called.into_iter().eq(0..requests.len()), "each once");
    // Waits again, now with the call that waits for any of several requests.
    let mut buffers = vec![Vec::new(); requests.len()];
    let mut open: Vec<_> = requests.into_iter().map(Some).collect();
    while let Some((place, _)) = engine.wait_any(&open).unwrap() {
        let request = open[place].take().unwrap();
        assert_eq!(engine.cancel(&request), Ok(false), "it is done");
        buffers[place] = engine.take(request).unwrap().0;
    }
    buffers
}

fn each_way(part: impl Fn(&mut Engine, u32, Comm, Over) + Sync) {
    for over in ALL.into_iter().chain([FABRICS[0]]) {
        each_rank(2, over, |engine, rank, world| part(engine, rank, world, over));
    }
}

#[test]
fn requests_of_windows_are_heard_of_in_all_ways() {
    each_way(|engine, rank, world, over| {
        let other = Rank(1 - rank);
        for kind in KINDS {
            let parts = Parts::make(engine, kind, 4 * COUNT, world).unwrap();
            let (window, at) = (parts.window, |number: usize| parts.at(other, number * COUNT));
            engine.win_lock_all(window).unwrap();
            let puts = (0..3).map(|n| engine.rput(values(n as u32, COUNT), other, at(n), window).unwrap()).collect();
            assert_eq!(heard(engine, puts).len(), 3);
            let mut requests = vec![engine.raccumulate(vec![1; COUNT], op::Sum, other, at(3), window).unwrap()];
            requests.extend((0..3).map(|n| engine.rget(vec![0; COUNT], other, at(n), window).unwrap()));
            let found = heard(engine, requests);
            for (place, found) in found[1..].iter().enumerate() {
                assert_eq!(*found, values(place as u32, COUNT), "{over:?}, {kind}");
            }
            // An operation with two buffers, beside a message.
            let both = engine.rget_accumulate(vec![2; COUNT], vec![0; COUNT], op::Sum, other, at(3), window).unwrap();
            let sent = engine.isend([rank; 4], other, Tag(1), world).unwrap();
            let message = engine.irecv([9u32; 4], other, Tag(1), world).unwrap();
            let (ends, mut expected) = (Arc::new(AtomicU32::new(0)), 0);
            for id in [both.id(), sent.id(), message.id()].into_iter().filter(|id| id.row != NIL) {
                let ends = ends.clone();
                let note = move |end: Result<Status, RequestError>| {
                    ends.fetch_add(u32::from(end.is_ok()), Ordering::Relaxed);
                };
                engine.on_complete(&id, note).unwrap();
                expected += 1;
            }
            let (_, old) = engine.wait_take(both).unwrap().0;
            assert_eq!(old, [1; COUNT]);
            engine.wait_take(message).unwrap();
            engine.wait_take(sent).unwrap();
            until(engine, "all are called", || ends.load(Ordering::Relaxed) == expected);
            // The engine also completes an operation whose request was dropped.
            let shared: Arc<[u64]> = vec![7; COUNT].into();
            let detached = engine.rput(shared.clone(), other, at(0), window).unwrap();
            assert_eq!(engine.cancel(&detached), Ok(false), "an operation goes on");
            drop(detached);
            engine.win_flush(other, window).unwrap();
            until(engine, "the buffer is freed", || Arc::strong_count(&shared) == 1);
            let mut got = vec![0; COUNT];
            engine.get(&mut got, other, at(0), window).unwrap();
            assert_eq!(got, [7; COUNT], "{over:?}, {kind}");
            engine.win_unlock_all(window).unwrap();
            engine.win_free(window).unwrap();
        }
    });
}

#[test]
fn requests_of_exposed_memory_are_heard_of_in_all_ways() {
    each_way(|engine, rank, world, over| {
        let region = engine.expose(vec![0u64; 3 * COUNT], RegionAccess::ALL).unwrap();
        let mut keys = [region.key(); 2];
        engine.allgather(&[region.key()], &mut keys, world).unwrap();
        // The keys include that of the own memory.
        for key in &keys {
            let at = |number: usize| (number * COUNT + rank as usize * COUNT / 2) * size_of::<u64>();
            let part = COUNT / 2;
            let puts = (0..3).map(|n| engine.region_rput(values(n as u32, part), key, at(n)).unwrap()).collect();
            heard(engine, puts);
            let gets = (0..3).map(|n| engine.region_rget(vec![0; part], key, at(n)).unwrap()).collect();
            for (place, found) in heard(engine, gets).iter().enumerate() {
                assert_eq!(*found, values(place as u32, part), "{over:?}");
            }
        }
        engine.region_flush_all().unwrap();
        engine.barrier(world).unwrap();
        engine.withdraw(region).unwrap();
        engine.barrier(world).unwrap();
        // An operation with a stale key ends in an error. The callback gets this error too.
        let other = &keys[1 - rank as usize];
        let late = engine.region_rget(vec![3; COUNT], other, 0).unwrap();
        let told: Arc<Mutex<Option<Result<Status, RequestError>>>> = Arc::default();
        let teller = told.clone();
        engine.on_complete(&late, move |end| *teller.lock().unwrap() = Some(end)).unwrap();
        until(engine, "it is told", || told.lock().unwrap().is_some());
        let told = told.lock().unwrap().take();
        match over {
            Over::Fabric(_) => assert!(matches!(told, Some(Err(RequestError::Fabric { .. }))), "{over:?} {told:?}"),
            _ => assert_eq!(told, Some(Err(RequestError::OutOfBounds)), "{over:?}"),
        }
        let failed = engine.take(late).unwrap_err();
        assert_eq!((Some(Err(failed.error)), failed.buffer), (told, Some(vec![3; COUNT])));
        let _ = engine.region_flush(ProcId(1 - rank));
        engine.barrier(world).unwrap();
    });
}

#[test]
fn what_a_put_with_a_request_wrote_is_there_for_all_when_it_is_done() {
    for over in ALL {
        each_rank(3, over, |engine, rank, world| {
            for kind in KINDS {
                let parts = Parts::make(engine, kind, 1, world).unwrap();
                engine.win_lock_all(parts.window).unwrap();
                engine.barrier(world).unwrap();
                for round in 1..50 {
                    let target = Rank(1);
                    if rank == 0 {
                        let put = engine.rput(vec![round], target, parts.at(target, 0), parts.window).unwrap();
                        engine.wait_take(put).unwrap();
                        engine.send(&[0u8], Rank(2), Tag(1), world).unwrap();
                    } else if rank == 2 {
                        let mut found = [0];
                        engine.recv(&mut [0u8], Rank(0), Tag(1), world).unwrap();
                        engine.get(&mut found, target, parts.at(target, 0), parts.window).unwrap();
                        assert_eq!(found, [round], "{over:?}, {kind}");
                    }
                    engine.barrier(world).unwrap();
                }
                engine.win_unlock_all(parts.window).unwrap();
                engine.win_free(parts.window).unwrap();
            }
        });
    }
}

/// The target's engine or a fabric does these operations, so they are not done when they are posted.
#[test]
fn a_local_flush_waits_until_buffers_may_be_used_again() {
    const COUNT: usize = 200_000;
    for over in [Over::Loopback, Over::Short].into_iter().chain(FABRICS) {
        each_rank(2, over, |engine, rank, world| {
            let window = engine.win_allocate::<u64>(COUNT, world).unwrap();
            engine.win_write(&values(rank, COUNT)[..], 0, window).unwrap();
            let region = engine.expose(values(rank, COUNT), RegionAccess::ALL).unwrap();
            let mut keys = vec![region.key(); 2];
            engine.allgather(&[region.key()], &mut keys, world).unwrap();
            let (other, key) = (1 - rank, keys[1 - rank as usize]);
            engine.win_lock_all(window).unwrap();
            engine.barrier(world).unwrap();
            for all in [false, true] {
                let got = engine.rget(vec![0; COUNT], Rank(other), 0, window).unwrap();
                match all {
                    false => engine.win_flush_local(Rank(other), window).unwrap(),
                    true => engine.win_flush_local_all(window).unwrap(),
                }
                assert!(engine.test(&got).unwrap().is_done(), "{over:?}");
                assert!(engine.wait_take(got).unwrap().0 == values(other, COUNT));
                let got = engine.region_rget(vec![0u64; COUNT], &key, 0).unwrap();
                match all {
                    false => engine.region_flush_local(ProcId(other)).unwrap(),
                    true => engine.region_flush_local_all().unwrap(),
                }
                assert!(engine.test(&got).unwrap().is_done(), "{over:?}");
                assert!(engine.wait_take(got).unwrap().0 == values(other, COUNT));
            }
            engine.barrier(world).unwrap();
            engine.win_unlock_all(window).unwrap();
            engine.win_free(window).unwrap();
            engine.withdraw(region).unwrap();
        });
    }
}

/// A short put by the kernel is left for the target, and only what waits ends it. Operations with a request are done at once beside it.
#[test]
fn operations_with_a_request_wait_for_no_earlier_put() {
    each_rank(2, Over::Shm, |engine, rank, world| {
        let window = engine.win_create(vec![0u64; 16], world).unwrap();
        let other = Rank(1 - rank);
        assert_eq!(engine.win_reach(other, window), Ok(WindowReach::Kernel));
        engine.win_lock_all(window).unwrap();
        let counts = |engine: &mut Engine| {
            let counts = engine.win_counts(other, window).unwrap();
            (counts.issued, counts.completed)
        };
        engine.put(&[1], other, 0, window).unwrap();
        assert_eq!(counts(engine), (1, 0), "it is left");
        let put = engine.rput(vec![2u64, 3], other, 1, window).unwrap();
        assert_eq!(counts(engine), (2, 1));
        let got = engine.rget(vec![0u64; 2], other, 1, window).unwrap();
        assert_eq!((counts(engine), engine.wait_take(got).unwrap().0), ((3, 2), vec![2, 3]));
        let (number, every_second) =
            (Datatype::of::<u64>(), Datatype::vector(2, 1, 2, &Datatype::of::<u64>()).unwrap());
        // One run, and several.
        for (place, of, count) in [(4, &number, 2), (8, &every_second, 1)] {
            let before = counts(engine);
            let from = Typed::new(vec![place as u64, 9], &number, 2).unwrap();
            let typed = engine.rput_typed(from, other, place, (of, count), window).unwrap();
            let into = Typed::new(vec![0u64; 2], &number, 2).unwrap();
            let back = engine.rget_typed(into, other, place, (of, count), window).unwrap();
            assert_eq!(counts(engine), (before.0 + 2, before.1 + 2), "{count} of {of:?}");
            assert_eq!(engine.wait_take(back).unwrap().0.into_buffer(), [place as u64, 9]);
            engine.wait_take(typed).unwrap();
        }
        engine.wait_take(put).unwrap();
        engine.win_flush(other, window).unwrap();
        assert_eq!(counts(engine), (7, 7));
        engine.win_unlock_all(window).unwrap();
        engine.barrier(world).unwrap();
        let part: Vec<u64> = engine.win_take(window).unwrap().expect("it is a Vec");
        assert_eq!(part, [1, 2, 3, 0, 4, 9, 0, 0, 8, 0, 9, 0, 0, 0, 0, 0]);
    });
}

/// Where the target's engine or a fabric performs them, the last step is in the origin's engine.
#[test]
fn systems_of_the_application_see_operations_end_in_complete() {
    let hub = Hub::new(2, LOOPBACK_RING_BYTES).apart();
    for over in [Over::Loopback, Over::Fabric("tcp;ofi_rxm")] {
        let seen_ends = [SeenEnds::default(), SeenEnds::default()];
        let builder = |rank: u32| {
            let builder = match over {
                Over::Fabric(provider) => over_fabric(provider, 1),
                _ => Engine::builder().include(["loopback"]).hub(hub.clone()),
            };
            seen_ends[rank as usize].add_to(builder)
        };
        each_of(2, builder, |engine, rank, world| {
            let window = engine.win_allocate::<u64>(COUNT, world).unwrap();
            engine.win_lock_all(window).unwrap();
            if rank == 0 {
                let seen = &seen_ends[0];
                let put = |engine: &mut Engine| engine.rput(vec![5; COUNT], Rank(1), 0, window).unwrap();
                let get = |engine: &mut Engine| engine.rget(vec![0; COUNT], Rank(1), 0, window).unwrap();
                let add =
                    |engine: &mut Engine| engine.raccumulate(vec![2; COUNT], op::Sum, Rank(1), 0, window).unwrap();
                let mut results = Vec::new();
                for post in [&put as &dyn Fn(&mut Engine) -> Request<Vec<u64>>, &add, &get] {
                    seen.forget();
                    let request = post(engine);
                    engine.wait(&request).unwrap();
                    seen.check(1);
                    results.push(engine.take(request).unwrap().0);
                    engine.win_flush(Rank(1), window).unwrap();
                }
                assert_eq!(results[2], vec![7; COUNT], "{over:?}");
            }
            engine.win_unlock_all(window).unwrap();
            engine.barrier(world).unwrap();
            engine.win_free(window).unwrap();
        });
    }
}
