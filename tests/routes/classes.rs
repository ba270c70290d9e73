//! Messages, puts and gets, and updates to one proc may go over different transports.

use crate::pair::{all_chosen, dumped, greet, pair, put_by_kernel, swap_keys};
use std::sync::atomic::Ordering;
use tickwire::internals::components::SideLink;
use tickwire::internals::transports::Channel;
use tickwire::testing::{Board, rows};
use tickwire::{
    AtomicsDomain, Builder, Engine, Limits, LockKind, ProcId, Rank, RegionAccess, TrafficClass, WindowReach, op,
};
use tickwire_tests::needs::has_libfabric;

#[test]
fn messages_go_by_priority_and_one_sided_traffic_over_what_shares_memory() {
    pair(
        // The kernel reaches created windows.
        |builder| builder.limits(Limits { window_copy_max: 0, ..Limits::default() }),
        |engine, rank, world, sent| {
            greet(engine, rank, world);
            assert_eq!(all_chosen(engine, rank), ["upper", "shm", "shm"]);
            let other = Rank(1 - rank);
            let window = engine.win_allocate::<u64>(64, world).unwrap();
            assert_eq!(engine.win_domain(window), Ok(AtomicsDomain::Processor));
            assert_eq!(engine.win_reach(other, window), Ok(WindowReach::Memory));
            let created = engine.win_create(vec![0u64; 64], world).unwrap();
            assert_eq!(engine.win_reach(other, created), Ok(WindowReach::Kernel));
            engine.barrier(world).unwrap();
            let before = sent.load(Ordering::Relaxed);
            for window in [window, created] {
                engine.win_lock(LockKind::Shared, other, window).unwrap();
                for number in 0..100 {
                    engine.put(&[number, 7], other, 2, window).unwrap();
                    assert_eq!(engine.fetch_and_op(1, op::Sum, other, 0, window).unwrap(), number);
                }
                let mut got = [0; 3];
                engine.get(&mut got, other, 1, window).unwrap();
                assert_eq!(got, [0, 99, 7]);
                engine.win_unlock(other, window).unwrap();
            }
            assert_eq!(sent.load(Ordering::Relaxed), before, "no frame has gone for them");
            engine.barrier(world).unwrap();
            greet(engine, rank, world);
            assert!(sent.load(Ordering::Relaxed) > before, "messages still go over the other one");
            assert!(dumped(engine, rank).ends_with("; messages over upper, one-sided and atomics over shm"));
            engine.win_free(window).unwrap();
            engine.win_free(created).unwrap();
        },
    );
}

#[test]
fn regions_take_the_route_of_one_sided_traffic() {
    pair(
        |builder| builder,
        |engine, rank, world, sent| {
            let region = engine.expose(vec![0u64; 16], RegionAccess::ALL).unwrap();
            let theirs = swap_keys(engine, rank, world, region.key());
            put_by_kernel(engine, &theirs);
            let before = sent.load(Ordering::Relaxed);
            for number in 0..50u64 {
                engine.region_put(&[number], &theirs, 16).unwrap();
                assert_eq!(engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0).unwrap(), number);
            }
            engine.region_flush_all().unwrap();
            assert_eq!(sent.load(Ordering::Relaxed), before, "no frame has gone for them");
            engine.barrier(world).unwrap();
            assert_eq!(engine.withdraw(region).unwrap()[..3], [50, 1, 49]);
        },
    );
}

