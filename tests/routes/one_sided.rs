//! If the best route of one-sided traffic cannot connect, the next one is tried. Puts, gets and updates still work.

use crate::barred::{fabric, memory};
use crate::kit::{Calls, gate};
use crate::pair::{PATIENCE, RING_BYTES, all_chosen, chosen, dumped, greet, put_by_kernel, swap_keys};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tickwire::internals::transports::Hub;
use tickwire::testing::{Board, rows};
use tickwire::{Builder, Comm, Engine, ProcId, Rank, RegionAccess, RegionKey, TrafficClass, WindowReach, op};
use tickwire_tests::ends::Ends;
use tickwire_tests::needs::has_libfabric;

/// The priority of "first", which is above that of all other transports that reach memory.
const FIRST: u8 = 190;

/// What a part of a test gets to see.
struct Seen {
    /// Messages that "upper" has sent.
    sent: Arc<AtomicU64>,
    /// Calls over "first".
    calls: Arc<AtomicU64>,
}

/// Runs `part` for each of two ranks, or four, in threads. Messages go over "upper", which reaches no memory. One-sided
/// traffic would best go over "first", shared memory whose calls have the outcome of each rank.
fn ranks<const RANKS: usize>(
    outcomes: [Calls; RANKS],
    change: impl Fn(u32, Builder) -> Builder + Sync,
    part: impl Fn(&mut Engine, u32, Comm, &Seen) + Sync,
) {
    let size = RANKS as u32;
    let (board, hub) = (Board::new(size), Hub::new(size, RING_BYTES));
    std::thread::scope(|threads| {
        for rank in 0..size {
            let (board, hub, part, change) = (&board, hub.clone(), &part, &change);
            threads.spawn(move || {
                let seen = Seen { sent: Arc::default(), calls: Arc::default() };
                let upper = gate("upper", &hub, rank, 200, Calls::Open, seen.sent.clone());
                let outcome = outcomes[rank as usize];
                let first = memory(("first", board), rank, FIRST, outcome, seen.calls.clone());
                let builder = Engine::builder().transport(upper).transport(first);
                let builder = change(rank, builder.route(TrafficClass::PointToPoint, ["upper"]));
                let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                let world = engine.comm_world();
                part(&mut engine, rank, world, &seen);
                engine.finalize(Duration::from_secs(20)).unwrap();
            });
        }
    });
}

/// Why a route of one-sided traffic to the other rank is not used.
fn refused(engine: &mut Engine, rank: u32, name: &str) -> Option<String> {
    let routes = engine.routes(ProcId(1 - rank), TrafficClass::OneSided);
    routes.into_iter().find(|route| route.transport == name).unwrap().refused
}

/// Puts, gets and updates, each by both ranks in a new window. Returns how the other rank's part was reached.
fn use_window(engine: &mut Engine, rank: u32, world: Comm) -> WindowReach {
    let other = Rank(1 - rank);
    let window = engine.win_allocate::<u64>(3000, world).unwrap();
    let reach = engine.win_reach(other, window).unwrap();
    engine.win_lock_all(window).unwrap();
    let values: Vec<u64> = (0..2000).map(|at| at * 5 + u64::from(rank)).collect();
    engine.put(&values, other, 1, window).unwrap();
    for number in 0..20 {
        assert_eq!(engine.fetch_and_op(1, op::Sum, other, 0, window).unwrap(), number);
    }
    engine.win_flush(other, window).unwrap();
    let mut got = vec![0; 2001];
    engine.get(&mut got, other, 0, window).unwrap();
    assert!(got[0] == 20 && got[1..] == values);
    engine.win_unlock_all(window).unwrap();
    engine.barrier(world).unwrap();
    engine.win_read(&mut got, 0, window).unwrap();
    assert!(got[0] == 20 && (0..2000).all(|at| got[at + 1] == at as u64 * 5 + u64::from(other.0)));
    engine.win_free(window).unwrap();
    reach
}

