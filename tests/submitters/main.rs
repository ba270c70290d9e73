//! Other threads submit operations while one thread owns the engine.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

mod calls;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tickwire::internals::components::limits::SUBMISSIONS_MAX;
use tickwire::testing::{Cluster, rows};
use tickwire::{
    Bootstrap, Comm, Engine, FinalizeError, List, PostError, Rank, RequestError, SendOptions, Source, Status,
    Submitter, Tag,
};
use tickwire_tests::cases::{BOUND, content};

const ME: Rank = Rank(0);
/// Longer than any wait on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn solo() -> Engine {
    Engine::builder().initial_rows(32).build(Bootstrap::solo()).unwrap()
}

/// Ticks an engine until a condition holds.
fn tick_until(engine: &mut Engine, mut done: impl FnMut(&mut Engine) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done(engine) {
        engine.tick();
        std::thread::yield_now();
        assert!(Instant::now() < end, "{}", tickwire::testing::dump(engine));
    }
}

/// The smallest possible executor.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A thread sends messages to itself through the engine, and waits by `wait` and by `await` in turn.
fn converse(submitter: &Submitter, world: Comm, tag: u32) {
    for number in 0..50u64 {
        let length = if number % 10 == 9 { 50_000 } else { number as usize * 7 };
        let message = content(number, length);
        let receive = submitter.irecv(vec![0u8; length], Source::Any, Tag(tag), world).unwrap();
        let send = submitter.isend(message.clone(), ME, Tag(tag), world).unwrap();
        let (bytes, status) = match number % 2 {
            0 => receive.wait().unwrap(),
            _ => block_on(receive).unwrap(),
        };
        assert!(bytes == message && status.length == length && status.tag == Tag(tag));
        assert!(block_on(send).unwrap().0 == message);
    }
}

#[test]
fn threads_submit_and_wait_or_await() {
    let mut engine = solo();
    let world = engine.comm_world();
    let submitter = engine.submitter();
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for tag in 0..3 {
            let (submitter, done) = (submitter.clone(), &done);
            scope.spawn(move || {
                converse(&submitter, world, tag);
                done.fetch_add(1, Ordering::Release);
            });
        }
        tick_until(&mut engine, |_| done.load(Ordering::Acquire) == 3);
    });
    assert_eq!(rows(&mut engine).progress.active, 0);
}

#[test]
fn an_engine_that_sleeps_is_woken_by_a_submission() {
    let mut engine = solo();
    let world = engine.comm_world();
    let submitter = engine.submitter();
    let receive = engine.irecv(vec![0u8; 3], ME, Tag(0), world).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || submitter.isend(vec![1u8, 2, 3], ME, Tag(0), world).unwrap().wait().unwrap());
        // The engine polls, then yields, and finally sleeps.
        assert_eq!(engine.wait_for(&receive, PATIENCE).unwrap().length, 3);
        assert_eq!(engine.take(receive).unwrap().0, [1, 2, 3]);
        tick_until(&mut engine, |engine| rows(engine).progress.active == 0);
    });
}

