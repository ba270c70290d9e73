//! Loans of buffers end on every way out of a call, also if code of the application panics in a blocking call or a
//! scope. After that, nothing that was lent may be touched.

use crate::{Streams, streams};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tickwire::bootstrap::{BootstrapEvent, Exchange};
use tickwire::internals::traces::{Event, Sink};
use tickwire::testing::{Board, BoardExchange};
use tickwire::{Bootstrap, Engine, List, OperationError, PostError, Rank, RequestError, Tag, Test};

const TIME: Duration = Duration::from_secs(20);

/// Code of the application that runs during a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Place {
    /// A trace sink that is flushed before a sleep.
    Sink = 1,
    /// A launcher that is polled for events.
    Launcher,
    /// A transport that is polled for frames.
    Ready,
    /// A transport that is polled for events of its connections.
    Control,
}

const WHILE_WAITING: [Place; 4] = [Place::Sink, Place::Launcher, Place::Ready, Place::Control];

/// Panics once, in the place that a test has set.
#[derive(Clone, Default)]
pub(crate) struct Trap(Arc<AtomicU8>);

impl Trap {
    fn set(&self, place: Place) {
        self.0.store(place as u8, Ordering::Relaxed);
    }

    pub(crate) fn spring(&self, place: Place) {
        if self.0.compare_exchange(place as u8, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            panic!("trapped: {place:?}");
        }
    }
}

impl Sink for Trap {
    fn record(&mut self, _: &Event<'_>) {}

    fn flush(&mut self) {
        self.spring(Place::Sink);
    }
}

struct Launcher(BoardExchange, Trap);

impl Exchange for Launcher {
    tickwire_tests::exchanged!(rank size job put fence get finish);

