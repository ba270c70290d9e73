//! Receipts of operations, over each transport and by each protocol.
//!
//! This file is longer than others, because all its tests use the exchange that its first functions make.

#![allow(clippy::unwrap_used, reason = "what cannot be done fails the test")]

use tickwire::internals::components::{Protocol, Receipt};
use tickwire::testing::Cluster;
use tickwire::{Limits, Rank, RequestError, Source, Tag, Test};

const BOUND: u32 = 2000;

/// Passes a message of `bytes` bytes from 0 to 1, with a receipt on each side. With `late`, the receive is posted when
/// the message is there.
fn exchange(cluster: &mut Cluster, bytes: usize, room: usize, late: bool) -> (Receipt, Receipt) {
    let world = cluster.engines[0].comm_world();
    let send =
        |cluster: &mut Cluster| cluster.engines[0].receipted().isend(vec![7u8; bytes], Rank(1), Tag(5), world).unwrap();
    let receive = |cluster: &mut Cluster| {
        cluster.engines[1].receipted().irecv(vec![0u8; room], Source::Any, Tag(5), world).unwrap()
    };
    let (outgoing, incoming) = if late {
        let outgoing = send(cluster);
        cluster.tick_until(BOUND, "the message has come", |c| {
            let dump = c.engines[1].dump();
            !dump.unexpected.is_empty()
        });
        (outgoing, receive(cluster))
    } else {
        let incoming = receive(cluster);
        (send(cluster), incoming)
    };
    cluster.tick_until(BOUND, "both are done", |c| {
        !matches!(c.engines[0].test(&outgoing), Ok(Test::Pending))
            && !matches!(c.engines[1].test(&incoming), Ok(Test::Pending))
    });
    let receipts = (cluster.engines[0].receipt(&outgoing).unwrap(), cluster.engines[1].receipt(&incoming).unwrap());
    let _ = (cluster.engines[0].take(outgoing), cluster.engines[1].take(incoming));
    receipts
}

/// Of both sides: protocol, number of copies, and whether the message was unexpected. Checks that the stages are in
/// order.
fn summary(receipts: &(Receipt, Receipt), transport: &str) -> [(Option<Protocol>, u32, bool); 2] {
    for (receipt, peer) in [(&receipts.0, 1), (&receipts.1, 0)] {
        assert_eq!((receipt.transport.as_deref(), receipt.peer.map(|p| p.0)), (Some(transport), Some(peer)));
        assert!(receipt.link.is_some(), "{receipt:?}");
        let stages = [receipt.matched_ns, receipt.first_byte_ns, receipt.last_byte_ns, receipt.completed_ns];
        let times: Vec<u64> = [Some(receipt.posted_ns)].into_iter().chain(stages).flatten().collect();
        assert!(times.is_sorted() && receipt.last_byte_ns.is_some() && receipt.completed_ns.is_some(), "{receipt:?}");
    }
    [&receipts.0, &receipts.1].map(|receipt| (receipt.protocol, receipt.copies, receipt.unexpected))
}

#[test]
fn receipts_say_how_a_message_went() {
    let (eager, pieces, read) = (Some(Protocol::Eager), Some(Protocol::Pieces), Some(Protocol::Read));
    let no_reading = |builder: tickwire::Builder| builder.limits(Limits { read_min: usize::MAX, ..Limits::default() });
    let clusters = [
        (Cluster::loopback(2), "loopback", pieces),
        (Cluster::shm(2), "shm", read),
        (Cluster::shm_with(2, no_reading), "shm", pieces),
    ];
    for (mut cluster, transport, large) in clusters {
        let mut of = |bytes, room, late| summary(&exchange(&mut cluster, bytes, room, late), transport);
        assert_eq!(of(100, 100, false), [(eager, 1, false), (eager, 1, false)]);
        assert_eq!(of(100, 100, true), [(eager, 1, false), (eager, 2, true)], "through a temporary");
        assert_eq!(of(0, 0, false), [(None, 0, false), (None, 0, false)], "no byte moves");
        let sent = u32::from(large == pieces);
        assert_eq!(of(1 << 20, 1 << 20, false), [(large, sent, false), (large, 1, false)]);
        assert_eq!(of(1 << 20, 1 << 20, true), [(large, sent, false), (large, 1, true)], "an offer has no temporary");
        assert_eq!(of(100, 10, false), [(eager, 1, false), (eager, 1, false)], "a truncated one was moved too");
    }
}

