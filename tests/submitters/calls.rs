//! Calls that run on the thread of the engine, and operations other than plain sends and receives.

use super::*;

/// The number of operations that are posted and not done.
fn active(world: &tickwire::bevy_ecs::world::World) -> u32 {
    let progress = world.iter_entities().find_map(|entity| entity.get::<tickwire::internals::components::Progress>());
    progress.unwrap().active
}

#[test]
fn calls_come_in_their_turn_between_operations() {
    let mut engine = solo();
    let (world, submitter) = (engine.comm_world(), engine.submitter());
    let receives = [1u8, 2, 3].map(|number| {
        let receive = submitter.irecv([number; 1], ME, Tag(1), world).unwrap();
        let posted = submitter.call(move |engine| (number, active(engine.world())));
        (receive, posted)
    });
    engine.tick();
    engine.tick();
    engine.tick();
    for (number, (receive, posted)) in (1u8..).zip(receives) {
        assert_eq!(posted.wait(), Ok((number, u32::from(number))), "those before it are posted, and no other");
        drop(receive);
    }
}

#[test]
fn a_call_may_wait_and_the_next_one_waits_for_it() {
    let mut engine = solo();
    let (world, submitter) = (engine.comm_world(), engine.submitter());
    let first = submitter.call(move |engine| {
        let _ = engine.isend([7u8; 4], ME, Tag(1), world).unwrap();
        let (bytes, _) = engine.recv_vec::<u8>(ME, Tag(1), world).unwrap();
        let sent = engine.irecv([0u8; 1], ME, Tag(2), world).unwrap();
        engine.send(&bytes[..1], ME, Tag(2), world).unwrap();
        *engine.wait_take(sent).unwrap().0
    });
    let second = submitter.call(|engine| engine.tick().is_idle());
    tick_until(&mut engine, |engine| rows(engine).inbound.shared().calls.load(Ordering::Relaxed) == SUBMISSIONS_MAX);
    assert_eq!(first.wait(), Ok([7]));
    second.wait().unwrap();
}

/// What a call posts comes before what its thread submits later, also if the call ticks.
#[test]
fn operations_submitted_after_a_call_do_not_overtake_it() {
    let mut engine = solo();
    let (world, submitter) = (engine.comm_world(), engine.submitter());
    let called = submitter.call(move |engine| {
        for _ in 0..10 {
            engine.tick();
        }
        engine.isend([1u8], ME, Tag(1), world).unwrap()
    });
    let later = submitter.isend([2u8], ME, Tag(1), world).unwrap();
    let received: Vec<_> = (0..2).map(|_| engine.recv_vec::<u8>(ME, Tag(1), world).unwrap().0).collect();
    assert_eq!(received, [[1], [2]]);
    later.wait().unwrap();
    engine.wait(&called.wait().unwrap()).unwrap();
}

/// A call may wait for a thread that goes on once it has heard of the end of an operation that it has submitted before.
#[test]
fn operations_that_have_ended_are_answered_before_a_call_runs() {
    let mut engine = solo();
    let (world, submitter) = (engine.comm_world(), engine.submitter());
    let mut sent = Box::pin(submitter.isend([1u8], ME, Tag(1), world).unwrap().into_future());
    let called = submitter.call(move |engine| {
        engine.tick();
        sent.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    });
    tick_until(&mut engine, |engine| rows(engine).inbound.shared().calls.load(Ordering::Relaxed) == SUBMISSIONS_MAX);
    assert_eq!(called.wait(), Ok(true));
}

#[test]
fn modes_and_priorities_are_submitted_too() {
    let mut engine = solo();
    let (world, submitter) = (engine.comm_world(), engine.submitter());
    let options = SendOptions::new();
    let synchronous = submitter.isend_with([1u8; 4], ME, Tag(1), world, options.synchronous()).unwrap();
    let early = submitter.isend_with([2u8; 4], ME, Tag(2), world, options.ready()).unwrap();
    let urgent = submitter.isend_with([3u8; 4], ME, Tag(3), world, options.priority(9)).unwrap();
    for _ in 0..20 {
        engine.tick();
    }
    assert_eq!(early.wait().unwrap_err().error, RequestError::NotReady, "no receive is posted");
    let mut synchronous = pin!(synchronous);
    let mut context = Context::from_waker(Waker::noop());
    assert!(synchronous.as_mut().poll(&mut context).is_pending(), "nobody has received it");
    let waiting: Vec<_> = engine.dump().unexpected.iter().map(|message| message.tag).collect();
    assert_eq!(waiting, [1, 3]);
    engine.recv(&mut [0u8; 4], ME, Tag(1), world).unwrap();
    engine.tick();
    assert!(synchronous.as_mut().poll(&mut context).is_ready());
    engine.recv(&mut [0u8; 4], ME, Tag(3), world).unwrap();
    engine.tick();
    urgent.wait().unwrap();
}