/// Puts, gets and updates, each by both ranks in exposed memory.
fn use_region(engine: &mut Engine, rank: u32, world: Comm) {
    let region = engine.expose(vec![0u64; 16], RegionAccess::ALL).unwrap();
    let theirs = swap_keys(engine, rank, world, region.key());
    for number in 0..20u64 {
        engine.region_put(&[number, 7], &theirs, 16).unwrap();
        assert_eq!(engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0).unwrap(), number);
    }
    engine.region_flush_all().unwrap();
    let mut got = [0u64; 4];
    engine.region_get(&mut got, &theirs, 0).unwrap();
    assert_eq!(got, [20, 0, 19, 7]);
    engine.barrier(world).unwrap();
    assert_eq!(engine.withdraw(region).unwrap()[..4], [20, 0, 19, 7]);
}

#[test]
fn the_next_transport_that_shares_memory_is_taken() {
    for outcome in [Calls::Refused, Calls::Lost(1), Calls::Lost(20)] {
        ranks(
            [outcome; 2],
            |_, builder| builder,
            |engine, rank, world, seen| {
                greet(engine, rank, world);
                // No one-sided operation has tried the route yet.
                assert_eq!(all_chosen(engine, rank), ["upper", "first", "first"]);
                assert_eq!((refused(engine, rank, "first"), seen.calls.load(Ordering::Relaxed)), (None, 0));
                assert_eq!(use_window(engine, rank, world), WindowReach::Memory, "{outcome:?}");
                let why = match outcome {
                    Calls::Refused => format!("first cannot call proc {}", 1 - rank),
                    _ => "first was not answered".to_owned(),
                };
                // Updates go where one-sided traffic goes.
                assert_eq!(all_chosen(engine, rank), ["upper", "shm", "shm"], "{outcome:?}");
                assert_eq!(refused(engine, rank, "first"), Some(format!("it could not connect: {why}")));
                assert_eq!(refused(engine, rank, "shm"), None);
                let words = dumped(engine, rank);
                assert!(words.contains("; messages over upper, one-sided and atomics over shm; first: "), "{words}");
                assert!(words.ends_with(&why), "{words}");
                let before = seen.sent.load(Ordering::Relaxed);
                let region = engine.expose(vec![0u64; 4], RegionAccess::ALL).unwrap();
                let theirs = swap_keys(engine, rank, world, region.key());
                put_by_kernel(engine, &theirs);
                engine.barrier(world).unwrap();
                assert_eq!(engine.withdraw(region).unwrap()[1], 1);
                assert!(seen.sent.load(Ordering::Relaxed) > before, "messages still go over upper");
                use_region(engine, rank, world);
                assert_eq!(use_window(engine, rank, world), WindowReach::Memory);
                assert_eq!(seen.calls.load(Ordering::Relaxed), 1, "it is not tried again");
            },
        );
    }
}

#[test]
fn a_call_that_nobody_answers_is_given_up() {
    ranks(
        [Calls::Silent; 2],
        |_, builder| builder,
        |engine, rank, world, seen| {
            greet(engine, rank, world);
            assert_eq!(use_window(engine, rank, world), WindowReach::Memory);
            assert_eq!(chosen(engine, rank, TrafficClass::OneSided), "shm");
            let why = refused(engine, rank, "first").unwrap();
            assert_eq!(why, "it could not connect: it was not answered within 5 s");
            // The given-up call has left nothing behind.
            assert!(rows(engine).procs.routes.sides.iter().all(|side| side.is_open));
            use_region(engine, rank, world);
            assert_eq!(seen.calls.load(Ordering::Relaxed), 1);
        },
    );
}