#[test]
fn messages_in_parts_are_told_from_those_in_pieces() {
    // Rings have their full size at once: whether a message goes in parts depends on the room in the ring.
    let whole = Limits::default();
    let limits = Limits { part_bytes: 1000, first_ring_bytes: whole.ring_bytes, ..whole };
    let mut cluster = Cluster::shm_with(2, |builder| builder.limits(limits.clone()));
    let parts = Some(Protocol::Parts);
    let mut of = |bytes, late| summary(&exchange(&mut cluster, bytes, bytes, late), "shm");
    assert_eq!(of(8000, false), [(parts, 1, false), (parts, 1, false)]);
    assert_eq!(of(900, false), [(Some(Protocol::Eager), 1, false); 2]);
    let [sent, received] = of(8000, true);
    assert_eq!((sent, received.1, received.2), ((parts, 1, false), 2, true), "through a temporary, as a whole");
}

#[test]
fn others_pay_nothing_before_and_after() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let delivered = |c: &mut Cluster| c.engines[0].counters().runs()[tickwire::internals::traces::DELIVER];
    // Passes a message from the peer. Returns how often Deliver ran for it.
    let message = |c: &mut Cluster| {
        let before = delivered(c);
        let receive = c.engines[0].irecv(vec![0u8; 8], Rank(1), Tag(1), world).unwrap();
        let send = c.engines[1].isend(vec![1u8; 8], Rank(0), Tag(1), world).unwrap();
        c.finish(BOUND, 0, receive).unwrap();
        c.finish(BOUND, 1, send).unwrap();
        delivered(c) - before
    };
    // Passes a message from the proc to itself. Returns whether it arrived without a tick.
    let own = |c: &mut Cluster| {
        let engine = &mut c.engines[0];
        let receive = engine.irecv(vec![0u8; 8], Rank(0), Tag(1), world).unwrap();
        engine.send(&[1u8; 8], Rank(0), Tag(1), world).unwrap();
        let at_once = engine.test(&receive).unwrap().is_done();
        engine.wait(&receive).unwrap();
        engine.take(receive).unwrap();
        at_once
    };
    message(&mut cluster);
    assert_eq!((message(&mut cluster), own(&mut cluster)), (1, true));
    let kept = cluster.engines[0].receipted().irecv(vec![0u8; 8], Rank(0), Tag(2), world).unwrap();
    assert_eq!((message(&mut cluster), own(&mut cluster)), (1, false), "Deliver runs, and ticks see all of it");
    let engine = &mut cluster.engines[0];
    engine.send(&[1u8; 8], Rank(0), Tag(2), world).unwrap();
    engine.wait(&kept).unwrap();
    assert!(engine.receipt(&kept).unwrap().completed_ns.is_some());
    let without = engine.irecv(vec![0u8; 8], Rank(0), Tag(3), world).unwrap();
    assert_eq!(engine.receipt(&without), None);
    engine.send(&[1u8; 8], Rank(0), Tag(3), world).unwrap();
    engine.take(without).unwrap();
    assert_eq!((message(&mut cluster), own(&mut cluster)), (1, true));
    let engine = &mut cluster.engines[0];
    let id = kept.id();
    engine.take(kept).unwrap();
    assert_eq!(engine.receipt(&id).map(|receipt| receipt.copies), None, "it goes with its request");
}

#[test]
fn a_message_to_oneself_needs_no_tick_for_its_receipt() {
    let mut cluster = Cluster::loopback(1);
    let engine = &mut cluster.engines[0];
    let world = engine.comm_world();
    // The first message makes the connection.
    let first = engine.irecv(vec![0u8; 8], Rank(0), Tag(5), world).unwrap();
    engine.send(&[1u8; 8], Rank(0), Tag(5), world).unwrap();
    engine.wait(&first).unwrap();
    let incoming = engine.receipted().irecv(vec![0u8; 8], Rank(0), Tag(5), world).unwrap();
    let ticks = engine.counters().runs();
    let outgoing = engine.isend(vec![7u8; 8], Rank(0), Tag(5), world).unwrap();
    let receipt = engine.receipt(&incoming).unwrap();
    assert_eq!(engine.counters().runs(), ticks);
    assert_eq!((receipt.protocol, receipt.copies, receipt.unexpected), (Some(Protocol::Eager), 1, false));
    let stages = [receipt.matched_ns, receipt.first_byte_ns, receipt.last_byte_ns, receipt.completed_ns];
    assert!(stages.iter().flatten().all(|&at_ns| at_ns >= receipt.posted_ns) && receipt.completed_ns.is_some());
    assert_eq!(engine.take(incoming).unwrap().0, [7; 8]);
    engine.take(outgoing).unwrap();
}

