//! What must hold for the engines of a cluster that are left after others have died.

use tickwire::internals::components::NIL;
use tickwire::testing::{Cluster, rows};

/// Checks that the survivors hold no windows, graphs, supplies or rows of messages any more. Graphs of collective operations
/// that have ended well may be kept, with their rows, for the next equal call.
///
/// # Panics
/// If they do.
pub fn check_given_back(cluster: &mut Cluster, living: &[usize]) {
    cluster.tick_times(300);
    for &rank in living {
        let progress = &rows(&mut cluster.engines[rank]).progress;
        assert_eq!((progress.forward_bytes.used, progress.graphs.windows), (0, 0), "engine {rank}");
        let left = || progress.graphs.list.iter().flatten();
        let is_kept = left().all(|graph| graph.key.is_some() && graph.request == NIL && !graph.failed);
        let kept: usize = left().map(|graph| graph.nodes.len()).sum();
        let bytes: usize = left().map(|graph| graph.bytes()).sum();
        assert_eq!(progress.graphs.kept_bytes, bytes, "engine {rank}: memory of kept graphs");
        assert!(is_kept, "engine {rank}\n{}", cluster.report());
        let all = rows(&mut cluster.engines[rank]);
        assert_eq!(all.progress.free_supplies.count as usize, all.supplies.len());
        let free = all.progress.free_cars.count as usize;
        assert_eq!(free, all.cars.len() - kept, "engine {rank}\n{}", cluster.report());
    }
}
