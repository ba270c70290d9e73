//! How often an expensive transport is polled, progress of one transport or one proc only, and the choice of routes.

use super::*;
use tickwire::internals::components::limits::POLL_INTERVAL_MAX;
use tickwire::internals::components::{NIL, VcState};
use tickwire::internals::transports::Hub;
use tickwire::testing::rows;
use tickwire::{Only, ProcId, ProgressError, Request, Source, Test, TrafficClass};

/// A priority above that of loopback.
const PREFERRED: u8 = 200;

/// Engine 0 reaches engine 1 by loopback and engine 2 by streams, and is connected to both. Returns also the counter of
/// polls of the streams of engine 0.
fn mixed() -> (Cluster, Arc<AtomicU32>) {
    let mut all = streams(3);
    for (me, other) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
        all[me].lines[other] = None;
    }
    let looks = all[0].looks.clone();
    let hub = Hub::new(3, 1 << 14);
    let all = std::sync::Mutex::new(all.into_iter().map(Some).collect::<Vec<_>>());
    let mut cluster = Cluster::build(3, |rank| {
        let mut transport = all.lock().unwrap()[rank as usize].take().unwrap();
        transport.capabilities.priority = PREFERRED;
        Engine::builder().exclude(["shm"]).hub(hub.clone()).initial_rows(ROWS).transport(transport)
    });
    for other in [1, 2] {
        cluster.engines[0].connect(ProcId(other)).unwrap();
        cluster.tick_until(BOUND, "connected", |cluster| cluster.vc_state(0, other) == Some(VcState::Connected));
        pass(&mut cluster, other);
    }
    // Afterwards the streams are polled as seldom as possible.
    cluster.tick_times(4 * POLL_INTERVAL_MAX);
    (cluster, looks)
}

/// Passes a message to engine 0.
fn pass(cluster: &mut Cluster, from: u32) {
    let receive = post(cluster, Rank(from));
    start(cluster, from);
    cluster.finish(BOUND, 0, receive).unwrap();
}

fn post(cluster: &mut Cluster, source: impl Into<Source>) -> Request<Vec<u8>> {
    let world = cluster.engines[0].comm_world();
    cluster.engines[0].irecv(vec![0u8; 4], source, Tag(1), world).unwrap()
}

/// Starts a send to engine 0. The send is done, but engine 0 has not read it.
fn start(cluster: &mut Cluster, from: u32) {
    let world = cluster.engines[0].comm_world();
    let from = from as usize;
    let send = cluster.engines[from].isend(vec![from as u8; 4], Rank(0), Tag(1), world).unwrap();
    for _ in 0..BOUND {
        if cluster.engines[from].test(&send).unwrap().is_done() {
            return;
        }
        cluster.tick(from);
    }
    panic!("not sent");
}

/// The number of polls of engine 0's streams in this many ticks.
fn looks_in(ticks: u32, cluster: &mut Cluster, looks: &AtomicU32) -> u32 {
    let before = looks.load(Ordering::Relaxed);
    for _ in 0..ticks {
        cluster.tick(0);
    }
    looks.load(Ordering::Relaxed) - before
}

const TICKS: u32 = 100 * (POLL_INTERVAL_MAX + 1);

#[test]
fn an_idle_transport_that_is_expensive_is_looked_at_seldom_but_is() {
    let (mut cluster, looks) = mixed();
    assert_eq!(looks_in(TICKS, &mut cluster, &looks), 100);
}

#[test]
fn operations_over_others_do_not_make_it_be_looked_at() {
    let (mut cluster, looks) = mixed();
    // The message that `mixed` sent over the streams is done, so it no longer makes the engine poll.
    let posted = [post(&mut cluster, Rank(1)), post(&mut cluster, Rank(0))];
    assert_eq!(looks_in(TICKS, &mut cluster, &looks), 100);
    drop(posted);
    start(&mut cluster, 1);
    cluster.tick_times(10);
    assert_eq!(looks_in(TICKS, &mut cluster, &looks), 100);
}

#[test]
fn operations_over_it_make_it_be_looked_at_in_every_tick() {
    let (mut cluster, looks) = mixed();
    let near = post(&mut cluster, Rank(1));
    for source in [Source::Rank(Rank(2)), Source::Any] {
        let far = post(&mut cluster, source);
        assert_eq!(looks_in(TICKS, &mut cluster, &looks), TICKS, "{source:?}");
        assert_eq!(cluster.engines[0].cancel(&far), Ok(true));
        cluster.engines[0].take(far).unwrap_err();
        looks_in(4 * POLL_INTERVAL_MAX, &mut cluster, &looks);
        assert_eq!(looks_in(TICKS, &mut cluster, &looks), 100, "{source:?}");
    }
    // A send that waits for its receive makes the engine poll too, even if its request was dropped.
    let world = cluster.engines[0].comm_world();
    drop(cluster.engines[0].isend(vec![1u8; 100_000], Rank(2), Tag(1), world).unwrap());
    assert_eq!(looks_in(TICKS, &mut cluster, &looks), TICKS);
    assert_eq!(cluster.engines[0].test(&near), Ok(Test::Pending));
}

