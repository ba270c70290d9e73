//! Probes: what they see. A matched probe takes its message, so that no other call sees it.

use crate::kit::{LONG, ME, SHORT, settle, solo};
use tickwire::internals::components::{PostError, TagFilter};
use tickwire::testing::Cluster;
use tickwire::{Rank, Request, RequestError, Source, Status, Tag};
use tickwire_tests::cases::{BOUND, content, everywhere};

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
            let receive = cluster.engines[0].irecv(vec![0u8; length], Rank(source), Tag(tag), world).unwrap();
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
            let last = cluster.engines[0].irecv(vec![0u8; length], Rank(1), Tag(4), world).unwrap();
            assert!(cluster.finish(BOUND, 0, last).unwrap().0 == content(2, length), "the other two are taken");
            assert!(cluster.engines[0].improbe(Source::Any, TagFilter::Any, world).unwrap().is_none());
            drop(dropped);
            let first = cluster.engines[0].imrecv(first, vec![0u8; length]).unwrap();
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
    engine.send(&[1u8; 20], ME, Tag(1), engine.comm_world()).unwrap();
    let message = engine.mprobe(ME, Tag(1), engine.comm_world()).unwrap();
    let rejected = cluster.engines[0].imrecv(message, vec![0u8; 20]).unwrap_err();
    assert_eq!((&rejected.error, rejected.buffer.len()), (&PostError::Stale, 20));
    let error = engine.mrecv(rejected.message, &mut [0u8; 5]).unwrap_err();
    let status = Status { source: ME, tag: Tag(1), length: 20 };
    assert_eq!(error, RequestError::Truncated { status, capacity: 5 }.into());
    let _ = world;
}

#[test]
fn probes_of_a_dead_proc_end() {
    let mut cluster = Cluster::loopback(2);
    let world = cluster.engines[0].comm_world();
    let hello = cluster.engines[0].isend(vec![1u8], Rank(1), Tag(9), world).unwrap();
    let receive = cluster.engines[1].irecv(vec![0u8], ME, Tag(9), world).unwrap();
    cluster.finish(BOUND, 1, receive).unwrap();
    cluster.finish(BOUND, 0, hello).unwrap();
    drop(cluster.engines.pop());
    let mut engine = cluster.engines.pop().unwrap();
    let error = engine.probe(Rank(1), Tag(1), world).unwrap_err();
    assert!(error.to_string().contains("proc 1 has failed"), "{error}");
}