#[test]
fn a_submitted_receive_is_cancelled_and_no_other() {
    let mut engine = solo();
    let (world, submitter) = (engine.comm_world(), engine.submitter());
    let [first, second] = [1, 2].map(|tag| submitter.irecv([0u8; 4], ME, Tag(tag), world).unwrap());
    let cancelled = first.cancel();
    tick_until(&mut engine, |engine| rows(engine).progress.active == 1);
    assert_eq!(cancelled.wait(), Ok(true));
    // The receive is done, and its slot is used again before the cancellation is processed.
    let late = first.cancel();
    assert_eq!(first.wait().unwrap_err().error, RequestError::Cancelled);
    let third = submitter.irecv([0u8; 4], ME, Tag(3), world).unwrap();
    for _ in 0..20 {
        engine.tick();
    }
    assert_eq!(late.wait(), Ok(false));
    for (tag, open) in [(2, second), (3, third)] {
        engine.send(&[tag as u8; 4], ME, Tag(tag), world).unwrap();
        engine.tick();
        assert_eq!(*open.wait().unwrap().0, [tag as u8; 4]);
    }
}

#[test]
fn whatever_an_engine_does_other_threads_await() {
    let mut engine = solo();
    let (world, submitter) = (engine.comm_world(), engine.submitter());
    let worker = async move {
        let (sent, came, status) =
            submitter.sendrecv([1u32, 2], ME, Tag(1), [0u32; 4], Source::Any, Tag(1), world).await?;
        assert_eq!((*sent, *came, status.count::<u32>().unwrap()), ([1, 2], [1, 2, 0, 0], 2));
        let wrong = submitter.sendrecv([0u8], Rank(9), Tag(1), [0u8], Source::Any, Tag(1), world).await;
        let out_of_range = RequestError::NotPosted(PostError::Rank { rank: 9, last: 0 });
        assert!(matches!(&wrong, Err(tickwire::Error::Request(error)) if *error == out_of_range), "{wrong:?}");

        let copy = submitter.comm_dup(world).await?;
        let half = submitter.comm_split(copy, Some(1), 0).await?.unwrap();
        assert_eq!(submitter.comm_split(copy, None, 0).await?, None);
        submitter.isend([5u8; 9], ME, Tag(4), half)?.await?;
        assert_eq!(submitter.iprobe(Source::Any, Tag(4), copy).await??, None, "another communicator");
        assert_eq!(submitter.iprobe(Source::Any, Tag(4), half).await??.unwrap().length, 9);
        let message = submitter.improbe(Source::Any, Tag(4), half).await??.unwrap();
        let (bytes, _) = submitter.post(move |engine| engine.imrecv(message, vec![0u8; 9])).await?;
        assert_eq!(bytes, [5; 9]);
        submitter.call(move |engine| engine.comm_free(half)).await??;
        Ok::<(), tickwire::Error>(())
    };
    let worker = std::thread::spawn(move || block_on(worker));
    tick_until(&mut engine, |_| worker.is_finished());
    worker.join().unwrap().unwrap();
    assert_eq!(rows(&mut engine).progress.active, 0, "the receive of the wrong exchange was cancelled");
}

#[test]
fn calls_of_a_closed_engine_say_so() {
    let mut engine = solo();
    let submitter = engine.submitter();
    let early = submitter.call(|_| ());
    engine.finalize(PATIENCE).unwrap();
    assert_eq!(early.wait(), Ok(()));
    assert_eq!(submitter.call(|_| ()).wait(), Err(RequestError::NotPosted(PostError::Finalized)));
    let mut engine = solo();
    let submitter = engine.submitter();
    let (bad, behind) = (submitter.call(|_| panic!("as it should")), submitter.call(|_| ()));
    engine.tick();
    assert_eq!(bad.wait(), Err::<(), _>(RequestError::Poisoned("as it should".into())));
    assert!(matches!(behind.wait(), Err(RequestError::NotPosted(PostError::Poisoned(_)))));
    assert!(matches!(engine.isend([1u8], ME, Tag(1), Comm(0)).map(drop).unwrap_err().error, PostError::Poisoned(_)));
}

/// Calls of another thread keep the engine busy for as long as it waits. The wait ends in time all the same.
#[test]
fn calls_of_others_do_not_put_off_the_end_of_a_wait() {
    let mut engine = solo();
    let (world, submitter) = (engine.comm_world(), engine.submitter());
    let never = engine.irecv(vec![0u8], ME, Tag(1), world).unwrap();
    let ended = AtomicBool::new(false);
    let calls = std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            // The bound lets a wait that does not end fail the test.
            let called = (0..3_000_000).take_while(|_| !ended.load(Ordering::Relaxed));
            called.map(|_| drop(submitter.call(|_| ()))).count()
        });
        let waited = engine.wait_for(&never, Duration::from_millis(50));
        ended.store(true, Ordering::Relaxed);
        assert_eq!(waited, Err(RequestError::Timeout));
        caller.join().unwrap()
    });
    assert!(calls < 3_000_000, "the wait has ended with the calls");
    // No limit is possible, too.
    engine.send(&[7u8], ME, Tag(1), world).unwrap();
    assert_eq!(engine.wait_for(&never, Duration::MAX).unwrap().length, 1);
    engine.finalize(Duration::MAX).unwrap();
}
