//! Credit bounds the unexpected messages of a receiver. Answers overtake sends that wait for credit.

use tickwire::internals::components::TagFilter;
use tickwire::testing::{Cluster, SimConfig, SimNet, rows};
use tickwire::{Engine, Limits, PostError, Rank, Source, Tag};
use tickwire_tests::cases::{BOUND, content};

/// Makes a cluster of two engines with limits.
type Make = fn(&Limits) -> Cluster;

/// Clusters of two engines with the smallest possible credit. Some transports grant credit in memory, others in frames.
fn of_little_credit() -> [(&'static str, Cluster); 3] {
    let limits = Limits { unexpected_bytes_max: 0, cars_max: 1 << 14, ..Limits::default() };
    let over: [(&'static str, Make); 3] = [
        ("loopback", |limits| Cluster::loopback_with(2, |builder| builder.limits(limits.clone()))),
        ("shared memory", |limits| Cluster::shm_with(2, |builder| builder.limits(limits.clone()))),
        ("frames", |limits| Cluster::sim_with(2, &SimNet::new(2, SimConfig::new(7)), |b| b.limits(limits.clone()))),
    ];
    over.map(|(name, make)| (name, make(&limits)))
}

/// Unexpected messages that an engine holds: their lines of credit, and the number of offers.
fn kept(engine: &mut Engine) -> (u64, u32) {
    let all = rows(engine);
    (all.progress.unexpected.lines, all.vcs.iter().map(|vc| vc.offers_kept).sum())
}

#[test]
fn a_receiver_that_posts_nothing_keeps_a_bounded_part_and_loses_nothing() {
    const MESSAGES: u32 = 1000;
    for (name, mut cluster) in of_little_credit() {
        let world = cluster.engines[0].comm_world();
        let window = rows(&mut cluster.engines[1]).progress.window;
        let length = |n: u32| 100 + (n as usize * 37) % 1500;
        let mut sends: Vec<_> = (0..MESSAGES)
            .map(|n| cluster.engines[0].isend(content(n.into(), length(n)), Rank(1), Tag(n), world).unwrap())
            .collect();
        for _ in 0..300 {
            cluster.tick_all();
            let (lines, offers) = kept(&mut cluster.engines[1]);
            assert!(lines <= window.lines.into() && offers <= window.envelopes, "{name}: {lines} {offers}");
        }
        assert!(sends.iter().any(|send| !cluster.engines[0].test(send).unwrap().is_done()), "{name}");
        let (lines, offers) = kept(&mut cluster.engines[1]);
        assert!(lines > u64::from(window.lines) / 2 && offers > 0, "{name}: {lines} {offers}");

        // The receive of the last message lets all others arrive. It then takes the last one from the unexpected queue.
        let last = MESSAGES - 1;
        let receive = cluster.engines[1].irecv(vec![0u8; 2000], Rank(0), Tag(last), world).unwrap();
        let (bytes, status) = cluster.finish(BOUND * 20, 1, receive).unwrap();
        assert!(bytes[..status.length] == content(last.into(), length(last)), "{name}");
        for n in 0..last {
            let receive = cluster.engines[1].irecv(vec![0u8; 2000], Rank(0), TagFilter::Any, world).unwrap();
            let (bytes, status) = cluster.finish(BOUND, 1, receive).unwrap();
            assert_eq!((status.tag, status.length), (Tag(n), length(n)), "{name}");
            assert!(bytes[..status.length] == content(n.into(), length(n)), "{name}: message {n}");
        }
        for send in sends.drain(..) {
            cluster.finish(BOUND, 0, send).unwrap();
        }
        cluster.tick_times(50);
        cluster.assert_at_rest();
        let credit = rows(&mut cluster.engines[1]).vcs.iter().find(|vc| vc.proc == 0).map(|vc| vc.offers_kept);
        assert_eq!(credit, Some(0), "{name}");
    }
}

#[test]
fn a_probe_finds_what_is_behind_more_than_may_be_kept() {
    for (name, mut cluster) in of_little_credit() {
        let world = cluster.engines[0].comm_world();
        for n in 0..600 {
            drop(cluster.engines[0].isend(vec![n as u8; 1000], Rank(1), Tag(n), world).unwrap());
        }
        cluster.tick_times(100);
        let mut found = None;
        cluster.tick_until(BOUND, "the probe has found it", |cluster| {
            found = cluster.engines[1].iprobe(Source::Any, Tag(599), world).unwrap();
            found.is_some()
        });
        assert_eq!(found.map(|status| status.length), Some(1000), "{name}");
        for _ in 0..600 {
            let receive = cluster.engines[1].irecv(vec![0u8; 1000], Rank(0), TagFilter::Any, world).unwrap();
            cluster.finish(BOUND, 1, receive).unwrap();
        }
        cluster.tick_times(50);
        cluster.assert_at_rest();
    }
}

#[test]
fn with_all_credit_spent_answers_still_go_both_ways() {
    for (name, mut cluster) in of_little_credit() {
        let world = cluster.engines[0].comm_world();
        // Each engine floods the other one. Then both exchange large messages, whose answers must overtake the sends
        // that wait for credit.
        let mut flood = Vec::new();
        for rank in 0..2usize {
            let to = Rank(1 - rank as u32);
            for n in 0..500u32 {
                flood.push((rank, cluster.engines[rank].isend(vec![1u8; 1000], to, Tag(n), world).unwrap()));
            }
            flood.push((rank, cluster.engines[rank].isend(vec![2u8; 100_000], to, Tag(900), world).unwrap()));
        }
        cluster.tick_times(100);
        let large: Vec<_> = (0..2usize)
            .map(|rank| {
                let from = Rank(1 - rank as u32);
                (rank, cluster.engines[rank].irecv(vec![0u8; 100_000], from, Tag(900), world).unwrap())
            })
            .collect();
        for (rank, receive) in large {
            let (bytes, _) = cluster.finish(BOUND * 5, rank, receive).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 2), "{name}");
        }
        for rank in 0..2usize {
            for n in 0..500 {
                let from = Rank(1 - rank as u32);
                let receive = cluster.engines[rank].irecv(vec![0u8; 1000], from, Tag(n), world).unwrap();
                cluster.finish(BOUND, rank, receive).unwrap();
            }
        }
        for (rank, send) in flood {
            cluster.finish(BOUND, rank, send).unwrap();
        }
        cluster.tick_times(50);
        cluster.assert_at_rest();
    }
}