#[test]
fn a_receipt_of_what_failed_has_no_bytes() {
    let mut cluster = Cluster::loopback(2);
    cluster.checked = false;
    let world = cluster.engines[0].comm_world();
    let never = cluster.engines[0].receipted().irecv(vec![0u8; 8], Rank(1), Tag(1), world).unwrap();
    cluster.tick_times(10);
    let gone = cluster.engines.pop();
    drop(gone);
    cluster.tick_until(BOUND, "the failure is noticed", |c| !matches!(c.engines[0].test(&never), Ok(Test::Pending)));
    assert!(matches!(cluster.engines[0].test(&never), Err(RequestError::PeerFailed { .. })));
    let receipt = cluster.engines[0].receipt(&never).unwrap();
    assert_eq!((receipt.matched_ns, receipt.first_byte_ns, receipt.last_byte_ns), (None, None, None));
    assert_eq!((receipt.protocol, receipt.copies, receipt.completed_ns.is_some()), (None, 0, true));
}

/// The receipt of an operation, taken when the operation is done.
fn of_request(cluster: &mut Cluster, rank: usize, request: &impl tickwire::Waitable) -> Receipt {
    cluster.tick_until(BOUND, "it is done", |c| !matches!(c.engines[rank].test(request), Ok(Test::Pending)));
    cluster.engines[rank].receipt(request).unwrap()
}

#[test]
fn sends_with_options_have_receipts() {
    let mut cluster = Cluster::shm(2);
    let world = cluster.engines[0].comm_world();
    let urgent = tickwire::SendOptions::new().priority(200);
    // The receiver asks for the more urgent of several large messages first. Both sides have receipts.
    let options = [tickwire::SendOptions::new(), urgent, urgent.synchronous(), urgent.ready()];
    let incoming: Vec<_> = (0..4)
        .map(|tag| cluster.engines[1].receipted().irecv(vec![0u8; 1 << 16], Rank(0), Tag(tag), world).unwrap())
        .collect();
    cluster.tick_times(3);
    let send = |engine: &mut tickwire::Engine, tag: u32, options| {
        engine.receipted().isend_with(vec![7u8; 1 << 16], Rank(1), Tag(tag), world, options).unwrap()
    };
    let outgoing: Vec<_> = (0..4).zip(options).map(|(tag, o)| send(&mut cluster.engines[0], tag, o)).collect();
    for (sent, got) in outgoing.iter().zip(&incoming) {
        let receipts = (of_request(&mut cluster, 0, sent), of_request(&mut cluster, 1, got));
        assert_eq!(summary(&receipts, "shm").map(|(protocol, ..)| protocol), [Some(Protocol::Read); 2]);
    }
    let _ready = cluster.engines[1].irecv(vec![0u8; 8], Rank(0), Tag(9), world).unwrap();
    let short = cluster.engines[0].receipted().irsend(vec![7u8; 8], Rank(1), Tag(9), world).unwrap();
    assert_eq!(of_request(&mut cluster, 0, &short).protocol, Some(Protocol::Eager));
}

#[test]
fn priority_counts_with_a_receipt_too() {
    let limits = Limits { read_min: usize::MAX, ..Limits::default() };
    let mut cluster = Cluster::shm_with(2, |builder| builder.limits(limits.clone()));
    let world = cluster.engines[0].comm_world();
    let receives: Vec<_> =
        (0..2).map(|tag| cluster.engines[1].irecv(vec![0u8; 4 << 20], Rank(0), Tag(tag), world).unwrap()).collect();
    cluster.tick_times(3);
    let options = [tickwire::SendOptions::new(), tickwire::SendOptions::new().priority(200)];
    let sent: Vec<_> = (0..2)
        .zip(options)
        .map(|(tag, options)| {
            let engine = &mut cluster.engines[0];
            engine.receipted().isend_with(vec![7u8; 4 << 20], Rank(1), Tag(tag), world, options).unwrap()
        })
        .collect();
    cluster.tick_until(BOUND, "both are done", |c| {
        sent.iter().all(|sent| !matches!(c.engines[0].test(sent), Ok(Test::Pending)))
    });
    let last = [0, 1].map(|i: usize| cluster.engines[0].receipt(&sent[i]).unwrap().last_byte_ns.unwrap());
    assert!(last[1] < last[0], "the urgent one, posted later, has left first: {last:?}");
    drop(receives);
}

