//! The engine's descriptor in an application's own poll set.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};
use tickwire::testing::Board;
use tickwire::{Bootstrap, Engine, Rank, Request, Tag};
use tickwire_tests::cases::content;

/// Above everything that a loaded machine may need.
const PATIENCE: Duration = Duration::from_secs(30);

/// An application's event loop with one engine in it.
struct Loop {
    epoll: OwnedFd,
    sleeps: u32,
    wakes: u32,
}

impl Loop {
    fn new(engine: &Engine) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, engine.as_fd(), epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
        Loop { epoll, sleeps: 0, wakes: 0 }
    }

    /// Ticks and sleeps until a condition holds.
    fn run(&mut self, engine: &mut Engine, mut done: impl FnMut(&mut Engine) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
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
            }
        }
    }
}

/// Answers every message until one is empty.
fn echo(mut engine: Engine) {
    let world = engine.comm_world();
    loop {
        let mut buffer = vec![0; 100_000];
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
        let receive: Request<Vec<u8>> = engine.irecv(vec![0; length], Rank(1), Tag(2), world).unwrap();
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
    let receive = engine.irecv(vec![0; 8], Rank(0), Tag(1), world).unwrap();
    let mut events = Loop::new(&engine);
    engine.tick();
    assert!(engine.prepare_wait(), "nothing to do");
    // The engine is asleep from here on, as far as others can see.
    submitter.isend(vec![5; 8], Rank(0), Tag(1), world).map(drop).unwrap();
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
