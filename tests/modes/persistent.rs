//! Persistent requests: they are started many times, and dropped or freed while they are active.

use crate::kit::{LONG, ME, SHORT, settle};
use std::sync::Arc;
use tickwire::internals::components::{NIL, PostError, TagFilter};
use tickwire::testing::Cluster;
use tickwire::{Rank, RequestError, Source, Status, Tag, Tested};
use tickwire_tests::cases::{BOUND, content, everywhere};

#[test]
fn persistent_requests_start_again_and_again() {
    everywhere(2, |cluster| {
        let world = cluster.engines[0].comm_world();
        cluster.engines[1].attach_buffer(1 << 22);
        for length in [0, SHORT, LONG] {
            let zero = || vec![0u8; length];
            let mut receives: Vec<_> = [Source::Rank(Rank(1)), Source::Any]
                .iter()
                .flat_map(|&source| [(source, TagFilter::Tag(Tag(2))), (source, TagFilter::Any)])
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
            // A cancelled request can be started again. Freeing a request returns its buffer.
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
        let receive = cluster.engines[0].irecv(vec![0u8; LONG], Rank(1), Tag(2), world).unwrap();
        assert!(cluster.finish(BOUND, 0, receive).unwrap().0[..] == shared[..]);
        cluster.tick_times(5);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
    cluster.assert_at_rest();
}