#[test]
fn abandoned_submissions_are_finished_and_their_slots_used_again() {
    let mut engine = solo();
    let world = engine.comm_world();
    let submitter = engine.submitter();
    let shared: Arc<[u8]> = vec![7u8; 100].into();
    for _ in 0..3 {
        for _ in 0..SUBMISSIONS_MAX / 2 {
            drop(submitter.isend(shared.clone(), ME, Tag(0), world).unwrap());
            drop(submitter.irecv(vec![0u8; 100], ME, Tag(0), world).unwrap());
        }
        tick_until(&mut engine, |engine| {
            let all = rows(engine);
            all.progress.active == 0 && all.inbound.shared().free.len() == SUBMISSIONS_MAX
        });
    }
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn submissions_with_no_proc_are_done_and_move_nothing() {
    let mut engine = solo();
    let world = engine.comm_world();
    let submitter = engine.submitter();
    let send = submitter.isend(vec![7u8; 4], Rank::NULL, Tag(1), world).unwrap();
    let receive = submitter.irecv(vec![8u8; 4], Rank::NULL, Tag(1), world).unwrap();
    let wrong = submitter.isend(vec![9u8; 4], Rank::NULL, Tag(u32::MAX), world).unwrap();
    engine.tick();
    assert_eq!(send.wait().unwrap(), (vec![7u8; 4], Status::NULL));
    assert_eq!(receive.wait().unwrap(), (vec![8u8; 4], Status::NULL));
    let failed = wrong.wait().unwrap_err();
    assert_eq!(failed.error, RequestError::NotPosted(PostError::Tag { tag: u32::MAX }));
    assert_eq!(failed.buffer, Some(vec![9u8; 4]));
}

#[test]
fn submissions_beyond_the_slots_come_back() {
    let mut engine = solo();
    let world = engine.comm_world();
    let submitter = engine.submitter();
    let open: Vec<_> =
        (0..SUBMISSIONS_MAX).map(|_| submitter.irecv(vec![0u8; 4], ME, Tag(0), world).unwrap()).collect();
    let full = submitter.irecv(vec![5u8; 4], ME, Tag(0), world).map(drop).unwrap_err();
    assert!(matches!(full.error, PostError::Full { .. }) && full.buffer == [5; 4]);
    let count = open.len();
    let mut sent = 0;
    tick_until(&mut engine, |engine| {
        if sent < count {
            engine.send(&[1u8; 4], ME, Tag(0), world).unwrap();
            sent += 1;
        }
        rows(engine).progress.active == 0 && sent == count
    });
    for submitted in open {
        assert_eq!(submitted.wait().unwrap().0, [1; 4], "the answer is there");
    }
}

#[test]
fn wrong_submissions_say_why_and_give_the_buffer_back() {
    let mut engine = solo();
    let world = engine.comm_world();
    let submitter = engine.submitter();
    let wrong = [
        submitter.isend(vec![1u8], Rank(1), Tag(0), world).unwrap(),
        submitter.isend(vec![1u8], ME, Tag(1 << 31), world).unwrap(),
        submitter.irecv(vec![1u8], ME, Tag(0), Comm(9)).unwrap(),
    ];
    engine.tick();
    let errors = [PostError::Rank { rank: 1, last: 0 }, PostError::Tag { tag: 1 << 31 }, PostError::Communicator(9)];
    for (submitted, error) in wrong.into_iter().zip(errors) {
        let failed = submitted.wait().unwrap_err();
        assert_eq!((failed.error, failed.buffer), (RequestError::NotPosted(error), Some(vec![1])));
    }
}

#[test]
fn a_submission_of_more_runs_than_rows_are_kept_ahead_is_posted() {
    let mut engine = Engine::builder().initial_rows(80).build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    let submitter = engine.submitter();
    let runs = List((0..200u8).map(|n| vec![n; 2]).collect());
    let receive = engine.irecv(vec![0u8; 400], ME, Tag(0), world).unwrap();
    let submitted = submitter.isend(runs.clone(), ME, Tag(0), world).unwrap();
    tick_until(&mut engine, |engine| engine.test(&receive).unwrap().is_done());
    assert_eq!(engine.take(receive).unwrap().0, runs.concat());
    tick_until(&mut engine, |engine| rows(engine).progress.active == 0);
    assert_eq!(submitted.wait().unwrap().0, runs);
}

#[test]
fn after_finalize_nothing_is_taken_and_nobody_waits_for_ever() {
    let mut engine = solo();
    let world = engine.comm_world();
    let submitter = engine.submitter();
    let taken_in = submitter.irecv(vec![0u8; 4], ME, Tag(0), world).unwrap();
    engine.tick();
    let in_the_queue = submitter.irecv(vec![1u8; 4], ME, Tag(0), world).unwrap();
    let waits = std::thread::spawn(move || taken_in.wait());
    engine.finalize(Duration::from_secs(1)).unwrap();
    let failed = waits.join().unwrap().unwrap_err();
    assert_eq!(failed.error, RequestError::Finalized);
    let failed = in_the_queue.wait().unwrap_err();
    assert!(matches!(failed.error, RequestError::Finalized | RequestError::NotPosted(PostError::Finalized)));
    assert_eq!(failed.buffer.map(|buffer| buffer.len()), Some(4));
    let refused = submitter.isend(vec![3u8], ME, Tag(0), world).map(drop).unwrap_err();
    assert_eq!((refused.error, refused.buffer), (PostError::Finalized, vec![3]));
    drop(engine);
    assert!(submitter.isend(vec![3u8], ME, Tag(0), world).is_err(), "the handle may outlive the engine");
}

#[test]
fn a_receive_that_is_submitted_in_the_middle_of_a_tick_gets_all_of_an_unexpected_message() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let large = cluster.engines[0].isend(content(1, 50_000), Rank(1), Tag(1), world).unwrap();
    let done = cluster.engines[0].isend(vec![0u8; 4], Rank(1), Tag(2), world).unwrap();
    cluster.tick_until(BOUND, "it has left", |cluster| cluster.engines[0].test(&done).unwrap().is_done());
    let submitter = cluster.engines[0].submitter();
    let (sender, receiver) = std::sync::mpsc::channel();
    // One tick of proc 0 finds both an unexpected message and a request for pieces. The request lets Post run again.
    // Before that, in the same tick, the callback submits the receive.
    let submit = move |_| sender.send(submitter.irecv(vec![0u8; 100], Source::Any, Tag(9), world)).unwrap();
    cluster.engines[0].on_complete(&done, submit).unwrap();
    let unexpected = cluster.engines[1].isend(content(2, 27), ME, Tag(9), world).unwrap();
    let incoming = cluster.engines[1].irecv(vec![0u8; 50_000], ME, Tag(1), world).unwrap();
    cluster.tick(1);
    cluster.tick(0);
    let submitted = receiver.try_recv().unwrap().unwrap();
    cluster.finish(BOUND, 1, incoming).unwrap();
    cluster.finish(BOUND, 1, unexpected).unwrap();
    cluster.finish(BOUND, 0, large).unwrap();
    let (bytes, status) = submitted.wait().unwrap();
    assert_eq!((status.length, &bytes[..27]), (27, &content(2, 27)[..]));
}

