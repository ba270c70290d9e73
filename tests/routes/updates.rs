//! Updates by a fabric that cannot connect. One fabric does all updates of a region, so no other one takes its place.

use crate::barred::fabric;
use crate::kit::{Calls, gate};
use crate::pair::{PATIENCE, RING_BYTES, greet, swap_keys};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tickwire::internals::transports::Hub;
use tickwire::testing::Board;
use tickwire::{AtomicsDomain, Comm, Engine, ProcId, Region, RegionAccess, RegionKey, TrafficClass, WindowError, op};
use tickwire_tests::needs::has_libfabric;

/// What each rank exposes.
type Exposed = Region<Vec<u64>>;

/// Runs `part` for each of two ranks, in threads. Messages, puts and gets go over "upper", and updates over "fabric", whose calls have the
/// outcome of each rank. The part gets its own region, the key of the other rank's, and by rank the number of calls over
/// "fabric".
fn ranks(
    provider: &str,
    outcomes: [Calls; 2],
    part: impl Fn(Engine, u32, Comm, (Exposed, RegionKey), &[Arc<AtomicU64>; 2]) + Sync,
) {
    let (board, hub) = (Board::new(2), Hub::new(2, RING_BYTES));
    let calls: [Arc<AtomicU64>; 2] = Default::default();
    std::thread::scope(|threads| {
        for rank in 0..2 {
            let (board, hub, part, calls) = (&board, hub.clone(), &part, &calls);
            threads.spawn(move || {
                let upper = gate("upper", &hub, rank, 200, Calls::Open, Arc::default());
                let outcome = outcomes[rank as usize];
                let fabric = fabric(("fabric", board), provider, rank, 100, outcome, calls[rank as usize].clone());
                let builder = Engine::builder().transport(upper).transport(fabric).exclude(["shm"]);
                let builder = builder.route(TrafficClass::PointToPoint, ["upper"]);
                let builder = builder.route(TrafficClass::OneSided, ["upper"]).route(TrafficClass::Atomics, ["fabric"]);
                let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                let world = engine.comm_world();
                let region = engine.expose(vec![0u64; 4], RegionAccess::ALL).unwrap();
                assert_eq!(region.key().domain(), AtomicsDomain::Fabric);
                let theirs = swap_keys(&mut engine, rank, world, region.key());
                part(engine, rank, world, (region, theirs), calls);
            });
        }
    });
}

/// Whether "fabric" is the route of updates to the other rank, and why it is not.
fn route(engine: &mut Engine, rank: u32) -> (bool, Option<String>) {
    let routes = engine.routes(ProcId(1 - rank), TrafficClass::Atomics);
    assert!(routes.iter().all(|route| !route.chosen || route.transport == "fabric"), "{routes:?}");
    let route = routes.into_iter().find(|route| route.transport == "fabric").unwrap();
    (route.chosen, route.refused)
}

/// Puts and gets, which do not need the fabric.
fn put(engine: &mut Engine, theirs: &RegionKey) {
    engine.region_put(&[7u64], theirs, 8).unwrap();
    engine.region_flush_all().unwrap();
    let mut got = [0u64];
    engine.region_get(&mut got, theirs, 8).unwrap();
    assert_eq!(got, [7]);
}

#[test]
fn updates_whose_fabric_cannot_connect_are_errors_that_say_why() {
    for outcome in [Calls::Refused, Calls::Lost(1), Calls::Lost(20)].into_iter().filter(|_| has_libfabric()) {
        ranks("tcp;ofi_rxm", [outcome; 2], |mut engine, rank, world, (region, theirs), calls| {
            assert_eq!(route(&mut engine, rank), (true, None), "nobody has tried it yet");
            let why = match outcome {
                Calls::Refused => format!("fabric cannot call proc {}", 1 - rank),
                _ => "fabric was not answered".to_owned(),
            };
            for tries in 1..4 {
                let error = engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0).unwrap_err();
                let reason = format!("proc {} cannot be connected to over fabric, which does updates: {why}", 1 - rank);
                assert_eq!(error, WindowError::Fabric { reason });
                assert_eq!(calls[rank as usize].load(Ordering::Relaxed), tries, "each update tries it again");
                assert_eq!(route(&mut engine, rank), (false, Some(format!("it could not connect: {why}"))));
            }
            let back = engine.region_rfetch_and_op(1u64, op::Sum, &theirs, 0).unwrap_err();
            assert!(back.error.to_string().contains(&why), "{}", back.error);
            // All else works: puts and gets, updates of the own memory, messages.
            put(&mut engine, &theirs);
            let own = region.key();
            assert_eq!([0, 1].map(|_| engine.region_fetch_and_op(5u64, op::Sum, &own, 16)), [Ok(0), Ok(5)]);
            greet(&mut engine, rank, world);
            engine.barrier(world).unwrap();
            assert_eq!(engine.withdraw(region).unwrap(), [0, 7, 10, 0], "no update was done");
            engine.finalize(Duration::from_secs(20)).unwrap();
        });
    }
}