#[test]
fn the_user_says_what_carries_a_class() {
    let change = |builder: Builder| builder.route(TrafficClass::OneSided, ["upper"]);
    pair(change, |engine, rank, world, sent| {
        greet(engine, rank, world);
        assert_eq!(all_chosen(engine, rank), ["upper", "upper", "upper"]);
        let routes = engine.routes(ProcId(1 - rank), TrafficClass::OneSided);
        let shm = routes.iter().find(|route| route.transport == "shm").unwrap();
        assert_eq!(shm.refused.as_deref(), Some("it is not to carry one-sided"));
        let other = Rank(1 - rank);
        let window = engine.win_allocate::<u64>(4, world).unwrap();
        assert_eq!(engine.win_domain(window), Ok(AtomicsDomain::Engine));
        assert_eq!(engine.win_reach(other, window), Ok(WindowReach::Engine));
        let before = sent.load(Ordering::Relaxed);
        engine.win_lock(LockKind::Shared, other, window).unwrap();
        engine.put(&[5], other, 1, window).unwrap();
        engine.win_unlock(other, window).unwrap();
        assert!(sent.load(Ordering::Relaxed) > before, "they go with the messages");
        assert!(dumped(engine, rank).ends_with("; all traffic over upper"), "what is not to carry it has not failed");
        engine.win_free(window).unwrap();
    });
    let change = |builder: Builder| builder.route(TrafficClass::PointToPoint, ["shm"]);
    pair(change, |engine, rank, world, sent| {
        greet(engine, rank, world);
        assert_eq!(all_chosen(engine, rank), ["shm", "shm", "shm"]);
        assert_eq!(sent.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn puts_and_gets_go_over_a_fabric_beside_messages_over_shared_memory() {
    for provider in ["tcp;ofi_rxm", "sockets"].into_iter().filter(|_| has_libfabric()) {
        let change = |builder: Builder| {
            let names = ["loopback".to_owned(), "shm".to_owned(), format!("ofi:{provider}")];
            builder.include(names).route(TrafficClass::PointToPoint, ["shm"]).route(TrafficClass::OneSided, ["ofi"])
        };
        pair(change, |engine, rank, world, sent| {
            greet(engine, rank, world);
            let fabric = format!("ofi:{provider}");
            assert_eq!(all_chosen(engine, rank), ["shm".to_owned(), fabric, "shm".to_owned()]);
            let other = Rank(1 - rank);
            let window = engine.win_allocate::<u64>(20_000, world).unwrap();
            assert_eq!(engine.win_reach(other, window), Ok(WindowReach::Fabric), "{provider}");
            assert_eq!(engine.win_domain(window), Ok(AtomicsDomain::Engine));
            let words = format!("; messages and atomics over shm, one-sided over ofi:{provider}");
            assert!(dumped(engine, rank).ends_with(&words), "{provider}");
            engine.win_fence(window).unwrap();
            let values: Vec<u64> = (0..19_999).map(|at| at * 3 + u64::from(rank)).collect();
            engine.put(&values, other, 1, window).unwrap();
            engine.fetch_and_op(7, op::Sum, other, 0, window).unwrap();
            engine.win_fence(window).unwrap();
            let mut own = vec![0; 20_000];
            engine.win_read(&mut own, 0, window).unwrap();
            assert!(own[0] == 7 && (0..19_999).all(|at| own[at + 1] == at as u64 * 3 + u64::from(other.0)));
            engine.win_fence(window).unwrap();
            // The fabric takes fewer operations at once. The others wait for room.
            let posted: Vec<_> = (0..600)
                .map(|at| {
                    engine.rput(vec![7 * at as u64], other, at, window).unwrap_or_else(|back| panic!("{}", back.error))
                })
                .collect();
            posted.into_iter().for_each(|posted| drop(engine.wait_take(posted).unwrap()));
            engine.win_fence(window).unwrap();
            engine.win_read(&mut own, 0, window).unwrap();
            assert!((0..600).all(|at| own[at] == 7 * at as u64), "{provider}");
            engine.win_fence_last(window).unwrap();
            engine.win_free(window).unwrap();
            assert_eq!(sent.load(Ordering::Relaxed), 0, "what is not included is not there");
        });
    }
}

/// How many operations the fabric of a transport has accepted.
fn issued(engine: &mut Engine, name: &str) -> u64 {
    let all = rows(engine);
    let place = all.endpoints.iter_mut().position(|of| of.transport.get().name() == name).unwrap();
    let side = all.procs.routes.sides.iter().find(|side| usize::from(side.endpoint) == place);
    let Some(&SideLink { link, .. }) = side else { return 0 };
    let fabric = all.endpoints[place].transport.get().one_sided().unwrap();
    (0..fabric.contexts()).map(|context| fabric.issued(Channel { link, context })).sum()
}

#[test]
fn all_three_classes_go_over_different_transports_to_one_proc() {
    const MOVES: u64 = 40;
    const UPDATES: u64 = 25;
    const MESSAGES: u64 = 10;
    let both = [["ofi:sockets", "ofi:tcp;ofi_rxm"], ["ofi:tcp;ofi_rxm", "ofi:sockets"]];
    for [mover, updater] in both.into_iter().filter(|_| has_libfabric()) {
        let change = |builder: Builder| {
            let builder = builder.include(["loopback", "upper", mover, updater]);
            let builder = builder.route(TrafficClass::PointToPoint, ["upper"]);
            builder.route(TrafficClass::OneSided, [mover]).route(TrafficClass::Atomics, [updater])
        };
        pair(change, |engine, rank, world, sent| {
            let region = engine.expose(vec![0u64; 100], RegionAccess::ALL).unwrap();
            let theirs = swap_keys(engine, rank, world, region.key());
            // The first operation of each kind connects the transport.
            engine.region_put(&[0u64], &theirs, 8).unwrap();
            assert_eq!(engine.region_fetch_and_op(0u64, op::Sum, &theirs, 0), Ok(0));
            engine.region_flush_all().unwrap();
            engine.barrier(world).unwrap();
            let counts =
                |engine: &mut Engine| [sent.load(Ordering::Relaxed), issued(engine, mover), issued(engine, updater)];
            let before = counts(engine);
            for number in 0..MOVES / 2 {
                engine.region_put(&[number, 3], &theirs, 8).unwrap();
                engine.region_flush_all().unwrap();
                let mut got = [0u64; 2];
                engine.region_get(&mut got, &theirs, 8).unwrap();
                assert_eq!(got, [number, 3], "{mover}");
            }
            let moved = counts(engine);
            assert_eq!(moved, [before[0], before[1] + MOVES, before[2]], "{mover}: moves only");
            for number in 0..UPDATES {
                assert_eq!(engine.region_fetch_and_op(1u64, op::Sum, &theirs, 0), Ok(number), "{updater}");
            }
            let updated = counts(engine);
            assert_eq!(updated, [before[0], moved[1], before[2] + UPDATES], "{updater}: updates only");
            (0..MESSAGES).for_each(|_| greet(engine, rank, world));
            let greeted = counts(engine);
            assert!(greeted[0] >= updated[0] + MESSAGES && greeted[1..] == updated[1..], "{greeted:?}");
            assert_eq!(all_chosen(engine, rank), ["upper", mover, updater]);
            let words = format!("; messages over upper, one-sided over {mover}, atomics over {updater}");
            assert!(dumped(engine, rank).ends_with(&words), "{}", dumped(engine, rank));
            for (class, name) in TrafficClass::ALL.into_iter().zip(["upper", mover, updater]) {
                let routes = engine.routes(ProcId(1 - rank), class);
                let only = format!("it is not to carry {}", class.name());
                for route in routes.iter().filter(|route| route.transport != "loopback") {
                    let expected = (route.transport == name, (route.transport != name).then_some(&*only));
                    assert_eq!((route.chosen, route.refused.as_deref()), expected, "{route:?}");
                }
            }
            engine.barrier(world).unwrap();
            assert_eq!(engine.withdraw(region).unwrap()[..3], [UPDATES, MOVES / 2 - 1, 3]);
        });
    }
}

#[test]
fn a_route_that_cannot_be_is_an_error_that_says_what_to_do() {
    let board = Board::new(2);
    let built = std::thread::scope(|threads| {
        let build = |rank| {
            let board = &board;
            threads.spawn(move || {
                let builder = Engine::builder().route(TrafficClass::OneSided, ["ofi"]);
                builder.build(board.bootstrap(rank)).map(drop).unwrap_err().to_string()
            })
        };
        [build(0), build(1)].map(|thread| thread.join().unwrap())
    });
    for words in built {
        assert!(words.contains("it is to carry one-sided, and is not open: name it among the transports"), "{words}");
    }
    let shared = std::thread::scope(|threads| {
        let board = Board::new(2);
        let build = |rank| {
            let board = board.clone();
            threads.spawn(move || {
                let builder = Engine::builder().route(TrafficClass::Atomics, ["shm"]);
                builder.build(board.bootstrap(rank)).map(drop).unwrap_err().to_string()
            })
        };
        [build(0), build(1)].map(|thread| thread.join().unwrap())
    });
    for words in shared {
        assert!(words.contains("shm") && words.contains("no updates are done by it: name fabrics that do"), "{words}");
    }
}