#[test]
fn messages_that_a_probe_has_found_have_receipts() {
    let mut cluster = Cluster::shm(2);
    let world = cluster.engines[0].comm_world();
    for (bytes, protocol, copies) in [(100, Protocol::Eager, 2), (1 << 20, Protocol::Read, 1)] {
        let sent = cluster.engines[0].isend(vec![7u8; bytes], Rank(1), Tag(5), world).unwrap();
        let mut found = None;
        cluster.tick_until(BOUND, "it has come", |c| {
            found = c.engines[1].improbe(Rank(0), Tag(5), world).unwrap();
            found.is_some()
        });
        let taken = cluster.engines[1].receipted().imrecv(found.unwrap(), vec![0u8; bytes]).unwrap();
        let receipt = of_request(&mut cluster, 1, &taken);
        assert_eq!((receipt.protocol, receipt.copies, receipt.unexpected), (Some(protocol), copies, true));
        assert_eq!((receipt.transport.as_deref(), receipt.peer.map(|peer| peer.0)), (Some("shm"), Some(0)));
        drop(sent);
    }
}

#[test]
fn each_start_of_a_persistent_request_has_a_receipt_of_its_own() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let outgoing = cluster.engines[0].send_init(vec![7u8; 100], Rank(1), Tag(5), world).unwrap();
    let incoming = cluster.engines[1].recv_init(vec![0u8; 100], Source::Any, Tag(5), world).unwrap();
    let mut last = 0;
    for _ in 0..3 {
        cluster.engines[1].receipted().start(&incoming).unwrap();
        cluster.engines[0].receipted().start(&outgoing).unwrap();
        let receipts = (of_request(&mut cluster, 0, &outgoing), of_request(&mut cluster, 1, &incoming));
        assert_eq!(summary(&receipts, "loopback"), [(Some(Protocol::Eager), 1, false); 2]);
        assert!(receipts.0.posted_ns >= last, "that of the last start");
        last = receipts.0.completed_ns.unwrap() + 1;
        cluster.tick_times(2);
    }
}

#[test]
fn borrowed_buffers_have_receipts() {
    let mut engine = tickwire::Engine::builder().build(tickwire::Bootstrap::solo()).unwrap();
    let world = engine.comm_world();
    let (bytes, mut into) = ([7u8; 100], [0u8; 100]);
    engine.scope(|scope| {
        let incoming = scope.receipted().irecv(&mut into[..], Rank(0), Tag(1), world).unwrap();
        let outgoing = scope.receipted().isend(&bytes[..], Rank(0), Tag(1), world).unwrap();
        scope.wait(&outgoing).unwrap();
        scope.wait(&incoming).unwrap();
        for request in [outgoing.id(), incoming.id()] {
            let receipt = scope.receipt(&request).unwrap();
            assert_eq!((receipt.protocol, receipt.copies), (Some(Protocol::Eager), 1), "{receipt:?}");
        }
    });
    assert_eq!(into, bytes);
}

