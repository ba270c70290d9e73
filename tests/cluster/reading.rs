//! Long messages over a simulated network. They are read out of their senders' memory, or cannot be read.

use tickwire::internals::components::Protocol;
use tickwire::internals::traces::DELIVER;
use tickwire::testing::{Cluster, Death, SimConfig, SimNet};
use tickwire::{Rank, RequestError, Tag, Test};
use tickwire_tests::cases::{BOUND, content};

/// A length that cannot be read in one pass, bytes.
const LONG: usize = (5 << 20) + 3;

/// Sends a message from rank 0 to rank 1. Returns the protocol that each side reports.
fn pass(cluster: &mut Cluster, number: u64, length: usize) -> [Option<Protocol>; 2] {
    let (world, message) = (cluster.engines[0].comm_world(), content(number, length));
    let receive = cluster.engines[1].receipted().irecv(vec![0u8; length], Rank(0), Tag(1), world).unwrap();
    let send = cluster.engines[0].receipted().isend(message.clone(), Rank(1), Tag(1), world).unwrap();
    cluster.tick_until(BOUND, "both are done", |cluster| {
        cluster.engines[0].test(&send) != Ok(Test::Pending) && cluster.engines[1].test(&receive) != Ok(Test::Pending)
    });
    let receipts = [cluster.engines[0].receipt(&send).unwrap(), cluster.engines[1].receipt(&receive).unwrap()];
    assert!(cluster.engines[1].take(receive).unwrap().0 == message, "message {number}");
    cluster.engines[0].take(send).unwrap();
    receipts.map(|receipt| receipt.protocol)
}

#[test]
fn long_messages_are_read_out_of_memory() {
    let slow = SimConfig { partial_of_256: 60, shuffled: true, ..SimConfig::new(3) };
    for config in [SimConfig::calm(1), SimConfig::new(2), slow] {
        let net = SimNet::new(2, SimConfig { remote_read: true, ..config });
        let mut cluster = Cluster::sim(2, &net);
        for (number, length) in [(0, 20_000), (1, LONG), (2, 9000)] {
            let (frames, read) = (net.frames(0), net.read_bytes(0, 1));
            assert_eq!(pass(&mut cluster, number, length), [Some(Protocol::Read); 2], "{:?}", net.config());
            assert_eq!(net.read_bytes(0, 1) - read, length as u64);
            assert!(net.frames(0) - frames < 20, "an offer, and credit");
        }
        assert_eq!(pass(&mut cluster, 3, 100), [Some(Protocol::Eager); 2]);
        cluster.assert_at_rest();
    }
}

#[test]
fn the_loop_over_rows_takes_offers_and_their_answers() {
    let net = SimNet::new(2, SimConfig { remote_read: true, ..SimConfig::calm(1) });
    let mut cluster = Cluster::sim(2, &net);
    let world = cluster.engines[0].comm_world();
    for number in 0..20 {
        let receive = cluster.engines[1].irecv(vec![0u8; 20_000], Rank(0), Tag(1), world).unwrap();
        let send = cluster.engines[0].isend(content(number, 20_000), Rank(1), Tag(1), world).unwrap();
        assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == content(number, 20_000));
        cluster.finish(BOUND, 0, send).unwrap();
    }
    let delivered = [0, 1].map(|rank: usize| cluster.engines[rank].counters().runs()[DELIVER]);
    assert!(delivered.iter().all(|&runs| runs > 0), "{delivered:?}");
    assert_eq!(net.read_bytes(0, 1), 20 * 20_000);
    cluster.assert_at_rest();
}

#[test]
fn what_cannot_be_read_comes_whole_in_pieces() {
    let mut seen = [0; 2];
    for seed in 0..6 {
        let config = SimConfig { remote_read: true, unread_of_256: 128, ..SimConfig::new(seed) };
        let net = SimNet::new(2, config);
        let mut cluster = Cluster::sim(2, &net);
        for number in 0..6 {
            let length = if number % 3 == 0 { LONG } else { 10_000 + number as usize };
            let [_, how] = pass(&mut cluster, number, length);
            assert!(matches!(how, Some(Protocol::Read | Protocol::Pieces)), "{how:?}");
            seen[usize::from(how == Some(Protocol::Pieces))] += 1;
        }
        cluster.assert_at_rest();
    }
    assert!(seen.iter().all(|&count| count > 0), "read, in pieces: {seen:?}");
}

#[test]
fn many_at_once_are_read_or_come_in_pieces() {
    for seed in 0..4 {
        let net = SimNet::new(2, SimConfig { remote_read: true, unread_of_256: 100, ..SimConfig::new(seed) });
        let mut cluster = Cluster::sim(2, &net);
        let world = cluster.engines[0].comm_world();
        let mut open = Vec::new();
        for number in 0..30 {
            let (message, tag) = (content(number, 9000 + number as usize * 777), Tag(number as u32));
            let send = cluster.engines[0].isend(message.clone(), Rank(1), tag, world).unwrap();
            let receive = cluster.engines[1].irecv(vec![0u8; message.len()], Rank(0), tag, world).unwrap();
            open.push((send, receive, message));
        }
        for (send, receive, message) in open {
            assert!(cluster.finish(BOUND, 1, receive).unwrap().0 == message);
            cluster.finish(BOUND, 0, send).unwrap();
        }
        assert!(net.read_bytes(0, 1) > 0);
        cluster.assert_at_rest();
    }
}

/// The sender dies and its memory is freed while its offer is in flight. The memory must not be read.
#[test]
fn memory_of_a_sender_that_has_died_is_not_read() {
    let config = SimConfig { remote_read: true, notice_ns: 1_000_000, ..SimConfig::calm(1) };
    let net = SimNet::new(2, SimConfig { delay_ns: 5_000_000..5_000_001, ..config });
    let mut cluster = Cluster::sim(2, &net);
    pass(&mut cluster, 0, 8);
    let (world, frames) = (cluster.engines[0].comm_world(), net.frames(0));
    let receive = cluster.engines[1].irecv(vec![0u8; 20_000], Rank(0), Tag(1), world).unwrap();
    let send = cluster.engines[0].isend(content(1, 20_000), Rank(1), Tag(1), world).unwrap();
    cluster.tick_until(BOUND, "the offer has left", |_| net.frames(0) > frames);
    net.kill(0, Death::At(cluster.now_ns));
    let failed = cluster.finish(BOUND, 0, send).unwrap_err();
    assert!(failed.buffer.is_some() && matches!(failed.error, RequestError::PeerFailed { .. }), "{failed:?}");
    drop(failed);
    let failed = cluster.finish(BOUND, 1, receive).unwrap_err();
    assert!(matches!(failed.error, RequestError::PeerFailed { .. }), "{failed:?}");
    assert_eq!((failed.buffer, net.read_bytes(0, 1)), (Some(vec![0; 20_000]), 0));
}
