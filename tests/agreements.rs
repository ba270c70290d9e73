//! Drives agreements of a cluster's engines to their end.

use crate::cases::BOUND;
use tickwire::testing::Cluster;
use tickwire::{Agreed, Agreement, Comm, CommError, Engine};

/// The results of an agreement on some engines.
pub type Outcomes = Vec<Result<Option<Comm>, CommError>>;

/// Lets the engines of these ranks begin an agreement. Ticks all engines until each agreement has its result.
pub fn agree(
    cluster: &mut Cluster,
    ranks: &[usize],
    mut begin: impl FnMut(&mut Engine) -> Result<Agreement, CommError>,
) -> Outcomes {
    let begun = ranks.iter().map(|&rank| (rank, begin(&mut cluster.engines[rank]).unwrap())).collect();
    settle(cluster, begun)
}

/// Ticks all engines until each of these agreements has its result.
pub fn settle(cluster: &mut Cluster, mut begun: Vec<(usize, Agreement)>) -> Outcomes {
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
pub fn everyone(cluster: &Cluster) -> Vec<usize> {
    (0..cluster.engines.len()).collect()
}

/// Duplicates a communicator whose handle is the same on all engines.
pub fn dup(cluster: &mut Cluster, comm: Comm) -> Vec<Comm> {
    let ranks = everyone(cluster);
    agree(cluster, &ranks, |engine| engine.start_dup(comm)).into_iter().map(|made| made.unwrap().unwrap()).collect()
}
