//! Updates of exposed memory by a fabric.

use crate::kit::{Calls, Gate, gate};
use crate::pair::{PATIENCE, RING_BYTES, all_chosen, dumped, greet, pair, put_by_kernel, swap_keys};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tickwire::internals::transports::Hub;
use tickwire::testing::Board;
use tickwire::{AtomicsDomain, Builder, Engine, ProcId, RegionAccess, RegionKey, TrafficClass, op};
use tickwire_tests::needs::has_libfabric;

/// Adds a fabric for updates to all other transports.
fn with_atomics(provider: &str) -> impl Fn(Builder) -> Builder + Sync {
    let name = format!("ofi:{provider}");
    move |builder| {
        let names = ["loopback", "shm", &name];
        builder.include(names).route(TrafficClass::PointToPoint, ["shm"]).route(TrafficClass::Atomics, [&*name])
    }
}

#[test]
fn updates_of_regions_go_over_a_fabric_beside_puts_and_gets_over_shared_memory() {
    const EACH: u64 = 200;
    for provider in ["tcp;ofi_rxm", "sockets"].into_iter().filter(|_| has_libfabric()) {
        pair(with_atomics(provider), |engine, rank, world, _| {
            greet(engine, rank, world);
            let fabric = format!("ofi:{provider}");
            let region = engine.expose(vec![0u64; 16], RegionAccess::ALL).unwrap();
            assert_eq!(region.key().domain(), AtomicsDomain::Fabric);
            let theirs = swap_keys(engine, rank, world, region.key());
            put_by_kernel(engine, &theirs);
            // Both ranks count in one counter, its owner too. Every second update has a request.
            let counter = if rank == 0 { region.key() } else { theirs };
            let mut tickets = Vec::new();
            for turn in 0..EACH {
                tickets.push(match turn % 2 {
                    0 => engine.region_fetch_and_op(1u64, op::Sum, &counter, 0).unwrap(),
                    _ => {
                        let posted = engine.region_rfetch_and_op(1u64, op::Sum, &counter, 0).unwrap();
                        engine.wait_take(posted).unwrap().0.1[0]
                    }
                });
            }
            assert!(tickets.is_sorted_by(|one, next| one < next), "{provider}");
            assert_eq!(all_chosen(engine, rank), ["shm".to_owned(), "shm".to_owned(), fabric.clone()]);
            let words = format!("; messages and one-sided over shm, atomics over {fabric}");
            assert!(dumped(engine, rank).ends_with(&words), "{provider}: {}", dumped(engine, rank));
            let mut all = vec![0; 2 * EACH as usize];
            engine.allgather(&tickets, &mut all, world).unwrap();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..2 * EACH), "{provider}: each number once");
            // Words of four bytes. One swap finds another value than it expects, and one finds the expected value.
            assert_eq!(engine.region_fetch_and_op(7u32, op::BitOr, &theirs, 20).unwrap(), 0);
            assert_eq!(engine.region_compare_and_swap(8u32, 9, &theirs, 20).unwrap(), 7);
            let swap = engine.region_rcompare_and_swap(7u32, 9, &theirs, 20).unwrap();
            assert_eq!(engine.wait_take(swap).unwrap().0.1, [7]);
            assert_eq!(engine.region_fetch_and_op(0u32, op::Keep, &theirs, 20).unwrap(), 9);
            // A flush also waits for updates with requests, also of the own memory.
            for (proc, key) in [(ProcId(rank), region.key()), (ProcId(1 - rank), theirs)] {
                let posted: Vec<_> = (0..400)
                    .map(|_| engine.region_rfetch_and_op(1u64, op::Sum, &key, 24 + 8 * rank as usize).unwrap())
                    .collect();
                let dump = engine.dump();
                let waits = format!("to be done by the fabric at rank {}", proc.0);
                assert!(dump.to_string().contains(&waits), "{provider}: {dump}");
                let exposed = format!(
                    "region {}: 128 bytes, for others to read, write, update, by the fabric",
                    region.key().number
                );
                assert!(dump.to_string().contains(&exposed), "{provider}: {dump}");
                engine.region_flush(proc).unwrap();
                assert!(posted.iter().all(|posted| engine.test(posted).unwrap().is_done()), "{provider}");
                posted.into_iter().for_each(|posted| drop(engine.wait_take(posted).unwrap()));
                let counts = engine.region_counts(proc);
                assert!(counts.issued >= 400 && counts.issued == counts.completed, "{counts:?}");
            }
            engine.barrier(world).unwrap();
            let key = region.key();
            assert_eq!(engine.withdraw(region).unwrap()[1..5], [1, 9 << 32, 400, 400]);
            engine.barrier(world).unwrap();
            let words = engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0).unwrap_err().to_string();
            assert!(words.starts_with("the fabric cannot do it"), "a stale key: {words}");
            let words = engine.region_fetch_and_op(1u64, op::Sum, &key, 0).unwrap_err().to_string();
            assert!(words.contains("no such bytes"), "an own stale key: {words}");
            greet(engine, rank, world);
        });
    }
}

