//! The engine's descriptor in an application's own poll set.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod drive;

use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::Pid;
use rustix::thread::gettid;
use std::mem::MaybeUninit;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tickwire::internals::transports::ofi::Choice;
use tickwire::testing::{Board, Cluster};
use tickwire::{Bootstrap, Builder, Engine, Limits, ProcId, Rank, Request, RequestError, Source, Tag, TrafficClass};
use tickwire_tests::cases::content;
use tickwire_tests::clocks::thread_time;
use tickwire_tests::needs::has_libfabric;

/// Longer than any wait on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// An application's event loop with one engine in it.
struct Loop {
    epoll: OwnedFd,
    turns: u32,
    sleeps: u32,
    wakes: u32,
    /// Whether it calls `end_wait` after each sleep.
    ends: bool,
}

impl Loop {
    fn new(engine: &Engine) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, engine.as_fd(), epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
        Loop { epoll, turns: 0, sleeps: 0, wakes: 0, ends: true }
    }

    /// Ticks and sleeps until a condition holds.
    fn run(&mut self, engine: &mut Engine, mut done: impl FnMut(&mut Engine) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.turns += 1;
            engine.tick();
            if done(engine) {
                return;
            }
            assert!(Instant::now() < end, "{}", tickwire::testing::dump(engine));
            if engine.prepare_wait() {
                let most = engine.wait_timeout();
                let time =
                    rustix::event::Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
                let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 4];
                self.sleeps += 1;
                let (found, _) = epoll::wait(&self.epoll, &mut events[..], Some(&time)).unwrap();
                self.wakes += u32::from(!found.is_empty());
                if self.ends {
                    engine.end_wait();
                }
            }
        }
    }
}

/// Answers every message, up to an empty one.
fn echo(mut engine: Engine) {
    let world = engine.comm_world();
    loop {
        let mut buffer = vec![0u8; 100_000];
        let status = engine.recv(&mut buffer, Rank(0), Tag(1), world).unwrap();
        engine.send(&buffer[..status.length], Rank(0), Tag(2), world).unwrap();
        if status.length == 0 {
            engine.finalize(PATIENCE).unwrap();
            return;
        }
    }
}

#[test]
fn a_peer_over_shared_memory_wakes_the_loop() {
    let board = Board::new(2);
    let peer = board.bootstrap(1);
    let thread = std::thread::spawn(move || echo(Engine::builder().build(peer).unwrap()));
    let mut engine = Engine::builder().build(board.bootstrap(0)).unwrap();
    let world = engine.comm_world();
    let mut events = Loop::new(&engine);
    for (number, length) in [100, 0x8000, 1, 99_999, 64, 0].into_iter().enumerate() {
        let message = content(number as u64, length);
        let receive: Request<Vec<u8>> = engine.irecv(vec![0u8; length], Rank(1), Tag(2), world).unwrap();
        let send = engine.isend(message.clone(), Rank(1), Tag(1), world).unwrap();
        events.run(&mut engine, |engine| engine.test(&receive).unwrap().is_done());
        assert!(engine.take(receive).unwrap().0 == message);
        events.run(&mut engine, |engine| engine.test(&send).unwrap().is_done());
    }
    assert!(events.sleeps > 0 && events.wakes > 0, "{} sleeps, {} wakes", events.sleeps, events.wakes);
    engine.finalize(PATIENCE).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_submission_wakes_the_loop() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    let submitter = engine.submitter();
    let receive = engine.irecv(vec![0u8; 8], Rank(0), Tag(1), world).unwrap();
    let mut events = Loop::new(&engine);
    engine.tick();
    assert!(engine.prepare_wait(), "nothing to do");
    // From here on, other threads see the engine as asleep.
    submitter.isend(vec![5u8; 8], Rank(0), Tag(1), world).map(drop).unwrap();
    let mut found = [const { MaybeUninit::<epoll::Event>::uninit() }; 4];
    let time = rustix::event::Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(epoll::wait(&events.epoll, &mut found[..], Some(&time)).unwrap().0.len(), 1, "it is woken");
    events.run(&mut engine, |engine| engine.test(&receive).unwrap().is_done());
    assert_eq!(engine.take(receive).unwrap().0, [5; 8]);
}