#[test]
fn an_operation_in_any_row_is_found() {
    let (mut cluster, looks) = mixed();
    let near: Vec<_> = (0..ROWS as u32 - 2).map(|_| post(&mut cluster, Rank(1))).collect();
    let far = post(&mut cluster, Rank(2));
    let rows = rows(&mut cluster.engines[0]).cars.len() as u32;
    assert!(far.id().row > rows / 2);
    looks_in(rows, &mut cluster, &looks);
    assert_eq!(looks_in(TICKS, &mut cluster, &looks), TICKS);
    drop(near);
    // If the application waits for an operation, the transport is polled at once.
    let (mut cluster, looks) = mixed();
    let near: Vec<_> = (0..ROWS as u32 - 2).map(|_| post(&mut cluster, Rank(1))).collect();
    let far = post(&mut cluster, Rank(2));
    let before = (looks.load(Ordering::Relaxed), rows_ticks(&mut cluster));
    let _ = cluster.engines[0].wait_for(&far, std::time::Duration::from_micros(1));
    let after = (looks.load(Ordering::Relaxed), rows_ticks(&mut cluster));
    assert!(after.0 - before.0 >= (after.1 - before.1) as u32 && after.1 > before.1, "{before:?} {after:?}");
    drop(near);
}

fn rows_ticks(cluster: &mut Cluster) -> u64 {
    rows(&mut cluster.engines[0]).progress.ticks
}

#[test]
fn what_is_found_is_read_and_more_is_expected() {
    let (mut cluster, looks) = mixed();
    start(&mut cluster, 2);
    let unexpected = |cluster: &mut Cluster| rows(&mut cluster.engines[0]).progress.unexpected.count;
    let mut ticks = 0;
    while unexpected(&mut cluster) == 0 {
        assert!(ticks <= POLL_INTERVAL_MAX, "not read after {ticks} ticks");
        cluster.tick(0);
        ticks += 1;
    }
    // The interval between polls grows slowly: 1, 2, 4 … ticks.
    assert!(looks_in(10, &mut cluster, &looks) >= 3);
}

// Progress of one transport or one proc.

/// Receives from ranks 1 and 2, whose messages are on their way.
fn two_messages(cluster: &mut Cluster) -> [Request<Vec<u8>>; 2] {
    [1, 2].map(|from| {
        let receive = post(cluster, Rank(from));
        start(cluster, from);
        receive
    })
}

fn are_done(cluster: &mut Cluster, receives: &[Request<Vec<u8>>; 2]) -> [bool; 2] {
    receives.each_ref().map(|receive| cluster.engines[0].test(receive).unwrap().is_done())
}

/// Makes progress of one thing only, until one of the two messages is there, and then for some more rounds. Returns
/// which messages are there.
fn progress(cluster: &mut Cluster, only: Only<'_>, receives: &[Request<Vec<u8>>; 2]) -> [bool; 2] {
    let mut left = BOUND;
    while are_done(cluster, receives) == [false; 2] {
        cluster.engines[0].progress(only).unwrap();
        left -= 1;
        assert!(left > 0, "{only:?} reads nothing");
    }
    for _ in 0..3 * POLL_INTERVAL_MAX {
        cluster.engines[0].progress(only).unwrap();
    }
    are_done(cluster, receives)
}

#[test]
fn progress_of_one_transport_reads_from_no_other() {
    for (name, expected) in [("streams", [false, true]), ("loopback", [true, false])] {
        let (mut cluster, _) = mixed();
        let receives = two_messages(&mut cluster);
        assert_eq!(progress(&mut cluster, Only::Transport(name), &receives), expected, "{name}");
        assert_eq!(progress(&mut cluster, Only::All, &receives), [true; 2]);
    }
}

