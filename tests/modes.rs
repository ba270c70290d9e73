//! Sends in all modes, probes, persistent requests, callbacks: over loopback, shared memory and a simulated network.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tickwire::components::limits::BUFFERED_OVERHEAD;
use tickwire::components::{NIL, Outcome, PostError, TagFilter};
use tickwire::testing::{Cluster, rows};
use tickwire::{Bootstrap, Engine, Rank, Request, RequestError, Source, Status, Tag, Test, Tested};
use tickwire_tests::cases::{BOUND, content, everywhere};

const ME: Rank = Rank(0);
/// A message that goes with its envelope, and one that asks first.
const SHORT: usize = 100;
const LONG: usize = 100_000;

fn solo() -> Engine {
    Engine::builder().build(Bootstrap::solo()).expect("an engine alone needs nothing")
}

/// All that has been sent so far has arrived.
fn settle(cluster: &mut Cluster) {
    cluster.tick_times(200);
}

#[test]
fn a_synchronous_send_is_done_only_when_it_is_matched() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        for length in [0, SHORT, LONG] {
            let message = content(1, length);
            let send = cluster.engines[1].issend(message.clone(), ME, Tag(3), world).unwrap();
            settle(cluster);
            assert_eq!(cluster.engines[1].test(&send), Ok(Test::Pending), "{length} bytes");
            let receive = cluster.engines[0].irecv(vec![0; length], Rank(1), Tag(3), world).unwrap();
            assert_eq!(cluster.finish(BOUND, 0, receive).unwrap().0, message);
            cluster.finish(BOUND, 1, send).unwrap();
            // A standard send of what can wait at the receiver is done without.
            let send = cluster.engines[1].isend(content(1, SHORT), ME, Tag(3), world).unwrap();
            cluster.finish(BOUND, 1, send).unwrap();
            let receive = cluster.engines[0].irecv(vec![0; SHORT], Rank(1), Tag(3), world).unwrap();
            cluster.finish(BOUND, 0, receive).unwrap();
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn a_ready_send_without_a_receive_is_an_error_where_it_can_be_known() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        // To be known of another proc, the connection must be there.
        let hello = cluster.engines[1].isend(Vec::<u8>::new(), ME, Tag(9), world).unwrap();
        let receive = cluster.engines[0].irecv(Vec::<u8>::new(), Rank(1), Tag(9), world).unwrap();
        cluster.finish(BOUND, 0, receive).unwrap();
        cluster.finish(BOUND, 1, hello).unwrap();
        for (from, length) in [(1, LONG), (0, SHORT), (0, 0)] {
            let send = cluster.engines[from].irsend(content(2, length), ME, Tag(3), world).unwrap();
            let failed = cluster.finish(BOUND, from, send).unwrap_err();
            assert_eq!((failed.error, failed.buffer), (RequestError::NotReady, Some(content(2, length))));
            let source = Rank(from as u32);
            let receive = cluster.engines[0].irecv(vec![0; length], source, Tag(3), world).unwrap();
            let send = cluster.engines[from].irsend(content(3, length), ME, Tag(3), world).unwrap();
            cluster.finish(BOUND, from, send).unwrap();
            assert_eq!(cluster.finish(BOUND, 0, receive).unwrap().0, content(3, length), "it met no other message");
        }
        let send = cluster.engines[1].irsend(content(4, SHORT), ME, Tag(3), world).unwrap();
        cluster.finish(BOUND, 1, send).unwrap();
        let receive = cluster.engines[0].irecv(vec![0; SHORT], Rank(1), Tag(3), world).unwrap();
        assert_eq!(cluster.finish(BOUND, 0, receive).unwrap().0, content(4, SHORT));
        cluster.assert_at_rest();
    });
}

