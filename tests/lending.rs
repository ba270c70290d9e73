//! A transport that lends memory of its own: bytes that a graph passes on go through that, instead of through temporaries.

use crate::{Streams, span, streams};
use std::sync::{Arc, Mutex};
use tickwire::internals::components::limits::{FORWARD_WINDOW, GRANT_BYTES};
use tickwire::internals::components::{Span, Spans};
use tickwire::internals::transports::Lending;
use tickwire::testing::{Cluster, ROWS, rows};
use tickwire::{Engine, PostError, Rank, RequestError, Tag};
use tickwire_tests::cases::{BOUND, content};

/// Length of the message that is passed on.
const BYTES: usize = 1 << 20;
/// Buffers that are lent, and the length of each: together less than a window.
const BUFFERS: usize = 3;
const BUFFER_BYTES: usize = GRANT_BYTES / 2 + 100;
const TAG: Tag = Tag(4);

/// Buffers of a transport.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Buffers>>);

#[derive(Default)]
struct Buffers {
    free: Vec<Vec<u8>>,
    lent: Vec<Vec<u8>>,
    /// Bytes that were ever lent.
    total: u64,
}

impl Pool {
    fn new() -> Self {
        let free = (0..BUFFERS).map(|_| vec![0; BUFFER_BYTES]).collect();
        Pool(Arc::new(Mutex::new(Buffers { free, ..Buffers::default() })))
    }
}

// SAFETY: the buffers are its own, and stay until they are taken back.
#[expect(unsafe_code, reason = "bytes that are addresses")]
unsafe impl Lending for Pool {
    fn lend(&mut self, _: u32, least: u64, most: u64, into: &mut Spans) -> u64 {
        let mut buffers = self.0.lock().unwrap();
        let Some(mut buffer) = buffers.free.pop() else { return 0 };
        let run = span(&mut buffer).part(0, most as usize);
        if (run.len() as u64) < least {
            buffers.free.push(buffer);
            return 0;
        }
        into.push(run);
        buffers.lent.push(buffer);
        buffers.total += run.len() as u64;
        run.len() as u64
    }

    fn take_back(&mut self, run: Span) {
        let mut buffers = self.0.lock().unwrap();
        let place = buffers.lent.iter().position(|buffer| buffer.as_ptr() == run.start().cast_const());
        let buffer = buffers.lent.swap_remove(place.expect("it was lent"));
        buffers.free.push(buffer);
    }
}

/// Three procs in a row. The middle one reaches each of the others over another transport, of which one lends.
fn row_of_three(lends: &str, pool: &Pool) -> Cluster {
    // Each transport has streams between two of the procs only.
    let mut all = [streams(3), streams(3)];
    for (kind, (list, apart)) in all.iter_mut().zip([2, 0]).enumerate() {
        for (proc, streams) in list.iter_mut().enumerate() {
            streams.name = ["before", "behind"][kind];
            streams.lines[apart] = None;
            if proc == apart {
                streams.lines.iter_mut().for_each(|line| *line = None);
            }
            streams.pool = (proc == 1 && streams.name == lends).then(|| pool.clone());
        }
    }
    let both = all.map(|list| Mutex::new(list.into_iter().map(Some).collect::<Vec<Option<Streams>>>()));
    Cluster::build(3, |rank| {
        let builder = Engine::builder().exclude(["shm"]).initial_rows(ROWS);
        both.iter()
            .fold(builder, |builder, list| builder.transport(list.lock().unwrap()[rank as usize].take().unwrap()))
    })
}

#[test]
fn bytes_go_on_through_the_memory_that_either_transport_lends() {
    // Over the one the message arrives, over the other it leaves.
    for lends in ["before", "behind", "none"] {
        let pool = Pool::new();
        let mut cluster = row_of_three(lends, &pool);
        let message = content(7, BYTES);
        let world = cluster.engines[0].comm_world();
        let first = cluster.engines[0].gather_block(Rank(1), TAG, world).send(message.clone()).start().unwrap();
        let middle = cluster.engines[1].scatter_block(Rank(0), TAG, world).forward(BYTES, Rank(2)).start().unwrap();
        let last = cluster.engines[2].scatter_block(Rank(1), TAG, world).recv(vec![0u8; BYTES]).start().unwrap();
        assert!(cluster.finish(BOUND, 2, last).unwrap().0.1 == message, "{lends}");
        cluster.finish(BOUND, 1, middle).unwrap();
        cluster.finish(BOUND, 0, first).unwrap();
        let buffers = pool.0.lock().unwrap();
        let temporaries = rows(&mut cluster.engines[1]).progress.forward_bytes;
        assert_eq!((buffers.free.len(), buffers.lent.len(), temporaries.used), (BUFFERS, 0, 0), "all are back");
        if lends == "none" {
            assert!(buffers.total == 0 && (1..=FORWARD_WINDOW as u64).contains(&temporaries.most));
        } else {
            assert_eq!((buffers.total, temporaries.most), (BYTES as u64, 0), "{lends}: all through what is lent");
        }
        drop(buffers);
        cluster.assert_at_rest();
    }
}

#[test]
fn what_is_lent_comes_back_where_a_rank_has_gone() {
    let pool = Pool::new();
    let mut cluster = row_of_three("behind", &pool);
    let world = cluster.engines[0].comm_world();
    let first = cluster.engines[0].gather_block(Rank(1), TAG, world).send(content(7, BYTES)).start().unwrap();
    let middle = cluster.engines[1].scatter_block(Rank(0), TAG, world).forward(BYTES, Rank(2)).start().unwrap();
    let last = cluster.engines[2].scatter_block(Rank(1), TAG, world).recv(vec![0u8; BYTES]).start().unwrap();
    cluster.tick_until(BOUND, "some of it is under way", |_| !pool.0.lock().unwrap().lent.is_empty());
    drop(last);
    drop(cluster.engines.pop());
    let failed = cluster.finish(BOUND, 1, middle).unwrap_err();
    assert!(matches!(failed.error, RequestError::PeerFailed { proc, .. } if proc.0 == 2), "{failed:?}");
    let buffers = pool.0.lock().unwrap();
    assert!(buffers.total > 0 && buffers.total < BYTES as u64, "it was in the midst of it");
    assert_eq!((buffers.free.len(), buffers.lent.len()), (BUFFERS, 0));
    drop(buffers);
    let refused = cluster.engines[1].isend(vec![1u8], Rank(2), TAG, world).map(drop).map_err(|rejected| rejected.error);
    assert!(matches!(refused, Err(PostError::PeerFailed { .. })), "{refused:?}");
    drop(first);
}