    fn poll_event(&mut self) -> Option<BootstrapEvent> {
        self.1.spring(Place::Launcher);
        self.0.poll_event()
    }
}

/// Three engines over streams. The first one has the trap, and is connected to the second one.
fn trapped() -> ([Engine; 3], Trap) {
    let (board, trap) = (Board::new(3), Trap::default());
    let build = |rank: u32, streams: Streams| {
        let (board, trap) = (board.clone(), trap.clone());
        move || match rank {
            0 => {
                let transport = Streams { trap: trap.clone(), ..streams };
                let builder = Engine::builder().exclude(["shm"]).trace(trap.clone()).transport(transport);
                builder.build(Bootstrap::custom(Launcher(board.exchange(0), trap)))
            }
            _ => Engine::builder().exclude(["shm"]).transport(streams).build(board.bootstrap(rank)),
        }
    };
    let threads: Vec<_> =
        (0u32..).zip(streams(3)).map(|(rank, streams)| std::thread::spawn(build(rank, streams))).collect();
    let engines: Vec<Engine> = threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect();
    let Ok(mut engines) = <[Engine; 3]>::try_from(engines) else { unreachable!("there are three") };
    let world = engines[0].comm_world();
    let first = engines[0].isend(vec![1u8], Rank(1), Tag(0), world).unwrap();
    let other = engines[1].irecv(vec![0u8], Rank(0), Tag(0), world).unwrap();
    until(&mut engines, |engines| {
        engines[1].test(&other).unwrap().is_done() && engines[0].test(&first).unwrap().is_done()
    });
    (engines, trap)
}

/// Ticks all engines until a condition holds.
fn until(engines: &mut [Engine], mut condition: impl FnMut(&mut [Engine]) -> bool) {
    let end = Instant::now() + TIME;
    while !condition(engines) {
        assert!(Instant::now() < end, "not in time");
        for engine in engines.iter_mut() {
            engine.tick();
        }
    }
}

fn tick(engine: &mut Engine, times: u32) {
    for _ in 0..times {
        engine.tick();
    }
}

/// Makes a call that lends a buffer, and lets it end by a panic in a place.
fn leave(engines: &mut [Engine; 3], trap: &Trap, place: Place, call: impl FnOnce(&mut Engine)) {
    let world = engines[0].comm_world();
    trap.set(place);
    let left = catch_unwind(AssertUnwindSafe(|| call(&mut engines[0])));
    assert!(left.is_err(), "{place:?}: the panic is the caller's");
    let refused = engines[0].isend(vec![1u8], Rank(1), Tag(0), world).unwrap_err();
    assert!(matches!(refused.error, PostError::Poisoned(_)), "{place:?}: {refused}");
    assert!(engines[0].tick().is_idle());
}

#[test]
fn nothing_is_received_into_what_was_lent_to_a_call_that_a_panic_has_left() {
    type Call = fn(&mut Engine, &mut [u8]) -> Result<tickwire::Status, OperationError>;
    let calls: [Call; 2] = [
        |engine, into| engine.recv(into, Rank(1), Tag(5), engine.comm_world()),
        |engine, into| {
            let world = engine.comm_world();
            engine.sendrecv(&[1u8; 8], Rank(1), Tag(6), into, Rank(1), Tag(5), world)
        },
    ];
    for (place, call) in WHILE_WAITING.into_iter().flat_map(|place| calls.map(|call| (place, call))) {
        let (mut engines, trap) = trapped();
        let mut into = [7; 64];
        leave(&mut engines, &trap, place, |engine| {
            let _ = call(engine, &mut into);
        });
        let [engine, mut peer, _other] = engines;
        let world = peer.comm_world();
        drop(peer.isend(vec![9u8; 64], Rank(0), Tag(5), world).unwrap());
        tick(&mut peer, 100);
        drop(engine);
        assert_eq!(into, [7; 64], "{place:?}");
    }
}

#[test]
fn nothing_is_sent_of_what_was_lent_to_a_call_that_a_panic_has_left() {
    type Call = fn(&mut Engine, &[u8]);
    let calls: [Call; 4] = [
        |engine, out| drop(engine.send(out, Rank(1), Tag(5), engine.comm_world())),
        |engine, out| drop(engine.ssend(out, Rank(1), Tag(5), engine.comm_world())),
        // The panic comes while the scope waits for its operation.
        |engine, out| {
            engine.scope(|scope| {
                let _ = scope.isend(out, Rank(1), Tag(5), scope.comm_world()).unwrap();
            });
        },
        |engine, out| {
            let world = engine.comm_world();
            drop(engine.sendrecv(out, Rank(1), Tag(5), &mut [0u8], Rank(1), Tag(6), world));
        },
    ];
    for (place, call) in [Place::Sink, Place::Control].into_iter().flat_map(|place| calls.map(|call| (place, call))) {
        let (mut engines, trap) = trapped();
        let mut out = vec![5u8; 200_000];
        leave(&mut engines, &trap, place, |engine| call(engine, &out));
        out.fill(6);
        let [engine, mut peer, _other] = engines;
        let world = peer.comm_world();
        let incoming = peer.irecv(vec![0u8; out.len()], Rank(0), Tag(5), world).unwrap();
        // The answer to the offer has come by the time the engine is dropped.
        tick(&mut peer, 1000);
        let dropped = std::thread::spawn(move || drop(engine));
        let ended = peer.wait_for(&incoming, TIME);
        assert!(matches!(ended, Err(RequestError::PeerFailed { .. })), "{place:?}: {ended:?}");
        dropped.join().unwrap();
    }
}

#[test]
fn a_scope_leaves_no_buffer_behind() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let (me, world) = (engine.rank(), engine.comm_world());
    let shared: Arc<[u8]> = vec![1u8; 100].into();
    for fate in ["dropped", "forgotten", "returned", "taken"] {
        let incoming = engine.irecv(vec![0u8; 100], me, Tag(1), world).unwrap();
        let token = engine.scope(|scope| {
            let outgoing = scope.issend(shared.clone(), me, Tag(1), world).unwrap();
            scope.wait(&outgoing).unwrap();
            assert_eq!(Arc::strong_count(&shared), 2);
            match fate {
                "dropped" => drop(outgoing),
                "forgotten" => std::mem::forget(outgoing),
                "taken" => drop(scope.take(outgoing).unwrap()),
                _ => return Some(outgoing),
            }
            None
        });
        assert_eq!(Arc::strong_count(&shared), 1, "{fate}");
        if let Some(token) = token {
            assert!(matches!(engine.test(&token), Err(RequestError::Stale)));
            assert_eq!(engine.take(token).unwrap_err().error, RequestError::Stale);
        }
        engine.wait(&incoming).unwrap();
        assert_eq!(engine.take(incoming).unwrap().0, [1; 100]);
    }
    tickwire::testing::check_invariants(&mut engine).unwrap();
}