#[test]
fn a_buffered_send_is_done_at_once_and_its_room_is_accounted_for() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        let engine = &mut cluster.engines[1];
        let full = engine.bsend(&content(1, LONG), ME, Tag(0), world).unwrap_err();
        assert_eq!(full, PostError::BufferFull { needed: LONG + BUFFERED_OVERHEAD, free: 0, attached: 0 });
        engine.attach_buffer(3 * (LONG + BUFFERED_OVERHEAD));
        for tag in 0..3 {
            let send = engine.ibsend(content(tag, LONG), ME, Tag(tag as u32), world).unwrap();
            assert!(engine.test(&send).unwrap().is_done());
            assert_eq!(engine.take(send).unwrap().0, content(tag, LONG), "the buffer is the caller's again");
        }
        let rejected = engine.ibsend(content(9, LONG), ME, Tag(3), world).unwrap_err();
        assert!(matches!(rejected.error, PostError::BufferFull { free: 0, .. }), "{rejected}");
        assert_eq!(rejected.buffer, content(9, LONG));
        for tag in [2, 0, 1] {
            let receive = cluster.engines[0].irecv(vec![0; LONG], Rank(1), Tag(tag), world).unwrap();
            assert!(cluster.finish(BOUND, 0, receive).unwrap().0 == content(tag.into(), LONG));
        }
        settle(cluster);
        assert_eq!(cluster.engines[1].detach_buffer(), Ok(3 * (LONG + BUFFERED_OVERHEAD)));
        assert_eq!(cluster.engines[1].detach_buffer(), Ok(0));
        cluster.assert_at_rest();
    });
}

#[test]
fn modes_keep_the_order_of_one_sender() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        cluster.engines[1].attach_buffer(1 << 20);
        let mut sends = Vec::new();
        for n in 0..24u64 {
            let message = content(n, [0, SHORT, 20_000][n as usize % 3]);
            let engine = &mut cluster.engines[1];
            sends.push(
                match n % 4 {
                    0 => engine.issend(message, ME, Tag(1), world),
                    1 => engine.ibsend(message, ME, Tag(1), world),
                    _ => engine.isend(message, ME, Tag(1), world),
                }
                .unwrap(),
            );
        }
        for n in 0..24u64 {
            let (source, tag) = (if n % 2 == 0 { Source::Any } else { Source::Rank(1) }, Tag(1));
            let receive = cluster.engines[0].irecv(vec![0; 20_000], source, tag, world).unwrap();
            let (bytes, status) = cluster.finish(BOUND, 0, receive).unwrap();
            assert!(bytes[..status.length] == content(n, [0, SHORT, 20_000][n as usize % 3]), "message {n}");
        }
        for send in sends {
            cluster.finish(BOUND, 1, send).unwrap();
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn probes_see_what_a_receive_would_take_and_leave_it() {
    everywhere(3, |cluster| {
        let world = cluster.engines[0].comm_world();
        assert_eq!(cluster.engines[0].iprobe(Source::Any, TagFilter::Any, world), Ok(None));
        let sends: Vec<(usize, Request<Vec<u8>>)> = [(1, 7, SHORT), (1, 8, LONG), (2, 7, 5)]
            .into_iter()
            .map(|(from, tag, length)| {
                let send = cluster.engines[from].isend(content(tag, length), ME, Tag(tag as u32), world).unwrap();
                settle(cluster);
                (from, send)
            })
            .collect();
        let engine = &mut cluster.engines[0];
        let status = |source, tag, length| Some(Status { source: Rank(source), tag: Tag(tag), length });
        for _ in 0..2 {
            assert_eq!(engine.iprobe(Source::Any, TagFilter::Any, world), Ok(status(1, 7, SHORT)));
            assert_eq!(engine.iprobe(Rank(2), TagFilter::Any, world), Ok(status(2, 7, 5)));
            assert_eq!(engine.iprobe(Source::Any, Tag(8), world), Ok(status(1, 8, LONG)));
            assert_eq!(engine.iprobe(Rank(2), Tag(8), world), Ok(None));
        }
        assert_eq!(Some(engine.probe(Rank(1), Tag(8), world).unwrap()), status(1, 8, LONG));
        for (source, tag, length) in [(2, 7, 5), (1, 8, LONG), (1, 7, SHORT)] {
            let receive = cluster.engines[0].irecv(vec![0; length], Rank(source), Tag(tag), world).unwrap();
            assert!(cluster.finish(BOUND, 0, receive).unwrap().0 == content(tag.into(), length));
        }
        for (rank, send) in sends {
            cluster.finish(BOUND, rank, send).unwrap();
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn a_matched_probe_takes_its_message_out_of_reach() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        for length in [0, SHORT, LONG] {
            let sends: Vec<_> =
                (0..3).map(|n| cluster.engines[1].isend(content(n, length), ME, Tag(4), world).unwrap()).collect();
            settle(cluster);
            let first = cluster.engines[0].improbe(Rank(1), Tag(4), world).unwrap().unwrap();
            let dropped = cluster.engines[0].mprobe(Source::Any, TagFilter::Any, world).unwrap();
            assert_eq!(first.status(), Status { source: Rank(1), tag: Tag(4), length });
            let last = cluster.engines[0].irecv(vec![0; length], Rank(1), Tag(4), world).unwrap();
            assert!(cluster.finish(BOUND, 0, last).unwrap().0 == content(2, length), "the other two are taken");
            assert!(cluster.engines[0].improbe(Source::Any, TagFilter::Any, world).unwrap().is_none());
            drop(dropped);
            let first = cluster.engines[0].imrecv(first, vec![0; length]).unwrap();
            assert!(cluster.finish(BOUND, 0, first).unwrap().0 == content(0, length));
            for send in sends {
                cluster.finish(BOUND, 1, send).unwrap();
            }
        }
        settle(cluster);
        cluster.assert_at_rest();
    });
}

#[test]
fn a_matched_message_may_be_too_long_and_is_of_its_engine_only() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let mut engine = solo();
    engine.send(&[1; 20], ME, Tag(1), engine.comm_world()).unwrap();
    let message = engine.mprobe(ME, Tag(1), engine.comm_world()).unwrap();
    let rejected = cluster.engines[0].imrecv(message, vec![0; 20]).unwrap_err();
    assert_eq!((&rejected.error, rejected.buffer.len()), (&PostError::Stale, 20));
    let error = engine.mrecv(rejected.message, &mut [0; 5]).unwrap_err();
    let status = Status { source: ME, tag: Tag(1), length: 20 };
    assert_eq!(error, RequestError::Truncated { status, capacity: 5 }.into());
    let _ = world;
}

#[test]
fn probes_of_a_dead_proc_end() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let hello = cluster.engines[0].isend(vec![1], Rank(1), Tag(9), world).unwrap();
    let receive = cluster.engines[1].irecv(vec![0], ME, Tag(9), world).unwrap();
    cluster.finish(BOUND, 1, receive).unwrap();
    cluster.finish(BOUND, 0, hello).unwrap();
    drop(cluster.engines.pop());
    let mut engine = cluster.engines.pop().unwrap();
    let error = engine.probe(Rank(1), Tag(1), world).unwrap_err();
    assert!(error.to_string().contains("proc 1 has failed"), "{error}");
}