#[test]
fn an_idle_engine_does_not_spin_its_loop() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let mut events = Loop::new(&engine);
    let start = Instant::now();
    events.run(&mut engine, |_| start.elapsed() > Duration::from_millis(350));
    assert!(events.sleeps <= 8, "{} sleeps of 100 ms in 350 ms", events.sleeps);
}

/// Exchanges messages, and then none for the time `quiet`. Returns how often the descriptor has woken the loop in
/// that time, and how many turns the loop has made.
fn quiet_after_traffic(build: impl Fn(Bootstrap) -> Engine + Sync, ends: bool, quiet: Duration) -> (u32, u32) {
    let board = Board::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| echo(build(board.bootstrap(1))));
        let mut engine = build(board.bootstrap(0));
        let world = engine.comm_world();
        let mut events = Loop { ends, ..Loop::new(&engine) };
        let talk = |engine: &mut Engine, events: &mut Loop, length: usize| {
            let receive: Request<Vec<u8>> = engine.irecv(vec![0u8; length], Rank(1), Tag(2), world).unwrap();
            let send = engine.isend(vec![1u8; length], Rank(1), Tag(1), world).unwrap();
            events.run(engine, |engine| engine.test(&receive).unwrap().is_done());
            events.run(engine, |engine| engine.test(&send).unwrap().is_done());
        };
        for number in 0..100 {
            // Some messages arrive while the loop sleeps, and the descriptor wakes it. Others arrive while it is
            // awake.
            talk(&mut engine, &mut events, 1 + number * 37);
        }
        let (wakes, turns, start) = (events.wakes, events.turns, Instant::now());
        events.run(&mut engine, |_| start.elapsed() >= quiet);
        let found = (events.wakes - wakes, events.turns - turns);
        talk(&mut engine, &mut events, 0);
        engine.finalize(PATIENCE).unwrap();
        found
    })
}

/// In 3 s without traffic there may be only a few wake-ups, and a turn of the loop for each of them and for each sleep of
/// 100 ms, whether or not the loop calls `end_wait`. The processor time of such a turn is for benches.
fn assert_quiet(what: &str, build: impl Fn(Bootstrap) -> Engine + Sync) {
    for ends in [true, false] {
        let (wakes, turns) = quiet_after_traffic(&build, ends, Duration::from_secs(3));
        assert!(wakes <= 5, "{what}, ends {ends}: {wakes} wake-ups in 3 s without traffic");
        assert!(turns <= 40, "{what}, ends {ends}: {turns} turns in 3 s without traffic");
    }
}

#[test]
fn the_loop_is_quiet_after_traffic_over_shared_memory() {
    assert_quiet("shm", |bootstrap| Engine::builder().include(["loopback", "shm"]).build(bootstrap).unwrap());
}

/// A builder of an engine that uses this provider of a fabric, also within one process. Without libfabric it returns
/// `None` and says so.
fn over(provider: &str) -> Option<Builder> {
    has_libfabric().then(|| Engine::builder().ofi(Choice { include: vec![provider.into()], ..Choice::default() }))
}

#[test]
fn the_loop_is_quiet_after_traffic_over_a_fabric() {
    if over("net").is_some() {
        assert_quiet("ofi:net", |bootstrap| over("net").unwrap().exclude(["shm"]).build(bootstrap).unwrap());
    }
}

#[test]
fn a_sleep_that_is_over_is_silent_until_the_next_one() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    let submitter = engine.submitter();
    let events = Loop::new(&engine);
    let readable = || {
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut found = [const { MaybeUninit::<epoll::Event>::uninit() }; 4];
        !epoll::wait(&events.epoll, &mut found[..], Some(&now)).unwrap().0.is_empty()
    };
    // A few ticks do the submitted work.
    let prepare = |engine: &mut Engine| {
        (0..100).any(|_| {
            engine.tick();
            engine.prepare_wait()
        })
    };
    let submit = || submitter.isend(vec![5u8; 8], Rank(0), Tag(1), world).map(drop).unwrap();
    assert!(prepare(&mut engine) && !readable());
    submit();
    assert!(readable(), "it rings");
    engine.end_wait();
    assert!(!readable(), "and is silent, though the work is still to be done");
    submit();
    assert!(!readable(), "nobody rings for who is awake");
    assert!(!engine.prepare_wait(), "there is something to tick for");
    assert!(prepare(&mut engine) && !readable());
    submit();
    assert!(readable());
    // Without `end_wait`, too, the descriptor is silent at the next sleep.
    assert!(prepare(&mut engine) && !readable());
}

