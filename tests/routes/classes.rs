//! Messages, puts and gets, and updates may take different transports to one proc.

use crate::kit::{Calls, Gate, gate};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tickwire::internals::transports::Hub;
use tickwire::testing::Board;
use tickwire::{
    AtomicsDomain, Bootstrap, Builder, Comm, Engine, LockKind, ProcId, Rank, RegionAccess, RegionKey, Tag,
    TrafficClass, WindowReach, bytemuck, op,
};
use tickwire_tests::needs::has_libfabric;

/// Above everything that a loaded machine may need.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a ring.
const RING_BYTES: usize = 64 << 10;

/// Runs a part for each of two ranks, in threads. Beside what the builder opens there is "upper", over which messages go; the part is told
/// how many frames of messages it has sent.
fn pair(change: impl Fn(Builder) -> Builder + Sync, part: impl Fn(&mut Engine, u32, Comm, &AtomicU64) + Sync) {
    let (board, hub) = (Board::new(2), Hub::new(2, RING_BYTES));
    std::thread::scope(|threads| {
        for rank in 0..2 {
            let (board, part, change, hub) = (&board, &part, &change, hub.clone());
            threads.spawn(move || {
                let sent = Arc::<AtomicU64>::default();
                let upper: Gate = gate("upper", &hub, rank, 200, Calls::Open, sent.clone());
                let builder = change(Engine::builder().transport(upper));
                let mut engine = builder.build(board.bootstrap(rank)).unwrap();
                let world = engine.comm_world();
                part(&mut engine, rank, world, &sent);
                engine.finalize(Duration::from_secs(20)).unwrap();
            });
        }
    });
}

/// The transport that a class of traffic with the other rank goes over.
fn chosen(engine: &mut Engine, rank: u32, class: TrafficClass) -> String {
    let routes = engine.routes(ProcId(1 - rank), class);
    let mut chosen = routes.into_iter().filter(|route| route.chosen);
    let name = chosen.next().unwrap().transport;
    assert!(chosen.next().is_none());
    name
}

fn all_chosen(engine: &mut Engine, rank: u32) -> [String; 3] {
    TrafficClass::ALL.map(|class| chosen(engine, rank, class))
}

/// What a dump says of the routes to the other rank, in words, once it is seen to be what [`Engine::routes`] says.
fn dumped(engine: &mut Engine, rank: u32) -> String {
    let dump = engine.dump();
    let mut peer = dump.peers.into_iter().find(|peer| peer.proc == 1 - rank).unwrap();
    let routes: Vec<_> = peer.routes.iter().map(|route| (&*route.class, route.transport.clone().unwrap())).collect();
    let names = TrafficClass::ALL.map(|class| class.name());
    assert!(routes.into_iter().eq(names.into_iter().zip(all_chosen(engine, rank))), "{peer}");
    peer.credit = None;
    peer.to_string()
}

/// Both ranks tell each other something.
fn greet(engine: &mut Engine, rank: u32, world: Comm) {
    let other = Rank(1 - rank);
    let sent = engine.isend(vec![rank; 3], other, Tag(1), world).unwrap();
    let mut got = [0; 3];
    engine.recv(&mut got, other, Tag(1), world).unwrap();
    engine.wait(&sent).unwrap();
    assert_eq!(got, [other.0; 3]);
}

/// Exchanges the keys of regions.
fn swap_keys(engine: &mut Engine, rank: u32, world: Comm, own: RegionKey) -> RegionKey {
    let mut theirs = [own];
    let sent = engine.isend(bytemuck::bytes_of(&own).to_vec(), Rank(1 - rank), Tag(2), world).unwrap();
    engine.recv(bytemuck::cast_slice_mut::<_, u8>(&mut theirs), Rank(1 - rank), Tag(2), world).unwrap();
    engine.wait(&sent).unwrap();
    theirs[0]
}

#[test]
fn messages_go_by_priority_and_one_sided_traffic_over_what_shares_memory() {
    pair(
        |builder| builder,
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
            engine.region_put(&[1u64], &theirs, 8).unwrap();
            engine.region_flush_all().unwrap();
            // Its list of regions comes over a link of its own.
            let since = Instant::now();
            while engine.region_reach(&theirs) != Ok(WindowReach::Kernel) {
                assert!(since.elapsed() < PATIENCE, "the list has not come");
                engine.tick();
            }
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
            engine.win_fence_last(window).unwrap();
            engine.win_free(window).unwrap();
            assert_eq!(sent.load(Ordering::Relaxed), 0, "what is not included is not there");
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
    let atomics = Engine::builder().route(TrafficClass::Atomics, ["shm"]).build(Bootstrap::solo());
    let words = atomics.map(drop).unwrap_err().to_string();
    assert!(words.contains("updates have no route of their own"), "{words}");
}