#[test]
fn persistent_requests_start_again_and_again() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        cluster.engines[1].attach_buffer(1 << 22);
        for length in [0, SHORT, LONG] {
            let zero = || vec![0; length];
            let mut receives: Vec<_> = [Source::Rank(1), Source::Any]
                .iter()
                .flat_map(|&source| [(source, TagFilter::Tag(2)), (source, TagFilter::Any)])
                .map(|(source, tag)| cluster.engines[0].recv_init(zero(), source, tag, world).unwrap())
                .collect();
            let engine = &mut cluster.engines[1];
            let mut sends = [
                engine.send_init(zero(), ME, Tag(2), world).unwrap(),
                engine.ssend_init(zero(), ME, Tag(2), world).unwrap(),
                engine.bsend_init(zero(), ME, Tag(2), world).unwrap(),
                engine.rsend_init(zero(), ME, Tag(2), world).unwrap(),
            ];
            assert_eq!(engine.wait(&sends[0]), Ok(Status::NULL), "inactive");
            for round in 0..5 {
                cluster.engines[0].start_all(&receives).unwrap();
                assert_eq!(cluster.engines[0].start(&receives[0]), Err(PostError::Active));
                assert!(cluster.engines[0].buffer(&mut receives[0]).is_err());
                for (n, send) in (0..).zip(&mut sends) {
                    cluster.engines[1].buffer(send).unwrap().copy_from_slice(&content(round * 10 + n, length));
                }
                cluster.engines[1].start_all(&sends).unwrap();
                cluster.tick_until(BOUND, "all are done", |cluster| {
                    cluster.engines[0].test_all(&receives).unwrap() && cluster.engines[1].test_all(&sends).unwrap()
                });
                assert_eq!(cluster.engines[0].test_any(&receives), Ok(Tested::Nothing), "they are inactive");
                for (n, receive) in (0..).zip(&mut receives) {
                    assert_eq!(cluster.engines[0].wait(receive).map(|status| status.length), Ok(length));
                    assert!(*cluster.engines[0].buffer(receive).unwrap() == content(round * 10 + n, length));
                }
            }
            // A cancelled one can be started again, and frees give the buffers back.
            cluster.engines[0].start(&receives[2]).unwrap();
            assert_eq!(cluster.engines[0].cancel(&receives[2]), Ok(true));
            cluster.tick_until(BOUND, "cancelled", |cluster| {
                cluster.engines[0].test(&receives[2]) == Err(RequestError::Cancelled)
            });
            cluster.engines[0].start(&receives[2]).unwrap();
            cluster.engines[1].start(&sends[0]).unwrap();
            cluster.tick_until(BOUND, "started again", |cluster| cluster.engines[0].test_all(&receives).unwrap());
            cluster.tick_until(BOUND, "sent again", |cluster| cluster.engines[1].test_all(&sends).unwrap());
            for receive in receives {
                assert_eq!(cluster.engines[0].free(receive).unwrap().len(), length);
            }
            for send in sends {
                assert_eq!(cluster.engines[1].free(send).unwrap().len(), length);
            }
        }
        settle(cluster);
        cluster.assert_at_rest();
    });
}