/// Whether a thread of this process sleeps.
fn is_asleep(thread: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero())).unwrap();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// A rank over one transport. When it is told to, it waits until rank 0 sleeps, and then sends to it. Rank 0 is the
/// thread `receiver`.
fn late(builder: Builder, bootstrap: Bootstrap, receiver: Pid, told: &mpsc::Receiver<()>) {
    let mut engine = builder.build(bootstrap).unwrap();
    let world = engine.comm_world();
    engine.send(&[0u8], Rank(0), Tag(1), world).unwrap();
    // If rank 0 has panicked, it says nothing more.
    if told.recv().is_err() {
        return;
    }
    let start = Instant::now();
    while !is_asleep(receiver) {
        assert!(start.elapsed() < PATIENCE, "rank 0 does not fall asleep");
        std::thread::yield_now();
    }
    engine.send(&[1u8], Rank(0), Tag(2), world).unwrap();
    engine.finalize(PATIENCE).unwrap();
}

#[test]
fn a_wait_over_shared_memory_and_a_fabric_sleeps_and_is_woken_by_either() {
    if over("net").is_none() {
        return;
    }
    // Only shared memory reaches rank 1, and only the fabric reaches rank 2.
    let board = Board::new(3);
    std::thread::scope(|scope| {
        let shm = Engine::builder().include(["loopback", "shm"]);
        let ((first, first_told), (second, second_told)) = (mpsc::channel(), mpsc::channel());
        let (one, two) = (board.bootstrap(1), board.bootstrap(2));
        let me = gettid();
        scope.spawn(move || late(shm, one, me, &first_told));
        scope.spawn(move || late(over("net").unwrap().exclude(["shm"]), two, me, &second_told));
        // The limit of a sleep is long, so that only a wake-up can end it in time.
        let limits = Limits { sleep_ms_max: 20_000, ..Limits::default() };
        let mut engine = over("net").unwrap().limits(limits).build(board.bootstrap(0)).unwrap();
        let world = engine.comm_world();
        for rank in [1, 2] {
            engine.recv(&mut [0u8], Rank(rank), Tag(1), world).unwrap();
        }
        for (rank, name) in [(1, "shm"), (2, "ofi:net")] {
            let routes = engine.routes(ProcId(rank), TrafficClass::PointToPoint);
            assert!(routes.iter().any(|route| route.chosen && route.transport.starts_with(name)), "{routes:?}");
        }
        assert!(!engine.must_poll(), "both have descriptors");
        for (rank, go) in (1..).zip([first, second]) {
            let receive = engine.irecv(vec![0u8], Source::Any, Tag(2), world).unwrap();
            let before = thread_time();
            let waited = engine.wait_for(&receive, Duration::from_secs(2));
            assert!(matches!(waited, Err(tickwire::RequestError::Timeout)), "{waited:?}");
            let spent = thread_time() - before;
            assert!(spent < Duration::from_millis(50), "{spent:?} of processor time in 2 s without a message");
            go.send(()).unwrap();
            let start = Instant::now();
            assert_eq!(engine.wait(&receive).unwrap().source, Rank(rank));
            assert!(start.elapsed() < Duration::from_secs(5), "woken by its bell after {:?}", start.elapsed());
            engine.take(receive).unwrap();
        }
        engine.finalize(PATIENCE).unwrap();
    });
}

/// A process that was never contacted ends, and no operation ends by that. A receive from any source has to be told, so there is something
/// to look at before the next sleep.
#[test]
fn a_failure_that_is_found_before_a_sleep_is_not_slept_over() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let receive = cluster.engines[0].irecv(vec![0u8; 1], Source::Any, Tag(1), world).unwrap();
    cluster.tick_times(3);
    let engine = &mut cluster.engines[0];
    assert!(engine.prepare_wait(), "nothing to do");
    engine.end_wait();
    cluster.board.end(1, "killed");
    assert!(!engine.prepare_wait(), "there is something to tick for");
    assert!(matches!(engine.test(&receive), Err(RequestError::PeerFailedPending { proc: ProcId(1), .. })));
    // It is told once. Until it is acknowledged, an application may sleep.
    engine.tick();
    assert!(engine.prepare_wait());
    engine.end_wait();
}
