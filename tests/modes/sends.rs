//! Sends in all modes, and receives that are cut short or cancelled.

use crate::kit::{LONG, ME, SHORT, acquaint, receive, settle, solo};
use std::time::Duration;
use tickwire::internals::components::limits::BUFFERED_OVERHEAD;
use tickwire::internals::components::{PostError, TagFilter};
use tickwire::testing::Cluster;
use tickwire::{Bootstrap, Datatype, Engine, Rank, Request, RequestError, Source, Status, Tag, Test, Typed};
use tickwire_tests::cases::{BOUND, content, everywhere};

#[test]
fn a_synchronous_send_is_done_only_when_it_is_matched() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        for length in [0, SHORT, LONG] {
            let message = content(1, length);
            let send = cluster.engines[1].issend(message.clone(), ME, Tag(3), world).unwrap();
            settle(cluster);
            assert_eq!(cluster.engines[1].test(&send), Ok(Test::Pending), "{length} bytes");
            assert_eq!(receive(cluster, length), message);
            cluster.finish(BOUND, 1, send).unwrap();
            // A standard send of a short message is done without a receive, because the message can wait at the
            // receiver.
            let send = cluster.engines[1].isend(content(1, SHORT), ME, Tag(3), world).unwrap();
            cluster.finish(BOUND, 1, send).unwrap();
            receive(cluster, SHORT);
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn a_ready_send_without_a_receive_is_an_error_where_it_can_be_known() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        // A ready send can only know of a missing receive if the connection exists.
        acquaint(cluster);
        for (from, length) in [(1, LONG), (0, SHORT), (0, 0)] {
            let send = cluster.engines[from].irsend(content(2, length), ME, Tag(3), world).unwrap();
            let failed = cluster.finish(BOUND, from, send).unwrap_err();
            assert_eq!((failed.error, failed.buffer), (RequestError::NotReady, Some(content(2, length))));
            let source = Rank(from as u32);
            let receive = cluster.engines[0].irecv(vec![0u8; length], source, Tag(3), world).unwrap();
            let send = cluster.engines[from].irsend(content(3, length), ME, Tag(3), world).unwrap();
            cluster.finish(BOUND, from, send).unwrap();
            assert_eq!(cluster.finish(BOUND, 0, receive).unwrap().0, content(3, length), "it met no other message");
        }
        let send = cluster.engines[1].irsend(content(4, SHORT), ME, Tag(3), world).unwrap();
        cluster.finish(BOUND, 1, send).unwrap();
        assert_eq!(receive(cluster, SHORT), content(4, SHORT));
        cluster.assert_at_rest();
    });
}

#[test]
fn many_ready_sends_without_receives_are_all_errors() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        acquaint(cluster);
        // These are more sends than the receiver lets wait, and more than it can answer in a pass.
        let sends: Vec<_> =
            (0..300).map(|_| cluster.engines[1].irsend(content(2, LONG), ME, Tag(3), world).unwrap()).collect();
        for send in sends {
            assert_eq!(cluster.finish(BOUND, 1, send).unwrap_err().error, RequestError::NotReady);
        }
        cluster.assert_at_rest();
    });
}

#[test]
fn a_buffered_send_is_done_at_once_and_its_room_is_accounted_for() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        let engine = &mut cluster.engines[1];
        let full = engine.bsend(content(1, LONG), ME, Tag(0), world).unwrap_err();
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
            let receive = cluster.engines[0].irecv(vec![0u8; LONG], Rank(1), Tag(tag), world).unwrap();
            assert!(cluster.finish(BOUND, 0, receive).unwrap().0 == content(tag.into(), LONG));
        }
        settle(cluster);
        assert_eq!(cluster.engines[1].detach_buffer(), Ok(3 * (LONG + BUFFERED_OVERHEAD)));
        assert_eq!(cluster.engines[1].detach_buffer(), Ok(0));
        cluster.assert_at_rest();
    });
}