#[test]
fn messages_go_as_their_endpoint_says() {
    use tickwire::internals::systems::procs::endpoint::{Endpoint, Place};
    use tickwire::internals::transports::{AnyTransport, Hub, Loopback, Shm, ShmConfig};
    let limits = Limits { part_bytes: 1000, eager_max: 5000, read_min: 9000, ..Limits::default() };
    let shm = Shm::open(ShmConfig::new(format!("ways-{}", std::process::id()), 0, 2)).unwrap();
    let loopback = Loopback::join(&Hub::alone(0, limits.ring_bytes), 0).unwrap();
    let hub = Hub::new(2, limits.ring_bytes);
    let cases = [
        (AnyTransport::from(shm), Cluster::shm_with(2, |builder| builder.limits(limits.clone()))),
        (
            AnyTransport::from(loopback),
            Cluster::build(2, |_| tickwire::Engine::builder().hub(hub.clone()).limits(limits.clone())),
        ),
    ];
    for (transport, mut cluster) in cases {
        let endpoint = Endpoint::new(transport, &limits, None);
        for bytes in [1, 1000, 1001, 5000, 5001, 8999, 9000, 9001, 100_000] {
            let expected = endpoint.protocol(bytes as u64, Place::Run, false);
            let (sent, received) = exchange(&mut cluster, bytes, bytes, false);
            assert_eq!((sent.protocol, received.protocol), (Some(expected), Some(expected)), "{bytes} B");
            let world = cluster.engines[0].comm_world();
            let incoming = cluster.engines[1].irecv(vec![0u8; bytes], Rank(0), Tag(6), world).unwrap();
            let asked = cluster.engines[0].receipted().issend(vec![7u8; bytes], Rank(1), Tag(6), world).unwrap();
            let asked = of_request(&mut cluster, 0, &asked);
            assert_eq!(
                asked.protocol,
                Some(endpoint.protocol(bytes as u64, Place::Run, true)),
                "{bytes} B, synchronous"
            );
            cluster.finish(BOUND, 1, incoming).unwrap();
        }
    }
}

#[test]
fn what_is_in_the_shared_heap_is_read_however_it_is_sent() {
    let mut cluster = Cluster::shm_with(2, |builder| builder.shared_heap(true));
    let world = cluster.engines[0].comm_world();
    let mapped_min = cluster.engines[0].limits().mapped_min;
    for (bytes, expected) in
        [(mapped_min - 1, Protocol::Eager), (mapped_min, Protocol::Read), (1 << 20, Protocol::Read)]
    {
        for synchronous in [false, true] {
            let incoming = cluster.engines[1].receipted().irecv(vec![0u8; bytes], Rank(0), Tag(5), world).unwrap();
            let buffer = cluster.engines[0].alloc(bytes).unwrap();
            let sender = cluster.engines[0].receipted();
            let outgoing = match synchronous {
                false => sender.isend(buffer, Rank(1), Tag(5), world).unwrap(),
                true => sender.issend(buffer, Rank(1), Tag(5), world).unwrap(),
            };
            let receipts = [of_request(&mut cluster, 0, &outgoing), of_request(&mut cluster, 1, &incoming)];
            if !synchronous || expected == Protocol::Read {
                assert_eq!(receipts.map(|receipt| receipt.protocol), [Some(expected); 2], "{bytes} B");
            }
            let _ = (cluster.engines[0].take(outgoing), cluster.engines[1].take(incoming));
        }
    }
}

#[test]
fn a_send_that_has_gone_as_a_whole_is_done_by_the_call_that_sends_it() {
    let mut cluster = Cluster::loopback(2);
    let _ = exchange(&mut cluster, 8, 8, false);
    let world = cluster.engines[0].comm_world();
    let incoming = cluster.engines[1].irecv(vec![0u8; 8], Rank(0), Tag(5), world).unwrap();
    let outgoing = cluster.engines[0].receipted().isend(vec![7u8; 8], Rank(1), Tag(5), world).unwrap();
    assert!(cluster.engines[0].test(&outgoing).unwrap().is_done(), "without a tick");
    let receipt = cluster.engines[0].receipt(&outgoing).unwrap();
    assert!(receipt.last_byte_ns.is_some() && receipt.completed_ns == Some(receipt.posted_ns), "{receipt:?}");
    cluster.finish(BOUND, 1, incoming).unwrap();
}