#[test]
fn a_buffer_that_panics_when_a_scope_drops_it_ends_the_loans_of_all() {
    struct Bomb(Vec<u8>, Arc<AtomicU8>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
                panic!("dropped");
            }
        }
    }
    // SAFETY: as its bytes.
    #[expect(unsafe_code, reason = "a buffer of the application's own type")]
    unsafe impl tickwire::internals::components::Pieces for Bomb {
        fn piece(&self, index: usize) -> tickwire::internals::components::Span {
            self.0.piece(index)
        }
    }
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let (me, world) = (engine.rank(), engine.comm_world());
    let dropped = Arc::new(AtomicU8::new(0));
    let incoming = [0, 1].map(|_| engine.irecv(vec![0u8; 4], me, Tag(1), world).unwrap());
    let left = catch_unwind(AssertUnwindSafe(|| {
        engine.scope(|scope| {
            for _ in 0..2 {
                let outgoing = scope.issend(Bomb(vec![1u8; 4], dropped.clone()), me, Tag(1), world).unwrap();
                scope.wait(&outgoing).unwrap();
                std::mem::forget(outgoing);
            }
        });
    }));
    assert!(left.is_err());
    assert_eq!(dropped.load(Ordering::Relaxed), 2, "none is kept");
    assert!(incoming.iter().all(|incoming| !matches!(engine.test(incoming), Ok(Test::Pending))));
}

#[test]
fn lists_of_borrowed_runs_are_received_into() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let (me, world) = (engine.rank(), engine.comm_world());
    let (mut one, mut other) = ([0; 3], [0; 4]);
    engine.scope(|scope| {
        let incoming = scope.irecv(List(vec![&mut one[..], &mut other[..]]), me, Tag(1), world).unwrap();
        let outgoing =
            scope.isend(List(vec!["ab".to_owned(), String::new(), "cdefg".to_owned()]), me, Tag(1), world).unwrap();
        scope.wait(&outgoing).unwrap();
        scope.wait(&incoming).unwrap();
    });
    assert_eq!((&one, &other), (b"abc", b"defg"));
}

#[test]
fn a_scope_does_what_its_engine_does() {
    let mut engine = Engine::builder().build(tickwire::Bootstrap::solo()).unwrap();
    let (me, world) = (engine.rank(), engine.comm_world());
    let (mut outer, mut inner, mut cells) = ([0u8; 4], [0u8; 4], [1u16, 2]);
    engine.attach_buffer(1 << 16);
    engine.scope(|scope| {
        let open = scope.irecv(&mut outer, me, Tag(9), world).unwrap();
        scope.sendrecv(b"abcd", me, Tag(1), &mut inner, me, Tag(1), world).unwrap();
        assert_eq!(scope.test(&open), Ok(tickwire::Test::Pending), "it is not ended by an exchange within the scope");
        let wrong = scope.sendrecv(b"abcd", Rank(7), Tag(1), &mut [0u8; 4], me, Tag(1), world).unwrap_err();
        assert!(wrong.to_string().contains("rank 7"), "{wrong}");
        scope.sendrecv_replace(&mut cells, me, Tag(2), me, Tag(2), world).unwrap();
        let copy = scope.comm_dup(world).unwrap();
        scope.comm_set_priority(copy, 3).unwrap();
        assert_eq!(scope.comm_rank(copy), Ok(me));
        let buffered = scope.ibsend(&[1u8; 4], me, Tag(9), world).unwrap();
        scope.wait(&buffered).unwrap();
        scope.wait(&open).unwrap();
        scope.comm_free(copy).unwrap();
    });
    assert_eq!((outer, inner, cells), ([1; 4], *b"abcd", [1, 2]));
}

#[test]
fn persistent_requests_end_with_their_scope() {
    let mut engine = Engine::builder().build(tickwire::Bootstrap::solo()).unwrap();
    let (me, world) = (engine.rank(), engine.comm_world());
    let (sent, mut came, mut never) = ([[1u32, 2], [3, 4]], [0u32; 2], [0u32; 2]);
    let left = engine.scope(|scope| {
        let send = scope.send_init(&sent[0], me, Tag(1), world).unwrap();
        let receive = scope.recv_init(&mut came, me, Tag(1), world).unwrap();
        for _ in 0..3 {
            scope.start(&receive).unwrap();
            scope.start(&send).unwrap();
            scope.wait(&send).unwrap();
            assert_eq!(scope.wait(&receive).unwrap().count::<u32>(), Ok(2));
        }
        let mut send = send;
        *scope.buffer(&mut send).unwrap() = &sent[1];
        scope.start(&receive).unwrap();
        scope.start(&send).unwrap();
        scope.wait(&receive).unwrap();
        // One request is active and forgotten, one is inactive and forgotten, and of one only the id leaves the
        // scope.
        let open = scope.recv_init(&mut never, me, Tag(2), world).unwrap();
        scope.start(&open).unwrap();
        std::mem::forget(open);
        std::mem::forget(receive);
        send.id()
    });
    assert_eq!((came, never), (sent[1], [0; 2]));
    let all = tickwire::testing::rows(&mut engine);
    assert_eq!((all.progress.scoped, all.progress.active), (0, 0));
    assert!(all.requests[left.row as usize].generation != left.generation, "its row is free");
}