#[test]
fn a_buffered_send_to_nobody_takes_no_room_and_wrong_arguments_come_before_its_want() {
    let mut engine = Engine::builder().build(Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    // More than there is memory for.
    let of = Datatype::vector(1 << 47, 1, 0, &Datatype::of::<u8>()).unwrap();
    let huge = || Typed::new(vec![0u8], &of, 1).unwrap();
    assert_eq!(engine.bsend(huge(), Rank::NULL, Tag(0), world), Ok(()));
    assert!(engine.ibsend(huge(), Rank::NULL, Tag(0), world).is_ok());
    assert_eq!(engine.bsend(vec![0u8; 9], Rank(99), Tag(0), world), Err(PostError::Rank { rank: 99, last: 0 }));
    engine.attach_buffer(usize::MAX);
    engine.attach_buffer(1);
    assert_eq!(engine.detach_buffer(), Ok(usize::MAX));
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
            let (source, tag) = (if n % 2 == 0 { Source::Any } else { Source::Rank(Rank(1)) }, Tag(1));
            let receive = cluster.engines[0].irecv(vec![0u8; 20_000], source, tag, world).unwrap();
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
fn sends_probes_and_receives_to_oneself_and_to_nobody() {
    let mut engine = solo();
    let world = engine.comm_world();
    let mut buffer = [7u8; 4];
    let null = Ok(Status::NULL);
    assert_eq!(engine.send(&[1u8], Rank::NULL, Tag(1), world), Ok(()));
    assert_eq!(engine.ssend(&[1u8], Rank::NULL, Tag(1), world), Ok(()));
    assert_eq!(engine.bsend(&[1u8], Rank::NULL, Tag(1), world), Ok(()));
    assert_eq!(engine.rsend(&[1u8], Rank::NULL, Tag(1), world), Ok(()));
    assert_eq!(
        engine.recv(&mut buffer, Rank::NULL, TagFilter::Any, world),
        null.clone().map_err(|e: RequestError| e.into())
    );
    assert_eq!(buffer, [7; 4]);
    assert_eq!(engine.probe(Rank::NULL, Tag(1), world).ok(), Some(Status::NULL));
    assert_eq!(engine.iprobe(Rank::NULL, Tag(1), world), Ok(Some(Status::NULL)));
    let message = engine.mprobe(Rank::NULL, Tag(1), world).unwrap();
    assert_eq!(engine.mrecv(message, &mut buffer).ok(), Some(Status::NULL));
    let receive = engine.recv_init(vec![0u8; 4], Rank::NULL, Tag(1), world).unwrap();
    engine.start(&receive).unwrap();
    assert_eq!(engine.wait(&receive), null);
    assert!(engine.send(b"", Rank::NULL, Tag(1 << 31), world).is_err(), "arguments are checked all the same");

    engine.send(&[1u8, 2, 3], ME, Tag(5), world).unwrap();
    assert_eq!(engine.probe(ME, TagFilter::Any, world).unwrap().length, 3);
    let status = engine.sendrecv(&[4u8, 5], ME, Tag(6), &mut buffer, ME, Tag(5), world).unwrap();
    assert_eq!((status.length, &buffer[..3]), (3, &[1, 2, 3][..]));
    let mut swap = [9u8, 9];
    engine.sendrecv_replace(&mut swap, ME, Tag(7), ME, Tag(6), world).unwrap();
    assert_eq!(swap, [4, 5]);
    assert_eq!(engine.recv(&mut swap, ME, Tag(7), world).unwrap().length, 2);
    assert_eq!(swap, [9, 9]);
    assert_eq!(engine.rsend(&[1u8], ME, Tag(8), world), Err(RequestError::NotReady.into()));
    let send = engine.issend(vec![1u8], ME, Tag(8), world).unwrap();
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
                    capacities.map(|c| cluster.engines[0].irecv(vec![0u8; c], Rank(1), Tag(1), world).unwrap()).into()
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
                assert_eq!(
                    cluster.engines[0].wait_any(&receives).map(|told| told.map(|(index, _)| index)),
                    Ok(Some(0))
                );
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
            let posted = [Source::Rank(Rank(1)), Source::Any, Source::Rank(Rank(1)), Source::Any]
                .map(|source| cluster.engines[0].irecv(vec![0u8; 8], source, Tag(0), world).unwrap());
            let kept = cluster.engines[0].irecv(vec![0u8; 8], Source::Any, TagFilter::Any, world).unwrap();
            for place in order {
                assert_eq!(cluster.engines[0].cancel(&posted[place]), Ok(true));
                assert_eq!(cluster.engines[0].cancel(&posted[place]), Ok(false), "once");
            }
            let send = cluster.engines[1].isend(vec![5u8; 8], ME, Tag(0), world).unwrap();
            assert_eq!(cluster.finish(BOUND, 0, kept).unwrap().0, [5; 8]);
            cluster.finish(BOUND, 1, send).unwrap();
            for request in posted {
                assert_eq!(cluster.finish(BOUND, 0, request).unwrap_err().error, RequestError::Cancelled);
            }
        }
        cluster.assert_at_rest();
    });
}