#[test]
fn with_every_buffer_and_row_taken_answers_still_go_both_ways() {
    let limits = Limits { buffers_max: 16, cars_max: 16, ..Limits::default() };
    let net = SimNet::new(2, SimConfig::new(3));
    let clusters = [
        ("loopback", Cluster::loopback_with(2, |builder| builder.limits(limits.clone()).initial_rows(16))),
        ("shared memory", Cluster::shm_with(2, |builder| builder.limits(limits.clone()).initial_rows(16))),
        ("frames", Cluster::sim_with(2, &net, |builder| builder.limits(limits.clone()).initial_rows(16))),
    ];
    for (name, mut cluster) in clusters {
        let world = cluster.engines[0].comm_world();
        // Each engine sends as many messages as the other one accepts, and a large message among them. Nobody
        // receives them yet.
        let (mut sends, mut last) = (Vec::new(), [0; 2]);
        let mut receives = Vec::new();
        for rank in 0..2usize {
            let peer = Rank(1 - rank as u32);
            receives.push((rank, cluster.engines[rank].irecv(vec![0u8; 100_000], peer, Tag(900), world).unwrap()));
        }
        for n in 0..300 {
            if n == 1 {
                // After these ticks the engines are connected.
                cluster.tick_times(100);
            }
            for (rank, last) in last.iter_mut().enumerate() {
                let peer = Rank(1 - rank as u32);
                if n == 10 {
                    sends.push((rank, cluster.engines[rank].isend(vec![2u8; 100_000], peer, Tag(900), world).unwrap()));
                }
                match cluster.engines[rank].isend(vec![1u8; 100], peer, Tag(n), world) {
                    Ok(send) => {
                        sends.push((rank, send));
                        *last = n;
                    }
                    Err(full) => assert!(n > 4 && matches!(full.error, PostError::Full { .. }), "{name}: {full}"),
                }
            }
        }
        for (rank, receive) in receives {
            let (bytes, _) = cluster.finish(BOUND, rank, receive).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 2), "{name}");
        }
        for rank in 0..2usize {
            let kept = rows(&mut cluster.engines[rank]).progress.unexpected.count;
            assert!(kept > 13, "{name}: {kept}, which is what 16 rows have room for");
            let peer = Rank(1 - rank as u32);
            for n in (0..=last[1 - rank]).rev() {
                let receive = cluster.engines[rank].irecv(vec![0u8; 100], peer, Tag(n), world).unwrap();
                cluster.finish(BOUND, rank, receive).unwrap();
            }
        }
        for (rank, send) in sends {
            cluster.finish(BOUND, rank, send).unwrap();
        }
        cluster.tick_times(50);
        cluster.assert_at_rest();
    }
}