#[test]
fn an_update_that_no_fabric_does_is_an_error() {
    for provider in ["tcp;ofi_rxm", "sockets"].into_iter().filter(|_| has_libfabric()) {
        pair(with_atomics(provider), |engine, rank, world, _| {
            let region = engine.expose(vec![0u64; 4], RegionAccess::ALL).unwrap();
            let own = region.key();
            // No peer is connected to this proc yet.
            let posted = engine.region_rfetch_and_op(3u64, op::Sum, &own, 0).unwrap();
            assert_eq!(engine.wait_take(posted).unwrap().0.1, [0]);
            assert_eq!(engine.region_fetch_and_op(-3i64, op::Sum, &own, 0), Ok(3));
            let theirs = swap_keys(engine, rank, world, own);
            for key in [own, theirs] {
                let refused = [
                    engine.region_fetch_and_op(1.0f64, op::Sum, &key, 0).map(drop),
                    engine.region_fetch_and_op(1u64, op::Max, &key, 0).map(drop),
                    engine.region_fetch_and_op(1u16, op::Sum, &key, 0).map(drop),
                    engine.region_compare_and_swap(1u8, 2, &key, 0).map(drop),
                    engine.region_rfetch_and_op(1i64, op::Product, &key, 0).map(drop).map_err(|back| back.error),
                ];
                for refused in refused {
                    let words = refused.unwrap_err().to_string();
                    assert!(words.contains("integers of 4 and 8 bytes"), "{provider}: {words}");
                }
                let words = engine.region_fetch_and_op(1u64, op::Sum, &key, 4).unwrap_err().to_string();
                assert!(words.contains("aligned"), "{provider}: {words}");
                // `Replace` does no arithmetic, so it works on floats.
                assert_eq!(engine.region_fetch_and_op(1.5f64, op::Replace, &key, 8 + 8 * rank as usize), Ok(0.0));
            }
            engine.barrier(world).unwrap();
            let bits = 1.5f64.to_bits();
            assert_eq!(engine.withdraw(region).unwrap(), [0, bits, bits, 0]);
        });
    }
}

#[test]
fn ranks_whose_updates_take_different_routes_are_told() {
    if !has_libfabric() {
        return;
    }
    let (board, hub) = (Board::new(2), Hub::new(2, RING_BYTES));
    std::thread::scope(|threads| {
        for rank in 0..2 {
            let (board, hub) = (&board, hub.clone());
            threads.spawn(move || {
                let upper: Gate = gate("upper", &hub, rank, 200, Calls::Open, Arc::default());
                let builder = Engine::builder().transport(upper).include(["loopback", "upper", "ofi:tcp;ofi_rxm"]);
                let builder =
                    builder.route(TrafficClass::PointToPoint, ["upper"]).route(TrafficClass::OneSided, ["upper"]);
                let builder = if rank == 0 { builder.route(TrafficClass::Atomics, ["ofi"]) } else { builder };
                let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                let world = engine.comm_world();
                let region = engine.expose(vec![5u64; 4], RegionAccess::ALL).unwrap();
                let theirs = swap_keys(&mut engine, rank, world, region.key());
                if rank == 1 {
                    let words = engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0).unwrap_err().to_string();
                    assert!(words.contains("give all ranks the same route"), "{words}");
                    // The owner's engine refuses a made-up key that does not name the fabric.
                    let forged = RegionKey::new(ProcId(0), theirs.number, 32, RegionAccess::ALL);
                    let words = engine.region_fetch_and_op(1u64, op::Sum, &forged, 0).unwrap_err().to_string();
                    assert!(words.contains("no such bytes"), "{words}");
                } else {
                    // The engine of the other rank updates its memory.
                    assert_eq!(engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0), Ok(5));
                }
                engine.barrier(world).unwrap();
                assert_eq!(engine.withdraw(region).unwrap()[0], 5 + u64::from(rank));
                engine.finalize(Duration::from_secs(20)).unwrap();
            });
        }
    });
}