#[test]
fn once_the_owner_has_called_over_the_fabric_updates_work() {
    for provider in ["tcp;ofi_rxm", "sockets"].into_iter().filter(|_| has_libfabric()) {
        ranks(provider, [Calls::Refused, Calls::Open], |mut engine, rank, world, (region, theirs), calls| {
            if rank == 0 {
                engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0).unwrap_err();
                assert!(!route(&mut engine, rank).0);
            }
            engine.barrier(world).unwrap();
            if rank == 1 {
                assert_eq!(engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0), Ok(0), "{provider}");
            }
            engine.barrier(world).unwrap();
            for number in 0..50 {
                let before = number + u64::from(rank);
                assert_eq!(engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0), Ok(before), "{provider}");
            }
            assert_eq!(route(&mut engine, rank), (true, None), "{provider}");
            assert_eq!(calls[rank as usize].load(Ordering::Relaxed), 1, "{provider}: the open link is used");
            put(&mut engine, &theirs);
            engine.barrier(world).unwrap();
            assert_eq!(engine.withdraw(region).unwrap()[..2], [51 - u64::from(rank), 7], "{provider}");
            engine.finalize(Duration::from_secs(20)).unwrap();
        });
    }
}

#[test]
fn an_update_that_waits_for_a_connection_ends_with_its_owner() {
    if has_libfabric() {
        ranks("tcp;ofi_rxm", [Calls::Silent, Calls::Open], |mut engine, rank, world, (region, theirs), calls| {
            engine.barrier(world).unwrap();
            if rank == 1 {
                let since = Instant::now();
                while calls[0].load(Ordering::Relaxed) == 0 {
                    assert!(since.elapsed() < PATIENCE, "nobody calls");
                    engine.tick();
                }
                // It is gone without a word, while the other rank waits.
                return;
            }
            let error = engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0).unwrap_err();
            assert!(matches!(error, WindowError::PeerFailed { proc: ProcId(1), .. }), "{error}");
            assert_eq!(calls[0].load(Ordering::Relaxed), 1);
            assert_eq!(engine.region_fetch_and_op(1u64, op::Sum, &region.key(), 0), Ok(0));
        });
    }
}

#[test]
fn of_two_fabrics_for_updates_the_one_that_routes_name_does_them() {
    if !has_libfabric() {
        return;
    }
    // The transports of an engine are in the order in which they were added.
    for priorities in [[90, 150], [150, 90]] {
        let (board, hub) = (Board::new(2), Hub::new(2, RING_BYTES));
        std::thread::scope(|threads| {
            for rank in 0..2 {
                let (board, hub) = (&board, hub.clone());
                threads.spawn(move || {
                    let upper = gate("upper", &hub, rank, 200, Calls::Open, Arc::default());
                    let calls: [Arc<AtomicU64>; 2] = Default::default();
                    let mut builder = Engine::builder().transport(upper).exclude(["shm"]);
                    for (index, name) in ["one", "two"].into_iter().enumerate() {
                        let count = calls[index].clone();
                        let of = fabric((name, board), "tcp;ofi_rxm", rank, priorities[index], Calls::Open, count);
                        builder = builder.transport(of);
                    }
                    let builder = builder.route(TrafficClass::PointToPoint, ["upper"]);
                    let builder = builder.route(TrafficClass::OneSided, ["upper"]);
                    let builder = builder.route(TrafficClass::Atomics, ["one", "two"]);
                    let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                    let world = engine.comm_world();
                    let region = engine.expose(vec![0u64; 4], RegionAccess::ALL).unwrap();
                    let theirs = swap_keys(&mut engine, rank, world, region.key());
                    assert_eq!(engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0), Ok(0));
                    engine.barrier(world).unwrap();
                    let higher = usize::from(priorities[1] > priorities[0]);
                    let routes = engine.routes(ProcId(1 - rank), TrafficClass::Atomics);
                    let chosen = routes.into_iter().find(|route| route.chosen).unwrap();
                    assert_eq!(chosen.transport, ["one", "two"][higher], "{priorities:?}");
                    // Only one of the two ranks may have called.
                    assert_eq!(calls[1 - higher].load(Ordering::Relaxed), 0, "{priorities:?}");
                    assert_eq!(engine.withdraw(region).unwrap()[0], 1);
                    engine.finalize(Duration::from_secs(20)).unwrap();
                });
            }
        });
    }
}
