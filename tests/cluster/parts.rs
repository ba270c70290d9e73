//! Eager messages in several frames: receives and probes that take them over while they arrive, and senders that die in the middle.

use tickwire::internals::components::{TagFilter, VcState};
use tickwire::testing::{Cluster, Death, SimConfig, SimNet, rows};
use tickwire::{Limits, Rank, RequestError, Source, Tag, Test};
use tickwire_tests::cases::{self, BOUND, content};

/// Two engines whose eager messages leave in parts of 1000 bytes. The ring is small and holds about four parts.
fn in_parts() -> Cluster {
    let limits = Limits { part_bytes: 1000, piece_bytes: 1000, ring_bytes: 8192, ..Limits::default() };
    Cluster::shm_with(2, |builder| builder.limits(limits.clone()))
}

#[test]
fn all_cases_in_parts() {
    cases::all(&mut in_parts());
    let limits = Limits { part_bytes: 64, ..Limits::default() };
    for seed in 0..3 {
        let net = SimNet::new(3, SimConfig::new(seed));
        cases::all(&mut Cluster::sim_with(3, &net, |builder| builder.limits(limits.clone())));
    }
}

#[test]
fn a_receive_takes_a_message_over_that_is_arriving() {
    for capacity in [8000, 5000, 2000] {
        let mut cluster = in_parts();
        let world = cluster.engines[0].comm_world();
        let message = content(3, 8000);
        // The connection is made first, so that the test controls the following ticks.
        let hello = cluster.engines[0].isend(vec![1u8], Rank(1), Tag(0), world).unwrap();
        let receive = cluster.engines[1].irecv(vec![0u8], Rank(0), Tag(0), world).unwrap();
        cluster.finish(BOUND, 1, receive).unwrap();
        cluster.finish(BOUND, 0, hello).unwrap();
        cluster.tick_times(5);

        let send = cluster.engines[0].isend(message.clone(), Rank(1), Tag(7), world).unwrap();
        cluster.tick(0);
        cluster.tick(1);
        let stream = rows(&mut cluster.engines[1]).progress.streams[0];
        assert!(stream.seen > 0 && stream.seen < 8000, "{stream:?}");
        let before = rows(&mut cluster.engines[1]).progress.kept_copied;
        let receive = cluster.engines[1].irecv(vec![0u8; capacity], Source::Any, TagFilter::Any, world).unwrap();
        let ended = cluster.finish(BOUND, 1, receive);
        cluster.finish(BOUND, 0, send).unwrap();
        match capacity {
            8000 => assert!(ended.unwrap().0 == message),
            _ => assert!(matches!(ended.unwrap_err().error, RequestError::Truncated { .. })),
        }
        let copied = rows(&mut cluster.engines[1]).progress.kept_copied - before;
        assert_eq!(copied, stream.seen, "only what had arrived went through a temporary");
        cluster.tick_times(20);
        cluster.assert_at_rest();
    }
}

#[test]
fn a_matched_probe_may_take_a_message_that_is_arriving_and_nobody_else_gets_it() {
    let mut cluster = in_parts();
    let world = cluster.engines[0].comm_world();
    let sends = [5u8, 6].map(|n| cluster.engines[0].isend(vec![n; 8000], Rank(1), Tag(n.into()), world).unwrap());
    let mut found = None;
    cluster.tick_until(BOUND, "a part has arrived", |cluster| {
        found = cluster.engines[1].improbe(Rank(0), TagFilter::Any, world).unwrap();
        found.is_some()
    });
    let receive = cluster.engines[1].imrecv(found.unwrap(), vec![0u8; 8000]).unwrap();
    let second = cluster.engines[1].irecv(vec![0u8; 8000], Rank(0), TagFilter::Any, world).unwrap();
    assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == [5; 8000]);
    assert!(cluster.finish(BOUND, 1, second).unwrap().0 == [6; 8000]);
    for send in sends {
        cluster.finish(BOUND, 0, send).unwrap();
    }
    cluster.tick_times(20);
    cluster.assert_at_rest();
}

#[test]
fn a_message_whose_sender_dies_half_way_is_never_received() {
    let net = SimNet::new(2, SimConfig::new(11));
    let limits = Limits { part_bytes: 64, ..Limits::default() };
    let mut cluster = Cluster::sim_with(2, &net, |builder| builder.limits(limits.clone()));
    let world = cluster.engines[0].comm_world();
    for n in 0..400u32 {
        drop(cluster.engines[0].isend(vec![n as u8; 4000], Rank(1), Tag(n), world).unwrap());
    }
    cluster.tick_until(BOUND, "a message is half there", |cluster| {
        let progress = rows(&mut cluster.engines[1]).progress;
        progress.unexpected.count > 2 && !progress.streams.is_empty()
    });
    net.kill(0, Death::Frame(net.frames(0) + 1));
    cluster.tick_until(BOUND, "the death is noticed", |cluster| cluster.vc_state(1, 0) == Some(VcState::Failed));
    assert!(rows(&mut cluster.engines[1]).progress.streams.is_empty());
    let mut whole = 0;
    loop {
        let receive = match cluster.engines[1].irecv(vec![0u8; 4000], Source::Any, Tag(whole), world) {
            Ok(receive) => receive,
            Err(rejected) => panic!("{}", rejected.error),
        };
        cluster.tick_times(2);
        match cluster.engines[1].test(&receive) {
            Ok(Test::Done(status)) => assert_eq!(status.length, 4000),
            _ => break,
        }
        let (bytes, _) = cluster.engines[1].take(receive).unwrap();
        assert!(bytes == vec![whole as u8; 4000], "message {whole}");
        whole += 1;
    }
    assert!(whole < 400, "it died before the end");
}

#[test]
fn what_a_matched_probe_has_taken_of_a_message_that_was_cut_off_is_given_back() {
    let net = SimNet::new(2, SimConfig::new(5));
    let limits = Limits { part_bytes: 64, ..Limits::default() };
    let mut cluster = Cluster::sim_with(2, &net, |builder| builder.limits(limits.clone()));
    let world = cluster.engines[0].comm_world();
    drop(cluster.engines[0].isend(vec![1u8; 8000], Rank(1), Tag(1), world).unwrap());
    let free = rows(&mut cluster.engines[1]).progress.free_buffer_rows;
    let mut found = None;
    cluster.tick_until(BOUND, "a part has arrived", |cluster| {
        found = cluster.engines[1].improbe(Rank(0), TagFilter::Any, world).unwrap();
        found.is_some()
    });
    assert!(!rows(&mut cluster.engines[1]).progress.streams.is_empty(), "the rest is still to come");
    net.kill(0, Death::Frame(net.frames(0) + 1));
    cluster.tick_until(BOUND, "the death is noticed", |cluster| cluster.vc_state(1, 0) == Some(VcState::Failed));
    let receive = cluster.engines[1].imrecv(found.unwrap(), vec![0u8; 8000]).unwrap();
    let ended = cluster.finish(BOUND, 1, receive);
    assert!(matches!(ended.unwrap_err().error, RequestError::PeerFailed { .. }));
    assert_eq!(rows(&mut cluster.engines[1]).progress.free_buffer_rows, free);
}