#[test]
fn without_another_transport_that_reaches_memory_messages_carry_the_operations() {
    for (outcome, named) in [(Calls::Refused, false), (Calls::Lost(3), false), (Calls::Refused, true)] {
        let change = |_: u32, builder: Builder| {
            let builder = builder.include(["loopback", "upper", "first"]);
            // If no other route is named for them, there is none, and they still work.
            if named { builder.route(TrafficClass::OneSided, ["first"]) } else { builder }
        };
        ranks([outcome; 2], change, |engine, rank, world, seen| {
            let before = seen.sent.load(Ordering::Relaxed);
            assert_eq!(use_window(engine, rank, world), WindowReach::Engine);
            use_region(engine, rank, world);
            assert!(seen.sent.load(Ordering::Relaxed) > before + 60);
            assert!(refused(engine, rank, "first").unwrap().starts_with("it could not connect: first "));
            let upper = refused(engine, rank, "upper");
            assert_eq!(upper.as_deref(), named.then_some("it is not to carry one-sided"));
            if !named {
                assert_eq!(all_chosen(engine, rank), ["upper", "upper", "upper"]);
            }
            assert_eq!(seen.calls.load(Ordering::Relaxed), 1);
        });
    }
}

#[test]
fn the_next_fabric_is_taken() {
    for outcome in [Calls::Refused, Calls::Lost(2)].into_iter().filter(|_| has_libfabric()) {
        for [barred, next] in [["sockets", "tcp;ofi_rxm"], ["tcp;ofi_rxm", "sockets"]] {
            let board = Board::new(2);
            let change = |rank: u32, builder: Builder| {
                let first = fabric(("fabric", &board), barred, rank, FIRST, outcome, Arc::default());
                let builder = builder.transport(first).route(TrafficClass::OneSided, ["fabric", "ofi"]);
                builder.include(["loopback", "upper", "fabric", &format!("ofi:{next}")])
            };
            ranks([Calls::Open; 2], change, |engine, rank, world, _| {
                assert_eq!(chosen(engine, rank, TrafficClass::OneSided), "fabric");
                assert_eq!(use_window(engine, rank, world), WindowReach::Fabric, "{barred}: {outcome:?}");
                assert_eq!(all_chosen(engine, rank), ["upper", &*format!("ofi:{next}"), "upper"]);
                let why = refused(engine, rank, "fabric").unwrap();
                assert!(why.starts_with("it could not connect: fabric "), "{why}");
                use_region(engine, rank, world);
            });
        }
    }
}

/// A put to a region of the other rank, by one of both ranks only.
fn put_by(engine: &mut Engine, rank: u32, world: Comm, origin: u32, key: &RegionKey) {
    if rank == origin {
        engine.region_put(&[1u64], key, 8).unwrap();
        engine.region_flush_all().unwrap();
    }
    engine.barrier(world).unwrap();
}

#[test]
fn a_transport_that_only_the_peer_can_call_over_is_a_route_again_once_it_has_called() {
    for outcome in [Calls::Refused, Calls::Lost(2)] {
        ranks(
            [outcome, Calls::Open],
            |_, builder| builder,
            |engine, rank, world, _| {
                let region = engine.expose(vec![0u64; 16], RegionAccess::ALL).unwrap();
                let theirs = swap_keys(engine, rank, world, region.key());
                put_by(engine, rank, world, 0, &theirs);
                if rank == 0 {
                    assert!(refused(engine, rank, "first").is_some());
                    assert_eq!(chosen(engine, rank, TrafficClass::OneSided), "shm");
                }
                engine.barrier(world).unwrap();
                put_by(engine, rank, world, 1, &theirs);
                // The peer has called over it, so it can be used. Rank 0 goes on over the link that it has.
                assert_eq!(refused(engine, rank, "first"), None);
                let used = ["shm", "first"][rank as usize];
                assert_eq!(all_chosen(engine, rank), ["upper", used, used]);
                assert!(
                    dumped(engine, rank)
                        .ends_with(&format!("; messages over upper, one-sided and atomics over {used}"))
                );
                for origin in [0, 1] {
                    put_by(engine, rank, world, origin, &theirs);
                }
                assert_eq!(engine.withdraw(region).unwrap()[1], 1);
                use_window(engine, rank, world);
                use_region(engine, rank, world);
                assert_eq!(chosen(engine, rank, TrafficClass::OneSided), used);
            },
        );
    }
}

