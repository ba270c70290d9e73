//! What must hold for the engines of a cluster that are left after others have died.

use tickwire::testing::{Cluster, rows};

/// Checks that the survivors hold no windows, graphs, supplies or rows of messages any more.
///
/// # Panics
/// If they do.
pub fn check_given_back(cluster: &mut Cluster, living: &[usize]) {
    cluster.tick_times(300);
    for &rank in living {
        let progress = &rows(&mut cluster.engines[rank]).progress;
        assert_eq!((progress.forward_bytes.used, progress.graphs.windows), (0, 0), "engine {rank}");
        assert!(progress.graphs.list.iter().all(Option::is_none), "engine {rank}\n{}", cluster.report());
        let all = rows(&mut cluster.engines[rank]);
        assert_eq!(all.progress.free_supplies.count as usize, all.supplies.len());
        assert_eq!(all.progress.free_cars.count as usize, all.cars.len(), "engine {rank}\n{}", cluster.report());
    }
}
