//! Helpers of several files: agreements driven to their end, and messages within communicators.

use tickwire::testing::Cluster;
use tickwire::{Agreed, Agreement, Comm, CommError, Engine, Source, Tag, TagFilter};
use tickwire_tests::cases::BOUND;

/// What came of an agreement on each engine.
type Outcomes = Vec<Result<Option<Comm>, CommError>>;

/// Lets the engines of some ranks begin an agreement, and ticks all until each has its result.
pub(crate) fn agree(
    cluster: &mut Cluster,
    ranks: &[usize],
    mut begin: impl FnMut(&mut Engine) -> Result<Agreement, CommError>,
) -> Outcomes {
    let begun = ranks.iter().map(|&rank| (rank, begin(&mut cluster.engines[rank]).unwrap())).collect();
    settle(cluster, begun)
}

/// Ticks all until each of these agreements has its result.
pub(crate) fn settle(cluster: &mut Cluster, mut begun: Vec<(usize, Agreement)>) -> Outcomes {
    let mut outcomes: Vec<_> = begun.iter().map(|_| None).collect();
    cluster.tick_until(BOUND, "all have agreed", |cluster| {
        for ((rank, agreement), outcome) in begun.iter_mut().zip(&mut outcomes) {
            if outcome.is_none() {
                *outcome = match cluster.engines[*rank].test_agreement(agreement) {
                    Ok(Agreed::Pending) => None,
                    Ok(Agreed::Done(made)) => Some(Ok(made)),
                    Err(error) => Some(Err(error)),
                };
            }
        }
        outcomes.iter().all(Option::is_some)
    });
    for (rank, mut agreement) in begun {
        assert_eq!(cluster.engines[rank].test_agreement(&mut agreement), Err(CommError::Stale), "taken");
    }
    outcomes.into_iter().flatten().collect()
}

/// The ranks of all engines.
pub(crate) fn everyone(cluster: &Cluster) -> Vec<usize> {
    (0..cluster.engines.len()).collect()
}

/// Duplicates a communicator that has the same handle everywhere.
pub(crate) fn dup(cluster: &mut Cluster, comm: Comm) -> Vec<Comm> {
    let ranks = everyone(cluster);
    agree(cluster, &ranks, |engine| engine.start_dup(comm)).into_iter().map(|made| made.unwrap().unwrap()).collect()
}

/// The communicator of all engines: its handle is the same everywhere.
pub(crate) const WORLD: Comm = Comm(0);

/// The context id of a communicator at one engine.
pub(crate) fn id(cluster: &mut Cluster, rank: usize, comm: Comm) -> u32 {
    cluster.engines[rank].comm_context_id(comm).unwrap()
}

/// Sends a message from one engine to another in their communicators, and receives it there from any source.
pub(crate) fn pass(cluster: &mut Cluster, from: (usize, Comm), to: (usize, Comm), bytes: &[u8]) {
    let rank = cluster.engines[to.0].comm_rank(to.1).unwrap();
    let sender = cluster.engines[from.0].comm_rank(from.1).unwrap();
    let send = cluster.engines[from.0].isend(bytes.to_vec(), rank, Tag(1), from.1).unwrap();
    let receive = cluster.engines[to.0].irecv(vec![0; bytes.len()], Source::Any, TagFilter::Any, to.1).unwrap();
    let (found, status) = cluster.finish(BOUND, to.0, receive).unwrap();
    assert!(found == bytes);
    assert_eq!((status.source, status.length), (sender, bytes.len()));
    cluster.finish(BOUND, from.0, send).unwrap();
}