#[test]
fn the_receipt_of_a_message_that_left_at_once_goes_with_its_request() {
    let mut cluster = Cluster::loopback(2);
    let _ = exchange(&mut cluster, 8, 8, false);
    let world = cluster.engines[0].comm_world();
    let send = |c: &mut Cluster| {
        let outgoing = c.engines[0].receipted().isend(vec![7u8; 8], Rank(1), Tag(5), world).unwrap();
        let incoming = c.engines[1].irecv(vec![0u8; 8], Rank(0), Tag(5), world).unwrap();
        c.finish(BOUND, 1, incoming).unwrap();
        outgoing
    };
    let first = send(&mut cluster);
    let (kept, id) = (send(&mut cluster), first.id());
    let receipt = cluster.engines[0].receipt(&id).unwrap();
    assert_eq!((receipt.protocol, receipt.transport.as_deref()), (Some(Protocol::Eager), Some("loopback")));
    assert_eq!(cluster.engines[0].take(first).unwrap().1.source, Rank(1));
    assert_eq!(cluster.engines[0].receipt(&id), None, "it was taken");
    // This request takes the row that the first one had.
    let dropped = send(&mut cluster);
    assert_eq!(cluster.engines[0].receipt(&id), None, "this is another one's");
    assert!(cluster.engines[0].receipt(&dropped).is_some() && cluster.engines[0].receipt(&kept).is_some());
    let id = dropped.id();
    assert!(cluster.engines[0].test(&id).unwrap().is_done());
    drop(dropped);
    cluster.tick_until(BOUND, "it is forgotten", |c| c.engines[0].receipt(&id).is_none());
    assert!(cluster.engines[0].receipt(&kept).is_some());
}

#[test]
fn a_request_that_another_engine_takes_leaves_the_receipts_of_that_one_alone() {
    let mut cluster = Cluster::loopback(2);
    let _ = exchange(&mut cluster, 8, 8, false);
    let world = cluster.engines[0].comm_world();
    let own = cluster.engines[1].receipted().isend(vec![7u8; 8], Rank(1), Tag(6), world).unwrap();
    let foreign = cluster.engines[0].receipted().isend(vec![7u8; 8], Rank(1), Tag(5), world).unwrap();
    let id = foreign.id();
    assert!(own.id() != id && cluster.engines[1].receipt(&foreign).is_none(), "each engine knows its own");
    cluster.engines[1].take(foreign).unwrap();
    assert!(cluster.engines[1].receipt(&own).is_some());
    cluster.tick_until(BOUND, "its own engine forgets it", |c| c.engines[0].receipt(&id).is_none());
}

/// Engines of one process that follow each other have the same tables, and often the same list of dropped tokens.
#[test]
fn a_token_that_is_kept_past_its_engine_names_no_receipt_of_the_next_one() {
    let mut kept = Vec::new();
    for _ in 0..4 {
        let mut cluster = Cluster::loopback(2);
        let _ = exchange(&mut cluster, 8, 8, false);
        let (world, mut own_ones) = (cluster.engines[0].comm_world(), Vec::new());
        for used in [1, 2] {
            // The place of one receipt is used several times.
            for _ in 0..used {
                let taken = cluster.engines[0].receipted().isend(vec![7u8; 8], Rank(1), Tag(5), world).unwrap();
                cluster.engines[0].take(taken).unwrap();
            }
            let own = cluster.engines[0].receipted().isend(vec![7u8; 8], Rank(1), Tag(5), world).unwrap();
            assert!(!own.id().has_row() && cluster.engines[0].receipt(&own).is_some());
            for token in &kept {
                assert!(cluster.engines.iter_mut().all(|engine| engine.receipt(token).is_none()), "{token:?}");
            }
            own_ones.push(own);
        }
        // These tokens are stale from now on.
        drop(cluster);
        kept.extend(own_ones);
    }
}

#[test]
fn as_many_receipts_are_kept_without_rows_as_there_may_be_rows() {
    let limits = Limits { cars_max: 64, ..Limits::default() };
    let mut cluster = Cluster::loopback_with(2, |builder| builder.limits(limits.clone()));
    let _ = exchange(&mut cluster, 8, 8, false);
    let world = cluster.engines[0].comm_world();
    let mut sent = Vec::new();
    for _ in 0..100 {
        let incoming = cluster.engines[1].irecv(vec![0u8; 8], Rank(0), Tag(5), world).unwrap();
        sent.push(cluster.engines[0].receipted().isend(vec![7u8; 8], Rank(1), Tag(5), world).unwrap());
        cluster.finish(BOUND, 1, incoming).unwrap();
    }
    assert_eq!(sent.iter().filter(|sent| !sent.id().has_row()).count(), 64);
    for request in sent {
        let receipt = cluster.engines[0].receipt(&request).unwrap();
        assert_eq!((receipt.protocol, receipt.completed_ns.is_some()), (Some(Protocol::Eager), true));
        cluster.engines[0].take(request).unwrap();
    }
}