#[test]
fn a_persistent_request_that_is_dropped_or_freed_while_active_is_finished_first() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let shared: Arc<[u8]> = content(1, LONG).into();
    for freed in [true, false] {
        let send = cluster.engines[1].send_init(shared.clone(), ME, Tag(2), world).unwrap();
        cluster.engines[1].start(&send).unwrap();
        match freed {
            true => {
                let early = cluster.engines[1].free(send).unwrap_err();
                assert!(early.error == RequestError::Pending && early.request.is_some_and(|send| send.id().row != NIL));
            }
            false => drop(send),
        }
        cluster.tick_times(5);
        assert_eq!(Arc::strong_count(&shared), 2);
        let receive = cluster.engines[0].irecv(vec![0; LONG], Rank(1), Tag(2), world).unwrap();
        assert!(cluster.finish(BOUND, 0, receive).unwrap().0[..] == shared[..]);
        cluster.tick_times(5);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
    cluster.assert_at_rest();
}

#[test]
fn sends_probes_and_receives_to_oneself_and_to_nobody() {
    let mut engine = solo();
    let world = engine.comm_world();
    let mut buffer = [7; 4];
    let null = Ok(Status::NULL);
    assert_eq!(engine.send(&[1], Rank::NULL, Tag(1), world), Ok(()));
    assert_eq!(engine.ssend(&[1], Rank::NULL, Tag(1), world), Ok(()));
    assert_eq!(engine.bsend(&[1], Rank::NULL, Tag(1), world), Ok(()));
    assert_eq!(engine.rsend(&[1], Rank::NULL, Tag(1), world), Ok(()));
    assert_eq!(
        engine.recv(&mut buffer, Rank::NULL, TagFilter::Any, world),
        null.clone().map_err(|e: RequestError| e.into())
    );
    assert_eq!(buffer, [7; 4]);
    assert_eq!(engine.probe(Rank::NULL, Tag(1), world).ok(), Some(Status::NULL));
    assert_eq!(engine.iprobe(Rank::NULL, Tag(1), world), Ok(Some(Status::NULL)));
    let message = engine.mprobe(Rank::NULL, Tag(1), world).unwrap();
    assert_eq!(engine.mrecv(message, &mut buffer).ok(), Some(Status::NULL));
    let receive = engine.recv_init(vec![0; 4], Rank::NULL, Tag(1), world).unwrap();
    engine.start(&receive).unwrap();
    assert_eq!(engine.wait(&receive), null);
    assert!(engine.send(&[], Rank::NULL, Tag(1 << 31), world).is_err(), "arguments are checked all the same");

    engine.send(&[1, 2, 3], ME, Tag(5), world).unwrap();
    assert_eq!(engine.probe(ME, TagFilter::Any, world).unwrap().length, 3);
    let status = engine.sendrecv(&[4, 5], ME, Tag(6), &mut buffer, ME, Tag(5), world).unwrap();
    assert_eq!((status.length, &buffer[..3]), (3, &[1, 2, 3][..]));
    let mut swap = [9, 9];
    engine.sendrecv_replace(&mut swap, ME, Tag(7), ME, Tag(6), world).unwrap();
    assert_eq!(swap, [4, 5]);
    assert_eq!(engine.recv(&mut swap, ME, Tag(7), world).unwrap().length, 2);
    assert_eq!(swap, [9, 9]);
    assert_eq!(engine.rsend(&[1], ME, Tag(8), world), Err(RequestError::NotReady.into()));
    let send = engine.issend(vec![1], ME, Tag(8), world).unwrap();
    assert_eq!(engine.wait_for(&send, Duration::from_millis(1)), Err(RequestError::Timeout));
    assert_eq!(engine.recv(&mut swap, ME, Tag(8), world).unwrap().length, 1);
    assert!(engine.wait(&send).is_ok());
}