/// A waker that panics.
struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        panic!("a waker gave up");
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_from_its_answer() {
    for finalized in [false, true] {
        let mut engine = solo();
        let world = engine.comm_world();
        let submitter = engine.submitter();
        let mut receives: Vec<_> =
            (0..4).map(|tag| Box::pin(submitter.irecv(vec![0u8; 4], ME, Tag(tag), world).unwrap())).collect();
        // The first two receives have a waker that panics. So has a send that is refused.
        let mut refused = Box::pin(submitter.isend(vec![0u8; 4], Rank(7), Tag(0), world).unwrap());
        let broken = Waker::from(Arc::new(Broken));
        for receive in &mut receives[..2] {
            assert!(receive.as_mut().poll(&mut Context::from_waker(&broken)).is_pending());
        }
        if finalized {
            drop(refused);
            engine.tick();
            let ended = engine.finalize(Duration::from_secs(1)).unwrap_err();
            assert!(matches!(&ended, FinalizeError::Poisoned(why) if why == "a waker gave up"), "{ended}");
            for receive in receives {
                let error = block_on(receive).unwrap_err().error;
                assert_eq!(error, RequestError::Finalized);
            }
            continue;
        }
        assert!(refused.as_mut().poll(&mut Context::from_waker(&broken)).is_pending());
        let _sends: Vec<_> =
            (0..4).map(|tag| submitter.isend(vec![tag as u8; 4], ME, Tag(tag), world).unwrap()).collect();
        for _ in 0..100 {
            engine.tick();
        }
        let posted = engine.irecv(vec![0u8; 4], ME, Tag(9), world).unwrap_err().error;
        assert!(matches!(&posted, PostError::Poisoned(why) if why.contains("a waker gave up")), "{posted}");
        assert!(matches!(block_on(refused).unwrap_err().error, RequestError::NotPosted(_)));
        // Each receive has an answer, whether its message came in that round or can no longer come.
        for receive in receives {
            match block_on(receive) {
                Ok((bytes, status)) => assert_eq!(bytes, [status.tag.0 as u8; 4]),
                Err(failed) => assert!(matches!(failed.error, RequestError::Poisoned(_)), "{}", failed.error),
            }
        }
    }
}