#[test]
fn keys_that_somebody_has_made_up_update_nothing() {
    for provider in ["tcp;ofi_rxm", "sockets"].into_iter().filter(|_| has_libfabric()) {
        pair(with_atomics(provider), |engine, rank, world, _| {
            // No region is exposed yet, so no key of the own proc is valid.
            let (name, all) = (format!("ofi:{provider}"), RegionAccess::ALL);
            let forged = |proc, number| RegionKey::new(ProcId(proc), number, 1 << 20, all).updated_by(&name, [1, 4096]);
            let words = engine.region_fetch_and_op(1u64, op::Sum, &forged(rank, 0), 0).unwrap_err().to_string();
            assert!(words.contains("no such bytes"), "{provider}: {words}");
            let region = engine.expose(vec![0u64; 4], all).unwrap();
            let theirs = swap_keys(engine, rank, world, region.key());
            let other = 1 - rank;
            // One place is beyond the region, and one is not aligned.
            assert!(engine.region_fetch_and_op(1u64, op::Sum, &theirs, 32).is_err());
            assert!(engine.region_fetch_and_op(1u64, op::Sum, &theirs, 12).is_err());
            for key in [forged(other, 0), forged(other, 7), forged(rank, 7), forged(other, theirs.number)] {
                for _ in 0..3 {
                    let words = engine.region_fetch_and_op(1u64, op::Sum, &key, 8).map(drop).unwrap_err().to_string();
                    assert!(words.contains("the fabric cannot do it") || words.contains("no such bytes"), "{words}");
                }
            }
            let _ = engine.region_flush_all();
            // Valid updates still work.
            assert_eq!(engine.region_fetch_and_op(1u64, op::Sum, &theirs, 24), Ok(0), "{provider}");
            greet(engine, rank, world);
            engine.barrier(world).unwrap();
            assert_eq!(engine.withdraw(region).unwrap(), [0, 0, 0, 1]);
        });
    }
}

#[test]
fn an_owner_that_dies_is_an_error_on_the_updates_of_its_memory() {
    for provider in ["tcp;ofi_rxm", "sockets"].into_iter().filter(|_| has_libfabric()) {
        let (board, change) = (Board::new(2), with_atomics(provider));
        std::thread::scope(|threads| {
            for rank in 0..2 {
                let (board, change) = (&board, &change);
                threads.spawn(move || {
                    let mut engine = change(Engine::builder()).build(board.bootstrap(rank)).unwrap();
                    let world = engine.comm_world();
                    let region = engine.expose(vec![0u64; 2], RegionAccess::ALL).unwrap();
                    let theirs = swap_keys(&mut engine, rank, world, region.key());
                    if rank == 1 {
                        while engine.region_fetch_and_op(0u64, op::Keep, &region.key(), 0).unwrap() < 50 {
                            engine.tick();
                        }
                        return;
                    }
                    let since = Instant::now();
                    let mut count = 0;
                    let (call, posted) = loop {
                        assert!(since.elapsed() < PATIENCE, "{provider}: it is dead");
                        let posted = engine.region_rfetch_and_op(0u64, op::Sum, &theirs, 8);
                        match engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0) {
                            Ok(found) => assert_eq!(found, count),
                            Err(error) => break (error, posted),
                        }
                        count += 1;
                        if let Ok(posted) = posted {
                            drop(engine.wait_take(posted));
                        }
                    };
                    // The answer to the last update may be lost.
                    assert!(count >= 49, "{provider}: {call}");
                    // An update that was posted before ends, too. The own memory is still usable.
                    if let Ok(posted) = posted {
                        drop(engine.wait_take(posted));
                    }
                    assert_eq!(engine.region_fetch_and_op(1u64, op::Sum, &region.key(), 0), Ok(0));
                    assert_eq!(engine.withdraw(region).unwrap(), [1, 0]);
                });
            }
        });
    }
}