#[test]
fn one_truncated_receive_fails_alone() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        for length in [SHORT, LONG] {
            for expected in [true, false] {
                let post = |cluster: &mut Cluster| -> Vec<Request<Vec<u8>>> {
                    let capacities = [length, length / 2, length];
                    capacities.map(|c| cluster.engines[0].irecv(vec![0; c], Rank(1), Tag(1), world).unwrap()).into()
                };
                let mut receives = if expected { post(cluster) } else { Vec::new() };
                let sends: Vec<_> =
                    (0..3).map(|n| cluster.engines[1].isend(content(n, length), ME, Tag(1), world).unwrap()).collect();
                settle(cluster);
                if !expected {
                    receives = post(cluster);
                }
                cluster.tick_until(BOUND, "all have ended", |cluster| {
                    receives.iter().all(|receive| cluster.engines[0].test(receive) != Ok(Test::Pending))
                });
                let told = cluster.engines[0].wait_some(&receives).unwrap_err();
                assert!(matches!(&told, RequestError::InStatus { index: 1, .. }), "{told}");
                assert_eq!(cluster.engines[0].test_all(&receives), Err(told));
                assert_eq!(cluster.engines[0].wait_any(&receives), Ok(Some(0)));
                let ends: Vec<_> = receives.into_iter().map(|receive| cluster.engines[0].take(receive)).collect();
                let [first, second, third] = ends.try_into().unwrap();
                assert!(first.unwrap().0 == content(0, length) && third.unwrap().0 == content(2, length));
                let failed = second.unwrap_err();
                let status = Status { source: Rank(1), tag: Tag(1), length };
                assert_eq!(failed.error, RequestError::Truncated { status, capacity: length / 2 });
                assert!(failed.buffer.unwrap() == content(1, length)[..length / 2]);
                for send in sends {
                    cluster.finish(BOUND, 1, send).unwrap();
                }
            }
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn cancelled_receives_in_any_order_eat_no_message() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let posted = [Source::Rank(1), Source::Any, Source::Rank(1), Source::Any]
                .map(|source| cluster.engines[0].irecv(vec![0; 8], source, Tag(0), world).unwrap());
            let kept = cluster.engines[0].irecv(vec![0; 8], Source::Any, TagFilter::Any, world).unwrap();
            for place in order {
                assert_eq!(cluster.engines[0].cancel(&posted[place]), Ok(true));
                assert_eq!(cluster.engines[0].cancel(&posted[place]), Ok(false), "once");
            }
            let send = cluster.engines[1].isend(vec![5; 8], ME, Tag(0), world).unwrap();
            assert_eq!(cluster.finish(BOUND, 0, kept).unwrap().0, [5; 8]);
            cluster.finish(BOUND, 1, send).unwrap();
            for request in posted {
                assert_eq!(cluster.finish(BOUND, 0, request).unwrap_err().error, RequestError::Cancelled);
            }
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn callbacks_run_once_in_complete_with_how_it_ended() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        let calls: Arc<Mutex<Vec<(u32, Outcome)>>> = Arc::default();
        let note = |name| {
            let calls = calls.clone();
            move |outcome| calls.lock().unwrap().push((name, outcome))
        };
        let engine = &mut cluster.engines[0];
        let [good, short, cancelled, dropped] = [(8, 0), (2, 1), (8, 2), (8, 3)]
            .map(|(room, tag)| engine.irecv(vec![0; room], Rank(1), Tag(tag), world).unwrap());
        for (name, request) in [(0, &good), (1, &short), (2, &cancelled), (3, &dropped), (4, &good)] {
            engine.on_complete(request, note(name)).unwrap();
        }
        drop(dropped);
        assert_eq!(engine.cancel(&cancelled), Ok(true));
        assert!(calls.lock().unwrap().is_empty(), "by a tick, not by the call");
        for tag in [0, 1, 3] {
            let send = cluster.engines[1].isend(vec![tag; 8], ME, Tag(tag.into()), world).unwrap();
            cluster.engines[1].on_complete(&send, note(10 + u32::from(tag))).unwrap();
            cluster.finish(BOUND, 1, send).unwrap();
        }
        cluster.tick_until(BOUND, "all are called", |_| calls.lock().unwrap().len() == 8);
        cluster.tick_times(50);
        let mut found = std::mem::take(&mut *calls.lock().unwrap());
        found.sort_by_key(|(name, _)| *name);
        let status = |source, tag| Status { source: Rank(source), tag: Tag(tag), length: 8 };
        let ends = [
            (0, Ok(status(1, 0))),
            (1, Err(RequestError::Truncated { status: status(1, 1), capacity: 2 })),
            (2, Err(RequestError::Cancelled)),
            (3, Ok(status(1, 3))),
            (4, Ok(status(1, 0))),
            (10, Ok(status(0, 0))),
            (11, Ok(status(0, 1))),
            (13, Ok(status(0, 3))),
        ];
        assert_eq!(found.len(), ends.len());
        for ((name, outcome), (expected, end)) in found.iter().zip(&ends) {
            let tag_of_send = name >= &10;
            assert!(name == expected && (outcome == end || tag_of_send && outcome.is_ok()), "{name}: {outcome:?}");
        }
        for request in [good, short, cancelled] {
            let _ = cluster.finish(BOUND, 0, request);
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn a_callback_of_what_is_done_runs_with_the_next_tick_and_a_panic_poisons() {
    let mut engine = solo();
    let world = engine.comm_world();
    let receive = engine.irecv(vec![0; 4], ME, Tag(1), world).unwrap();
    engine.send(&[1; 4], ME, Tag(1), world).unwrap();
    engine.wait(&receive).unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let counter = count.clone();
    engine
        .on_complete(&receive, move |outcome| {
            assert_eq!(outcome.unwrap().length, 4);
            counter.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 0);
    engine.tick();
    engine.tick();
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let id = receive.id();
    engine.take(receive).unwrap();
    assert_eq!(engine.on_complete(&id, |_| {}), Err(RequestError::Stale));
    let receive = engine.irecv(vec![0; 4], ME, Tag(1), world).unwrap();
    engine.on_complete(&receive, |_| panic!("a callback gave up")).unwrap();
    engine.send(&[1; 4], ME, Tag(1), world).unwrap();
    // The message is there, and the callback that was called for it has poisoned the engine.
    assert_eq!(engine.wait(&receive).unwrap().length, 4);
    let error = engine.irecv(vec![0; 4], ME, Tag(1), world).unwrap_err();
    assert!(matches!(&error.error, PostError::Poisoned(why) if why.contains("gave up")), "{error}");
    assert_eq!(engine.take(receive).unwrap().0, [1; 4]);
}

#[test]
fn a_panic_of_one_who_is_told_keeps_it_from_no_other() {
    let mut engine = solo();
    let world = engine.comm_world();
    let told = Arc::new(AtomicU32::new(0));
    let count = |expected: fn(&Result<Status, RequestError>) -> bool| {
        let told = told.clone();
        move |outcome: Result<Status, RequestError>| {
            assert!(expected(&outcome), "{outcome:?}");
            told.fetch_add(1, Ordering::Relaxed);
        }
    };
    let done: Vec<_> = (0..3).map(|tag| engine.irecv(vec![0; 4], ME, Tag(tag), world).unwrap()).collect();
    let open = engine.irecv(vec![0; 4], ME, Tag(9), world).unwrap();
    for request in &done {
        engine.on_complete(request, |_| panic!("the first gave up")).unwrap();
        engine.on_complete(request, count(Result::is_ok)).unwrap();
    }
    engine.on_complete(&open, count(|outcome| matches!(outcome, Err(RequestError::Poisoned(_))))).unwrap();
    for tag in 0..3 {
        engine.send(&[1; 4], ME, Tag(tag), world).unwrap();
    }
    for _ in 0..100 {
        engine.tick();
    }
    assert_eq!(told.load(Ordering::Relaxed), 4, "three of what is done, one of what will not be");
    let error = engine.irecv(vec![0; 4], ME, Tag(1), world).unwrap_err();
    assert!(matches!(&error.error, PostError::Poisoned(why) if why.contains("the first gave up")), "{error}");
    for request in done {
        assert_eq!(engine.take(request).unwrap().0, [1; 4]);
    }
}

#[test]
fn a_name_is_stale_however_often_its_row_was_used() {
    let mut engine = solo();
    let world = engine.comm_world();
    let request = engine.irecv(vec![0; 4], ME, Tag(1), world).unwrap();
    let old = request.id();
    engine.send(&[1; 4], ME, Tag(1), world).unwrap();
    engine.wait(&request).unwrap();
    engine.take(request).unwrap();
    // As if the row had been used four thousand million times, but for one.
    let generation = &mut rows(&mut engine).requests[old.row as usize].generation;
    *generation = generation.wrapping_add(((1u64 << 32) - 1) as _);
    let new = engine.irecv(vec![0; 4], ME, Tag(1), world).unwrap();
    assert_eq!(new.id().row, old.row);
    assert_eq!(engine.test(&old), Err(RequestError::Stale));
    assert_eq!(engine.cancel(&old), Err(RequestError::Stale));
    assert_eq!(engine.cancel(&new), Ok(true));
}

#[test]
fn a_request_is_a_future() {
    struct Flag(AtomicU32);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let receive = cluster.engines[0].irecv(vec![0; LONG], Rank(1), Tag(1), world).unwrap();
    let mut future = Box::pin(cluster.engines[0].completion(&receive).unwrap());
    let flag = Arc::new(Flag(AtomicU32::new(0)));
    let waker = Waker::from(flag.clone());
    let mut context = Context::from_waker(&waker);
    assert!(future.as_mut().poll(&mut context).is_pending());
    let send = cluster.engines[1].isend(content(1, LONG), ME, Tag(1), world).unwrap();
    cluster.finish(BOUND, 1, send).unwrap();
    cluster.tick_until(BOUND, "the waker is called", |_| flag.0.load(Ordering::Relaxed) == 1);
    assert!(matches!(future.as_mut().poll(&mut context), Poll::Ready(Ok(status)) if status.length == LONG));
    assert!(cluster.engines[0].take(receive).unwrap().0 == content(1, LONG));
    // An engine that goes away ends what waits for it.
    let open = cluster.engines[0].irecv(vec![0; 4], Rank(1), Tag(1), world).unwrap();
    let mut future = Box::pin(cluster.engines[0].completion(&open).unwrap());
    drop(cluster);
    assert!(matches!(future.as_mut().poll(&mut context), Poll::Ready(Err(RequestError::Finalized))));
}