#[test]
fn the_number_of_slots_is_configured() {
    let limits = tickwire::Limits { submissions_max: 3, ..tickwire::Limits::default() };
    let mut engine = Engine::builder().limits(limits).build(Bootstrap::solo()).unwrap();
    let (world, submitter) = (engine.comm_world(), engine.submitter());
    let open = [0; 3].map(|_| submitter.irecv([0u8; 4], ME, Tag(0), world).unwrap());
    let full = submitter.irecv([0u8; 4], ME, Tag(0), world).map(drop).unwrap_err();
    assert_eq!(full.error, PostError::Full { table: "submission", rows: 3, limit: "submissions_max" });
    // There may be as many calls besides.
    let calls = [1, 2, 3].map(|number| submitter.call(move |_| number));
    let beyond = submitter.call(|_| ()).wait().unwrap_err();
    assert_eq!(beyond, RequestError::NotPosted(full.error));
    tick_until(&mut engine, |engine| rows(engine).inbound.shared().calls.load(Ordering::Relaxed) == 3);
    assert_eq!(calls.map(|call| call.wait().unwrap()), [1, 2, 3]);
    drop(open);
    for wrong in [0, (1 << 20) + 1] {
        let limits = tickwire::Limits { submissions_max: wrong, ..tickwire::Limits::default() };
        let error = Engine::builder().limits(limits).build(Bootstrap::solo()).map(drop).unwrap_err();
        assert!(error.to_string().contains("submissions_max"), "{error}");
    }
}

/// The messages of several tasks arrive at once, so all of them want their buffers at once, and there is no room for so
/// many calls. None loses its message.
#[test]
fn what_has_come_is_not_lost_where_calls_find_no_room() {
    let limits = tickwire::Limits { submissions_max: 2, ..tickwire::Limits::default() };
    let mut engine = Engine::builder().limits(limits).build(Bootstrap::solo()).unwrap();
    let (world, submitter) = (engine.comm_world(), engine.submitter());
    let mut context = Context::from_waker(Waker::noop());
    let mut tasks: Vec<_> = (0..6u32)
        .map(|tag| {
            let submitter = submitter.clone();
            Box::pin(async move { submitter.post(move |engine| engine.irecv([0u8; 4], ME, Tag(tag), world)).await })
        })
        .collect();
    for task in &mut tasks {
        assert!(task.as_mut().poll(&mut context).is_pending());
        engine.tick();
        assert!(task.as_mut().poll(&mut context).is_pending(), "it is posted");
    }
    for tag in 0..6 {
        engine.send(&[tag as u8; 4], ME, Tag(tag), world).unwrap();
    }
    engine.tick();
    let mut ended = vec![None; tasks.len()];
    tick_until(&mut engine, |_| {
        for (task, ended) in tasks.iter_mut().zip(&mut ended).filter(|(_, ended)| ended.is_none()) {
            if let Poll::Ready(outcome) = task.as_mut().poll(&mut context) {
                *ended = Some(outcome.map(|(bytes, _)| *bytes).map_err(|error| error.to_string()));
            }
        }
        ended.iter().all(Option::is_some)
    });
    assert!((0..).zip(ended).all(|(tag, bytes)| bytes == Some(Ok([tag; 4]))));
}