#[test]
fn a_window_is_made_where_two_members_use_different_links_to_each_other() {
    let _ends = Ends::unless_done(PATIENCE, "the window is made");
    let outcomes = [Calls::Refused, Calls::Open, Calls::Open, Calls::Open];
    ranks(
        outcomes,
        |_, builder| builder,
        |engine, rank, world, _| {
            let region = engine.expose(vec![0u64; 16], RegionAccess::ALL).unwrap();
            let mut keys = [region.key(); 4];
            engine.allgather(&[region.key()], &mut keys, world).unwrap();
            // Ranks 2 and 3 call rank 0. Rank 0 cannot call rank 1, and uses the next transport; rank 1 calls rank 0 then.
            for (origin, target) in [(2, 0), (3, 0), (0, 1), (1, 0)] {
                put_by(engine, rank, world, origin, &keys[target]);
            }
            let over = |engine: &mut Engine, other: u32| {
                let routes = engine.routes(ProcId(other), TrafficClass::OneSided);
                routes.into_iter().find(|route| route.chosen).unwrap().transport
            };
            if rank < 2 {
                assert_eq!(over(engine, 1 - rank), ["shm", "first"][rank as usize]);
            }
            let window = engine.win_allocate::<u64>(8, world).unwrap();
            engine.win_fence(window).unwrap();
            for target in 0..4 {
                engine.put(&[u64::from(rank) + 1], Rank(target), rank as usize, window).unwrap();
            }
            engine.win_fence_last(window).unwrap();
            let mut own = [0; 5];
            engine.win_read(&mut own, 0, window).unwrap();
            assert_eq!(own, [1, 2, 3, 4, 0]);
            engine.win_free(window).unwrap();
            assert_eq!(engine.withdraw(region).unwrap()[1], u64::from(rank < 2));
        },
    );
}

/// The open links beside those of messages: the endpoint of each, and its number there.
fn side_links(engine: &mut Engine) -> Vec<(u8, u32)> {
    rows(engine).procs.routes.sides.iter().filter(|side| side.is_open).map(|side| (side.endpoint, side.link)).collect()
}

#[test]
fn a_link_that_has_ended_is_called_over_again() {
    ranks(
        [Calls::Open; 2],
        |_, builder| builder,
        |engine, rank, world, seen| {
            let region = engine.expose(vec![0u64; 4], RegionAccess::ALL).unwrap();
            let theirs = swap_keys(engine, rank, world, region.key());
            put_by(engine, rank, world, 0, &theirs);
            assert_eq!(all_chosen(engine, rank), ["upper", "first", "first"]);
            let [(endpoint, link)] = side_links(engine)[..] else { panic!("{:?}", side_links(engine)) };
            if rank == 1 {
                rows(engine).endpoints[usize::from(endpoint)].transport.get().close_link(link);
            } else {
                let since = Instant::now();
                while !side_links(engine).is_empty() {
                    assert!(since.elapsed() < PATIENCE, "the end of the link has not come");
                    engine.tick();
                }
                // It was connected before, so it can be tried again.
                assert_eq!(refused(engine, rank, "first"), None);
                assert_eq!(seen.calls.load(Ordering::Relaxed), 1);
            }
            for number in 0..10u64 {
                if rank == 0 {
                    assert_eq!(engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0).unwrap(), number);
                }
            }
            put_by(engine, rank, world, 0, &theirs);
            assert_eq!(all_chosen(engine, rank), ["upper", "first", "first"]);
            assert_eq!(side_links(engine).len(), 1);
            assert_eq!(seen.calls.load(Ordering::Relaxed), [2, 0][rank as usize]);
            greet(engine, rank, world);
            assert_eq!(engine.withdraw(region).unwrap()[..2], [[0, 0], [10, 1]][rank as usize]);
            assert_eq!(use_window(engine, rank, world), WindowReach::Memory);
        },
    );
}