#[test]
fn progress_of_one_proc_reads_from_no_other() {
    let clusters: [fn() -> Cluster; 4] = [
        || Cluster::loopback(3),
        || Cluster::shm(3),
        || cluster(3),
        || Cluster::sim(3, &tickwire::testing::SimNet::new(3, tickwire::testing::SimConfig::calm(1))),
    ];
    for (number, make) in clusters.iter().enumerate() {
        for (proc, expected) in [(1, [true, false]), (2, [false, true])] {
            let mut cluster = make();
            for from in [1, 2] {
                pass(&mut cluster, from);
            }
            let receives = two_messages(&mut cluster);
            let done = progress(&mut cluster, Only::Proc(ProcId(proc)), &receives);
            assert_eq!(done, expected, "cluster {number}, proc {proc}");
            cluster.tick_until(BOUND, "the other one", |cluster| are_done(cluster, &receives) == [true; 2]);
        }
    }
}

#[test]
fn what_there_is_not_cannot_be_progressed() {
    let (mut cluster, _) = mixed();
    let receives = two_messages(&mut cluster);
    let engine = &mut cluster.engines[0];
    let unknown = engine.progress(Only::Transport("carrier pigeon")).unwrap_err();
    let open = "loopback, streams".to_owned();
    assert_eq!(unknown, ProgressError::Transport { name: "carrier pigeon".into(), open });
    assert_eq!(unknown.to_string(), "no transport named carrier pigeon is open: there are loopback, streams");
    for proc in [3, u32::MAX].map(ProcId) {
        assert_eq!(engine.progress(Only::Proc(proc)), Err(ProgressError::Proc { proc, last: 2 }));
    }
    assert_eq!(are_done(&mut cluster, &receives), [false; 2], "nothing was read");
    // A proc that was never contacted has sent nothing.
    let mut alone = Cluster::loopback(3);
    assert!(alone.engines[0].progress(Only::Proc(ProcId(1))).unwrap().is_idle());
}

// Routes.

#[test]
fn routes_say_who_reaches_a_proc_and_which_one_is_used() {
    let (mut cluster, _) = mixed();
    let routes = |cluster: &mut Cluster, proc| {
        let routes = cluster.engines[0].routes(ProcId(proc), TrafficClass::PointToPoint);
        let parts = routes.into_iter().map(|r| (r.transport, r.priority, r.chosen, r.refused));
        parts.collect::<Vec<_>>()
    };
    let (loopback, streams) = (|chosen| ("loopback".to_owned(), 100, chosen, None), "streams".to_owned());
    let refused = |proc: u32| Some(format!("there is no stream to proc {proc} with card [{proc}]"));
    for proc in [0, 1] {
        let expected = [loopback(true), (streams.clone(), PREFERRED, false, refused(proc))];
        assert_eq!(routes(&mut cluster, proc), expected);
    }
    assert_eq!(routes(&mut cluster, 2), [loopback(false), (streams, PREFERRED, true, None)]);
    assert_eq!(routes(&mut cluster, 3), [], "there is no such proc");
    for proc in 0..3 {
        let chosen = cluster.engines[0].routes(ProcId(proc), TrafficClass::PointToPoint);
        let chosen = chosen.into_iter().find(|route| route.chosen).unwrap().transport;
        assert_eq!(used(&mut cluster, proc), chosen, "proc {proc}");
    }
}

/// The transport that engine 0 uses to reach a proc.
fn used(cluster: &mut Cluster, proc: u32) -> String {
    let all = rows(&mut cluster.engines[0]);
    let vc = all.vcs.iter().find(|vc| vc.proc == proc && vc.link != NIL).unwrap();
    all.endpoints[vc.endpoint as usize].transport.get().name().to_owned()
}

#[test]
fn of_routes_with_one_priority_the_first_is_used() {
    let made: Vec<Vec<Streams>> =
        ["one", "two"].map(|name| streams(2).into_iter().map(|streams| Streams { name, ..streams }).collect()).into();
    let made = std::sync::Mutex::new(made);
    let mut cluster = Cluster::build(2, |rank| {
        let mut made = made.lock().unwrap();
        let mut builder = Engine::builder().exclude(["shm", "loopback"]).initial_rows(ROWS);
        for all in made.iter_mut() {
            let index = all.iter().position(|streams| streams.me == rank).unwrap();
            builder = builder.transport(all.remove(index));
        }
        builder
    });
    // Two routes are possible, so the two procs first have to agree on one.
    cluster.engines[0].connect(ProcId(1)).unwrap();
    cluster.tick_until(BOUND, "connected", |cluster| {
        [(0, 1), (1, 0)].iter().all(|&(rank, proc)| cluster.vc_state(rank, proc) == Some(VcState::Connected))
    });
    pass(&mut cluster, 1);
    let routes = cluster.engines[0].routes(ProcId(1), TrafficClass::PointToPoint);
    let chosen: Vec<_> = routes.iter().map(|route| (&*route.transport, route.chosen)).collect();
    assert_eq!(chosen, [("one", true), ("two", false)]);
    assert_eq!(used(&mut cluster, 1), "one");
}
